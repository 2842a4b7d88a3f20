#!/bin/bash
# Installs the Debian packages that are missing. Where none is, it does nothing,
# and needs neither root nor a network.
#
#   scripts/setup.sh run    what `make run` needs
#   scripts/setup.sh vm     what `make test-vm` needs
#   scripts/setup.sh kernels  what `make test-kernels` needs
#   scripts/setup.sh test   what `make test` needs: all of it
set -euo pipefail

die() { echo "setup: $*" >&2; exit 1; }

readonly go_needed=1.26
tls=(ca-certificates) # the go command fetches modules
python=(python3 python3-ipykernel python3-matplotlib python3-pandas)
machine=(qemu-system-x86 xz-utils)
kernels=(mmdebstrap)
# The race detector needs a C compiler; terminals are tested through tmux, other
# kernels than ipykernel with xpython.
tests=(gcc libc6-dev iproute2 procps tar tmux vim-tiny less nodejs e2fsprogs xfsprogs xpython)

case ${1-} in
run) wanted=("${tls[@]}" "${python[@]}") ;;
vm) wanted=("${tls[@]}" "${machine[@]}") ;;
kernels) wanted=("${tls[@]}" "${python[@]}" "${kernels[@]}") ;;
test) wanted=("${tls[@]}" "${python[@]}" "${machine[@]}" "${kernels[@]}" "${tests[@]}") ;;
*) die "usage: scripts/setup.sh run|vm|kernels|test" ;;
esac

command -v go >/dev/null ||
    die "Go is not in PATH: install Go $go_needed or newer (Debian's own package is older)"
go_here=$(go env GOVERSION)
go_here=${go_here#go}
printf '%s\n' "$go_needed" "$go_here" | sort -V -C ||
    die "Go $go_needed or newer is needed, and $(command -v go) is $go_here"

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    die "this is not a Debian system: install by other means what these packages have: ${wanted[*]}"

missing=()
for package in "${wanted[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $state == installed ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

as_root=()
if ((EUID != 0)); then
    command -v sudo >/dev/null ||
        die "packages are missing and there is neither root nor sudo to install them: ${missing[*]}"
    as_root=(sudo)
fi

install_missing() {
    local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3)
    # A source that has nothing to do with us may fail; the installation tells.
    "${apt[@]}" update </dev/null || echo "setup: apt-get update failed; trying to install all the same" >&2
    "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null
}

echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for attempt in 1 2; do
    if install_missing >"$log" 2>&1; then
        exit 0
    fi
    echo "setup: attempt $attempt failed" >&2
done
tail -n 40 "$log" >&2
die "could not install ${missing[*]}"
