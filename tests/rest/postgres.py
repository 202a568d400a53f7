"""A PostgreSQL of the tests' own: a new cluster in a folder, reached through a socket there. It ends with this process.

With `LIBRECONSTRUCT_TEST_POSTGRES=1` every server of these tests keeps its rows in a database of it, and a test that looks into
SQLite's file is skipped.
"""

import atexit
import functools
import itertools
import json
import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

import pytest
from prerequisites import is_missing

IS_ASKED_FOR = os.environ.get("LIBRECONSTRUCT_TEST_POSTGRES") == "1"
_names = itertools.count(1)


class Cluster:
    def __init__(self, programs: Path):
        self.programs = programs
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
        options = f"-k {self.folder} -c listen_addresses= -c max_connections=400 -c shared_buffers=64MB"
        self.run("pg_ctl", "start", "-w", "-t", "60", "-D", self.data, "-l", self.folder / "log", "-o", options)

    def stop(self, how: str = "immediate") -> None:
        self.run("pg_ctl", "stop", "-m", how, "-D", self.data)

    def remove(self) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def sql(self, database: str, sql: str) -> str:
        command = [self.programs / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h", self.folder, "-d", database, "-c", sql]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def database(self) -> str:
        """The address of a new, empty database."""
        name = f"test{next(_names)}"
        self.sql("postgres", f"CREATE DATABASE {name}")
        return f"postgres://postgres@{quote(str(self.folder), safe='')}/{name}"


@functools.cache
def cluster() -> Cluster:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        is_missing("postgres", "PostgreSQL's server")
    return Cluster(found[-1].parent)


def settings(data: Path) -> dict:
    """Settings of a server whose rows are in a new database and whose files are in `data`, as they are without."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = [{"id": secrets.token_hex(4), "secret": secrets.token_hex(32)} for _ in range(2)]
    file = data / "secrets.json"
    with open(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as out:
        json.dump({"pepper": secrets.token_hex(32), "signing_keys": keys}, out)
    return {"database": cluster().database(), "storage": f"file://{data}"}


def skip_if_asked_for() -> None:
    if IS_ASKED_FOR:
        pytest.skip("looks into SQLite's file")
