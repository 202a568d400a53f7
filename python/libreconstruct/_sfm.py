"""Camera poses by themselves: structure from motion."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

from . import _native
from ._errors import from_kind
from ._files import PathLike
from ._frames import Frames, frame_options
from ._model import SparseModel
from ._progress import Bar, ProgressOption, listener

_MAPPERS = {"glomap": "global", "colmap": "incremental"}


def checked_method(name: str) -> str:
    """`glomap` or `colmap`, which may be given in any case."""
    lower = str(name).lower()
    if lower not in _MAPPERS:
        raise from_kind("invalid_argument", f"reconstruction_method is {name!r}: {' and '.join(_MAPPERS)} are known")
    return lower


def sfm(
    frames: Frames | PathLike,
    output: PathLike | None = None,
    *,
    reconstruction_method: Literal["glomap", "colmap"] = "glomap",
    max_frames: int | None = None,
    max_resolution: int = 1600,
    projection: Literal["flat", "equirectangular"] | None = None,
    camera_model: Literal[
        "SIMPLE_PINHOLE",
        "PINHOLE",
        "SIMPLE_RADIAL",
        "RADIAL",
        "OPENCV",
        "SIMPLE_RADIAL_FISHEYE",
        "RADIAL_FISHEYE",
        "OPENCV_FISHEYE",
    ] = "SIMPLE_RADIAL",
    focal: float | None = None,
    apriltag_size_mm: float | None = None,
    require_scale: bool = False,
    strict: bool = False,
    keep_broken: bool = False,
    rolling_shutter_ms: float | None = None,
    remove_background: bool = False,
    mask_model: PathLike | None = None,
    mask_dir: PathLike | None = None,
    object_at: str | None = None,
    keep_floor: float | None = None,
    add_to: PathLike | None = None,
    seed: int = 0,
    progress: ProgressOption = True,
) -> SparseModel:
    """Finds where the camera was: poses, lenses and points of frames, a video, or a folder of pictures and videos.

    ```python
    model = sfm("kitchen.mp4")
    print(model, model.report["verdict"]["grade"])
    pixels = model.plot()               # cameras coloured by how doubtful their poses are
    ```

    `output`: a folder for COLMAP's files of the model (`sparse/`), the undistorted pictures with theirs (`undistorted/`, what
    `Trainer` takes) and `poses.jpg`, as `reconstruct sfm` writes them. Where it has a `frames/`, `sparse/` or `undistorted/` that no
    run has left and this one would write anew, it is an error, and they stay. Without it the model is in memory only.

    `max_frames`, `max_resolution`, `projection`: as for `extract_frames`, where frames have yet to be chosen.

    `camera_model`: the kind of lens; SIMPLE_RADIAL becomes RADIAL, or a fisheye, where the capture asks for it.
    `focal`: its focal length in pixels of the frames, if known (of several cameras, of the one that made most); it is refined.

    `strict` fails where the poses are doubtful. A model that is broken fails in any case, but for `keep_broken`, for who wants
    to look at it. `rolling_shutter_ms`: 0 to 100, from the first line of a picture to the last one; absent, that of a video is
    estimated where it matters.

    `add_to`: the folder of an earlier result, with its `frames/` and `sparse/`. `frames`, a further video or folder of pictures of
    the same scene, is added to that model, whose world stays as it is.

    The other options are those of `reconstruct`. `remove_background` needs an `output`: `undistorted/masks/` comes along.

    The model has the figures in `report` and, where the capture shows places that share nothing, the others in `components`.
    """
    given = frames.folder if isinstance(frames, Frames) else frames
    options: dict[str, Any] = {
        "method": _MAPPERS[checked_method(reconstruction_method)],
        "camera_model": camera_model,
        "focal": focal,
        "apriltag_size_mm": apriltag_size_mm,
        "require_scale": require_scale,
        "strict": strict,
        "keep_broken": keep_broken,
        "rolling_shutter_ms": rolling_shutter_ms,
        "seed": seed,
    }
    # A folder of masks needs no network.
    wanted = remove_background or mask_dir or object_at or keep_floor is not None
    masks = (None if mask_dir else mask_model, mask_dir, object_at, keep_floor) if wanted else None
    of_video = frame_options(max_frames, max_resolution, projection)
    with Bar(progress, Path(os.fspath(given)).name) as bar:
        model, others, report = _native.sfm(given, output, of_video, json.dumps(options), masks, add_to, listener(bar))
    return SparseModel(model, report=json.loads(report), components=tuple(map(SparseModel, others)))
