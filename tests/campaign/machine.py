"""Makes processes believe that their disk fails, that the time of the day jumped, or that the system was started anew.

`machine.c` is loaded into them; both sides share a page of settings, so that a change holds at once, for all.
"""

import errno
import mmap
import struct
import time
import uuid
from pathlib import Path

from compiled import compiled

# As in machine.c.
SETTINGS = struct.Struct("<6I")
JUMP = struct.Struct("<2q")
JUMPS = 4000


class Machine:
    """The machine of all processes that get its `environment`."""

    def __init__(self, folder: Path, data: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.library = compiled(Path(__file__).with_name("machine.c"), library=True)
        self.settings = folder / "settings"
        self.settings.write_bytes(bytes(SETTINGS.size + JUMPS * JUMP.size))
        with self.settings.open("r+b") as file:
            self.page = mmap.mmap(file.fileno(), 0)
        self.boot = folder / "boot_id"
        self.data = data
        self.offset = 0.0
        self.jumps = 0
        self.start_anew()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self.library),
            "CAMPAIGN_MACHINE": str(self.settings),
            "CAMPAIGN_FOLDER": str(self.data),
            "CAMPAIGN_BOOT_ID": str(self.boot),
            # Nobody waits the hour after which a server first sweeps.
            "FAILPOINTS": "service.sweep_later=return(eio)",
        }

    def disk(self, writes: str | None = None, writes_one_in: int = 1, reads: str | None = None, reads_one_in: int = 1, delay_ms: int = 0) -> None:
        """From now on one write or read in so many fails with this error (`ENOSPC`, `EIO`), and each takes so long at least."""
        number = {None: 0}.get
        values = [number(name, name and getattr(errno, name)) for name in (writes, reads)]
        SETTINGS.pack_into(self.page, 0, values[0], writes_one_in, values[1], reads_one_in, delay_ms, self.jumps)

    def good_disk(self) -> None:
        self.disk()

    def jump(self, seconds: float) -> None:
        """Sets the clock forward (or back) by so much."""
        if self.jumps == JUMPS:
            raise RuntimeError(f"{JUMPS} jumps are all that machine.c remembers")
        self.offset += seconds
        JUMP.pack_into(self.page, SETTINGS.size + self.jumps * JUMP.size, time.time_ns(), round(self.offset * 1e9))
        self.jumps += 1
        # Last, as a process may look at any moment.
        struct.pack_into("<I", self.page, SETTINGS.size - 4, self.jumps)

    def start_anew(self) -> None:
        """Another run of the system: for processes that are started from now on."""
        self.boot.write_text(f"{uuid.uuid4()}\n")
