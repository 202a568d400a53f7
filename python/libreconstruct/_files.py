"""Files appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Union

PathLike = Union[str, "os.PathLike[str]"]


def write_whole(path: PathLike, chunks: Iterable[bytes]) -> Path:
    """Writes the chunks beside `path` first and renames the file when all of them are on the disk."""
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    try:
        with part.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return path
