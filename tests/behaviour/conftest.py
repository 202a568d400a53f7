"""A service per face: one without workers for most tests, and one with a worker, whose job is done once for all."""

from pathlib import Path

import pytest

from .face import FACES, QUICK, SMALL, Face, open_face


@pytest.fixture(scope="session", params=FACES)
def idle(request, tmp_path_factory):
    """A face on a service without workers: jobs stay in the queue."""
    face = open_face(request.param, tmp_path_factory.mktemp(f"idle-{request.param}"), SMALL, 0)
    yield face
    face.close()


@pytest.fixture(scope="session", params=FACES)
def busy(request, tmp_path_factory):
    """A face on a service with a worker."""
    face = open_face(request.param, tmp_path_factory.mktemp(f"busy-{request.param}"), SMALL, 1)
    yield face
    face.close()


@pytest.fixture(scope="session")
def finished(busy, capture) -> tuple[Face, str]:
    """A face and a job of it that has finished."""
    job_id = busy.submit(capture, title="Küche 1", camera_type="orbital", **QUICK)
    job = busy.wait(job_id, 300)
    assert job["status"] == "Finished", busy.failure(job_id)
    return busy, job_id
