"""What must hold after every round, read through the interface and compared with the database and the folder."""

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import requests

from rest.server import ENDINGS

from .clients import Fault, InDoubt, Load, User, check, fetch, note_status
from .disk import MIB
from .expected import Expected
from .world import World

# The longest rest of a job that was spared in time, and the time in which a hanging program is noticed.
REST, HANG = 70, 100


def check_accounts(world: World, users: list[User], load: Load) -> None:
    """Everything that was acknowledged is there, and what was in doubt is one thing or the other, once."""
    for user in users:
        client = user.client
        client.session.close()
        listed = {entry["job_id"]: entry["title"] for entry in client.jobs()}
        for name, job in list(user.jobs.items()):
            if job.deleting:
                if name in listed:
                    job.deleting = False
                else:
                    del user.jobs[name]
                    user.deleted.add(name)
        strangers = set(listed) - set(user.jobs)
        check(not strangers & user.deleted, f"deleted jobs are in the list: {strangers & user.deleted}")
        check(len(strangers) <= len(user.in_doubt), f"{len(strangers)} jobs that nobody submitted")
        # The same submission with the same key makes no second job.
        pending, user.in_doubt = user.in_doubt, []
        for submission in pending:
            load.send(user, client, submission)
        listed = {entry["job_id"]: entry["title"] for entry in client.jobs()}
        check(set(listed) == set(user.jobs), f"listed, not submitted: {set(listed) - set(user.jobs)}; lost: {set(user.jobs) - set(listed)}")
        for name in list(user.deleted)[-5:]:
            check(client.get(f"/api/v1/jobs/{name}/").status_code == 404, f"a deleted job is there: {name}")
        for name, job in user.jobs.items():
            check(listed[name] in job.titles, f"{name} is called {listed[name]!r}, not one of {job.titles}")
            job.titles = {listed[name]}


def check_jobs(world: World, users: list[User], expected: Expected) -> None:
    """No job has ended otherwise than undisturbed; what is served is whole."""

    def answered(what: str, response: requests.Response) -> requests.Response:
        check(response.status_code == 200, f"{what}: {response.status_code} {response.text[:300]}")
        return response

    for user in users:
        for job in user.jobs.values():
            status = note_status(job, user.client.job(job.name))
            if job.ended:
                check_end(world, job, expected)
            if status == "Finished":
                fetch(user.client, job, expected, answered)


def check_end(world: World, job, expected: Expected) -> None:
    [(code, message, attempt, crashes, disturbances)] = world.rows(
        "SELECT failure_code, failure_message, attempt, crashes, disturbances FROM jobs WHERE job_id = ?", job.name)
    why = f"{job.video} {job.name} is {job.ended}: {code}: {message} (attempt {attempt}, {crashes} crashes, {disturbances} disturbances)"
    check(job.ended == expected.end_of(job.video), why)
    if job.ended == "Failed":
        check(code == expected.failure, f"{why}; undisturbed it is {expected.failure}")


def check_rows_and_files(world: World) -> None:
    """No row without its file, of its size; the files of a scene are those of one attempt."""
    for blob, version, size in world.rows("SELECT blob_name, version, size FROM uploads WHERE version IS NOT NULL AND NOT deleted"):
        name, extension = blob.rsplit(".", 1)
        path = f"{name}.{version % 2**64:016x}.{extension}"
        check(world.stored(path) == size, f"an upload without its file of {size} bytes: {path}")
    attempts: dict[str, set[int]] = {}
    for job, kind, attempt, size in world.rows(
        "SELECT job_id, kind, artifacts.attempt, size FROM artifacts JOIN jobs USING (job_id) WHERE NOT deleted"):
        path = f"scenes/{job}/{attempt}.{ENDINGS[kind]}"
        check(world.stored(path) == size, f"a row without its file of {size} bytes: {path}")
        attempts.setdefault(job, set()).add(attempt)
    check(all(len(numbers) == 1 for numbers in attempts.values()), f"published more than once: {attempts}")


def said(users: list[User], what: str) -> float:
    """A number among the metrics."""
    text = users[0].client.get("/metrics").text
    found = re.search(rf"^{what} (\S+)", text, re.MULTILINE)
    check(found is not None, f"{what} is not among the metrics")
    return float(found[1])


def check_quota(world: World, users: list[User]) -> None:
    """What is said to be stored is what the rows say, whose files are there (`check_rows_and_files`)."""
    # The server counts its rows four times a minute.
    end = time.monotonic() + 25
    while True:
        stored = said(users, "reconstruct_stored_bytes")
        [(rows,)] = world.rows("SELECT (SELECT coalesce(sum(size), 0) FROM uploads) + (SELECT coalesce(sum(size), 0) FROM artifacts)")
        if stored == rows:
            return
        # A job may have ended in between.
        check(time.monotonic() < end, f"{stored} bytes are said to be stored; the rows have {rows}")
        time.sleep(0.2)


def check_free_space(free: Callable[[], int], users: list[User]) -> None:
    """What is said to be free is what is free, where nobody works and nobody else has the disk."""
    end = time.monotonic() + 25
    while abs((told := said(users, "reconstruct_free_bytes")) - (found := free())) > MIB:
        check(time.monotonic() < end, f"{told} bytes are said to be free; the disk has {found}")
        time.sleep(0.2)


def settle(world: World, users: list[User], expected: Expected) -> Counter:
    """No fault is left: all jobs end, as they do undisturbed."""
    ends: Counter[str] = Counter()
    jobs = [(user, job) for user in users for job in user.jobs.values()]
    end = time.monotonic() + REST + HANG + 20 * len(jobs)
    for user, job in jobs:
        while note_status(job, found := user.client.job(job.name)) not in ("Finished", "Failed"):
            check(time.monotonic() < end, f"stuck: {found} {world.rows('SELECT * FROM jobs WHERE job_id = ?', job.name)}")
            time.sleep(0.1)
        ends[f"{job.video} {job.ended}"] += 1
    check_jobs(world, users, expected)
    check_rows_and_files(world)
    return ends


def empty(world: World, users: list[User], load: Load) -> None:
    """All jobs are deleted, uploads expire: then nothing of them is left, and the disk is as free as before."""
    for user in users:
        for name in list(user.jobs):
            check(user.client.delete(name).status_code == 204, "DELETE at the end")
            del user.jobs[name]
            user.deleted.add(name)
        check(user.client.jobs() == [], "jobs are left")
        user.uploads.clear()
    # What belongs to nobody is swept once it is an hour old, uploads once they are a day old; a server looks when it starts.
    world.let_days_pass()
    # A job that was deleted while a worker died over it waits for the end of its lease (30 s), and what cannot be removed at the first
    # try for the next look of a server (a minute).
    end = time.monotonic() + 30 + 70
    while left := world.what_is_left():
        if time.monotonic() >= end:
            rows = {table: world.rows(f"SELECT * FROM {table}") for table in ("jobs", "uploads")}
            check(False, f"left after everything was deleted: {left}; rows: {rows}")
        time.sleep(0.1)
    world.check_database()
    # A row goes after its files.
    while left := {table: rows for table in ("jobs", "uploads", "artifacts") if (rows := world.rows(f"SELECT * FROM {table}"))}:
        check(time.monotonic() < end, f"rows are left: {left}")
        time.sleep(0.1)
    check_quota(world, users)
    world.come_back()


def check_log(log: Path) -> None:
    text = log.read_text(errors="replace")
    check("panicked" not in text, f"a panic, see {log}")


__all__ = ["Fault", "InDoubt", "check_accounts", "check_free_space", "check_jobs", "check_log", "check_quota", "check_rows_and_files", "empty", "settle"]
