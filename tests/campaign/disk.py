"""A small disk of its own, so that it can really be full: an ext4 file system in a file. Only root can make one."""

import os
import subprocess
from pathlib import Path

MIB = 1 << 20


class SmallDisk:
    """Mounted until `remove`."""

    def __init__(self, folder: Path, size: int):
        self.image = folder.with_name(folder.name + ".img")
        self.place = folder
        self.ballast = folder / "ballast"
        folder.mkdir(parents=True)
        with self.image.open("wb") as file:
            file.truncate(size)
        try:
            self._run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1", self.image)
            self._run("mount", "-o", "loop", self.image, folder)
        except (OSError, subprocess.CalledProcessError) as error:
            self.image.unlink()
            folder.rmdir()
            raise OSError(f"no disk of our own here: {error}") from None

    @staticmethod
    def _run(*command) -> None:
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def free(self) -> int:
        found = os.statvfs(self.place)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int) -> None:
        """Takes all of the free space but so many bytes."""
        with self.ballast.open("ab") as file:
            size = file.seek(0, os.SEEK_END)
            more = self.free() - leave
            if more > 0:
                # Others write at the same time, so it may not fit any more; then it is full, as it should be.
                try:
                    os.posix_fallocate(file.fileno(), size, more)
                except OSError:
                    pass

    def empty(self) -> None:
        self.ballast.unlink(missing_ok=True)

    def remove(self) -> None:
        # A process that was just killed may still hold it for a moment; a lazy unmount waits for that by itself.
        self._run("umount", "--lazy", self.place)
        self.image.unlink()
