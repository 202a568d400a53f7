#!/usr/bin/env bash
# Runs tests of `unsafe` code under Miri: `make miri`. It interprets them, and so sees what a sanitizer cannot: what breaks Rust's
# rules of aliasing, is read before it was written, or outlives its memory. It knows no C and no vector instructions: the tests
# are those that need neither, nor a file, nor a pool of threads. Takes minutes, most of them to build.
set -euo pipefail
cd "$(dirname "$0")/.."

# Nothing is installed unasked.
if ! RUSTUP_AUTO_INSTALL=0 cargo +nightly miri --version >/dev/null 2>&1; then
    echo "Miri is not installed here: it is a part of Rust's nightly compiler. With rustup:" >&2
    echo "    rustup toolchain install nightly --profile minimal --component miri --component rust-src" >&2
    exit 1
fi

echo "The C face: handles, arguments, texts and errors on their way across the border"
cargo +nightly miri test --locked -p libreconstruct-ffi --lib -- \
    argument:: entry:: error:: handle:: log:: reconstruct:: sfm:: text:: version::
echo "The core: conversions of numbers that nothing checks"
cargo +nightly miri test --locked -p libreconstruct --no-default-features --lib -- \
    sfm::features::orientation sfm::patch_alignment::pyramid
