#!/bin/bash
# Runs the tests of package kernel that depend on ipykernel's version against the
# versions of other Debian releases than the machine's own.
#
#   scripts/test-kernels.sh SUITE...      trixie and sid are made by kernel-roots.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

(($#)) || { echo "usage: scripts/test-kernels.sh SUITE..." >&2; exit 2; }

# Those that run on each ipykernel, whatever they are called.
tests=$(awk '/^func Test/ { name = $2; sub(/\(.*/, "", name) } /\tonEachIPykernel\(/ { print name }' kernel/*_test.go |
    sort -u | paste -sd '|')
[[ $tests ]] || { echo "test-kernels: no test runs on each ipykernel" >&2; exit 1; }
GUESTD_IPYKERNELS="$*" exec go test -count=1 -timeout 10m -run "^($tests)\$" ./kernel
