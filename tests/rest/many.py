"""A service of several servers and workers, each a process with a folder of its own, as on as many machines.

With `LIBRECONSTRUCT_TEST_SERVERS=2` beside `LIBRECONSTRUCT_TEST_POSTGRES=1` the servers that many tests share are such services: so
many servers, and so many workers where there are any. Each request of a client goes to the next server, each video to another one
than gave its address.
"""

import itertools
import os
import subprocess
from pathlib import Path

from . import postgres
from .server import BINARY, Server, to_toml

COUNT = int(os.environ.get("LIBRECONSTRUCT_TEST_SERVERS", "1"))
IS_ASKED_FOR = COUNT > 1
if IS_ASKED_FOR and not postgres.IS_ASKED_FOR:
    raise ValueError("LIBRECONSTRUCT_TEST_SERVERS needs LIBRECONSTRUCT_TEST_POSTGRES=1: machines share rows in PostgreSQL")


class ManyServers(Server):
    """Is the first of the servers, and has the others."""

    def __init__(self, folder: Path, config: dict | None = None, environment: dict | None = None):
        super().__init__(folder, config, environment)
        has_workers = self.config["workers"] > 0
        self.config |= {"workers": 0, "secrets": str(self.data / "secrets.json")}
        self.others = [Server(folder / f"server-{n}", config, environment) for n in range(2, COUNT + 1)]
        for other in self.others:
            other.config |= self.config
        self.worker_folders = [folder / f"worker-{n}" for n in range(1, COUNT + 1)] if has_workers else []
        self.worker_processes: list[subprocess.Popen] = []
        self.turns = itertools.cycle([self, *self.others])

    @property
    def servers(self) -> list[Server]:
        return [self, *self.others]

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def spawn(self, environment: dict | None = None) -> None:
        super().spawn(environment)
        for other in self.others:
            other.spawn(environment)
        self.worker_processes = []
        for folder in self.worker_folders:
            folder.mkdir(exist_ok=True)
            config = folder / "worker.toml"
            config.write_text(to_toml(self.config))
            command = [BINARY, "worker", "--data", folder / "data", "--config", config, "--threads", "1", "--name", folder.name]
            with (folder / "log").open("ab") as log:
                self.worker_processes.append(
                    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment(environment))
                )

    def wait_until_up(self, within: float = 30) -> bool:
        return super().wait_until_up(within) and all(other.wait_until_up(within) for other in self.others)

    def stop(self, within: float = 30) -> int:
        for worker in self.worker_processes:
            worker.terminate()
        codes = [super().stop(within), *(other.stop(within) for other in self.others)]
        for worker in self.worker_processes:
            worker.wait(within)
        return max(codes)

    def kill(self) -> None:
        super().kill()
        for other in self.others:
            other.kill()
        for worker in self.worker_processes:
            worker.kill()
            worker.wait()

    def workers(self) -> list[int]:
        return sorted(worker.pid for worker in self.worker_processes if worker.poll() is None)

    def log_text(self) -> str:
        logs = [server.log for server in self.servers] + [folder / "log" for folder in self.worker_folders]
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    def machines(self) -> list[Path]:
        return [*(server.data for server in self.servers), *(folder / "data" for folder in self.worker_folders)]

    def url_of_a_request(self) -> str:
        return next(self.turns).url

    def is_ours(self, url: str) -> bool:
        return any(url.startswith(server.url + "/") for server in self.servers)

    def elsewhere(self, url: str) -> str:
        for server, other in zip(self.servers, [*self.others, self], strict=True):
            if url.startswith(server.url + "/"):
                return other.url + url.removeprefix(server.url)
        return url


# What tests share that do not ask for a server of their own.
SHARED = ManyServers if IS_ASKED_FOR else Server
