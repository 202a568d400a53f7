"""Workers are processes of their own: what ends one leaves the server alone, and they never outlive it."""

import os
import signal
import time

import pytest

from . import media
from .test_machine import wait_for

# More than a machine trains while the test runs.
LONG = 100_000


def lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as state:
            return state.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def busy(make_server):
    """A server whose worker is in the middle of a job: the server, its user, the job."""
    server = make_server({"workers": 1, "lease_seconds": 6})
    client = server.user("anna")
    job = client.submit(media.capture(), training_num_steps=LONG)
    wait_for(lambda: client.job(job)["status"] == "Generating 3D scene", "training")
    return server, client, job


def test_a_worker_that_is_killed_takes_nobody_with_it(busy):
    server, client, job = busy
    [worker] = server.workers()
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: not lives(worker), "the end of the worker")
    assert client.get("/healthz").status_code == 200
    # Another one goes on with the job.
    wait_for(lambda: server.command("jobs", "show", job)["attempt"] == 2, "the second attempt")
    wait_for(lambda: client.job(job)["status"] == "Generating 3D scene", "training")
    assert server.workers() != [worker] and server.is_alive()


def test_workers_end_with_their_server(busy):
    server, client, job = busy
    [worker] = server.workers()
    server.kill()
    wait_for(lambda: not lives(worker), "the end of the worker", within=30)
    # It gave its job back in order: nothing is held against the job, and the next worker need not wait for a lease.
    began = time.monotonic()
    server.start()
    wait_for(lambda: client.job(job)["status"] != "Queued - position: 1", "the next attempt", within=5)
    assert time.monotonic() - began < 6
    assert server.stop() == 0
    assert server.workers() == []
