#!/usr/bin/env bash
# Says which tests were skipped and why, from the files in which the faces noted it, a line a test.
#
#   scripts/list-skipped.sh FILE...
set -euo pipefail

skipped=$(sort -u "$@")
if [ -z "$skipped" ]; then
    echo "Nothing was skipped"
else
    echo "Skipped: $(wc -l <<<"$skipped")"
    sed 's/^/  /' <<<"$skipped"
fi
