"""A run to be played back: clients use a real server while all that it writes is recorded, and note what they were told when."""

import fcntl
import hashlib
import pickle
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import requests

from compiled import compiled
from rest import media
from rest.server import Client, Server

from .history import History

FLAT = {"training_max_num_gaussians": 1000, "training_num_steps": 20}
SHORT = {"training_max_num_gaussians": 1000, "training_num_steps": 30}
# Some seconds of training even on a quick machine, so that it can be stopped in the middle, with a checkpoint.
LONG = {"training_max_num_gaussians": 2000, "training_num_steps": 6000}


@dataclass
class Fact:
    """Something that a client asked for at a moment of the record, and was told to be done at another one."""

    asked: int
    told: int | None
    what: str
    """uploaded, submitted, titled, deleted, cancelled, finished"""
    value: str = ""


@dataclass
class Story:
    """All that is known of one job."""

    name: str
    kind: str
    """flat, short or long: its video and its options"""
    facts: list[Fact] = field(default_factory=list)


class Recording:
    def __init__(self, folder: Path):
        self.folder = folder
        self.disk = folder / "disk"
        self.disk.mkdir(parents=True, exist_ok=True)
        self.record, self.lock = folder / "record", folder / "lock"
        self.record.touch()
        self.lock.touch()
        environment = {
            "LD_PRELOAD": str(compiled(Path(__file__).with_name("recorder.c"), library=True)),
            "RECORDER_FOLDER": str(self.disk),
            "RECORDER_LOG": str(self.record),
            "RECORDER_LOCK": str(self.lock),
        }
        # One process, so that whoever is killed takes all that is written with it.
        self.server = Server(folder / "server", {"workers": 1, "separate_workers": False, "worker_threads": 2}, environment)
        self.server.data = self.disk / "data"
        self.key = ""
        self.key_made = 0
        self.stories: dict[str, Story] = {}
        # Uploads that no job uses, by their names.
        self.uploads: dict[str, Fact] = {}
        # Of each kind of job, the hashes of its files, or the code of its failure.
        self.results: dict[str, dict[str, str]] = {}

    # What `save` keeps beside the record itself.
    KEPT = ("key", "key_made", "stories", "uploads", "results")

    def save(self) -> None:
        """Keeps what the clients know, so that `load` can go on with it."""
        (self.folder / "known").write_bytes(pickle.dumps({name: getattr(self, name) for name in self.KEPT}))

    @classmethod
    def load(cls, folder: Path) -> "Recording":
        recording = cls(folder)
        for name, value in pickle.loads((folder / "known").read_bytes()).items():
            setattr(recording, name, value)
        return recording

    def moment(self) -> int:
        """How much is recorded now. What a client has been told rests on that."""
        return self.record.stat().st_size

    @contextmanager
    def fact(self, what: str, value: str = "") -> Iterator[Fact]:
        fact = Fact(self.moment(), None, what, value)
        yield fact
        fact.told = self.moment()

    def kill(self) -> None:
        """No thread of the server is between a call and its note while this holds the lock."""
        with self.lock.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.server.process.send_signal(signal.SIGKILL)
            self.server.process.wait()

    def command(self, *arguments: str) -> dict:
        return self.server.command(*arguments, environment=self.server.environment)

    # --- what the client does ---

    def upload(self, client: Client, video: bytes, in_blocks: bool = False) -> str:
        with self.fact("uploaded", hashlib.sha256(video).hexdigest()) as fact:
            address = client.upload_url()
            if in_blocks:
                cut = len(video) // 3
                for name, part in (("QQ==", video[:cut]), ("Qg==", video[cut:])):
                    assert client.put(f"{address['url']}&comp=block&blockid={name}", part).status_code == 201
                blocks = b"<BlockList><Latest>QQ==</Latest><Latest>Qg==</Latest></BlockList>"
                assert client.put(f"{address['url']}&comp=blocklist", blocks).status_code == 201
            else:
                assert client.put(address["url"], video).status_code == 201
        self.uploads[address["blob_name"]] = fact
        return address["blob_name"]

    def submit(self, client: Client, kind: str, in_blocks: bool = False) -> Story:
        video = (media.flat_video() if kind == "flat" else media.capture()).read_bytes()
        blob = self.upload(client, video, in_blocks)
        options = {"flat": FLAT, "short": SHORT, "long": LONG}[kind]
        with self.fact("submitted", "first") as fact:
            del self.uploads[blob]
            response = client.try_submit(blob, title="first", **options)
            assert response.status_code == 201, response.text
        story = Story(response.json()["job_id"], kind, [fact])
        self.stories[story.name] = story
        return story

    def call(self, story: Story, what: str, value: str, do) -> None:
        fact = Fact(self.moment(), None, what, value)
        story.facts.append(fact)
        do()
        fact.told = self.moment()

    def title(self, client: Client, story: Story, title: str) -> None:
        def do():
            assert client.patch(story.name, {"title": title}).status_code == 200

        self.call(story, "titled", title, do)

    def delete(self, client: Client, story: Story) -> None:
        def do():
            assert client.delete(story.name).status_code == 204

        self.call(story, "deleted", "", do)

    def wait(self, client: Client, story: Story) -> None:
        """Until it has ended; what it came to is noted, and is what every job of its kind comes to."""
        asked = self.moment()
        found = client.wait(story.name)
        result = {"status": found["status"]}
        if found["status"] == "Finished":
            result |= fetched(client, story.name)
        story.facts.append(Fact(asked, self.moment(), "ended", found["status"]))
        known = self.results.setdefault(story.kind, result)
        assert known == result, f"a job of the kind {story.kind} came to {result}, before to {known}"


def fetched(client: Client, job: str) -> dict[str, str]:
    """Hashes of what is served of a finished job."""
    found = {}
    for path in ("download/ply", "download/spz", "preview"):
        response = client.get(f"/api/v1/jobs/{job}/{path}/", allow_redirects=True)
        assert response.status_code == 200, f"{path}: {response.status_code} {response.text[:200]}"
        found[path] = hashlib.sha256(response.content).hexdigest()
    return found


def record(folder: Path) -> Recording:
    """Makes the recording: about half a minute of a server's life."""
    recording = Recording(folder)
    server = recording.server
    try:
        server.start()
        recording.command("users", "add", "anna", "--tier", "enterprise")
        recording.key = recording.command("keys", "create", "anna")["key"]
        recording.key_made = recording.moment()
        client = Client(server, recording.key)
        live(recording, client)
    finally:
        if server.is_alive():
            recording.kill()
    recording.save()
    return recording


def until_it_trains(client: Client, story: Story) -> None:
    end = time.monotonic() + 60
    while client.job(story.name)["status"] != "Generating 3D scene":
        assert time.monotonic() < end, "the training does not begin"
        time.sleep(0.05)


def live(recording: Recording, client: Client) -> None:
    server = recording.server
    # Everything once, one after the other.
    flat = recording.submit(client, "flat")
    short = recording.submit(client, "short", in_blocks=True)
    recording.title(client, flat, "second")
    recording.wait(client, flat)
    recording.wait(client, short)
    recording.title(client, short, "second")
    recording.delete(client, flat)
    recording.upload(client, media.flat_video().read_bytes())
    # A training that is stopped in order: it leaves a checkpoint, with which the next server goes on.
    long = recording.submit(client, "long")
    waiting = recording.submit(client, "flat")
    until_it_trains(client, long)
    time.sleep(0.5)
    assert server.stop() == 0
    server.start()
    until_it_trains(client, long)
    # And one that is killed, while others wait.
    another = recording.submit(client, "short")
    recording.title(client, another, "third")
    recording.kill()
    server.start()
    recording.wait(client, long)
    recording.wait(client, waiting)
    recording.wait(client, another)
    recording.delete(client, long)
    recording.upload(client, media.capture().read_bytes(), in_blocks=True)
    # Killed where something has just become durable, or has not.
    for place in ("storage.put.sync_folder", "storage.commit.sync_folder", "database.publish.commit", "worker.published"):
        recording.kill()
        server.start({"FAILPOINTS": f"{place}=1*return(kill)"})
        try:
            last = recording.submit(client, "short")
        except (requests.RequestException, AssertionError):
            pass
        else:
            server.process.wait(60)
        if server.process.poll() is None:
            recording.kill()
        client.session.close()
        server.start()
        recording.title(client, short, f"after {place}")
    recording.wait(client, last)
    recording.delete(client, another)
    time.sleep(0.5)


def history(recording: Recording) -> History:
    return History(recording.record, recording.disk)


__all__ = ["Recording", "Story", "fetched", "history", "record"]
