"""Clients that hold connections, or flood them, and what others notice of it (rules 12, 88, 91 and 92 of docs/rest.md)."""

import contextlib
import random
import select
import signal
import socket
import struct
import threading
import time
import uuid
from pathlib import Path

import pytest
import requests

from . import http2, storage
from .http2 import ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame
from .server import raw_exchange
from .test_rules_upload import signed, target
from .test_specification import is_error

# How long a head may take, and an idle connection may stay: a few seconds, so that tests need not wait.
HEADER_TIMEOUT = 2
SHORT = {"header_timeout_seconds": HEADER_TIMEOUT, "idle_timeout_seconds": HEADER_TIMEOUT}


@pytest.fixture(scope="module")
def strict(make_server):
    """A server with short limits that speaks HTTP/2 without TLS."""
    return make_server({"h2c": True, "connections": SHORT})


@pytest.fixture(scope="module")
def patient(make_server):
    """One on which a head must come soon, and an idle connection may stay for long."""
    return make_server({"h2c": True, "connections": {"header_timeout_seconds": 3, "idle_timeout_seconds": 100}})


@contextlib.contextmanager
def answers_others(server, within: float = 5):
    """Meanwhile another client is answered, every time, within so many seconds."""
    done, slowest, failed = threading.Event(), [0.0], []

    def ask():
        while not done.wait(0.02):
            began = time.monotonic()
            try:
                assert requests.get(f"{server.url}/healthz", timeout=within).status_code == 200
            except (requests.RequestException, AssertionError) as fault:
                failed.append(fault)
            slowest[0] = max(slowest[0], time.monotonic() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not failed and slowest[0] < within, (failed, slowest)


def ask(connection: http2.Connection, stream: int, path: str = "/healthz") -> bytes:
    connection.send(frame(HEADERS, END_STREAM | END_HEADERS, stream, http2.get(path)))
    return connection.answer(stream)


def test_rule_91_a_connection_without_a_request_is_closed_however_lively_it_is(strict):
    connection = http2.Connection(strict.port)
    assert ask(connection, 1) == b'{"status":"ok"}'
    # As long as there are requests it stays.
    end = time.monotonic() + 2 * HEADER_TIMEOUT
    stream = 1
    while time.monotonic() < end:
        stream += 2
        assert ask(connection, stream)
        time.sleep(0.3)

    def ping():
        with contextlib.suppress(OSError):
            while True:
                connection.send(frame(PING, 0, 0, b"8 bytes."))
                time.sleep(0.2)

    threading.Thread(target=ping, daemon=True).start()
    began = time.monotonic()
    # It is told so, and with no error; as it does not answer to that, it gets a few more seconds.
    assert connection.end() == 0
    assert HEADER_TIMEOUT - 0.5 < time.monotonic() - began < 4 * HEADER_TIMEOUT + 10
    connection.close()


def test_rule_91_a_connection_that_never_asks_is_closed(strict):
    connection = http2.Connection(strict.port)
    began = time.monotonic()
    connection.end()
    assert time.monotonic() - began < HEADER_TIMEOUT + 10


def keep_open(server) -> socket.socket:
    """A connection of HTTP/1.1 with whose first request all is done."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    ask_again(connection)
    return connection


def ask_again(connection: socket.socket) -> bytes:
    """Asks once more; the answer."""
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = b""
    while not answer.endswith(b'{"status":"ok"}'):
        more = connection.recv(4096)
        assert more, answer
        answer += more
    assert answer.startswith(b"HTTP/1.1 200 ")
    return answer


def wait_for_end(connection: socket.socket) -> None:
    """Waits until the server ends the connection, no longer than the socket waits."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(4096):
            pass


def test_rule_91_a_client_that_comes_back_after_a_while_is_answered(patient):
    with keep_open(patient) as connection:
        # Longer than a head may take.
        time.sleep(6)
        ask_again(connection)
    connection = http2.Connection(patient.port)
    assert ask(connection, 1)
    time.sleep(6)
    assert ask(connection, 3)
    connection.close()


def test_rule_91_half_a_head_ends_a_connection_that_was_used_before(patient):
    with keep_open(patient) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        # Long before an idle connection ends.
        wait_for_end(connection)
    # That it comes byte by byte is no excuse.
    with socket.create_connection(("127.0.0.1", patient.port), timeout=30) as connection:
        connection.sendall(b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 404 ")
        for byte in b"GET /healthz":
            try:
                connection.sendall(bytes([byte]))
            except ConnectionError:
                break
            time.sleep(0.5)
        wait_for_end(connection)
    connection = http2.Connection(patient.port)
    assert ask(connection, 1)
    connection.send(frame(HEADERS, END_STREAM, 3, http2.get("/healthz")))
    connection.end()
    connection.close()


def test_rule_91_an_idle_connection_is_closed(strict):
    with keep_open(strict) as connection:
        wait_for_end(connection)


def test_rule_91_an_old_connection_of_http_1_ends_with_an_answer(make_server):
    server = make_server({"h2c": True, "connections": {"max_age_seconds": 2}})
    old = http2.Connection(server.port)
    with keep_open(server) as connection:
        assert ask(old, 1)
        # It is used all the time, and is told when it is old: it never ends between two answers.
        end, answer = time.monotonic() + 30, b""
        while b"\r\nconnection: close\r\n" not in answer.lower():
            assert time.monotonic() < end
            answer = ask_again(connection)
            time.sleep(0.3)
        wait_for_end(connection)
    with keep_open(server) as connection:
        # Without a request it stays, as long as any that is idle.
        time.sleep(4)
        assert b"\r\nconnection: close\r\n" in ask_again(connection).lower()
        wait_for_end(connection)
    # HTTP/2 is told without a request.
    assert wait_until(lambda: old.receive()[0] == http2.GOAWAY)
    old.close()


def test_rule_92_idle_connections_give_way_where_places_are_scarce(make_server):
    limits = {"header_timeout_seconds": 3, "idle_timeout_seconds": 100, "max_connections": 6, "max_connections_per_address": 0}
    server = make_server({"connections": limits})
    held = [keep_open(server)]
    time.sleep(6)
    ask_again(held[0])
    held += [keep_open(server) for _ in range(4)]
    try:
        # Some of them end, long before an idle connection does.
        assert wait_until(lambda: select.select(held, [], [], 0)[0], within=30)
        assert requests.get(f"{server.url}/healthz", timeout=5).status_code == 200
    finally:
        for connection in held:
            connection.close()


def test_rule_91_requests_that_are_taken_back_at_once_end_the_connection(strict):
    with answers_others(strict):
        connection = http2.Connection(strict.port)
        with contextlib.suppress(ConnectionError):
            for first in range(1, 40_000, 200):
                pairs = [
                    frame(HEADERS, END_STREAM | END_HEADERS, stream, http2.get("/api/v1/jobs/"))
                    + frame(RST_STREAM, 0, stream, b"\0\0\0\x08")
                    for stream in range(first, first + 200, 2)
                ]
                connection.send(*pairs)
        code = connection.end()
        # ENHANCE_YOUR_CALM, if the connection was not gone before that could be read.
        assert code in (11, None)
        connection.close()


def test_rule_91_a_head_without_an_end_ends_the_connection(strict):
    with answers_others(strict):
        connection = http2.Connection(strict.port)
        junk = http2.literal("x-more", "y" * 16_000)
        with pytest.raises(OSError):
            connection.send(frame(HEADERS, END_STREAM, 1, http2.get("/healthz")))
            for _ in range(100_000):
                connection.send(frame(CONTINUATION, 0, 1, junk))
        connection.close()
        with socket.create_connection(("127.0.0.1", strict.port), timeout=30) as plain, pytest.raises(OSError):
            plain.sendall(b"GET /healthz HTTP/1.1\r\n")
            for n in range(1_000_000):
                plain.sendall(b"X-%d: %s\r\n" % (n, b"y" * 1000))


def memory(server) -> float:
    """What the server's process has in memory, MiB."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def ask_and_take_nothing(server, path: str, count: int) -> list[http2.Connection]:
    """So many connections with 64 requests each, of whose answers one byte was taken."""
    connections = []
    for _ in range(count):
        connection = http2.Connection(server.port)
        connections.append(connection)
        # A window of one byte for each answer (RFC 9113, section 6.5.2).
        connection.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1)))
        connection.send(*(frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, http2.get(path)) for n in range(64)))
        begun = set()
        while len(begun) < 64:
            kind, _, stream, _ = connection.receive()
            assert kind != RST_STREAM
            if kind == DATA:
                begun.add(stream)
    return connections


@storage.answered_by_us
def test_rule_91_files_that_nobody_takes_fill_no_memory(make_server):
    server = make_server({"h2c": True})
    server.user("anna").upload(random.Random(1).randbytes(4 << 20), "mp4")
    [name] = server.files("videos")
    path = target(signed(server, "GET", name, time.time() + 600))
    assert len(requests.get(server.url + path, timeout=30).content) == 4 << 20
    before = memory(server)
    connections = ask_and_take_nothing(server, path, 4)
    # What is read ahead is read in a moment.
    time.sleep(1)
    assert memory(server) - before < 100
    for connection in connections:
        connection.close()
    assert len(requests.get(server.url + path, timeout=30).content) == 4 << 20


def test_rule_91_the_description_that_nobody_takes_fills_no_memory(make_server):
    server = make_server({"h2c": True})
    length = len(requests.get(f"{server.url}/openapi.json", headers={"Accept-Encoding": "identity"}, timeout=30).content)
    connections, taken = [], []
    # A request takes some memory whatever its answer.
    for path in ("/healthz", "/openapi.json"):
        before = memory(server)
        connections += ask_and_take_nothing(server, path, 16)
        taken.append(memory(server) - before)
    copies = 16 * 64 * length / 2**20
    assert taken[1] - taken[0] < copies / 3, (taken, copies)
    for connection in connections:
        connection.close()


def test_rule_91_lists_that_nobody_takes_are_given_up_to_a_limit(make_server, flat):
    server = make_server({"h2c": True})
    anna, eve = server.user("anna"), server.user("eve")
    # A thousand jobs with titles as long as they may be: more than a megabyte.
    job = anna.submit(flat, title="\N{DECIDUOUS TREE}" * 255)
    with server.rows() as database:
        columns = [one[0] for one in database.execute("SELECT * FROM jobs").description if one[0] not in ("seq", "job_id", "uploaded_at")]
        names = ", ".join(columns)
        rows = [(str(uuid.uuid4()), n, job) for n in range(1, 1500)]
        database.executemany(
            f"INSERT INTO jobs (job_id, uploaded_at, {names}) SELECT ?, uploaded_at + ?, {names} FROM jobs WHERE job_id = ?", rows
        )
    plain = {"Accept-Encoding": "identity"}
    for path in ("/api/v1/jobs/?limit=1000", "/api/v1/jobs/"):
        assert len(anna.get(path, headers=plain).content) > 1 << 20
        connection = http2.Connection(server.port)
        connection.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1)))
        more = http2.literal("authorization", f"Api-Key {anna.key}")
        connection.send(*(frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, http2.get(path, more)) for n in range(64)))
        heads = {}
        while len(heads) < 64:
            kind, _, stream, payload = connection.receive()
            assert kind != RST_STREAM
            if kind == HEADERS:
                heads[stream] = payload
        # The first refusal says it in full, later ones name it by its place in the table of this connection.
        taken = [stream for stream, head in heads.items() if head[0] == 0x88]
        refused = [head for head in heads.values() if head[0] != 0x88]
        assert http2.status(refused[0]) == 429
        # 32 MiB; of the longer list a part more is read for some.
        assert 10 < len(taken) < 40, len(taken)
        refused_too = anna.get(path, headers=plain)
        is_error(refused_too, 429)
        assert refused_too.headers["Retry-After"]
        # Short answers, and those to others, are given.
        assert anna.job(job)["job_id"] == job and eve.jobs() == []
        connection.close()
        assert wait_until(lambda path=path: anna.get(path, headers=plain).status_code == 200)


@storage.answered_by_us
def test_rule_91_who_takes_the_ends_of_many_answers_at_a_good_pace_gets_them(make_server):
    server = make_server({"h2c": True, "connections": SHORT})
    # So much is handed on at once, and the request is done.
    video = random.Random(2).randbytes(64 << 10)
    server.user("anna").upload(video, "mp4")
    [name] = server.files("videos")
    path = target(signed(server, "GET", name, time.time() + 600))
    connection = http2.Connection(server.port)
    # Room for all on the connection, and for one byte of each answer.
    connection.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1)), frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 24)))
    streams = range(1, 80, 2)
    connection.send(*(frame(HEADERS, END_STREAM | END_HEADERS, stream, http2.get(path)) for stream in streams))
    bodies = dict.fromkeys(streams, b"")
    while not all(bodies.values()):
        kind, _, stream, payload = connection.receive()
        if kind == DATA:
            bodies[stream] += payload
    began = time.monotonic()
    for stream in streams:
        time.sleep(0.3)
        connection.send(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", 1 << 16)))
        bodies[stream] += connection.answer(stream)
    # Longer than a connection has that is idle, and then is told to end.
    assert time.monotonic() - began > 4 * HEADER_TIMEOUT + 2
    assert set(bodies.values()) == {video}
    connection.close()


@storage.answered_by_us
def test_rule_91_a_stop_cuts_no_end_of_an_answer_from_a_client_that_goes_on_sending(make_server):
    server = make_server({"h2c": True})
    video = random.Random(4).randbytes(384 << 10)
    server.user("anna").upload(video, "mp4")
    [name] = server.files("videos")
    path = target(signed(server, "GET", name, time.time() + 600))
    # All may be sent, so that the last of it waits in the kernel of the server for a client that takes little at once.
    connection = http2.Connection(server.port, receive_buffer=32 << 10)
    room = struct.pack(">I", 1 << 20)
    connection.send(frame(SETTINGS, 0, 0, struct.pack(">H", 4) + room), frame(WINDOW_UPDATE, 0, 0, room))
    connection.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, http2.get(path)))
    body, told = b"", False
    with contextlib.suppress(EOFError):
        while True:
            kind, flags, _, payload = connection.receive()
            # Nobody hears that after the end.
            with contextlib.suppress(ConnectionError):
                if kind == PING and not flags & ACK:
                    connection.send(frame(PING, ACK, 0, payload))
                connection.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)))
            if kind == DATA:
                body += payload
                if not told:
                    server.process.send_signal(signal.SIGTERM)
                    told = True
                time.sleep(len(payload) / (256 << 10))
    assert body == video
    assert server.process.wait(10) == 0
    connection.close()


@storage.answered_by_us
def test_rule_91_an_answer_that_is_not_taken_ends_no_upload_beside_it(make_server):
    server = make_server({"h2c": True})
    client = server.user("anna")
    client.upload(random.Random(3).randbytes(1 << 20), "mp4")
    [name] = server.files("videos")
    connection = http2.Connection(server.port)
    # Of the answer one byte is taken, and then no more.
    connection.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1)))
    path = target(signed(server, "GET", name, time.time() + 600))
    connection.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, http2.get(path)))
    # Longer than a minute, and faster than an upload must be.
    seconds, block = 70, bytes(12 << 10)
    address = client.upload_url()
    length = http2.literal("content-length", str(seconds * len(block)))
    connection.send(frame(HEADERS, END_HEADERS, 3, http2.head("PUT", target(address["url"]), length)))
    statuses = {}

    def receive(within: float) -> None:
        """Takes what comes in so many seconds, but of an answer's bytes no more than there is room for."""
        end = time.monotonic() + within
        while select.select([connection.socket], [], [], max(0, end - time.monotonic()))[0]:
            kind, _, stream, payload = connection.receive()
            # A ping would wait behind what a slow client is sent, and its answer would come late.
            assert kind not in (RST_STREAM, PING)
            if kind == HEADERS:
                statuses[stream] = http2.status(payload)

    for n in range(seconds):
        connection.send(frame(DATA, END_STREAM if n == seconds - 1 else 0, 3, block))
        receive(1)
    assert wait_until(lambda: receive(0.1) or 3 in statuses)
    assert statuses == {1: 200, 3: 201}
    assert len(server.files("videos")) == 2
    connection.close()


def test_rule_91_an_answer_that_is_not_taken_ends_no_stream_of_events_at_once(make_server, flat):
    server = make_server({"h2c": True})
    client = server.user("anna")
    job = client.submit(flat)
    connection = http2.Connection(server.port)
    # No room for any answer but the events.
    connection.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
    connection.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, http2.get("/healthz")))
    more = http2.literal("authorization", f"Api-Key {client.key}") + http2.literal("accept", "text/event-stream")
    connection.send(frame(HEADERS, END_STREAM | END_HEADERS, 3, http2.get(f"/api/v1/jobs/{job}/report/", more)))
    connection.send(frame(WINDOW_UPDATE, 0, 3, struct.pack(">I", 1 << 20)))
    began, events, farewells = time.monotonic(), b"", []
    while events.count(b"event: report") < 2:
        assert time.monotonic() - began < 90
        kind, flags, stream, payload = connection.receive()
        if kind == PING and not flags & ACK:
            connection.send(frame(PING, ACK, 0, payload))
        if kind == DATA and stream == 3:
            events += payload
        if kind == http2.GOAWAY:
            # It takes no new requests, and what runs goes on.
            farewells.append(struct.unpack(">I", payload[4:8])[0])
            assert client.patch(job, {"title": "another title"}).status_code == 200
    assert time.monotonic() - began > 50 and set(farewells) == {0}
    connection.close()


def hold(server, count: int) -> list[socket.socket]:
    """So many open connections, each of which was answered; places of earlier clients may take a moment to become free."""
    held = []
    end = time.monotonic() + 10
    while len(held) < count:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        if connection.recv(1000).startswith(b"HTTP/1.1 200 "):
            held.append(connection)
        else:
            connection.close()
            assert time.monotonic() < end
    return held


def test_rule_92_beyond_their_number_connections_are_refused_at_once(make_server):
    server = make_server({"connections": {"max_connections": 8, "max_connections_per_address": 0}})
    held = hold(server, 8)
    try:
        began = time.monotonic()
        answer = raw_exchange(server.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert time.monotonic() - began < 3
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ") and b"Retry-After: " in head
        assert body == b'{"error":"Server is busy"}'
    finally:
        for connection in held:
            connection.close()
    assert wait_until(lambda: requests.get(f"{server.url}/healthz", timeout=5).status_code == 200)


def test_rule_92_one_address_cannot_have_all_connections(make_server):
    server = make_server({"connections": {"max_connections": 100, "max_connections_per_address": 10}})
    held = hold(server, 10)
    try:
        assert raw_exchange(server.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 503 ")
        # Another one has its own: this machine has many.
        with socket.create_connection(("127.0.0.1", server.port), timeout=30, source_address=("127.0.0.2", 0)) as other:
            other.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert other.recv(1000).startswith(b"HTTP/1.1 200 ")
    finally:
        for connection in held:
            connection.close()


def wait_until(reached, within: float = 10) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        if reached():
            return True
        time.sleep(0.05)
    return False


def slow_upload(server, url: str) -> socket.socket:
    """Begins an upload that does not go on."""
    path = url.removeprefix(server.url)
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    connection.sendall(f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx".encode())
    return connection


@storage.answered_by_us
def test_rule_88_the_slow_uploads_of_one_user_keep_out_no_other(make_server, flat):
    server = make_server({"connections": {"max_uploads": 3, "max_uploads_per_user": 2}})
    anna, eve = server.user("anna"), server.user("eve")
    held = [slow_upload(server, anna.upload_url()["url"]) for _ in range(2)]
    try:
        address = anna.upload_url()
        assert wait_until(lambda: anna.put(address["url"], b"x").status_code == 429)
        refused = anna.put(address["url"] + "&comp=blocklist", b"<BlockList/>")
        is_error(refused, 429)
        assert refused.headers["Retry-After"]
        eve.upload(flat)
        held.append(slow_upload(server, eve.upload_url()["url"]))
        assert wait_until(lambda: eve.put(eve.upload_url()["url"], b"x").status_code == 503)
    finally:
        for connection in held:
            connection.close()
    assert wait_until(lambda: anna.put(address["url"], flat.read_bytes()).status_code == 201)


@storage.answered_by_us
def test_rule_87_blocks_are_bounded_in_all(make_server):
    server = make_server({"limits": {"max_upload_bytes": 1000}})
    client = server.user("anna")
    url = client.upload_url()["url"]
    for name, size, status in [("AAAA", 600, 201), ("BBBB", 401, 413), ("AAAA", 1000, 201), ("AAAA", 600, 201), ("BBBB", 400, 201)]:
        response = client.put(f"{url}&comp=block&blockid={name}", b"x" * size)
        assert response.status_code == status, (name, size, response.text)
    chunks = (b"x" * 100 for _ in range(20))
    assert client.put(f"{url}&comp=block&blockid=CCCC", chunks).status_code == 413
    inner = "<Latest>AAAA</Latest><Latest>AAAA</Latest>"
    response = client.put(f"{url}&comp=blocklist", f"<BlockList>{inner}</BlockList>".encode())
    is_error(response, 400)
    assert "twice" in response.json()["error"]
    assert server.files("staged") == [] and server.files("videos") == []


@storage.answered_by_us
def test_rule_87_a_list_whose_answer_was_lost_is_answered_when_it_comes_again(make_server, flat):
    server = make_server()
    client = server.user("anna")
    address = client.upload_url()
    video = flat.read_bytes()
    for name, part in (("AAAA", video[:1000]), ("BBBB", video[1000:])):
        assert client.put(f"{address['url']}&comp=block&blockid={name}", part).status_code == 201
    body = b"<BlockList><Latest>AAAA</Latest><Latest>BBBB</Latest></BlockList>"
    path = address["url"].removeprefix(server.url) + "&comp=blocklist"
    head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as lost:
        lost.sendall(head.encode() + body)
    answers = [client.put(server.url + path, body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].headers["ETag"] == answers[1].headers["ETag"]
    assert len(server.files("videos")) == 1 and server.files("blocks") == [] and server.files("staged") == []
    assert client.try_submit(address["blob_name"]).status_code == 201


@storage.answered_by_us
def test_rule_89_without_space_it_is_507(make_server, flat):
    server = make_server({"min_free_bytes": 2**60})
    client = server.user("anna")
    url = client.upload_url()["url"]
    for data in (flat.read_bytes(), iter([b"x" * 1000])):
        is_error(client.put(url, data), 507, "Insufficient storage")
    response = client.put(url + "&comp=block&blockid=AAAA", b"x")
    is_error(response, 507, "Insufficient storage")
    assert response.headers["Retry-After"]
    is_error(client.try_submit("videos/00000000-0000-4000-8000-000000000000.mp4"), 507, "Insufficient storage")


def test_rule_90_metrics_are_for_operators(make_server):
    server = make_server({"trusted_proxies": ["127.0.0.1"], "operators": ["192.0.2.0/24"]})

    def status(client: str | None) -> int:
        headers = {} if client is None else {"X-Forwarded-For": client}
        return requests.get(f"{server.url}/metrics", headers=headers, timeout=30).status_code

    assert [status(c) for c in (None, "192.0.2.7", "127.0.0.1")] == [200, 200, 200]
    assert [status(c) for c in ("198.51.100.7", "2001:db8::1")] == [404, 404]
    # Who is named and cannot be read is not the proxy; a port beside the address is nothing to stumble over.
    assert [status(c) for c in ("\xe9", "192.0.2.7, \xe9", "unknown")] == [404, 404, 404]
    assert [status(c) for c in ("192.0.2.7:4711", "\xe9, 192.0.2.7", "[2001:db8::1]:4711")] == [200, 200, 404]


def test_rule_90_a_proxy_that_is_not_named_has_no_metrics_for_its_clients(make_server):
    server = make_server()

    def status(**headers) -> int:
        return requests.get(f"{server.url}/metrics", headers=headers, timeout=30).status_code

    assert status() == 200
    assert [status(**{"X-Forwarded-For": "127.0.0.1"}), status(Forwarded="for=192.0.2.7"), status(Via="1.1 proxy")] == [404] * 3


@storage.answered_by_us
def test_a_stop_is_announced_before_connections_are_refused(make_server, flat):
    server = make_server({"stop_delay_seconds": 5})
    client = server.user("anna")
    job = client.submit(flat)
    with keep_open(server) as kept, slow_upload(server, client.upload_url()["url"]) as upload:
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: requests.get(f"{server.url}/readyz", timeout=5).status_code == 503, within=3)
        is_error(requests.get(f"{server.url}/readyz", timeout=5), 503, "Server is stopping")
        # All else is served as ever, also who waits; connections that are kept for the next request move elsewhere.
        asked = time.monotonic()
        assert client.get(f"/api/v1/jobs/{job}/report/?wait=1").status_code == 200
        assert time.monotonic() - asked > 0.9
        assert b"\r\nconnection: close\r\n" in ask_again(kept).lower()
        upload.sendall(bytes(999_999))
        assert upload.recv(4096).startswith(b"HTTP/1.1 201 ")
        assert server.process.wait(20) == 0
        assert time.monotonic() - began > 4.5


def test_a_second_signal_waits_for_no_balancer(make_server):
    server = make_server({"stop_delay_seconds": 600})
    server.process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: requests.get(f"{server.url}/readyz", timeout=5).status_code == 503)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 130
