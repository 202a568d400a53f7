"""ffmpeg and ffprobe in a folder of their own, from which they can be taken, and where others can take their place."""

import os
import shutil
import signal
from pathlib import Path

from compiled import compiled

NAMES = ("ffmpeg", "ffprobe")


class Programs:
    def __init__(self, folder: Path):
        self.folder = folder
        self.kept = folder / "kept"
        self.kept.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            shutil.copy(shutil.which(name), self.kept / name)
        shutil.copy(shutil.which("true"), self.kept / "another")
        shutil.copy(compiled(Path(__file__).with_name("hang.c"), library=False), self.kept / "hangs")
        # Whether what they said of a video since this was set to false may be wrong.
        self.disturbed = False
        self.restore()

    @property
    def environment(self) -> dict[str, str]:
        return {f"RECONSTRUCT_{name.upper()}": str(self.folder / name) for name in NAMES}

    def _put(self, name: str, what: str) -> None:
        part = self.folder / f"part-{name}"
        part.unlink(missing_ok=True)
        os.link(self.kept / what, part)
        part.rename(self.folder / name)

    def restore(self) -> None:
        """Both are there and work; what was put in their place is ended."""
        for name in NAMES:
            self._put(name, name)
        self.signal_running(signal.SIGKILL, only="hangs")

    def take_away(self, names=NAMES) -> None:
        self.disturbed = True
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def replace(self, what: str, names=NAMES) -> None:
        """`another` is a program that is no ffmpeg, `hangs` one that never ends."""
        self.disturbed = True
        for name in names:
            self._put(name, what)

    def running(self, only: str | None = None) -> list[int]:
        """Processes that run one of these programs."""
        wanted = {}
        for path in self.kept.iterdir():
            if only is None or path.name == only:
                found = path.stat()
                wanted[found.st_dev, found.st_ino] = path.name
        pids = []
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    # Follows the link to the program, also if its name is gone.
                    found = os.stat(f"/proc/{entry.name}/exe")
                except OSError:
                    continue
                if (found.st_dev, found.st_ino) in wanted:
                    pids.append(int(entry.name))
        return pids

    def signal_running(self, number: int, only: str | None = None) -> int:
        """Sends a signal to these processes; how many there were."""
        self.disturbed = True
        count = 0
        for pid in self.running(only):
            try:
                os.kill(pid, number)
                count += 1
            except ProcessLookupError:
                pass
        return count
