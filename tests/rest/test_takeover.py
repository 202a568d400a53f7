"""Two workers in folders of their own, as on two machines: where one is lost, the other goes on (docs/many-machines.md)."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import requests

from . import postgres
from .server import BINARY, Server

# Long enough to be stopped in the middle of it.
STEPS = 3000


class Worker:
    """A `reconstruct worker` in a folder of its own."""

    def __init__(self, server: Server, folder: Path, *options: str):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        shared = {f"LIBRECONSTRUCT_{name.upper()}": server.config[name] for name in ("database", "storage")}
        environment = os.environ | shared | {"LIBRECONSTRUCT_SECRETS": str(server.data / "secrets.json")}
        command = [BINARY, "worker", "--data", folder, "--config", server.folder / "serve.toml", "--device", "cpu", *options]
        with (folder / "worker.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def wait_for(self, job: str, line: str, within: float = 240) -> None:
        """Waits until the worker wrote this into the log of the job."""
        path = self.folder / "work" / job / "job.log"
        end = time.monotonic() + within
        while not (path.exists() and line in path.read_text(errors="replace")):
            assert self.process.poll() is None, (self.folder / "worker.log").read_text()[-3000:]
            assert time.monotonic() < end, f"{line!r} did not come within {within} s"
            time.sleep(0.01)

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def server(make_server):
    server = make_server({"lease_seconds": 6, "checkpoint_seconds": 1}, start=False)
    if "database" not in server.config:
        server.config |= postgres.settings(server.data)
    return server.start()


@pytest.fixture(scope="module")
def anna(server):
    return server.user("anna")


@pytest.fixture(scope="module")
def straight(server, anna, capture, tmp_path_factory) -> bytes:
    """The scene that a worker makes in one go."""
    job = anna.submit(capture, training_num_steps=STEPS)
    assert Worker(server, tmp_path_factory.mktemp("straight"), "--once").process.wait(600) == 0
    return scene(anna, job)


def scene(client, job: str) -> bytes:
    assert client.job(job)["status"] == "Finished"
    # Without the key: a store takes no other authorization than that of the address.
    return requests.get(client.get(f"/api/v1/jobs/{job}/download/ply/").headers["Location"], timeout=60).content


def log_of(server: Server, job: str) -> str:
    """What the worker of the attempt that was published wrote."""
    [log] = [name for name in server.files("scenes") if name.startswith(f"scenes/{job}/") and name.endswith(".log")]
    return server.stored.read(log).decode()


def checkpoints(server: Server, job: str) -> list[str]:
    """What is kept of it for other machines."""
    return [Path(name).name for name in server.files("checkpoints") if name.startswith(f"checkpoints/{job}/")]


@pytest.mark.parametrize("stage", ["frames", "sfm", "train"])
def test_a_worker_that_is_killed_costs_no_finished_stage(server, anna, capture, straight, tmp_path, stage):
    job = anna.submit(capture, training_num_steps=STEPS)
    here = Worker(server, tmp_path / "here")
    finished = ["frames", "sfm", "train"][: ["frames", "sfm", "train"].index(stage)]
    here.wait_for(job, f"stage {stage}")
    for done in finished:
        here.wait_for(job, f"stored for other machines: the stage {done}")
    here.end(signal.SIGKILL)
    there = Worker(server, tmp_path / "there", "--once")
    assert there.process.wait(300) == 0
    assert scene(anna, job) == straight
    log = log_of(server, job)
    assert [s for s in ("frames", "sfm", "train") if f"the stage {s} was done on another machine" in log] == finished
    assert checkpoints(server, job) == []


def test_a_worker_that_is_told_to_end_hands_its_training_over(server, anna, capture, straight, tmp_path):
    job = anna.submit(capture, training_num_steps=STEPS)
    here = Worker(server, tmp_path / "here", "--drain", "50")
    here.wait_for(job, "stage train")
    time.sleep(1)
    asked = time.monotonic()
    assert here.end(signal.SIGTERM) == 0
    assert time.monotonic() - asked < 50
    # At once: nobody waits for a lease.
    assert anna.job(job)["status"].startswith("Queued")
    stored = checkpoints(server, job)
    assert any(name.startswith("training-") for name in stored), stored
    there = Worker(server, tmp_path / "there", "--once")
    assert there.process.wait(300) == 0
    log = log_of(server, job)
    assert "training goes on after" in log, log
    assert scene(anna, job) == straight


def test_a_worker_that_ends_by_itself_leaves_the_queue_to_others(server, anna, tmp_path):
    began = time.monotonic()
    idle = Worker(server, tmp_path / "idle", "--exit-when-idle", "1")
    assert idle.process.wait(60) == 0
    assert time.monotonic() - began >= 1
