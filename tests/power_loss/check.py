"""Opens what a disk shows with the real program, and compares it with what clients had been told when the power was cut."""

import hashlib
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from rest import media
from rest.server import ENDINGS, Client, Server

from .record import FLAT, Recording, Story, fetched
from .states import State


class Lost(AssertionError):
    """Something that was acknowledged is not there, or something half written is."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Lost(what)


def check_state(recording: Recording, state: State, disk: Path, place: Path, goes_on: bool) -> None:
    """`disk` is what the disk shows. With `goes_on`, all jobs are worked on to their ends."""
    server = Server(place, {"workers": 1 if goes_on else 0, "worker_threads": 2})
    server.data = disk / "data"
    try:
        server.start()
        if state.cut >= recording.key_made:
            client = Client(server, recording.key)
            check_jobs(recording, state, client)
            check_uploads(recording, state, client)
            if goes_on:
                check_ends(recording, client)
        check_rows(recording, server.data)
        check("panicked" not in server.log_text(), f"a panic:\n{server.log_text()[-2000:]}")
        check(server.stop() == 0, "the server does not stop in order")
        check_rows(recording, server.data)
    finally:
        server.kill()


def check_jobs(recording: Recording, state: State, client: Client) -> None:
    listed = {entry["job_id"]: entry["title"] for entry in client.jobs()}
    for story in recording.stories.values():
        facts = [fact for fact in story.facts if fact.asked <= state.cut]
        told = [fact for fact in facts if fact.told is not None and fact.told <= state.cut]
        if any(fact.what == "deleted" for fact in told):
            check(story.name not in listed, f"{story.name} was deleted, and is there")
        elif any(fact.what == "submitted" for fact in told):
            in_doubt = any(fact.what == "deleted" for fact in facts)
            check(in_doubt or story.name in listed, f"{story.name} was acknowledged, and is lost")
        if story.name in listed:
            check_job(recording, client, story, listed[story.name], [f.value for f in facts if f.what in ("submitted", "titled")],
                      [f.value for f in told if f.what in ("submitted", "titled")], {f.value for f in told if f.what == "ended"})


def check_job(recording: Recording, client: Client, story: Story, title: str, asked: list[str], told: list[str], ended: set[str]) -> None:
    # The last that was told, or any that was asked for after it.
    possible = asked[max(0, len(told) - 1) :]
    check(title in possible, f"{story.name} is called {title!r}, not one of {possible}")
    found = client.job(story.name)
    for status in ended:
        check(found["status"] == status, f"{story.name} was {status} and is {found['status']}")
    finished = found["status"] == "Finished"
    check(found["has_ply"] == finished and found["has_spz"] == finished, f"{found}")
    if finished:
        files = fetched(client, story.name)
        expected = {path: digest for path, digest in recording.results[story.kind].items() if path != "status"}
        check(files == expected, f"what is served of {story.name} is not what was made: {files}, {expected}")


def check_uploads(recording: Recording, state: State, client: Client) -> None:
    """An upload that was acknowledged can be submitted."""
    for blob, fact in recording.uploads.items():
        if fact.told is not None and fact.told <= state.cut:
            response = client.try_submit(blob, title="after", **FLAT)
            check(response.status_code == 201, f"the upload {blob} was acknowledged, and cannot be submitted: {response.status_code} {response.text}")


def check_ends(recording: Recording, client: Client) -> None:
    """What is left of earlier work is whole, or is refused and done again: every job comes to what it comes to undisturbed."""
    for entry in reversed(client.jobs()):
        name = entry["job_id"]
        # The oldest is worked on first; a busy machine may take minutes over the long one.
        end = time.monotonic() + 400
        while (found := client.job(name))["status"] not in ("Finished", "Failed"):
            check(time.monotonic() < end, f"{name} does not end: {found}")
            time.sleep(0.1)
        story = recording.stories.get(name)
        # Another job: one whose submission was in doubt, or of the last check.
        result = {"status": found["status"]} | (fetched(client, name) if found["status"] == "Finished" else {})
        known = [recording.results[story.kind]] if story else list(recording.results.values())
        check(result in known or (story is None and entry["title"] == "after"), f"{name}, {story and story.kind}, came to {result}, not to {known}")


def check_rows(recording: Recording, data: Path) -> None:
    """The database is clean, and every file that a row names is whole."""
    videos = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (media.capture(), media.flat_video())}
    with closing(sqlite3.connect(data / "jobs.db", timeout=20)) as database:
        check(database.execute("PRAGMA integrity_check").fetchall() == [("ok",)], "integrity_check")
        check(database.execute("PRAGMA foreign_key_check").fetchall() == [], "foreign_key_check")
        uploads = "SELECT blob_name, version, size, sha256 FROM uploads WHERE version IS NOT NULL AND deleted = 0"
        for blob, version, size, sha256 in database.execute(uploads).fetchall():
            name, extension = blob.rsplit(".", 1)
            path = data / f"{name}.{version % 2**64:016x}.{extension}"
            check(path.exists() and path.stat().st_size == size, f"no whole file of {blob}")
            digest = hashlib.sha256(path.read_bytes())
            check(digest.digest() == sha256 and digest.hexdigest() in videos, f"{path.name} is not what was sent")
        artifacts = "SELECT job_id, kind, artifacts.attempt, size FROM artifacts JOIN jobs USING (job_id) WHERE deleted = 0"
        for job, kind, attempt, size in database.execute(artifacts).fetchall():
            path = data / "scenes" / job / f"{attempt}.{ENDINGS[kind]}"
            check(path.exists() and path.stat().st_size == size, f"no whole file {path.name} of {job}")
