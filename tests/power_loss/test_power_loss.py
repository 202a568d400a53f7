"""A few power cuts: POWER_CUTS (default 24) and POWER_SEED set how many and which."""

import os

from .play import cut_power
from .record import record


def test_what_was_acknowledged_survives_a_power_cut(tmp_path):
    cuts, seed = int(os.environ.get("POWER_CUTS", "24")), int(os.environ.get("POWER_SEED", "1"))
    print(cut_power(record(tmp_path / "recording"), cuts, seed))
