#!/usr/bin/env bash
# The core with no feature, and with four sets of them in which each feature is built without each other one that it does not
# need: each must compile without a warning. The tests are looked at with all features (`make lint`) and with none, as they are
# run.
set -euo pipefail
cd "$(dirname "$0")/.."
lint() {
    echo "The core with ${1:-no feature}"
    cargo clippy --locked --release -p libreconstruct --no-default-features --features "$1" "${2:---lib}" --quiet -- -D warnings
}
lint "" --all-targets
lint background,gpu,tags
lint background,postgres,service
lint cloud,gpu,service
lint cloud,postgres,service,tags
