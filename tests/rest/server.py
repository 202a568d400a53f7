"""The real binary under test: a server on a free port over a fresh folder, and its command line."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import requests
from requests.structures import CaseInsensitiveDict

from . import postgres, storage

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("RECONSTRUCT", ROOT / "target/release/reconstruct")).resolve()
# How the files of a scene end, by their kind, as the storage names them.
ENDINGS = {
    "ply": "ply",
    "spz": "spz",
    "preview": "jpg",
    "report": "json",
    "log": "log",
    "cameras": "cameras.zip",
    "masks": "masks.zip",
    "turntable": "mp4",
    "sog": "sog",
    "glb": "glb",
    "first_look": "first.spz",
    "poses": "poses.jpg",
}

# Settings with which a tiny capture becomes a scene in seconds on two cores.
SMALL_RECONSTRUCTION = {
    "device": "cpu",
    "max_frames": 12,
    "max_resolution": 240,
    "training_max_resolution": 160,
    "sh_degree": 0,
}
# Tests ask more than people do.
NO_RATE_LIMITS = {
    "requests_per_minute": 0,
    "submits_per_hour": 0,
    "uploads_per_hour": 0,
    "failed_authentications_per_minute": 0,
}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def to_toml(config: dict) -> str:
    """Settings and sections of settings as TOML; JSON's strings, numbers, booleans and arrays are TOML's too."""
    plain = [f"{k} = {json.dumps(v)}" for k, v in config.items() if not isinstance(v, dict)]
    for name, section in config.items():
        if isinstance(section, dict):
            plain += [f"[{name}]"] + [f"{k} = {json.dumps(v)}" for k, v in section.items()]
    return "\n".join(plain) + "\n"


# The status of a complete upload: ours (rule 24 of docs/rest.md), or that of the store to which the address leads.
TAKEN = 200 if storage.SCHEME in ("s3", "gs") else 201
# Folders of a machine's own, wherever videos and scenes are.
OF_A_MACHINE = {"work", "processes"}


class CommandFailed(Exception):
    """A command of the binary ended with an error."""

    def __init__(self, code: int, output: str):
        super().__init__(f"exit code {code}: {output}")
        self.code = code
        self.output = output


def is_worker(pid: int) -> bool:
    """Whether a process lives that is a server's worker; a number is not given away soon after the end of its process."""
    try:
        return b"--supervised" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def write_config(folder: Path, config: dict) -> Path:
    """Writes the configuration of a server. Whoever starts meanwhile reads the whole of it, or of the one before."""
    file = folder / "serve.toml"
    new = folder / f"serve.toml.{threading.get_ident()}"
    new.write_text(to_toml(config))
    return new.replace(file)


class Server:
    """A `reconstruct serve` process that can be stopped, killed and started again on the same port and folder."""

    def __init__(self, folder: Path, config: dict | None = None, environment: dict | None = None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data = self.folder / "data"
        self.port = free_port()
        self.scheme = "http"
        self.config = {
            "workers": 0,
            "rate_limits": dict(NO_RATE_LIMITS),
            "reconstruction": dict(SMALL_RECONSTRUCTION),
        } | (config or {})
        if postgres.IS_ASKED_FOR:
            self.config |= postgres.settings(self.data)
        if storage.IS_ASKED_FOR:
            self.config["storage"] = storage.address()
        self.environment = dict(environment or {})
        self.process: subprocess.Popen | None = None
        self.log = self.folder / "server.log"

    def share(self, other: "Server") -> None:
        """Before the start: the rows and files of another server."""
        self.data = other.data
        self.config |= {key: other.config[key] for key in ("database", "storage") if key in other.config}

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def urls(self) -> list[str]:
        """Of all servers of the service."""
        return [self.url]

    def _environment(self, more: dict | None = None) -> dict:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("LIBRECONSTRUCT_", "FAILPOINTS"))}
        return clean | (more or {})

    def spawn(self, environment: dict | None = None) -> None:
        """Starts the process and returns at once."""
        config = write_config(self.folder, self.config)
        command = [BINARY, "serve", "--config", config, "--data", self.data, "--listen", f"127.0.0.1:{self.port}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(self.environment | (environment or {})),
            )

    def start(self, environment: dict | None = None, within: float = 30) -> "Server":
        """Starts the process and waits until it answers."""
        self.spawn(environment)
        if not self.wait_until_up(within):
            raise AssertionError(f"the server did not come up:\n{self.log_text()[-3000:]}")
        return self

    def wait_until_up(self, within: float = 30) -> bool:
        """False if the process ended first."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            if self.process.poll() is not None:
                return False
            try:
                if requests.get(f"{self.url}/healthz", timeout=5, verify=False).status_code == 200:
                    return True
            except requests.RequestException:
                time.sleep(0.02)
        raise AssertionError(f"no answer within {within} s:\n{self.log_text()[-3000:]}")

    def stop(self, within: float = 30) -> int:
        """Asks the process to end, as an operator does; its exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"SIGTERM did not stop the server within {within} s") from None

    def kill(self) -> None:
        """Ends the process without a chance to clean up."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def workers(self) -> list[int]:
        """The processes of its workers, but not those of ffmpeg."""
        found = []
        for thread in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            # A thread may have ended meanwhile.
            with contextlib.suppress(OSError):
                found += [int(pid) for pid in thread.read_text().split()]
        return sorted(pid for pid in found if is_worker(pid))

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def command(self, *arguments: str, environment: dict | None = None) -> dict:
        """Runs a command on the server's folder with `--json` and returns the last object that it printed."""
        config = write_config(self.folder, self.config)
        group, *rest = arguments
        done = subprocess.run(
            [BINARY, group, "--data", self.data, "--config", config, "--json", *rest],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=self._environment(environment),
            timeout=120,
        )
        if done.returncode != 0:
            raise CommandFailed(done.returncode, done.stdout + done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    @contextlib.contextmanager
    def rows(self, read_only: bool = False):
        """The database of the server: a connection to SQLite's file, or what is like one to PostgreSQL."""
        if "database" in self.config:
            yield postgres.Rows(self.config["database"])
            return
        mode = "ro" if read_only else "rw"
        with sqlite3.connect(f"file:{self.data / 'jobs.db'}?mode={mode}", uri=True, timeout=20) as database:
            yield database

    def user(self, name: str, tier: str = "enterprise") -> "Client":
        """Adds a user with a key; the client that uses it."""
        user = self.command("users", "add", name, "--tier", tier)
        return self.client_with_new_key(name, user)

    def client_with_new_key(self, name: str, user: dict | None = None) -> "Client":
        key = self.command("keys", "create", name)
        return Client(self, key["key"], name=name, user=user)

    @property
    def stored(self) -> "storage.Folder | storage.Place":
        """Where the service keeps videos and scenes."""
        return storage.at(self.config.get("storage") or f"file://{self.data}")

    def machines(self) -> list[Path]:
        """The folders of all processes, in which is what only one machine needs."""
        return [self.data]

    def files(self, *folders: str) -> list[str]:
        """Paths of all files below these folders of the storage or of the machines."""
        found = [
            f"{name}/{file}" for machine in self.machines() for name in OF_A_MACHINE.intersection(folders)
            for file in storage.Folder(machine / name).names()
        ]
        wanted = set(folders) - OF_A_MACHINE
        if wanted:
            found += [name for name in self.stored.names() if any(name.startswith(f"{folder}/") for folder in wanted)]
        return sorted(found)

    def url_of_a_request(self) -> str:
        """Where the next request of a client goes."""
        return self.url

    def is_ours(self, url: str) -> bool:
        """Whether an address leads to a server, not to a store."""
        return url.startswith(self.url + "/")

    def elsewhere(self, url: str) -> str:
        """The same address at another server of the service, if it has one and the address is one of ours."""
        return url


class Client:
    """A user's requests. Every status that a job shows passes through here and is checked against §3 of docs/rest.md."""

    STATUS = r"Queued|Queued - position: [1-9]\d*|Processing video|Generating 3D scene|Finished|Failed"

    def __init__(self, server: Server, key: str | None, name: str = "", user: dict | None = None):
        self.server = server
        self.key = key
        self.name = name
        self.user = user
        # Headers that an upload to an address needs.
        self.needed: dict[str, dict[str, str]] = {}
        self.session = requests.Session()
        self.session.trust_env = False
        if key is not None:
            self.session.headers["Authorization"] = f"Api-Key {key}"

    def request(self, method: str, path: str, **options) -> requests.Response:
        """A request to a path of the server, or to a whole address; redirects are not followed."""
        options.setdefault("allow_redirects", False)
        options.setdefault("timeout", 60)
        url = path if path.startswith("http") else self.server.url_of_a_request() + path
        return self.session.request(method, url, **options)

    def get(self, path: str, **options) -> requests.Response:
        return self.request("GET", path, **options)

    def upload_url(self, extension: str = "mp4") -> dict:
        """A new upload address: `url` and `blob_name`."""
        response = self.request("POST", "/api/v1/generate-upload-url/", json={"file_extension": extension})
        assert response.status_code == 200, response.text
        return self.learn(response.json())

    def learn(self, address: dict) -> dict:
        """An upload address as it is used: at another server, if there is one, and with the headers that it needs."""
        address["url"] = self.server.elsewhere(address["url"])
        self.needed[address["url"]] = address.get("headers", {})
        return address

    def put(self, url: str, data, headers: dict | None = None, **options) -> requests.Response:
        """A PUT of bytes to an upload address, without the key and with the headers that were asked for with the address."""
        options.setdefault("timeout", 120)
        session = requests.Session()
        session.trust_env = False
        sent = CaseInsensitiveDict(self.needed.get(url, {}))
        sent.update(headers or {})
        # Clients of Azure have a name of their own for it.
        if "x-ms-blob-type" in self.needed.get(url, {}) and "Content-Disposition" in sent:
            sent.setdefault("x-ms-blob-content-disposition", sent["Content-Disposition"])
        return session.put(url, data=data, headers=sent, allow_redirects=False, **options)

    def upload(self, video: bytes | Path, extension: str | None = None, **options) -> str:
        """Uploads a video; its blob name."""
        if isinstance(video, Path):
            extension = extension or video.suffix[1:]
            video = video.read_bytes()
        address = self.upload_url(extension or "mp4")
        response = self.put(address["url"], video, **options)
        # A store to which the address leads has a word of its own.
        assert response.status_code == 201 or (response.status_code == 200 and not self.server.is_ours(address["url"])), response.text
        return address["blob_name"]

    def try_submit(self, blob_name, headers: dict | None = None, **fields) -> requests.Response:
        return self.request("POST", "/api/v1/submit-job/", json={"blob_name": blob_name} | fields, headers=headers)

    def submit(self, video: str | Path, **fields) -> str:
        """Submits an uploaded video, or uploads a file first; the job's id."""
        blob_name = self.upload(video) if isinstance(video, Path) else video
        fields = {"training_max_num_gaussians": 1000, "training_num_steps": 20} | fields
        response = self.try_submit(blob_name, **fields)
        assert response.status_code == 201, response.text
        return response.json()["job_id"]

    def job(self, job_id: str) -> dict:
        """The job; it must be there."""
        import re

        response = self.get(f"/api/v1/jobs/{job_id}/")
        assert response.status_code == 200, response.text
        job = response.json()
        assert re.fullmatch(self.STATUS, job["status"]), job["status"]
        return job

    def patch(self, job_id: str, fields: dict) -> requests.Response:
        return self.request("PATCH", f"/api/v1/jobs/{job_id}/", json=fields)

    def delete(self, job_id: str) -> requests.Response:
        return self.request("DELETE", f"/api/v1/jobs/{job_id}/")

    def jobs(self, query: str = "") -> list[dict]:
        response = self.get(f"/api/v1/jobs/{query}")
        assert response.status_code == 200, response.text
        return response.json()

    def wait(self, job_id: str, within: float = 240, seen: list | None = None) -> dict:
        """Polls the job until it has ended; every answer goes to `seen`."""
        end = time.monotonic() + within
        while True:
            job = self.job(job_id)
            if seen is not None:
                seen.append(job)
            if job["status"] in ("Finished", "Failed"):
                return job
            assert time.monotonic() < end, f"not ended within {within} s: {job}"
            time.sleep(0.1)


def raw_exchange(port: int, payload: bytes, timeout: float = 30) -> bytes:
    """Sends bytes as they are and returns what comes until the server closes or nothing comes for a second after an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as s:
        s.sendall(payload)
        answer = b""
        try:
            while True:
                more = s.recv(65536)
                if not more:
                    return answer
                answer += more
                s.settimeout(1)
        except (TimeoutError, ConnectionResetError):
            return answer
