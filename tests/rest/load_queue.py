"""Figures of a service on PostgreSQL: statements for each request, a long queue, and how work grows with workers, as a table. They
depend on the machine, so no test asserts them.

    cd tests && python -m rest.load_queue [--jobs 100000] [--users 1000] [--only statements|queue|growth]

The requests a second are those of `LIBRECONSTRUCT_TEST_POSTGRES=1 python -m rest.load --only requests`.
"""

import argparse
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path

from . import media, postgres
from .load import row, shown, times
from .server import BINARY, Client, Server, to_toml

# What a job costs beside its real work, which is next to none: `flat_video` ends it early. Long beside that work on a loaded
# machine, and shorter than the shortest lease.
COST_SECONDS = 4


class Service:
    """A server without workers over a new database of a cluster that counts its statements."""

    def __init__(self, folder: Path, config: dict | None = None):
        self.cluster = postgres.Cluster(postgres.programs(), options="-c shared_preload_libraries=pg_stat_statements")
        folder.mkdir(parents=True)
        settings = {"database": self.cluster.database(), "storage": f"file://{folder / 'storage'}", "secrets": str(folder / "secrets.json")}
        postgres.write_secrets(folder / "secrets.json")
        self.database = settings["database"].rsplit("/", 1)[1]
        self.server = Server(folder / "server", {"log": "warn", "limits": {"max_queued_jobs": 1_000_000}} | settings | (config or {}))
        self.server.config |= settings
        self.server.start()
        self.sql("CREATE EXTENSION pg_stat_statements")

    def sql(self, sql: str) -> str:
        return self.cluster.sql(self.database, sql)

    def forget_statements(self) -> None:
        self.sql("SELECT pg_stat_statements_reset()")

    def statements(self, like: str = "%") -> list[tuple[int, float, float, str]]:
        """How often each was run since the last reset, how long it took on average and at most (ms), its first words."""
        text = self.sql(f"""SELECT calls, mean_exec_time, max_exec_time, left(regexp_replace(query, '\\s+', ' ', 'g'), 60)
            FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%' AND query LIKE '{like}' ORDER BY calls DESC""")
        rows = [line.split("|", 3) for line in text.splitlines()]
        return [(int(calls), float(mean), float(most), query) for calls, mean, most, query in rows]

    def close(self) -> None:
        self.server.kill()
        self.cluster.remove()


def statements(folder: Path) -> None:
    """What each kind of request asks of the database, in a service with few rows."""
    service = Service(folder)
    client = service.server.user("anna")
    try:
        blob = client.upload(media.flat_video())
        job = client.submit(blob)
        # What is prepared at its first use was used.
        requests = {
            "GET of a job": lambda: client.job(job),
            "GET of the list": client.jobs,
            "PATCH of the title": lambda: client.patch(job, {"title": "new"}),
            "a new upload address": client.upload_url,
            "a submission": lambda: client.submit(blob),
        }
        for name, request in requests.items():
            for _ in range(30):
                request()
            service.forget_statements()
            for _ in range(100):
                request()
            found = [one for one in service.statements() if one[0] >= 50]
            count, taken = sum(calls for calls, *_ in found) / 100, sum(calls * mean for calls, mean, *_ in found) / 100
            row(name, f"{count:.1f} statements, {taken:.3f} ms in the database")
            for calls, mean, most, query in found:
                print(f"    {calls / 100:4.1f} x {mean:7.3f} ms (at most {most:7.3f})  {query}")
    finally:
        service.close()


# Jobs of users in turn, so that those of each are spread over the queue.
FILL = """INSERT INTO users (user_id, name, tier, created_at)
    SELECT gen_random_uuid()::text, 'user' || n, 'enterprise', n FROM generate_series(1, {users}) AS n;
INSERT INTO uploads (blob_name, user_id, expires_at, version, size, touched_at, submitted)
    SELECT 'videos/' || gen_random_uuid()::text || '.mp4', user_id, 0, 1, 1, 0, TRUE FROM users WHERE name LIKE 'user%';
INSERT INTO jobs (job_id, user_id, blob_name, title, uploaded_at, public, method, gaussians, steps, remove_background, state, updated_at)
    SELECT gen_random_uuid()::text, user_id, blob_name, 'a job', n, FALSE, 'glomap', 1000, 30, FALSE, 'queued', n
    FROM generate_series(1, {each}) AS n CROSS JOIN LATERAL (SELECT user_id, blob_name FROM uploads
        WHERE uploads.submitted AND n > 0 ORDER BY blob_name) AS owner;
ANALYZE;"""


def queue(folder: Path, jobs: int, users: int, order: str) -> None:
    service = Service(folder, {"queue": order})
    try:
        service.sql(FILL.format(users=users, each=jobs // users))
        # No worker takes a job where none of the files is there that rows name.
        videos = folder / "storage" / "videos"
        videos.mkdir(parents=True, exist_ok=True)
        for name in service.sql("SELECT blob_name FROM uploads WHERE submitted").split():
            (videos / f"{Path(name).stem}.{1:016x}.mp4").write_bytes(b"0")
        [owner] = service.sql("SELECT name FROM users WHERE name LIKE 'user%' LIMIT 1").split()
        client = service.server.client_with_new_key(owner)
        mine = [entry["job_id"] for entry in client.jobs()]
        what = f"of {service.sql('SELECT count(*) FROM jobs').strip()} waiting jobs of {users} users, queue = {order!r}"
        print(what)
        row(f"GET of the list ({len(mine)} jobs)", shown(times(client, "/api/v1/jobs/", 5)))
        for name, job in (("first", mine[-1]), ("last", mine[0])):
            row(f"GET of the {name} job of a user", shown(times(client, f"/api/v1/jobs/{job}/", 5)))
        service.forget_statements()
        claim(service, folder, 40)
        taken = [(mean, most, calls) for calls, mean, most, query in service.statements("%job.job_id%SKIP LOCKED%")]
        if not taken:
            raise RuntimeError(f"the worker has looked for no job: see {folder / 'claims' / 'log'}")
        for mean, most, calls in taken:
            row(f"finding the next job, {calls} times", f"mean {mean:7.2f} ms  at most {most:7.2f} ms")
    finally:
        service.close()


def claim(service: Service, folder: Path, count: int) -> None:
    """A worker takes so many jobs, which end soon: none of their videos is one."""
    worker = Workers(service, folder / "claims", 1)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        done = service.sql("SELECT count(*) FROM jobs WHERE attempt > 0").strip()
        if int(done) >= count:
            break
        time.sleep(0.2)
    worker.kill()


class Workers:
    """So many worker processes, each as if on a machine of its own."""

    def __init__(self, service: Service, folder: Path, count: int, environment: dict | None = None):
        folder.mkdir(parents=True)
        config = folder / "worker.toml"
        config.write_text(to_toml(service.server.config | {"worker_threads": 1}))
        with (folder / "log").open("ab") as log:
            self.processes = [
                subprocess.Popen(
                    [BINARY, "worker", "--data", folder / f"data-{n}", "--config", config, "--name", f"worker-{n}"],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | (environment or {}),
                )
                for n in range(count)
            ]

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def growth(folder: Path) -> None:
    """Jobs that take a fixed time, by 1 to 8 workers."""
    service = Service(folder)
    client: Client = service.server.user("anna")
    try:
        blob = client.upload(media.flat_video())
        alone = 0.0
        for count in (1, 2, 4, 8):
            workers = Workers(service, folder / f"workers-{count}", count, {"FAILPOINTS": f"worker.claimed=sleep({COST_SECONDS * 1000})"})
            try:
                each = 6
                # They start while there is nothing to do, and are all at work before the time is taken.
                warm = [client.submit(blob) for _ in range(count)]
                for job in warm:
                    client.wait(job)
                began = time.monotonic()
                jobs = [client.submit(blob) for _ in range(count * each)]
                for job in jobs:
                    client.wait(job)
                rate = len(jobs) / (time.monotonic() - began)
            finally:
                workers.kill()
            alone = alone or rate
            row(f"{count} workers, jobs of {COST_SECONDS} s", f"{rate:6.3f} jobs/s, {rate / alone / count:6.1%} of {count} times one worker")
    finally:
        service.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--only", choices=["statements", "queue", "growth"])
    arguments = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="load-", dir=media.CACHE.parent) as name:
        folder = Path(name)
        if arguments.only in (None, "statements"):
            statements(folder / "statements")
        if arguments.only in (None, "queue"):
            for order in ("submitted", "users"):
                queue(folder / f"queue-{order}", arguments.jobs, arguments.users, order)
        if arguments.only in (None, "growth"):
            growth(folder / "growth")


if __name__ == "__main__":
    main()
