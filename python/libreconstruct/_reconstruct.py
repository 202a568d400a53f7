"""The short way from a video to a scene."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

from . import _native
from ._files import PathLike
from ._progress import Bar, Progress, ProgressOption, listener
from ._scene import Scene, load_reconstruction
from ._sfm import checked_method


def reconstruct(
    video: PathLike,
    output: PathLike | None = None,
    *,
    quality: Literal["preview", "standard", "high"] = "standard",
    progress: ProgressOption = True,
    **options: Any,
) -> Scene:
    """Makes a scene of a video, or of a folder of pictures and videos, in this process.

    `output`: a folder for everything that comes out (`scene.ply`, `scene.spz`, `sparse/`, `preview.jpg`, `report.json`, …).
    Interrupted, the same call goes on where it was. Where it has a `frames/`, `sparse/` or `undistorted/` that no run has left,
    it is an error, and they stay. Without it the scene is in memory only.

    `quality`: `preview` is a small scene in minutes, also without a GPU; `standard` and `high` are work for a GPU.

    `options` replace single values of the preset, with the names of the service: `training_num_steps`,
    `training_max_num_gaussians`, `reconstruction_method`, `max_frames`, `max_resolution`, `training_max_resolution`,
    `sh_degree`, `test_every`, `seed`, `device`, `turntable`, `title`, `camera_type`, `apriltag_size_mm`, `require_scale`,
    `strict`, `rolling_shutter_ms` (absent: estimated from a video where it matters; 0: none), `focal` (the focal length in
    pixels of the frames, if known; of several cameras, of the one that made most; it is refined), `remove_background`,
    `mask_model` (a file), `mask_dir` (a folder of masks, white where the object is), `object_at` (where the object is in one
    frame: "X,Y" in pixels of the first one, or "X,Y,FRAME" with a frame's name or number), `keep_floor` (a disc of the ground to
    keep under the object, so many times as wide as the object), `time_budget_seconds`, `projection` (`flat` or `equirectangular`,
    360° video; absent: as the file says), `clean` (false: Gaussians in free space stay where they are).

    `apriltag_size_mm` is the edge of the inner white square of the AprilTags (tagStandard41h12) in the scene, 5/9 of the
    printed width: the scene is then in metres. Where the tags give no scale it warns, or, with `require_scale`, fails.

    `time_budget_seconds` is the time for all of it: training makes fewer steps with fewer Gaussians on smaller pictures if this
    machine would take longer, and `scene.report` says what was left.

    `strict` fails where the camera poses are doubtful (`poses_doubtful` in the report's warnings), before training.

    The scene knows its cameras (`scene.model`) and figures (`scene.report`). Ctrl-C stops within seconds.
    """
    if output is None:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="libreconstruct-") as folder:
            # What only the folder would hold need not be made.
            return _run(video, Path(folder), quality, progress, {"turntable": False, **options})
    return _run(video, Path(output), quality, progress, options)


def _run(video: PathLike, folder: Path, quality: str, progress: ProgressOption, options: dict[str, Any]) -> Scene:
    # Who names a number of frames means it.
    exactly = {"more_frames": False} if options.get("max_frames") is not None else {}
    request = {**json.loads(_native.preset(quality)), **exactly, **options}
    if "reconstruction_method" in options:
        request["reconstruction_method"] = checked_method(options["reconstruction_method"])
    with Bar(progress, Path(video).name) as bar:
        _native.reconstruct(Path(video), folder, json.dumps(request, default=os.fspath), listener(bar, pipeline=True))
        bar.update(Progress(1.0, "export", "finished"))
    return load_reconstruction(folder)


def devices() -> list[dict[str, Any]]:
    """The graphics adapters of this machine: `name`, `backend`, `kind`, whether one is `usable`, and the `reason` if not."""
    found: list[dict[str, Any]] = json.loads(_native.devices())
    return found
