#!/bin/bash
# Runs everything that CI runs, in order, the quick and telling checks first. Each
# stage is a target of the Makefile, to be run again by itself.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stages=(
    "setup        install what is missing"
    "build        static binaries"
    "check-proto  the API: lint, compatibility, generated code"
    "lint         formatting, vet, linter"
    "race         unit and conformance tests under the race detector"
    "fuzz         every fuzz target, briefly"
    "test-kernels Python contexts on other versions of ipykernel"
    "test-vm      the conformance suite against a microVM"
)

number=0
for stage in "${stages[@]}"; do
    read -r target title <<<"$stage"
    number=$((number + 1))
    printf '\n=== [%d/%d] %s (make %s), at %dm%02ds\n' \
        "$number" "${#stages[@]}" "$title" "$target" $((SECONDS / 60)) $((SECONDS % 60))
    "${MAKE:-make}" "$target" </dev/null || {
        printf '\n=== FAILED: %s (make %s), after %dm%02ds\n' "$title" "$target" $((SECONDS / 60)) $((SECONDS % 60)) >&2
        exit 1
    }
done
printf '\n=== all %d stages passed in %dm%02ds\n' "${#stages[@]}" $((SECONDS / 60)) $((SECONDS % 60))
