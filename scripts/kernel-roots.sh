#!/bin/bash
# Makes Debian root file systems with other versions of ipykernel than the
# machine's own, for the tests of package kernel, in .cache/kernels:
#
#   trixie/  Debian 13: ipykernel 6.29
#   sid/     Debian's development: ipykernel 7
#
#   scripts/kernel-roots.sh [SUITE]...    both, unless given
#
# Nothing is installed on the machine. mmdebstrap needs root, or unshare(2) and
# subordinate ids; the tests chroot, which needs root. The mirror is the one that
# the machine's own sources name. What is there is not made again: remove a
# folder to have it anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { echo "kernel-roots: $*" >&2; exit 1; }

readonly roots=$PWD/.cache/kernels
suites=("$@")
((${#suites[@]})) || suites=(trixie sid)

missing=()
for suite in "${suites[@]}"; do
    [[ $suite =~ ^[a-z]+$ ]] || die "not a suite's name: $suite"
    [[ -d $roots/$suite ]] || missing+=("$suite")
done
((${#missing[@]})) || exit 0

command -v mmdebstrap >/dev/null || die "mmdebstrap is not installed"
mirror=$(scripts/debian-mirror.sh)

mkdir -p "$roots"
make_root() {
    local suite=$1 work
    work=$(mktemp -d "$roots/$suite.XXXXXX")
    # Documentation, translations and the recommended packages are of no use here.
    # A mirror that is behind has an index past its date, which is good enough.
    if ! mmdebstrap --quiet --variant=apt --include=python3-ipykernel \
        --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' \
        --aptopt='Acquire::Check-Valid-Until "false"' \
        --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='force-unsafe-io' \
        --skip=cleanup/reproducible \
        "$suite" "$work" "deb $mirror $suite main" >"$work.log" 2>&1; then
        tail -n 30 "$work.log" >&2
        rm -rf "$work" "$work.log"
        return 1
    fi
    rm -f "$work.log"
    rm -rf "$work"/var/lib/apt/lists/* "$work"/var/cache/apt/*
    chmod 755 "$work"
    mv -T "$work" "$roots/$suite"
}

failed=0
for suite in "${missing[@]}"; do
    echo "kernel-roots: making $suite"
    make_root "$suite" || failed=1
done
((failed == 0)) || die "could not make all root file systems"
