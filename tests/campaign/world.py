"""All that a campaign plays on: the server, its worker processes, the machine that they believe to be on, their folder."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import requests

from rest.server import BINARY, SMALL_RECONSTRUCTION, Server, is_worker

from .disk import MIB, SmallDisk
from .machine import Machine
from .programs import Programs

# Where the driver of a GPU in software is described; more than enough to see one vanish.
DRIVER = Path("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json")
# A job that was disturbed so often is spared until it has ended. The rests after more disturbances take minutes, and the tenth
# in a row ends it: so it is told from a job that kills its workers.
SPARED_AFTER = 4


class Worker:
    """A `reconstruct worker` process."""

    def __init__(self, world: "World", number: int):
        self.world, self.number = world, number
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        world = self.world
        command = [BINARY, "worker", "--data", world.data, "--config", world.server.folder / "serve.toml", "--threads", "1"]
        with world.log.open("ab") as log:
            self.process = subprocess.Popen(
                command + ["--name", f"worker-{self.number}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=world.server._environment(world.server.environment),
            )

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class SupervisedWorker:
    """A worker process that the server started, and starts again when it ends."""

    def __init__(self, pid: int):
        self.process = self
        self.pid = pid

    def poll(self) -> int | None:
        """Nothing while it lives, as a `Popen` says it."""
        return None if is_worker(self.pid) else 0

    def is_alive(self) -> bool:
        return self.poll() is None

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.is_alive():
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("worker", seconds)
            time.sleep(0.02)

    def kill(self) -> None:
        if self.is_alive():
            self.send_signal(signal.SIGKILL)


class World:
    def __init__(self, folder: Path, *, workers: int = 1, own_disk: bool = False, gpu: bool = False, lease_seconds: int | None = None):
        self.folder = folder
        self.log = folder / "server" / "server.log"
        self.disk = SmallDisk(folder / "disk", 1536 * MIB) if own_disk else None
        self.machine = Machine(folder / "machine", folder / "server" / "data")
        self.programs = Programs(folder / "programs")
        self.driver = folder / "driver.json"
        environment = self.machine.environment | self.programs.environment
        config = {"workers": 1, "worker_threads": 1, "log": "info,wgpu_core=warn,wgpu_hal=error,naga=warn"}
        if gpu:
            config["reconstruction"] = SMALL_RECONSTRUCTION | {"device": "gpu"}
            environment |= {"VK_DRIVER_FILES": str(self.driver), "VK_ICD_FILENAMES": str(self.driver)}
            self.driver.write_text(DRIVER.read_text())
        self.gpu = gpu
        # Shorter than the default only where a process is to sleep for longer.
        if lease_seconds is not None:
            config["lease_seconds"] = lease_seconds
        self.server = Server(folder / "server", config, environment)
        if self.disk is not None:
            self.server.data = self.disk.place / "data"
            self.machine.data = self.server.data
            self.server.environment |= self.machine.environment
        self.workers = [Worker(self, number) for number in range(1, workers + 1)]
        self.kills = 0
        # Where the clock stood when the present jobs began, seconds: it may go so far from there.
        self.clock_base = 0.0
        # Held by whoever starts or ends processes.
        self.lock = threading.RLock()

    @property
    def data(self) -> Path:
        return self.server.data

    def start(self) -> None:
        """Starts what does not run, and waits until the server answers."""
        with self.lock:
            self.spawn()
            end = time.monotonic() + 60
            # A fault may end a process that is just starting; the next one finds the folder as it was left.
            while not self.server.wait_until_up(60):
                if time.monotonic() > end:
                    raise AssertionError(f"the server does not come up:\n{self.server.log_text()[-3000:]}")
                time.sleep(0.1)
                self.server.spawn()

    def spawn(self) -> None:
        with self.lock:
            if not self.server.is_alive():
                self.server.spawn()
            for worker in self.workers:
                if not worker.is_alive():
                    worker.start()

    def processes(self) -> list:
        return [self.server, *self.workers, *self.supervised()]

    def supervised(self) -> list[SupervisedWorker]:
        """The server's own workers that live now."""
        return [SupervisedWorker(pid) for pid in self.server.workers()] if self.server.is_alive() else []

    def kill(self, one) -> None:
        """SIGKILL, as the system sends it where memory runs out."""
        with self.lock:
            if one.is_alive():
                self.kills += 1
            one.kill()

    def kill_all(self) -> None:
        for one in self.processes():
            self.kill(one)

    def stop_all_at_once(self, number: int = signal.SIGTERM) -> None:
        """As an init system stops a service: the signal goes to all of its processes, those of ffmpeg too."""
        with self.lock:
            for one in self.processes():
                if one.is_alive():
                    # What stands still must go on to end.
                    one.process.send_signal(signal.SIGCONT)
                    one.process.send_signal(number)
            self.programs.signal_running(number)
            for one in self.processes():
                if one.process is not None:
                    try:
                        one.process.wait(40)
                    except subprocess.TimeoutExpired:
                        raise AssertionError("a process did not end within 40 s of SIGTERM") from None

    def close(self) -> None:
        self.machine.good_disk()
        for one in self.processes():
            if one.process is not None and one.process.poll() is None:
                # It may be stopped by a signal.
                one.process.send_signal(signal.SIGCONT)
            one.kill()
        self.programs.signal_running(signal.SIGKILL)
        if self.disk is not None:
            self.disk.remove()

    def hide_driver(self) -> None:
        if self.driver.exists():
            self.driver.rename(self.driver.with_suffix(".away"))

    def show_driver(self) -> None:
        away = self.driver.with_suffix(".away")
        if away.exists():
            away.rename(self.driver)

    def let_days_pass(self) -> None:
        """Until everything that belongs to nobody is old enough to be swept. The clock may have been set back by twenty hours
        since an upload was touched."""
        self.machine.jump((30 + 20) * 3600)
        self.clock_base = self.machine.offset
        self.server.stop()
        self.start()

    def come_back(self) -> None:
        """Where nothing has another clock, days that have passed do no harm."""

    # --- what is in the folder ---

    def stored(self, name: str) -> int | None:
        """Bytes of a stored file; nothing if it is not there."""
        path = self.data / name
        return path.stat().st_size if path.exists() else None

    def what_is_left(self) -> list[str]:
        """Files and folders of the service but those that it always has."""
        always = {"jobs.db", "jobs.db-wal", "jobs.db-shm", "secrets.json", "lock", "host", "kept-room.json", "kept-room.lock", "kept-room.part"}
        always |= {"videos", "blocks", "scenes", "staged", "work", "processes"}
        left = []
        for folder, folders, files in os.walk(self.data):
            for name in folders + files:
                path = os.path.relpath(os.path.join(folder, name), self.data)
                if path not in always and not path.startswith("processes/"):
                    left.append(path)
        # A file for each process that lives; those of the dead are swept.
        processes = os.listdir(self.data / "processes")
        if len(processes) > len(self.processes()):
            left += [f"processes/{name}" for name in processes]
        return left

    def logs(self) -> list[Path]:
        """What all processes wrote."""
        return [self.log]

    # --- what is in the database ---

    def check_database(self) -> None:
        with contextlib.closing(sqlite3.connect(f"file:{self.data / 'jobs.db'}?mode=ro", uri=True, timeout=20)) as database:
            for pragma, good in (("integrity_check", [("ok",)]), ("foreign_key_check", [])):
                found = database.execute(f"PRAGMA {pragma}").fetchall()
                assert found == good, f"{pragma}: {found}"

    def rows(self, sql: str, *values) -> list[tuple]:
        with contextlib.closing(sqlite3.connect(f"file:{self.data / 'jobs.db'}?mode=ro", uri=True, timeout=20)) as database:
            return database.execute(sql, values).fetchall()

    def held_by_weary_jobs(self) -> set[int]:
        """Processes that work on a job which was disturbed so often that it is spared now."""
        try:
            found = self.rows("SELECT lease_worker FROM jobs WHERE state = 'running' AND disturbances + crashes >= ?", SPARED_AFTER)
        except sqlite3.Error:
            return {one.process.pid for one in self.processes() if one.process}
        names = {name for (name,) in found}
        held = {worker.process.pid for worker in self.workers if worker.process and f"worker-{worker.number}" in names}
        if self.server.process and any(name.startswith("127.") for name in names):
            # With the server go its workers.
            held.add(self.server.process.pid)
            held.update(one.pid for one in self.supervised())
        return held

    def weary(self) -> bool:
        """Whether some job was disturbed so often that it should come to its end before anything else happens."""
        try:
            return bool(self.rows("SELECT 1 FROM jobs WHERE state IN ('queued', 'running') AND deleted = 0 AND disturbances + crashes >= ? LIMIT 1", SPARED_AFTER))
        except sqlite3.Error:
            return True

    def pick(self, choice: random.Random):
        """A process that may be disturbed now, or none."""
        held = self.held_by_weary_jobs()
        free = [one for one in self.processes() if one.is_alive() and one.process.pid not in held]
        return choice.choice(free) if free else None

    def answers(self) -> bool:
        try:
            return requests.get(f"{self.server.url}/healthz", timeout=5).status_code == 200
        except requests.RequestException:
            return False
