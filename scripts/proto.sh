#!/bin/bash
# Keeps the API's generated files. Needs buf and the plugins in PATH; make builds
# them.
#
#   scripts/proto.sh generate IMAGE   lint, check compatibility with IMAGE, then
#                                     write the Go files and the new IMAGE
#   scripts/proto.sh check IMAGE      the same checks; then fail where a committed
#                                     file is not what generate would write
#
# IMAGE is the API as it was before the change. Since a change that breaks it is
# refused, only deleting IMAGE, which shows up in review, can break compatibility.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly action=${1:?generate or check} image=${2:?the image of the API}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

buf lint
if [[ -f $image ]]; then
    buf breaking --against "$image" || {
        echo "proto: the change breaks programs that were built for the API as it is in $image" >&2
        exit 1
    }
elif [[ $action == check ]]; then
    echo "proto: $image is missing; make proto writes it" >&2
    exit 1
fi

mkdir -p "$work/$(dirname "$image")"
buf generate -o "$work"
buf build -o "$work/$image"

if [[ $action == generate ]]; then
    find proto -name '*.pb.go' -delete
    cp -r "$work/proto" .
    exit
fi

stale=0
while read -r file; do
    cmp -s "$file" "$work/$file" || { echo "proto: $file is not what the API generates" >&2; stale=1; }
done < <({ find proto -name '*.pb.go'; cd "$work" && find proto -type f; } | sort -u)
((stale == 0)) || { echo "proto: run make proto and commit what changes" >&2; exit 1; }
