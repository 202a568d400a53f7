"""Fixtures: servers that several tests share, users of them, and small videos."""

import itertools

import pytest
import urllib3

from . import many, storage
from .server import BINARY, Server
from .web import invited

urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)


def pytest_configure(config):
    if not BINARY.exists():
        pytest.exit(f"{BINARY} is missing: cargo build --release -p libreconstruct-server, or set RECONSTRUCT", 2)


@pytest.fixture(scope="session")
def make_server(tmp_path_factory):
    """Makes servers, started, each in a folder of its own, and stops them at the end."""
    servers = []

    def make(config: dict | None = None, environment: dict | None = None, start: bool = True, kind: type[Server] = Server) -> Server:
        server = kind(tmp_path_factory.mktemp("server"), config, environment)
        servers.append(server)
        return server.start() if start else server

    yield make
    for server in servers:
        server.kill()


@pytest.fixture(scope="session")
def server(make_server):
    """A server without workers: jobs stay in its queue."""
    return make_server({"limits": {"max_queued_jobs": 100_000}}, kind=many.SHARED)


@pytest.fixture(scope="session")
def worker_server(make_server):
    """A server that runs its jobs."""
    return make_server({"workers": 1}, kind=many.SHARED)


_names = (f"user{n}" for n in itertools.count(1))


@pytest.fixture(scope="module")
def alice(server):
    """A user of the server without workers, with jobs of this module only."""
    return server.user(next(_names))


@pytest.fixture(scope="module")
def bob(server):
    """Another user of the same server."""
    return server.user(next(_names))


@pytest.fixture
def fresh(server):
    """A user without jobs."""
    return server.user(next(_names))


@pytest.fixture(scope="session")
def wendy(worker_server):
    """The user of the server that runs its jobs."""
    return worker_server.user("wendy")


@pytest.fixture(scope="session")
def finished(wendy, capture):
    """A job that has finished, after it was watched to its end: `job_id` and everything that was `seen`."""
    name = 'attachment; filename="Küche \\"1\\".mp4"'.encode()
    if storage.SCHEME == "az":
        # What is not ASCII does not come through Azure's own header.
        name = "attachment; filename*=UTF-8''K%C3%BCche%20%221%22.mp4"
    blob_name = wendy.upload(capture, headers={"Content-Disposition": name})
    response = wendy.try_submit(
        blob_name, training_max_num_gaussians=1000, training_num_steps=30, camera_type="orbital"
    )
    assert response.status_code == 201, response.text
    submitted = response.json()
    seen = []
    job = wendy.wait(submitted["job_id"], seen=seen)
    assert job["status"] == "Finished", wendy.server.command("jobs", "show", job["job_id"])
    return {"job_id": job["job_id"], "submitted": submitted, "seen": seen, "job": job}


@pytest.fixture
def name(server):
    """The name of a user who has a key and was never invited."""
    name = next(_names)
    server.user(name)
    return name


@pytest.fixture
def visitor(server, name):
    """The same user, signed in to the web application."""
    return invited(server, name)
