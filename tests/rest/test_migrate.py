"""From one folder to many machines by `reconstruct migrate`, with the real program and a real PostgreSQL: what a client had it
still has, whatever is killed on the way."""

import json
import os
import subprocess

import pytest

from . import media, postgres
from .server import BINARY, CommandFailed, Server
from .test_failpoints import built_with_failpoints

SMALL = {"training_max_num_gaussians": 1000, "training_num_steps": 20}


@pytest.fixture
def old(make_server):
    """A server with everything, which has stopped: the server, its user, what it must still have."""
    postgres.skip_if_asked_for()
    postgres.cluster()
    server = make_server()
    client = server.user("anna")
    video = media.flat_video()
    blob = client.upload(video)
    body = {"blob_name": blob} | SMALL
    first = client.request("POST", "/api/v1/submit-job/", json=body, headers={"Idempotency-Key": "once"})
    assert first.status_code == 201, first.text
    jobs = [first.json()["job_id"], client.submit(video)]
    client.request("PATCH", f"/api/v1/jobs/{jobs[1]}/", json={"title": "Küche"})
    # A transfer that has not happened yet: its address stays good.
    address = client.upload_url()
    known = {
        "body": body, "first": first.json(), "address": address, "video": video.read_bytes(),
        "jobs": {job: {k: v for k, v in client.job(job).items() if k != "status"} for job in jobs},
    }
    assert server.stop() == 0
    return server, client, known


def place(folder):
    folder.mkdir()
    return {
        "database": postgres.cluster().database(), "storage": f"file://{folder / 'files'}", "secrets": str(folder / "secrets.json"),
    }


def migrate(server: Server, to: dict, environment: dict | None = None) -> subprocess.CompletedProcess:
    command = [BINARY, "migrate", "--json", "--from", server.data, "--storage", to["storage"], "--secrets", to["secrets"]]
    # As it should be done: nobody sees the address in the list of processes.
    more = {"LIBRECONSTRUCT_DATABASE": to["database"]} | (environment or {})
    return subprocess.run(command, capture_output=True, text=True, env=server._environment(more), timeout=120)


def result(done: subprocess.CompletedProcess) -> dict:
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check_new(server: Server, client, known: dict, to: dict, folder) -> None:
    """The new place serves what the old one did, to the same key and under the same addresses."""
    there = Server(folder / "new", {"public_url": server.url} | to)
    there.port = server.port
    there.start()
    try:
        for job, before in known["jobs"].items():
            after = client.job(job)
            assert {k: v for k, v in after.items() if k != "status"} == before
            assert after["status"].startswith("Queued")
        again = client.request(
            "POST", "/api/v1/submit-job/", json=known["body"], headers={"Idempotency-Key": "once"}
        )
        assert again.status_code in (200, 201) and again.json()["job_id"] == known["first"]["job_id"], again.text
        assert client.put(known["address"]["url"], known["video"]).status_code == 201
        assert client.submit(media.flat_video()) not in known["jobs"]
    finally:
        there.kill()


def test_a_client_notices_nothing(old, tmp_path):
    server, client, known = old
    to = place(tmp_path / "place")
    moved = result(migrate(server, to))
    assert (moved["users"], moved["jobs"], moved["files"], moved["before"]) == (1, 2, 2, False)
    assert os.stat(to["secrets"]).st_mode & 0o777 == 0o600
    assert json.load(open(to["secrets"])) == json.load(open(server.data / "secrets.json"))
    check_new(server, client, known, to, tmp_path)
    # Nobody starts the folder again by accident, and who is told so is told the way.
    with pytest.raises(CommandFailed) as refused:
        server.command("users", "list")
    assert refused.value.code == 7
    assert "was moved on" in refused.value.output and "moved.json" in refused.value.output
    assert postgres.cluster().database() not in refused.value.output
    # Said again after the end it says the same.
    assert result(migrate(server, to))["before"]


def test_the_files_go_to_an_object_store(old, s3, tmp_path):
    server, client, known = old
    to = place(tmp_path / "place") | {"storage": s3.place("s3")}
    moved = result(migrate(server, to))
    assert (moved["jobs"], moved["files"]) == (2, 2)
    there = s3.look(to["storage"])
    videos = [name for name in there.names() if name.startswith("videos/")]
    assert [there.read(name) for name in videos] == [known["video"]] * 2
    check_new(server, client, known, to, tmp_path)


def test_what_works_on_the_folder_keeps_it(old, tmp_path):
    server, _, _ = old
    to = place(tmp_path / "place")
    server.start()
    refused = migrate(server, to)
    assert refused.returncode == 7 and "processes work on" in refused.stdout, refused.stdout
    assert server.stop() == 0
    assert not (server.data / "moving").exists()
    result(migrate(server, to))


@pytest.mark.parametrize("at", [
    "migrate.copy=return(kill)", "migrate.copy=1*off->return(kill)", "storage.put.rename=return(kill)", "migrate.rows=return(kill)",
    "database.copy.sync=return(kill)", "database.release_all.commit=return(kill)", "database.take_rows.commit=return(kill)",
    "migrate.place=return(kill)", "migrate.copy=1*off->return(enospc)", "migrate.rows=return(eio)",
])
def test_cut_off_anywhere_it_goes_on(old, tmp_path, at):
    if not built_with_failpoints():
        pytest.skip("the binary has no failpoints")
    server, client, known = old
    to = place(tmp_path / "place")
    cut = migrate(server, to, {"FAILPOINTS": at})
    assert cut.returncode == (-9 if "kill" in at else 6), cut.stdout + cut.stderr
    if (server.data / "moving").exists():
        # Nobody works on a folder that is half away.
        with pytest.raises(CommandFailed) as refused:
            server.command("users", "list")
        assert refused.value.code == 7 and "is being moved" in refused.value.output
    else:
        server.command("users", "list")
    moved = result(migrate(server, to))
    assert (moved["jobs"], moved["before"]) == (2, False)
    check_new(server, client, known, to, tmp_path)


def test_back_to_one_folder_by_a_backup(old, tmp_path):
    server, client, known = old
    to = place(tmp_path / "place")
    result(migrate(server, to))
    there = Server(tmp_path / "new", to)
    there.command("backup", "--to", str(tmp_path / "backup"))
    back = Server(tmp_path / "back")
    back.port = server.port
    subprocess.run([BINARY, "restore", tmp_path / "backup", "--data", back.data], check=True, capture_output=True, env=back._environment())
    back.start()
    try:
        for job, before in known["jobs"].items():
            assert {k: v for k, v in client.job(job).items() if k != "status"} == before
    finally:
        back.kill()
