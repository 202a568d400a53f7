"""A PostgreSQL of the tests' own: a new cluster in a folder, reached through a socket there. It ends with this process.

With `LIBRECONSTRUCT_TEST_POSTGRES=1` every server of these tests keeps its rows in a database of it.
"""

import atexit
import contextlib
import functools
import itertools
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

import pytest
from prerequisites import is_missing

IS_ASKED_FOR = os.environ.get("LIBRECONSTRUCT_TEST_POSTGRES") == "1"
_names = itertools.count(1)


class Cluster:
    """With a port it listens there too, on this machine; `options` are more for its server."""

    def __init__(self, programs: Path, port: int | None = None, options: str = ""):
        self.programs, self.port, self.options = programs, port, options
        self.folder = Path(tempfile.mkdtemp(prefix="reconstruct-postgres-", dir="/tmp"))
        self.folder.chmod(0o777)
        self.data = self.folder / "data"
        atexit.register(self.remove)
        self.run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync", "--pgdata", self.data)
        self.start()

    def run(self, program: str, *arguments) -> None:
        command = [self.programs / program, *arguments]
        if os.geteuid() == 0:
            # It refuses to run as root.
            command = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--", *command]
        # Not a pipe: the server would hold it, and nobody would see its end.
        with (self.folder / "commands.log").open("ab") as log:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")

    def start(self) -> None:
        where = "-c listen_addresses=" if self.port is None else f"-c listen_addresses=127.0.0.1 -c port={self.port}"
        options = f"-k {self.folder} {where} -c max_connections=400 -c shared_buffers=64MB {self.options}"
        self.run("pg_ctl", "start", "-w", "-t", "60", "-D", self.data, "-l", self.folder / "log", "-o", options)

    def stop(self, how: str = "immediate") -> None:
        self.run("pg_ctl", "stop", "-m", how, "-D", self.data)

    def processes(self) -> list[int]:
        """The server and the processes that it has started, the server first."""
        server = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        return [server, *map(int, children)]

    def signal(self, number: int) -> None:
        """Sends a signal to all of its processes: to the server first, so that it starts no others."""
        for pid in self.processes():
            # Those of connections come and go.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def runs(self) -> bool:
        return (self.data / "postmaster.pid").exists()

    def remove(self) -> None:
        try:
            if self.runs():
                self.signal(signal.SIGCONT)
                self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def sql(self, database: str, sql: str) -> str:
        command = [self.programs / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h", self.folder, "-d", database]
        if self.port is not None:
            command += ["-p", str(self.port)]
        # Not as an argument: it may be long.
        return subprocess.run(command, input=sql, check=True, capture_output=True, text=True, timeout=60).stdout

    def database(self) -> str:
        """The address of a new, empty database."""
        name = f"test{next(_names)}"
        self.sql("postgres", f"CREATE DATABASE {name}")
        return f"postgres://postgres@{quote(str(self.folder), safe='')}/{name}"


def programs() -> Path:
    """Where those of the newest PostgreSQL are."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        is_missing("postgres", "PostgreSQL's server")
    return found[-1].parent


@functools.cache
def cluster() -> Cluster:
    return Cluster(programs())


def write_secrets(file: Path) -> None:
    """Secrets for servers that share them."""
    keys = [{"id": secrets.token_hex(4), "secret": secrets.token_hex(32)} for _ in range(2)]
    with open(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as out:
        json.dump({"pepper": secrets.token_hex(32), "signing_keys": keys}, out)


def settings(data: Path) -> dict:
    """Settings of a server whose rows are in a new database and whose files are in `data`, as they are without."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_secrets(data / "secrets.json")
    return {"database": cluster().database(), "storage": f"file://{data}"}


class Answer:
    """What a statement found or changed, as a cursor of `sqlite3` tells it."""

    def __init__(self, rows: list[dict], rowcount: int):
        self.rowcount = rowcount
        self.description = [(name,) for name in rows[0]] if rows else []
        self.left = [tuple(map(self.value, row.values())) for row in rows]

    @staticmethod
    def value(written):
        """Bytes come as text that begins so; no text of ours does."""
        return bytes.fromhex(written[2:]) if isinstance(written, str) and written.startswith("\\x") else written

    def fetchone(self) -> tuple | None:
        return self.left.pop(0) if self.left else None

    def fetchall(self) -> list[tuple]:
        found, self.left = self.left, []
        return found

    def __iter__(self):
        return iter(self.fetchall())


class Rows:
    """A database of the cluster, for tests that look into rows or change them: as much of a connection of `sqlite3` as they use."""

    def __init__(self, address: str):
        self.database = address.split("?")[0].rsplit("/", 1)[1]

    def execute(self, sql: str, values: tuple = ()) -> Answer:
        statement = written(sql, values)
        if statement.lstrip().upper().startswith("SELECT"):
            text = cluster().sql(self.database, f"SELECT coalesce(json_agg(row_to_json(found)), '[]') FROM ({statement}) AS found")
            rows = json.loads(text)
            return Answer(rows, len(rows))
        if statement.lstrip().upper().startswith("ALTER"):
            cluster().sql(self.database, statement)
            return Answer([], -1)
        text = cluster().sql(self.database, f"WITH changed AS ({statement} RETURNING 1) SELECT count(*) FROM changed")
        return Answer([], int(text))

    def executemany(self, sql: str, all_values: list[tuple]) -> None:
        cluster().sql(self.database, "BEGIN;" + ";".join(written(sql, values) for values in all_values) + ";COMMIT")


def written(sql: str, values: tuple) -> str:
    """A statement with its values in the places of `?` and `?1`."""
    following = itertools.count()

    def literal(place: re.Match) -> str:
        value = values[int(place[1]) - 1 if place[1] else next(following)]
        return str(value) if isinstance(value, (int, float)) else "'" + str(value).replace("'", "''") + "'"

    return re.sub(r"\?(\d*)", literal, sql)


def skip_if_asked_for() -> None:
    if IS_ASKED_FOR:
        pytest.skip("begins with a service in a folder")
