#!/usr/bin/env bash
# Installs what building and testing needs and this machine lacks, on Debian and Ubuntu, as root or through sudo.
# Says what it does; does nothing, and needs no network, when everything is there.
#
#   scripts/install-dependencies.sh [build|test|arm64]     (build: enough to build and run; test: what the tests need too; arm64: what
#                                                           scripts/test-arm64.sh needs)
set -euo pipefail

purpose=${1:-build}
missing=()
need() { # need PACKAGE CHECK...: PACKAGE is missing unless CHECK succeeds
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}
have() { command -v "$1"; }
have_library() { grep -q "$1" <<<"$(ldconfig -p)"; }
# wgpu opens the Vulkan loader at run time; the software driver lets GPU code run on machines without a GPU.
have_vulkan_driver() { compgen -G '/usr/share/vulkan/icd.d/*.json' || compgen -G '/etc/vulkan/icd.d/*.json'; }
# apt leaves it out where recommended packages are not wanted; without it, gcc can neither compile nor link.
have_libc_headers() { echo '#include <stdlib.h>' | cc -E -; }
have_clang_sanitizers() { test -e "$(clang -print-file-name=libclang_rt.asan-$(uname -m).a)" || compgen -G "$(clang -print-resource-dir)/lib/*/libclang_rt.asan*.a"; }
have_browser() { have chromium || have chromium-browser || have google-chrome; }
# Ubuntu's package of Chromium only installs a snap, which containers cannot run: the tests that need a browser are left out there.
is_ubuntu() { grep -qx 'ID=ubuntu' /etc/os-release; }
have_postgresql() { compgen -G '/usr/lib/postgresql/*/bin/initdb'; }
have_venv() { python3 -c 'import ensurepip, venv'; }

need ffmpeg have ffmpeg
need gcc have cc
need libc6-dev have_libc_headers
need make have make
need libvulkan1 have_library libvulkan.so.1
need mesa-vulkan-drivers have_vulkan_driver
# The weights of the mask model come out of a Python package.
need python3 have python3
need python3-venv have_venv
if [ "$purpose" = test ]; then
    need g++ have c++
    need clang have clang
    need libclang-rt-dev have_clang_sanitizers
    need cmake have cmake
    need pkg-config have pkg-config
    need valgrind have valgrind
    need curl have curl
    need openssl have openssl
    need nodejs have node
    need postgresql have_postgresql
    need npm have npm
    is_ubuntu || need chromium have_browser
fi
if [ "$purpose" = arm64 ] && [ "$(uname -m)" != aarch64 ]; then
    need gcc-aarch64-linux-gnu have aarch64-linux-gnu-gcc
    need libc6-dev-arm64-cross test -e /usr/aarch64-linux-gnu/include/stdlib.h
    need qemu-user have qemu-aarch64
fi
command -v cargo >/dev/null || need curl have curl

if [ ${#missing[@]} -gt 0 ]; then
    echo "Installing with apt: ${missing[*]}"
    if ! command -v apt-get >/dev/null; then
        echo "This machine has no apt-get. Install by hand what matches: ${missing[*]}" >&2
        exit 1
    fi
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo "Run this as root, or install sudo: apt-get is needed for ${missing[*]}" >&2; exit 1; }
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# The installer of Rust, of one version and with the checksum that its makers publish beside it, and the compiler that CI uses.
rustup=1.28.2
rust=1.95.0
case $(uname -m) in
    x86_64) rustup_sum=20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c ;;
    aarch64) rustup_sum=e3853c5a252fca15252d07cb23a1bdd9377a8c6f3efa01531109281ae47f841c ;;
    *) rustup_sum= ;;
esac
if ! command -v cargo >/dev/null && [ ! -x "$HOME/.cargo/bin/cargo" ]; then
    if [ -z "$rustup_sum" ]; then
        echo "Install Rust $rust by hand (https://rustup.rs): for $(uname -m) this script knows no checksum" >&2
        exit 1
    fi
    echo "Installing Rust $rust with rustup $rustup (into ~/.cargo)"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    curl --proto '=https' --tlsv1.2 -sSfo "$work/rustup-init" \
        "https://static.rust-lang.org/rustup/archive/$rustup/$(uname -m)-unknown-linux-gnu/rustup-init"
    echo "$rustup_sum  $work/rustup-init" | sha256sum --check --status || {
        echo "The installer of Rust that was downloaded is not the one that is meant (SHA-256 $rustup_sum)" >&2
        exit 1
    }
    chmod +x "$work/rustup-init"
    "$work/rustup-init" -y --profile minimal --default-toolchain "$rust" --component rustfmt --component clippy
fi
