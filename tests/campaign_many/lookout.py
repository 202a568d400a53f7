"""Watches what workers write into the logs of their jobs: which stage each is in, and what a lost machine costs.

What docs/many-machines.md promises of a machine that is lost is checked here: a finished stage is stored soon, a training never goes on
for longer than it may without its state being stored, and who takes a job over uses what was stored.

A log may go at any moment, with its machine or its job. What was not seen weakens a check, and never makes a false alarm.
"""

import os
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .hosts import WorkerHost

# Those that are stored, in their order.
STAGES = ["frames", "sfm", "train"]
# While the files of the scene are stored, after all stages.
PUBLISHING = "publishing"
# Seconds between two states that a training makes by itself: `checkpoint_seconds` below that is as if it were so.
STATE_AGE = 60
# So long may storing take, on a machine that is busy: of a stage that is finished, and of a training's state, seconds.
STAGE_MARGIN, STATE_MARGIN = 10.0, 20.0
EVERY = 0.1

# Who holds a job: its name, the number of the attempt, the worker.
IsHeld = Callable[[str, int, str], bool]


@dataclass
class Attempt:
    """What was seen of one attempt at a job."""

    job: str
    number: int
    worker: str
    began: int
    """The look that saw it first."""
    is_first_here: bool
    """Whether its machine had nothing of the job: what it has done before, it has then taken from the storage."""
    pid: int | None
    """The process, if it is certain which one that is."""
    stage: str = ""
    has_ended: bool = False
    """By its own word."""
    has_let_go: bool = False
    """Whether it was found not to hold its job: that is not asked again."""
    stored: dict[str, int] = field(default_factory=dict)
    """The stages that it stored, and the looks that saw it first."""
    states: dict[int, int] = field(default_factory=dict)
    """The states of its training that it stored: their steps, and the looks that saw it first."""
    taken: set[str] = field(default_factory=set)
    """The stages that it took from another machine."""
    taken_steps: int = 0
    """Those of the state that it took from another machine."""
    is_excused: bool = False
    """Whether storing, or reading what is stored, failed or was made to fail."""
    may_be_late: bool = False
    """Whether something kept it from storing in time."""
    has_passed: bool = False
    """Whether it has taken what there was, and gone on from there."""
    worked_after: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds since each stage was finished, while its process ran."""
    unsaved: float = 0.0
    """Seconds of its training since its state was stored last."""


class Lookout:
    """A thread that looks at the logs until `close`."""

    def __init__(self, workers: list[WorkerHost], checkpoint_seconds: int, is_held: IsHeld):
        self.workers, self.is_held = workers, is_held
        # Seconds of training that a lost machine may cost.
        self.bound = checkpoint_seconds + STATE_AGE + STATE_MARGIN
        # Set while the storage fails, and while anything is disturbed that storing needs.
        self.storage_fails, self.is_troubled = False, False
        self.counts: Counter[str] = Counter()
        self.most_lost = 0.0
        # What must not have been.
        self.faults: list[str] = []
        self.attempts: dict[str, dict[int, Attempt]] = {}
        # What was read of each log, and the attempt that wrote last into it.
        self.read: dict[Path, str] = {}
        self.writers: dict[Path, Attempt] = {}
        # The attempt that began last on each machine.
        self.latest: dict[str, Attempt] = {}
        self.pids: dict[str, int | None] = {}
        self.looks = 0
        self.looked = time.monotonic()
        self.lock = threading.RLock()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def close(self) -> None:
        self.stop.set()
        if self.thread.is_alive():
            self.thread.join(90)

    def run(self) -> None:
        while not self.stop.wait(EVERY):
            try:
                self.look()
            except Exception as fault:  # whatever it is, the main thread must hear of it
                self.faults.append(f"looking at the logs: {type(fault).__name__}: {fault}")
                return

    def at_work_in(self, stage: str) -> list[Attempt]:
        """Attempts that are in a stage now and hold their job."""
        with self.lock:
            self.look()
            found = [it for it in self.latest.values() if it.stage == stage and not it.has_ended and not it.has_let_go]
        for it in found:
            it.has_let_go = not self.is_held(it.job, it.number, it.worker)
        return [it for it in found if not it.has_let_go]

    def look(self) -> None:
        with self.lock:
            self.looks += 1
            now = time.monotonic()
            # A look that came late says nothing about what was between.
            since, self.looked = min(now - self.looked, 5 * EVERY), now
            for host in self.workers:
                pid = None if host.process is None else host.process.pid
                for path in logs_of(host):
                    self.look_at(host, path)
                self.pids[host.name] = pid
                self.note_work(host.name, pid, since)

    def look_at(self, host: WorkerHost, path: Path) -> None:
        try:
            text = path.read_text(errors="replace")
        except OSError:
            # It has gone, or never came.
            return
        # A line that is just being written is read the next time.
        text = text[: text.rfind("\n") + 1]
        before = self.read.get(path, "")
        if not text.startswith(before):
            # Another file: the machine was lost, or the job has left it before.
            before = ""
            self.writers.pop(path, None)
        self.read[path] = text
        for line in text[len(before) :].splitlines():
            # Behind the time.
            said = line.partition(" ")[2]
            if begin := re.fullmatch(r"attempt (\d+) by (.+)", said):
                self.note_begin(host, path, int(begin[1]))
            elif path in self.writers:
                self.note(self.writers[path], said)

    def note_begin(self, host: WorkerHost, path: Path, number: int) -> None:
        job = path.parent.name
        # The process is certain if it was there before the last look, which did not see this.
        pid = None if host.process is None else host.process.pid
        pid = pid if self.pids.get(host.name) == pid else None
        attempt = Attempt(job, number, host.name, self.looks, path not in self.writers, pid)
        attempts = self.attempts.setdefault(job, {})
        before = max((it for it in attempts.values() if it.number < number), key=lambda it: it.number, default=None)
        if before is not None and not before.has_ended:
            self.counts[f"attempts lost in {before.stage or 'the beginning'}"] += 1
        attempts[number] = self.writers[path] = self.latest[host.name] = attempt
        self.excuse(attempt)

    def excuse(self, attempt: Attempt) -> None:
        attempt.is_excused |= self.storage_fails
        attempt.may_be_late |= self.storage_fails or self.is_troubled

    def note(self, attempt: Attempt, said: str) -> None:
        if stage := re.fullmatch(r"stage (\w+)", said):
            attempt.stage = stage[1]
            # This one begins only after what there was has been taken. A stage may begin twice.
            if attempt.stage == "sfm" and not attempt.has_passed:
                attempt.has_passed = True
                self.excuse(attempt)
                self.check_taken(attempt)
        elif said == "the scene is done":
            attempt.stage = PUBLISHING
        elif stage := re.match(r"stored for other machines: the stage (\w+) ", said):
            attempt.stored.setdefault(stage[1], self.looks)
        elif state := re.match(r"stored for other machines: the state of the training \(after (\d+) steps", said):
            attempt.states.setdefault(int(state[1]), self.looks)
            attempt.unsaved = 0
        elif stage := re.match(r"the stage (\w+) was done on another machine", said):
            attempt.taken.add(stage[1])
        elif state := re.match(r"training goes on after (\d+) steps of another machine", said):
            attempt.taken_steps = int(state[1])
        elif " is not used: " in said or " could not be stored for other machines" in said:
            attempt.is_excused = attempt.may_be_late = True
        elif said.startswith(("failed", "the worker ends", "this machine cannot work")) or said.endswith("the job is given up"):
            attempt.has_ended = True

    def check_taken(self, attempt: Attempt) -> None:
        """What was certainly stored before an attempt began, it must have taken."""
        if attempt.number == 1 or not attempt.is_first_here:
            return
        before = [it for it in self.attempts[attempt.job].values() if it.number < attempt.number]
        # With a whole look between, one was written before the other.
        stored = {stage for it in before for stage, look in it.stored.items() if look + 2 <= attempt.began}
        if not stored:
            return
        if attempt.is_excused:
            self.counts["take-overs that were not checked"] += 1
            return
        self.counts["take-overs that were checked"] += 1
        if "train" not in attempt.taken:
            self.most_lost = max(self.most_lost, max(before, key=lambda it: it.number).unsaved)
        # One after the other: what follows a stage that is not there is of no use.
        for stage in STAGES:
            if stage not in attempt.taken:
                if stage in stored:
                    self.blame(attempt, f"does the stage {stage} again, which was stored")
                break
        if {"frames", "sfm"} <= attempt.taken and "train" not in attempt.taken:
            self.check_steps(attempt, before)

    def check_steps(self, attempt: Attempt, before: list[Attempt]) -> None:
        """No step is trained again of which a state was certainly stored."""
        # Who could not read a state began anew, and its states have replaced the others, which had more steps.
        if any(it.is_excused for it in before):
            return
        newest = max((it for it in before if it.states), key=lambda it: it.number, default=None)
        states = newest.states if newest is not None else {}
        certain = [steps for steps, look in states.items() if look + 2 <= attempt.began]
        if not certain:
            return
        self.counts["trainings taken over that were checked"] += 1
        if attempt.taken_steps < max(certain):
            self.blame(attempt, f"trains on from step {attempt.taken_steps}, and the state after {max(certain)} steps was stored")

    def note_work(self, worker: str, pid: int | None, seconds: float) -> None:
        """The attempt of a process has worked for so long."""
        attempt = self.latest.get(worker)
        if attempt is None or attempt.has_ended or attempt.stage in ("", PUBLISHING):
            return
        self.excuse(attempt)
        if pid is None or attempt.pid != pid or not runs(pid):
            return
        self.check_stages(attempt, seconds)
        if attempt.stage == "train":
            before = attempt.unsaved
            attempt.unsaved += seconds
            # Once.
            if before <= self.bound < attempt.unsaved and not attempt.may_be_late:
                self.blame(attempt, f"has trained for {attempt.unsaved:.0f} s, and its state was not stored meanwhile")

    def check_stages(self, attempt: Attempt, seconds: float) -> None:
        """Stages that are finished must have been stored soon."""
        # Of what its machine had before nobody tells whether it was stored.
        if not attempt.is_first_here:
            return
        for stage in STAGES[: STAGES.index(attempt.stage) if attempt.stage in STAGES else len(STAGES)]:
            before = attempt.worked_after[stage]
            attempt.worked_after[stage] += seconds
            if before <= STAGE_MARGIN < attempt.worked_after[stage] and not attempt.may_be_late:
                self.counts["finished stages that were checked"] += 1
                if stage not in attempt.stored and stage not in attempt.taken:
                    self.blame(attempt, f"has not stored the stage {stage}, {STAGE_MARGIN:.0f} s after it was finished")

    def blame(self, attempt: Attempt, what: str) -> None:
        # What was stored of a job goes with it.
        if self.is_held(attempt.job, attempt.number, attempt.worker):
            self.faults.append(f"attempt {attempt.number} at {attempt.job} by {attempt.worker} {what}")

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1

    def totals(self) -> dict[str, int]:
        with self.lock:
            return {**dict(sorted(self.counts.items())), "most seconds of training lost": round(self.most_lost)}


def logs_of(host: WorkerHost) -> list[Path]:
    """Where the logs of the jobs on a machine are, if they are there."""
    work = host.data / "work"
    try:
        return [work / job / "job.log" for job in sorted(os.listdir(work))]
    except OSError:
        return []


def runs(pid: int) -> bool:
    """Whether a process lives and does not stand still."""
    try:
        # The name before may contain anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("T", "t", "Z", "X")
    except OSError:
        return False
