"""Videos and scenes in a cloud storage (rules 25, 68, 70 and 83 of docs/rest.md): the real server over PostgreSQL and stores that speak
like S3, Azure and Google Cloud Storage. Its secrets come as a variable of the environment.
"""

import base64
import hashlib
import json
import os
import secrets
import signal
import struct
import subprocess
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
import requests
import stores
from prerequisites import is_missing
from stores.door import Door

from . import media, postgres
from .server import ENDINGS, CommandFailed, Server

LARGEST = 4 << 20
# How long the addresses of files hold (rule 68), and those of uploads (rule 26).
DOWNLOAD_SECONDS, UPLOAD_SECONDS = 15 * 60, 2 * 60 * 60
# Between the signature of an address and the look at it, on a machine that is busy.
LOOKED_AT_WITHIN = timedelta(seconds=60)


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


def curl_put(address: dict, path: Path, *headers: str) -> int:
    """Sends a file as people do, with the headers that are needed and more, each once; the status of the answer."""
    given = {header.split(":")[0].lower() for header in headers}
    needed = [f"{name}: {value}" for name, value in address.get("headers", {}).items() if name.lower() not in given]
    options = [part for header in (*needed, *headers) for part in ("-H", header)]
    command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-T", path, *options, address["url"]]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)


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


# Sent in one request, as videos are up to the limit of 5 GiB, and above the size up to which a server looks at all of a video.
SIZE = 160 << 20
# What it looks at of a larger one: 16 MiB at each end.
LOOKED_AT = 32 << 20


def test_rule_83_a_large_upload_touches_no_server(running, tmp_path):
    """All ways to the servers and to the store are watched: what a client sends passes through its own way to the store alone."""
    found, scheme = running
    storage = found.place(scheme)
    port = found.look(storage).port if scheme != "gs" else urlsplit(parse_qs(urlsplit(storage).query)["endpoint"][0]).port
    of_servers, of_clients = Door(port), Door(port)
    endpoint = parse_qs(urlsplit(storage).query)["endpoint"][0]
    named = storage.replace(f":{port}", f":{of_servers.port}") + "&public_endpoint=" + endpoint.replace(f":{port}", f":{of_clients.port}")
    server = CloudServer(tmp_path / "server", variables(found), {"workers": 0, "database": postgres.cluster().database(), "storage": named})
    server.start()
    requests_to_server = Door(server.port)
    server.url_of_a_request = lambda: f"http://127.0.0.1:{requests_to_server.port}"
    try:
        anna = server.user("anna")
        address = anna.upload_url()
        video = tmp_path / "large.mp4"
        flat = media.flat_video().read_bytes()
        # A box of the container that readers pass over.
        video.write_bytes(flat + struct.pack(">I4s", SIZE - len(flat), b"free"))
        os.truncate(video, SIZE)
        before = of_servers.bytes_in + of_servers.bytes_out
        assert curl_put(address, video) in (200, 201)
        assert of_clients.bytes_in == SIZE
        # A sweep may have asked what is there.
        assert of_servers.bytes_in + of_servers.bytes_out - before < 100_000
        # It is copied by the store itself, and looked at by its ends.
        assert anna.try_submit(address["blob_name"]).status_code == 201
        # (What was under way when it had enough counts here.)
        assert of_servers.bytes_in + of_servers.bytes_out - before < LOOKED_AT + (16 << 20)
        assert requests_to_server.bytes_in < 10_000
    finally:
        server.stop()
        for door in (of_servers, of_clients, requests_to_server):
            door.close()
