"""Rates over several servers that share their rows (rule 21 of docs/rest.md)."""

import time

import pytest

from . import postgres
from .server import Client, Server

BURST, PER_MINUTE = 30, 120


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    limits = {"requests_per_minute": PER_MINUTE, "requests_burst": BURST, "submits_per_hour": 6, "submits_burst": 3}
    folder = tmp_path_factory.mktemp("shared")
    first = Server(folder / "first", {"rate_limits": limits})
    first.config |= postgres.settings(first.data)
    others = [Server(folder / name, {"rate_limits": limits}) for name in ("second", "third")]
    for other in others:
        other.share(first)
    for server in (first, *others):
        server.start()
    yield first, *others
    for server in (first, *others):
        server.stop()


def of_one_user(servers, name: str) -> list[Client]:
    """The same user at every server."""
    client = servers[0].user(name)
    return [client, *(Client(server, client.key) for server in servers[1:])]


def test_rule_21_several_servers_give_no_more_than_one(servers):
    clients = of_one_user(servers, "anna")
    began, answers = time.monotonic(), []
    # Six seconds, and on a busy machine as many as it takes to ask for more than is allowed.
    while (seconds := time.monotonic() - began) < 6 or (len(answers) < 1.3 * (BURST + PER_MINUTE / 60 * seconds) and seconds < 60):
        answers += [client.get("/api/v1/jobs/") for client in clients]
    seconds = time.monotonic() - began
    allowed = sum(answer.status_code == 200 for answer in answers)
    limit = BURST + PER_MINUTE / 60 * seconds
    assert 0.8 * limit <= allowed <= 1.1 * limit, (allowed, limit, len(answers))
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) == len(answers) - allowed > 0
    for answer in refused:
        assert answer.json() == {"error": "Rate limit exceeded"}
        assert answer.headers["Retry-After"] == "1"
        assert answer.headers["RateLimit-Policy"] == f'"requests";q={PER_MINUTE};w=60'
        assert answer.headers["RateLimit"] == '"requests";r=0;t=1'


def test_rule_21_a_refusal_at_one_server_holds_at_all(servers):
    clients = of_one_user(servers, "berta")
    body = {"blob_name": "videos/none.mp4"}
    began = time.monotonic()
    tried = [clients[n % 3].request("POST", "/api/v1/submit-job/", json=body) for n in range(9)]
    soonest = 599 - (time.monotonic() - began)
    assert [answer.status_code for answer in tried] == [400] * 3 + [429] * 6
    assert all(soonest <= int(answer.headers["Retry-After"]) <= 600 for answer in tried[3:])
    # Other users, and other things that this one asks for, have budgets of their own.
    assert clients[1].get("/api/v1/jobs/").status_code == 200
    assert of_one_user(servers, "carla")[2].request("POST", "/api/v1/submit-job/", json=body).status_code == 400
