"""The machines: each has a folder, a clock, an identity and a way to the database of its own, and runs one program."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from campaign.machine import Machine
from rest.server import BINARY, Server, write_config

from .network import Way
from .storage import ObjectStore, SharedFolder


class Host:
    """What servers and workers have in common. Where `storage` is a folder, its files fail when the machine is told so."""

    def __init__(self, folder: Path, way: Way, storage: SharedFolder | ObjectStore):
        self.folder, self.way = folder, way
        folder.mkdir(parents=True)
        self.data = folder / "data"
        self.log = folder / "log"
        self.machine = Machine(folder / "machine", storage.folder)
        self.environment = self.machine.environment | storage.environment()
        self.storage_address = storage.address_for(self.machine)
        self.process: subprocess.Popen | None = None
        # Whether it will die at a place of its program.
        self.is_armed = False

    def start(self, environment: dict | None = None) -> None:
        self.is_armed = environment is not None
        self.spawn(environment)

    def spawn(self, environment: dict | None) -> None:
        raise NotImplementedError

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, within: float = 40) -> None:
        """As an init system does it."""
        if self.is_alive():
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(within)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"a process did not end within {within} s of SIGTERM, see {self.log}") from None

    def lose_folder(self) -> None:
        """The machine is gone for good; another one, with nothing on its disk, takes its place."""
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        self.machine.start_anew()


class ServerHost(Host):
    """Runs `reconstruct serve --workers 0`."""

    def __init__(self, folder: Path, way: Way, storage: SharedFolder | ObjectStore, config: dict):
        super().__init__(folder, way, storage)
        config = config | {"storage": self.storage_address}
        self.server = Server(folder / "server", config, self.environment)
        # Settings of tests that all use PostgreSQL do not count here.
        self.server.config |= config
        self.server.data, self.server.log = self.data, self.log

    @property
    def name(self) -> str:
        return f"server at {self.server.port}"

    def spawn(self, environment: dict | None) -> None:
        self.server.spawn(environment)
        self.process = self.server.process


class WorkerHost(Host):
    """Runs `reconstruct worker`."""

    def __init__(self, folder: Path, way: Way, storage: SharedFolder | ObjectStore, config: dict, name: str):
        super().__init__(folder, way, storage)
        self.config, self.name = config | {"storage": self.storage_address}, name

    def spawn(self, environment: dict | None) -> None:
        config = write_config(self.folder, self.config)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("LIBRECONSTRUCT_", "FAILPOINTS"))}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [BINARY, "worker", "--data", self.data, "--config", config, "--threads", "1", "--name", self.name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean | self.environment | (environment or {}),
            )
