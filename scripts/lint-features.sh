#!/usr/bin/env bash
# The core with each of its features left out, and with none: each must compile without a warning. The tests are looked at with all
# features (`make lint`) and with none, as they are run.
set -euo pipefail
cd "$(dirname "$0")/.."
all=(background cloud gpu postgres service tags)
lint() { cargo clippy --locked --release -p libreconstruct --no-default-features "$@" --quiet -- -D warnings; }
echo "The core without any feature"
lint --all-targets
for left_out in "${all[@]}"; do
    rest=()
    for feature in "${all[@]}"; do
        if [ "$feature" != "$left_out" ]; then rest+=("$feature"); fi
    done
    echo "The core without the feature $left_out"
    lint --lib --features "$(IFS=, && echo "${rest[*]}")"
done
