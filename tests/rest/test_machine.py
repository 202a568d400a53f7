"""Faults of the machine while the real server runs (rule 53 of docs/rest.md): none costs a job."""

import contextlib
import shutil
import subprocess
import time

import pytest

from . import media, postgres
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


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 32 MiB. Only root can have one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        command = ["mount", "-t", "tmpfs", "-o", "size=32m,mode=700", "small-disk", folder]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no small disk can be mounted here, which only root may: {error}")
    yield folder
    # A process that was just killed may still hold it for a moment.
    subprocess.run(["umount", "--lazy", folder], check=True, timeout=60)


def fill(ballast):
    """Takes all that is free."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.skipif(postgres.IS_ASKED_FOR, reason="the rows are on another disk")
@pytest.mark.parametrize("is_killed", [False, True])
def test_d53_a_start_on_a_full_disk_costs_nothing(tmp_path, small_disk, is_killed):
    server = Server(tmp_path / "service", {"min_free_bytes": 0})
    server.data = small_disk / "data"
    ballast = small_disk / "ballast"
    try:
        server.start()
        client = server.user("anna")
        job = client.submit(media.flat_video(), title="kept")
        if is_killed:
            server.kill()
        else:
            assert server.stop() == 0
        # The index of the database's log: what was killed has left it, and its room can be used again.
        has_index = (server.data / "jobs.db-shm").exists()
        assert has_index or not is_killed
        fill(ballast)
        server.spawn()
        is_up = server.wait_until_up()
        assert has_index or not is_up
        if is_up:
            assert client.job(job)["title"] == "kept"
        else:
            assert server.process.returncode == 6
            assert "the disk is full" in server.log_text(), server.log_text()
        ballast.unlink()
        if not is_up:
            server.start()
        assert client.job(job)["title"] == "kept"
        assert client.job(client.submit(media.flat_video(), title="next"))["status"] == "Queued - position: 2"
        assert server.stop() == 0
        assert "panicked" not in server.log_text()
    finally:
        server.kill()
