"""`reconstruct submit`, `status` and `download` against real servers, over lines that break, and against a server of another kind."""

import hashlib
import http.server
import json
import os
import re
import signal
import subprocess
import threading
import time
import uuid
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from . import storage
from .proxy import Line
from .server import BINARY, free_port
from .test_specification import JOB_FIELDS

QUICK = ["--training-num-steps", "20", "--training-max-num-gaussians", "1000"]
MIB = 2**20


class Command:
    """The commands as one user has them, with a folder of notes of its own."""

    def __init__(self, url: str, key: str, folder: Path):
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("LIBRECONSTRUCT_", "RECONSTRUCT_"))}
        self.environment |= {"RECONSTRUCT_SERVER": url, "RECONSTRUCT_API_KEY": key, "XDG_CACHE_HOME": str(folder / "cache")}
        self.notes = folder / "cache/reconstruct/uploads"

    def start(self, *arguments, **environment) -> subprocess.Popen:
        return subprocess.Popen(
            [BINARY, *map(str, arguments)], env=self.environment | environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *arguments, code: int = 0, **environment) -> tuple[str, str]:
        """What it says on standard output and standard error."""
        process = self.start(*arguments, **environment)
        output, errors = process.communicate(timeout=400)
        assert process.returncode == code, (process.returncode, output, errors)
        assert self.environment["RECONSTRUCT_API_KEY"] not in output + errors
        return output, errors

    def refused(self, *arguments, code: int, says: str, **environment) -> str:
        output, errors = self.run(*arguments, code=code, **environment)
        assert output == "" and "error: " in errors and says in errors, errors
        return errors


@pytest.fixture
def command(server, fresh, tmp_path) -> Command:
    """On the server without workers."""
    return Command(server.url, fresh.key, tmp_path)


@pytest.fixture(scope="module")
def large(flat, tmp_path_factory) -> Path:
    """A genuine video of 26 MiB, most of which is what players skip."""
    path = tmp_path_factory.mktemp("large") / "Küche & Bad.mp4"
    filling = os.urandom(26 * MIB)
    path.write_bytes(flat.read_bytes() + (len(filling) + 8).to_bytes(4, "big") + b"free" + filling)
    return path


def stored(server, client, job: str) -> bytes:
    """The hash of a job's video."""
    blob = client.get(f"/api/v1/jobs/{job}/report/").json()["requested"]["blob_name"]
    with server.rows(read_only=True) as rows:
        return rows.execute("SELECT sha256 FROM uploads WHERE blob_name = ?", (blob,)).fetchone()[0]


def test_from_a_video_to_a_scene(worker_server, capture, tmp_path):
    client = worker_server.user(f"u{uuid.uuid4().hex[:12]}")
    command = Command(worker_server.url, client.key, tmp_path)
    output, errors = command.run("submit", capture, "-o", tmp_path / "scene", "--title", "A room", "--camera-type", "orbital", *QUICK)
    job_id, *written = output.split()
    assert [Path(path).name for path in written] == ["scene.ply", "scene.spz", "preview.jpg"]
    assert sorted(path.name for path in (tmp_path / "scene").iterdir()) == ["preview.jpg", "scene.ply", "scene.spz"]
    assert "Queued" in errors and "Finished" in errors and "scene.ply" in errors
    job = client.job(job_id)
    assert (job["title"], job["camera_data"]["cameraType"], job["training_num_steps"]) == ("A room", "orbital", 20)
    ply = client.get(f"/api/v1/jobs/{job_id}/download/ply/", allow_redirects=True).content
    assert (tmp_path / "scene/scene.ply").read_bytes() == ply

    assert command.run("status", job_id)[0] == "Finished\n"
    assert set(json.loads(command.run("status", job_id, "--json")[0])) == JOB_FIELDS
    output, _ = command.run("download", job_id, "-o", tmp_path / "more", "--files", "spz,report,log", "--json")
    files = json.loads(output.splitlines()[-1])["files"]
    assert [Path(file).name for file in files] == ["scene.spz", "report.json", "log.txt"]
    assert "sfm" in json.loads((tmp_path / "more/report.json").read_text())
    # What the command that makes scenes can read.
    assert "1000 splats" in command.run("info", tmp_path / "more/scene.spz")[0]


def test_a_job_that_fails_fails_the_command_that_waits(worker_server, flat, tmp_path):
    client = worker_server.user(f"u{uuid.uuid4().hex[:12]}")
    command = Command(worker_server.url, client.key, tmp_path)
    output, errors = command.run("submit", flat, "--wait", *QUICK, code=5)
    job_id = output.strip()
    reason = client.get(f"/api/v1/jobs/{job_id}/report/").json()["failure"]["message"]
    assert f"job {job_id} failed: {reason}" in errors
    assert command.run("status", job_id)[0] == "Failed\n"
    command.run("status", job_id, "--wait", code=5)
    errors = command.refused("download", job_id, "-o", tmp_path / "none", code=3, says="PLY file not available for this job")
    assert "the job is: Failed" in errors
    command.run("download", job_id, "-o", tmp_path / "none", "--files", "log")
    assert (tmp_path / "none/log.txt").stat().st_size > 0 and not (tmp_path / "none/scene.ply").exists()


def test_what_is_wrong_is_said(server, fresh, command, flat, tmp_path):
    key = fresh.key
    command.refused("submit", tmp_path / "none.mp4", code=3, says="none.mp4: it does not exist")
    command.refused("submit", tmp_path, code=2, says="is not a file")
    text = tmp_path / "text.mp4"
    text.write_text("this is no video")
    command.refused("submit", text, code=2, says="Invalid file format")
    text = tmp_path / "text.txt"
    text.write_text("this is no video")
    assert "mp4, mov" in command.refused("submit", text, code=2, says="Invalid file format")
    command.refused("submit", flat, "--training-num-steps", "0", code=2, says="training_num_steps is 0: 1 to 200000")
    command.refused("submit", flat, code=7, says="Invalid API key", RECONSTRUCT_API_KEY="lrk_12345678.wrong")
    assert "--api-key-file" in command.refused("submit", flat, code=2, says="no API key", RECONSTRUCT_API_KEY="")
    command.refused("submit", flat, code=2, says="no server is named", RECONSTRUCT_SERVER="")
    command.refused("submit", flat, "--server", "scenes.example.org", code=2, says="no address of a server")
    unreachable = f"http://127.0.0.1:{free_port()}"
    command.refused("status", uuid.uuid4(), "--server", unreachable, code=6, says="the connection to 127.0.0.1 failed")
    command.refused("status", uuid.uuid4(), code=3, says="Job not found")
    command.refused("status", "../../../x?y", code=3, says="Job not found")
    command.refused("submit", flat, "--ca-file", text, code=2, says="no certificate")
    assert fresh.jobs() == []
    # In a file, too; and never on the command line.
    (tmp_path / "key").write_text(key + "\n")
    command.run("submit", flat, "--api-key-file", tmp_path / "key", RECONSTRUCT_API_KEY="")
    assert len(fresh.jobs()) == 1
    other = server.user(f"u{uuid.uuid4().hex[:12]}")
    theirs = Command(server.url, other.key, tmp_path)
    theirs.refused("status", fresh.jobs()[0]["job_id"], code=3, says="Job not found")


def test_the_status_of_a_job_that_waits(fresh, command, flat):
    job_id = command.run("submit", flat, "--public", "--remove-background", "--reconstruction-method", "colmap")[0].strip()
    job = fresh.job(job_id)
    assert job["public"] and job["remove_background"] and job["reconstruction_method"] == "colmap"
    assert job["title"] == flat.name and job["training_num_steps"] == 25_000
    assert command.run("status", job_id)[0].startswith("Queued - position: ")
    assert "the job is: Queued" in command.refused("download", job_id, code=3, says="PLY file not available")
    process = command.start("status", job_id, "--wait", "--json")
    try:
        assert json.loads(process.stdout.readline())["job"]["job_id"] == job_id
        assert fresh.request("POST", f"/api/v1/jobs/{job_id}/cancel/").status_code == 200
        output, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130 and json.loads(output.splitlines()[-1])["kind"] == "cancelled"


@pytest.mark.skipif(storage.IS_ASKED_FOR, reason="videos do not go through the server")
class TestBrokenLines:
    def test_a_line_that_breaks_again_and_again(self, server, fresh, tmp_path, large):
        with Line(server.port, cut_after=6 * MIB) as line:
            command = Command(line.url, fresh.key, tmp_path)
            output, errors = command.run("submit", large)
            job = output.strip()
            assert fresh.job(job)["title"] == large.name
            assert stored(server, fresh, job) == hashlib.sha256(large.read_bytes()).digest()
            assert "upload" in errors and list(command.notes.iterdir()) == []
            # One block was sent twice now and then, no more.
            assert line.sent < 2 * large.stat().st_size

    @pytest.mark.parametrize("how", ["kill", "terminate"])
    def test_a_command_that_was_stopped_goes_on(self, server, fresh, tmp_path, large, how):
        with Line(server.port, pause=0.01) as line:
            command = Command(line.url, fresh.key, tmp_path)
            process = command.start("submit", large)
            end = time.monotonic() + 60
            while line.sent < 14 * MIB:
                assert time.monotonic() < end and process.poll() is None
                time.sleep(0.01)
            getattr(process, how)()
            process.communicate(timeout=20)
            assert process.returncode == (-9 if how == "kill" else 130)
            (note,) = command.notes.iterdir()
            assert note.stat().st_mode & 0o777 == 0o600
            assert 2 <= json.loads(note.read_text())["blocks"] <= 4
            line.pause, before = 0, line.sent
            # Another server is another upload; the same goes on.
            job = command.run("submit", large)[0].strip()
            assert line.sent - before < 20 * MIB
            assert stored(server, fresh, job) == hashlib.sha256(large.read_bytes()).digest()
            assert [entry["job_id"] for entry in fresh.jobs()] == [job] and list(command.notes.iterdir()) == []

    def test_a_video_that_has_changed_begins_anew(self, server, fresh, tmp_path, large):
        changed = tmp_path / "changed.mp4"
        changed.write_bytes(large.read_bytes())
        with Line(server.port, pause=0.01) as line:
            command = Command(line.url, fresh.key, tmp_path)
            process = command.start("submit", changed)
            while line.sent < 10 * MIB:
                assert process.poll() is None
                time.sleep(0.01)
            process.kill()
            process.communicate()
            changed.write_bytes(large.read_bytes() + b"\0\0\0\x08free")
            line.pause = 0
            job = command.run("submit", changed)[0].strip()
        assert stored(server, fresh, job) == hashlib.sha256(changed.read_bytes()).digest()

    def test_an_upload_that_is_gone_begins_anew(self, server, fresh, tmp_path, large):
        with Line(server.port, pause=0.01) as line:
            command = Command(line.url, fresh.key, tmp_path)
            process = command.start("submit", large)
            while line.sent < 10 * MIB:
                assert process.poll() is None
                time.sleep(0.01)
            process.kill()
            process.communicate()
            (note,) = command.notes.iterdir()
            kept = json.loads(note.read_text())
            note.write_text(json.dumps(kept | {"url": kept["url"].replace("sig=", "sig=0"), "blob_name": f"videos/{uuid.uuid4()}.mp4"}))
            line.pause = 0
            job = command.run("submit", large)[0].strip()
        assert stored(server, fresh, job) == hashlib.sha256(large.read_bytes()).digest()

    def test_a_wrong_option_does_not_cost_the_upload(self, server, fresh, tmp_path, large):
        with Line(server.port) as line:
            command = Command(line.url, fresh.key, tmp_path)
            command.run("submit", large, "--training-num-steps", "0", code=2)
            before = line.sent
            command.run("submit", large)
            assert line.sent - before < MIB

    def test_a_server_that_restarts_under_way(self, make_server, tmp_path, large):
        server = make_server()
        client = server.user("anna")
        with Line(server.port, pause=0.01) as line:
            command = Command(line.url, client.key, tmp_path)
            process = command.start("submit", large)
            while line.sent < 10 * MIB:
                assert process.poll() is None
                time.sleep(0.01)
            server.kill()
            server.start()
            line.pause = 0
            output, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
        assert stored(server, client, output.strip()) == hashlib.sha256(large.read_bytes()).digest()


class Foreign:
    """As little of a server as the specification asks for: videos and scenes are at another address, and it is busy at times."""

    KEY = "Api-Key some-key-of-another-kind"

    def __init__(self):
        self.seen: list[tuple[str, str, dict, bytes]] = []
        self.busy = 2
        self.cut = 1
        self.job_id = str(uuid.uuid4())
        self.scene = os.urandom(300_000)
        foreign = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status: int, body: bytes = b"", **headers: str):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                foreign.seen.append((self.command, self.path, headers, body))
                if self.path.startswith("/api/"):
                    if headers.get("authorization") != Foreign.KEY:
                        return self.answer(401, b'{"error": "no"}')
                    if foreign.busy:
                        foreign.busy -= 1
                        return self.answer(503, b"busy", Retry_After="1")
                return foreign.respond(self, self.path)

            do_GET = do_PUT = do_POST = handle_any

        self.servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
        for server in self.servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url, self.store = (f"http://127.0.0.1:{server.server_port}" for server in self.servers)

    def respond(self, handler, path: str) -> None:
        job = {"job_id": self.job_id, "title": "a", "status": "Finished", "percent_complete": 100}
        if path == "/api/v1/generate-upload-url/":
            address = {"url": f"{self.store}/put?sig=1", "blob_name": "videos/x.mp4", "headers": {"x-amz-needed": "yes"}}
            handler.answer(200, json.dumps(address).encode())
        elif path.startswith("/put"):
            handler.answer(200)
        elif path == "/api/v1/submit-job/":
            handler.answer(200, json.dumps(job | {"success": True, "status": "queued"}).encode())
        elif path == f"/api/v1/jobs/{self.job_id}/":
            handler.answer(200, json.dumps(job).encode())
        elif path.startswith("/api/v1/jobs/") and ("/download/" in path or "/preview/" in path):
            handler.answer(302, Location=f"{self.store}/scene")
        elif path == "/scene":
            self.send_scene(handler)
        else:
            handler.answer(404, b'{"error": "Not found"}')

    def send_scene(self, handler) -> None:
        start = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        handler.send_response(206 if start else 200)
        handler.send_header("ETag", '"a"')
        handler.send_header("Content-Length", str(len(self.scene) - start))
        handler.end_headers()
        end = len(self.scene)
        if self.cut:
            # The connection breaks in the middle.
            self.cut -= 1
            end = 100_000
            handler.close_connection = True
        handler.wfile.write(self.scene[start:end])
        handler.wfile.flush()


def test_a_server_of_another_kind(flat, tmp_path):
    foreign = Foreign()
    command = Command(foreign.url, Foreign.KEY.removeprefix("Api-Key "), tmp_path)
    output, _ = command.run("submit", flat, "-o", tmp_path / "scene")
    assert output.split()[0] == foreign.job_id
    assert all((tmp_path / "scene" / name).read_bytes() == foreign.scene for name in ("scene.ply", "scene.spz", "preview.jpg"))
    puts = [entry for entry in foreign.seen if entry[0] == "PUT"]
    assert len(puts) == 1 and puts[0][3] == flat.read_bytes()
    assert puts[0][2]["x-amz-needed"] == "yes" and "flat.mp4" in puts[0][2]["content-disposition"].replace("%2E", ".")
    # The key goes to the server, and to nobody else.
    assert all(("authorization" in headers) == path.startswith("/api/") for _, path, headers, _ in foreign.seen)
    ranges = [headers["range"] for _, path, headers, _ in foreign.seen if path == "/scene" and "range" in headers]
    assert ranges == ["bytes=100000-"]
    keys = {headers["idempotency-key"] for _, path, headers, _ in foreign.seen if path == "/api/v1/submit-job/"}
    assert len(keys) == 1
    assert not list((tmp_path / "scene").glob("*.part"))


class Moved(Foreign):
    """Its storage sends on to another place so many times, or has no file, or sends uploads on."""

    def __init__(self, times: int):
        self.times, self.has_file, self.takes_videos = times, True, True
        super().__init__()
        self.busy = self.cut = 0

    def respond(self, handler, path: str) -> None:
        place, _, step = path.partition("?step=")
        if place == "/scene" and int(step or 0) < self.times:
            handler.answer(307, b"it has moved", Location=f"/scene?step={int(step or 0) + 1}")
        elif place == "/scene" and not self.has_file:
            handler.answer(203, b"no scene")
        elif place.startswith("/put") and not self.takes_videos:
            handler.answer(307, Location="https://elsewhere.example/put?sig=secret")
        else:
            super().respond(handler, place)


def test_redirects_are_followed_to_files_alone(flat, tmp_path):
    moved = Moved(3)
    command = Command(moved.url, Foreign.KEY.removeprefix("Api-Key "), tmp_path)
    command.run("download", moved.job_id, "-o", tmp_path / "scene", "--files", "ply")
    assert (tmp_path / "scene/scene.ply").read_bytes() == moved.scene
    assert all(("authorization" in headers) == path.startswith("/api/") for _, path, headers, _ in moved.seen)
    moved.times = 100
    command.refused("download", moved.job_id, "-o", tmp_path / "none", code=6, says="redirected 6 times")
    moved.times, moved.has_file = 0, False
    command.refused("download", moved.job_id, "-o", tmp_path / "none", code=6, says="status 203")
    assert list((tmp_path / "none").iterdir()) == []
    moved.takes_videos = False
    assert "secret" not in command.refused("submit", flat, code=6, says="a redirect to https://elsewhere.example")
    assert not any(path == "/api/v1/submit-job/" for _, path, _, _ in moved.seen)


class Slow(Foreign):
    """On a line that is too slow for more than 256 KiB at once; it takes blocks."""

    def __init__(self):
        super().__init__()
        self.busy = self.cut = 0

    def respond(self, handler, path: str) -> None:
        if path == "/api/v1/generate-upload-url/":
            handler.answer(200, json.dumps({"url": f"{self.store}/blob/videos/x.mp4?sig=1", "blob_name": "videos/x.mp4"}).encode())
        elif path.startswith("/blob/"):
            too_slow = int(handler.headers["Content-Length"]) > MIB // 4
            handler.answer(408 if too_slow else 201, b'{"error": "Too slow"}' if too_slow else b"")
        else:
            super().respond(handler, path)


@pytest.mark.parametrize("size", [MIB // 2 + 5, 4 * MIB + 5])
def test_a_slow_line_gets_less_at_a_time(tmp_path, size):
    slow = Slow()
    video = tmp_path / "a.mp4"
    video.write_bytes(os.urandom(size))
    command = Command(slow.url, Foreign.KEY.removeprefix("Api-Key "), tmp_path)
    assert command.run("submit", video)[0].strip() == slow.job_id
    puts = [(parse_qs(urlsplit(path).query), body) for method, path, _, body in slow.seen if method == "PUT"]
    taken = {query["blockid"][0]: body for query, body in puts if query.get("comp") == ["block"] and len(body) <= MIB // 4}
    listed = re.findall("<Latest>(.*?)</Latest>", puts[-1][1].decode())
    assert puts[-1][0]["comp"] == ["blocklist"] and b"".join(taken[name] for name in listed) == video.read_bytes()
    # What was too slow was sent once.
    assert sum(len(body) > MIB // 4 for _, body in puts) == 1


class TooSlow(Slow):
    """The address has expired when the blocks come."""

    def respond(self, handler, path: str) -> None:
        if "comp=block" in path:
            handler.answer(403, b'{"error": "The address has expired"}')
        else:
            super().respond(handler, path)


def test_who_has_too_slow_a_line_is_told_how_fast_it_must_be(tmp_path):
    video = tmp_path / "a.mp4"
    video.write_bytes(os.urandom(4 * MIB + 5))
    command = Command(TooSlow().url, Foreign.KEY.removeprefix("Api-Key "), tmp_path)
    assert "below 8 KiB a second" in command.refused("submit", video, code=6, says="Too slow")


def test_a_submission_that_was_cut_off_is_not_made_twice(fresh, command, flat):
    """A small video, too: all of it is there, and the command is killed while it submits."""
    process = command.start("submit", flat)
    end = time.monotonic() + 20
    while not list(command.notes.glob("*.json")) and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.001)
    process.kill()
    process.communicate()
    if process.returncode == 0:
        pytest.skip("the command was faster than this test")
    before = [entry["job_id"] for entry in fresh.jobs()]
    job = command.run("submit", flat)[0].strip()
    assert [entry["job_id"] for entry in fresh.jobs()] == [job] and before in ([], [job])
    assert list(command.notes.iterdir()) == []


def until(holds, within: float = 20) -> None:
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_wait_outlives_a_server_that_is_started_anew(make_server, flat, tmp_path):
    server = make_server()
    client = server.user("anna")
    command = Command(server.url, client.key, tmp_path)
    process = command.start("submit", flat, "--wait")
    try:
        job_id = process.stdout.readline().strip()
        assert process.stderr.readline() and process.poll() is None
        server.stop()
        # Longer than a request is tried again.
        while not (line := process.stderr.readline()).startswith("waiting: "):
            assert line and process.poll() is None
        assert f"job {job_id} goes on" in line
        server.start()
        assert client.request("POST", f"/api/v1/jobs/{job_id}/cancel/").status_code == 200
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 130 and f"job {job_id} failed: " in errors
    finally:
        process.kill()


def test_who_stops_waiting_is_not_told_to_submit_once_more(fresh, command, flat):
    process = command.start("submit", flat, "--wait")
    try:
        job_id = process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130 and "the same command" not in errors
    assert f"hint: job {job_id} goes on: reconstruct status {job_id} --wait" in errors
    assert fresh.job(job_id)["status"].startswith("Queued")


class Endless(Foreign):
    """Its scene never ends."""

    def send_scene(self, handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(2 * len(self.scene)))
        handler.end_headers()
        handler.wfile.write(self.scene)
        handler.wfile.flush()
        self.stopped.wait(20)

    def __init__(self):
        self.stopped = threading.Event()
        super().__init__()
        self.busy = self.cut = 0


def test_a_download_that_is_stopped_leaves_nothing(tmp_path):
    endless = Endless()
    command = Command(endless.url, Foreign.KEY.removeprefix("Api-Key "), tmp_path)
    process = command.start("download", endless.job_id, "-o", tmp_path / "scene", "--files", "ply")
    try:
        until(lambda: any(path.stat().st_size > 0 for path in tmp_path.glob("scene/*.part")))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    finally:
        process.kill()
        endless.stopped.set()
    assert process.returncode == 130 and list((tmp_path / "scene").iterdir()) == []


def test_help_teaches(command):
    for name in ("submit", "status", "download"):
        output, _ = command.run(name, "--help")
        for words in ("RECONSTRUCT_SERVER", "RECONSTRUCT_API_KEY", "Examples:", "Exit codes:"):
            assert words in output, (name, words)
