"""Clients that use everything at once, and keep account of what the server acknowledged and of what is in doubt."""

import hashlib
import random
import re
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import requests

from rest.server import Client, Server

from . import leave
from .expected import Expected

SMALL = {"training_max_num_gaussians": 1000, "training_num_steps": 20}
# Enough to be hit in the middle.
LONG = SMALL | {"training_num_steps": 3000}
# Jobs of one user that have not ended, and all of them, at most.
BUSY, MOST = 4, 10


class Fault(AssertionError):
    """Something that must hold does not."""


def options_of(video: str) -> dict:
    """What is asked for it."""
    return LONG if video == "long" else SMALL


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Fault(what)


class InDoubt(Exception):
    """The server did not say whether it was done."""


@dataclass
class Job:
    name: str
    video: str
    """Which video: a name in `Expected`."""
    titles: set[str]
    """What it may be called; one title, if the last change was acknowledged."""
    deleting: bool = False
    """A deletion was asked for, and is in doubt."""
    ended: str = ""
    """Finished or Failed, once that was seen."""
    files: dict[str, str] = field(default_factory=dict)
    """Hashes of its files, once they were fetched."""


@dataclass
class Submission:
    """One that is in doubt; sent again with its key, it makes the job it was meant to make, once."""

    blob: str
    video: str
    key: str


class User:
    """A user's clients and their account."""

    def __init__(self, client: Client):
        self.client = client
        self.lock = threading.Lock()
        self.jobs: dict[str, Job] = {}
        self.deleted: set[str] = set()
        # Acknowledged and not submitted: blob name and video.
        self.uploads: list[tuple[str, str]] = []
        self.in_doubt: list[Submission] = []
        self.busy: set[str] = set()
        self.counts: Counter[str] = Counter()
        # How often something failed in a way that a fault of the machine may explain.
        self.refusals: Counter[str] = Counter()


class Load:
    """Threads of clients, until `end`; those of a user are spread over the servers."""

    def __init__(self, servers: list[Server], users: list[User], expected: Expected, seed: str, threads: int = 2, addresses_expire: bool = True):
        self.servers, self.expected = servers, expected
        # Whether the clock may jump beyond the life of an address.
        self.addresses_expire = addresses_expire
        self.stop = threading.Event()
        self.faults: list[str] = []
        self.threads = [
            threading.Thread(
                target=self.run,
                args=(user, Client(servers[(n + k) % len(servers)], user.client.key), random.Random(f"{seed} {n} {k}")),
                daemon=True,
            )
            for n, user in enumerate(users)
            for k in range(threads)
        ]
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(90)
            check(not thread.is_alive(), "a client waits for an answer for more than a minute")
        check(not self.faults, "; ".join(self.faults))

    def run(self, user: User, client: Client, choice: random.Random) -> None:
        actions = [self.upload, self.upload_blocks, self.submit, self.submit, self.patch, self.delete, self.look, self.look, self.download, self.leave]
        while not self.stop.is_set():
            action = choice.choice(actions)
            try:
                action(user, client, choice)
            except (InDoubt, requests.RequestException, OSError):
                client.session.close()
                time.sleep(0.02)
            except Exception as fault:  # whatever it is, the main thread must hear of it
                self.faults.append(f"{action.__name__}: {type(fault).__name__}: {fault}")
                return
            time.sleep(choice.uniform(0, 0.05))

    def answered(self, user: User, what: str, response: requests.Response, *good: int) -> requests.Response:
        """The answer if it is one of these; `InDoubt` for what a machine that cannot work answers."""
        if response.status_code in good:
            return response
        if response.status_code >= 500:
            user.refusals[f"{what.split()[0]} {response.status_code}"] += 1
            raise InDoubt
        raise Fault(f"{what}: {response.status_code} {response.text[:300]}")

    def new_address(self, user: User, client: Client) -> dict:
        response = client.request("POST", "/api/v1/generate-upload-url/", json={"file_extension": "mp4"}, timeout=60)
        address = self.answered(user, "generate-upload-url", response, 200).json()
        # Behind a balancer the video, or a part of it, comes to whichever server is next.
        other = self.servers[ord(Path(address["blob_name"]).stem[-1]) % len(self.servers)]
        return address | {"url": address["url"].replace(client.server.url, other.url, 1)}

    def put(self, user: User, client: Client, url: str, data: bytes) -> bool:
        """Whether it was taken; the clock may have jumped beyond the life of the address."""
        response = client.put(url, data, timeout=60)
        expired = (403, 404) if self.addresses_expire else ()
        # A store that answers by itself has its own word for it.
        taken = 201 if self.is_ours(url) else 200
        return self.answered(user, "PUT", response, taken, *expired).status_code == taken

    def is_ours(self, url: str) -> bool:
        """Whether an address leads to one of the servers, not to a store."""
        return any(server.is_ours(url) for server in self.servers)

    def upload(self, user: User, client: Client, choice: random.Random) -> None:
        if len(user.uploads) > 8:
            return
        video = self.expected.choose(choice)
        address = self.new_address(user, client)
        if self.put(user, client, address["url"], self.expected.bytes_of(video)):
            self.note_upload(user, address["blob_name"], video)

    def upload_blocks(self, user: User, client: Client, choice: random.Random) -> None:
        if len(user.uploads) > 8:
            return
        video = self.expected.choose(choice)
        content = self.expected.bytes_of(video)
        cut = choice.randrange(1, len(content))
        address = self.new_address(user, client)
        if not self.is_ours(address["url"]):
            # No block leads there. What is sent twice is there once.
            if self.put(user, client, address["url"], content[:cut]) and self.put(user, client, address["url"], content):
                self.note_upload(user, address["blob_name"], video)
            return
        for name, part in (("QQ==", content[:cut]), ("Qg==", content[cut:])):
            if not self.put(user, client, f"{address['url']}&comp=block&blockid={name}", part):
                return
        blocks = b"<BlockList><Latest>QQ==</Latest><Latest>Qg==</Latest></BlockList>"
        if self.put(user, client, f"{address['url']}&comp=blocklist", blocks):
            self.note_upload(user, address["blob_name"], video)

    def note_upload(self, user: User, blob: str, video: str) -> None:
        with user.lock:
            user.uploads.append((blob, video))
            user.counts["uploads"] += 1

    def submit(self, user: User, client: Client, choice: random.Random) -> None:
        with user.lock:
            if user.in_doubt:
                submission = user.in_doubt.pop()
            else:
                unfinished = sum(not job.ended for job in user.jobs.values())
                if not user.uploads or unfinished >= BUSY or len(user.jobs) >= MOST:
                    return
                submission = Submission(*user.uploads.pop(), key=str(uuid.UUID(int=choice.getrandbits(128))))
        self.send(user, client, submission)

    def send(self, user: User, client: Client, submission: Submission) -> None:
        """Submits; what is not answered stays in doubt, to be sent again."""
        try:
            headers = {"Idempotency-Key": submission.key}
            response = client.try_submit(submission.blob, headers=headers, title="new", **options_of(submission.video))
            if response.status_code == 409 and "still being worked on" in response.text:
                # The same key is still being worked on, by a connection that is gone.
                raise InDoubt
            if response.status_code == 400 and "Invalid file format" in response.text and self.expected.programs_are_broken():
                # Another program in the place of ffprobe has no good word for any video.
                raise InDoubt
            self.answered(user, f"submit of {submission.video}, {submission.blob}", response, 201)
        except BaseException:
            with user.lock:
                user.in_doubt.append(submission)
            raise
        with user.lock:
            name = response.json()["job_id"]
            if name not in user.jobs and name not in user.deleted:
                user.jobs[name] = Job(name, submission.video, {"new"})
            user.counts["submissions"] += 1

    def pick(self, user: User, choice: random.Random) -> Job | None:
        """A job that no other thread is at; the caller gives it back."""
        with user.lock:
            free = sorted(name for name, job in user.jobs.items() if name not in user.busy and not job.deleting)
            if not free:
                return None
            job = user.jobs[choice.choice(free)]
            user.busy.add(job.name)
            return job

    def patch(self, user: User, client: Client, choice: random.Random) -> None:
        job = self.pick(user, choice)
        if job is None:
            return
        try:
            title = f"title {choice.random()}"
            job.titles.add(title)
            self.answered(user, "PATCH", client.patch(job.name, {"title": title}), 200)
            job.titles = {title}
            user.counts["changes"] += 1
        finally:
            user.busy.discard(job.name)

    def delete(self, user: User, client: Client, choice: random.Random) -> None:
        # Few jobs are left alone, many are not.
        if choice.random() * MOST > len(user.jobs):
            return
        job = self.pick(user, choice)
        if job is None:
            return
        try:
            job.deleting = True
            self.answered(user, "DELETE", client.delete(job.name), 204)
            with user.lock:
                del user.jobs[job.name]
                user.deleted.add(job.name)
            user.counts["deletions"] += 1
        finally:
            user.busy.discard(job.name)

    def look(self, user: User, client: Client, choice: random.Random) -> None:
        job = self.pick(user, choice)
        if job is None:
            return
        try:
            found = self.answered(user, "GET of an acknowledged job", client.get(f"/api/v1/jobs/{job.name}/"), 200).json()
            check(found["title"] in job.titles, f"{job.name} is called {found['title']!r}, not one of {job.titles}")
            note_status(job, found)
            self.answered(user, "list", client.get("/api/v1/jobs/"), 200)
        finally:
            user.busy.discard(job.name)

    def download(self, user: User, client: Client, choice: random.Random) -> None:
        job = self.pick(user, choice)
        if job is None:
            return
        try:
            found = self.answered(user, "GET of an acknowledged job", client.get(f"/api/v1/jobs/{job.name}/"), 200).json()
            if note_status(job, found) == "Finished":
                fetch(client, job, self.expected, lambda what, response: self.answered(user, what, response, 200))
                user.counts["downloads"] += 1
        finally:
            user.busy.discard(job.name)

    def leave(self, user: User, client: Client, choice: random.Random) -> None:
        leave.anywhere(client.server, client, [name for name, job in list(user.jobs.items()) if job.ended == "Finished"], self.expected.flat, choice)
        user.counts["departures"] += 1


def note_status(job: Job, found: dict) -> str:
    """What the job shows; an end is for good, and a job without one has no files."""
    status = found["status"]
    check(re.fullmatch(Client.STATUS, status) is not None, f"{job.name} is {status!r}")
    if job.ended:
        check(status == job.ended, f"{job.name} was {job.ended} and is {status}")
    if status in ("Finished", "Failed"):
        job.ended = status
    finished = status == "Finished"
    check(found["has_ply"] == finished and found["has_spz"] == finished, f"{status} with has_ply {found['has_ply']}, has_spz {found['has_spz']}")
    check((found["percent_complete"] == 100) == finished, f"{status} at {found['percent_complete']} %")
    return status


def fetch(client: Client, job: Job, expected: Expected, answered) -> None:
    """Whatever is served is whole, and never another file than before."""
    for path in ("download/ply", "download/spz", "preview"):
        location = answered(f"{path} of a finished job", client.get(f"/api/v1/jobs/{job.name}/{path}/", allow_redirects=True))
        digest = hashlib.sha256(location.content).hexdigest()
        before = job.files.setdefault(path, digest)
        check(digest == before, f"{path} of {job.name} is another one than before: published twice")
        expected.check_file(path, digest, job.video)
