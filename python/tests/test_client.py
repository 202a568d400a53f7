"""The client against a real server: limits, broken connections, TLS. What it shares with `Engine` is in tests/behaviour."""

import asyncio
import json
import os
import socket
import subprocess
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from rest.server import BINARY, Server

import libreconstruct as lr
from libreconstruct._http import refused, retry_after

from .conftest import QUICK, SETTINGS

if not BINARY.exists():
    pytest.exit(f"{BINARY} is missing: cargo build --release -p libreconstruct-server, or set RECONSTRUCT", 2)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"), {"workers": 1, **SETTINGS}).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def key(server) -> str:
    return server.user("alice").key


class CutProxy:
    """Passes bytes to and from a server, and cuts the first connections after so many bytes of the answer."""

    def __init__(self, target: str, cuts: list[int]):
        self._target = urlsplit(target)
        self._cuts = cuts
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            left = self._cuts.pop(0) if self._cuts else None
            server = socket.create_connection((self._target.hostname, self._target.port))
            threading.Thread(target=self._pass, args=(client, server, None), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, left), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket, left: int | None) -> None:
        try:
            while block := source.recv(4096):
                if left is not None:
                    block, left = block[:left], left - len(block)
                sink.sendall(block)
                if left is not None and left <= 0:
                    break
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self._listener.close()


def test_a_wrong_key_is_an_auth_error(server):
    with pytest.raises(lr.AuthError) as caught:
        lr.Client(server.url, "lrk_wrong").jobs()
    assert caught.value.slug == "unauthenticated" and isinstance(caught.value, PermissionError)


def test_the_line_end_of_a_key_from_a_file_is_no_part_of_it(server, key):
    assert isinstance(lr.Client(server.url, f"{key}\n").jobs(), list)


class Clock:
    """Time that only passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


async def awaited(job: lr.Job) -> None:
    await job


@pytest.mark.parametrize("poll_seconds", [2.0, 15.0])
@pytest.mark.parametrize("wait", [
    lambda job: job.wait(),
    lambda job: job.wait(1000),
    lambda job: list(job.events()),
    lambda job: asyncio.run(awaited(job)),
])  # fmt: skip
def test_a_waiting_client_asks_no_more_often_than_it_was_told(wait, poll_seconds, monkeypatch):
    clock = Clock()
    for module in ("_client", "_job"):
        monkeypatch.setattr(f"libreconstruct.{module}.time", clock)
    client = lr.Client("http://nowhere.example", "key", poll_seconds=poll_seconds)
    asked: list[float] = []

    def get(job_id: str) -> dict[str, object]:
        asked.append(clock.now)
        state = "Finished" if clock.now > 300 else "Processing video"
        return {"job_id": job_id, "title": "slow", "status": state, "percent_complete": None}

    for name in ("_get", "_look"):
        monkeypatch.setattr(client, name, get)
    wait(client.job("some id"))
    pauses = [round(after - before, 6) for before, after in zip(asked, asked[1:]) if after > before]
    assert pauses[0] == 0.25 and pauses == sorted(pauses), "soon at first, then more and more patient"
    assert pauses[-1] == pytest.approx(poll_seconds) and sum(p < 0.99 * poll_seconds for p in pauses) < 12
    assert 300 < asked[-1] <= 300 + 2 * poll_seconds


def test_a_wait_that_ends_has_asked_at_its_end(monkeypatch):
    clock = Clock()
    for module in ("_client", "_job"):
        monkeypatch.setattr(f"libreconstruct.{module}.time", clock)
    client = lr.Client("http://nowhere.example", "key", poll_seconds=60)

    def get(job_id: str) -> dict[str, object]:
        state = "Finished" if clock.now > 74 else "Processing video"
        return {"job_id": job_id, "title": "slow", "status": state, "percent_complete": None}

    for name in ("_get", "_look"):
        monkeypatch.setattr(client, name, get)
    job = client.job("some id")
    with pytest.raises(lr.DeadlineError):
        job.wait(30)
    assert clock.now == pytest.approx(30) and job.wait(45).status == "Finished" and clock.now == pytest.approx(75)


class Busy:
    """A server that answers a job's reader with what is listed, then with a job that is finished."""

    def __init__(self, clock: Clock, monkeypatch: pytest.MonkeyPatch):
        self.answers: list[Reply] = []
        self.asked: list[float] = []
        self.clock = clock
        for module in ("_client", "_job", "_http"):
            monkeypatch.setattr(f"libreconstruct.{module}.time", clock)

    def __call__(self, method: str, path: str, headers: Mapping[str, str]) -> "Reply":
        self.asked.append(self.clock.now)
        if self.answers:
            return self.answers.pop(0)
        return 200, {}, json.dumps({"job_id": "some id", "title": "a", "status": "Finished", "percent_complete": 100}).encode()


WAITING = 200, {}, b'{"job_id": "some id", "title": "a", "status": "Queued", "percent_complete": null}'


def test_what_a_server_asks_for_is_waited_out_and_told(monkeypatch, caplog):
    busy = Busy(Clock(), monkeypatch)
    # More often than a request is tried again that failed, and longer than half a minute.
    busy.answers = [(429, {"Retry-After": "40"}, b"")] * 7
    with small_server(busy) as url, lr.Client(url, "key") as client:
        assert client.job("some id").is_done and busy.clock.now == 280
        assert "is busy and asks to wait for 40 s" in caplog.text
        busy.answers = [(429, {"Retry-After": "40"}, b"")] * 8
        with pytest.raises(lr.RateLimitedError):
            client.job("some id")


def test_who_waits_and_asks_too_often_asks_less_often(monkeypatch):
    busy = Busy(Clock(), monkeypatch)
    busy.answers = [WAITING] + [(429, {"Retry-After": "1"}, b"")] * 20 + [WAITING] * 10
    with small_server(busy) as url, lr.Client(url, "key") as client:
        assert client.job("some id").wait().is_done
    pauses = [after - before for before, after in zip(busy.asked, busy.asked[1:])]
    assert len(pauses) == 31 and 2.8 <= pauses[1] <= 4 and 21 <= pauses[-1] <= 30 and pauses[1:] == pytest.approx(sorted(pauses[1:]))


def test_a_server_that_finds_itself_asked_too_often_is_not_away(monkeypatch):
    busy = Busy(Clock(), monkeypatch)
    busy.answers = [WAITING, (502, {}, b""), *[(429, {"Retry-After": "1"}, b"")] * 40, (502, {}, b"")]
    with small_server(busy) as url, lr.Client(url, "key") as client:
        assert client.job("some id").wait().is_done
    assert busy.clock.now > 600


@pytest.mark.parametrize("seconds", [300, 900])
@pytest.mark.parametrize("status", [500, 502])
def test_who_waits_bears_a_server_that_is_away(status, seconds, monkeypatch, caplog):
    busy = Busy(Clock(), monkeypatch)
    busy.answers = [WAITING] + [(status, {}, b"")] * (seconds // 2)
    with small_server(busy) as url, lr.Client(url, "key") as client:
        if seconds < 600:
            assert client.job("some id").wait().is_done
        else:
            with pytest.raises(lr.ServerConnectionError):
                client.job("some id").wait()
            assert 600 <= busy.clock.now < 620
    assert caplog.text.count(f"the server answers {status}; job some id goes on") == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_wait_ends_in_time_whatever_the_server_answers(status, monkeypatch):
    busy = Busy(Clock(), monkeypatch)
    busy.answers = [WAITING] + [(status, {"Retry-After": "100"} if status in (429, 503) else {}, b"")] * 100
    with small_server(busy) as url, lr.Client(url, "key") as client:
        job = client.job("some id")
        with pytest.raises(lr.DeadlineError):
            job.wait(30)
    assert busy.clock.now == pytest.approx(30)


def test_a_full_disk_of_the_server_is_a_storage_error():
    answer = types.SimpleNamespace(status=507, body=b'{"error": "Insufficient storage"}', headers={})
    error = refused(answer)
    assert isinstance(error, lr.StorageError) and (error.slug, error.message) == ("disk_full", "Insufficient storage")


@pytest.mark.parametrize(("status", "headers", "body", "kind", "slug"), [
    (502, {}, b"<html>Bad Gateway</html>", lr.ServerConnectionError, "io"),
    (504, {}, b"", lr.ServerConnectionError, "io"),
    (503, {}, b"", lr.ServerConnectionError, "io"),
    (503, {"Retry-After": "600"}, b"busy", lr.RateLimitedError, "too_many_requests"),
    (503, {"Retry-After": "600"}, b'{"error": "away", "code": "disk_full"}', lr.StorageError, "disk_full"),
    (500, {}, b'{"error": "Internal server error"}', lr.InternalError, "internal"),
])  # fmt: skip
def test_a_server_that_is_away_is_no_fault_of_it(status, headers, body, kind, slug):
    def reply(method: str, path: str, asked: Mapping[str, str]) -> Reply:
        return status, headers, body

    with small_server(reply) as url, lr.Client(url, "key", retries=1) as client:
        with pytest.raises(kind) as caught:
            client.jobs()
    assert caught.value.slug == slug and type(caught.value) is kind
    if kind is lr.RateLimitedError:
        assert caught.value.retry_after == 600.0


def test_no_server_is_a_connection_error():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(lr.ServerConnectionError, match=str(port)) as caught:
        lr.Client(f"http://127.0.0.1:{port}", "key", retries=1).jobs()
    assert isinstance(caught.value, ConnectionError)


def test_a_busy_server_is_given_the_time_that_it_asks_for(tmp_path):
    limits = {"requests_per_minute": 60, "requests_burst": 2, "submits_per_hour": 1, "submits_burst": 1, "uploads_per_hour": 0}
    server = Server(tmp_path, {"rate_limits": limits}).start()
    try:
        client = lr.Client(server.url, server.user("alice").key)
        began = time.monotonic()
        for _ in range(4):
            client.jobs()
        assert time.monotonic() - began > 1.5, "the third and fourth had to wait a second each"
        client = lr.Client(server.url, server.user("bob").key, longest_wait=0.5)
        with pytest.raises(lr.RateLimitedError) as caught:
            for _ in range(5):
                client.jobs()
        assert caught.value.retry_after == 1.0
    finally:
        server.stop()


def test_retry_after_is_a_number_or_a_point_in_time():
    assert retry_after("12") == 12.0 and retry_after(None) is None and retry_after("soon") is None
    assert 8 < retry_after(formatdate(time.time() + 10, usegmt=True)) <= 10
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


def test_a_broken_connection_is_tried_again(server, key):
    # The first two break before anything came, the third within the head.
    proxy = CutProxy(server.url, [0, 0, 20])
    with lr.Client(proxy.url, key) as client:
        assert isinstance(client.jobs(), list)
        assert proxy.connections == 4
        client.jobs()
        assert proxy.connections == 4, "the connection stays open"
    proxy.close()


def test_a_submission_whose_answer_is_lost_is_made_once(server, flat):
    user = server.user("carol")
    proxy = CutProxy(server.url, [])
    with lr.Client(proxy.url, user.key) as client:
        upload = client._http.api("POST", "generate-upload-url/", {"file_extension": "mp4"}).json()
        client._http.send("PUT", upload["url"], lambda: flat.open("rb"), {"Content-Length": str(flat.stat().st_size)})
        client.close()
        proxy._cuts = [30]
        body = {"blob_name": upload["blob_name"]}
        job = client._http.api("POST", "submit-job/", body, {"Idempotency-Key": '"once"'}).json()
        assert [j.job_id for j in client.jobs()] == [job["job_id"]]
    proxy.close()


def test_a_cancellation_whose_answer_is_lost_is_done(flat, tmp_path):
    server = Server(tmp_path, {"workers": 0}).start()
    try:
        user = server.user("alice")
        proxy = CutProxy(server.url, [])
        with lr.Client(proxy.url, user.key) as client:
            job = client.submit(flat)
            client.close()
            proxy._cuts = [30]
            assert job.cancel().status == "Failed" and job.failure["code"] == "cancelled"
            with pytest.raises(lr.ConflictError, match="ended"):
                job.cancel()
        proxy.close()
    finally:
        server.stop()


def test_a_broken_download_goes_on_where_it_was(server, key, capture, tmp_path):
    direct = lr.Client(server.url, key, poll_seconds=0.5)
    seen: list[lr.Progress] = []
    job = direct.submit(capture, title="through a bad line", progress=seen.append, **QUICK).wait(300)
    assert seen[-1].fraction == 1.0 and seen[-1].stage == "upload"
    expected = job.download("ply", tmp_path / "whole.ply").read_bytes()
    # The redirect names the host by which it was asked, so the file comes through the same proxy.
    proxy = CutProxy(server.url, [20_000, 20_000])
    with lr.Client(proxy.url, key) as client:
        path = client.job(job.job_id).download("ply", tmp_path / "pieces.ply")
        assert path.read_bytes() == expected and len(expected) > 40_000
        assert proxy.connections >= 3
    proxy.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pieces.ply", "whole.ply"]
    with pytest.raises(lr.ConflictError, match="ended"):
        job.cancel()
    assert "the scene is done" in job.log()
    job.delete()
    with pytest.raises(lr.NotFoundError):
        job.refresh()


@contextmanager
def file_in_chunks(content: bytes, etag: str | None, cuts: list[int]) -> Iterator[str]:
    """The address of a server whose one file comes in chunks, without its length; the first answers are cut after so many bytes."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path != "/file":
                self.send_response(302)
                self.send_header("Location", "/file")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            begin = int(self.headers.get("Range", "bytes=0-")[6:-1])
            self.send_response(206 if begin else 200)
            self.send_header("Transfer-Encoding", "chunked")
            if etag is not None:
                self.send_header("ETag", etag)
            self.end_headers()
            left = cuts.pop(0) if cuts else len(content)
            for start in range(begin, len(content), 1 << 16):
                if left < 0:
                    self.close_connection = True
                    return
                chunk = content[start : start + (1 << 16)]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                left -= len(chunk)
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_download_whose_length_is_not_told_is_whole_or_fails(tmp_path):
    content = os.urandom(3 << 20)
    for etag, cuts in [(None, []), ('"a"', [3 << 19, 100])]:
        with file_in_chunks(content, etag, cuts) as url, lr.Client(url, "key") as client:
            seen: list[lr.Progress] = []
            path = lr.Job(client, "some id", "garden").download("ply", tmp_path / "scene.ply", progress=seen.append)
            assert path.read_bytes() == content and cuts == []
            assert seen[-1].message == f"{len(content) / 1e6:.1f} MB"
            path.unlink()
    with file_in_chunks(content, None, [3 << 19]) as url, lr.Client(url, "key") as client:
        with pytest.raises(lr.ServerConnectionError):
            lr.Job(client, "some id", "garden").download("ply", tmp_path / "scene.ply")
    assert list(tmp_path.iterdir()) == []


Reply = tuple[int, dict[str, str], bytes]


@contextmanager
def small_server(reply: Callable[[str, str, Mapping[str, str]], Reply]) -> Iterator[str]:
    """The address of a server that answers with what `reply(method, path, headers)` says: status, headers, body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, body = reply(self.command, self.path, self.headers)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_file_comes_from_where_its_storage_sends_on_to(status, tmp_path):
    asked: list[tuple[str, str | None]] = []
    steps = 3

    def reply(method: str, path: str, headers: Mapping[str, str]) -> Reply:
        asked.append((path, headers.get("Authorization")))
        if path.startswith("/api/"):
            return 302, {"Location": f"/step/{steps}"}, b""
        left = int(path.removeprefix("/step/"))
        return (status, {"Location": str(left - 1)}, b"it has moved") if left else (200, {}, b"the scene")

    with small_server(reply) as url, lr.Client(url, "key") as client:
        job = lr.Job(client, "some id", "garden")
        assert job.download("ply", tmp_path / "scene.ply").read_bytes() == b"the scene"
        assert [path for path, _ in asked[1:]] == ["/step/3", "/step/2", "/step/1", "/step/0"]
        assert all((key is not None) == path.startswith("/api/") for path, key in asked), "the key goes to the server alone"
        steps = 100
        with pytest.raises(lr.ServerConnectionError, match="redirected 6 times"):
            job.download("spz", tmp_path / "scene.spz")
    assert [path.name for path in tmp_path.iterdir()] == ["scene.ply"]


@pytest.mark.parametrize("status", [203, 204, 206, 300, 304, 307])
def test_what_is_no_file_is_not_taken_for_one(status, tmp_path):
    def reply(method: str, path: str, headers: Mapping[str, str]) -> Reply:
        if path.startswith("/api/"):
            return 302, {"Location": "/file"}, b""
        return status, {}, b"" if status in (204, 304) else b"no scene"

    with small_server(reply) as url, lr.Client(url, "key") as client:
        with pytest.raises(lr.ServerConnectionError, match=f"status {status}"):
            lr.Job(client, "some id", "garden").download("ply", tmp_path / "scene.ply")
    assert list(tmp_path.iterdir()) == []


def test_what_is_sent_elsewhere_is_not_done(tmp_path):
    asked: list[str] = []

    def reply(method: str, path: str, headers: Mapping[str, str]) -> Reply:
        asked.append(f"{method} {path}")
        if path == "/api/v1/generate-upload-url/":
            address = {"url": f"http://{headers['Host']}/put?sig=secret", "blob_name": "videos/x.mp4"}
            return 200, {}, json.dumps(address).encode()
        return 307, {"Location": "https://elsewhere.example/put?sig=secret"}, b""

    video = tmp_path / "a.mp4"
    video.write_bytes(b"some video")
    with small_server(reply) as url, lr.Client(url, "key") as client:
        with pytest.raises(lr.ServerConnectionError, match="https://elsewhere.example") as caught:
            client.submit(video)
        assert "secret" not in str(caught.value) and "submit-job" not in "".join(asked)
        with pytest.raises(lr.ServerConnectionError, match="redirect"):
            lr.Job(client, "some id", "garden").delete()
    assert asked[-2:] == ["PUT /put?sig=secret", "DELETE /api/v1/jobs/some%20id/"]


@pytest.mark.parametrize("raised", [OSError("the display is gone"), BrokenPipeError("nobody reads"), TimeoutError()])
def test_what_a_callable_raises_is_no_broken_connection(raised, tmp_path):
    asked: list[str] = []
    told = 0

    def reply(method: str, path: str, headers: Mapping[str, str]) -> Reply:
        asked.append(method)
        address = {"url": f"http://{headers['Host']}/put", "blob_name": "videos/x.mp4"}
        return 200, {}, json.dumps(address).encode()

    def hear(progress: lr.Progress) -> None:
        nonlocal told
        told += 1
        raise raised

    video = tmp_path / "a.mp4"
    video.write_bytes(os.urandom(3 << 20))
    with small_server(reply) as url, lr.Client(url, "key", timeout=20) as client:
        began = time.monotonic()
        with pytest.raises(type(raised)) as caught:
            client.submit(video, progress=hear)
        assert caught.value is raised and told == 1 and time.monotonic() - began < 5
    assert asked[0] == "POST" and "POST" not in asked[1:], "nothing was submitted"


def test_a_connection_serves_one_request_at_a_time(tmp_path):
    with file_in_chunks(b"content", None, []) as url, lr.Client(url, "key") as client:
        artifact = client._open("some id", "ply")
        assert artifact.read(100) == b"content" and artifact.read(100) == b""
        for _ in range(3):
            artifact.close()
        assert [len(idle) for idle in client._http._idle.values()] == [1]


def test_tls_is_checked(tmp_path, flat):
    certificate, private_key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", private_key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    config = {"tls_certificate": str(certificate), "tls_key": str(private_key)}
    server = Server(tmp_path / "server", config)
    server.scheme = "https"
    server.start()
    try:
        key = server.user("alice").key
        with pytest.raises(lr.ServerConnectionError, match="certificate"):
            lr.Client(server.url, key).jobs()
        with lr.Client(server.url, key, ca_file=str(certificate)) as client:
            assert client.submit(flat, title="in the dark").title == "in the dark"
    finally:
        server.stop()
