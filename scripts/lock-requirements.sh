#!/usr/bin/env bash
# Makes the whole lists of Python packages, with hashes, of the short ones: tests/installer.txt, tests/requirements.txt and
# tests/interop/requirements.txt name what is needed, the .lock files beside them all that this needs in turn. Needs a network;
# versions stay as they are unless a short list asks for others, or --upgrade is given.
#
#   scripts/lock-requirements.sh [--upgrade]
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r tests/installer.lock
lock() { # lock LIST OPTIONS...
    local list=$1
    shift
    "$work/venv/bin/uv" pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header --no-annotate \
        "$@" "$list.txt" -o "$list.lock"
}
lock tests/installer "$@"
lock tests/requirements "$@"
lock tests/interop/requirements -c tests/requirements.lock "$@"
