"""Kills at random moments: CRASH_KILLS (default 10; 200 for a release) and CRASH_SEED set how many and which."""

import os

from .crash import crash


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path):
    kills, seed = int(os.environ.get("CRASH_KILLS", "10")), int(os.environ.get("CRASH_SEED", "1"))
    print(f"seed {seed}:", crash(tmp_path, kills, seed, trains=True))
