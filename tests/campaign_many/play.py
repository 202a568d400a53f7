"""Plays the rounds of a campaign over many machines."""

import os
import random

from campaign.play import Campaign

from .faults import ALL, OF_A_STORE, end_all, kills
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

    def before_storm(self) -> None:
        self.world.storage_failed = False

    def end_faults(self) -> None:
        end_all(self.world)

    def own_disk(self) -> None:
        return None

    def servers(self) -> list:
        return [host.server for host in self.world.servers]
