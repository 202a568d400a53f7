#!/usr/bin/env bash
# The core with no feature, and with four sets of them in which each feature is built without each other one that it does not
# need, then what stands around it with the least of them: each must compile without a warning. The tests are looked at with all
# features (`make lint`) and with none, as they are run.
# All take the dependencies that `make lint` has checked, with the features that workspace-hack asks for: checking them anew for
# each set took three quarters of the time. ALONE=1 leaves workspace-hack out, as for somebody who uses the core elsewhere: that
# finds a feature of a dependency that the core uses and does not ask for, and is a job of its own in CI.
set -euo pipefail
cd "$(dirname "$0")/.."
together=(-p workspace-hack --features workspace-hack/failpoints)
if [ -n "${ALONE:-}" ]; then together=(); fi
lint() {
    echo "The core with ${1:-no feature}"
    local feature
    local -a wanted=()
    for feature in ${1//,/ }; do wanted+=(--features "libreconstruct/$feature"); done
    cargo clippy --locked --release -p libreconstruct "${together[@]}" --no-default-features "${wanted[@]}" "${2:---lib}" --quiet -- -D warnings
}
lint "" --all-targets
lint background,gpu,tags
lint background,postgres,service
lint cloud,gpu,service
lint cloud,postgres,service,tags
# What stands around the core forwards its features; all but the service can be left out there too.
echo "The command, the C and the Python library without what can be left out"
cargo clippy --locked --release -p libreconstruct-server -p libreconstruct-ffi -p libreconstruct-python "${together[@]}" --no-default-features --quiet -- -D warnings
