"""Training as an iterator."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import _html, _native
from ._camera import Camera, from_view_tuple, view_tuple
from ._errors import from_kind, whole
from ._files import PathLike
from ._model import SparseModel
from ._progress import Bar, Progress, ProgressOption, ReconstructionWarning, listener
from ._scene import Scene

if TYPE_CHECKING:
    import numpy.typing as npt


class TrainStep(NamedTuple):
    """What the last step of a run found out."""

    step: int
    total: int
    """Steps of the whole run; with `time_budget_seconds` it changes on the way."""
    loss: float
    """L1 and SSIM of the picture of this step; not a number before the first."""
    l1: float
    ssim: float
    splats: int
    """Number of Gaussians."""

    @property
    def fraction(self) -> float:
        return self.step / self.total


class Trainer:
    """Fits Gaussians to undistorted pictures with known poses.

    ```python
    trainer = Trainer("kitchen/undistorted/sparse", "kitchen/undistorted/images", training_num_steps=2000)
    for step in trainer:
        print(step.step, step.loss)
    trainer.scene().save("kitchen.ply")
    ```

    The same pictures and options give the same scene bit for bit on one device, interrupted or not (but for
    `time_budget_seconds`, which goes by the speed of the machine).
    """

    def __init__(
        self,
        model: SparseModel | PathLike,
        images: PathLike,
        *,
        masks: PathLike | Literal[False] | None = None,
        training_num_steps: int = 25_000,
        training_max_num_gaussians: int = 1_000_000,
        sh_degree: int = 3,
        max_resolution: int | None = 1600,
        test_every: int | None = None,
        seed: int = 0,
        device: str = "auto",
        every: int = 10,
        checkpoint: PathLike | None = None,
        progress: ProgressOption = False,
        **more: Any,
    ):
        """Prepares a run.

        `model`: pinhole cameras (`SparseModel.undistort` makes them), or the folder of one. `images`: folder of the pictures.
        `masks`: folder of the object's masks (PNG, named as the pictures, white where the object is), with which only the object
        is trained. By default, where `images` is a folder named `images`, the `masks` beside it if they are there, as
        `sfm(..., remove_background=True)` leaves them; with `False` whole pictures are trained on all the same.
        `max_resolution`: long side of the training pictures at most. `test_every`: hold every n-th view back, for
        `evaluate()`. `every`: steps per iteration. `checkpoint`: a file; if it holds a run of the same pictures and options,
        that is continued; a file that is no checkpoint is an error, and stays. `more`: the other options of the engine, among
        them `tuning={...}`, `clean=False` (Gaussians in free space stay where they are) and `time_budget_seconds`: with that,
        there are fewer steps, fewer Gaussians and smaller pictures if this machine would take longer.
        """
        if not isinstance(model, SparseModel):
            model = SparseModel.load(model)
        if every < 1:
            raise from_kind("invalid_argument", f"every is {every}: at least 1 step is made per iteration")
        if "checkpoint_interval_seconds" in more:
            hint = "call save() where one is wanted; run() writes one at its end, and when it is interrupted"
            raise from_kind("invalid_argument", "checkpoint_interval_seconds: a Trainer writes no checkpoints by the clock", hint)
        options = {
            "training_num_steps": training_num_steps,
            "training_max_num_gaussians": training_max_num_gaussians,
            "sh_degree": sh_degree,
            "max_resolution": max_resolution,
            "test_every": test_every,
            "seed": seed,
            **more,
        }
        self._every = every
        self._model = model
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        with Bar(progress, "prepare") as bar:
            native = _native.Trainer(
                model._native, Path(images), _masks(Path(images), masks), json.dumps(options), device, self._checkpoint, listener(bar)
            )
        self._native = native
        self._told: set[str] = set()
        self._look(native.figures())

    def _look(self, figures: tuple[int, int, float, float, float, int]) -> TrainStep:
        """Takes the figures for the last ones, and tells once each of what the engine warns of."""
        self._last = TrainStep(*figures)
        for code, message in self._native.warnings():
            if code not in self._told:
                self._told.add(code)
                warnings.warn(message, ReconstructionWarning, stacklevel=3)
        return self._last

    @property
    def last(self) -> TrainStep:
        """The figures of the last step."""
        return self._last

    @property
    def device(self) -> str:
        """What it runs on, for people."""
        return self._native.device

    def step(self) -> TrainStep:
        """Makes the next `every` steps. Ctrl-C stops after the present one."""
        return self._look(self._native.advance(self._every))

    def __iter__(self) -> Iterator[TrainStep]:
        """From where the run is to its end; breaking off and going on later is fine."""
        while self._last.step < self._last.total:
            yield self.step()

    def run(self, *, progress: ProgressOption = False, preview: bool = False, preview_every: float = 5.0) -> Scene:
        """Makes all steps that are left and returns the scene. With `preview`, a notebook shows it growing.

        With a `checkpoint` file, the run is saved there at its end and when it is interrupted.
        """
        display, shown = _display() if preview else None, -math.inf
        try:
            with Bar(progress, "train") as bar:
                for step in self:
                    bar.update(Progress(step.fraction, "train", f"loss {step.loss:.4f}, {step.splats:,} splats"))
                    if display is not None and time.monotonic() - shown >= preview_every:
                        shown = time.monotonic()
                        display.update(self)
        except KeyboardInterrupt:
            self._save_checkpoint()
            raise
        self._save_checkpoint()
        if display is not None:
            display.update(self)
        return self.scene()

    def _save_checkpoint(self) -> None:
        if self._checkpoint is not None:
            self._native.save(self._checkpoint)

    def save(self, path: PathLike) -> None:
        """Writes a checkpoint, which `Trainer(..., checkpoint=path)` continues."""
        self._native.save(Path(path))

    def scene(self) -> Scene:
        """The scene as it is now; with masks, without what is beside the object."""
        return Scene(self._native.splats(), model=self._model)

    @property
    def views(self) -> list[tuple[str, bool]]:
        """Name of every view, and whether it is held out."""
        return self._native.views()

    def camera(self, view: int = 0, *, max_side: int = 640) -> Camera:
        """The camera of a view, by its place in `views`."""
        return from_view_tuple(self._native.view(whole("view", view), whole("max_side", max_side)))

    def preview(self, camera: Camera | None = None) -> npt.NDArray[Any]:
        """The scene as it is now, uint8, (height, width, 3); as the first view sees it unless a camera is given."""
        import numpy as np

        camera = self.camera() if camera is None else camera
        return np.asarray(self._native.render(view_tuple(camera), False))[:, :, :3]

    def evaluate(self) -> dict[str, Any]:
        """Scores of `scene()` on the views that are held out, at the size of the training pictures: mean `psnr` (dB) and `ssim`,
        `longest_side` of these pictures in pixels, and `views` one by one."""
        scores: dict[str, Any] = json.loads(self._native.evaluate())
        return scores

    def __repr__(self) -> str:
        return f"Trainer(step {self._last.step} of {self._last.total}, {self._last.splats:,} splats, {self.device})"

    def _repr_png_(self) -> bytes:
        picture = self.preview()
        return _native.encode_png(picture.tobytes(), picture.shape[1], picture.shape[0], 3)

    def _repr_html_(self) -> str:
        last = self._last
        facts = {"step": f"{last.step:,} of {last.total:,}", "loss": f"{last.loss:.4f}", "splats": f"{last.splats:,}"}
        return _html.card("Training", facts, _html.data_uri(self._repr_png_(), "image/png"), last.fraction)


def _masks(images: Path, given: PathLike | Literal[False] | None) -> Path | None:
    """The folder of the masks: what is given, else what `reconstruct train` takes in a dataset; none if they are refused."""
    if given is False:
        return None
    if given is not None:
        return Path(given)
    beside = images.parent / "masks"
    return beside if images.name == "images" and beside.is_dir() else None


def _display() -> Any:
    """A place in the notebook that can be drawn again; `None` outside of notebooks."""
    try:
        # IPython is typed in parts only.
        ipython: Any = import_module("IPython")
    except ImportError:
        return None
    return ipython.display.display(display_id=True) if ipython.get_ipython() is not None else None
