"""Gaussian scenes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _html, _native
from ._camera import Camera, Movable, Similarity, resized, view_tuple
from ._errors import from_kind, need, whole
from ._files import PathLike, write_whole
from ._model import SparseModel
from ._progress import Bar, ProgressOption, listener

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

SH_C0 = 0.28209479177387814
"""Value of the constant spherical harmonic: colour = 0.5 + SH_C0 * sh[:, 0]."""


class Scene(Movable):
    """A Gaussian scene: n splats in the world frame of the reconstruction (x right, y down, z forward). It does not change.

    The arrays are views of the engine's memory, read-only, and hold what the `.ply` file holds: logarithms of the scales and
    logits of the opacities. `standard_deviations`, `alphas` and `colors` are computed from them.
    """

    def __init__(
        self,
        native: _native.Splats,
        *,
        model: SparseModel | None = None,
        view: Camera | None = None,
        report: Mapping[str, Any] | None = None,
    ):
        self._native = native
        self.model: SparseModel | None = model
        """The cameras that filmed the scene, if they are known: `turntable()` follows them."""
        self._view = view
        self.report: Mapping[str, Any] | None = report
        """Every figure of the reconstruction, if it was made by `reconstruct`."""

    @classmethod
    def load(cls, path: PathLike) -> Scene:
        """Reads a `.ply` (plain or packed), `.spz`, `.glb` or `.sog` file, or the folder of a reconstruction with all that belongs to it."""
        path = Path(path)
        if path.is_dir():
            return load_reconstruction(path)
        return cls(_native.Splats.read(path))

    @classmethod
    def from_arrays(
        cls,
        means: npt.ArrayLike,
        scales: npt.ArrayLike,
        rotations: npt.ArrayLike,
        opacities: npt.ArrayLike,
        sh: npt.ArrayLike,
        *,
        antialiased: bool = False,
    ) -> Scene:
        """A scene of copies of these arrays, whose meaning and shapes are those of the properties of the same names."""
        import numpy as np

        def array(name: str, values: npt.ArrayLike, *shape: int) -> Floats:
            value: Floats = np.ascontiguousarray(values, dtype="<f4")
            if value.shape != (n, *shape):
                raise from_kind("invalid_argument", f"{name} has the shape {value.shape}, not {(n, *shape)}")
            return value

        n = len(np.asarray(means))
        k = np.asarray(sh).shape[1] if np.ndim(sh) == 3 else 0
        degree = math.isqrt(k) - 1
        if degree not in range(4) or (degree + 1) ** 2 != k:
            raise from_kind("invalid_argument", f"sh has the shape {np.shape(sh)}, not ({n}, k, 3) with k of 1, 4, 9, 16")
        native = _native.Splats.from_bytes(
            array("means", means, 3).tobytes(),
            array("scales", scales, 3).tobytes(),
            array("rotations", rotations, 4).tobytes(),
            array("opacities", np.reshape(opacities, -1)).tobytes(),
            array("sh", sh, k, 3).tobytes(),
            degree,
            antialiased,
        )
        return cls(native)

    def save(self, path: PathLike, *, spz_version: int = 3) -> Path:
        """Writes a `.ply`, `.spz`, `.glb` or `.sog` file, as the name says, whole or not at all. Returns the path.

        Splats in a `.sog` file are in another order.
        """
        path = Path(path)
        self._native.write(path, whole("spz_version", spz_version))
        return path

    def __len__(self) -> int:
        """Number of splats."""
        return len(self._native)

    @property
    def sh_degree(self) -> int:
        """Degree of the spherical harmonics, 0 to 3."""
        return self._native.sh_degree

    @property
    def antialiased(self) -> bool:
        """Whether it was trained with the anti-aliasing filter and must be rendered with it."""
        return self._native.antialiased

    @property
    def means(self) -> Floats:
        """Centres, world units, (n, 3)."""
        return _view(self._native.means)

    @property
    def scales(self) -> Floats:
        """Natural logarithms of the standard deviations along the axes, (n, 3)."""
        return _view(self._native.log_scales)

    @property
    def rotations(self) -> Floats:
        """Quaternions w, x, y, z, splat-to-world, not necessarily of unit length, (n, 4)."""
        return _view(self._native.rotations)

    @property
    def opacities(self) -> Floats:
        """Logits of the opacities, (n,)."""
        return _view(self._native.opacities)

    @property
    def sh(self) -> Floats:
        """Spherical harmonics, (n, (degree + 1)², 3), the constant one first; basis and signs of the original `.ply`."""
        return _view(self._native.sh)

    @property
    def standard_deviations(self) -> Floats:
        """Sizes along the axes, world units, (n, 3); computed."""
        import numpy as np

        return np.exp(self.scales)

    @property
    def alphas(self) -> Floats:
        """Opacities, 0 to 1, (n,); computed."""
        import numpy as np

        with np.errstate(over="ignore"):
            return np.asarray(1 / (1 + np.exp(-self.opacities)), dtype=np.float32)

    @property
    def colors(self) -> Floats:
        """Mean colours, sRGB, about 0 to 1, (n, 3); computed."""
        import numpy as np

        return np.asarray(0.5 + SH_C0 * self.sh[:, 0], dtype=np.float32)

    def replace(self, **arrays: npt.ArrayLike) -> Scene:
        """A copy with other `means`, `scales`, `rotations`, `opacities` or `sh`."""
        names = ("means", "scales", "rotations", "opacities", "sh")
        if unknown := arrays.keys() - set(names):
            raise TypeError(f"replace() knows {', '.join(names)}, not {', '.join(sorted(unknown))}")
        now: dict[str, Any] = {name: arrays.get(name, getattr(self, name)) for name in names}
        return self._like(Scene.from_arrays(**now, antialiased=self.antialiased)._native)

    def filter(self, mask: npt.ArrayLike) -> Scene:
        """The splats for which `mask`, booleans (n,), is true, in their order."""
        import numpy as np

        chosen = np.asarray(mask)
        if chosen.dtype != np.bool_ or chosen.shape != (len(self),):
            raise from_kind("invalid_argument", f"a mask is {len(self)} booleans, not {chosen.dtype} {chosen.shape}")
        return self._like(self._native.select(chosen.tobytes()))

    def crop(self, low: npt.ArrayLike, high: npt.ArrayLike) -> Scene:
        """The splats whose centres lie in the box from `low` to `high` (both (3,), both included)."""
        import numpy as np

        return self.filter(((self.means >= np.asarray(low)) & (self.means <= np.asarray(high))).all(axis=1))

    def _moved(self, motion: Similarity) -> Scene:
        model = self.model and self.model._moved(motion)
        view = self._view and SparseModel.from_cameras([self._view])._moved(motion).camera(0)
        return Scene(self._native.transform(motion), model=model, view=view, report=self.report)

    def _like(self, native: _native.Splats) -> Scene:
        return Scene(native, model=self.model, view=self._view, report=self.report)

    @property
    def bounds(self) -> tuple[npt.NDArray[np.float64], float]:
        """Where most of the scene is: its middle (3,) and the radius of a ball that holds 9 in 10 centres."""
        import numpy as np

        if len(self) == 0:
            return np.zeros(3), 1.0
        middle = np.median(self.means, axis=0).astype(np.float64)
        radius = float(np.quantile(np.linalg.norm(self.means - middle, axis=1), 0.9))
        return middle, radius if radius > 0 else 1.0

    def view(self, *, width: int = 640, height: int = 480) -> Camera:
        """A good place to look from, in a picture of this size: where a viewer starts, else from the front."""
        if self._view is not None:
            return resized(self._view, width, height)
        middle, radius = self.bounds
        return Camera.look_at(middle + [0.0, -0.6 * radius, -2.4 * radius], middle, width=width, height=height)

    def render(
        self,
        camera: Camera | None = None,
        *,
        background: tuple[float, float, float] = (0.0, 0.0, 0.0),
        alpha: bool = False,
        as_float: bool = False,
        device: str = "auto",
    ) -> npt.NDArray[Any]:
        """What a camera sees, (height, width, 3); with `alpha` (height, width, 4). Without a camera from `view()`.

        uint8, or float32 as it was rendered, not clamped to 0 to 1, with `as_float`. Device: `auto`, `cpu`, `gpu` or part of
        the name of a graphics adapter.
        """
        import numpy as np

        camera = self.view() if camera is None else camera
        r, g, b = (float(v) for v in background)
        picture = np.asarray(self._native.render(view_tuple(camera), [r, g, b], device, as_float))
        return picture if alpha else picture[:, :, :3]

    def turntable(
        self,
        path: PathLike | None = None,
        *,
        frames: int = 120,
        frame_rate: float = 30.0,
        max_side: int = 480,
        background: tuple[float, float, float] = (0.0, 0.0, 0.0),
        device: str = "auto",
        progress: ProgressOption = False,
    ) -> Video:
        """A film around the scene (H.264, needs ffmpeg), which notebooks show inline; also written to `path` if given.

        It follows the cameras that filmed the scene, where they are known (`model`), else goes around its middle.
        """
        import tempfile

        frames, max_side = whole("frames", frames), whole("max_side", max_side)
        model = self.model if self.model is not None else self._orbit(max_side)
        r, g, b = (float(v) for v in background)
        with tempfile.TemporaryDirectory() as folder, Bar(progress, "turntable") as bar:
            file = Path(folder) / "turntable.mp4"
            hear = listener(bar)
            self._native.turntable(model._native, file, frames, frame_rate, max_side, [r, g, b], device, hear)
            video = Video(file.read_bytes())
        if path is not None:
            video.save(path)
        return video

    def _orbit(self, side: int) -> SparseModel:
        middle, radius = self.bounds
        width, height = side, max(2, side * 3 // 4)
        turns = [2 * math.pi * k / 36 for k in range(36)]
        around = [(2.4 * radius * math.sin(turn), -0.6 * radius, -2.4 * radius * math.cos(turn)) for turn in turns]
        return SparseModel.from_cameras([Camera.look_at(middle + p, middle, width=width, height=height) for p in around])

    # Other tools' shapes.

    def to_gsplat(self) -> dict[str, Floats]:
        """What gsplat's training scripts hold: `means`, `scales` (logarithms), `quats`, `opacities` (logits), `sh0`, `shN`.

        Views of this scene where possible; `torch.tensor(value)` of each makes a `ParameterDict`.
        """
        sh = self.sh
        return {
            "means": self.means,
            "scales": self.scales,
            "quats": self.rotations,
            "opacities": self.opacities,
            "sh0": sh[:, :1],
            "shN": sh[:, 1:],
        }

    @classmethod
    def from_gsplat(cls, splats: Mapping[str, Any]) -> Scene:
        """The scene of such a dictionary, of torch tensors on any device or of arrays."""
        import numpy as np

        def array(name: str) -> npt.NDArray[Any]:
            value = splats[name]
            return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)

        sh = np.concatenate([array("sh0"), array("shN")], axis=1)
        return cls.from_arrays(array("means"), array("scales"), array("quats"), array("opacities"), sh)

    def to_open3d(self) -> Any:
        """Centres and mean colours as an `open3d.geometry.PointCloud`."""
        import numpy as np

        o3d = need("open3d", "to_open3d()")
        cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(self.means.astype(np.float64)))
        cloud.colors = o3d.utility.Vector3dVector(np.clip(self.colors, 0, 1).astype(np.float64))
        return cloud

    @classmethod
    def from_open3d(cls, cloud: Any, *, alpha: float = 0.9) -> Scene:
        """Round splats of a point cloud, as large as the distance to the nearest neighbours; grey where it has no colours."""
        import numpy as np

        points = np.asarray(cloud.points)
        colors = np.asarray(cloud.colors) if cloud.has_colors() else np.full_like(points, 0.5)
        distances = np.asarray(cloud.compute_nearest_neighbor_distance())
        n, usual = len(points), float(np.median(distances)) if len(distances) else 1.0
        scales = np.log(np.clip(distances, 1e-3 * usual or 1e-6, None) / 2)[:, None].repeat(3, axis=1)
        rotations = np.tile([1.0, 0, 0, 0], (n, 1))
        opacities = np.full(n, math.log(alpha / (1 - alpha)))
        return cls.from_arrays(points, scales, rotations, opacities, ((colors - 0.5) / SH_C0)[:, None])

    def __repr__(self) -> str:
        return f"Scene({len(self):,} splats, sh_degree {self.sh_degree})"

    def _repr_png_(self) -> bytes | None:
        if len(self) == 0:
            return None
        picture = self.render(self.view(width=480, height=360))
        return _native.encode_png(picture.tobytes(), picture.shape[1], picture.shape[0], 3)

    def _repr_html_(self) -> str:
        facts: dict[str, object] = {"splats": f"{len(self):,}", "colours": f"degree {self.sh_degree}"}
        if self.model is not None:
            facts["cameras"] = len(self.model)
        if self.report is not None:
            facts["title"] = self.report["title"]
        png = self._repr_png_()
        return _html.card("Gaussian scene", facts, _html.data_uri(png, "image/png") if png else None)

    def __reduce__(self) -> tuple[Any, ...]:
        fields = [array.tobytes() for array in (self.means, self.scales, self.rotations, self.opacities, self.sh)]
        known = {"model": self.model, "_view": self._view, "report": self.report}
        return _unpickle, (*fields, self.sh_degree, self.antialiased), known


class Video:
    """A film in memory (MP4, H.264)."""

    def __init__(self, content: bytes):
        self.content = content

    def save(self, path: PathLike) -> Path:
        """Writes the file; returns its path."""
        return write_whole(path, [self.content])

    def _repr_html_(self) -> str:
        return f'<video src="{_html.data_uri(self.content, "video/mp4")}" controls autoplay loop muted></video>'

    def __repr__(self) -> str:
        return f"Video({len(self.content):,} bytes)"


def _view(array: _native.Array) -> Floats:
    import numpy as np

    return np.asarray(array)


def _unpickle(*fields: Any) -> Scene:
    return Scene(_native.Splats.from_bytes(*fields))


def load_reconstruction(folder: Path) -> Scene:
    """The scene in the folder of a reconstruction, with its cameras, report and first view."""
    import json

    report_file = folder / "report.json"
    report = json.loads(report_file.read_bytes()) if report_file.exists() else None
    models = (m for m in (folder / "undistorted" / "sparse", folder / "sparse") if m.is_dir())
    model = next((SparseModel.load(m) for m in models), None)
    view = None
    if report is not None:
        view = Camera.from_camera_data(report["export"]["camera_data"])
    return Scene(_native.Splats.read(folder / "scene.ply"), model=model, view=view, report=report)

