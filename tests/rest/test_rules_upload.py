"""Rules 23 to 33 of docs/rest.md: uploads."""

import base64
import hashlib
import hmac
import json
import socket
import subprocess
import time
import uuid
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from . import storage
from .media import flat_video
from .server import TAKEN, raw_exchange
from .test_rules_authentication import defaults
from .test_specification import is_error

BLOB_NOT_FOUND = "Blob not found. Please verify the upload."


def target(url: str) -> str:
    """Path and query of an address."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


def is_not_uploaded(client, blob_name: str) -> None:
    is_error(client.try_submit(blob_name), 400, BLOB_NOT_FOUND)


def signed(server, method: str, blob: str, expires: float) -> str:
    """An address of our own, signed with the server's key: how old addresses are had without waiting."""
    secrets = json.loads((server.data / "secrets.json").read_text())
    key = secrets["signing_keys"][0]
    text = f"v1|{method}|{blob}|{int(expires)}||{key['id']}"
    tag = hmac.new(bytes.fromhex(key["secret"]), text.encode(), hashlib.sha256).digest()
    signature = base64.urlsafe_b64encode(tag).rstrip(b"=").decode()
    return f"{server.url}/blob/{blob}?se={int(expires)}&si={key['id']}&sig={signature}"


@pytest.mark.parametrize("headers", [
    {}, {"x-ms-blob-type": "BlockBlob", "x-ms-version": "2020-04-08"}, {"x-amz-acl": "private"}, {"Content-Type": "video/mp4"},
    {"Content-Type": "application/x-www-form-urlencoded"}, {"Authorization": "Bearer nonsense"}, {"If-None-Match": "*"},
    {"Expect": "100-continue"},
])
@storage.answered_by_us
def test_rule_23_and_rule_24_put_with_any_headers_is_201(alice, flat, headers):
    address = alice.upload_url()
    response = alice.put(address["url"], flat.read_bytes(), headers=headers)
    assert response.status_code == 201 and response.content == b""
    assert response.headers["Content-Length"] == "0"
    assert response.headers["ETag"].startswith('"') and response.headers["ETag"].endswith('"')
    assert alice.try_submit(address["blob_name"]).status_code == 201


@storage.answered_by_us
def test_rule_23_curl_uploads_with_T(alice, flat):
    address = alice.upload_url()
    command = ["curl", "-sS", "-f", "-T", flat, "-w", "%{http_code}", address["url"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "201", done.stderr
    assert alice.try_submit(address["blob_name"]).status_code == 201


@storage.answered_by_us
def test_rule_23_a_part_of_a_video_is_not_taken_for_the_whole(alice, flat):
    address, video = alice.upload_url(), flat.read_bytes()
    size, half = len(video), len(video) // 2
    first = alice.put(address["url"], video, headers={"Content-Range": f"bytes 0-{size - 1}/{size}"})
    assert first.status_code == 201
    for part, says in [
        (video[half:], f"bytes {half}-{size - 1}/{size}"), (video[:half], f"bytes 0-{half - 1}/{size}"),
        (video[:half], f"bytes 0-{half - 1}/*"), (video, "nonsense"),
    ]:
        is_error(refused := alice.put(address["url"], part, headers={"Content-Range": says}), 400)
        assert "Upload-Offset" in refused.json()["error"], says
    # Before it is read: who announces five bytes and sends none is answered too.
    head = f"PUT {target(address['url'])} HTTP/1.1\r\nHost: x\r\nContent-Range: bytes 5-9/10\r\nContent-Length: 5\r\n\r\n"
    assert raw_exchange(alice.server.port, head.encode()).startswith(b"HTTP/1.1 400 ")
    # What was there stays, and a job may have it.
    there = alice.request("HEAD", address["url"])
    assert there.headers["Upload-Complete"] == "?1" and there.headers["Upload-Offset"] == str(size)
    assert alice.try_submit(address["blob_name"]).status_code == 201


@storage.answered_by_us
def test_rule_23_post_is_405_and_an_upload_address_reads_nothing(alice, flat):
    address = alice.upload_url()
    response = alice.request("POST", address["url"], data=b"x")
    is_error(response, 405)
    assert "PUT" in response.headers["Allow"]
    assert alice.put(address["url"], flat.read_bytes()).status_code == 201
    is_error(alice.get(address["url"]), 403)
    assert alice.try_submit(address["blob_name"]).status_code == 201


def test_rule_25_generate_upload_url_is_200_with_two_fields(alice):
    response = alice.request("POST", "/api/v1/generate-upload-url/", json={"file_extension": "mp4", "extra": 1})
    assert response.status_code == 200
    # A store may want headers of the upload, and then it is told which.
    assert set(response.json()) - ({"headers"} if storage.IS_ASKED_FOR else set()) == {"url", "blob_name"}


@storage.answered_by_us
def test_rule_26_an_address_works_for_two_hours_and_then_no_more(server, alice, flat):
    limits = defaults()["limits"]
    assert limits["upload_lifetime_minutes"] == 120 and limits["upload_retention_hours"] == 24
    address = alice.upload_url()
    [expiry] = parse_qs(urlsplit(address["url"]).query)["se"]
    assert 7190 <= int(expiry) - time.time() <= 7210
    good = signed(server, "PUT", address["blob_name"], time.time() + 60)
    assert alice.put(good, flat.read_bytes()).status_code == 201
    is_error(alice.put(signed(server, "PUT", address["blob_name"], time.time() - 1), b"late"), 403)


@pytest.mark.parametrize("change", [
    lambda u: u[:-1] + ("A" if u[-1] != "A" else "Q"),
    lambda u: u + "=",
    lambda u: u.replace("se=", "se=9"),
    lambda u: u.replace("se=", "se=0"),
    lambda u: u + "&se=99999999999",
    lambda u: u.split("?")[0],
    lambda u: u.replace("sig=", "signature="),
    lambda u: u.replace(".mp4?", ".mov?"),
    lambda u: u.replace("videos/", "videos/../videos/"),
    lambda u: u.replace("videos/", "scenes/"),
], ids=range(10))
@storage.answered_by_us
def test_rule_26_an_altered_address_is_403(alice, change):
    address = alice.upload_url()
    path = target(change(address["url"]))
    head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"
    answer = raw_exchange(alice.server.port, head.encode())
    assert answer.split(b" ")[1] in (b"403", b"404"), answer
    is_not_uploaded(alice, address["blob_name"])


def test_rule_26_what_nobody_submits_is_collected_after_a_day(make_server, flat):
    server = make_server()
    anna = server.user("anna")
    old, recent, submitted = anna.upload(flat), anna.upload(flat), anna.upload(flat)
    job = anna.submit(submitted)
    server.stop()
    age = 25 * 3600 * 1_000_000
    with server.rows() as database:
        for blob in (old, submitted):
            changed = database.execute(
                "UPDATE uploads SET touched_at = touched_at - ?1, expires_at = expires_at - ?1 WHERE blob_name = ?2", (age, blob)
            )
            assert changed.rowcount == 1
    server.start()
    identity = old.split("/")[1].split(".")[0]
    end = time.monotonic() + 10
    # What was sent to a store and not submitted lies apart there.
    kept = lambda: server.files("videos", "incoming")
    while any(identity in name for name in kept()) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(identity in name for name in kept())
    assert len(kept()) == 2
    is_not_uploaded(anna, old)
    assert anna.try_submit(recent).status_code == 201
    assert anna.job(job)["job_id"] == job


@pytest.mark.parametrize("extension", ["mp4", "mov", "m4v", "mkv", "webm", "avi", "MP4", "WebM"])
def test_rule_27_video_types_in_any_case(alice, extension):
    address = alice.upload_url(extension)
    assert address["blob_name"].endswith("." + extension.lower())
    assert alice.put(address["url"], flat_video(extension.lower()).read_bytes()).status_code == TAKEN
    assert alice.try_submit(address["blob_name"]).status_code == 201


@pytest.mark.parametrize("extension", [
    ".mp4", "", " mp4", "mp4 ", "exe", "gif", "m3u8", "jpg", "a/mp4", "../mp4", "mp4/", "a\\mp4", "mp4\u0000", "mp4.mp4", "x" * 10_000,
])
def test_rule_27_another_extension_is_an_invalid_file_format(alice, extension):
    response = alice.request("POST", "/api/v1/generate-upload-url/", json={"file_extension": extension})
    is_error(response, 400, "Invalid file format")


@pytest.mark.parametrize("body", [{}, {"file_extension": None}, {"file_extension": 4}, {"file_extension": ["mp4"]}, {"extension": "mp4"}])
def test_rule_27_the_extension_is_required_and_a_string(alice, body):
    response = alice.request("POST", "/api/v1/generate-upload-url/", json=body)
    is_error(response, 400)
    assert "file_extension" in response.json()["error"]


@pytest.fixture(scope="module")
def small(make_server):
    """A server that takes at most 256 KiB."""
    return make_server({"limits": {"max_upload_bytes": 256 << 10}})


@pytest.fixture(scope="module")
def anna(small):
    return small.user("anna")


def test_rule_28_the_default_limit_is_5_gib():
    assert defaults()["limits"]["max_upload_bytes"] == 5 << 30


@storage.answered_by_us
def test_rule_28_an_announced_size_over_the_limit_is_refused_before_reading(small, anna):
    address = anna.upload_url()
    head = f"PUT {target(address['url'])} HTTP/1.1\r\nHost: x\r\nContent-Length: {(256 << 10) + 1}\r\n\r\n"
    answer = raw_exchange(small.port, head.encode())
    assert answer.startswith(b"HTTP/1.1 413 "), answer
    is_not_uploaded(anna, address["blob_name"])


@storage.answered_by_us
def test_rule_28_expect_100_continue_is_refused_without_a_body(small, anna):
    address = anna.upload_url()
    head = f"PUT {target(address['url'])} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000000000\r\n\r\n"
    assert raw_exchange(small.port, head.encode()).startswith(b"HTTP/1.1 413 ")


@storage.answered_by_us
def test_rule_28_the_limit_itself_is_allowed(anna):
    assert anna.put(anna.upload_url()["url"], bytes(256 << 10)).status_code == 201


@pytest.mark.parametrize("size", [(256 << 10) + 1, 3 << 20, 40 << 20])
@storage.answered_by_us
def test_rule_28_a_body_without_size_is_counted_and_refused(small, anna, size):
    address = anna.upload_url()
    piece = bytes(64 << 10)
    pieces = (piece[: min(len(piece), size - at)] for at in range(0, size, len(piece)))
    is_error(anna.put(address["url"], pieces), 413)
    assert small.files("staged") == []
    is_not_uploaded(anna, address["blob_name"])


@storage.answered_by_us
def test_rule_29_a_second_put_replaces_the_first_until_submitted(server, alice, flat):
    address = alice.upload_url()
    identity = address["blob_name"].split("/")[1].split(".")[0]
    first = alice.put(address["url"], b"not a video")
    assert first.status_code == 201
    is_error(alice.try_submit(address["blob_name"]), 400, "Invalid file format")
    second = alice.put(address["url"], flat.read_bytes())
    assert second.status_code == 201 and second.headers["ETag"] != first.headers["ETag"]
    assert len([name for name in server.files("videos") if identity in name]) == 1
    assert alice.put(address["url"], flat.read_bytes()).headers["ETag"] == second.headers["ETag"]
    assert alice.try_submit(address["blob_name"]).status_code == 201
    is_error(alice.put(address["url"], b"too late"), 409)
    [kept] = [name for name in server.files("videos") if identity in name]
    assert server.stored.read(kept) == flat.read_bytes()


@storage.answered_by_us
def test_rule_29_a_submission_while_a_put_is_on_its_way_keeps_its_input(server, alice, flat):
    address = alice.upload_url()
    assert alice.put(address["url"], flat.read_bytes()).status_code == 201
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        s.sendall(f"PUT {target(address['url'])} HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n".encode() + bytes(1000))
        time.sleep(0.2)
        assert alice.try_submit(address["blob_name"]).status_code == 201
        s.sendall(bytes(1000))
        assert s.recv(4096).startswith(b"HTTP/1.1 409 ")
    identity = address["blob_name"].split("/")[1].split(".")[0]
    [kept] = [name for name in server.files("videos") if identity in name]
    assert server.stored.read(kept) == flat.read_bytes()


def interrupt_put(server, url: str, framing: str, body: bytes) -> None:
    """Goes away in the middle of a PUT: after the server has begun to write, and until it has noticed."""
    wait = 30
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as s:
        s.sendall(f"PUT {target(url)} HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode() + body)
        end = time.monotonic() + wait
        while not server.files("staged"):
            assert time.monotonic() < end, "the server does not begin to write"
            time.sleep(0.01)
    end = time.monotonic() + wait
    while left := server.files("staged"):
        assert time.monotonic() < end, left
        time.sleep(0.01)


@pytest.mark.parametrize("framing", ["Content-Length: 100000", "Transfer-Encoding: chunked"])
@storage.answered_by_us
def test_rule_30_an_interrupted_put_leaves_nothing(server, alice, framing):
    address = alice.upload_url()
    body = b"%x\r\n" % 50_000 + bytes(50_000) + b"\r\n" if "chunked" in framing else bytes(50_000)
    interrupt_put(server, address["url"], framing, body)
    is_not_uploaded(alice, address["blob_name"])


@storage.answered_by_us
def test_rule_30_an_interrupted_put_does_not_replace_a_whole_one(server, alice, flat):
    address = alice.upload_url()
    assert alice.put(address["url"], flat.read_bytes()).status_code == 201
    interrupt_put(server, address["url"], "Content-Length: 100000", bytes(50_000))
    assert alice.try_submit(address["blob_name"]).status_code == 201


def digests(data: bytes) -> dict:
    sha = base64.b64encode(hashlib.sha256(data).digest()).decode()
    return {"Content-MD5": base64.b64encode(hashlib.md5(data).digest()).decode(), "Content-Digest": f"sha-256=:{sha}:"}


@pytest.mark.parametrize("name", ["Content-MD5", "Content-Digest"])
@storage.answered_by_us
def test_rule_31_announced_digests_are_checked(server, alice, flat, name):
    data = flat.read_bytes()
    address = alice.upload_url()
    for headers in [{name: digests(data + b"x")[name]}, {name: "nonsense"}]:
        if headers[name] == "nonsense" and name == "Content-Digest":
            headers[name] = "sha-256=:nonsense:"
        is_error(alice.put(address["url"], data, headers=headers), 400)
        is_not_uploaded(alice, address["blob_name"])
    response = alice.put(address["url"], data, headers={name: digests(data)[name]})
    assert response.status_code == 201
    with server.rows(read_only=True) as database:
        row = database.execute("SELECT sha256 FROM uploads WHERE blob_name = ?", (address["blob_name"],)).fetchone()
    assert row[0] == hashlib.sha256(data).digest()


def block_list(*ids: str) -> bytes:
    inner = "".join(f"<Latest>{i}</Latest>" for i in ids)
    return f'<?xml version="1.0" encoding="utf-8"?><BlockList>{inner}</BlockList>'.encode()


@storage.answered_by_us
def test_rule_32_a_video_in_blocks(server, alice, flat):
    data = flat.read_bytes()
    address = alice.upload_url()
    url, third = address["url"], len(data) // 3
    names = [base64.b64encode(f"{n:032}".encode()).decode() for n in range(4)]
    # In another order, one of them twice, one that is not used.
    for name, part in [(names[2], data[2 * third :]), (names[0], b"wrong"), (names[0], data[:third]),
                       (names[3], b"unused"), (names[1], data[third : 2 * third])]:
        response = alice.put(f"{url}&comp=block&blockid={quote(name, safe='')}", part)
        assert response.status_code == 201, response.text
    is_not_uploaded(alice, address["blob_name"])
    is_error(alice.put(f"{url}&comp=blocklist", block_list(*names[:3], "bm9uZQ==")), 400)
    is_not_uploaded(alice, address["blob_name"])
    response = alice.put(f"{url}&comp=blocklist", block_list(*names[:3]), headers={"x-ms-blob-content-type": "video/mp4"})
    assert response.status_code == 201 and response.headers["ETag"]
    assert alice.try_submit(address["blob_name"]).status_code == 201
    identity = address["blob_name"].split("/")[1].split(".")[0]
    [kept] = [name for name in server.files("videos") if identity in name]
    assert server.stored.read(kept) == data
    assert not any(identity in name for name in server.files("blocks"))
    is_error(alice.put(f"{url}&comp=block&blockid=AAAA", b"late"), 409)


@pytest.mark.parametrize("query", ["&comp=block", "&comp=block&blockid=", "&comp=block&blockid=" + "A" * 1000, "&comp=tags", "&comp="])
@storage.answered_by_us
def test_rule_32_wrong_blocks_are_400(alice, query):
    is_error(alice.put(alice.upload_url()["url"] + query, b"x"), 400)


@pytest.mark.parametrize("body", [
    b"", b"x", b"<BlockList/>", b"<BlockList><Latest>AAAA</Latest>", b"<Other/>", b"\xff\xfe",
    b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><BlockList><Latest>&x;</Latest></BlockList>',
    b'<!DOCTYPE a [<!ENTITY x "y"><!ENTITY z "&x;&x;">]><BlockList><Latest>&z;</Latest></BlockList>',
])
@storage.answered_by_us
def test_rule_32_a_wrong_list_of_blocks_is_400(alice, body):
    address = alice.upload_url()
    response = alice.put(address["url"] + "&comp=blocklist", body)
    is_error(response, 400)
    assert "root:" not in response.text


@storage.answered_by_us
def test_rule_33_pages_of_other_origins_are_kept_out_by_default(alice):
    address = alice.upload_url()
    response = alice.request("OPTIONS", address["url"], headers={"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"})
    assert not [name for name in response.headers if name.lower().startswith("access-control")]
    assert not [n for n in alice.get("/api/v1/jobs/", headers={"Origin": "https://a.example"}).headers if n.lower().startswith("access-control")]


@storage.answered_by_us
def test_rule_33_allowed_origins_may_use_the_blob_route_only(make_server, flat):
    server = make_server({"cors_origins": ["https://a.example"]})
    anna = server.user("anna")
    address = anna.upload_url()
    asked = {"Access-Control-Request-Method": "PUT"}
    response = anna.request("OPTIONS", address["url"], headers={"Origin": "https://a.example"} | asked)
    assert response.headers["Access-Control-Allow-Origin"] == "https://a.example"
    assert "PUT" in response.headers["Access-Control-Allow-Methods"]
    response = anna.put(address["url"], flat.read_bytes(), headers={"Origin": "https://a.example"})
    assert response.status_code == 201 and response.headers["Access-Control-Allow-Origin"] == "https://a.example"
    for origin in ("https://b.example", "null", "https://a.example.evil"):
        response = anna.request("OPTIONS", address["url"], headers={"Origin": origin} | asked)
        assert "Access-Control-Allow-Origin" not in response.headers
    response = anna.get("/api/v1/jobs/", headers={"Origin": "https://a.example"})
    assert "Access-Control-Allow-Origin" not in response.headers


def test_an_upload_of_an_unknown_blob_is_not_taken(server, alice):
    name = f"videos/{uuid.uuid4()}.mp4"
    assert alice.put(signed(server, "PUT", name, time.time() + 60), b"x").status_code in (403, 404)
    assert not any(name in file for file in server.files("videos"))
