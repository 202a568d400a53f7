"""What the behaviour suite asks of a face: the same few calls, whatever language they go through.

A face is a module of this folder with `open_face(folder, options, workers) -> Face`. Its tests fail if what it needs (a
package, a library, a program) is not there: `make test-python` builds it.

| face | module | goes through |
| --- | --- | --- |
| `engine` | `engine_face.py` | the Python package, in this process |
| `client` | `client_face.py` | the Python package, over HTTP to a `reconstruct serve` process |
| `c` | `c_face.py` | ctypes and the C library |

With `LIBRECONSTRUCT_TEST_POSTGRES=1` every face has its rows in a PostgreSQL of the tests' own (`tests/rest/postgres.py`).
"""

import importlib
from pathlib import Path
from typing import Any, Protocol

FACES = ["engine", "client", "c"]

# Settings (ServiceOptions) with which a tiny capture becomes a scene in seconds on two cores.
SMALL: dict[str, Any] = {
    "reconstruction": {
        "device": "cpu",
        "max_frames": 12,
        "max_resolution": 240,
        "training_max_resolution": 160,
        "sh_degree": 0,
    },
}
# What a job must be asked for to be done in seconds.
QUICK: dict[str, Any] = {"training_max_num_gaussians": 1000, "training_num_steps": 20}


class FaceError(Exception):
    """A call was refused: the slug of the kind of error (`libreconstruct::ErrorKind::slug`) and the message."""

    def __init__(self, slug: str, message: str):
        super().__init__(f"{slug}: {message}")
        self.slug = slug
        self.message = message


class Face(Protocol):
    """One user of one service, through one language. Every call raises `FaceError` if it is refused."""

    def submit(self, video: Path, **options: Any) -> str:
        """Uploads the file and submits a job with the options of docs/rest.md, §4.8; its id."""
        ...

    def job(self, job_id: str) -> dict[str, Any]:
        """The thirteen fields of a job (docs/rest.md, §2.1), as JSON has them."""
        ...

    def jobs(self, **query: Any) -> dict[str, Any]:
        """The user's jobs, newest first: `{"jobs": [{"job_id", "title"}], "next": cursor or None}`.

        Query: `limit` (int), `cursor` (the `next` of an earlier page), `status` (str), `public` (bool).
        """
        ...

    def update(self, job_id: str, **changes: Any) -> dict[str, Any]:
        """Changes `title`, `public` or `camera_data` (`None` = what the reconstruction found); the job afterwards."""
        ...

    def cancel(self, job_id: str) -> None:
        """Stops the job for good: it is `Failed` when this returns."""
        ...

    def restart(self, job_id: str, **options: Any) -> str:
        """Makes a new job of the video of an ended one, with these options and else those that it had; its id."""
        ...

    def report(self, job_id: str) -> dict[str, Any]:
        """What is told of a job beyond its fields (docs/rest.md, rule 80)."""
        ...

    def delete(self, job_id: str) -> None:
        """Removes the job with all its files."""
        ...

    def download(self, job_id: str, kind: str, path: Path) -> None:
        """Writes an artifact to a file, whole or not at all. Kinds: `ply`, `spz`, `preview`, `report`, `log`."""
        ...

    def wait(self, job_id: str, timeout: float) -> dict[str, Any]:
        """The job once it is `Finished` or `Failed` (neither is an error here).

        `FaceError("deadline_exceeded", ...)` if it is not after `timeout` seconds.
        """
        ...

    def failure(self, job_id: str) -> dict[str, Any] | None:
        """Why a job has failed: `{"code": slug, "message": text}`; `None` for one that has not."""
        ...

    def other(self) -> "Face":
        """The face of another user of the same service."""
        ...

    def close(self) -> None:
        """Stops what `open_face` started (workers, server); of `other()` faces, nothing."""
        ...


def open_face(name: str, folder: Path, options: dict[str, Any] | None = None, workers: int = 0) -> Face:
    """The face `name` on a service in `folder` with these settings (names of ServiceOptions) and so many workers."""
    module = importlib.import_module(f".{name}_face", __package__)
    return module.open_face(folder, options or {}, workers)
