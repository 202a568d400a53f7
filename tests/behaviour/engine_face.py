"""The face of Python's `Engine`: the service in this process."""

from pathlib import Path
from typing import Any

import libreconstruct

from rest import postgres

from .python_face import PythonFace


class EngineFace(PythonFace):
    def __init__(self, place: dict[str, Any], options: dict[str, Any], workers: int, user: str = "alice"):
        super().__init__(libreconstruct.Engine(user=user, workers=workers, settings=options, **place))
        self._open = place, options

    def other(self) -> "EngineFace":
        return EngineFace(*self._open, 0, "bob")


def open_face(folder: Path, options: dict[str, Any], workers: int) -> EngineFace:
    place: dict[str, Any] = {"path": folder}
    if postgres.IS_ASKED_FOR:
        shared = postgres.settings(folder)
        place = {"path": shared["database"], "storage": shared["storage"], "scratch": folder}
    return EngineFace(place, options, workers)
