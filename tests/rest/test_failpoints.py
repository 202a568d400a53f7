"""Every failpoint of the core, with a kill, a full disk and an I/O error: what was acknowledged stays, what failed can be done again.

Needs a binary that was built with `--features failpoints`. FAILPOINT_NAMES (a comma-separated list, or `all`) says which are
tried; by default a few, one of each kind. `off->` terms let the first passes go by, so that later ones are hit too.
"""

import os
import re
import signal
import subprocess
import time

import pytest
import requests

from . import media, storage
from .crash import Known, check_after_restart, settle
from .server import BINARY, ROOT, TAKEN, CommandFailed, Server

SOURCE = (ROOT / "core/src/failpoints.rs").read_text() if (ROOT / "core/src/failpoints.rs").exists() else ""
NAMES = re.findall(r'^    "([a-z_.]+)",$', SOURCE, re.MULTILINE)
# Places that commands reach, with the command.
COMMANDS = {
    "database.add_user.commit": ("users", "add", "newcomer"),
    "database.set_tier.commit": ("users", "set-tier", "anna", "enterprise"),
    "database.create_key.commit": ("keys", "create", "anna"),
    "database.revoke_key.commit": ("keys", "revoke", "anna", "{key}"),
    "database.cancel_job.commit": ("jobs", "cancel", "{job}"),
    **{
        name: ("backup", "--to", "{new}")
        for name in ("database.copy.write", "database.copy.sync", "database.release_all.commit", "backup.copy", "backup.place")
    },
}
# Places that need a damaged folder or a second one (core/tests/service_failures.rs and test_migrate.py go through them), those that only
# a service of many machines has (test_cloud_storage.py), and that of an archive of pictures (a test in service/video_file.rs).
ELSEWHERE = (
    "restore.", "database.lose_", "database.take_rows.", "migrate.", "database.fail_waiting.", "database.take_tokens.",
    "database.note_service_id.", "submit.", "workspace.pictures",
)
FEW = [
    "storage.commit.rename", "storage.commit.sync_folder", "storage.delete.unlink", "worker.claimed", "database.finish_upload.commit",
    "database.insert_job.commit", "database.mark_deleted.commit", "database.fail.commit", "database.add_user.commit",
]
# Places that only a job reaches that runs while its server stops, or on after its server was killed.
LONG = ("database.reclaim.commit", "database.heartbeat.commit", "database.progress.commit", "database.release.commit")
# More than any machine trains while a test runs.
LONG_STEPS = 100_000
ACTIONS = ["kill", "enospc", "eio"]
# What faults of the server are told as (rules 10 and 89 of docs/rest.md).
FAULTS = {500: "Internal server error", 507: "Insufficient storage"}


def built_with_failpoints() -> bool:
    done = subprocess.run([BINARY, "users", "--data", "/dev/null/none", "list"], env={"FAILPOINTS": "nonsense"}, capture_output=True)
    return b"FAILPOINTS" in done.stderr


def chosen() -> list[str]:
    wanted = os.environ.get("FAILPOINT_NAMES", ",".join(FEW))
    names = [name for name in NAMES if not name.startswith(ELSEWHERE)] if wanted == "all" else [name for name in NAMES if name in wanted.split(",")]
    # Files in a store pass no place of a folder's.
    return [name for name in names if not (storage.IS_ASKED_FOR and name.startswith("storage."))]


class Gone(Exception):
    """The server has died."""


@pytest.fixture(scope="module", autouse=True)
def failpoints():
    assert built_with_failpoints(), "cargo build --release -p libreconstruct-server --features failpoints, or set RECONSTRUCT"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a user, for all cases; each leaves it empty of jobs."""
    # Signs of life are given every second.
    server = Server(tmp_path_factory.mktemp("failpoints"), {"workers": 1, "separate_workers": False, "lease_seconds": 6})
    client = server.start().user("anna")
    yield server, client
    server.kill()


def attempt(known: Known, call, *arguments, **options):
    """A request that may fail because of the failpoint; its answer, or nothing if it is in doubt."""
    try:
        response = call(*arguments, **options)
    except requests.RequestException:
        raise Gone from None
    assert response.status_code < 500 or response.json() == {"error": FAULTS[response.status_code]}, response.text
    return response if response.status_code < 500 else None


def workflow(server: Server, client, known: Known, video: bytes) -> None:
    """One of everything, with bookkeeping of what was acknowledged."""
    submit = {"title": "new", "training_max_num_gaussians": 1000, "training_num_steps": 20}
    for _ in range(2):
        response = attempt(known, client.request, "POST", "/api/v1/generate-upload-url/", json={"file_extension": "mp4"})
        if response is None:
            continue
        address = client.learn(response.json())
        # A store takes them by rules of its own, or not at all.
        if not storage.IS_ASKED_FOR and attempt(known, client.put, address["url"] + "&comp=block&blockid=AAAA", video) is not None:
            blocks = b"<BlockList><Latest>AAAA</Latest></BlockList>"
            attempt(known, client.put, address["url"] + "&comp=blocklist", blocks)
        response = attempt(known, client.put, address["url"], video)
        if response is None:
            continue
        assert response.status_code == TAKEN, response.text
        known.submissions_in_doubt += 1
        response = attempt(known, client.try_submit, address["blob_name"], **submit)
        if response is None:
            continue
        assert response.status_code == 201, response.text
        known.submissions_in_doubt -= 1
        job = response.json()["job_id"]
        known.titles[job] = {"new", "changed"}
        known.blob_of[job] = address["blob_name"]
        response = attempt(known, client.patch, job, {"title": "changed"})
        if response is not None:
            assert response.status_code == 200, response.text
            known.titles[job] = {"changed"}
    # The first job runs to its end, or for some signs of life if it is a long one; the others are deleted.
    jobs = list(known.titles)
    end = time.monotonic() + 120
    while jobs and time.monotonic() < end:
        response = attempt(known, client.get, f"/api/v1/jobs/{jobs[0]}/")
        if response is not None:
            job = response.json()
            if job["status"] in ("Finished", "Failed"):
                break
            if job["training_num_steps"] == LONG_STEPS and job["status"] == "Generating 3D scene":
                time.sleep(3)
                break
        time.sleep(0.1)
    for job in jobs[1:]:
        known.maybe_deleted.add(job)
        response = attempt(known, client.delete, job)
        if response is not None:
            assert response.status_code == 204, response.text
            known.deleted.add(job)
            known.maybe_deleted.discard(job)


def prepare(server: Server, client, known: Known, name: str, video: bytes) -> None:
    """Leaves behind what only some places look at: an upload that is a day old, a job whose worker was killed."""
    old = client.upload(video)
    if name in LONG:
        job = client.submit(media.capture(), title="new", training_num_steps=LONG_STEPS)
        known.titles[job] = {"new"}
        while client.job(job)["status"].startswith("Queued"):
            time.sleep(0.05)
    server.kill()
    with server.rows() as database:
        day = 90_000_000_000
        database.execute("UPDATE uploads SET touched_at = touched_at - ?1, expires_at = expires_at - ?1 WHERE blob_name = ?2", (day, old))


def wait_for_deletions(server: Server) -> None:
    """The worker that is at a deleted job forgets it when it notices; told to stop before, it leaves that to the next start."""
    end = time.monotonic() + 5
    while server.process.poll() is None and time.monotonic() < end:
        with server.rows() as database:
            if database.execute("SELECT count(*) FROM jobs WHERE deleted").fetchone() == (0,):
                return
        time.sleep(0.05)
    if server.process.poll() is not None:
        raise Gone


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", chosen())
def test_failpoint(place, name, action):
    server, client = place
    known = Known()
    failpoint = {"FAILPOINTS": f"{name}=1*return({action})"}
    if not server.is_alive():
        server.start()
    if name in COMMANDS:
        command(server, client, known, name, action, failpoint)
        return
    scene = name.startswith(("files.", "storage.put", "worker.reconstructed", "worker.artifacts", "worker.published", "database.publish"))
    video = (media.capture() if scene else media.flat_video()).read_bytes()
    prepare(server, client, known, name, media.flat_video().read_bytes())
    server.spawn(failpoint)
    died = False
    try:
        if not server.wait_until_up(60):
            raise Gone
        workflow(server, client, known, video)
        wait_for_deletions(server)
        # Places on the way to a stop: progress is given back, uses of keys are written.
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
        died = server.process.returncode != 0
    except Gone:
        died = server.process.wait(10) != 0
    if action == "kill":
        assert died, f"{name} was not reached"
    if server.process.poll() is None:
        server.kill()
    server.start()
    check_after_restart(server, {client: known})
    # What was given long to train need not be waited for.
    for job in sorted(set(known.titles) - known.deleted):
        if client.job(job)["training_num_steps"] == LONG_STEPS:
            assert client.delete(job).status_code == 204
            known.deleted.add(job)
    settle(server, {client: known}, within=180)
    assert "panicked" not in server.log_text()


def command(server: Server, client, known: Known, name: str, action: str, failpoint: dict) -> None:
    """A command fails at the place, without half an effect, and works the second time."""
    key = server.command("keys", "create", "anna")["prefix"]
    job = client.submit(media.capture(), training_num_steps=LONG_STEPS)
    newcomer = f"newcomer-{name}-{action}"
    new = server.data.parent / f"backup-{name}-{action}"
    arguments = [a.format(key=key, job=job, new=new).replace("newcomer", newcomer) for a in COMMANDS[name]]
    with pytest.raises(CommandFailed) as failed:
        server.command(*arguments, environment=failpoint)
    assert failed.value.code == (-9 if action == "kill" else 6), failed.value
    assert newcomer not in str(server.command("users", "list"))
    [stored] = [k for k in server.command("keys", "list", "anna")["keys"] if k["prefix"] == key]
    assert stored["revoked_at"] is None and client.job(job)["status"] != "Failed"
    server.command(*arguments)
    assert client.delete(job).status_code == 204
