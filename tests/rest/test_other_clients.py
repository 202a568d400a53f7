"""Rules 23, 32 and 100 of docs/rest.md, with clients that nobody here wrote: Azure's package for Python, tus-js-client for Node.js."""

import itertools
import os
import random
import re
import shutil
import signal
import struct
import subprocess
from pathlib import Path

import pytest
from prerequisites import is_missing, package

from . import storage
from .server import ROOT
from .test_connections import wait_until
from .test_rules_upload import is_not_uploaded

SCRIPT = ROOT / "tests/interop/resumable_upload.mjs"
MIB = 1 << 20
# The package speaks a newer version of Azure's interface than the tests' store of Azure knows. Our server minds none.
VERSION = {"api_version": "2023-11-03"} if storage.IS_ASKED_FOR else {}


@pytest.fixture(scope="module")
def large(flat, tmp_path_factory):
    """A video of 45 MiB: more than a server keeps of a transfer before it stores it, and than a line holds that is cut."""
    whole, size = flat.read_bytes(), 45 * MIB + 17
    padding = random.Random(1).randbytes(size - len(whole) - 8)
    path = tmp_path_factory.mktemp("large") / "large.mp4"
    path.write_bytes(whole + struct.pack(">I4s", len(padding) + 8, b"free") + padding)
    return path


def content(server, blob_name: str) -> bytes:
    """What a job would work on, before it is submitted."""
    identity = blob_name.split("/")[1].split(".")[0]
    # What a store took becomes a video when it is submitted.
    [kept] = [name for name in server.files("incoming" if storage.IS_ASKED_FOR else "videos") if identity in name]
    assert not any(identity in name for name in server.files("blocks"))
    return server.stored.read(kept)


@pytest.mark.parametrize("options", [
    {}, {"max_single_put_size": 4 * MIB, "max_block_size": 4 * MIB},
    {"max_single_put_size": 4 * MIB, "max_block_size": 3 * MIB, "max_concurrency": 4},
], ids=["whole", "in-blocks", "in-blocks-at-once"])
@storage.answers_clients_of_azure
def test_azures_package_uploads_to_an_address(server, alice, large, options):
    blob = package("interop", "azure.storage.blob")
    address = alice.upload_url()
    at_once = options.pop("max_concurrency", 1)
    with blob.BlobClient.from_blob_url(address["url"], **VERSION, **options) as client, large.open("rb") as video:
        answer = client.upload_blob(video, overwrite=True, max_concurrency=at_once)
    assert answer["etag"] and answer["last_modified"]
    assert content(server, address["blob_name"]) == large.read_bytes()
    assert alice.try_submit(address["blob_name"]).status_code == 201


@storage.answers_clients_of_azure
def test_azures_package_says_what_is_wrong(alice, flat):
    blob = package("interop", "azure.storage.blob")
    errors = package("interop", "azure.core.exceptions")
    address = alice.upload_url()
    forged = re.sub("sig=.", lambda found: "sig=" + ("A" if found[0] != "sig=A" else "B"), address["url"])
    with blob.BlobClient.from_blob_url(forged, **VERSION) as client, pytest.raises(errors.HttpResponseError) as refused:
        client.upload_blob(flat.read_bytes(), overwrite=True)
    assert refused.value.status_code == 403
    is_not_uploaded(alice, address["blob_name"])


class Sent:
    """What tus-js-client printed while it sent a file."""

    def __init__(self, url: str, video: Path, protocol: str, stop_at: int | None = None):
        node = shutil.which("node")
        if node is None:
            is_missing("interop", "Node.js")
        command = [node, SCRIPT, url, video, protocol] + ([] if stop_at is None else [str(stop_at)])
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env=os.environ)
        if done.returncode == 77:
            is_missing("interop", done.stdout.strip())
        self.code, self.output = done.returncode, done.stdout + done.stderr
        numbers = dict(re.findall(r"^(offset|complete) (\d+)$", done.stdout, re.MULTILINE))
        self.offset, self.complete = (int(numbers[word]) if word in numbers else None for word in ("offset", "complete"))


PROTOCOLS = ["ietf-draft-05", "ietf-draft-03", "tus-v1"]


def begin_at(url: str, protocol: str) -> str:
    """Where a client of this protocol begins."""
    return url.replace("/blob/", "/tus/") if protocol == "tus-v1" else url


@pytest.mark.parametrize("protocol", PROTOCOLS)
@storage.answered_by_us
def test_rule_100_tus_js_client_sends_a_file_and_asks_again(server, alice, large, protocol):
    address, size = alice.upload_url(), large.stat().st_size
    first = Sent(begin_at(address["url"], protocol), large, protocol)
    assert (first.code, first.offset or 0, first.complete) == (0, 0, size), first.output
    assert content(server, address["blob_name"]) == large.read_bytes()
    # Whoever did not hear of it asks, and learns that nothing is left to send.
    again = Sent(address["url"], large, protocol)
    assert (again.code, again.offset) == (0, size), again.output
    assert alice.try_submit(address["blob_name"]).status_code == 201


@pytest.mark.parametrize("protocol", PROTOCOLS)
@storage.answered_by_us
def test_rule_100_tus_js_client_that_is_killed_goes_on_where_it_was(server, alice, large, protocol):
    address, size = alice.upload_url(), large.stat().st_size
    offsets = []
    for url, stop_at in ((begin_at(address["url"], protocol), 5 * MIB), (address["url"], 20 * MIB)):
        killed = Sent(url, large, protocol, stop_at)
        assert killed.code == -signal.SIGKILL, killed.output
        offsets.append(killed.offset or 0)
        is_not_uploaded(alice, address["blob_name"])
    last = Sent(address["url"], large, protocol)
    assert (last.code, last.complete) == (0, size), last.output
    offsets.append(last.offset)
    # None begins before the one before it. What a client sent last may still be under way when the next one asks; of 20 MiB
    # two whole blocks of 8 MiB are not.
    assert offsets[0] == 0 and all(early <= late for early, late in itertools.pairwise(offsets))
    assert 8 * MIB <= offsets[-1] < size, offsets
    assert content(server, address["blob_name"]) == large.read_bytes()
    submitted = alice.try_submit(address["blob_name"])
    assert submitted.status_code == 201
    assert protocol != "tus-v1" or submitted.json()["title"] == large.name


@storage.answered_by_us
def test_rule_100_tus_js_client_goes_on_after_the_server_was_killed(make_server, large):
    server = make_server()
    anna = server.user("anna")
    address, size = anna.upload_url(), large.stat().st_size
    killed = Sent(address["url"], large, "ietf-draft-05", 18 * MIB)
    assert killed.code == -signal.SIGKILL, killed.output
    # Part of what the client sent may still be on its way to a slow disk.
    assert wait_until(lambda: sum(len(server.stored.read(name)) for name in server.files("blocks")) >= 8 * MIB, within=60)
    server.kill()
    server.start()
    last = Sent(address["url"], large, "ietf-draft-05")
    assert (last.code, last.complete) == (0, size), last.output
    # What had filled a block of 8 MiB is there whatever happens.
    assert last.offset >= 8 * MIB
    assert content(server, address["blob_name"]) == large.read_bytes()
