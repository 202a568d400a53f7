"""The face of Python's `Engine`: the service in this process."""

from pathlib import Path
from typing import Any

import libreconstruct

from .python_face import PythonFace


class EngineFace(PythonFace):
    can_cancel = True

    def __init__(self, folder: Path, options: dict[str, Any], workers: int, user: str = "alice"):
        super().__init__(libreconstruct.Engine(folder, user=user, workers=workers, settings=options))
        self._open = folder, options

    def other(self) -> "EngineFace":
        return EngineFace(*self._open, 0, "bob")


def open_face(folder: Path, options: dict[str, Any], workers: int) -> EngineFace:
    return EngineFace(folder, options, workers)
