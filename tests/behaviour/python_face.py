"""What the two services of the Python package have in common, which is nearly all."""

from pathlib import Path
from typing import Any

from libreconstruct import JobFailedError, ReconstructError, Service

from .face import FaceError


class _Refusals:
    """Turns exceptions of the package into those of the suite."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        assert not isinstance(error, JobFailedError), "the suite asks not to be told so"
        if isinstance(error, ReconstructError):
            raise FaceError(error.slug, error.message) from error


class PythonFace:
    def __init__(self, service: Service):
        self.service = service

    def submit(self, video: Path, **options: Any) -> str:
        with _Refusals():
            return self.service.submit(video, **options).job_id
        raise AssertionError

    def job(self, job_id: str) -> dict[str, Any]:
        with _Refusals():
            return self.service.job(job_id).to_dict()
        raise AssertionError

    def jobs(self, **query: Any) -> dict[str, Any]:
        with _Refusals():
            page = self.service.jobs(**query)
            return {"jobs": [{"job_id": job.job_id, "title": job.title} for job in page], "next": page.next}
        raise AssertionError

    def update(self, job_id: str, **changes: Any) -> dict[str, Any]:
        with _Refusals():
            return self.service.job(job_id).update(**changes).to_dict()
        raise AssertionError

    def cancel(self, job_id: str) -> None:
        with _Refusals():
            self.service.job(job_id).cancel()

    def restart(self, job_id: str, **options: Any) -> str:
        with _Refusals():
            return self.service.job(job_id).restart(**options).job_id
        raise AssertionError

    def report(self, job_id: str) -> dict[str, Any]:
        with _Refusals():
            return dict(self.service.job(job_id).report())
        raise AssertionError

    def delete(self, job_id: str) -> None:
        with _Refusals():
            self.service.job(job_id).delete()

    def download(self, job_id: str, kind: str, path: Path) -> None:
        with _Refusals():
            self.service.job(job_id).download(kind, path)  # type: ignore[arg-type]

    def wait(self, job_id: str, timeout: float) -> dict[str, Any]:
        with _Refusals():
            return self.service.job(job_id).wait(timeout, check=False).to_dict()
        raise AssertionError

    def failure(self, job_id: str) -> dict[str, Any] | None:
        with _Refusals():
            failure = self.service.job(job_id).failure
            return None if failure is None else dict(failure)
        raise AssertionError

    def close(self) -> None:
        self.service.close()
