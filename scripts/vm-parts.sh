#!/bin/bash
# Fetches what the microVM tests boot, from Debian, into .cache/vm/parts:
#
#   vmlinuz             Debian's cloud kernel
#   modules/            the kernel modules the guest needs, unpacked
#   modules.builtin     what that kernel has built in instead
#   busybox, bash       static binaries: the guest's whole user land
#   vhost-device-vsock  the virtio-vsock device, with Firecracker's host socket
#
# Nothing is installed and no right is needed: packages are downloaded and
# unpacked. apt works on a configuration and a state of its own, which names the
# machine's release for the kernel and sid for vhost-device-vsock (it is in no
# release yet), so the machine's packages are never touched. The mirror is the
# one that the machine's own sources name. What is there is not fetched again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { echo "vm-parts: $*" >&2; exit 1; }

readonly vm=$PWD/.cache/vm parts=$PWD/.cache/vm/parts
command -v apt-get >/dev/null || die "apt-get is not here: the microVM tests need Debian 12 or 13"
[[ $(dpkg --print-architecture) == amd64 ]] || die "the microVM tests run on amd64 only"

# The release whose kernel is booted: this machine's, or $VM_SUITE.
. /etc/os-release
readonly suite=${VM_SUITE:-${VERSION_CODENAME:?no VERSION_CODENAME in /etc/os-release}}

# Fetch again only what another release or another list of modules was fetched for.
stamp=$(echo "$suite"; cat test/vm/guest/modules)
[[ -f $parts/stamp && $(<"$parts/stamp") == "$stamp" ]] && exit 0

mirror=$(scripts/debian-mirror.sh)

mkdir -p "$vm"
work=$(mktemp -d "$vm/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs"
printf 'deb %s %s main\n' "$mirror" "$suite" "$mirror" sid >"$work/sources.list"

options=(
    -q
    -o "Dir::Etc::SourceList=$work/sources.list"
    -o Dir::Etc::SourceParts=/dev/null
    -o Dir::Etc::PreferencesParts=/dev/null
    -o "Dir::State::Lists=$work/lists"
    -o Dir::State::Status=/dev/null
    -o "Dir::Cache=$work/cache"
    -o "APT::Default-Release=$suite"
    -o "APT::Sandbox::User=$(id -un)"
    -o Acquire::Languages=none
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
    -o Acquire::Retries=3
)

echo "vm-parts: fetching Debian's cloud kernel ($suite), busybox, bash and vhost-device-vsock (sid)"
apt-get "${options[@]}" update >"$work/log" 2>&1 || { cat "$work/log" >&2; die "apt-get update failed"; }
# The cloud kernel's package is a name for the newest one's.
kernel=$(apt-cache "${options[@]}" show --no-all-versions linux-image-cloud-amd64 |
    sed -n 's/^Depends:.*\(linux-image-[0-9][^ ,(]*\).*/\1/p' | head -n 1)
[[ -n $kernel ]] || die "no cloud kernel in $suite"
(cd "$work/debs" && apt-get "${options[@]}" download "$kernel" busybox-static bash-static vhost-device-vsock) \
    >"$work/log" 2>&1 || { cat "$work/log" >&2; die "apt-get download failed"; }
for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/root"; done

mkdir "$work/parts" "$work/parts/modules"
take() { # take MODE NAME AS: copies the only unpacked file of that name and mode
    local found
    mapfile -t found < <(find "$work/root" -type f -perm "-$1" -name "$2")
    ((${#found[@]} == 1)) || die "$2: ${#found[@]} files in the packages instead of one"
    install -m "$1" "${found[0]}" "$work/parts/$3"
}
take 644 'vmlinuz-*' vmlinuz
take 644 modules.builtin modules.builtin
take 755 busybox busybox
take 755 bash-static bash
take 755 vhost-device-vsock vhost-device-vsock
# Debian 13 compresses its modules, and busybox's insmod takes them plain.
while read -r module; do
    find "$work/root" -type f \( -name "$module.ko" -o -name "$module.ko.xz" \) -exec cp {} "$work/parts/modules/" \;
done <test/vm/guest/modules
find "$work/parts/modules" -name '*.xz' -exec xz -d {} +

echo "$stamp" >"$work/parts/stamp"
rm -rf "$parts"
mv "$work/parts" "$parts"
echo "vm-parts: done: $kernel"
