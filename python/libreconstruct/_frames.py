"""Key frames: what structure from motion looks at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

from . import _html, _native
from ._files import PathLike
from ._progress import Bar, ProgressOption, listener


class Frame(NamedTuple):
    """One key frame."""

    name: str
    """Its file in the folder."""
    number: int
    """Zero-based number in the video, or in the list of pictures."""
    timestamp: float | None
    """Seconds from the start of the video; `None` for pictures."""
    width: int
    height: int
    sharpness: float
    """Relative to the frames around it; 1 is usual, larger is sharper."""
    side: Literal["front", "right", "back", "left", "up", "down"] | None = None
    """Which side of a panorama it is; `None` for an ordinary picture. Those with the same `number` were taken at one place."""
    camera: int = 0
    """Which camera made it: 0 is the one that made most. Pictures with one number have one size and one lens."""


_IN_JSON = {"number": "index"}
"""What fields are called in `frames.json`, where they have another name: tuples have a method `index`."""


def _frame(described: Any) -> Frame:
    # What is not said has its default.
    defaults: Any = Frame._field_defaults
    return Frame(*(described.get(_IN_JSON.get(name, name), defaults.get(name)) for name in Frame._fields))


class Frames(Sequence[Frame]):
    """Key frames in a folder, in the order of time (of their names, for pictures)."""

    def __init__(self, folder: PathLike, description: dict[str, Any]):
        self.folder: Path = Path(folder)
        """Where the pictures are."""
        self.source: dict[str, Any] = description["source"]
        """Where they come from: `kind` `video`, with what is known of it (`codec`, `width`, `duration`, …), or `images`."""
        self.total: int = description["total"]
        """How many pictures the source has."""
        self.warnings: list[dict[str, Any]] = description["warnings"]
        """What there is to know about them: `code` and `message`."""
        self._frames = [_frame(described) for described in description["frames"]]

    @classmethod
    def load(cls, folder: PathLike) -> Frames:
        """Those that `extract_frames` has left in a folder."""
        return cls(folder, json.loads(_native.load_frames(folder)))

    def __len__(self) -> int:
        return len(self._frames)

    @overload
    def __getitem__(self, place: int) -> Frame: ...
    @overload
    def __getitem__(self, place: slice) -> list[Frame]: ...
    def __getitem__(self, place: int | slice) -> Frame | list[Frame]:
        return self._frames[place]

    @property
    def paths(self) -> list[Path]:
        """The files of the pictures."""
        return [self.folder / frame.name for frame in self._frames]

    def _sheet(self) -> bytes | None:
        # A run keeps the contact sheet beside the folder of the frames.
        for place in (self.folder / "frames.jpg", self.folder.parent / "frames.jpg"):
            if place.is_file():
                return place.read_bytes()
        return None

    def __repr__(self) -> str:
        return f"Frames({len(self)} of {self.total} in {str(self.folder)!r})"

    def _repr_png_(self) -> bytes | None:
        sheet = self._sheet()
        return None if sheet is None else _native.jpeg_to_png(sheet)

    def _repr_html_(self) -> str:
        facts = {"frames": f"{len(self)} of {self.total}", "folder": self.folder}
        if self._frames:
            facts["size"] = f"{self._frames[0].width} x {self._frames[0].height}"
        sheet = self._sheet()
        return _html.card("Frames", facts, None if sheet is None else _html.data_uri(sheet, "image/jpeg"))


def frame_options(max_frames: int | None, max_resolution: int, projection: str | None) -> str:
    """What to take from a video, as the native module reads it."""
    named = {"more_frames": True} if max_frames is None else {"max_frames": max_frames}
    return json.dumps({"max_resolution": max_resolution, "projection": projection, **named})


def extract_frames(
    video: PathLike,
    output: PathLike,
    *,
    max_frames: int | None = None,
    max_resolution: int = 1600,
    projection: Literal["flat", "equirectangular"] | None = None,
    progress: ProgressOption = True,
) -> Frames:
    """Chooses sharp key frames of a video, at equal motion rather than equal time, and writes them into a folder.

    In a folder of pictures may be videos, too: of each come frames in proportion to how long it lasts, named after it, and it is a
    camera of its own. Of the pictures all are taken as long as they are not more than `max_frames` (3 to 5000; absent: 150, of a
    video up to 450 where neighbouring frames would share too little). Those of one size, and of one
    focal length in their EXIF data, are by one camera; of a camera that made fewer than three they are left out, with the warning
    `other_cameras`. Frames are JPEG of at most `max_resolution` pixels (64 to 8192) on the long side. The folder gets a contact sheet, `frames.jpg`, as
    well. Frames of an earlier run in it are replaced; where it has other pictures that are called so, it is an error, and they stay.

    `projection`: how the pictures of a video show directions; absent, as the file says, or as its pictures look where it says
    nothing. Of a 360° video (`equirectangular`) a third as many panoramas are chosen, and each becomes six frames, its sides.
    """
    options = frame_options(max_frames, max_resolution, projection)
    with Bar(progress, Path(video).name) as bar:
        description = _native.extract_frames(video, output, options, listener(bar))
    return Frames(output, json.loads(description))
