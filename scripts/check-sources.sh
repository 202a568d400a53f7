#!/usr/bin/env bash
# What is fetched to build and to test comes from the known registries and is checked: every entry of a lock file has a hash, and
# no command may choose other versions than the lock files do. Needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
complain() { # complain WHAT < LINES: they are what is wrong
    local lines
    lines=$(cat)
    if [ -n "$lines" ]; then
        printf '%s:\n%s\n' "$1" "$lines"
        failed=1
    fi
}

crates='source = "registry+https://github.com/rust-lang/crates.io-index"'
# The fuzz targets are a workspace of their own.
for lock in Cargo.lock fuzz/Cargo.lock; do
    complain "$lock names other sources than crates.io" < <(grep '^source = ' "$lock" | grep -vxF "$crates")
    complain "$lock has no checksum for" < <(
        awk -F '"' '/^name = / { name = $2; source = 0 } /^source = / { source = 1 } /^checksum = "[0-9a-f]+"$/ { source = 0 }
            /^$/ { if (source) print name; source = 0 } END { if (source) print name }' "$lock"
    )
done

for lock in tests/interop/package-lock.json; do
    complain "$lock names other sources than npm's registry" < <(
        grep '"resolved": ' "$lock" | grep -v '"https://registry.npmjs.org/'
    )
    complain "$lock has no hash for" < <(
        awk -F '"' '/^    "node_modules\// { name = $2 } /"integrity": "sha512-/ { name = "" } /^    }/ { if (name) print name; name = "" }' "$lock"
    )
done

for lock in tests/installer.lock tests/requirements.lock tests/interop/requirements.lock; do
    complain "$lock has no hash for" < <(
        awk '/^[^ ]/ { if (name && !hashes) print name; name = $1; hashes = 0 } /--hash=sha256:/ { hashes++ }
            END { if (name && !hashes) print name }' "$lock"
    )
    complain "$lock lacks (run scripts/lock-requirements.sh)" < <(
        grep -oE '^[A-Za-z0-9_.-]+==[^; ]+' "${lock%.lock}.txt" |
            while read -r package; do grep -qiF "$package " "$lock" || echo "$package"; done
    )
done

# All commands of what builds, tests and releases that could resolve dependencies anew.
commands() { git ls-files Makefile scripts .ci .github packaging | grep -v check-sources | xargs grep -nE "$1" | grep -vE ':[0-9]+: *#|echo '; }
complain "these do without --locked" < <(
    commands '(^|[^a-z-])cargo (\+nightly miri )?(build|test|clippy|doc|run|tree|install|bench|deny) |maturin develop' | grep -v -e --locked -e TEST_BUILD
)
complain "these do without --require-hashes" < <(
    commands 'pip"? install |pip"? download ' | grep -v -e --require-hashes -e == -e package -e dist/
)
grep -q '^TEST_BUILD := --locked ' Makefile || { echo "TEST_BUILD of the Makefile is without --locked"; failed=1; }
exit "$failed"
