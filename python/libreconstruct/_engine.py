"""The service in this process, over a folder or over rows and files that many machines share."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import platform
import re
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from . import _native
from ._errors import from_kind, whole
from ._files import PathLike
from ._job import Artifact, IdPage, Service, Watch
from ._progress import Bar, Progress, ProgressOption

_STOP_SECONDS = 60.0
"""How long workers may take to write their checkpoints; a job whose worker did not is taken up when its lease has run out."""

_MOST_WORKERS = 256
_MOST_THREADS = 1024
"""As in C."""

_DATABASES = ("postgres://", "postgresql://")
"""What the addresses of rows begin with that many machines share."""


class Engine(Service):
    """The service in this process: jobs are rows and files in a folder, and workers here run them one after the other.

        lr.Engine("scenes")
        lr.Engine("postgres://anna:secret@db/reconstruct", storage="file:///mnt/scenes", secrets="secrets.json")

    Any number of processes may open the same folder, a `reconstruct serve` among them. What a call changed survives a power
    cut. Close the engine, or use it in a `with` block: workers then write checkpoints, and the next engine on the folder goes
    on where they were. The end of the program closes it too. While it is open it finishes deletions each minute, and removes
    videos that nobody submits and files that nobody needs.

    An engine belongs to its process. A child that was forked while there was one can neither use it nor open another, since
    SQLite's locks do not survive that: start such processes with the method `spawn`.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        user: str = "local",
        workers: int = 1,
        threads: int = 0,
        device: str | None = None,
        settings: Mapping[str, Any] | None = None,
        storage: str | None = None,
        secrets: PathLike | None = None,
        scratch: PathLike | None = None,
    ):
        """Opens the folder `path`, making it (readable by its owner only) if it is not there.

        Where many machines share a service, `path` is the address of its rows instead (`postgres://user:password@host/name`,
        with `?sslmode=require` where it is far) and `storage` that of its videos and scenes (`file:///mnt/scenes`, a folder
        that all machines see). `secrets`: the file of what makes keys genuine there, the same on all machines; by default
        `secrets.json` in `scratch`. `scratch`: this machine's own folder, in which workers work; nothing in it is missed if
        it is lost. By default one in the user's folder of caches, for this service and this machine.

        `user`: whose jobs these are; added if there is no such user. `workers`: jobs that run at once, at most 256 (0: none,
        others run them). `threads`: of each worker, at most 1024; 0 = as many as processors. `device`: where training runs:
        `auto` (a GPU if there is one), `cpu`, `gpu` or part of the name of an adapter. `settings`: the others, in the sections
        that `reconstruct serve --print-config` shows: `{"reconstruction": {"max_frames": 100}, "limits": {...},
        "max_attempts": 3}`.
        """
        self._workers = whole("workers", workers)
        self._threads = whole("threads", threads)
        _check_numbers(self._workers, self._threads)
        _forbid_after_fork()
        options: dict[str, Any] = {k: dict(v) if isinstance(v, Mapping) else v for k, v in (settings or {}).items()}
        if device is not None:
            options.setdefault("reconstruction", {})["device"] = device
        database = path if isinstance(path, str) and path.startswith(_DATABASES) else None
        if database is None:
            _check_folder(path, storage, scratch)
            folder = Path(path)
        else:
            folder = _own_folder(database, storage) if scratch is None else Path(scratch)
        self._native = _native.Engine(
            folder, user, json.dumps(options), database, storage, None if secrets is None else Path(secrets)
        )
        self._native.start(self._workers, self._threads)
        _open_engines.add(self)

    @property
    def path(self) -> Path:
        """The folder; of a service that many machines share, this machine's own."""
        return Path(self._native.folder)

    def pause(self) -> None:
        """Stops the workers: each writes a checkpoint and puts its job back into the queue. `resume()` goes on."""
        self._native.stop(_STOP_SECONDS)

    def resume(self) -> None:
        """Starts the workers again, if they do not run."""
        self._native.start(self._workers, self._threads)

    def close(self) -> None:
        self._native.close(_STOP_SECONDS)

    def users(self) -> list[dict[str, Any]]:
        """All users of the service, by name: `user_id`, `name`, `tier` (`free` or `enterprise`), `created_at`. Whoever opens the
        folder is its operator and sees them all; an engine with `user="anna"` acts for one of them, and adds her if need be."""
        return _list(self._native.users())

    def set_tier(self, name: str, tier: Literal["free", "enterprise"]) -> None:
        """Changes what a user may do, from the next request on: `free` can do nothing through an API key."""
        self._native.set_tier(name, tier)

    def create_key(self, name: str) -> str:
        """Makes an API key for the engine's user, with which a `Client` reaches a server (`reconstruct serve`) on the same folder.
        It is shown now and never again; `name` says what it is for."""
        return self._native.create_key(name)

    def keys(self) -> list[dict[str, Any]]:
        """The API keys of the engine's user, oldest first, without their secrets: `name`, `prefix`, `created_at`, `last_used`,
        `revoked_at`."""
        return _list(self._native.keys())

    def revoke_key(self, prefix: str) -> None:
        """Makes a key of the engine's user useless, at once and for ever. `prefix`: what is before the dot of the key."""
        self._native.revoke_key(prefix)

    def _begin_wait(self) -> None:
        self.resume()

    def _interrupted(self) -> None:
        self.pause()

    def _submit(self, video: Path, options: dict[str, Any], progress: ProgressOption) -> str:
        with Bar(progress, f"copy of {video.name}") as bar:

            def hear(copied: int, size: int) -> None:
                # After the last of it there is a job, which nothing that the callable raises would take back.
                bar.update(Progress(copied / max(size, 1), "upload", f"{copied / 1e6:.1f} MB"), at_once=copied >= size)

            return self._native.submit(video, json.dumps(options), hear)

    def _get(self, job_id: str) -> Mapping[str, Any]:
        return _fields(self._native.job(job_id))

    def _page(self, limit: int | None, cursor: str | None, status: str | None, public: bool | None) -> IdPage:
        return self._native.jobs(None if limit is None else whole("limit", limit), cursor, status, public)

    def _update(self, job_id: str, changes: dict[str, Any]) -> Mapping[str, Any]:
        return _fields(self._native.update(job_id, json.dumps(changes)))

    def _cancel(self, job_id: str) -> Mapping[str, Any]:
        return _fields(self._native.cancel(job_id))

    def _restart(self, job_id: str, options: dict[str, Any]) -> str:
        return self._native.restart(job_id, json.dumps(options))

    def _report(self, job_id: str) -> Mapping[str, Any]:
        return _fields(self._native.report(job_id))

    def _delete(self, job_id: str) -> None:
        self._native.delete(job_id)

    def _log(self, job_id: str) -> str:
        return self._native.log(job_id)

    def _open(self, job_id: str, kind: str) -> Artifact:
        return _Blob(self._native.artifact(job_id, kind))

    def _watch(self, job_id: str) -> Watch:
        return lambda seen, seconds: _fields(self._native.wait(job_id, seen["details"]["version"], seconds))

    def _failure(self, fields: Mapping[str, Any]) -> Mapping[str, str]:
        failure: Mapping[str, str] = fields["details"]["failure"]
        return failure

    def __repr__(self) -> str:
        return f"Engine({str(self.path)!r})"


def _check_numbers(workers: int, threads: int) -> None:
    """Before the service is opened, which may make a folder and a user."""
    if workers > _MOST_WORKERS:
        raise from_kind("invalid_argument", f"{workers} workers are asked for: 0 to {_MOST_WORKERS} are allowed")
    if threads > _MOST_THREADS:
        raise from_kind("invalid_argument", f"threads is {threads}: 0 to {_MOST_THREADS} is allowed")


def _check_folder(path: PathLike, storage: str | None, scratch: PathLike | None) -> None:
    """Refuses what makes no sense without the address of a database; the path may be one that is not known."""
    if isinstance(path, str) and "://" in path:
        raise from_kind(
            "invalid_argument",
            f"no service can be opened at an address that begins with {path.split('://')[0]}://",
            'name its rows first, then its files: Engine("postgres://user:password@host/name", storage="file:///mnt/scenes")',
        )
    for name, value in [("storage", storage), ("scratch", scratch)]:
        if value is not None:
            raise from_kind(
                "invalid_argument",
                f"{name} is {os.fspath(value)!r}, and the service is one in a folder",
                f"give the address of its rows instead of the folder (postgres://user:password@host/name), or leave {name} out",
            )


def _own_folder(database: str, storage: str | None) -> Path:
    """A folder for a service that this user works for on this machine. A home may be the same on many machines."""
    if sys.platform == "win32":
        caches = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        caches = Path.home() / "Library/Caches"
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # A password may change, and should not be guessed from a name.
    place = re.sub(r"//[^/]*@", "//", database.split("?")[0])
    service = hashlib.sha256(json.dumps([place, storage]).encode()).hexdigest()[:16]
    return caches / "libreconstruct" / f"{service}-{platform.node() or 'machine'}"


class _Blob(Artifact):
    def __init__(self, native: _native.Blob):
        self._native = native
        self.size = native.size

    def read(self, count: int, /) -> bytes:
        return self._native.read(count)


def _list(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text)
    return found


def _fields(text: str) -> Mapping[str, Any]:
    fields: dict[str, Any] = json.loads(text)
    return fields


_opened_in: int | None = None
"""The process that opens engines here: not always the one that imported this."""
_open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _forbid_after_fork() -> None:
    """What SQLite knows of locks is copied by `fork`, held ones as held: a child would wait for itself."""
    global _opened_in
    if _opened_in is not None and _opened_in != os.getpid():
        raise from_kind(
            "conflict",
            "this process was forked from one that had opened an engine, and cannot open another",
            'start processes with multiprocessing.get_context("spawn"), or open engines after the fork only',
        )
    _opened_in = os.getpid()


@atexit.register
def _close_all() -> None:
    """Workers end before the interpreter does, with their checkpoints written."""
    # In a forked child these are the engines of its parent.
    if os.getpid() == _opened_in:
        for engine in list(_open_engines):
            engine.close()
