"""Sparse models: camera poses and points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _html, _native
from ._camera import Camera, Movable, Similarity
from ._errors import from_kind
from ._files import PathLike, write_whole
from ._progress import Bar, ProgressOption, listener

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


_FILES = ("cameras.bin", "images.bin", "points3D.bin")
"""COLMAP's files, which keep every bit of a model."""


class Lens(NamedTuple):
    """Intrinsics of a camera of a model, in COLMAP's parametrisation."""

    camera_id: int
    model: str
    """SIMPLE_PINHOLE, PINHOLE, SIMPLE_RADIAL, RADIAL, OPENCV, SIMPLE_RADIAL_FISHEYE, RADIAL_FISHEYE or OPENCV_FISHEYE."""
    width: int
    height: int
    params: tuple[float, ...]
    """In COLMAP's order; lengths in pixels."""


class SparseModel(Movable):
    """Cameras, the images whose poses are known, and points: what structure from motion finds. It does not change.

    World and camera axes are COLMAP's: x right, y down, z forward. Images and points are in the order of their ids.
    """

    def __init__(
        self,
        native: _native.SparseModel,
        *,
        report: Mapping[str, Any] | None = None,
        components: tuple[SparseModel, ...] = (),
    ):
        self._native = native
        self.report: Mapping[str, Any] | None = report
        """Every figure of how it was found, if `sfm` made it: `verdict`, `registered`, `times`, `warnings`, …"""
        self.components: tuple[SparseModel, ...] = components
        """Models of other places that the capture shows, each in a world of its own."""

    @classmethod
    def load(cls, folder: PathLike) -> SparseModel:
        """Reads a folder of COLMAP's files (`cameras`, `images`, `points3D`), binary or text."""
        return cls(_native.SparseModel.read(folder))

    @classmethod
    def from_cameras(cls, cameras: Sequence[Camera], names: Sequence[str] | None = None) -> SparseModel:
        """A model of these views, without points."""
        lenses = [(k, "PINHOLE", c.width, c.height, [c.fx, c.fy, c.cx, c.cy]) for k, c in enumerate(cameras, 1)]
        names = names or [f"{k:06}.jpg" for k in range(1, len(cameras) + 1)]
        if len(names) != len(cameras):
            raise from_kind("invalid_argument", f"{len(names)} names for {len(cameras)} cameras")
        images = [(name, k, [list(row) for row in c.world_to_camera]) for k, (name, c) in enumerate(zip(names, cameras), 1)]
        return cls(_native.SparseModel.from_cameras(lenses, images))

    def save(self, folder: PathLike, *, text: bool = False) -> None:
        """Writes COLMAP's files, binary (bit-exact) or text."""
        self._native.write(folder, text)

    def __len__(self) -> int:
        """Number of images."""
        return len(self.image_names)

    @cached_property
    def _images(self) -> list[tuple[int, str, int]]:
        return self._native.images()

    @cached_property
    def lenses(self) -> tuple[Lens, ...]:
        """The cameras of the model."""
        return tuple(Lens(k, name, w, h, tuple(params)) for k, name, w, h, params in self._native.cameras())

    @property
    def image_names(self) -> list[str]:
        """File names of the images."""
        return [name for _, name, _ in self._images]

    @property
    def image_ids(self) -> list[int]:
        """Ids of the images."""
        return [number for number, _, _ in self._images]

    @cached_property
    def poses(self) -> npt.NDArray[np.float64]:
        """World-to-camera of the images, (n, 4, 4)."""
        import numpy as np

        return _frozen(np.asarray(self._native.poses()))

    @cached_property
    def centers(self) -> npt.NDArray[np.float64]:
        """Where the cameras are, world coordinates, (n, 3)."""
        import numpy as np

        rotations, translations = self.poses[:, :3, :3], self.poses[:, :3, 3]
        return _frozen(-np.einsum("nji,nj->ni", rotations, translations))

    @cached_property
    def _points(self) -> tuple[npt.NDArray[np.float64], ...]:
        import numpy as np

        return tuple(_frozen(np.asarray(array)) for array in self._native.points())

    @property
    def points(self) -> npt.NDArray[np.float64]:
        """World positions of the points, (m, 3)."""
        return self._points[0]

    @property
    def colors(self) -> npt.NDArray[np.uint8]:
        """sRGB of the points, (m, 3)."""
        colors: npt.NDArray[np.uint8] = self._points[1]  # type: ignore[assignment]
        return colors

    @property
    def errors(self) -> npt.NDArray[np.float64]:
        """Mean reprojection error of each point in pixels, (m,)."""
        return self._points[2]

    @property
    def track_lengths(self) -> npt.NDArray[np.uint32]:
        """In how many images each point is seen, (m,)."""
        tracks: npt.NDArray[np.uint32] = self._points[4]  # type: ignore[assignment]
        return tracks

    def camera(self, image: int | str) -> Camera:
        """The camera of an image, by its place or its name. A lens distortion is left out."""
        import numpy as np

        place = self.image_names.index(image) if isinstance(image, str) and image in self.image_names else image
        if isinstance(place, str) or not -len(self) <= place < len(self):
            raise from_kind("not_found", f"there is no image {image!r} among {len(self)}")
        camera_id = self._images[place][2]
        lens = next(lens for lens in self.lenses if lens.camera_id == camera_id)
        if lens.model in ("PINHOLE", "OPENCV", "OPENCV_FISHEYE"):
            fx, fy, cx, cy = lens.params[:4]
        else:
            (fx, cx, cy), fy = lens.params[:3], lens.params[0]
        pose = tuple(tuple(float(v) for v in row) for row in np.asarray(self.poses[place]))
        return Camera(lens.width, lens.height, fx, fy, cx, cy, pose)

    @property
    def cameras(self) -> list[Camera]:
        """The cameras of all images."""
        return [self.camera(k) for k in range(len(self))]

    def _moved(self, motion: Similarity) -> SparseModel:
        # The components have worlds of their own, which stay.
        return SparseModel(self._native.transform(motion), report=self.report, components=self.components)

    def undistort(self, images: PathLike, output: PathLike, *, progress: ProgressOption = False) -> SparseModel:
        """Writes the pictures of the folder `images` without lens distortion to `output/images`, and their model to `output/sparse`.

        The model is returned: PINHOLE cameras, which is what `Trainer` needs. `images` cannot be one of these two folders.
        """
        with Bar(progress, "undistort") as bar:
            return SparseModel(self._native.undistort(images, output, listener(bar)))

    def plot(self, path: PathLike | None = None) -> npt.NDArray[np.uint8]:
        """A picture of cameras and points, from above and from the side, uint8, (900, 1800, 3); in `path` too, as PNG.

        The cameras go from blue to orange in the order of the names; of a model that `sfm` made, from green (sure) over
        yellow to red (as far off as a good pose may be).
        """
        import numpy as np

        picture: npt.NDArray[np.uint8] = np.asarray(self._native.plot())
        if path is not None:
            if Path(path).suffix.lower() != ".png":
                raise from_kind("invalid_argument", f"{Path(path)} is no name of a PNG file")
            write_whole(path, [_png(picture)])
        return picture

    def __repr__(self) -> str:
        images, points, track, error = self._native.summary()
        return f"SparseModel({images} images, {points} points, mean track {track:.1f}, mean error {error:.2f} px)"

    def __reduce__(self) -> tuple[Any, ...]:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            self.save(folder)
            files = [(Path(folder) / name).read_bytes() for name in _FILES]
        return _unpickle, (files, self._native.doubts(), self.report, self.components)

    def _repr_png_(self) -> bytes:
        return _png(self.plot())

    def _repr_html_(self) -> str:
        images, points, track, error = self._native.summary()
        facts = {"images": images, "points": points, "mean track": f"{track:.1f}", "mean error": f"{error:.2f} px"}
        return _html.card("Sparse model", facts, _html.data_uri(self._repr_png_(), "image/png"))


def _unpickle(
    files: Sequence[bytes], doubts: dict[int, float], report: Mapping[str, Any] | None, components: tuple[SparseModel, ...]
) -> SparseModel:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for name, content in zip(_FILES, files):
            (Path(folder) / name).write_bytes(content)
        native = _native.SparseModel.read(folder)
    return SparseModel(native.with_doubts(doubts), report=report, components=components)


def _frozen(array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    # The model does not change: who writes into these would believe that it does.
    array.flags.writeable = False
    return array


def _png(picture: npt.NDArray[np.uint8]) -> bytes:
    height, width, channels = picture.shape
    return _native.encode_png(picture.tobytes(), width, height, channels)
