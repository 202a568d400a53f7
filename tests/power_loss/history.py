"""The record of a run as files and folders with all that was ever done to them."""

import struct
from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

# As in recorder.c.
HEAD = struct.Struct("<IIQqII")
CREATE, WRITE, RESIZE, SYNC, RENAME, LINK, UNLINK, MKDIR, RMDIR = range(1, 10)


@dataclass
class File:
    """A file: its content is what was written to it. All moments are places in the record, in bytes."""

    mode: int
    # (moment, offset, bytes) for a write, (moment, size, None) for a new size.
    writes: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    flushes: list[int] = field(default_factory=list)


@dataclass
class Folder:
    """A folder: which file or folder each name meant from when on, nothing if it was removed."""

    mode: int = 0o700
    names: list[tuple[int, str, "File | Folder | None"]] = field(default_factory=list)
    flushes: list[int] = field(default_factory=list)


class History:
    """All that happened below `root`, which was there from the beginning."""

    def __init__(self, record: Path, root: Path):
        self.root_path = PurePosixPath(root)
        self.root = Folder()
        self.now: dict[PurePosixPath, File | Folder] = {self.root_path: self.root}
        self.inodes: dict[int, File | Folder] = {root.stat().st_ino: self.root} if root.exists() else {}
        # Where each operation ends: the moments at which the power can be cut.
        self.moments: list[int] = []
        # Those after which something is sure that was not before.
        self.flush_moments: list[int] = []
        self.operations = 0
        self._read(record.read_bytes())

    def _read(self, record: bytes) -> None:
        at = 0
        while at < len(record):
            kind, mode, inode, number, first, second = HEAD.unpack_from(record, at)
            at += HEAD.size
            a, b = record[at : at + first], record[at + first : at + first + second]
            at += first + second
            if at > len(record):
                raise ValueError("the record is cut off")
            self._note(at, kind, mode, inode, number, a, b)
            self.moments.append(at)
            self.operations += 1

    def _name(self, moment: int, path: PurePosixPath, what: "File | Folder | None") -> None:
        above = self.now.get(path.parent)
        if not isinstance(above, Folder):
            raise ValueError(f"{path} is in a folder that the record does not know")
        above.names.append((moment, path.name, what))
        if what is None:
            self.now.pop(path, None)
        else:
            self.now[path] = what

    def _note(self, moment: int, kind: int, mode: int, inode: int, number: int, a: bytes, b: bytes) -> None:
        if kind in (CREATE, MKDIR):
            made = File(mode) if kind == CREATE else Folder(mode)
            # The number may have been that of another file, which is gone.
            self.inodes[inode] = made
            self._name(moment, PurePosixPath(a.decode()), made)
        elif kind in (WRITE, RESIZE):
            file = self.inodes[inode]
            assert isinstance(file, File)
            file.writes.append((moment, number, a if kind == WRITE else None))
        elif kind == SYNC:
            self.inodes[inode].flushes.append(moment)
            self.flush_moments.append(moment)
        elif kind == RENAME:
            old, new = PurePosixPath(a.decode()), PurePosixPath(b.decode())
            what = self.now[old]
            if isinstance(what, Folder):
                raise ValueError(f"a folder was renamed, which is not provided for: {old}")
            self._name(moment, old, None)
            self._name(moment, new, what)
        elif kind == LINK:
            self._name(moment, PurePosixPath(a.decode()), self.inodes[inode])
        elif kind in (UNLINK, RMDIR):
            self._name(moment, PurePosixPath(a.decode()), None)
        else:
            raise ValueError(f"an operation of kind {kind}")


def last_flush(flushes: list[int], cut: int) -> int:
    """The last flush that was over when the power was cut; 0 if there was none."""
    count = bisect_left(flushes, cut + 1)
    return flushes[count - 1] if count else 0
