"""An object store in which servers of these tests keep their files.

With `LIBRECONSTRUCT_TEST_STORAGE=s3` (or `gs`, `az`) beside `LIBRECONSTRUCT_TEST_POSTGRES=1` every server has a new, empty place in
a store of the tests' own, which is started when the first server needs it and ends with this process.
"""

import functools
import os
from pathlib import Path

import pytest
from prerequisites import is_missing
from stores import SCHEMES, Place, Stores

SCHEME = os.environ.get("LIBRECONSTRUCT_TEST_STORAGE", "")
IS_ASKED_FOR = SCHEME != ""
if IS_ASKED_FOR and SCHEME not in SCHEMES:
    raise ValueError(f"LIBRECONSTRUCT_TEST_STORAGE is {SCHEME!r}; it may be {', '.join(SCHEMES)}")
if IS_ASKED_FOR and os.environ.get("LIBRECONSTRUCT_TEST_POSTGRES") != "1":
    raise ValueError("LIBRECONSTRUCT_TEST_STORAGE needs LIBRECONSTRUCT_TEST_POSTGRES=1: files that are shared belong to rows that are")


@functools.cache
def stores() -> Stores:
    started = Stores((SCHEME,))
    # Servers, workers and commands of the tests find what opens the store as those of an operator do.
    os.environ.update(started.credentials)
    return started


def address() -> str:
    """The address of a new, empty storage."""
    if SCHEME in stores().missing:
        is_missing("stores", stores().missing[SCHEME])
    return stores().place(SCHEME)


class Folder:
    """Files in a folder; the same methods as `stores.Place`."""

    def __init__(self, folder: Path):
        self.folder = folder

    def names(self) -> dict[str, int]:
        """Paths of all files below it, relative to it, with their sizes. Somebody may delete some meanwhile."""
        found = {}
        # Path.rglob fails where a folder goes away while it looks; walk passes over it.
        for at, _, files in os.walk(self.folder):
            for name in files:
                path = Path(at, name)
                try:
                    found[str(path.relative_to(self.folder))] = path.stat().st_size
                except FileNotFoundError:
                    continue
        return found

    def read(self, name: str) -> bytes | None:
        path = self.folder / name
        return path.read_bytes() if path.exists() else None


def at(where: str) -> Folder | Place:
    """What lies at the address of a storage."""
    if where.startswith("file://"):
        return Folder(Path(where.removeprefix("file://")))
    return stores().look(where)


# Of tests with clients of Azure: our own server understands them, and so does a store of Azure. S3 and Google Cloud Storage sign one PUT
# of the whole video: what Azure's clients add to such an address breaks its signature, and their blocks mean nothing there.
answers_clients_of_azure = pytest.mark.skipif(SCHEME in ("s3", "gs"), reason="the address leads to a store that does not understand clients of Azure")
# Of tests of what our own server answers to an upload or a download.
answered_by_us = pytest.mark.skipif(IS_ASKED_FOR, reason="the address leads to the store, which answers by rules of its own (rule 83 of docs/rest.md)")
