"""What a disk may show after the power was cut at a moment.

Sure is: the content of a file up to its last flush, the names in a folder up to its last flush. Of what was done later a disk may
have kept all, nothing, or any part, in any order; of a write any of its sectors. A real file system keeps more (most make the
name of a flushed file sure, and rename in one step): what holds here holds there.
"""

import random
from dataclasses import dataclass
from pathlib import Path

from .history import File, Folder, History, last_flush

SECTOR = 512
WAYS = ("nothing unflushed", "everything unflushed", "some of everything", "names without content", "content without names")


@dataclass
class State:
    """One thing that a disk may show: the moment of the cut, how it treats what was not flushed, and the seed of its choices."""

    cut: int
    way: str
    seed: str


def content(file: File, state: State, choice: random.Random) -> bytes:
    flushed = last_flush(file.flushes, state.cut)
    result = bytearray()

    def write(at: int, data: bytes) -> None:
        if len(result) < at:
            result.extend(bytes(at - len(result)))
        result[at : at + len(data)] = data

    def resize(size: int) -> None:
        del result[size:]
        result.extend(bytes(size - len(result)))

    keeps_size = choice.random() < 0.5
    for moment, at, data in file.writes:
        if moment > state.cut:
            break
        sure = moment <= flushed or state.way in ("everything unflushed", "content without names")
        if sure:
            write(at, data) if data is not None else resize(at)
        elif state.way == "nothing unflushed":
            continue
        elif state.way == "names without content":
            # The size is kept with the name, the content is not: zeros.
            if data is None:
                resize(at)
            elif len(result) < at + len(data):
                resize(at + len(data))
        else:
            fate = choice.random()
            if data is None:
                if fate < 0.5:
                    resize(at)
            elif fate < 0.3:
                write(at, data)
            elif fate < 0.7:
                # Some sectors of it, which are those of the file.
                if keeps_size and len(result) < at + len(data):
                    resize(at + len(data))
                start = at - at % SECTOR
                for sector in range(start, at + len(data), SECTOR):
                    if choice.random() < 0.5:
                        begin, end = max(sector, at), min(sector + SECTOR, at + len(data))
                        write(begin, data[begin - at : end - at])
    return bytes(result)


def names(folder: Folder, state: State, choice: random.Random) -> dict[str, File | Folder]:
    flushed = last_flush(folder.flushes, state.cut)
    result: dict[str, File | Folder] = {}
    pending: dict[str, list[File | Folder | None]] = {}
    for moment, name, what in folder.names:
        if moment > state.cut:
            break
        if moment <= flushed:
            if what is None:
                result.pop(name, None)
            else:
                result[name] = what
        else:
            pending.setdefault(name, []).append(what)
    for name, history in pending.items():
        if state.way in ("nothing unflushed", "content without names"):
            continue
        # Of what happened to a name, the first so many steps.
        steps = len(history) if state.way in ("everything unflushed", "names without content") else choice.randrange(len(history) + 1)
        if steps == 0:
            continue
        what = history[steps - 1]
        if what is None:
            result.pop(name, None)
        else:
            result[name] = what
    return result


def make(history: History, state: State, place: Path) -> None:
    """Makes the folder that the disk shows."""
    choice = random.Random(state.seed)
    contents: dict[int, bytes] = {}

    def fill(folder: Folder, path: Path) -> None:
        path.mkdir(mode=0o700)
        for name, what in sorted(names(folder, state, choice).items()):
            # Memory that processes share: made anew by the first that opens the database.
            if name.endswith("-shm"):
                continue
            if isinstance(what, Folder):
                fill(what, path / name)
            else:
                if id(what) not in contents:
                    contents[id(what)] = content(what, state, choice)
                (path / name).write_bytes(contents[id(what)])
                (path / name).chmod(what.mode or 0o600)

    fill(history.root, place)
