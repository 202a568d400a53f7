"""Plays the rounds of a campaign."""

import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from . import invariants
from .clients import Fault, InDoubt, Load, User, options_of
from .disk import SmallDisk
from .expected import Expected
from .faults import end_all, faults_of, for_long, kills, lasting_faults_of
from .world import DRIVER, World

# Rounds between two at whose end everything must have ended.
SETTLE_EVERY = 6


def world_of(seed: int, folder: Path) -> tuple[World, list[str]]:
    """What a world is like depends on the seed; what this machine has not is left out, and told."""
    choice = random.Random(f"world {seed}")
    workers, own_disk, gpu, short_leases = choice.choice([1, 1, 2]), choice.random() < 0.3, choice.random() < 0.15, choice.random() < 0.5
    options = {"workers": workers, "gpu": gpu and DRIVER.exists(), "lease_seconds": 6 if short_leases else None}
    lacks = []
    if gpu and not DRIVER.exists():
        lacks.append(f"a graphics device, and the faults of its driver: {DRIVER} is not there (apt-get install mesa-vulkan-drivers)")
    if own_disk:
        try:
            return World(folder, own_disk=True, **options), lacks
        except OSError as error:
            lacks.append(f"a disk that is really full: {error} (run it as root)")
    return World(folder, **options), lacks


class Campaign:
    """The rounds of one seed, in a folder of their own."""

    # Of clients, in a round.
    load_options: dict = {}
    # In most rounds, whatever else happens.
    kills = staticmethod(kills)
    # Share of the jobs that come to a scene.
    captures = 0.4
    # Whether each round is told as it ends.
    tells = False
    # Share of the rounds at whose end a fault stays for long.
    lasting = 0.04
    # What the seed asks for and this machine has not.
    not_played: list[str] | tuple[()] = ()

    def __init__(self, seed: int, folder: Path):
        self.seed, self.folder = seed, folder
        self.world = self.make_world()
        self.expected = Expected(self.programs_are_broken, self.captures, self.share_of_long())
        self.users: list[User] = []
        self.counts: Counter[str] = Counter()
        self.round = 0

    def make_world(self):
        world, self.not_played = world_of(self.seed, self.folder)
        return world

    def share_of_long(self) -> float:
        """Of the jobs that come to a scene, those that train for longer."""
        return 0.0

    def programs_are_broken(self) -> bool:
        return self.world.programs.disturbed

    def faults(self) -> list:
        """Those that may be drawn."""
        return faults_of(self.world)

    def lasting_faults(self) -> list:
        """Those that may be drawn to stay for long."""
        return lasting_faults_of(self.world)

    def more_faults(self, seconds: float) -> list:
        """Events of faults that take nothing from the choice of the others."""
        return []

    def before_storm(self, faults: list) -> None:
        """Before these faults begin."""
        self.world.programs.disturbed = False

    def end_faults(self) -> None:
        end_all(self.world)

    def own_disk(self) -> SmallDisk | None:
        """A disk that nobody else writes to."""
        return self.world.disk

    def servers(self) -> list:
        return [self.world.server]

    def begin(self) -> None:
        world = self.world
        world.start()
        for name in ("anna", "ben"):
            world.server.command("users", "add", name, "--tier", "enterprise", environment=world.server.environment)
            key = world.server.command("keys", "create", name, environment=world.server.environment)
            from rest.server import Client

            self.users.append(User(Client(world.server, key["key"], name)))
        self.expected.learn(world.server, self.users[0].client, world.gpu, options_of)

    def storm(self, choice: random.Random, happened: list[str]) -> None:
        """Faults come and go while clients work; `happened` gets what happened."""
        seconds = choice.choice([2, 4, 8])
        faults = choice.sample(self.faults(), choice.choice([1, 1, 2, 3]))
        # Processes are killed in most rounds, whatever else happens.
        if self.kills not in faults and choice.random() < 0.7:
            faults.append(self.kills)
        events = [event for fault in faults for event in fault(choice, seconds)] + self.more_faults(seconds)
        events.sort(key=lambda event: event[0])
        self.before_storm(faults)
        load = Load(self.servers(), self.users, self.expected, f"{self.seed} {self.round}", **self.load_options)
        began = time.monotonic()
        for at, name, do in events:
            time.sleep(max(0, began + at - time.monotonic()))
            if name != "kill":
                happened.append(f"{at:.2f} s: {name}")
            do(self.world, choice)
        time.sleep(max(0, began + seconds - time.monotonic()))
        self.linger(happened)
        self.end_faults()
        self.world.start()
        load.end()

    def linger(self, happened: list[str]) -> None:
        """In few rounds one fault stays for longer than several tries of a job or a worker take, unless some job is weary by now."""
        # Of its own, so that whether it stays changes nothing of what else a seed plays.
        choice = random.Random(f"lasting {self.seed} {self.round}")
        if choice.random() >= self.lasting or self.world.weary():
            return
        began = time.monotonic()
        for at, name, do in for_long(choice.choice(self.lasting_faults()), choice):
            while (left := began + at - time.monotonic()) > 0:
                time.sleep(min(left, 2))
                # What ends because of the fault is started again, as an init system does it.
                self.world.spawn()
            happened.append(f"at last {name}")
            do(self.world, choice)

    def play_round(self, settles: bool) -> None:
        self.round += 1
        began = time.monotonic()
        choice = random.Random(f"{self.seed} {self.round}")
        happened: list[str] = []
        try:
            if not self.world.weary():
                self.storm(choice, happened)
            else:
                # What was disturbed most comes to its end first.
                self.counts["calm rounds"] += 1
                settles = True
            self.check(settles)
        except (Fault, AssertionError, InDoubt) as fault:
            raise Fault(f"seed {self.seed}, round {self.round}, after {happened}: {type(fault).__name__} {fault}") from fault
        self.counts["rounds"] += 1
        if self.tells:
            print(f"seed {self.seed}, round {self.round}: {time.monotonic() - began:.0f} s, {happened}", flush=True)

    def check(self, settles: bool) -> None:
        world, users = self.world, self.users
        # Its threads have nothing to do: it only sends again what is in doubt.
        load = Load(self.servers(), [], self.expected, "")
        invariants.check_accounts(world, users, load)
        invariants.check_jobs(world, users, self.expected)
        invariants.check_rows_and_files(world)
        if settles:
            # The server counts its rows four times a minute, so this may wait.
            invariants.check_quota(world, users)
            self.counts.update(invariants.settle(world, users, self.expected))
            invariants.empty(world, users, load)
            if (disk := self.own_disk()) is not None:
                invariants.check_free_space(disk.free, users)
            self.counts["everything ended"] += 1
        world.check_database()
        for log in world.logs():
            invariants.check_log(log)

    def totals(self) -> dict:
        counts = sum((user.counts for user in self.users), Counter(self.counts))
        refusals = sum((user.refusals for user in self.users), Counter())
        totals = {"kills": self.world.kills, **dict(sorted(counts.items())), "refused": dict(refusals.most_common())}
        return totals | ({"not played": list(self.not_played)} if self.not_played else {})

    def close(self) -> None:
        self.world.close()


def play(
    seed: int, rounds: int | None = None, until: float | None = None, folder: Path | None = None, first: int = 1, kind: type[Campaign] = Campaign
) -> dict:
    """Plays from the round `first` so many rounds, or until a moment (of `time.monotonic`); the last one settles. What was done.

    Raises `Fault` with the seed and the round; the folder is then kept."""
    place = folder or Path(tempfile.mkdtemp(prefix=f"campaign-{seed}-"))
    campaign = kind(seed, place)
    campaign.round = first - 1
    for what in campaign.not_played:
        print(f"NOT PLAYED by seed {seed}: {what}", flush=True)
    try:
        campaign.begin()
        last = False
        while not last:
            last = (rounds is not None and campaign.round + 2 - first >= rounds) or (until is not None and time.monotonic() >= until)
            campaign.play_round(last or (campaign.round + 1) % SETTLE_EVERY == 0)
        totals = campaign.totals()
    finally:
        campaign.close()
    if folder is None:
        shutil.rmtree(place, ignore_errors=True)
    return totals
