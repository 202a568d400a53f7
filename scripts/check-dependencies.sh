#!/usr/bin/env bash
# Licences, doubles and sources of the dependencies, by cargo-deny and deny.toml: those of the project, and those of the fuzz
# targets, which are a workspace of their own. Needs no network; advisories need one, and are CI's.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v cargo-deny >/dev/null; then
    echo "LEFT OUT: licences and doubles of the dependencies were not checked, because cargo-deny is not installed here." >&2
    echo "    Install it with: cargo install cargo-deny --locked. On GitHub, CI checks them in a job of its own." >&2
    exit
fi
for manifest in Cargo.toml fuzz/Cargo.toml; do
    if ! cargo metadata --locked --offline --format-version 1 --manifest-path "$manifest" >/dev/null 2>&1; then
        echo "LEFT OUT: licences and doubles of the dependencies were not checked: they are not all here, or $manifest and its lock" >&2
        echo "    file do not fit. Fetch them with: cargo fetch --locked --manifest-path $manifest" >&2
        exit
    fi
done
cargo deny --locked --offline check bans licenses sources
# What only the project has is not superfluous because the fuzz targets do without it.
cargo deny --locked --offline --manifest-path ./fuzz/Cargo.toml check \
    -A unmatched-skip -A license-not-encountered -A license-exception-not-encountered bans licenses sources
