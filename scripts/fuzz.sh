#!/bin/bash
# Runs every fuzz target of the module for a while.
#
#   scripts/fuzz.sh TIME      as go test -fuzztime takes it, such as 5s
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly fuzztime=${1:?how long to fuzz each target}

# go test reports "context deadline exceeded" as a failure when the time runs out
# while a worker is busy. That finds nothing, so it counts as a pass; a real find
# names the failing input.
ran_out_of_time() {
    grep -q 'context deadline exceeded' "$1" && ! grep -qE 'Failing input|panic:|testdata/fuzz' "$1"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
count=0
while read -r folder; do
    while read -r target; do
        count=$((count + 1))
        echo "fuzz: $folder $target"
        if ! go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" "$folder" 2>&1 | tee "$log"; then
            ran_out_of_time "$log" || exit 1
        fi
    done < <(go test -list '^Fuzz' "$folder" | grep '^Fuzz')
done < <(find . \( -path ./.cache -o -path ./tools \) -prune -o -name '*_test.go' -exec grep -l '^func Fuzz' {} + |
    xargs -r -n 1 dirname | sort -u)
((count > 0)) || { echo "fuzz: no fuzz target was found" >&2; exit 1; }
echo "fuzz: $count targets, $fuzztime each"
