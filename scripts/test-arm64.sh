#!/usr/bin/env bash
# Runs the core's tests of what has instructions of its own for aarch64, under an emulator: `make test-arm64`. It says
# whether results are right there, and nothing about time. Needs no network the second time. Where the Rust compiler lacks the
# library for aarch64 (`rustup target add aarch64-unknown-linux-gnu` brings it), Debian's compiler is fetched, on Debian, and
# unpacked into target/arm64; nothing takes the place of your own.
#
#   scripts/test-arm64.sh [NAME...]     (parts of the names of tests, instead of those below)
set -euo pipefail
cd "$(dirname "$0")/.."
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    names=(sfm::features::blur sfm::matching)
fi
target=aarch64-unknown-linux-gnu
folder=$PWD/target/arm64
scripts/install-dependencies.sh arm64

no_compiler() {
    echo "The packages of this machine have no Rust compiler for aarch64. With rustup: rustup target add $target" >&2
    exit 1
}

# Unpacks Debian's compiler, the one that its browsers are built with, and its libraries for this machine and for aarch64.
fetch_compiler() {
    command -v apt-get >/dev/null || no_compiler
    echo "Fetching a Rust compiler with the library for aarch64 (into target/arm64/toolchain)"
    rm -rf "$folder/apt" "$folder/unpacked"
    mkdir -p "$folder"/apt/{lists,archives}/partial "$folder/apt/packages" "$folder/unpacked"
    local host packages
    host=$(dpkg --print-architecture)
    # Both architectures, in lists of its own: those of the machine stay as they are. The user that apt prefers to download as
    # may not reach this folder.
    local options=(
        -o "APT::Architecture=$host" -o "APT::Architectures::=$host" -o APT::Architectures::=arm64
        -o "Dir::State::Lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt" -o APT::Sandbox::User=root
    )
    apt-get -qq "${options[@]}" update || no_compiler
    # With what its libraries stand on, as far as this machine lacks it.
    packages=("rustc-web:$host" "libstd-rust-web-dev:$host" libstd-rust-web-dev:arm64)
    local library
    for library in $(apt-cache "${options[@]}" depends --recurse --important "libstd-rust-web-dev:$host" | grep -E '^lib'); do
        if [ "$library" != libstd-rust-web-dev ] && ! dpkg-query -W "$library:$host" >/dev/null 2>&1; then
            packages+=("$library:$host")
        fi
    done
    (cd "$folder/apt/packages" && apt-get -qq "${options[@]}" download "${packages[@]}") || no_compiler
    local package
    for package in "$folder"/apt/packages/*.deb; do dpkg-deb -x "$package" "$folder/unpacked"; done
    rm -rf "$folder/apt" "$folder/toolchain"
    mv "$folder/unpacked" "$folder/toolchain"
}

rustc=$(command -v rustc)
if [ ! -d "$("$rustc" --print target-libdir --target "$target")" ]; then
    if [ ! -d "$folder/toolchain" ]; then fetch_compiler; fi
    rustc=$folder/rustc
    libraries=$(compgen -G "$folder/toolchain/usr/lib/*-linux-gnu")
    cat >"$rustc" <<END
#!/bin/sh
LD_LIBRARY_PATH='$libraries' exec '$folder/toolchain/usr/bin/rustc' "\$@"
END
    chmod +x "$rustc"
fi

export RUSTC=$rustc
# Of its own, because another compiler than the usual one may have built what is there.
export CARGO_TARGET_DIR=$folder/build
if [ "$(uname -m)" != aarch64 ]; then
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
fi
echo "Rust: tests of the core for aarch64: ${names[*]}"
# What the core's features bring has no such instructions, and takes half of the time to build.
cargo test --locked --release -p libreconstruct --no-default-features --lib --target "$target" -- "${names[@]}"
