"""Rules 13 to 22 of docs/rest.md: authentication and limits."""

import json
import socket
import time
import tomllib
import uuid

import pytest

from .server import BINARY, CommandFailed
from .test_specification import ENDPOINTS, UNKNOWN, is_error


def defaults() -> dict:
    """The settings of a server for which nothing is set."""
    import subprocess

    done = subprocess.run([BINARY, "serve", "--print-config"], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
    return tomllib.loads(done.stdout)


def test_rule_13_unknown_malformed_and_revoked_keys_are_not_told_apart(server, fresh):
    made = server.command("keys", "create", fresh.name)
    server.command("keys", "revoke", fresh.name, made["prefix"])
    key = fresh.key
    flipped = key[:-1] + ("a" if key[-1] != "a" else "b")
    unknown = "lrk_" + "0" * 8 + "." + "0" * 43
    answers = []
    for value in [made["key"], flipped, unknown, "nonsense", "", "é" * 30, "x" * 5000]:
        client = type(fresh)(server, None)
        response = client.get("/api/v1/jobs/", headers={"Authorization": f"Api-Key {value}".encode()})
        is_error(response, 401, "Invalid API key")
        assert response.headers["WWW-Authenticate"] == 'Api-Key realm="api"'
        answers.append((response.content, sorted(set(response.headers) - {"date", "x-request-id"})))
    assert all(answer == answers[0] for answer in answers)


def ask_without_body(server, key: str, method: str, path: str, body: bytes) -> socket.socket:
    """Sends the head of a request, and of its body nothing yet."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Api-Key {key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    connection.sendall(head.encode())
    return connection


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the connection ends."""
    got = []
    while more := connection.recv(1 << 16):
        got.append(more)
    return b"".join(got)


@pytest.mark.parametrize(("loss", "status"), [("key", 401), ("tier", 403)])
def test_rule_13_a_body_that_comes_after_the_key_is_revoked_does_nothing(make_server, flat, loss, status):
    server = make_server()
    anna = server.user("anna")
    blob = anna.upload(flat)
    job, ended = anna.submit(blob), anna.submit(blob)
    assert anna.request("POST", f"/api/v1/jobs/{ended}/cancel/").status_code == 200
    second = server.client_with_new_key("anna")
    bodies = [
        ("PATCH", f"/api/v1/jobs/{job}/", {"title": "not mine any more"}),
        ("POST", f"/api/v1/jobs/{ended}/restart/", {}),
        ("POST", "/api/v1/generate-upload-url/", {"file_extension": "mp4"}),
        ("POST", "/api/v1/submit-job/", {"blob_name": blob}),
        ("POST", "/api/v1/webhooks/", {"url": "https://example.com/"}),
    ]
    begun = [(json.dumps(body).encode(), ask_without_body(server, second.key, method, path, json.dumps(body).encode()))
             for method, path, body in bodies]
    # Until they wait.
    time.sleep(1)
    if loss == "key":
        server.command("keys", "revoke", "anna", second.key.split(".")[0])
    else:
        server.command("users", "set-tier", "anna", "free")
    for (method, path, _), (body, connection) in zip(bodies, begun):
        connection.sendall(body)
        assert rest_of(connection).startswith(f"HTTP/1.1 {status} ".encode()), (method, path)
        connection.close()
    server.command("users", "set-tier", "anna", "enterprise")
    assert anna.job(job)["title"] != "not mine any more" and anna.get("/api/v1/webhooks/").json() == []
    assert {entry["job_id"] for entry in anna.jobs()} == {job, ended}


def test_rule_13_a_list_breaks_off_when_the_key_is_revoked(make_server, flat):
    server = make_server()
    anna = server.user("anna")
    # More than the buffers between the two ends take: a kilobyte each.
    job, count = anna.submit(flat, title="🌳" * 255), 15_000
    with server.rows() as database:
        columns = [one[0] for one in database.execute("SELECT * FROM jobs").description if one[0] not in ("seq", "job_id", "uploaded_at")]
        names = ", ".join(columns)
        database.executemany(
            f"INSERT INTO jobs (job_id, uploaded_at, {names}) SELECT ?, uploaded_at + ?, {names} FROM jobs WHERE job_id = ?",
            [(str(uuid.uuid4()), n, job) for n in range(1, count)],
        )

    def ask(client) -> socket.socket:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(f"GET /api/v1/jobs/ HTTP/1.1\r\nHost: x\r\nAuthorization: Api-Key {client.key}\r\n\r\n".encode())
        assert connection.recv(12) == b"HTTP/1.1 200"
        return connection

    end = b"]\r\n0\r\n\r\n"
    with ask(anna) as connection:
        got = bytearray()
        while not got.endswith(end):
            more = connection.recv(1 << 20)
            assert more
            got += more
        assert got.count(b'"job_id"') == count
    second = server.client_with_new_key("anna")
    with ask(second) as connection:
        time.sleep(1)
        server.command("keys", "revoke", "anna", second.key.split(".")[0])
        try:
            got = rest_of(connection)
        except ConnectionResetError:
            return
        assert not got.endswith(end) and got.count(b'"job_id"') < count


def test_rule_14_the_scheme_in_any_case_with_one_space_or_more(server, fresh):
    client = type(fresh)(server, None)
    for value in [f"api-key {fresh.key}", f"API-KEY {fresh.key}", f"Api-Key    {fresh.key}"]:
        assert client.get("/api/v1/jobs/", headers={"Authorization": value}).status_code == 200, value
    for value in [f"Api-Key{fresh.key}", f"Api-Key {fresh.key.upper()}", f"Api-Key {fresh.key.lower()}", f"Api-Key: {fresh.key}"]:
        assert client.get("/api/v1/jobs/", headers={"Authorization": value}).status_code == 401, value


def test_rule_15_a_downgraded_owner_is_forbidden_at_once(server, fresh, flat):
    job = fresh.submit(flat)
    server.command("users", "set-tier", fresh.name, "free")
    for method, path in ENDPOINTS + [("GET", f"/api/v1/jobs/{job}/")]:
        is_error(fresh.request(method, path, json={}), 403)
    server.command("users", "set-tier", fresh.name, "enterprise")
    assert fresh.job(job)["job_id"] == job


def test_rule_18_no_endpoint_makes_or_lists_keys(alice):
    for path in ("keys", "api-keys", "users", "me", "profile"):
        for method in ("GET", "POST"):
            is_error(alice.request(method, f"/api/v1/{path}/", json={}), 404)


def test_rule_18_commands_refuse_what_cannot_be(server, fresh):
    for arguments in [
        ("keys", "create", "nobody"), ("keys", "revoke", fresh.name, "lrk_00000000"), ("users", "add", fresh.name),
        ("users", "set-tier", fresh.name, "gold"), ("users", "add", ""), ("jobs", "show", UNKNOWN), ("jobs", "cancel", UNKNOWN),
    ]:
        with pytest.raises(CommandFailed):
            server.command(*arguments)


def test_rule_19_the_properties_of_keys_have_these_names(server, fresh):
    [key] = server.command("keys", "list", fresh.name)["keys"]
    assert {"name", "prefix", "created_at", "last_used"} <= set(key)


def test_rule_20_last_used_is_written_when_the_server_stops(make_server):
    server = make_server()
    client = server.user("anna")
    before = time.time()
    assert client.get("/api/v1/jobs/").status_code == 200
    assert server.stop() == 0
    from datetime import datetime

    [key] = server.command("keys", "list", "anna")["keys"]
    used = datetime.fromisoformat(key["last_used"]).timestamp()
    assert before - 1 <= used <= time.time()


def test_rule_21_defaults():
    limits = defaults()["rate_limits"]
    assert limits["requests_per_minute"] == 600 and limits["requests_burst"] == 120
    assert limits["submits_per_hour"] == 60 and limits["submits_burst"] == 10
    assert limits["uploads_per_hour"] == 60 and limits["uploads_burst"] == 10
    assert limits["failed_authentications_per_minute"] == 30


def is_rate_limited(response, rate: int, window: int) -> None:
    is_error(response, 429, "Rate limit exceeded")
    assert 1 <= int(response.headers["Retry-After"]) <= window
    assert "RateLimit" in response.headers
    assert f"q={rate}" in response.headers["RateLimit-Policy"] and f"w={window}" in response.headers["RateLimit-Policy"]


@pytest.fixture(scope="module")
def limited(make_server):
    return make_server({"rate_limits": {
        "requests_per_minute": 6, "requests_burst": 5, "submits_per_hour": 6, "submits_burst": 2,
        "uploads_per_hour": 6, "uploads_burst": 3, "failed_authentications_per_minute": 4,
    }})


def test_rule_21_limits_are_per_user_and_not_per_key(limited, flat):
    anna, ben = limited.user("anna"), limited.user("ben")
    second = limited.client_with_new_key("anna")
    codes = [client.get("/api/v1/jobs/").status_code for client in (anna, second) * 3]
    assert codes == [200] * 5 + [429]
    is_rate_limited(second.get("/api/v1/jobs/"), 6, 60)
    assert ben.get("/api/v1/jobs/").status_code == 200
    # Other kinds of requests have buckets of their own.
    blob = anna.upload(flat)
    assert [anna.try_submit(blob).status_code for _ in range(3)] == [201, 201, 429]
    is_rate_limited(anna.try_submit(blob), 6, 3600)
    anna.upload_url()
    anna.upload_url()
    response = anna.request("POST", "/api/v1/generate-upload-url/", json={"file_extension": "mp4"})
    is_rate_limited(response, 6, 3600)


def test_rule_21_failed_authentications_are_limited_by_address_and_a_genuine_key_is_not(limited):
    carl = limited.user("carl")
    stranger = type(carl)(limited, None)
    codes = [stranger.get("/api/v1/jobs/").status_code for _ in range(6)]
    assert codes[:4] == [401] * 4 and codes[4:] == [429] * 2
    response = stranger.get("/api/v1/jobs/")
    is_error(response, 429, "Rate limit exceeded")
    assert int(response.headers["Retry-After"]) >= 1
    assert carl.get("/api/v1/jobs/").status_code == 200


def test_rule_22_quota_of_waiting_jobs(make_server, flat):
    assert defaults()["limits"]["max_queued_jobs"] == 100
    server = make_server({"limits": {"max_queued_jobs": 2}})
    anna, ben = server.user("anna"), server.user("ben")
    blob = anna.upload(flat)
    first = anna.submit(blob)
    anna.submit(blob)
    is_error(anna.try_submit(blob), 429)
    ben.submit(flat)
    assert anna.delete(first).status_code == 204
    anna.submit(blob)


def test_rule_22_quota_of_stored_bytes(make_server, flat):
    size = flat.stat().st_size
    server = make_server({"limits": {"max_stored_bytes": size * 2 + size // 2}})
    anna = server.user("anna")
    first, _ = anna.submit(flat), anna.submit(flat)
    blob = anna.upload(flat)
    is_error(anna.try_submit(blob), 400)
    # Nor is anything else taken, whole or in blocks, but what takes the place of that video.
    other = anna.upload_url()["url"]
    if server.is_ours(other):
        for query in ("", "&comp=block&blockid=QUFB"):
            is_error(anna.put(other + query, b"a video"), 400)
    assert anna.delete(first).status_code == 204
    assert anna.try_submit(blob).status_code == 201
