"""Rule 100 of docs/rest.md: uploads that go on after a break."""

import socket
import threading
import time

import pytest
import requests

from . import many, storage
from .server import Client, raw_exchange
from .test_other_clients import content
from .test_rules_upload import digests, is_not_uploaded, signed, small, anna, target  # noqa: F401 (fixtures)
from .test_specification import is_error

PARTIAL = {"Content-Type": "application/partial-upload"}
pytestmark = storage.answered_by_us


def ask(client, url: str, **headers) -> requests.Response:
    """How much has come."""
    return client.request("HEAD", url, headers=headers)


def add(client, url: str, offset: int, data: bytes, complete: bool | None = None, **headers) -> requests.Response:
    said = {"Upload-Offset": str(offset)} | PARTIAL | ({} if complete is None else {"Upload-Complete": f"?{int(complete)}"})
    return client.request("PATCH", url, data=data, headers=said | headers)


def state(response: requests.Response) -> tuple[int, bool]:
    return int(response.headers["Upload-Offset"]), response.headers["Upload-Complete"] == "?1"


def limits(response: requests.Response) -> dict[str, int]:
    pairs = (pair.split("=") for pair in response.headers["Upload-Limit"].split(", "))
    return {name: int(value) for name, value in pairs}


def test_rule_100_a_video_comes_in_pieces(server, alice, flat):
    data, address = flat.read_bytes(), alice.upload_url()
    url, third = address["url"], len(data) // 3
    nothing = ask(alice, url)
    assert nothing.status_code == 204 and state(nothing) == (0, False) and "Upload-Length" not in nothing.headers
    assert nothing.headers["Cache-Control"] == "no-store"
    assert limits(nothing)["max-size"] == 5 << 30 and 7100 < limits(nothing)["max-age"] <= 7200
    for begin, end in ((0, third), (third, 2 * third)):
        answer = add(alice, url, begin, data[begin:end], False)
        assert answer.status_code == 204 and state(answer) == (end, False), answer.text
        assert state(ask(alice, url)) == (end, False)
    is_not_uploaded(alice, address["blob_name"])
    last = add(alice, url, 2 * third, data[2 * third :], True)
    assert last.status_code == 201 and last.content == b"" and state(last) == (len(data), True)
    assert last.headers["ETag"].startswith('"') and last.headers["Upload-Length"] == str(len(data))
    assert content(server, address["blob_name"]) == data
    # The answer was lost: whoever asks learns so, and whoever repeats the end is told the same.
    assert state(ask(alice, url)) == (len(data), True)
    again = add(alice, url, len(data), b"", True)
    assert again.status_code == 201 and again.headers["ETag"] == last.headers["ETag"]
    assert alice.try_submit(address["blob_name"]).status_code == 201
    for late in (ask(alice, url), add(alice, url, len(data), b"", True), alice.request("DELETE", url)):
        assert late.status_code == 409


def test_rule_100_a_put_begins_anew_and_can_be_gone_on_with(server, alice, flat):
    data, address = flat.read_bytes(), alice.upload_url()
    url = address["url"]
    assert add(alice, url, 0, b"something else", False).status_code == 204
    begun = alice.put(url, data[:100], headers={"Upload-Complete": "?0", "Upload-Length": str(len(data))})
    assert begun.status_code == 201 and state(begun) == (100, False)
    assert begun.headers["Location"] == url and "ETag" not in begun.headers
    assert ask(alice, url).headers["Upload-Length"] == str(len(data))
    # A length that is known says where the end is.
    done = add(alice, url, 100, data[100:], False)
    assert done.status_code == 201 and state(done) == (len(data), True)
    assert content(server, address["blob_name"]) == data
    whole = alice.put(url, data, headers={"Upload-Complete": "?1"})
    assert whole.status_code == 201 and state(whole) == (len(data), True)
    assert whole.headers["ETag"] == done.headers["ETag"]
    # One without such headers is as it was.
    plain = alice.put(url, data)
    assert plain.status_code == 201 and "Upload-Offset" not in plain.headers
    assert state(ask(alice, url)) == (len(data), True)


def test_rule_100_the_name_of_the_file_may_come_first(alice, flat):
    data, address = flat.read_bytes(), alice.upload_url()
    named = {"Content-Disposition": 'attachment; filename="Küche.mp4"'.encode()}
    add(alice, address["url"], 0, data[:50], False, **named)
    assert add(alice, address["url"], 50, data[50:], True).status_code == 201
    assert alice.try_submit(address["blob_name"]).json()["title"] == "Küche.mp4"


def test_rule_100_offsets_that_do_not_match_are_409(alice):
    address = alice.upload_url()
    url = address["url"]
    assert add(alice, url, 0, b"12345", False).status_code == 204
    for offset in (0, 4, 6, 10**14):
        answer = add(alice, url, offset, b"67", False)
        is_error(answer, 409)
        assert state(answer) == (5, False) and "5 bytes" in answer.json()["error"]
    assert add(alice, url, 5, b"", True).status_code == 201
    for data, complete in ((b"x", False), (b"x", True)):
        answer = add(alice, url, 5, data, complete)
        is_error(answer, 409)
        assert state(answer) == (5, True)


@pytest.mark.parametrize("headers", [
    {"Upload-Offset": "-1"}, {"Upload-Offset": "1e3"}, {"Upload-Offset": "9" * 16}, {"Upload-Offset": ""}, {"Upload-Offset": None},
    {"Upload-Complete": "true"}, {"Upload-Complete": None}, {"Upload-Length": "x"}, {"Upload-Length": "4"},
], ids=str)
def test_rule_100_wrong_headers_are_400(alice, headers):
    url = alice.upload_url()["url"]
    good = {"Upload-Offset": "0", "Upload-Complete": "?1"} | PARTIAL
    answer = alice.request("PATCH", url, data=b"12345", headers={name: value for name, value in (good | headers).items() if value is not None})
    is_error(answer, 400)
    assert state(ask(alice, url)) == (0, False)


def test_rule_100_lengths_fit_together(alice):
    url = alice.upload_url()["url"]
    assert add(alice, url, 0, b"123", False, **{"Upload-Length": "10"}).status_code == 204
    assert ask(alice, url).headers["Upload-Length"] == "10"
    is_error(add(alice, url, 3, b"4", False, **{"Upload-Length": "11"}), 400)
    is_error(add(alice, url, 3, bytes(8), False), 400)
    is_error(add(alice, url, 3, b"4", True), 400)
    assert state(ask(alice, url)) == (3, False)
    assert add(alice, url, 3, bytes(7), True).status_code == 201


@pytest.mark.parametrize("kind", ["video/mp4", "application/json", "application/offset+octet-stream", "partial-upload"])
def test_rule_100_another_type_is_415(alice, kind):
    url = alice.upload_url()["url"]
    answer = add(alice, url, 0, b"x", False, **{"Content-Type": kind})
    is_error(answer, 415)
    assert answer.headers["Accept-Patch"] == PARTIAL["Content-Type"]
    assert state(ask(alice, url)) == (0, False)


def test_rule_100_lengths_beyond_the_limit_are_413(small, anna):
    most = 256 << 10
    url = anna.upload_url()["url"]
    for answer in (
        add(anna, url, 0, bytes(most + 1), True), add(anna, url, 0, b"x", False, **{"Upload-Length": str(most + 1)}),
        add(anna, url, 0, (bytes(1 << 16) for _ in range(5)), True),
        anna.put(url, bytes(most + 1), headers={"Upload-Complete": "?1"}),
    ):
        is_error(answer, 413)
        assert limits(answer)["max-size"] == most
    assert add(anna, url, 0, bytes(most), False).status_code == 204
    is_error(add(anna, url, most, b"x", True), 413)
    assert add(anna, url, most, b"", True).status_code == 201
    assert small.files("staged") == small.files("blocks") == []


def test_rule_100_an_announced_transfer_of_too_much_is_refused_before_reading(small, anna):
    address = anna.upload_url()
    head = (f"PATCH {target(address['url'])} HTTP/1.1\r\nHost: x\r\nUpload-Offset: 0\r\nUpload-Complete: ?1\r\n"
            f"Content-Length: {(256 << 10) + 1}\r\nExpect: 100-continue\r\n\r\n")
    assert raw_exchange(small.port, head.encode()).startswith(b"HTTP/1.1 413 ")


def test_rule_100_without_space_it_is_507(make_server):
    server = make_server({"limits": {"max_upload_bytes": 1 << 60}})
    ben = server.user("ben")
    head = (f"PATCH {target(ben.upload_url()['url'])} HTTP/1.1\r\nHost: x\r\nUpload-Offset: 0\r\nUpload-Complete: ?1\r\n"
            f"Content-Length: {1 << 50}\r\nExpect: 100-continue\r\n\r\n")
    assert raw_exchange(server.port, head.encode()).startswith(b"HTTP/1.1 507 ")


def test_rule_100_a_signature_is_needed_and_reads_nothing(server, alice, flat):
    address = alice.upload_url()
    old = signed(server, "PUT", address["blob_name"], time.time() - 1)
    read = signed(server, "GET", address["blob_name"], time.time() + 60)
    altered = address["url"].replace("se=", "se=9")
    for url in (old, altered, read, address["url"].split("?")[0]):
        assert ask(alice, url).status_code in (403, 404)
        is_error(add(alice, url, 0, b"x", False), 403)
        is_error(alice.request("DELETE", url), 403)
    assert add(alice, address["url"], 0, flat.read_bytes(), False).status_code == 204
    is_error(alice.get(address["url"]), 403)


def test_rule_100_what_has_come_can_be_forgotten(server, alice, flat):
    address = alice.upload_url()
    url = address["url"]
    add(alice, url, 0, b"wrong", False, **{"Upload-Length": "100"})
    answer = alice.request("DELETE", url)
    assert answer.status_code == 204 and answer.content == b""
    assert state(ask(alice, url)) == (0, False) and "Upload-Length" not in ask(alice, url).headers
    assert add(alice, url, 0, flat.read_bytes(), True).status_code == 201
    # What is complete stays until another takes its place.
    assert alice.request("DELETE", url).status_code == 204
    assert state(ask(alice, url)) == (flat.stat().st_size, True)
    assert alice.try_submit(address["blob_name"]).status_code == 201


@pytest.mark.parametrize("name", ["Content-MD5", "Content-Digest"])
def test_rule_31_and_rule_100_digests_of_a_transfer_are_checked(alice, flat, name):
    data, url = flat.read_bytes(), alice.upload_url()["url"]
    assert add(alice, url, 0, data[:50], False, **{name: digests(data[:50])[name]}).status_code == 204
    is_error(add(alice, url, 50, data[50:], True, **{name: digests(data)[name]}), 400)
    assert state(ask(alice, url)) == (50, False)
    assert add(alice, url, 50, data[50:], True, **{name: digests(data[50:])[name]}).status_code == 201


class Slow:
    """A PATCH that has sent a part of what it announced, and waits."""

    def __init__(self, server, url: str, offset: int, part: bytes, announced: int):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        head = (f"PATCH {target(url)} HTTP/1.1\r\nHost: x\r\nUpload-Offset: {offset}\r\nUpload-Complete: ?1\r\n"
                f"Content-Type: application/partial-upload\r\nContent-Length: {announced}\r\n\r\n")
        self.socket.sendall(head.encode() + part)
        # It is noted when it begins.
        identity = url.split("/videos/")[1].split(".")[0]
        end = time.monotonic() + 30
        while not any(identity in name for name in server.files("blocks")):
            assert time.monotonic() < end, "the server does not begin to write"
            time.sleep(0.01)


def test_rule_100_what_came_before_a_break_is_kept(server, alice, flat):
    data, address = flat.read_bytes(), alice.upload_url()
    url, half = address["url"], len(data) // 2
    Slow(server, url, 0, data[:half], len(data)).socket.close()
    # At once, as a client does that was started again.
    assert state(ask(alice, url)) == (half, False)
    assert ask(alice, url).headers["Upload-Length"] == str(len(data))
    assert add(alice, url, half, data[half:], True).status_code == 201
    assert content(server, address["blob_name"]) == data
    assert server.files("staged") == []


@pytest.mark.skipif(many.IS_ASKED_FOR, reason="another server sees what a transfer has brought once it is stored")
def test_rule_100_who_asks_ends_a_transfer_that_hangs(server, alice, flat):
    """A line that is dead at one end only: what it has brought counts, and the sender goes on by another."""
    data, address = flat.read_bytes(), alice.upload_url()
    url, half = address["url"], len(data) // 2
    hanging = Slow(server, url, 0, data[:half], len(data))
    assert state(ask(alice, url)) == (half, False)
    assert hanging.socket.recv(4096).startswith(b"HTTP/1.1 409 ")
    hanging.socket.close()
    assert add(alice, url, half, data[half:], True).status_code == 201
    assert content(server, address["blob_name"]) == data


def test_rule_100_of_two_clients_at_once_one_is_told(server, alice):
    address = alice.upload_url()
    pieces = [bytes([number]) * 300_000 for number in range(4)]
    answers = [None] * len(pieces)

    def send(number: int) -> None:
        answers[number] = add(Client(server, alice.key), address["url"], 0, pieces[number], True)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(len(pieces))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = sorted(answer.status_code for answer in answers)
    assert set(codes) <= {201, 409}, codes
    # What is there is what one of them sent, or the beginning of it; never a mixture.
    arrived = ask(alice, address["url"])
    if state(arrived)[1]:
        assert content(server, address["blob_name"]) in pieces
    else:
        assert 201 not in codes


def test_rule_100_somebody_elses_upload_is_not_touched(server, alice, bob):
    address, other = alice.upload_url(), bob.upload_url()
    assert add(alice, address["url"], 0, b"mine", False).status_code == 204
    swapped = address["url"].replace(address["blob_name"], other["blob_name"])
    is_error(add(alice, swapped, 0, b"x", False), 403)
    assert state(ask(bob, other["url"])) == (0, False)


def test_rule_100_a_killed_server_has_what_filled_a_block(make_server):
    server = make_server()
    anna, size = server.user("anna"), 20 << 20
    data = bytes(range(256)) * (size // 256)
    address = anna.upload_url()
    slow = Slow(server, address["url"], 0, data[: 18 << 20], size)
    end = time.monotonic() + 30
    while len([name for name in server.files("blocks")]) < 3:
        assert time.monotonic() < end, server.files("blocks")
        time.sleep(0.01)
    server.kill()
    slow.socket.close()
    server.start()
    arrived = ask(anna, address["url"])
    assert state(arrived) == (16 << 20, False) and arrived.headers["Upload-Length"] == str(size)
    assert add(anna, address["url"], 16 << 20, data[16 << 20 :], True).status_code == 201
    assert content(server, address["blob_name"]) == data


def test_rule_100_pages_of_other_origins(make_server):
    server = make_server({"cors_origins": ["https://a.example"]})
    anna = server.user("anna")
    url = anna.upload_url()["url"]
    response = anna.request("OPTIONS", url, headers={
        "Origin": "https://a.example", "Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "upload-offset"})
    assert {"PATCH", "DELETE", "HEAD"} <= set(response.headers["Access-Control-Allow-Methods"].split(", "))
    assert response.headers["Access-Control-Allow-Headers"] == "upload-offset"
    assert "Upload-Offset" in ask(anna, url, Origin="https://a.example").headers["Access-Control-Expose-Headers"]


def test_rule_100_options_say_what_an_address_can_do(alice):
    response = alice.request("OPTIONS", alice.upload_url()["url"])
    assert response.status_code == 204 and "PATCH" in response.headers["Allow"]
    assert response.headers["Accept-Patch"] == "application/partial-upload"
    assert limits(response) == {"max-size": 5 << 30}
    assert response.headers["Tus-Version"] == "1.0.0" and response.headers["Tus-Extension"] == "creation,creation-defer-length,termination"


TUS = {"Tus-Resumable": "1.0.0"}


def test_rule_100_tus(server, alice, flat):
    data, address = flat.read_bytes(), alice.upload_url()
    url = address["url"]

    def tus(method: str, body: bytes = b"", **headers) -> requests.Response:
        return alice.request(method, url, data=body, headers=TUS | headers)

    asked = tus("HEAD")
    assert asked.status_code == 200 and asked.headers["Upload-Offset"] == "0" and asked.headers["Upload-Defer-Length"] == "1"
    assert asked.headers["Tus-Resumable"] == "1.0.0" and asked.headers["Cache-Control"] == "no-store"
    stream = {"Content-Type": "application/offset+octet-stream"}
    added = tus("PATCH", data[:20], **{"Upload-Offset": "0", "Upload-Length": str(len(data))}, **stream)
    assert added.status_code == 204 and added.headers["Upload-Offset"] == "20"
    asked = tus("HEAD")
    assert asked.headers["Upload-Length"] == str(len(data)) and "Upload-Defer-Length" not in asked.headers
    is_error(tus("PATCH", b"x", **{"Upload-Offset": "21"}, **stream), 409)
    is_error(tus("PATCH", b"x", **{"Upload-Offset": "20"}, **PARTIAL), 415)
    old = alice.request("HEAD", url, headers={"Tus-Resumable": "0.2.2"})
    assert old.status_code == 412 and old.headers["Tus-Version"] == "1.0.0"
    added = tus("PATCH", data[20:], **{"Upload-Offset": "20"}, **stream)
    assert added.status_code == 204 and added.headers["Upload-Offset"] == str(len(data))
    assert content(server, address["blob_name"]) == data
    assert tus("DELETE").status_code == 204
    # POST on an upload address is a 405 (rule 23), whatever is said with it.
    assert alice.request("POST", url, headers=TUS | {"Upload-Length": "3"}).status_code == 405


def test_rule_100_tus_begins_at_an_address_of_its_own(server, small, anna, alice, flat):  # noqa: F811
    data, address = flat.read_bytes(), alice.upload_url()
    at = address["url"].replace("/blob/", "/tus/")

    def begin(client=alice, url=at, **headers) -> requests.Response:
        return client.request("POST", url, headers=TUS | headers)

    metadata = "filename S8O8Y2hlLm1wNA==,is_confidential,other dHdv"
    begun = begin(**{"Upload-Length": str(len(data)), "Upload-Metadata": metadata})
    assert begun.status_code == 201 and begun.headers["Location"] == address["url"]
    assert begun.headers["Tus-Resumable"] == "1.0.0" and begun.headers["Upload-Offset"] == "0"
    asked = alice.request("HEAD", address["url"], headers=TUS)
    assert (asked.headers["Upload-Offset"], asked.headers["Upload-Length"]) == ("0", str(len(data)))
    stream = {"Content-Type": "application/offset+octet-stream"}
    added = alice.request("PATCH", address["url"], data=data, headers=TUS | stream | {"Upload-Offset": "0"})
    assert added.status_code == 204 and content(server, address["blob_name"]) == data
    assert alice.try_submit(address["blob_name"]).json()["title"] == "Küche.mp4"
    is_error(begin(**{"Upload-Length": "3"}), 409)

    other = alice.upload_url()["url"].replace("/blob/", "/tus/")
    assert begin(url=other, **{"Upload-Defer-Length": "1"}).status_code == 201
    for wrong in ({}, {"Upload-Length": "x"}, {"Upload-Length": "3", "Upload-Metadata": "filename ***"}, {"Upload-Defer-Length": "2"}):
        is_error(begin(url=other, **wrong), 400)
    is_error(alice.request("POST", other, headers={"Upload-Length": "3"}), 412)
    is_error(begin(url=other.replace("sig=", "sig=A"), **{"Upload-Length": "3"}), 403)
    is_error(begin(anna, anna.upload_url()["url"].replace("/blob/", "/tus/"), **{"Upload-Length": str((256 << 10) + 1)}), 413)
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        assert alice.request(method, other, headers=TUS).status_code == 405
    options = alice.request("OPTIONS", other)
    assert options.status_code == 204 and options.headers["Tus-Extension"] == "creation,creation-defer-length,termination"
