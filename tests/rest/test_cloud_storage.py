"""Videos and scenes in a cloud storage (rules 25, 68, 70 and 83 of docs/rest.md): the real server over PostgreSQL and stores that speak
like S3, Azure and Google Cloud Storage. Its secrets come as a variable of the environment.

LIBRECONSTRUCT_TEST_LARGE_UPLOAD_MIB sets the size of the large upload. 5120 is the largest video that may be; that takes minutes, and
room for three of it on the disk of temporary files.
"""

import base64
import hashlib
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

import pytest
import requests
import stores
from prerequisites import is_missing
from stores.body import PIECE
from stores.door import Door

from . import media, postgres
from .server import ENDINGS, CommandFailed, Server

LARGEST = 4 << 20
# How long the addresses of files hold (rule 68), and those of uploads (rule 26).
DOWNLOAD_SECONDS, UPLOAD_SECONDS = 15 * 60, 2 * 60 * 60
# Between the signature of an address and the look at it, on a machine that is busy.
LOOKED_AT_WITHIN = timedelta(seconds=60)
# Of a large upload, which is sent in one request where the store takes it so, and which is above the size up to which a server looks at
# all of a video.
SIZE = int(os.environ.get("LIBRECONSTRUCT_TEST_LARGE_UPLOAD_MIB", "160")) << 20
# What a server looks at of a larger one: 16 MiB at each end.
LOOKED_AT = 32 << 20
# Within these a large upload goes through two programs in Python, or is copied by the store.
WITHIN_SECONDS = 120 + (SIZE >> 20) / 10
# Azure takes no more in one request; its clients send more in blocks.
AZURE_AT_ONCE = 5000 << 20


class CloudServer(Server):
    """A server that has nothing of the service in its folder."""

    def __init__(self, folder: Path, variables: dict, config: dict):
        super().__init__(folder, config)
        # Also where all other servers keep their files in one store.
        self.config |= config
        self.variables = variables

    def _environment(self, more: dict | None = None) -> dict:
        return super()._environment() | self.variables | (more or {})


def variables(running: stores.Stores) -> dict:
    keys = [{"id": secrets.token_hex(4), "secret": secrets.token_hex(32)} for _ in range(2)]
    text = json.dumps({"pepper": secrets.token_hex(32), "signing_keys": keys})
    return running.environment() | {"LIBRECONSTRUCT_SECRETS_JSON": text}


@pytest.fixture(scope="module", params=["s3", "az", "gs"])
def running(request):
    """A store, and its scheme."""
    with stores.started((request.param,)) as found:
        if request.param in found.missing:
            is_missing("stores", found.missing[request.param])
        yield found, request.param


def looks_at_signatures(server: "CloudServer") -> bool:
    """Whether the store behind `server` does: the tests' own translator for Google Cloud Storage does not."""
    return not server.config["storage"].startswith("gs:")


@pytest.fixture(scope="module")
def cloud(running, tmp_path_factory):
    """A server over the store, and a user of it."""
    found, scheme = running
    config = {
        "workers": 1,
        "database": postgres.cluster().database(),
        "storage": found.place(scheme),
        "limits": {"max_upload_bytes": LARGEST},
    }
    server = CloudServer(tmp_path_factory.mktemp("cloud"), variables(found), config)
    anna = server.start().user("anna")
    yield server, anna
    server.stop()


def curl_put(address: dict, path: Path, *headers: str, within: float = 120) -> int:
    """Sends a file as people do, with the headers that are needed and more, each once; the status of the answer."""
    given = {header.split(":")[0].lower() for header in headers}
    needed = [f"{name}: {value}" for name, value in address.get("headers", {}).items() if name.lower() not in given]
    options = [part for header in (*needed, *headers) for part in ("-H", header)]
    command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-T", path, *options, address["url"]]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=within).stdout)


def put_in_blocks(address: dict, path: Path, block_size: int) -> int:
    """Sends a file to Azure as its clients send large ones; the bytes of all bodies."""
    names, sent = [], 0
    with path.open("rb") as video:
        while block := video.read(block_size):
            names.append(base64.b64encode(f"{len(names):08}".encode()).decode())
            url = f"{address['url']}&comp=block&blockid={quote(names[-1], safe='')}"
            answer = requests.put(url, data=block, timeout=WITHIN_SECONDS)
            assert answer.status_code == 201, answer.text
            sent += len(block)
    latest = "".join(f"<Latest>{name}</Latest>" for name in names)
    blocks = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{latest}</BlockList>'.encode()
    url = f"{address['url']}&comp=blocklist"
    answer = requests.put(url, data=blocks, headers={"Content-Type": "application/xml"}, timeout=WITHIN_SECONDS)
    assert answer.status_code == 201, answer.text
    return sent + len(blocks)


def is_at_the_store(url: str, server: Server) -> bool:
    return urlsplit(url).netloc != urlsplit(server.url).netloc


def holds_for(url: str, seconds: int) -> None:
    """Checks that a store's address holds for so long from now, as it says itself."""
    query = dict(parse_qsl(urlsplit(url).query))
    if "se" in query:
        # Azure's says when it ends.
        end = datetime.strptime(query["se"], "%Y-%m-%dT%H:%M:%SZ")
    else:
        (maker,) = (maker for maker in ("Amz", "Goog") if f"X-{maker}-Expires" in query)
        assert query[f"X-{maker}-Expires"] == str(seconds)
        end = datetime.strptime(query[f"X-{maker}-Date"], "%Y%m%dT%H%M%SZ") + timedelta(seconds=seconds)
    left = end.replace(tzinfo=timezone.utc) - datetime.now(timezone.utc)
    whole = timedelta(seconds=seconds)
    assert whole - LOOKED_AT_WITHIN < left <= whole, (url, left)


def test_rule_83_the_whole_way_and_no_server_sees_the_bytes(cloud, running, tmp_path):
    server, anna = cloud
    address = anna.upload_url()
    assert is_at_the_store(address["url"], server)
    holds_for(address["url"], UPLOAD_SECONDS)
    assert set(address) - {"headers"} == {"url", "blob_name"}
    assert anna.try_submit(address["blob_name"]).json() == {"error": "Blob not found. Please verify the upload."}
    disposition = "attachment; filename*=UTF-8''K%C3%BCche%201.mp4"
    names = [f"Content-Disposition: {disposition}", f"x-ms-blob-content-disposition: {disposition}"]
    assert curl_put(address, media.capture(), *names) in (200, 201)
    job = anna.submit(address["blob_name"])
    assert anna.job(job)["title"] == "Küche 1.mp4"
    # The address is still good; what comes now is nothing to the job.
    poem = tmp_path / "poem.mp4"
    poem.write_text("a poem")
    assert curl_put(address, poem) in (200, 201)
    assert anna.wait(job)["status"] == "Finished"
    files = {"ply": b"ply\n", "spz": b"\x1f\x8b", "preview": b"\xff\xd8", "report": b"{", "log": b"", "cameras": b"PK", "sog": b"PK", "poses": b"\xff\xd8"}
    for kind, begin in files.items():
        path = f"/api/v1/jobs/{job}/" + ("preview/" if kind == "preview" else f"download/{kind}/")
        redirect = anna.get(path)
        assert (redirect.status_code, redirect.headers["Cache-Control"], redirect.content) == (302, "no-store", b"")
        assert is_at_the_store(redirect.headers["Location"], server)
        holds_for(redirect.headers["Location"], DOWNLOAD_SECONDS)
        found = requests.get(redirect.headers["Location"], timeout=60)
        assert found.status_code == 200 and found.content.startswith(begin)
        assert found.headers["Content-Type"] == ("image/jpeg" if kind == "preview" else "application/octet-stream")
        saved = f"attachment; filename*=UTF-8''K%C3%BCche%201.mp4.{ENDINGS[kind]}"
        assert found.headers.get("Content-Disposition") == (None if kind == "preview" else saved)
        altered = redirect.headers["Location"].replace("sig", "gis").replace("Signature=", "Signature=0")
        if looks_at_signatures(server):
            assert requests.get(altered, timeout=60).status_code in (400, 401, 403)
        assert anna.request("HEAD", path).status_code == 302
    # Every file is where its row says, in its size.
    found = server.command("doctor")
    assert [f for f in found["findings"] if f["severity"] == "problem"] == [], found
    # What the store loses is taken back.
    place = running[0].look(server.config["storage"])
    (preview,) = [name for name in place.names() if job in name and name.endswith("/1.jpg")]
    place.remove(preview)
    with pytest.raises(CommandFailed, match="artifact_lost"):
        server.command("doctor")
    assert [r["code"] for r in server.command("doctor", "--repair")["repaired"]] == ["artifact_lost"]
    assert (anna.get(f"/api/v1/jobs/{job}/preview/").status_code, anna.job(job)["status"]) == (404, "Finished")
    # Once more from the same video.
    assert anna.try_submit(address["blob_name"]).status_code == 201


def test_rule_83_headers_of_azures_clients_do_no_harm(cloud):
    _, anna = cloud
    for more in ((), ("x-ms-blob-type: BlockBlob",), ("Content-Type: video/mp4", "x-ms-version: 2023-11-03")):
        address = anna.upload_url()
        assert curl_put(address, media.capture(), *more) in (200, 201), more
        response = anna.try_submit(address["blob_name"])
        assert response.status_code == 201, response.text
        assert anna.delete(response.json()["job_id"]).status_code == 204


def test_rule_83_a_video_comes_to_azure_in_blocks(cloud, running):
    server, anna = cloud
    if running[1] != "az":
        pytest.skip("blocks to a signed address are Azure's: the others sign one request, a PUT of the whole video")
    address = anna.upload_url()
    assert is_at_the_store(address["url"], server)
    put_in_blocks(address, media.capture(), 10_000)
    job = anna.submit(address["blob_name"])
    place, identity = running[0].look(server.config["storage"]), address["blob_name"].removeprefix("videos/").split(".")[0]
    kept = [name for name in place.names() if name.startswith("videos/") and identity in name]
    assert [place.read(name) for name in kept] == [media.capture().read_bytes()]
    assert anna.delete(job).status_code == 204


def test_rule_83_what_is_no_video_is_refused_and_a_better_one_is_taken(cloud, tmp_path):
    _, anna = cloud
    address = anna.upload_url()
    poem = tmp_path / "poem.mp4"
    poem.write_text("#EXTM3U\n/etc/passwd\n")
    assert curl_put(address, poem) in (200, 201)
    refused = anna.try_submit(address["blob_name"])
    assert (refused.status_code, refused.json()) == (400, {"error": "Invalid file format"})
    assert curl_put(address, media.capture()) in (200, 201)
    assert anna.delete(anna.submit(address["blob_name"])).status_code == 204


def test_rule_83_what_is_too_large_is_refused_at_its_submission(cloud, tmp_path):
    _, anna = cloud
    address = anna.upload_url()
    large = tmp_path / "large.mp4"
    large.write_bytes(bytes(LARGEST + 1))
    assert curl_put(address, large) in (200, 201)
    refused = anna.try_submit(address["blob_name"])
    assert (refused.status_code, refused.json()) == (413, {"error": f"The video is larger than {LARGEST} bytes"})
    assert anna.try_submit(address["blob_name"]).json() == {"error": "Blob not found. Please verify the upload."}


def md5(data: bytes) -> str:
    return "Content-MD5: " + base64.b64encode(hashlib.md5(data).digest()).decode()


def test_rule_83_what_does_not_fit_its_digest_is_refused_by_the_store(cloud):
    """All three check it: SeaweedFS, also behind Google's dialect, and Azurite."""
    _, anna = cloud
    address = anna.upload_url()
    video = media.capture().read_bytes()
    assert curl_put(address, media.capture(), md5(video + b"x")) == 400
    refused = anna.try_submit(address["blob_name"])
    assert (refused.status_code, refused.json()) == (400, {"error": "Blob not found. Please verify the upload."})
    assert curl_put(address, media.capture(), md5(video)) in (200, 201)
    assert anna.delete(anna.submit(address["blob_name"])).status_code == 204


def test_rule_83_an_address_is_for_one_video_and_for_sending_only(cloud):
    server, anna = cloud
    if not looks_at_signatures(server):
        pytest.skip("what speaks like Google Cloud Storage here does not look at signatures")
    address = anna.upload_url()
    other = anna.upload_url()["blob_name"]
    assert curl_put(address, media.capture()) in (200, 201)
    assert requests.get(address["url"], timeout=60).status_code in (400, 401, 403)
    elsewhere = address | {"url": address["url"].replace(address["blob_name"].removeprefix("videos/"), other.removeprefix("videos/"))}
    assert elsewhere["url"] != address["url"]
    assert curl_put(elsewhere, media.capture()) in (400, 401, 403)


@pytest.mark.parametrize("place", ["submit.copied", "submit.taken_in", "submit.added"])
def test_rule_47_a_server_that_is_killed_while_it_submits_loses_nothing(running, tmp_path, place):
    found, scheme = running
    config = {"workers": 0, "database": postgres.cluster().database(), "storage": found.place(scheme)}
    server = CloudServer(tmp_path / "server", variables(found), config)
    anna = server.start(environment={"FAILPOINTS": f"{place}=return(kill)"}).user("anna")
    address = anna.upload_url()
    assert curl_put(address, media.capture()) in (200, 201)
    key = {"Idempotency-Key": f'"{uuid.uuid4()}"'}
    with pytest.raises(requests.RequestException):
        anna.try_submit(address["blob_name"], headers=key)
    assert server.process.wait(30) == -signal.SIGKILL
    server.start()
    again = anna.try_submit(address["blob_name"], headers=key)
    assert again.status_code == 201, again.text
    assert again.headers.get("Idempotency-Replayed") == ("true" if place == "submit.added" else None)
    assert [job["job_id"] for job in anna.jobs()] == [again.json()["job_id"]]
    server.stop()


def test_what_watches_a_way_passes_a_body_on_as_it_comes():
    with socket.create_server(("127.0.0.1", 0)) as behind:
        behind.settimeout(10)
        door = Door(behind.getsockname()[1])
        try:
            with socket.create_connection(("127.0.0.1", door.port), timeout=10) as client:
                head = f"PUT /large HTTP/1.1\r\nHost: store\r\nContent-Length: {2 * PIECE}\r\n\r\n"
                client.sendall(head.encode() + bytes(PIECE))
                store, _ = behind.accept()
                with store:
                    store.settimeout(10)
                    arrived = 0
                    while arrived < PIECE:
                        more = len(store.recv(1 << 16))
                        assert more > 0, "it was cut off"
                        arrived += more
        finally:
            door.close()


def test_rule_83_a_large_upload_touches_no_server(running, tmp_path):
    """All ways to the servers and to the store are watched: what a client sends passes through its own way to the store alone."""
    found, scheme = running
    storage = found.place(scheme)
    port = found.look(storage).port if scheme != "gs" else urlsplit(parse_qs(urlsplit(storage).query)["endpoint"][0]).port
    of_servers, of_clients = Door(port, WITHIN_SECONDS), Door(port, WITHIN_SECONDS)
    endpoint = parse_qs(urlsplit(storage).query)["endpoint"][0]
    named = storage.replace(f":{port}", f":{of_servers.port}") + "&public_endpoint=" + endpoint.replace(f":{port}", f":{of_clients.port}")
    server = CloudServer(tmp_path / "server", variables(found), {"workers": 0, "database": postgres.cluster().database(), "storage": named})
    server.start()
    requests_to_server = Door(server.port, WITHIN_SECONDS)
    server.url_of_a_request = lambda: f"http://127.0.0.1:{requests_to_server.port}"
    try:
        anna = server.user("anna")
        address = anna.upload_url()
        video = tmp_path / "large.mp4"
        flat = media.flat_video().read_bytes()
        # A box of the container that readers pass over, its size in 64 bits where 32 do not hold it.
        rest = SIZE - len(flat)
        video.write_bytes(flat + (struct.pack(">I4s", rest, b"free") if rest < 1 << 32 else struct.pack(">I4sQ", 1, b"free", rest)))
        os.truncate(video, SIZE)
        before = of_servers.bytes_in + of_servers.bytes_out
        if scheme == "az" and SIZE > AZURE_AT_ONCE:
            sent = put_in_blocks(address, video, 64 << 20)
        else:
            assert curl_put(address, video, within=WITHIN_SECONDS) in (200, 201)
            sent = SIZE
        assert of_clients.bytes_in == sent
        # A sweep may have asked what is there.
        assert of_servers.bytes_in + of_servers.bytes_out - before < 100_000
        # It is copied by the store itself, and looked at by its ends.
        submitted = anna.request("POST", "/api/v1/submit-job/", json={"blob_name": address["blob_name"]}, timeout=WITHIN_SECONDS)
        assert submitted.status_code == 201, submitted.text
        # (What was under way when it had enough counts here.)
        assert of_servers.bytes_in + of_servers.bytes_out - before < LOOKED_AT + (16 << 20)
        assert requests_to_server.bytes_in < 10_000
    finally:
        server.stop()
        for door in (of_servers, of_clients, requests_to_server):
            door.close()
