"""What can go wrong with the machine. Each fault turns a choice into events: what is done at which second of a round.

What an event does may depend on which processes live then; which events there are depends on the seed alone.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator

from .disk import MIB
from .machine import JUMPS
from .world import World

Event = tuple[float, str, Callable[[World, random.Random], None]]
HOUR = 3600
# The clock stays within so many hours of the truth: uploads and idempotency keys live for a day.
FARTHEST = 10 * HOUR
# Seconds: longer than the first rests of a job that is disturbed (4 and 16 s), several pauses of a worker, and the longest lease here.
LASTS = 40


def span(choice: random.Random, seconds: float) -> tuple[float, float]:
    """Two moments of the round."""
    begin = choice.uniform(0, seconds * 0.7)
    return begin, min(seconds, begin + choice.uniform(0.2, seconds))


def kills(choice: random.Random, seconds: float) -> Iterator[Event]:
    """Processes are killed at random moments, and started again at once."""
    pace = choice.choice([0.01, 0.03, 0.1, 0.4])
    at = 0.0
    while (at := at + choice.uniform(0, 2 * pace)) < seconds:
        yield at, "kill", kill_one


def kill_one(world: World, choice: random.Random) -> None:
    one = world.pick(choice)
    if one is not None:
        world.kill(one)
    world.spawn()


def restarts_of_the_system(choice: random.Random, seconds: float) -> Iterator[Event]:
    """The whole machine goes down and comes up again; the disk keeps all that was written."""
    for _ in range(choice.randrange(1, 4)):
        yield choice.uniform(0, seconds), "restart of the system", restart


def restart(world: World, choice: random.Random) -> None:
    if not world.weary():
        world.kill_all()
        world.machine.start_anew()
    world.spawn()


def stops_of_the_service(choice: random.Random, seconds: float) -> Iterator[Event]:
    """The service is stopped as an init system does it: all processes hear of it at once, those of ffmpeg too."""
    for _ in range(choice.randrange(1, 4)):
        yield choice.uniform(0, seconds), "stop of the service", stop


def stop(world: World, choice: random.Random) -> None:
    # Not SIGINT: what a shell starts in the background ignores it until it has a handler of its own.
    world.stop_all_at_once(signal.SIGTERM)
    world.spawn()


def failing_writes(choice: random.Random, seconds: float) -> Iterator[Event]:
    """The disk is full, or fails, for every change of a file or for some."""
    error, one_in = choice.choice(["ENOSPC", "EIO"]), choice.choice([1, 1, 3, 20, 100])
    begin, end = span(choice, seconds)
    yield begin, f"{error} for one change of a file in {one_in}", lambda world, _: world.machine.disk(writes=error, writes_one_in=one_in)
    yield end, "the disk works", lambda world, _: world.machine.good_disk()


def failing_reads(choice: random.Random, seconds: float) -> Iterator[Event]:
    one_in = choice.choice([1, 10, 100, 1000])
    begin, end = span(choice, seconds)

    def fail(world: World, choice: random.Random) -> None:
        # ffprobe does not tell what it could not read from what is no video.
        world.programs.disturbed = True
        world.machine.disk(reads="EIO", reads_one_in=one_in)

    yield begin, f"EIO for one read in {one_in}", fail
    yield end, "the disk works", lambda world, _: world.machine.good_disk()


def slow_disk(choice: random.Random, seconds: float) -> Iterator[Event]:
    milliseconds = choice.choice([1, 5, 30])
    begin, end = span(choice, seconds)
    yield begin, f"each call of the disk takes {milliseconds} ms", lambda world, _: world.machine.disk(delay_ms=milliseconds)
    yield end, "the disk is quick", lambda world, _: world.machine.good_disk()


def full_disk(choice: random.Random, seconds: float) -> Iterator[Event]:
    """A real disk without room: not even for the database, or for no more than that which must stay free."""
    leave = choice.choice([0, 0, 100_000, 3 * MIB, 900 * MIB])
    begin, end = span(choice, seconds)
    yield begin, f"{leave} bytes are left on the disk", lambda world, _: world.disk and world.disk.fill(leave)
    yield end, "the disk has room", lambda world, _: world.disk and world.disk.empty()


def missing_programs(choice: random.Random, seconds: float) -> Iterator[Event]:
    names = choice.choice([("ffmpeg",), ("ffprobe",), ("ffmpeg", "ffprobe")])
    begin, end = span(choice, seconds)
    if choice.random() < 0.5:
        yield begin, f"{names} missing", lambda world, _: world.programs.take_away(names)
    else:
        yield begin, f"{names} replaced by another program", lambda world, _: world.programs.replace("another", names)
    yield end, "the programs are back", lambda world, _: world.programs.restore()


def updated_programs(choice: random.Random, seconds: float) -> Iterator[Event]:
    """Packages are updated: for moments another program, or none, is in the place of ffmpeg or ffprobe."""
    begin, end = span(choice, seconds)
    while (begin := begin + choice.uniform(0.02, 0.3)) < end:
        names = choice.choice([("ffmpeg",), ("ffprobe",)])
        another = choice.random() < 0.7
        yield begin, f"{names} are updated", lambda world, _, n=names, a=another: world.programs.replace("another", n) if a else world.programs.take_away(n)
        begin += choice.uniform(0.005, 0.03)
        yield begin, "the programs are back", lambda world, _: world.programs.restore()


def hanging_programs(choice: random.Random, seconds: float) -> Iterator[Event]:
    names = choice.choice([("ffmpeg",), ("ffprobe",)])
    begin, end = span(choice, seconds)
    yield begin, f"{names} hang", lambda world, _: world.programs.replace("hangs", names)
    yield end, "the programs are back", lambda world, _: world.programs.restore()


def killed_programs(choice: random.Random, seconds: float) -> Iterator[Event]:
    """ffmpeg and ffprobe are ended from outside, as the system does where memory runs out."""
    number = choice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
    begin, end = span(choice, seconds)
    while (begin := begin + choice.uniform(0, 0.1)) < end:
        yield begin, f"{number.name} to ffmpeg", lambda world, _: world.weary() or world.programs.signal_running(number)


def sleeping_programs(choice: random.Random, seconds: float) -> Iterator[Event]:
    begin, end = span(choice, seconds)
    yield begin, "ffmpeg stands still", lambda world, _: world.programs.signal_running(signal.SIGSTOP)
    yield end, "ffmpeg goes on", lambda world, _: world.programs.signal_running(signal.SIGCONT)


def sleeping_processes(choice: random.Random, seconds: float) -> Iterator[Event]:
    """A process stands still, where leases are short for longer than one, and goes on as if nothing had happened."""
    begin = choice.uniform(0, seconds / 2)
    stopped: list[int] = []
    yield begin, "a process stands still", lambda world, choice: stand_still(world.pick(choice), stopped)
    # The load waits for the server meanwhile; longer than the shortest lease, shorter than a client's patience.
    yield begin + choice.choice([0.1, 1, 8]), "it goes on", lambda world, _: go_on(world, stopped)


def sleeping_workers(choice: random.Random, seconds: float) -> Iterator[Event]:
    """A worker stands still, and goes on as if nothing had happened."""
    begin, end = span(choice, seconds)
    stopped: list[int] = []

    def sleep(world: World, choice: random.Random) -> None:
        held = world.held_by_weary_jobs()
        workers = [one for one in world.processes() if one is not world.server and one.is_alive() and one.process.pid not in held]
        stand_still(choice.choice(workers) if workers else None, stopped)

    yield begin, "a worker stands still", sleep
    yield end, "it goes on", lambda world, _: go_on(world, stopped)


def stand_still(one, stopped: list[int]) -> None:
    if one is not None:
        one.process.send_signal(signal.SIGSTOP)
        stopped.append(one.process.pid)


def go_on(world: World, stopped: list[int]) -> None:
    for pid in stopped:
        # It may have been killed since; its number is not given away before it was waited for, and then not soon again.
        if any(one.is_alive() and one.process.pid == pid for one in world.processes()):
            os.kill(pid, signal.SIGCONT)


def jumping_clock(choice: random.Random, seconds: float) -> Iterator[Event]:
    for _ in range(choice.randrange(1, 4)):
        hours = choice.choice([-FARTHEST / HOUR, -1, -0.01, 0.0003, 0.01, 1, 3, FARTHEST / HOUR])

        def jump(world: World, choice: random.Random, hours=hours) -> None:
            off = world.machine.offset - world.clock_base
            to = max(-FARTHEST, min(FARTHEST, off + hours * HOUR))
            # The last few are for the sweeps.
            if world.machine.jumps < JUMPS - 20:
                world.machine.jump(to - off)

        yield choice.uniform(0, seconds), f"the clock jumps by {hours} h", jump


def vanishing_driver(choice: random.Random, seconds: float) -> Iterator[Event]:
    """The driver of the graphics device goes away, as in an update of it."""
    begin, end = span(choice, seconds)
    yield begin, "the GPU's driver is gone", lambda world, _: world.hide_driver()
    yield end, "the GPU's driver is back", lambda world, _: world.show_driver()


ALWAYS = [
    kills, kills, kills, restarts_of_the_system, stops_of_the_service, failing_writes, failing_writes, failing_reads, slow_disk,
    missing_programs, updated_programs, hanging_programs, killed_programs, killed_programs, sleeping_programs, sleeping_processes, jumping_clock,
]

LASTING = [failing_writes, failing_writes, failing_reads, missing_programs, hanging_programs, sleeping_programs, sleeping_workers, sleeping_workers]


def faults_of(world: World) -> list:
    """Those that can be had in this world."""
    more = []
    if world.disk is not None:
        more += [full_disk, full_disk, full_disk]
    if world.gpu:
        more += [vanishing_driver, vanishing_driver]
    return ALWAYS + more


def for_long(fault: Callable[[random.Random, float], Iterator[Event]], choice: random.Random) -> list[Event]:
    """A fault that has a beginning and an end, for `LASTS` seconds."""
    (_, begins, begin), (_, ends, end) = fault(choice, LASTS)
    return [(0, f"{begins}, for {LASTS} s", begin), (LASTS, ends, end)]


def lasting_faults_of(world: World) -> list:
    """Those of this world that may stay for so long. The server stands still for less: clients wait for it."""
    more = []
    if world.disk is not None:
        more += [full_disk, full_disk]
    if world.gpu:
        more += [vanishing_driver]
    return LASTING + more


def end_all(world: World) -> None:
    """No fault is left."""
    world.machine.good_disk()
    if world.disk is not None:
        world.disk.empty()
    world.programs.restore()
    world.programs.signal_running(signal.SIGCONT)
    if world.gpu:
        world.show_driver()
    for one in world.processes():
        if one.is_alive():
            one.process.send_signal(signal.SIGCONT)
