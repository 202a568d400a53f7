#!/usr/bin/env bash
# Tries random inputs on the targets of fuzz/: `make fuzz`, MINUTES for each of FUZZ_TARGETS (all of them by default). What breaks
# one is left in fuzz/artifacts/. Works with the Rust compiler that builds everything else; the engine is libFuzzer, and
# AddressSanitizer watches Rust and C alike.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
minutes=${MINUTES:-1}
targets=${FUZZ_TARGETS:-$(cd fuzz_targets && basename -s .rs ./*.rs)}

# Counters at every branch and at every comparison tell the engine which inputs lead to new code.
flags="--cfg fuzzing -C passes=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -C llvm-args=-sanitizer-coverage-$option"
done
host=$(rustc -vV | sed -n 's/^host: //p')
# The compiler has the sanitizer, behind an option that it calls unstable. C code is compiled with the same counters.
flags+=" -Z sanitizer=address"
export RUSTC_BOOTSTRAP=1
export CC=clang CXX=clang++ "CFLAGS_${host//-/_}=-O2 -fsanitize=address,fuzzer-no-link"
bins=()
for target in $targets; do bins+=(--bin "$target"); done
echo "Building what is tried, with counters"
# With a target named, programs that only help to build get no counters.
RUSTFLAGS="$flags" cargo build --release --locked --target "$host" "${bins[@]}"

# Every input becomes a file: in memory that is a hundred times as fast as on a disk.
scratch=$(mktemp -d -p "$(if [ -w /dev/shm ]; then echo /dev/shm; else echo "${TMPDIR:-/tmp}"; fi)")
trap 'rm -rf "$scratch"' EXIT
for target in $targets; do
    echo "Fuzzing $target (minutes: $minutes)"
    # New inputs that lead to new code go into the first folder, and are where the next run begins.
    mkdir -p "found/$target" "artifacts/$target"
    folders=("found/$target" "corpus/$target")
    if [ -d "regressions/$target" ]; then folders+=("regressions/$target"); fi
    options=(-max_total_time=$((minutes * 60)) -timeout=20 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 "-artifact_prefix=artifacts/$target/")
    if [ -f "dictionaries/$target.dict" ]; then options+=("-dict=dictionaries/$target.dict"); fi
    TMPDIR=$scratch "target/$host/release/$target" "${options[@]}" "${folders[@]}"
done
