"""The short form of the campaign: the seeds of `seeds.txt`, and clients that leave at every byte.

CAMPAIGN_SEEDS (`seed:first round:number of rounds`, with commas between) plays others.
"""

import os
import random
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from rest.server import Client

from .expected import Expected
from .leave import everywhere
from .clients import SMALL
from .faults import LASTING, LASTS, for_long, full_disk, vanishing_driver
from .play import Campaign, play, world_of
from .world import World


def seeds() -> list[tuple[int, ...]]:
    chosen = os.environ.get("CAMPAIGN_SEEDS")
    if chosen:
        pairs = [entry.split(":") for entry in chosen.split(",")]
    else:
        lines = Path(__file__).with_name("seeds.txt").read_text().splitlines()
        pairs = [line.split("#")[0].split() for line in lines if line.split("#")[0].strip()]
    return [tuple(map(int, numbers)) for numbers in pairs]


@pytest.mark.parametrize(("seed", "first", "rounds"), seeds())
def test_d53_no_fault_of_the_machine_costs_a_job(seed, first, rounds, tmp_path):
    done = play(seed, rounds, folder=tmp_path / "world", first=first)
    print(done)
    for what in done.get("not played", ()):
        warnings.warn(f"seed {seed} did not play {what}", stacklevel=1)


def test_what_this_machine_has_not_is_told(monkeypatch, tmp_path):
    def world(folder, own_disk=False, **options):
        if own_disk:
            raise OSError("no disk of our own here")
        return options

    monkeypatch.setattr("campaign.play.World", world)
    monkeypatch.setattr("campaign.play.DRIVER", tmp_path / "none")
    # A seed with a small disk and a graphics device.
    made, lacks = world_of(53, tmp_path)
    assert not made["gpu"]
    assert [what.split(",")[0].split(":")[0] for what in lacks] == ["a graphics device", "a disk that is really full"]


def test_a_lasting_fault_has_its_time_and_the_short_campaigns_have_none():
    for fault in [*LASTING, full_disk, vanishing_driver]:
        assert [at for at, _, _ in for_long(fault, random.Random(1))] == [0, LASTS], fault.__name__
    lines = Path(__file__).with_name("seeds.txt").read_text().splitlines()
    for seed, first, rounds in (map(int, line.split("#")[0].split()) for line in lines if line.split("#")[0].strip()):
        for number in range(first, first + rounds):
            assert random.Random(f"lasting {seed} {number}").random() >= Campaign.lasting, (seed, number)


def test_clients_that_leave_at_every_byte_leave_nothing_behind(tmp_path):
    world = World(tmp_path / "world", workers=0)
    try:
        world.start()
        environment = world.server.environment
        world.server.command("users", "add", "anna", "--tier", "enterprise", environment=environment)
        client = Client(world.server, world.server.command("keys", "create", "anna", environment=environment)["key"])
        expected = Expected()
        job = client.submit(client.upload(expected.capture, extension="mp4"), **SMALL)
        assert client.wait(job)["status"] == "Finished"
        files = len(os.listdir(f"/proc/{world.server.process.pid}/fd"))
        count = everywhere(world.server, client, expected.flat, job, random.Random(1), steps=60)
        print(count, "clients left")
        # The server serves the next one as if nothing had been, and holds nothing for those that are gone.
        assert client.job(job)["status"] == "Finished"
        assert len(os.listdir(f"/proc/{world.server.process.pid}/fd")) <= files + 20
        wait_until_gone(lambda: world.server.files("staged"))
        world.check_database()
        # A video is there as a whole or not at all.
        sizes = {(world.data / name).stat().st_size for name in world.server.files("videos")}
        assert sizes <= {len(expected.flat), len(expected.capture)}, sizes
        # A day later the uploads are gone.
        assert client.delete(job).status_code == 204
        world.machine.jump(30 * 3600)
        assert world.server.stop() == 0
        world.start()
        wait_until_nothing_is_left(world)
    finally:
        world.close()


def wait_until_nothing_is_left(world: World) -> None:
    wait_until_gone(world.what_is_left)


def wait_until_gone(left: Callable[[], object]) -> None:
    """Where a machine is busy, it takes a moment until the server has noticed that the last client left, and swept behind it."""
    end = time.monotonic() + 30
    while found := left():
        assert time.monotonic() < end, found
        time.sleep(0.1)
