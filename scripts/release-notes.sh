#!/usr/bin/env bash
# Prints the notes of a release: the section of CHANGELOG.md that is about VERSION, without its heading.
#
#   scripts/release-notes.sh VERSION
set -euo pipefail
cd "$(dirname "$0")/.."

notes=$(awk -v heading="## [$1]" '
    index($0, heading) == 1 { inside = 1; next }
    inside && (/^## / || /^\[[^]]+\]: /) { exit }
    inside { print }' CHANGELOG.md)
if [ -z "${notes//[[:space:]]/}" ]; then
    echo "CHANGELOG.md has no section [$1]" >&2
    exit 1
fi
printf '%s\n' "$notes"
