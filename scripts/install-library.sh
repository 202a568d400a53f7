#!/usr/bin/env bash
# Installs the C and C++ library that was built: headers, shared and static library, pkg-config files, CMake package.
#
#   PREFIX=/usr/local [DESTDIR=/tmp/package] scripts/install-library.sh
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr/local}
[[ $prefix = /* ]] || { echo "PREFIX is $prefix: it must begin with /" >&2; exit 2; }
into=${DESTDIR:-}$prefix
built=${CARGO_TARGET_DIR:-target}/release

number() { sed -n "s/^#define RC_$1 //p" include/reconstruct.h; }
major=$(number VERSION_MAJOR) minor=$(number VERSION_MINOR) patch=$(number VERSION_PATCH) abi=$(number ABI_VERSION)
version=$major.$minor.$patch

# What the static library needs of the system: rustc --print native-static-libs says it.
case $(uname -s) in
    Darwin)
        shared=libreconstruct.$version.dylib soname=libreconstruct.$abi.dylib link=libreconstruct.dylib
        system="-lSystem -lc -lm -framework Metal -framework QuartzCore -framework Foundation -lobjc" ;;
    *)
        shared=libreconstruct.so.$version soname=libreconstruct.so.$abi link=libreconstruct.so
        system="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc" ;;
esac

filled() { # filled TEMPLATE FILE SYSTEM_LIBRARIES
    sed -e "s|@PREFIX@|$prefix|g" -e "s|@VERSION@|$version|g" -e "s|@VERSION_MAJOR@|$major|g" \
        -e "s|@VERSION_MINOR@|$minor|g" -e "s|@SHARED_FILE@|$shared|g" -e "s|@SONAME@|$soname|g" \
        -e "s|@SYSTEM_LIBRARIES@|$3|g" "ffi/install/$1" >"$2"
    chmod 644 "$2"
}

# Installs the static library with no other global names than those of the header: what it is made of (SQLite, zstd, the
# Rust runtime) must not meet another copy in the program. All that the header's functions need becomes one object, whose
# sections a linker can still drop one by one.
install_static() { # install_static ARCHIVE FILE
    if [ "$(uname -s)" != Linux ]; then
        install -m 644 "$1" "$2"
        return
    fi
    local work
    work=$(mktemp -d)
    grep -oE '\brc_[a-z0-9_]+\(' include/reconstruct.h | tr -d '(' | sort -u |
        comm -12 - <(nm -D --defined-only "$built/$link" | awk '{print $3}' | sort) | sed 's/^/-u /' >"$work/wanted"
    ld -r -o "$work/whole.o" "@$work/wanted" "$1"
    # The Rust runtime also comes as LLVM's bitcode, which nobody here reads.
    objcopy --strip-unneeded --remove-section=.llvmbc --remove-section=.llvmcmd \
        --wildcard --keep-global-symbol='rc_*' "$work/whole.o" "$work/reconstruct.o"
    rm -f "$2"
    ar rcs "$2" "$work/reconstruct.o"
    chmod 644 "$2"
    rm -r "$work"
}

install -d "$into/include" "$into/lib/pkgconfig" "$into/lib/cmake/reconstruct"
install -m 644 include/reconstruct.h include/reconstruct.hpp "$into/include/"
install -m 755 "$built/$link" "$into/lib/$shared"
if [ "$(uname -s)" = Linux ]; then strip --strip-debug "$into/lib/$shared"; fi
ln -sfn "$shared" "$into/lib/$soname"
ln -sfn "$soname" "$into/lib/$link"
install_static "$built/libreconstruct.a" "$into/lib/libreconstruct.a"
filled reconstruct.pc.in "$into/lib/pkgconfig/reconstruct.pc" "$system"
filled reconstruct-static.pc.in "$into/lib/pkgconfig/reconstruct-static.pc" "$system"
filled reconstruct-config.cmake.in "$into/lib/cmake/reconstruct/reconstruct-config.cmake" "${system// /;}"
filled reconstruct-config-version.cmake.in "$into/lib/cmake/reconstruct/reconstruct-config-version.cmake" ""
echo "Installed libreconstruct $version in $into"

# The loader of Linux finds a library in its cache, which has to be told of a new one. A package does so where it is unpacked.
if [ "$(uname -s)" = Linux ] && [ -z "${DESTDIR:-}" ]; then
    PATH=$PATH:/usr/sbin:/sbin
    if [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then ldconfig || true; fi
    if ! grep -qF "=> $into/lib/$soname" <(ldconfig -p 2>/dev/null); then
        echo "Programs do not find it there yet: run ldconfig as root if the loader looks in $into/lib (/etc/ld.so.conf)," \
            "or link them with -Wl,-rpath,$into/lib"
    fi
fi
