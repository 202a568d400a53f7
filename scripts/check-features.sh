#!/usr/bin/env bash
# Every choice of packages must ask for the same features of the dependencies: else Cargo compiles them again for each.
# What differs is to be added to workspace-hack/Cargo.toml.
set -euo pipefail
cd "$(dirname "$0")/.."
features() { cargo tree --locked "$@" --prefix none --no-dedupe --format "{p} [{f}]" | sed "s, (\*)$,," | sort -u; }
whole=$(features --workspace --edges normal,build)
for package in libreconstruct-server libreconstruct-ffi libreconstruct-python libreconstruct-tests; do
    other=$(comm -23 <(features -p "$package" --edges normal,build) <(echo "$whole"))
    if [ -n "$other" ]; then
        printf -- '-p %s builds these with other features than --workspace:\n%s\n' "$package" "$other"
        exit 1
    fi
done
