"""Jobs, and what every service of jobs can do, in this process (`Engine`) or over HTTP (`Client`)."""

from __future__ import annotations

import io
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsIndex, Union

from . import _html, _native
from ._camera import Camera
from ._errors import ConflictError, InvalidInputError, NotFoundError, RateLimitedError, ServerConnectionError, from_kind, job_failed, need
from ._files import PathLike, write_whole
from ._progress import Bar, Progress, ProgressOption

if TYPE_CHECKING:
    from types import TracebackType

    from PIL.Image import Image
    from typing_extensions import Self

    from ._scene import Scene

FIELDS = (
    "job_id title status percent_complete uploaded_at public reconstruction_method training_max_num_gaussians "
    "training_num_steps remove_background has_ply has_spz camera_data"
).split()
IdPage = tuple[list[tuple[str, str]], Union[str, None]]
"""Ids and titles of jobs, and the cursor of the next page."""
Watch = Callable[[Mapping[str, Any], float], Mapping[str, Any]]
"""The job as soon as it is known to be other than it was seen, after so many seconds at the latest. To be called again and again
during one wait."""
CHUNK = 1 << 20
"""Bytes that are moved at a time."""

ReconstructionMethod = Literal["glomap", "colmap"]
CameraType = Literal["orbital", "drone"]
_UNSET: Any = object()


class JobEvent(NamedTuple):
    """A job as it was when something about it had changed."""

    status: str
    percent_complete: int | None
    fields: Mapping[str, Any]
    """All fields of the job then."""


class Job:
    """A video that becomes a scene.

    Attributes show the job as it was when it was last asked for: `refresh()` asks again, `wait()`, `update()` and `cancel()`
    do so by themselves, and so does a notebook that shows the job.
    """

    def __init__(self, service: Service, job_id: str, title: str | None = None, fields: Mapping[str, Any] | None = None):
        self._service = service
        self._title = title
        self._fields = fields
        self.job_id = job_id

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the job as the REST interface writes them, and what a service tells beyond them."""
        if self._fields is None:
            self.refresh()
        assert self._fields is not None
        return self._fields

    def refresh(self) -> Job:
        """Asks for the job again; returns it."""
        self._fields = self._service._get(self.job_id)
        return self

    @property
    def title(self) -> str:
        """For people."""
        if self._fields is None and self._title is not None:
            return self._title
        return str(self.fields["title"])

    @property
    def status(self) -> str:
        """`Queued`, `Queued - position: 3`, `Processing video`, `Generating 3D scene`, `Finished`, `Failed` or `Not found`.

        The last is a job of a service of many machines whose video its storage has lost."""
        return str(self.fields["status"])

    @property
    def percent_complete(self) -> int | None:
        """How far the scene is, 0 to 100; `None` until its generation starts."""
        percent: int | None = self.fields["percent_complete"]
        return percent

    @property
    def is_done(self) -> bool:
        """Whether it is `Finished`, `Failed` or `Not found`, and will not change any more."""
        return self.status in ("Finished", "Failed", "Not found")

    @property
    def uploaded_at(self) -> str:
        """When it was submitted, RFC 3339 in UTC."""
        return str(self.fields["uploaded_at"])

    @property
    def public(self) -> bool:
        """Whether others may see it."""
        return bool(self.fields["public"])

    @property
    def camera_data(self) -> Mapping[str, Any]:
        """Where a viewer starts: `position`, `lookAt` and `up` (each x, y, z), `cameraType`."""
        data: Mapping[str, Any] = self.fields["camera_data"]
        return data

    @property
    def has_ply(self) -> bool:
        """Whether the `.ply` can be downloaded."""
        return bool(self.fields["has_ply"])

    @property
    def has_spz(self) -> bool:
        """Whether the `.spz` can be downloaded."""
        return bool(self.fields["has_spz"])

    @property
    def failure(self) -> Mapping[str, str] | None:
        """Why it failed: `code` (a slug) and `message`. An older server keeps that to itself (`unknown`)."""
        if self.status not in ("Failed", "Not found"):
            return None
        return self._service._failure(self.fields)

    def wait(self, timeout: float | None = None, *, progress: ProgressOption = False, check: bool = True) -> Job:
        """Waits until the job is done; returns it.

        Ctrl-C ends the wait. In an `Engine` it also stops the work: the job keeps what is done and goes back to the queue, and
        the next `wait()` goes on with it. On a server the job goes on.

        Raises `JobFailedError` (unless `check` is false: then look at `status`), `DeadlineError` after `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        self._service._begin_wait()
        watch = self._service._watch(self.job_id)
        try:
            with Bar(progress, self.title) as bar:
                while True:
                    bar.update(_progress(self.refresh().fields if self._fields is None else self.fields))
                    if self.is_done:
                        break
                    left = 10.0 if end is None else min(10.0, end - time.monotonic())
                    if left <= 0:
                        # Its end may have come since it was last asked for.
                        try:
                            self._fields = self._service._look(self.job_id)
                        except (RateLimitedError, ServerConnectionError):
                            # It could not be asked for, and there is no time left to ask again.
                            pass
                        if self.is_done:
                            break
                        raise from_kind("deadline_exceeded", f"job {self.job_id} is not done after {timeout} s: {self.status}")
                    self._fields = watch(self.fields, left)
        except KeyboardInterrupt:
            self._service._interrupted()
            raise
        if check:
            self._check()
        return self

    def _check(self) -> None:
        failure = self.failure
        if failure is not None:
            raise job_failed(self.job_id, failure["code"], failure["message"])

    def __await__(self) -> Generator[Any, None, Job]:
        """`await job` is `wait()` without keeping the event loop."""
        return self._finished().__await__()

    async def _finished(self) -> Job:
        async for _ in self.events():
            pass
        self._check()
        return self

    def events(self) -> Events:
        """The job's changes until it is done: `for event in job.events()` or `async for event in job.events()`."""
        return Events(self)

    def __iter__(self) -> Iterator[JobEvent]:
        return iter(self.events())

    def update(self, *, title: str = _UNSET, public: bool = _UNSET, camera_data: Mapping[str, Any] | None = _UNSET) -> Job:
        """Changes the job; what is not named stays. `camera_data=None` goes back to what the reconstruction found."""
        named = {"title": title, "public": public, "camera_data": camera_data}
        self._fields = self._service._update(self.job_id, {k: v for k, v in named.items() if v is not _UNSET})
        return self

    def cancel(self) -> Job:
        """Stops the job for good and keeps it; it is `Failed` then. `ConflictError` for one that has ended."""
        self._fields = self._service._cancel(self.job_id)
        return self

    def restart(
        self,
        *,
        title: str | None = None,
        public: bool | None = None,
        reconstruction_method: ReconstructionMethod | None = None,
        training_max_num_gaussians: int | None = None,
        training_num_steps: int | None = None,
        apriltag_size_mm: float | None = None,
        remove_background: bool | None = None,
        camera_type: CameraType | None = None,
    ) -> Job:
        """Makes a new job of the same video, without another upload; returns it.

        What is not given is as in this job; `Service.submit` says what each means. `ConflictError` while this job has not ended.
        """
        options = {
            "title": title,
            "public": public,
            "reconstruction_method": reconstruction_method,
            "training_max_num_gaussians": training_max_num_gaussians,
            "training_num_steps": training_num_steps,
            "apriltag_size_mm": apriltag_size_mm,
            "remove_background": remove_background,
            "camera_type": camera_type,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return Job(self._service, self._service._restart(self.job_id, given))

    def report(self) -> Mapping[str, Any]:
        """What the fields do not tell (docs/rest.md, rule 80): `progress` with the stage, `failure`, `warnings`, `requested`, and
        once it is finished `ran`, `quality`, `verdict`, `scale` and `costs`."""
        return self._service._report(self.job_id)

    def delete(self) -> None:
        """Stops the job and removes it with all its files, irreversibly."""
        self._service._delete(self.job_id)

    def log(self) -> str:
        """What the worker wrote about the job; over HTTP once the job has ended."""
        return self._service._log(self.job_id)

    def download(
        self,
        kind: Literal["ply", "spz", "preview", "report", "log", "cameras", "masks", "turntable", "sog", "glb", "first_look", "poses"],
        path: PathLike,
        *,
        progress: ProgressOption = False,
    ) -> Path:
        """Writes a file of the job, whole or not at all; returns its path.

        The scene (`ply`, `spz`), its preview, all its figures (`report`), the worker's `log`, the camera poses as COLMAP has them (a zip);
        `masks` (a zip) if the background was removed, `turntable` (MP4), `sog` and `glb` (the scene in
        other formats) if the service makes them, `first_look` (an `.spz` with few splats) if the scene is large,
        `poses` (JPEG) shows the cameras.
        """
        with self._service._open(self.job_id, kind) as artifact, Bar(progress, f"{kind} of {self.title}") as bar:

            def chunks() -> Iterator[bytes]:
                moved = 0
                while chunk := artifact.read(CHUNK):
                    moved += len(chunk)
                    fraction = None if artifact.size is None else moved / artifact.size
                    bar.update(Progress(fraction, "download", f"{moved / 1e6:.1f} MB"))
                    yield chunk

            return write_whole(path, chunks())

    def preview_bytes(self) -> bytes:
        """The preview as JPEG."""
        with self._service._open(self.job_id, "preview") as artifact:
            return b"".join(iter(lambda: artifact.read(CHUNK), b""))

    @property
    def preview(self) -> Image:
        """A picture of the scene (needs pillow)."""
        image: Image = need("PIL.Image", "job.preview").open(io.BytesIO(self.preview_bytes()))
        return image

    def scene(self, *, progress: ProgressOption = False) -> Scene:
        """The scene, in memory. Its `view()` is where a viewer of the job starts, if that is a view."""
        import tempfile

        from ._scene import Scene

        with tempfile.TemporaryDirectory() as folder:
            native = _native.Splats.read(self.download("ply", Path(folder) / "scene.ply", progress=progress))
        return Scene(native, view=_view(self.refresh().camera_data))

    def to_dict(self) -> dict[str, Any]:
        """The thirteen fields that a job has over HTTP (docs/rest.md, §2.1)."""
        return {name: self.fields[name] for name in FIELDS}

    def __repr__(self) -> str:
        state = "" if self._fields is None else f", {self.status!r}"
        return f"Job({self.job_id!r}, {self.title!r}{state})"

    def _repr_html_(self) -> str:
        fields = self.refresh().fields
        facts: dict[str, object] = {"status": self.status, "job_id": self.job_id, "submitted": self.uploaded_at[:19]}
        facts["method"] = f"{fields['reconstruction_method']}, {fields['training_num_steps']:,} steps"
        if self.failure is not None:
            facts["failure"] = self.failure["message"]
        jpeg = self._preview_or_none()
        return _html.card(self.title, facts, _html.data_uri(jpeg, "image/jpeg") if jpeg else None, _progress(fields).fraction or 0.0)

    def _repr_png_(self) -> bytes | None:
        jpeg = self._preview_or_none()
        return jpeg and _native.jpeg_to_png(jpeg)

    def _preview_or_none(self) -> bytes | None:
        try:
            return self.preview_bytes()
        except NotFoundError:
            return None


def _view(camera_data: Mapping[str, Any]) -> Camera | None:
    """Where a viewer starts. A service takes what makes no picture, too: from straight above, with the direction of the view as `up`."""
    try:
        return Camera.from_camera_data(camera_data)
    except InvalidInputError:
        return None


def _progress(fields: Mapping[str, Any]) -> Progress:
    """What a bar shows of a job. Its percentage counts from the generation of the scene on."""
    percent: int | None = fields["percent_complete"]
    details: Mapping[str, Any] = fields.get("details") or {}
    message = ""
    if details.get("stage"):
        message = f"{details['stage']} {100 * details['stage_fraction']:.0f} %"
    return Progress(None if percent is None else percent / 100, fields["status"], message)


class Events:
    """The changes of a job; can be iterated over with `for` and with `async for`, each time from the present state on."""

    def __init__(self, job: Job):
        self._job = job

    def __iter__(self) -> Iterator[JobEvent]:
        job = self._job
        job._service._begin_wait()
        watch = job._service._watch(job.job_id)
        try:
            yield _event(job.refresh().fields)
            while not job.is_done:
                before = job.fields
                job._fields = watch(before, 1.0)
                if job.fields != before:
                    yield _event(job.fields)
        except KeyboardInterrupt:
            job._service._interrupted()
            raise

    async def __aiter__(self) -> AsyncIterator[JobEvent]:
        # Not at the top: it takes long to import, and few need it.
        import asyncio

        job = self._job
        job._service._begin_wait()
        watch = job._service._watch(job.job_id)
        await asyncio.to_thread(job.refresh)
        yield _event(job.fields)
        while not job.is_done:
            before = job.fields
            # Whoever gives up waiting leaves a thread behind for so long.
            job._fields = await asyncio.to_thread(watch, before, 1.0)
            if job.fields != before:
                yield _event(job.fields)


def _event(fields: Mapping[str, Any]) -> JobEvent:
    return JobEvent(fields["status"], fields["percent_complete"], fields)


class JobPage(list[Job]):
    """Jobs, newest first, and where the next page begins."""

    def __init__(self, jobs: list[Job], next: str | None):
        super().__init__(jobs)
        self.next: str | None = next
        """`cursor` of the next page, if there is one."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return JobPage, (list(self), self.next)


class Closable(ABC):
    """What is let go of at the end of a `with` block."""

    def close(self) -> None:
        """Lets go of what is behind it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Artifact(Closable):
    """The bytes of a scene or picture, on their way."""

    size: int | None
    """In bytes; `None` as long as nobody knows."""

    @abstractmethod
    def read(self, count: int, /) -> bytes:
        """At most `count` more bytes; none at the end."""


class Service(Closable):
    """What `Engine` and `Client` have in common: notebooks move from one to the other by one line."""

    def submit(
        self,
        video: PathLike,
        *,
        title: str | None = None,
        public: bool | None = None,
        reconstruction_method: ReconstructionMethod | None = None,
        training_max_num_gaussians: int | None = None,
        training_num_steps: int | None = None,
        apriltag_size_mm: float | None = None,
        remove_background: bool | None = None,
        camera_type: CameraType | None = None,
        progress: ProgressOption = False,
    ) -> Job:
        """Takes a video (mp4, mov, m4v, mkv, webm, avi), or pictures in a zip file, and puts a job for it into the queue.

        `title`: the file's name if it is not given. `public`: false. `reconstruction_method`: `glomap` (global structure from
        motion) or `colmap` (incremental). `training_max_num_gaussians`: 1,000 to 10,000,000, 1,000,000. `training_num_steps`: 1
        to 200,000, 25,000 (made for a GPU; 2,000 give a first impression on a CPU). Of both it is what the service allows at most,
        if that is less. `apriltag_size_mm`: edge of the inner white square of the AprilTags (tagStandard41h12) in the scene, 5/9
        of the printed width, 1 to 1,000; it makes the scene metric. `remove_background`: false. `camera_type`: how a viewer
        moves, `orbital` or `drone`. `progress`: of the upload.
        """
        options = {
            "title": title,
            "public": public,
            "reconstruction_method": reconstruction_method,
            "training_max_num_gaussians": training_max_num_gaussians,
            "training_num_steps": training_num_steps,
            "apriltag_size_mm": apriltag_size_mm,
            "remove_background": remove_background,
            "camera_type": camera_type,
        }
        path = Path(video)
        given = {name: value for name, value in options.items() if value is not None}
        return self.job(self._submit(path, given, progress))

    def job(self, job_id: str) -> Job:
        """The job of this id; `NotFoundError` if there is none, or if it is somebody else's."""
        return Job(self, job_id).refresh()

    def jobs(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        status: str | None = None,
        public: bool | None = None,
    ) -> JobPage:
        """Your jobs, newest first: all, or `limit` (1 to 1,000) of them from the `next` of an earlier page on.

        `status` (`Queued`, `Processing video`, `Generating 3D scene`, `Finished`, `Failed`, `Not found`) and `public` choose among them.
        """
        jobs, following = self._page(limit, cursor, status, public)
        return JobPage([Job(self, job_id, title) for job_id, title in jobs], following)

    @abstractmethod
    def close(self) -> None:
        """Lets go of what the service holds. To close twice is fine."""

    # The way to the service. Jobs call these; fields are those of the REST interface, and more where a service has more.

    @abstractmethod
    def _submit(self, video: Path, options: dict[str, Any], progress: ProgressOption) -> str: ...

    @abstractmethod
    def _get(self, job_id: str) -> Mapping[str, Any]: ...

    def _look(self, job_id: str) -> Mapping[str, Any]:
        """As `_get`, without patience."""
        return self._get(job_id)

    @abstractmethod
    def _page(self, limit: int | None, cursor: str | None, status: str | None, public: bool | None) -> IdPage: ...

    @abstractmethod
    def _update(self, job_id: str, changes: dict[str, Any]) -> Mapping[str, Any]: ...

    @abstractmethod
    def _cancel(self, job_id: str) -> Mapping[str, Any]: ...

    @abstractmethod
    def _restart(self, job_id: str, options: dict[str, Any]) -> str: ...

    @abstractmethod
    def _report(self, job_id: str) -> Mapping[str, Any]: ...

    @abstractmethod
    def _delete(self, job_id: str) -> None: ...

    @abstractmethod
    def _log(self, job_id: str) -> str: ...

    @abstractmethod
    def _open(self, job_id: str, kind: str) -> Artifact: ...

    @abstractmethod
    def _watch(self, job_id: str) -> Watch:
        """For somebody who begins to wait for the job."""

    @abstractmethod
    def _failure(self, fields: Mapping[str, Any]) -> Mapping[str, str]: ...

    def _begin_wait(self) -> None:
        """Somebody begins to wait."""

    def _interrupted(self) -> None:
        """Ctrl-C was pressed while somebody waited."""


__all__ = ["Artifact", "ConflictError", "Events", "Job", "JobEvent", "JobPage", "Service"]
