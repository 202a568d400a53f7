#!/usr/bin/env bash
# Installs what a list with hashes names into a virtual environment.
# uv takes seconds where pip takes minutes (it fetches side by side, and leaves it to Python to compile what is imported). Where uv
# cannot be had, or packages come from an index that only pip was told of, pip does it.
#
#   scripts/install-python-packages.sh ENVIRONMENT LIST
set -euo pipefail
cd "$(dirname "$0")/.."
environment=$1
list=$2
pip=("$environment/bin/pip" install --quiet --disable-pip-version-check --require-hashes)
uv=$environment/bin/uv
if [ ! -x "$uv" ]; then "${pip[@]}" -r tests/installer.lock || echo "uv cannot be installed"; fi
if [ -x "$uv" ] && "$uv" pip install --quiet --python "$environment/bin/python" --require-hashes -r "$list"; then exit; fi
"${pip[@]}" -r "$list"
