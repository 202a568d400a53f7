"""The storage that the machines share, as the campaign sees it: what lies in it, and how it fails for one machine.

Another kind of storage is another class with these methods.
"""

import functools
import os
from pathlib import Path

from campaign.machine import Machine
from prerequisites import is_missing
from stores import Stores
from stores.door import Door


# Says whose the files are; written by the first that works on them, and kept.
SERVICE_ID = "service-id"


class SharedFolder:
    """A folder that all machines see."""

    # Whether it is a store that clients send to and fetch from by themselves. It has a clock of its own, and believes nobody whose
    # clock is far from it.
    is_store = False

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(mode=0o700)
        self.always: list[str] = []

    def address_for(self, machine: Machine) -> str:
        """The address by which a machine knows it."""
        return f"file://{self.folder}"

    @staticmethod
    def environment() -> dict[str, str]:
        """What opens it."""
        return {}

    def note_what_is_always_there(self) -> None:
        """Called when the service was opened for the first time, and holds nothing."""
        # The folder of checkpoints is made for the first of them, and stays.
        self.always = [*self.names(), "checkpoints", SERVICE_ID]

    def names(self) -> list[str]:
        """What lies in it, but for what it always has."""
        found = []
        for at, folders, files in os.walk(self.folder):
            found += [os.path.relpath(os.path.join(at, name), self.folder) for name in folders + files]
        return [name for name in found if name not in self.always]

    def size(self, name: str) -> int | None:
        """Bytes of a file; nothing if it is not there."""
        path = self.folder / name
        return path.stat().st_size if path.exists() else None

    @staticmethod
    def fail(machine: Machine, one_in: int) -> None:
        """For this machine one call in so many fails, until `mend`."""
        machine.disk(writes="EIO", writes_one_in=one_in, reads="EIO", reads_one_in=one_in)

    @staticmethod
    def mend(machine: Machine) -> None:
        machine.good_disk()

    def age(self, seconds: float) -> None:
        """Files look older by so much from now on, where they have a clock of their own."""

    def close(self) -> None:
        pass


@functools.cache
def stores() -> Stores:
    """A store for all campaigns of this process, each in a place of its own."""
    return Stores(("s3",))


class ObjectStore:
    """A store that speaks like S3, which each machine reaches through a door of its own."""

    is_store = True

    def __init__(self, folder: Path):
        # Nothing lies there: no disk of a machine is the storage.
        self.folder = folder
        if "s3" in stores().missing:
            is_missing("stores", stores().missing["s3"])
        self.address = stores().place("s3")
        self.place = stores().look(self.address)
        self.doors: dict[Machine, Door] = {}
        self.always: list[str] = []

    def address_for(self, machine: Machine) -> str:
        door = self.doors[machine] = Door(self.place.port)
        return self.address.replace(f":{self.place.port}", f":{door.port}")

    @staticmethod
    def environment() -> dict[str, str]:
        return stores().credentials

    def note_what_is_always_there(self) -> None:
        self.always = [*self.names(), SERVICE_ID]

    def names(self) -> list[str]:
        return [name for name in self.place.names() if name not in self.always]

    def size(self, name: str) -> int | None:
        return self.place.size(name)

    def fail(self, machine: Machine, one_in: int) -> None:
        self.doors[machine].fails_one_in = one_in

    def mend(self, machine: Machine) -> None:
        self.doors[machine].fails_one_in = 0

    def age(self, seconds: float) -> None:
        for door in self.doors.values():
            door.ages += seconds

    def close(self) -> None:
        for door in self.doors.values():
            door.close()


KINDS = {"folder": SharedFolder, "s3": ObjectStore}
