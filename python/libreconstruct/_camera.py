"""A pinhole camera somewhere in the world."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native
from ._errors import from_kind, whole

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Self

ViewTuple = tuple[Sequence[Sequence[float]], int, int, float, float, float, float]
"""A camera as the extension module takes it: world-to-camera, width, height, fx, fy, cx, cy."""

Matrix = tuple[tuple[float, ...], ...]
"""Rows of numbers."""


class Camera(NamedTuple):
    """Where a picture is taken from, and through which pinhole.

    Axes are COLMAP's and OpenCV's: x right, y down, z forward. Lengths in pixels; the centre of the top-left pixel is at
    (0.5, 0.5).
    """

    width: int
    """Pixels, 1 to 16384."""
    height: int
    """Pixels, 1 to 16384."""
    fx: float
    """Focal length along x."""
    fy: float
    """Focal length along y."""
    cx: float
    """Principal point."""
    cy: float
    """Principal point."""
    world_to_camera: Matrix
    """Four rows of four: `x_camera = R x_world + t`, a rigid motion."""

    @classmethod
    def look_at(
        cls,
        position: Iterable[float],
        target: Iterable[float],
        up: Iterable[float] = (0.0, -1.0, 0.0),
        *,
        width: int = 640,
        height: int = 480,
        fov: float = 60.0,
    ) -> Camera:
        """The camera at `position` that looks at `target`; `fov` is the angle of view along the longer side, 1 to 179 degrees.

        Reconstructed scenes are levelled with y down, so up is (0, -1, 0) in them.
        """
        if not 1.0 <= fov <= 179.0:
            raise from_kind("invalid_argument", f"fov is {fov}: 1 to 179 degrees are allowed")
        pose = _native.look_at(_vector(position), _vector(target), _vector(up))
        focal = 0.5 * max(width, height) / math.tan(math.radians(fov) / 2)
        return cls(width, height, focal, focal, width / 2, height / 2, tuple(tuple(row) for row in pose))

    @classmethod
    def from_camera_data(cls, data: Mapping[str, Any], *, width: int = 640, height: int = 480, fov: float = 60.0) -> Camera:
        """The view of a job's `camera_data`."""
        position, target, up = ([data[name][axis] for axis in "xyz"] for name in ("position", "lookAt", "up"))
        return cls.look_at(position, target, up, width=width, height=height, fov=fov)

    @property
    def center(self) -> npt.NDArray[np.float64]:
        """Where the camera is, world coordinates, (3,)."""
        import numpy as np

        pose = np.asarray(self.world_to_camera)
        return np.asarray(-pose[:3, :3].T @ pose[:3, 3])

    @property
    def intrinsics(self) -> npt.NDArray[np.float64]:
        """The matrix K, (3, 3)."""
        import numpy as np

        return np.array([[self.fx, 0, self.cx], [0, self.fy, self.cy], [0, 0, 1.0]])

    def project(self, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Pixels of world points: (n, 3) to (n, 2). Not a number where a point is not in front of the camera."""
        import numpy as np

        pose = np.asarray(self.world_to_camera)
        local = np.asarray(points, dtype=np.float64).reshape(-1, 3) @ pose[:3, :3].T + pose[:3, 3]
        z = np.where(local[:, 2] > 0, local[:, 2], np.nan)
        return np.stack([self.fx * local[:, 0] / z + self.cx, self.fy * local[:, 1] / z + self.cy], axis=1)

    def scaled(self, max_side: int) -> Camera:
        """The same view in a smaller picture, if its longer side has more than `max_side` pixels."""
        k = max_side / max(self.width, self.height)
        if k >= 1:
            return self
        width, height = max(1, round(self.width * k)), max(1, round(self.height * k))
        x, y = width / self.width, height / self.height
        return self._replace(width=width, height=height, fx=self.fx * x, fy=self.fy * y, cx=self.cx * x, cy=self.cy * y)


def resized(camera: Camera, width: int, height: int) -> Camera:
    """What is seen from the same place in a picture of another size, with the same angle of view along the longer side.

    Where the sides are to each other as before that is the same view; else there is more or less of it along the shorter side.
    """
    k = max(width, height) / max(camera.width, camera.height)
    longer = k * (camera.fx if camera.width >= camera.height else camera.fy)
    # Pixels stay as wide for their height as they were, also where a picture that lies becomes one that stands.
    shape = camera.fy / camera.fx
    fx, fy = (longer, longer * shape) if width >= height else (longer / shape, longer)
    # The principal point keeps its way from the middle.
    x, y = camera.cx - camera.width / 2, camera.cy - camera.height / 2
    return camera._replace(width=width, height=height, fx=fx, fy=fy, cx=width / 2 + k * x, cy=height / 2 + k * y)


def view_tuple(camera: Camera) -> ViewTuple:
    """The camera as the extension module takes it."""
    pose = [[float(v) for v in row] for row in camera.world_to_camera]
    width, height = whole("width", int(camera.width)), whole("height", int(camera.height))
    return pose, width, height, float(camera.fx), float(camera.fy), float(camera.cx), float(camera.cy)


def from_view_tuple(view: ViewTuple) -> Camera:
    pose, width, height, fx, fy, cx, cy = view
    return Camera(width, height, fx, fy, cx, cy, tuple(tuple(row) for row in pose))


def _vector(values: Iterable[float]) -> list[float]:
    return [float(v) for v in values]


Similarity = tuple[float, list[float], list[float]]
"""A motion as the extension module takes it: scale, rotation (w, x, y, z) and translation."""


class Movable(ABC):
    """What can be moved in the world."""

    def transform(
        self,
        matrix: npt.ArrayLike | None = None,
        *,
        scale: float = 1.0,
        rotation: npt.ArrayLike | None = None,
        translation: npt.ArrayLike | None = None,
    ) -> Self:
        """The same in a moved world, `x' = scale * rotation @ x + translation`: what every camera sees stays.

        Either a (4, 4) similarity, or its parts (rotation: (3, 3) or a quaternion w, x, y, z). All that belongs to it is
        moved along: colours by direction, known cameras.
        """
        return self._moved(_similarity(matrix, scale, rotation, translation))

    @abstractmethod
    def _moved(self, motion: Similarity) -> Self: ...


def _similarity(
    matrix: npt.ArrayLike | None, scale: float, rotation: npt.ArrayLike | None, translation: npt.ArrayLike | None
) -> Similarity:
    """From a (4, 4) matrix or from parts."""
    import numpy as np

    if matrix is not None:
        if scale != 1.0 or rotation is not None or translation is not None:
            raise from_kind("invalid_argument", "give either a matrix or scale, rotation and translation")
        m = np.asarray(matrix, dtype=np.float64)
        if m.shape != (4, 4) or not np.isfinite(m).all() or not np.array_equal(m[3], [0, 0, 0, 1]):
            raise from_kind("invalid_argument", f"a similarity is a finite (4, 4) matrix with 0 0 0 1 below, not\n{m}")
        scale = float(np.cbrt(np.linalg.det(m[:3, :3])))
        rotation, translation = m[:3, :3] / scale if scale > 0 else m[:3, :3], m[:3, 3]
    turn = np.eye(3) if rotation is None else np.asarray(rotation, dtype=np.float64)
    shift = np.zeros(3) if translation is None else np.asarray(translation, dtype=np.float64).reshape(3)
    quaternion = [float(v) for v in turn] if turn.shape == (4,) else _quaternion(turn)
    return float(scale), quaternion, [float(v) for v in shift]


def _quaternion(r: npt.NDArray[np.float64]) -> list[float]:
    import numpy as np

    if r.shape != (3, 3) or not np.allclose(r @ r.T, np.eye(3), atol=1e-6) or np.linalg.det(r) < 0:
        raise from_kind("invalid_argument", f"a rotation is a (3, 3) orthonormal matrix or a quaternion w, x, y, z, not\n{r}")
    # The eigenvector to the largest eigenvalue of Bar-Itzhack's matrix: no case is special.
    k = np.array(
        [
            [r[0, 0] + r[1, 1] + r[2, 2], r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]],
            [r[2, 1] - r[1, 2], r[0, 0] - r[1, 1] - r[2, 2], r[1, 0] + r[0, 1], r[0, 2] + r[2, 0]],
            [r[0, 2] - r[2, 0], r[1, 0] + r[0, 1], r[1, 1] - r[0, 0] - r[2, 2], r[2, 1] + r[1, 2]],
            [r[1, 0] - r[0, 1], r[0, 2] + r[2, 0], r[2, 1] + r[1, 2], r[2, 2] - r[0, 0] - r[1, 1]],
        ]
    )
    _, vectors = np.linalg.eigh(k)
    return [float(v) for v in vectors[:, -1]]
