"""What the videos of a campaign come to when nothing disturbs them: found out once, before the faults begin."""

import random
from collections import defaultdict
from collections.abc import Callable

from rest import media
from rest.server import Client, Server


class Expected:
    """The videos, how each ends, and the files that come out."""

    def __init__(self, programs_are_broken: Callable[[], bool] = lambda: False, captures: float = 0.4, longs: float = 0.0):
        self.capture = media.capture().read_bytes()
        self.flat = media.flat_video().read_bytes()
        self.programs_are_broken = programs_are_broken
        # Their share; the others fail quickly.
        self.captures = captures
        # Of these the share that trains for longer: the same video, with other options.
        self.longs = longs
        # One file each where jobs run on the processor: there a job comes to the same bits, however often it was disturbed.
        self.files: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.failure = ""
        self.same_bits = True

    def bytes_of(self, video: str) -> bytes:
        return self.flat if video == "flat" else self.capture

    def choose(self, choice: random.Random) -> str:
        drawn = choice.random()
        if drawn >= self.captures:
            return "flat"
        return "long" if drawn < self.captures * self.longs else "capture"

    def end_of(self, video: str) -> str:
        return "Failed" if video == "flat" else "Finished"

    def check_file(self, path: str, digest: str, video: str) -> None:
        known = self.files[path, video]
        if self.same_bits and known and digest not in known:
            raise AssertionError(f"{path} is not what the same video came to undisturbed")
        known.add(digest)

    def learn(self, server: Server, client: Client, gpu: bool, options_of: Callable[[str], dict]) -> None:
        """Runs each video once, undisturbed, with its options."""
        import hashlib

        # A graphics device adds up in an order of its own each time.
        self.same_bits = not gpu
        videos = ["capture", "flat", *(["long"] if self.longs else [])]
        jobs = {video: client.submit(client.upload(self.bytes_of(video), extension="mp4"), title="new", **options_of(video)) for video in videos}
        for video, job in jobs.items():
            # However busy the machine is.
            found = client.wait(job, within=900)
            if found["status"] != self.end_of(video):
                raise AssertionError(f"{video} is {found['status']} undisturbed:\n{server.log_text()[-2000:]}")
        for video in videos:
            if self.end_of(video) != "Finished":
                continue
            for path in ("download/ply", "download/spz", "preview"):
                content = client.get(f"/api/v1/jobs/{jobs[video]}/{path}/", allow_redirects=True).content
                self.files[path, video].add(hashlib.sha256(content).hexdigest())
        shown = server.command("jobs", "show", jobs["flat"], environment=server.environment)
        self.failure = shown["failure"]["code"]
        for job in jobs.values():
            if client.delete(job).status_code != 204:
                raise AssertionError("DELETE")
