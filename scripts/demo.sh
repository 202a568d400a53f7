#!/usr/bin/env bash
# What `make demo` does once everything is built: film a synthetic room (or take VIDEO), reconstruct it, say where the
# results are. Run again, it continues or finds everything done. RUN_FLAGS are more options of `reconstruct run`.
set -euo pipefail

video=${VIDEO:-}
out=${OUT:-demo}
bin=target/release
read -r -a run_flags <<<"${RUN_FLAGS:-}"

# Whether RUN_FLAGS say this option.
is_given() {
    local flag
    for flag in "${run_flags[@]}"; do
        if [[ $flag == "$1" || $flag == "$1="* ]]; then return 0; fi
    done
    return 1
}

# Whether training would run on the processor.
is_without_gpu() {
    local devices auto cpu
    devices=$("$bin/reconstruct" devices)
    { read -r auto && read -r cpu; } <<<"$devices"
    [ "$auto" = "auto takes: $cpu" ]
}

quality=()
if [ -n "$video" ]; then
    # On a processor the full quality takes hours.
    if ! is_given --quality && ! is_given --time-budget && is_without_gpu; then
        quality=(--quality preview --time-budget 15m)
        echo "No GPU: a preview is made, in about 15 minutes (${quality[*]})."
        echo "For the full quality, in some hours: make demo VIDEO=$video RUN_FLAGS='--quality standard'"
    fi
    "$bin/reconstruct" run "$video" -o "$out" "${quality[@]}" "${run_flags[@]}"
    exit
fi

capture=$out/capture
if [ ! -f "$capture/capture.json" ]; then
    echo "Filming a synthetic room (about 2 minutes; use make demo VIDEO=my.mp4 for a video of your own)"
    "$bin/synthetic-capture" -o "$capture"
fi
is_given --quality || quality+=(--quality preview)
is_given --test-every || quality+=(--test-every 8)
started=$SECONDS
"$bin/reconstruct" run "$capture/video.mp4" -o "$out" "${quality[@]}" "${run_flags[@]}"
echo "Reconstructed in $((SECONDS - started)) s"
"$bin/demo-report" "$capture" "$out"
