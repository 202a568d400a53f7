"""All that a campaign over many machines plays on: the machines, the database, the storage, and the ways between them."""

import functools
import json
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from campaign.world import SPARED_AFTER
from rest import postgres
from rest.server import NO_RATE_LIMITS, SMALL_RECONSTRUCTION, Server, free_port

from .hosts import Host, ServerHost, WorkerHost
from .lookout import Lookout
from .network import Network, Way
from .storage import KINDS

# The clocks of two machines are apart by so much at most, seconds.
APART = 600
# How often the state of a training is stored at most: as often as it can be, so that rounds need not last for minutes.
CHECKPOINT_SECONDS = 1
# Notes each publication of a scene: there must be one for each job at most, whoever believed to have the job.
NOTES = """CREATE SCHEMA campaign;
CREATE TABLE campaign.publications (job_id TEXT, attempt BIGINT);
CREATE FUNCTION campaign.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO campaign.publications VALUES (NEW.job_id, NEW.attempt); RETURN NULL; END $$;
CREATE TRIGGER note AFTER UPDATE OF state ON jobs FOR EACH ROW
    WHEN (NEW.state = 'finished' AND OLD.state <> 'finished') EXECUTE FUNCTION campaign.note();"""


@functools.cache
def cluster() -> postgres.Cluster:
    """One for all campaigns of this process."""
    return postgres.Cluster(postgres.programs(), free_port())


class Down(Exception):
    """The database cannot be asked now."""


class ManyWorld:
    gpu = False

    def __init__(self, folder: Path, *, servers: int = 2, workers: int = 2, lease_seconds: int | None = None, storage: str = "folder"):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.cluster = cluster()
        address = urlsplit(self.cluster.database())
        self.database = address.path[1:]
        self.storage = KINDS[storage](folder / "storage")
        secrets = folder / "secrets.json"
        postgres.write_secrets(secrets)
        self.network = Network()
        config = {
            "workers": 0,
            "worker_threads": 1,
            "log": "info",
            "secrets": str(secrets),
            "checkpoint_seconds": CHECKPOINT_SECONDS,
            "rate_limits": dict(NO_RATE_LIMITS),
            "reconstruction": dict(SMALL_RECONSTRUCTION),
        }
        # Shorter than the default, which is meant where none is given, only where a machine is to stand still for longer.
        self.lease_seconds = lease_seconds
        if lease_seconds is not None:
            config["lease_seconds"] = lease_seconds

        def way_and_config() -> tuple[Way, dict]:
            way = Way(self.network, self.cluster.port)
            return way, config | {"database": f"postgres://postgres@127.0.0.1:{way.port}/{self.database}?sslmode=disable"}

        self.servers: list[ServerHost] = []
        self.workers: list[WorkerHost] = []
        for number in range(servers):
            way, its = way_and_config()
            self.servers.append(ServerHost(folder / f"server-{number}", way, self.storage, its))
        for number in range(workers):
            way, its = way_and_config()
            self.workers.append(WorkerHost(folder / f"worker-{number}", way, self.storage, its, f"worker-{number}"))
        self.lookout = Lookout(self.workers, CHECKPOINT_SECONDS, self.is_held)
        self.kills = 0
        self.is_down = False
        # Whether what programs said of a video since this was set to false may be wrong.
        self.storage_failed = False
        self.lock = threading.RLock()
        # What was last asked about jobs that are to be spared, and when.
        self.asked: tuple[float, list[tuple]] = (0.0, [])
        # By so much the clocks of the machines are ahead of that of the database, seconds.
        self.days = 0

    @property
    def hosts(self) -> list[Host]:
        return [*self.servers, *self.workers]

    @property
    def server(self) -> Server:
        """One of them, to run commands with."""
        return self.servers[0].server

    def begin(self) -> None:
        """The first start, after which tables and folders are there."""
        self.start()
        self.lookout.start()
        self.cluster.sql(self.database, NOTES)
        self.storage.note_what_is_always_there()

    def start(self) -> None:
        """Starts what does not run, and waits until all servers answer."""
        with self.lock:
            self.spawn()
            end = time.monotonic() + 60
            for host in self.servers:
                # A fault may end a process that is just starting; the next one finds everything as it was left.
                while not host.server.wait_until_up(60):
                    if time.monotonic() > end:
                        raise AssertionError(f"the {host.name} does not come up:\n{host.server.log_text()[-3000:]}")
                    time.sleep(0.1)
                    host.start()

    def spawn(self) -> None:
        with self.lock:
            for host in self.hosts:
                if not host.is_alive():
                    host.start()

    def processes(self) -> list[Host]:
        return self.hosts

    def kill(self, one: Host) -> None:
        """SIGKILL, as the system sends it where memory runs out."""
        with self.lock:
            if one.is_alive():
                self.kills += 1
            one.kill()

    def close(self) -> None:
        self.lookout.close()
        for host in self.hosts:
            self.storage.mend(host.machine)
            host.kill()
            host.way.close()
        self.storage.close()
        self.network.close()
        self.database_goes_on()

    # --- the database ---

    def stop_database(self, how: str) -> None:
        """`fast` says good-bye to all, `immediate` is a crash."""
        if not self.is_down:
            self.is_down = True
            self.cluster.stop(how)

    def freeze_database(self) -> None:
        """It stands still, as a virtual machine does that is moved."""
        if not self.is_down:
            self.is_down = True
            self.cluster.signal(signal.SIGSTOP)

    def database_goes_on(self) -> None:
        if self.is_down:
            if self.cluster.runs():
                self.cluster.signal(signal.SIGCONT)
            else:
                self.cluster.start()
            self.is_down = False

    def rows(self, sql: str, *values) -> list[tuple]:
        """`?` stands for the values, as in SQLite."""
        if self.is_down:
            raise Down
        for value in values:
            sql = sql.replace("?", str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'", 1)
        # A row as an object keeps the order of its columns, and columns of one name.
        text = self.cluster.sql(self.database, f"SELECT coalesce(json_agg(row_to_json(found)), '[]') FROM ({sql}) AS found")
        return [tuple(row.values()) for row in json.loads(text)]

    def wearied(self) -> list[tuple]:
        """Workers at jobs that were disturbed so often that they are spared, or none for one that waits."""
        now = time.monotonic()
        if now - self.asked[0] > 0.3:
            sql = "SELECT lease_worker FROM jobs WHERE state IN ('queued', 'running') AND NOT deleted AND disturbances + crashes >= ?"
            self.asked = now, self.rows(sql, SPARED_AFTER)
        return self.asked[1]

    def weary(self) -> bool:
        """Whether some job was disturbed so often that it should come to its end before anything else happens."""
        try:
            return bool(self.wearied())
        except (Down, subprocess.SubprocessError):
            return True

    def spared(self) -> set[str]:
        """The names of workers that must not be disturbed."""
        try:
            return {name for (name,) in self.wearied() if name}
        except (Down, subprocess.SubprocessError):
            return {host.name for host in self.workers}

    def is_held(self, job: str, attempt: int, worker: str) -> bool:
        """Whether a worker certainly has the job now, and nobody has deleted it."""
        sql = "SELECT attempt FROM jobs WHERE job_id = ? AND attempt = ? AND lease_worker = ? AND state = 'running' AND NOT deleted"
        try:
            return bool(self.rows(sql, job, attempt, worker))
        except (Down, subprocess.SubprocessError):
            return False

    def pick(self, choice: random.Random, among: list[Host] | None = None) -> Host | None:
        """A machine that may be disturbed now, or none."""
        spared = self.spared()
        free = [one for one in among or self.hosts if one.is_alive() and one.name not in spared]
        return choice.choice(free) if free else None

    def check_database(self) -> None:
        twice = self.rows("SELECT job_id, array_agg(attempt) FROM campaign.publications GROUP BY 1 HAVING count(*) > 1")
        assert not twice, f"published more than once: {twice}"

    # --- what is stored ---

    def stored(self, name: str) -> int | None:
        """Bytes of a stored file; nothing if it is not there."""
        return self.storage.size(name)

    def let_days_pass(self) -> None:
        """Until everything that belongs to nobody is old enough to be swept, by the clocks of the machines and of the database."""
        seconds = 3 * 86400
        for host in self.hosts:
            host.stop()
            if not self.storage.is_store:
                host.machine.jump(seconds)
        if self.storage.is_store:
            self.storage.age(seconds)
        self.cluster.sql(self.database, f"UPDATE uploads SET touched_at = touched_at - {seconds}000000, expires_at = expires_at - {seconds}000000")
        self.start()
        self.days = seconds

    def come_back(self) -> None:
        """The clocks of the machines agree again with that of the database."""
        for host in self.hosts:
            host.stop()
            if not self.storage.is_store:
                host.machine.jump(-self.days)
        if self.storage.is_store:
            self.storage.age(-self.days)
        self.days = 0
        self.start()

    def what_is_left(self) -> list[str]:
        """Files and folders in the storage but those that it always has, and of jobs on the machines."""
        left = self.storage.names()
        for host in self.hosts:
            # How old a file of a moment is tells the disk, whose clock nobody can set: that they go is seen where the clocks of
            # machines may jump by days.
            left += [f"{host.name}: work/{name}" for name in os.listdir(host.data / "work") if not (self.storage.is_store and name.endswith(".try"))]
            if self.storage.is_store:
                continue
            # A file for each process that lives.
            processes = os.listdir(host.data / "processes")
            if len(processes) > 1:
                left += [f"{host.name}: processes/{name}" for name in processes]
        return left

    def logs(self) -> list[Path]:
        """What all processes wrote."""
        return [host.log for host in self.hosts]
