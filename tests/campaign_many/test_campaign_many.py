"""The short form of the campaign over many machines: the seeds of `seeds.txt`, or the first of them alone.

LIBRECONSTRUCT_TEST_POSTGRES=1 plays them all; CAMPAIGN_MANY_SEEDS (`seed:first round:number of rounds`, with commas between) plays
others.
"""

import os
from pathlib import Path

import pytest

from campaign.play import play
from rest import postgres

from .play import ManyMachines


def seeds() -> list[tuple[int, ...]]:
    chosen = os.environ.get("CAMPAIGN_MANY_SEEDS")
    if chosen:
        return [tuple(map(int, entry.split(":"))) for entry in chosen.split(",")]
    lines = Path(__file__).with_name("seeds.txt").read_text().splitlines()
    known = [tuple(map(int, line.split("#")[0].split())) for line in lines if line.split("#")[0].strip()]
    return known if postgres.IS_ASKED_FOR else known[:1]


@pytest.mark.parametrize(("seed", "first", "rounds"), seeds())
def test_d53_no_fault_among_many_machines_costs_a_job(seed, first, rounds, tmp_path):
    print(play(seed, rounds, folder=tmp_path / "world", first=first, kind=ManyMachines))
