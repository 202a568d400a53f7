"""Figures of the server under load, as a table. They depend on the machine, so no test asserts them; the load average stands above
them, since other work on the machine is in them too.

    cd tests && python -m rest.load [--starts 10] [--seconds 10] [--upload-mib 2048] [--slow 1000] [--files 100000]

Needs wrk (Debian package wrk), but for `--only start`.
"""

import argparse
import hashlib
import http.client
import os
import platform
import re
import resource
import selectors
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import requests

from campaign.machine import Machine

from . import media
from .server import BINARY, Client, Server

MIB = 1 << 20


def memory(server: Server, name: str) -> float:
    """VmRSS or VmHWM of the server's process, in MiB."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1024


def reset_peak(server: Server) -> None:
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")


def milliseconds(text: str) -> float:
    value, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(value) * {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}[unit]


def wrk(client: Client, path: str, seconds: int, connections: int) -> str:
    """Requests a second and times of one path."""
    command = ["wrk", f"-t{min(2, connections)}", f"-c{connections}", f"-d{seconds}s", "--latency", "-H", f"Authorization: Api-Key {client.key}", client.server.url + path]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])
    if "nan" in text:
        return "NO ANSWERS:\n" + text
    p50, p99 = (milliseconds(re.search(rf"^\s+{p}%\s+(\S+)", text, re.M)[1]) for p in (50, 99))
    errors = re.search(r"Non-2xx.*: (\d+)|Socket errors: .*", text)
    return f"{rate:8.0f}/s  p50 {p50:7.2f} ms  p99 {p99:7.2f} ms" + (f"  ERRORS {errors[0]}" if errors else "")


def row(what: str, figures: str) -> None:
    print(f"{what:58} {figures}", flush=True)


def is_ready(server: Server) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def starts(folder: Path, count: int) -> None:
    """From the start of the process over an empty folder until it says that it is ready, and its memory then."""
    taken, used = [], []
    for number in range(count):
        server = Server(folder / f"start-{number}", {"workers": 1, "log": "warn"})
        began = time.perf_counter()
        server.spawn()
        try:
            while not is_ready(server):
                if not server.is_alive() or time.perf_counter() - began > 60:
                    raise AssertionError(f"the server did not come up:\n{server.log_text()[-3000:]}")
                time.sleep(0.001)
            taken.append((time.perf_counter() - began) * 1e3)
            used.append(memory(server, "VmRSS"))
            server.stop()
        finally:
            server.kill()
    row("size of the program", f"{BINARY.stat().st_size / MIB:.0f} MiB")
    row(f"start over an empty folder, {count} times", f"median {statistics.median(taken):.0f} ms, from {min(taken):.0f} to {max(taken):.0f}")
    row("memory when it is ready", f"median {statistics.median(used):.0f} MiB")


def requests_a_second(client: Client, seconds: int) -> None:
    job = client.submit(media.flat_video())
    client.wait(job)
    blob = client.upload(media.flat_video())
    for n in range(100):
        client.submit(blob, title=f"job {n}")
    paths = {"GET job": f"/api/v1/jobs/{job}/", "GET list of 101 jobs": "/api/v1/jobs/", "GET unknown job": f"/api/v1/jobs/{job[:-4]}0000/"}
    while any(client.job(entry["job_id"])["status"] not in ("Failed", "Finished") for entry in client.jobs()):
        time.sleep(0.5)
    for connections in (1, 16, 64):
        row(f"GET job, idle, {connections} connections", wrk(client, paths["GET job"], seconds, connections))
    row("GET list of 101 jobs, idle, 16 connections", wrk(client, paths["GET list of 101 jobs"], seconds, 16))
    training = client.submit(media.capture(), training_num_steps=200_000)
    while client.job(training)["status"] != "Generating 3D scene":
        assert client.job(training)["status"] != "Failed"
        time.sleep(0.2)
    for connections in (1, 16, 64):
        row(f"GET job, a job trains, {connections} connections", wrk(client, paths["GET job"], seconds, connections))
    before, began = client.job(training)["percent_complete"], time.monotonic()
    assert client.delete(training).status_code == 204
    while any(training in name for name in client.server.files("work")):
        time.sleep(0.05)
    row(f"DELETE of a training job ({before} %) until its files are gone", f"{time.monotonic() - began:.2f} s")


def transfers(client: Client, size: int, folder: Path) -> None:
    server = client.server
    video = media.capture().read_bytes()
    address = client.upload_url()
    big = folder / "big.bin"
    with big.open("wb") as f:
        f.write(video)
        f.truncate(size)
    began = time.monotonic()
    shutil.copyfile(big, folder / "copy.bin")
    with (folder / "copy.bin").open("rb") as f:
        os.fsync(f.fileno())
    (folder / "copy.bin").unlink()
    row(f"cp and fsync of {size // MIB} MiB, for comparison", f"{size / MIB / (time.monotonic() - began):8.0f} MiB/s")
    began = time.monotonic()
    digest = hashlib.sha256()
    for _ in range(256):
        digest.update(bytes(MIB))
    row("SHA-256 with one core, for comparison", f"{256 / (time.monotonic() - began):8.0f} MiB/s")
    reset_peak(server)
    idle = memory(server, "VmRSS")
    began = time.monotonic()
    done = subprocess.run(["curl", "-sS", "-f", "-T", big, address["url"]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    taken = time.monotonic() - began
    growth = memory(server, "VmHWM") - idle
    row(f"PUT of {size // MIB} MiB", f"{size / MIB / taken:8.0f} MiB/s  memory {idle:.0f} MiB + {growth:.0f} at most")
    # Its artifacts are small: a large file in the place of one shows what a large scene does.
    job = client.submit(media.capture())
    assert client.wait(job)["status"] == "Finished"
    [scene] = [server.data / name for name in server.files(f"scenes/{job}") if name.endswith(".ply")]
    os.replace(big, scene)
    location = client.get(f"/api/v1/jobs/{job}/download/ply/").headers["Location"]
    reset_peak(server)
    idle = memory(server, "VmRSS")
    began = time.monotonic()
    done = subprocess.run(["curl", "-sS", "-f", "-o", "/dev/null", location], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    taken = time.monotonic() - began
    growth = memory(server, "VmHWM") - idle
    row(f"GET of {size // MIB} MiB", f"{size / MIB / taken:8.0f} MiB/s  memory {idle:.0f} MiB + {growth:.0f} at most")
    # Sixteen clients that read slowly.
    reset_peak(server)
    idle = memory(server, "VmRSS")
    slow = [requests.get(location, stream=True, timeout=30) for _ in range(16)]
    time.sleep(2)
    growth = memory(server, "VmHWM") - idle
    row("16 downloads whose clients do not read", f"memory {idle:.0f} MiB + {growth:.0f} at most")
    for response in slow:
        response.close()


def times(client: Client, path: str, seconds: float) -> list[float]:
    taken, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        response = client.get(path)
        assert response.status_code == 200, response.text
        taken.append((time.perf_counter() - began) * 1e3)
    return taken


def shown(taken: list[float]) -> str:
    taken = sorted(taken)
    return f"p50 {statistics.median(taken):7.2f} ms  p99 {taken[int(len(taken) * 0.99)]:7.2f} ms  ({len(taken)} requests)"


def slow_clients(client: Client, count: int) -> None:
    """Heads that never end, byte by byte, beside a client that behaves; then bodies that trickle."""
    server = client.server
    job = client.submit(media.flat_video())
    path = f"/api/v1/jobs/{job}/"
    row("a normal client alone", shown(times(client, path, 5)))
    before = memory(server, "VmRSS")
    sockets = []
    began = time.monotonic()
    for _ in range(count):
        s = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        s.sendall(b"GET /api/v1/jobs/ HTTP/1.1\r\nHost: x\r\n")
        sockets.append(s)
    opened = time.monotonic() - began
    stop = threading.Event()
    cut = []

    def trickle() -> None:
        open_ones = list(sockets)
        while open_ones and not stop.is_set():
            for s in list(open_ones):
                try:
                    s.sendall(b"X")
                    s.setblocking(False)
                    try:
                        if s.recv(1024) == b"":
                            raise ConnectionResetError
                        raise ConnectionResetError  # an answer: it was refused
                    except BlockingIOError:
                        pass
                    s.setblocking(True)
                except OSError:
                    open_ones.remove(s)
                    cut.append(time.monotonic() - began)
            time.sleep(0.5)

    thread = threading.Thread(target=trickle)
    thread.start()
    row(f"beside {count} heads that never end (opened in {opened:.1f} s)", shown(times(client, path, 8)))
    row("memory with them", f"{before:.0f} MiB, now {memory(server, 'VmRSS'):.0f}")
    end = time.monotonic() + 40
    while len(cut) < count and time.monotonic() < end:
        time.sleep(0.5)
    stop.set()
    thread.join()
    row("heads that never end are cut", f"{len(cut)} of {count}, the last after {max(cut, default=float('nan')):.1f} s")
    for s in sockets:
        s.close()
    # Bodies of 100 uploads that never come.
    sockets = []
    for _ in range(60):
        url = urlsplit(client.upload_url()["url"])
        s = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        s.sendall(f"PUT {url.path}?{url.query} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx".encode())
        sockets.append(s)
    row("beside 60 uploads that do not come", shown(times(client, path, 5)))
    for s in sockets:
        s.close()


class SlowHeads:
    """So many connections from many addresses whose heads never end, a byte each every few seconds. Who is cut is followed by another.

    All of 127.0.0.0/8 is this machine on Linux, so the server sees clients of many addresses."""

    ADDRESSES = 50
    PAUSE_SECONDS = 3

    def __init__(self, server: Server, count: int):
        self.port, self.count = server.port, count
        self.cut = self.failed = self.opened = 0
        # How many were open, again and again: those that were opened together are cut together.
        self.open: list[int] = []
        self.when: dict[socket.socket, float] = {}
        self.selector = selectors.DefaultSelector()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def __enter__(self) -> "SlowHeads":
        self.thread.start()
        end = time.monotonic() + 60
        while len(self.when) < self.count and time.monotonic() < end:
            time.sleep(0.1)
        return self

    def __exit__(self, *_) -> None:
        self.done.set()
        self.thread.join()
        for s in self.when:
            s.close()
        self.selector.close()

    def _open(self) -> None:
        source = f"127.1.{self.opened % self.ADDRESSES}.1"
        self.opened += 1
        try:
            s = socket.create_connection(("127.0.0.1", self.port), timeout=10, source_address=(source, 0))
            s.sendall(b"GET /api/v1/jobs/ HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        except OSError:
            self.failed += 1
            return
        s.setblocking(False)
        self.selector.register(s, selectors.EVENT_READ)
        self.when[s] = time.monotonic() + self.PAUSE_SECONDS

    def _drop(self, s: socket.socket) -> None:
        self.selector.unregister(s)
        s.close()
        del self.when[s]
        self.cut += 1

    def _run(self) -> None:
        while not self.done.is_set():
            # A few at a time, so that those that are open are not forgotten meanwhile.
            for _ in range(min(50, self.count - len(self.when))):
                self._open()
            # Whatever comes is the end: an answer, or that the server has closed.
            for key, _ in self.selector.select(0.05):
                self._drop(key.fileobj)
            now = time.monotonic()
            for s in [s for s, when in self.when.items() if when <= now]:
                try:
                    s.send(b"x")
                    self.when[s] = now + self.PAUSE_SECONDS
                except OSError:
                    self._drop(s)
            self.open.append(len(self.when))

    def open_meanwhile(self) -> str:
        """How many were open since the last call."""
        # None was noted yet if they have only just been opened.
        counts, self.open = self.open or [len(self.when)], []
        return f"{statistics.median(counts):.0f} (at least {min(counts)})"


def requests_beside_slow_heads(client: Client, count: int, seconds: int) -> None:
    server = client.server
    job = client.submit(media.flat_video())
    client.wait(job)
    before = memory(server, "VmRSS")
    with SlowHeads(server, count) as slow:
        for connections in (1, 16, 64):
            slow.open_meanwhile()
            figures = wrk(client, f"/api/v1/jobs/{job}/", seconds, connections)
            row(f"GET job, beside {slow.open_meanwhile()} slow heads, {connections} connections", figures)
        row("they came from many addresses", f"{slow.opened} opened, {slow.cut} cut, {slow.failed} failed; memory {before:.0f} MiB, now {memory(server, 'VmRSS'):.0f}")


def sweep(client: Client, count: int, seconds: int) -> None:
    """Files that no row names, older than a sweep leaves alone. It begins when the server does, which needs a program with failpoints:
    else it comes an hour later."""
    server = client.server
    job = client.submit(media.flat_video())
    client.wait(job)
    assert server.stop() == 0
    machine = Machine(server.folder / "machine", server.data)
    videos = server.data / "videos"
    kept = len(os.listdir(videos))
    for number in range(count):
        (videos / f"{uuid.uuid4()}.{number:016x}.mp4").touch()
    # Nobody can set the time at which a file came to be: so the server's clock is set.
    machine.jump(86400)
    server.environment |= machine.environment
    server.start()
    began = time.monotonic()
    figures = wrk(client, f"/api/v1/jobs/{job}/", seconds, 16)
    left = len(os.listdir(videos)) - kept
    row(f"GET job, {count} files are swept, {left} left, 16 connections", figures)
    while (left := len(os.listdir(videos)) - kept) > 0 and time.monotonic() < began + 600:
        time.sleep(0.1)
    row(f"sweep of {count} files", f"{time.monotonic() - began:.1f} s, {left} left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--upload-mib", type=int, default=2048)
    parser.add_argument("--slow", type=int, default=1000)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--only", choices=["start", "requests", "transfers", "slow", "sweep"])
    arguments = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="load-", dir=media.CACHE.parent) as folder:
        if arguments.only in (None, "start"):
            starts(Path(folder), arguments.starts)
        if arguments.only == "start":
            return
        # All clients have one address here.
        connections = {"max_connections_per_address": 0}
        config = {"workers": 1, "log": "warn", "limits": {"max_queued_jobs": 10_000}, "connections": connections}
        server = Server(Path(folder) / "server", config)
        try:
            client = server.start().user("anna")
            row("memory at the start", f"{memory(server, 'VmRSS'):.0f} MiB")
            if arguments.only in (None, "requests"):
                requests_a_second(client, arguments.seconds)
            if arguments.only in (None, "transfers"):
                transfers(client, arguments.upload_mib * MIB, Path(folder))
            if arguments.only in (None, "slow"):
                slow_clients(client, arguments.slow)
                requests_beside_slow_heads(client, arguments.slow, arguments.seconds)
            if arguments.only in (None, "sweep"):
                sweep(client, arguments.files, arguments.seconds)
            row("largest memory of all", f"{memory(server, 'VmHWM'):.0f} MiB")
        finally:
            server.kill()


if __name__ == "__main__":
    main()
