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

fuzz() { # fuzz FOLDER TARGET
    count=$((count + 1))
    echo "fuzz: $1 $2"
    go test -run '^$' -fuzz "^$2\$" -fuzztime "$fuzztime" "$1" 2>&1 | tee "$log" || ran_out_of_time "$log"
}

mapfile -t folders < <(find . \( -path ./.cache -o -path ./tools \) -prune -o -name '*_test.go' -exec grep -l '^func Fuzz' {} + |
    xargs -r -n 1 dirname | sort -u)
for folder in "${folders[@]}"; do
    # Listing compiles the tests, so it may fail.
    listing=$(go test -list '^Fuzz' "$folder") || { echo "$listing"; exit 1; }
    for target in $(grep '^Fuzz' <<<"$listing"); do
        fuzz "$folder" "$target"
    done
done
((count > 0)) || { echo "fuzz: no fuzz target was found" >&2; exit 1; }
echo "fuzz: $count targets, $fuzztime each"
