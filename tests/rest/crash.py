"""Kills the server again and again at random moments under load, and checks each time that nothing that it had acknowledged is
lost, nothing half done is served, and nothing stays stuck.

    cd tests && python -m rest.crash [--kills 200] [--seed 1] [--trains]

Every random choice comes from the seed; when the system runs what is not ours to choose.
"""

import argparse
import gzip
import random
import struct
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import requests

from . import media, postgres
from .server import TAKEN, Client, Server

STATUSES = ("Queued", "Processing video", "Generating 3D scene", "Finished", "Failed")


class Fault(AssertionError):
    """An invariant does not hold."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Fault(what)


class Known:
    """What the clients know of one user's jobs and uploads: what was acknowledged, and what may or may not have happened."""

    def __init__(self):
        self.lock = threading.Lock()
        # job -> titles that it may have; one if its last change was acknowledged
        self.titles: dict[str, set[str]] = {}
        self.deleted: set[str] = set()
        self.maybe_deleted: set[str] = set()
        self.submissions_in_doubt = 0
        self.blob_of: dict[str, str] = {}
        # Uploads that were acknowledged and not yet submitted.
        self.uploads: list[str] = []
        self.finished: set[str] = set()
        self.busy: set[str] = set()
        self.counts = Counter()


class Load:
    """Clients that do everything at once until the server is gone."""

    def __init__(self, server: Server, clients: dict[Client, Known], videos: list[bytes], seed: int):
        self.stop = threading.Event()
        self.faults: list[str] = []
        self.threads = [
            threading.Thread(target=self.run, args=(Client(server, client.key), known, videos, random.Random(f"{seed} {n} {k}")))
            for n, (client, known) in enumerate(clients.items())
            for k in range(3)
        ]
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def run(self, client: Client, known: Known, videos: list[bytes], choice: random.Random) -> None:
        actions = [self.upload, self.submit, self.submit, self.patch, self.patch, self.delete, self.look, self.download]
        while not self.stop.is_set():
            action = choice.choice(actions)
            try:
                action(client, known, videos, choice)
            except requests.RequestException:
                # The server is gone; so are the connections.
                client.session.close()
                time.sleep(0.01)
            except Exception as fault:  # whatever it is, the main thread must hear of it
                self.faults.append(f"{action.__name__}: {type(fault).__name__}: {fault}")
                return

    def upload(self, client, known, videos, choice):
        response = client.request("POST", "/api/v1/generate-upload-url/", json={"file_extension": "mp4"})
        check(response.status_code == 200, f"generate-upload-url: {response.status_code} {response.text}")
        address = client.learn(response.json())
        response = client.put(address["url"], choice.choice(videos))
        check(response.status_code == TAKEN, f"PUT: {response.status_code} {response.text}")
        with known.lock:
            known.uploads.append(address["blob_name"])
            known.counts["upload"] += 1

    def submit(self, client, known, videos, choice):
        with known.lock:
            waiting = len(known.titles) - len(known.deleted)
            if not known.uploads or waiting > 12:
                return
            blob = known.uploads.pop()
            known.submissions_in_doubt += 1
        response = client.try_submit(blob, title="new", training_max_num_gaussians=1000, training_num_steps=20)
        check(response.status_code == 201, f"submit: {response.status_code} {response.text}")
        with known.lock:
            known.submissions_in_doubt -= 1
            job = response.json()["job_id"]
            known.titles[job] = {"new"}
            known.blob_of[job] = blob
            known.counts["submit"] += 1

    def pick(self, known, choice):
        """A job that no other thread is changing; the caller gives it back."""
        with known.lock:
            free = [job for job in known.titles if job not in known.deleted | known.maybe_deleted | known.busy]
            if not free:
                return None
            job = choice.choice(sorted(free))
            known.busy.add(job)
            return job

    def patch(self, client, known, videos, choice):
        job = self.pick(known, choice)
        if job is None:
            return
        title = f"title {choice.random()}"
        try:
            with known.lock:
                known.titles[job].add(title)
            response = client.patch(job, {"title": title})
            check(response.status_code == 200, f"PATCH: {response.status_code} {response.text}")
            with known.lock:
                known.titles[job] = {title}
                known.counts["patch"] += 1
        finally:
            with known.lock:
                known.busy.discard(job)

    def delete(self, client, known, videos, choice):
        # Few jobs are left alone, many are not.
        if choice.random() * 12 > len(known.titles) - len(known.deleted):
            return
        job = self.pick(known, choice)
        if job is None:
            return
        try:
            with known.lock:
                known.maybe_deleted.add(job)
            response = client.delete(job)
            check(response.status_code == 204, f"DELETE: {response.status_code} {response.text}")
            with known.lock:
                known.deleted.add(job)
                known.maybe_deleted.discard(job)
                known.counts["delete"] += 1
        finally:
            with known.lock:
                known.busy.discard(job)

    def look(self, client, known, videos, choice):
        job = self.pick(known, choice)
        if job is None:
            return
        try:
            found = client.get(f"/api/v1/jobs/{job}/")
            check(found.status_code == 200, f"GET of an acknowledged job: {found.status_code} {found.text}")
            check(found.json()["title"] in known.titles[job], f"title {found.json()['title']!r}, not one of {known.titles[job]}")
            client.jobs()
        finally:
            with known.lock:
                known.busy.discard(job)

    def download(self, client, known, videos, choice):
        job = self.pick(known, choice)
        if job is None:
            return
        try:
            check_files(client, job, known)
        finally:
            with known.lock:
                known.busy.discard(job)


def check_files(client: Client, job: str, known: Known) -> bool:
    """Whatever can be downloaded is whole; a job that was finished once stays so. Says whether it is finished."""
    response = client.get(f"/api/v1/jobs/{job}/")
    check(response.status_code == 200, f"GET of an acknowledged job: {response.status_code} {response.text}")
    found = response.json()
    if found["status"] != "Finished":
        check(job not in known.finished, f"job {job} was finished and is {found['status']}")
        check(not found["has_ply"] and not found["has_spz"], f"files of a job that is {found['status']}")
        return False
    known.finished.add(job)
    check(found["has_ply"] and found["has_spz"] and found["percent_complete"] == 100, f"finished without files: {found}")
    files = {}
    for path in ("download/ply", "download/spz", "preview"):
        response = client.get(f"/api/v1/jobs/{job}/{path}/", allow_redirects=True)
        check(response.status_code == 200, f"{path} of a finished job: {response.status_code} {response.text[:200]}")
        files[path] = response.content
    head, body = files["download/ply"].split(b"end_header\n", 1)
    count = int(head.split(b"element vertex ")[1].split()[0])
    check(len(body) == count * 4 * head.count(b"property float"), "a partial ply")
    check(struct.unpack("<III", gzip.decompress(files["download/spz"])[:12])[2] == count, "a partial spz")
    check(files["preview"].endswith(b"\xff\xd9"), "a partial preview")
    return True


def check_database(server: Server) -> None:
    if postgres.IS_ASKED_FOR:
        # It looks after its pages and its foreign keys by itself.
        return
    with server.rows(read_only=True) as database:
        check(database.execute("PRAGMA integrity_check").fetchall() == [("ok",)], "integrity_check")
        check(database.execute("PRAGMA foreign_key_check").fetchall() == [], "foreign_key_check")


def spare(server: Server) -> None:
    """Waits while a job is worked on that was disturbed four times in a row: its rests would soon take minutes, and the tenth
    time ends it, as what kills its worker must end."""
    weary = "SELECT 1 FROM jobs WHERE state = 'running' AND NOT deleted AND disturbances >= 4"
    end = time.monotonic() + 60
    with server.rows(read_only=True) as database:
        while database.execute(weary).fetchone():
            check(time.monotonic() < end, "a job that is left alone does not end within a minute")
            time.sleep(0.05)


def check_after_restart(server: Server, clients: dict[Client, Known]) -> None:
    """Everything that was acknowledged is there, everything that was in doubt is one thing or the other."""
    check_database(server)
    for client, known in clients.items():
        listed = {entry["job_id"]: entry["title"] for entry in client.jobs()}
        for job in known.deleted:
            check(job not in listed, f"a deleted job is in the list: {job}")
            check(client.get(f"/api/v1/jobs/{job}/").status_code == 404, f"a deleted job is there: {job}")
        for job in list(known.maybe_deleted):
            if job not in listed:
                known.deleted.add(job)
            known.maybe_deleted.discard(job)
        for job, titles in known.titles.items():
            if job in known.deleted:
                continue
            check(job in listed, f"an acknowledged job is lost: {job}")
            check(listed[job] in titles, f"title {listed[job]!r}, not one of {titles}")
            known.titles[job] = {listed[job]}
            check_files(client, job, known)
        strangers = set(listed) - set(known.titles)
        check(len(strangers) <= known.submissions_in_doubt, f"{len(strangers)} jobs that nobody submitted")
        for job in strangers:
            known.titles[job] = {listed[job]}
        known.submissions_in_doubt = 0
        with known.lock:
            uploads, known.uploads = known.uploads[-1:], known.uploads[-9:-1]
        for blob in uploads:
            response = client.try_submit(blob, title="after", training_max_num_gaussians=1000, training_num_steps=20)
            check(response.status_code == 201, f"an acknowledged upload cannot be submitted: {response.status_code} {response.text}")
            known.titles[response.json()["job_id"]] = {"after"}
            known.blob_of[response.json()["job_id"]] = blob


def settle(server: Server, clients: dict[Client, Known], within: float) -> Counter:
    """No job is stuck: all end. Then all are deleted, and no file of theirs stays."""
    end = time.monotonic() + within
    ends = Counter()
    for client, known in clients.items():
        for job in sorted(set(known.titles) - known.deleted):
            while (status := client.job(job)["status"]) not in ("Finished", "Failed"):
                check(time.monotonic() < end, f"stuck: {job} is {status} after {within} s")
                time.sleep(0.2)
            ends[status] += 1
            check_files(client, job, known)
            made = {Path(name).name.split(".")[0] for name in server.files(f"scenes/{job}") if not name.endswith(".log")}
            check(len(made) <= 1, f"files of several attempts: {server.files(f'scenes/{job}')}")
    for client, known in clients.items():
        for job in sorted(set(known.titles) - known.deleted):
            check(client.delete(job).status_code == 204, "DELETE at the end")
            known.deleted.add(job)
        check(client.jobs() == [], "jobs are left")
    names = {job for known in clients.values() for job in known.deleted}
    names |= {known.blob_of[job].split("/")[1].split(".")[0] for known in clients.values() for job in known.deleted if job in known.blob_of}
    end = time.monotonic() + 15
    while left := [file for file in server.files("videos", "scenes", "work", "blocks") if any(name in file for name in names)]:
        check(time.monotonic() < end, f"files of deleted jobs: {left}")
        time.sleep(0.2)
    check_database(server)
    return ends


def crash(folder: Path, kills: int, seed: int, trains: bool, say=print) -> dict:
    """Runs the whole test; what was done. Raises `Fault` where an invariant does not hold."""
    choice = random.Random(seed)
    server = Server(folder, {"workers": 1, "limits": {"max_queued_jobs": 10_000}})
    server.start()
    clients = {server.user(name): Known() for name in ("anna", "ben")}
    flat = media.flat_video().read_bytes()
    videos = [flat] * 6 + [media.capture().read_bytes()] if trains else [flat]
    slowest = 0.0
    try:
        for number in range(1, kills + 1):
            load = Load(server, clients, videos, choice.randrange(1 << 30))
            time.sleep(choice.choice([choice.uniform(0.02, 0.5), choice.uniform(0.5, 2.5)]))
            spare(server)
            server.kill()
            load.end()
            check(not load.faults, f"kill {number}: {load.faults}")
            began = time.monotonic()
            server.start()
            slowest = max(slowest, time.monotonic() - began)
            check_after_restart(server, clients)
            check("panicked" not in server.log_text(), "a panic: see " + str(server.log))
            if number % 10 == 0:
                total = sum((known.counts for known in clients.values()), Counter())
                say(f"{number} kills: {dict(total)}, slowest start {slowest:.2f} s")
        ends = settle(server, clients, within=90 + 20 * sum(len(k.titles) - len(k.deleted) for k in clients.values()))
        check(server.stop() == 0, "exit code")
    finally:
        server.kill()
    total = sum((known.counts for known in clients.values()), Counter())
    return {"kills": kills, "acknowledged": dict(total), "ends": dict(ends), "slowest_start_s": round(slowest, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trains", action="store_true", help="some of the jobs are real reconstructions")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="crash-"))
    print(f"folder {folder}, seed {arguments.seed}")
    print(crash(folder, arguments.kills, arguments.seed, arguments.trains))


if __name__ == "__main__":
    main()
