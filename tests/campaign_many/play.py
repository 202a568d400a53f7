"""Plays the rounds of a campaign over many machines."""

import os
import random

from campaign.clients import check
from campaign.play import Campaign

from .faults import ALL, DELAYING, OF_A_STORE, Event, end_all, failing_storage, hit_in_a_stage, kills
from .world import APART, ManyWorld


class ManyMachines(Campaign):
    """What the machines are like depends on the seed."""

    # No clock jumps that far.
    load_options = {"addresses_expire": False}
    kills = staticmethod(kills)
    # Most rounds are short: what takes long is rare.
    captures = 0.25
    # Those that last are faults of one machine.
    lasting = 0
    # In so many rounds a worker is hit in a stage that is drawn, beside all else.
    hits = 0.5
    # A word of `storage.KINDS`.
    storage = os.environ.get("CAMPAIGN_MANY_STORAGE", "folder")

    def make_world(self) -> ManyWorld:
        choice = random.Random(f"many machines {self.seed}")
        world = ManyWorld(self.folder, workers=choice.choice([2, 2, 3]), lease_seconds=choice.choice([6, 6, None]), storage=self.storage)
        for host in world.hosts:
            host.machine.jump(choice.uniform(-APART / 2, APART / 2))
        return world

    def begin(self) -> None:
        self.world.begin()
        super().begin()

    def programs_are_broken(self) -> bool:
        # ffprobe does not tell what it could not read from what is no video.
        return self.world.storage_failed

    def faults(self) -> list:
        return OF_A_STORE if self.world.storage.is_store else ALL

    def share_of_long(self) -> float:
        # They take their time, also once before the first round: every other campaign does without.
        return 0.5 if self.seed % 2 else 0.0

    def more_faults(self, seconds: float) -> list[Event]:
        # A generator of its own: the other faults of a seed stay what they are.
        choice = random.Random(f"stage {self.seed} {self.round}")
        return list(hit_in_a_stage(choice, seconds)) if choice.random() < self.hits else []

    def before_storm(self, faults: list) -> None:
        self.world.storage_failed = False
        self.world.lookout.storage_fails = failing_storage in faults
        self.world.lookout.is_troubled = any(fault in DELAYING for fault in faults)

    def check(self, settles: bool) -> None:
        super().check(settles)
        faults = self.world.lookout.faults
        check(not faults, "; ".join(faults))

    def totals(self) -> dict:
        return super().totals() | {"stages": self.world.lookout.totals()}

    def end_faults(self) -> None:
        end_all(self.world)

    def own_disk(self) -> None:
        return None

    def servers(self) -> list:
        return [host.server for host in self.world.servers]
