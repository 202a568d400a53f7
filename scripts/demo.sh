#!/usr/bin/env bash
# What `make demo` does once everything is built: film a synthetic room (or take VIDEO), reconstruct it, say where the
# results are. Run again, it continues or finds everything done.
set -euo pipefail

video=${VIDEO:-}
out=${OUT:-demo}
bin=target/release
read -r -a run_flags <<<"${RUN_FLAGS:-}"

if [ -n "$video" ]; then
    "$bin/reconstruct" run "$video" -o "$out" "${run_flags[@]}"
    exit
fi

capture=$out/capture
if [ ! -f "$capture/capture.json" ]; then
    echo "Filming a synthetic room (about 2 minutes; use make demo VIDEO=my.mp4 for a video of your own)"
    "$bin/synthetic-capture" -o "$capture"
fi
started=$SECONDS
"$bin/reconstruct" run "$capture/video.mp4" -o "$out" --quality preview --test-every 8 "${run_flags[@]}"
echo "Reconstructed in $((SECONDS - started)) s"
"$bin/demo-report" "$capture" "$out"
