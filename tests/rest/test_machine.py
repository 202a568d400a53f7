"""Faults of the machine while the real server runs (rule 53 of docs/rest.md): none costs a job."""

import shutil
import time

import pytest

from . import media
from .server import Server

PROGRAMS = ("ffmpeg", "ffprobe")


@pytest.fixture
def programs(tmp_path):
    """A folder with ffmpeg and ffprobe of its own, from which they can be taken away."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        shutil.copy(shutil.which(name), folder / name)
    return folder


def wait_for(reached, what: str, within: float = 60):
    end = time.monotonic() + within
    while not (found := reached()):
        assert time.monotonic() < end, f"{what}: not within {within} s"
        time.sleep(0.1)
    return found


def test_d53_a_missing_program_costs_no_job(tmp_path, programs):
    environment = {f"RECONSTRUCT_{name.upper()}": str(programs / name) for name in PROGRAMS}
    server = Server(tmp_path / "service", {"workers": 1}, environment).start()
    try:
        client = server.user("anna")
        ready = client.get("/readyz").json()
        assert ready["status"] == "ready" and ready["paused_workers"] == []
        blobs = [client.upload(media.flat_video().read_bytes()) for _ in range(3)]
        for name in PROGRAMS:
            (programs / name).rename(programs / f"{name}.away")
        jobs = []
        for blob in blobs:
            response = client.try_submit(blob, title="flat")
            assert response.status_code == 201, response.text
            jobs.append(response.json()["job_id"])
        paused = wait_for(lambda: client.get("/readyz").json()["paused_workers"], "a paused worker")
        assert [worker["code"] for worker in paused] == ["ffmpeg_missing"]
        assert str(tmp_path) not in str(paused)
        assert "reconstruct_workers_paused 1" in client.get("/metrics").text
        # Long enough for many attempts.
        time.sleep(5)
        assert [client.job(job)["status"] for job in jobs] == [f"Queued - position: {n}" for n in (1, 2, 3)]
        for name in PROGRAMS:
            (programs / f"{name}.away").rename(programs / name)
        for job in jobs:
            wait_for(lambda job=job: client.job(job)["status"] == "Failed", "the end of a job")
            shown = server.command("jobs", "show", job)
            assert shown["failure"]["code"] not in ("ffmpeg_missing", "io", "crashed"), shown
        assert client.get("/readyz").json()["paused_workers"] == []
    finally:
        server.kill()
