#!/usr/bin/env bash
# Packs what `cargo build --release -p libreconstruct-server -p libreconstruct-ffi` made: the command, and the C and
# C++ library as `make install` puts it. It is meant to be unpacked in /: its pkg-config files say /usr/local.
#
#   scripts/release-archives.sh NAME FOLDER     NAME says for which system, for example linux-x86_64
set -euo pipefail
cd "$(dirname "$0")/.."

name=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
built=${CARGO_TARGET_DIR:-target}/release
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
texts=(README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE)

command=reconstruct-$version-$name
library=libreconstruct-$version-$name
mkdir "$work/$command" "$work/$library"
cp "${texts[@]}" "$work/$command/"

case $name in
    windows-*)
        cp "$built/reconstruct.exe" "$work/$command/"
        mkdir "$work/$library/include" "$work/$library/bin" "$work/$library/lib"
        cp "${texts[@]}" "$work/$library/"
        cp include/reconstruct.h include/reconstruct.hpp "$work/$library/include/"
        cp "$built/reconstruct.dll" "$work/$library/bin/"
        cp "$built/reconstruct.dll.lib" "$built/reconstruct.lib" "$work/$library/lib/"
        for archive in "$command" "$library"; do
            (cd "$work" && 7z a -bso0 "$folder/$archive.zip" "$archive")
        done
        ;;
    *)
        cp "$built/reconstruct" "$work/$command/"
        PREFIX=/usr/local DESTDIR=$work/$library scripts/install-library.sh
        install -d "$work/$library/usr/local/share/doc/libreconstruct"
        cp "${texts[@]}" "$work/$library/usr/local/share/doc/libreconstruct/"
        tar -C "$work" -czf "$folder/$command.tar.gz" "$command"
        tar -C "$work/$library" -czf "$folder/$library.tar.gz" usr
        ;;
esac
