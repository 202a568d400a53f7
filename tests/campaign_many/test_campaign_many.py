"""The short form of the campaign over many machines: the seeds of `seeds.txt`, or the first of them alone.

LIBRECONSTRUCT_TEST_POSTGRES=1 plays them all; CAMPAIGN_MANY_SEEDS (`seed:first round:number of rounds`, with commas between) plays
others.
"""

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from campaign.expected import Expected
from campaign.play import play
from rest import postgres

from .faults import hit_in_a_stage
from .lookout import Lookout
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


JOB = "a-job"
STAGES = ["frames", "sfm", "train"]


class Machines:
    """Workers that do nothing but write logs, and who looks at these."""

    def __init__(self, folder: Path, is_held: Callable[[str, int, str], bool] = lambda *_: True):
        # This process is there, and works.
        self.workers = [SimpleNamespace(name=name, data=folder / name, process=SimpleNamespace(pid=os.getpid())) for name in ("a", "b", "c")]
        self.lookout = Lookout(self.workers, 1, is_held)
        self.lookout.look()

    def say(self, worker: str, *lines: str) -> None:
        log = next(host.data for host in self.workers if host.name == worker) / "work" / JOB / "job.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            file.writelines(f"2026-01-01T00:00:00.000000Z {line}\n" for line in lines)
        # Twice: what was said before is then certain to have been before.
        self.lookout.look()
        self.lookout.look()


def stored(*stages: str) -> list[str]:
    return [f"stored for other machines: the stage {stage} (17 bytes)" for stage in stages]


def taken(*stages: str) -> list[str]:
    return [f"the stage {stage} was done on another machine (17 bytes)" for stage in stages]


def begun(*stages: str) -> list[str]:
    return [f"stage {stage}" for stage in stages]


def test_who_takes_a_job_over_must_use_what_was_stored(tmp_path):
    machines = Machines(tmp_path)
    machines.say("a", "attempt 1 by a", *begun("frames", "sfm"), *stored("frames"), *begun("train"), *stored("sfm"))
    machines.say("b", "attempt 2 by b", *taken("frames", "sfm"), *begun(*STAGES))
    assert machines.lookout.faults == []
    machines.say("c", "attempt 3 by c", *taken("frames"), *begun("frames", "sfm"))
    [fault] = machines.lookout.faults
    assert "attempt 3" in fault and "does the stage sfm again" in fault
    totals = machines.lookout.totals()
    assert totals["take-overs that were checked"] == 2
    assert totals["attempts lost in train"] == 2


def test_who_takes_a_training_over_must_use_the_newest_state(tmp_path):
    machines = Machines(tmp_path)
    states = [f"stored for other machines: the state of the training (after {steps} steps, 9 bytes)" for steps in (300, 700)]
    machines.say("a", "attempt 1 by a", *begun(*STAGES), *stored("frames", "sfm"), *states)
    machines.say("b", "attempt 2 by b", *taken("frames", "sfm"), "training goes on after 700 steps of another machine", *begun(*STAGES))
    assert machines.lookout.faults == []
    machines.say("c", "attempt 3 by c", *taken("frames", "sfm"), "training goes on after 300 steps of another machine", *begun(*STAGES))
    [fault] = machines.lookout.faults
    assert "from step 300" in fault and "after 700 steps" in fault
    assert machines.lookout.totals()["trainings taken over that were checked"] == 2


@pytest.mark.parametrize("excuse", ["what cannot be read", "a storage that fails", "a job that is gone", "its own folder", "at the same time"])
def test_nobody_is_blamed_without_certainty(tmp_path, excuse):
    machines = Machines(tmp_path, lambda *_: excuse != "a job that is gone")
    first = ["attempt 1 by a", *begun("frames", "sfm"), *stored("frames")]
    second = ["attempt 2 by b", *begun("frames", "sfm")]
    if excuse == "its own folder":
        machines.say("b", "attempt 0 by b")
    if excuse == "at the same time":
        machines.say("b", second[0])
        machines.lookout.looks -= 2
    machines.say("a", *first)
    if excuse == "what cannot be read":
        second.insert(1, "checkpoints/17 is not used: io")
    if excuse == "a storage that fails":
        machines.lookout.storage_fails = True
    machines.say("b", *(second[1:] if excuse == "at the same time" else second))
    assert machines.lookout.faults == []


def work(lookout: Lookout, seconds: float) -> None:
    """The attempts of this process work for so long."""
    for _ in range(round(seconds / 0.5)):
        lookout.looked -= 0.5
        lookout.look()


@pytest.mark.parametrize("is_troubled", [False, True])
def test_what_a_lost_machine_would_cost_stays_bounded(tmp_path, is_troubled):
    machines = Machines(tmp_path)
    lookout = machines.lookout
    lookout.is_troubled = is_troubled
    machines.say("a", "attempt 1 by a", *begun(*STAGES), *stored("frames", "sfm"))
    work(lookout, 70)
    assert lookout.faults == []
    machines.say("a", "stored for other machines: the state of the training (after 9 steps, 9 bytes)")
    work(lookout, 70)
    assert lookout.faults == []
    work(lookout, 20)
    assert ["its state was not stored" in fault for fault in lookout.faults] == ([] if is_troubled else [True])


def test_a_finished_stage_must_be_stored_soon(tmp_path):
    machines = Machines(tmp_path)
    machines.say("a", "attempt 1 by a", *begun("frames", "sfm"))
    machines.say("b", "attempt 1 by b", *begun("frames", "sfm"), *stored("frames"))
    work(machines.lookout, 12)
    [fault] = machines.lookout.faults
    assert "by a has not stored the stage frames" in fault


def test_a_lost_folder_is_a_new_machine(tmp_path):
    machines = Machines(tmp_path)
    machines.say("a", "attempt 1 by a", *begun("frames", "sfm"), *stored("frames"))
    log = tmp_path / "a" / "work" / JOB / "job.log"
    log.unlink()
    log.write_text("2026-01-01T00:00:01.000000Z attempt 2 by a\n2026-01-01T00:00:01.000000Z stage sfm\n")
    machines.lookout.look()
    [fault] = machines.lookout.faults
    assert "attempt 2" in fault and "does the stage frames again" in fault


class World:
    """As much of one as a hit in a stage needs, on a machine whose jobs are in all stages."""

    is_down, lease_seconds = False, 0

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.hits: list[str] = []
        host = SimpleNamespace(
            name="a", process=SimpleNamespace(pid=0, send_signal=lambda _: self.hits.append("stop")), is_alive=lambda: False,
            lose_folder=lambda: self.hits.append("loss"))
        self.workers = [host]
        self.lookout = SimpleNamespace(at_work_in=lambda _: [SimpleNamespace(worker="a")], count=lambda _: None)

    def pick(self, _: random.Random, among: list) -> object:
        return among[0]

    def kill(self, _: object) -> None:
        self.hits.append("kill")

    def spawn(self) -> None:
        pass


@pytest.mark.parametrize("seed", range(6))
def test_a_worker_is_hit_once_in_a_stage(seed):
    events = list(hit_in_a_stage(random.Random(seed), 2))
    assert [name for _, name, _ in events] == [name for _, name, _ in hit_in_a_stage(random.Random(seed), 2)]
    world = World()
    for _, _, do in events[:-1]:
        do(world, random.Random())
    assert world.hits in (["kill"], ["kill", "loss"], ["stop"])
    hits = list(world.hits)
    _, _, end = events[-1]
    end(world, random.Random())
    assert world.hits == hits


def test_faults_of_a_stage_leave_the_others_as_they_are():
    campaign = ManyMachines.__new__(ManyMachines)
    drawn = []
    for campaign.seed, campaign.round in ((1000, 3), (1000, 9)):
        drawn.append(bool(campaign.more_faults(2)))
    # The first is the short campaign of `make test`, and stays as short as it is.
    assert drawn == [False, True]


def test_a_share_of_long_jobs_leaves_the_others_as_they_are():
    # Without the videos.
    some, none = Expected.__new__(Expected), Expected.__new__(Expected)
    some.captures, some.longs = 0.5, 0.5
    none.captures, none.longs = 0.5, 0.0
    drawn = [(some.choose(random.Random(seed)), none.choose(random.Random(seed))) for seed in range(50)]
    assert set(drawn) == {("long", "capture"), ("capture", "capture"), ("flat", "flat")}
