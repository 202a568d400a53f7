"""Records a run and cuts the power many times.

    cd tests && python -m power_loss [--cuts 200] [--seed 1] [--recording FOLDER [--first 17]]
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from .play import Lost, cut_power
from .record import Recording, record


def main() -> int:
    parser = argparse.ArgumentParser(description="Records a run of the server and cuts the power at many of its moments.")
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first cut, to repeat one")
    parser.add_argument("--recording", type=Path, help="a recording that was kept; otherwise one is made")
    arguments = parser.parse_args()
    folder = arguments.recording or Path(tempfile.mkdtemp(prefix="power-loss-"))
    recording = Recording.load(folder) if arguments.recording else record(folder)
    print(f"recorded {recording.moment()} bytes of operations", flush=True)
    try:
        counts = cut_power(recording, arguments.cuts, arguments.seed, first=arguments.first)
    except Lost as lost:
        print(f"FAULT: {lost}; the recording is in {folder}")
        return 1
    if not arguments.recording:
        shutil.rmtree(folder)
    print(f"{arguments.cuts} cuts, nothing lost: {dict(counts)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
