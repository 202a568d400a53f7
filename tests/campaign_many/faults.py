"""What can go wrong among many machines. Each fault turns a choice into events, as those of `tests/campaign/faults.py` do."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator

from campaign.faults import span

from .hosts import Host
from .lookout import PUBLISHING, STAGES
from .world import APART, ManyWorld

Event = tuple[float, str, Callable[[ManyWorld, random.Random], None]]
# Where a program dies at a moment of its own: before it says what it has done, or right after.
PLACES_OF_SERVERS = [
    "storage.commit.rename", "storage.commit.sync_folder", "database.create_upload.commit", "database.finish_upload.commit",
    "database.insert_job.commit", "database.insert_job.commit", "database.update_job.commit", "database.mark_deleted.commit",
    "database.forget_job.commit", "database.expire_uploads.commit", "database.forget_upload.commit", "storage.delete.unlink",
]
# In the middle of a submission, where what a client sent to an object store becomes a video.
PLACES_OF_SUBMISSIONS = ["submit.copied", "submit.taken_in", "submit.added"]
PLACES_OF_WORKERS = [
    "worker.claimed", "worker.reconstructed", "worker.artifacts_stored", "worker.published", "storage.put.rename", "workspace.create",
    "workspace.remove", "files.rename", "database.claim.commit", "database.heartbeat.commit", "database.progress.commit",
    "database.publish.commit", "database.fail.commit", "database.release.commit", "database.reclaim.commit",
]


def kills(choice: random.Random, seconds: float) -> Iterator[Event]:
    """Processes are killed at random moments, and started again at once."""
    pace = choice.choice([0.1, 0.4, 1])
    at = 0.0
    while (at := at + choice.uniform(0, 2 * pace)) < seconds:
        yield at, "kill", kill_one


def kill_one(world: ManyWorld, choice: random.Random) -> None:
    one = world.pick(choice)
    if one is not None:
        world.kill(one)
    world.spawn()


def deaths_at_a_place(choice: random.Random, seconds: float) -> Iterator[Event]:
    """A process is started anew so that it dies at a certain place, and again."""
    of_worker = choice.random() < 0.6
    place = choice.choice(PLACES_OF_WORKERS if of_worker else PLACES_OF_SERVERS)
    yield from deaths_at(place, of_worker, choice, seconds)


def deaths_in_a_submission(choice: random.Random, seconds: float) -> Iterator[Event]:
    """The same for a server that takes in what a client sent to an object store."""
    yield from deaths_at(choice.choice(PLACES_OF_SUBMISSIONS), False, choice, seconds)


def deaths_at(place: str, of_worker: bool, choice: random.Random, seconds: float) -> Iterator[Event]:
    passes = choice.choice([0, 0, 1, 3])

    def arm(world: ManyWorld, choice: random.Random) -> None:
        one = world.pick(choice, world.workers if of_worker else world.servers)
        if one is not None:
            world.kill(one)
            one.start({"FAILPOINTS": f"{place}={passes}*off->return(kill)"})

    begin = choice.uniform(0, seconds / 2)
    yield begin, f"death at {place} after {passes}", arm
    while (begin := begin + 0.5) < seconds:
        yield begin, "kill", lambda world, _: world.spawn()


def lost_machines(choice: random.Random, seconds: float) -> Iterator[Event]:
    """Machines are gone with all that is on their disks; new ones take their places."""
    for _ in range(choice.randrange(1, 4)):

        def lose(world: ManyWorld, choice: random.Random) -> None:
            one = world.pick(choice)
            if one is not None:
                world.kills += 1
                one.lose_folder()
            world.spawn()

        yield choice.uniform(0, seconds), "a machine is lost", lose


def restarts_of_machines(choice: random.Random, seconds: float) -> Iterator[Event]:
    """Machines are stopped as an init system does it, and started again."""
    for _ in range(choice.randrange(1, 4)):

        def restart(world: ManyWorld, choice: random.Random) -> None:
            # Who is told to end gives its job back: that disturbs none.
            alive = [host for host in world.hosts if host.is_alive()]
            if alive and not world.is_down:
                choice.choice(alive).stop()
            world.spawn()

        yield choice.uniform(0, seconds), "a machine is stopped and started", restart


def sleeping_machines(choice: random.Random, seconds: float) -> Iterator[Event]:
    """A machine stands still, where leases are short for longer than one, and goes on as if nothing had happened."""
    begin = choice.uniform(0, seconds / 2)
    asleep: list[tuple[Host, int]] = []

    def sleep(world: ManyWorld, choice: random.Random) -> None:
        one = world.pick(choice, choice.choice([world.workers, world.workers, world.servers]))
        if one is not None:
            one.process.send_signal(signal.SIGSTOP)
            asleep.append((one, one.process.pid))

    def wake(world: ManyWorld, choice: random.Random) -> None:
        for one, pid in asleep:
            # It may have been killed since.
            if one.is_alive() and one.process.pid == pid:
                os.kill(pid, signal.SIGCONT)

    yield begin, "a machine stands still", sleep
    yield begin + choice.choice([0.1, 1, 8, 8]), "it goes on", wake


def restarts_of_the_database(choice: random.Random, seconds: float) -> Iterator[Event]:
    for _ in range(choice.randrange(1, 3)):
        how, begin = choice.choice(["fast", "immediate"]), choice.uniform(0, seconds)
        yield begin, f"{how} stop of the database", lambda world, _, how=how: world.stop_database(how)
        yield begin + choice.choice([0, 0.5, 3, 12]), "the database is started", lambda world, _: world.database_goes_on()


def frozen_database(choice: random.Random, seconds: float) -> Iterator[Event]:
    begin = choice.uniform(0, seconds)
    yield begin, "the database stands still", lambda world, _: world.freeze_database()
    yield begin + choice.choice([1, 1, 5, 5, 12, 30]), "the database goes on", lambda world, _: world.database_goes_on()


def cut_connections(choice: random.Random, seconds: float) -> Iterator[Event]:
    """Connections to the database break, of one machine or of all."""
    pace, all_of_them = choice.choice([0.05, 0.2, 1]), choice.random() < 0.3

    def cut(world: ManyWorld, choice: random.Random) -> None:
        for host in world.hosts if all_of_them else [choice.choice(world.hosts)]:
            host.way.cut()

    at, end = span(choice, seconds)
    while (at := at + choice.uniform(0, 2 * pace)) < end:
        yield at, "kill", cut


def lost_answers(choice: random.Random, seconds: float) -> Iterator[Event]:
    """The database does its work, and its answer does not arrive."""
    one_in = choice.choice([5, 20, 100])
    begin, end = span(choice, seconds)

    def lose(world: ManyWorld, one_in: int) -> None:
        for host in world.hosts:
            host.way.lose_answers(one_in)

    yield begin, f"one answer of the database in {one_in} is lost", lambda world, _: lose(world, one_in)
    yield end, "answers arrive", lambda world, _: lose(world, 0)


def no_way_to_the_database(choice: random.Random, seconds: float) -> Iterator[Event]:
    """Some machines cannot reach it for a while: they are refused, or nobody says anything."""
    quietly, share = choice.random() < 0.5, choice.choice([0.3, 0.6, 1])
    begin = choice.uniform(0, seconds)

    def lose(world: ManyWorld, choice: random.Random) -> None:
        for host in world.hosts:
            if choice.random() < share:
                if quietly:
                    host.way.hold_up()
                else:
                    host.way.be_gone()

    def find(world: ManyWorld, _: random.Random) -> None:
        for host in world.hosts:
            host.way.be_good()

    yield begin, f"{share:.0%} of the machines lose the way to the database{' and do not notice' if quietly else ''}", lose
    yield begin + choice.choice([1, 8, 18]), "they find it", find


def slow_network(choice: random.Random, seconds: float) -> Iterator[Event]:
    delay = choice.choice([0.002, 0.01, 0.05])
    begin, end = span(choice, seconds)

    def slow_down(world: ManyWorld, seconds: float) -> None:
        for host in world.hosts:
            host.way.slow_down(seconds)

    yield begin, f"the way to the database takes {delay} s more", lambda world, _: slow_down(world, delay)
    yield end, "the way is quick", lambda world, _: slow_down(world, 0)


def failing_storage(choice: random.Random, seconds: float) -> Iterator[Event]:
    """All of the storage fails for some or all machines, or one call in twenty does, as a busy one answers 503 now and then."""
    one_in, share = choice.choice([1, 20, 20]), choice.choice([0.5, 1])
    begin = choice.uniform(0, seconds)
    lasts = choice.choice([1, 4, 10, 60]) if one_in == 1 else choice.uniform(1, seconds)

    def fail(world: ManyWorld, choice: random.Random) -> None:
        world.storage_failed = True
        for host in world.hosts:
            if choice.random() < share:
                world.storage.fail(host.machine, one_in)

    def mend(world: ManyWorld, _: random.Random) -> None:
        for host in world.hosts:
            world.storage.mend(host.machine)

    yield begin, f"one call of the storage in {one_in} fails on {share:.0%} of the machines", fail
    yield begin + lasts, "the storage works", mend


def wandering_clocks(choice: random.Random, seconds: float) -> Iterator[Event]:
    """The clocks of machines are set anew, no two of them further apart than they may be."""
    for _ in range(choice.randrange(1, 4)):

        def jump(world: ManyWorld, choice: random.Random) -> None:
            machine = choice.choice(world.hosts).machine
            machine.jump(choice.uniform(-APART / 2, APART / 2) - machine.offset)

        yield choice.uniform(0, seconds), "a clock jumps", jump


# How a worker is hit in the middle of a stage: its process is killed, its machine is gone, or stands still for longer than a lease.
HITS = ["kill", "kill", "loss", "stop"]
# How long after the other faults it is waited for a job that comes to the stage, seconds.
PATIENCE = 6.0


def hit_in_a_stage(choice: random.Random, seconds: float) -> Iterator[Event]:
    """A worker is hit as soon as a job that it holds is in a certain stage. All is drawn from `choice`, nothing from the other faults'."""
    stage, how = choice.choice([*STAGES, "export", PUBLISHING]), choice.choice(HITS)
    # The worker that stands still, its process, and when that began.
    stopped: list[tuple[Host, int, float]] = []
    hits: list[str] = []

    def hit(world: ManyWorld, host: Host) -> None:
        # Where a lease lasts for longer than a round, nobody waits for its end.
        kind = "kill" if how == "stop" and world.lease_seconds is None else how
        with world.lock:
            if kind == "stop":
                host.process.send_signal(signal.SIGSTOP)
                stopped.append((host, host.process.pid, time.monotonic()))
            else:
                world.kill(host)
                if kind == "loss":
                    host.lose_folder()
                world.spawn()
        hits.append(kind)
        world.lookout.count(f"{kind} in {stage}")

    def look(world: ManyWorld, _: random.Random) -> None:
        if hits or world.is_down:
            return
        names = [attempt.worker for attempt in world.lookout.at_work_in(stage)]
        among = [host for host in world.workers if host.name in names]
        one = world.pick(choice, among) if among else None
        if one is not None:
            hit(world, one)

    def end(world: ManyWorld, _: random.Random) -> None:
        give_up = time.monotonic() + PATIENCE
        # A database that is down waits for an event after this one.
        while not hits and not world.is_down and time.monotonic() < give_up:
            time.sleep(0.03)
            look(world, choice)
        if not hits:
            world.lookout.count(f"no hit in {stage}")
        for host, pid, when in stopped:
            time.sleep(max(0, when + (world.lease_seconds or 0) + 2 - time.monotonic()))
            # It may have been killed since.
            if host.is_alive() and host.process.pid == pid:
                os.kill(pid, signal.SIGCONT)

    at = choice.uniform(0, seconds / 2)
    yield at, f"from here on: {how} in {stage}", look
    while (at := at + 0.1) < seconds:
        yield at, "kill", look
    yield seconds, f"the end of: {how} in {stage}", end


# While one of these plays, nothing is sure to be stored in time.
DELAYING = [
    restarts_of_the_database, frozen_database, cut_connections, lost_answers, no_way_to_the_database, slow_network, failing_storage,
]
ALL = [
    kills, kills, deaths_at_a_place, deaths_at_a_place, deaths_at_a_place, lost_machines, restarts_of_machines, sleeping_machines,
    sleeping_machines, restarts_of_the_database, restarts_of_the_database, frozen_database, cut_connections, cut_connections,
    lost_answers, lost_answers, no_way_to_the_database, slow_network, failing_storage, failing_storage, wandering_clocks,
]
# And where the storage is a store that clients send their videos to.
OF_A_STORE = [*ALL, deaths_in_a_submission, deaths_in_a_submission, failing_storage]


def end_all(world: ManyWorld) -> None:
    """No fault is left."""
    world.database_goes_on()
    for host in world.hosts:
        host.way.be_good()
        world.storage.mend(host.machine)
        if host.is_armed:
            world.kill(host)
        elif host.is_alive():
            host.process.send_signal(signal.SIGCONT)
