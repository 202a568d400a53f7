"""The service on another machine, over its REST interface."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from ._errors import NotFoundError, RateLimitedError, ServerConnectionError, from_kind
from ._job import CHUNK, Artifact, IdPage, Service, Watch
from ._progress import Bar, Progress, ProgressOption

if TYPE_CHECKING:
    from ._http import Answer, Http

_LONGEST_OF_MANY = 30.0
"""Seconds between two looks at a job, at most, where the server finds that its user asks too often: as many may wait."""
_AWAY = 600.0
"""So many seconds a server may be away while a job is waited for: it may be started anew."""


class Client(Service):
    """A server, as one user of it: `Client("https://scenes.example.org", api_key)`.

    Any number of threads may share a client.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        poll_seconds: float = 2.0,
        timeout: float = 120.0,
        retries: int = 5,
        longest_wait: float = 300.0,
        ca_file: str | None = None,
    ):
        """`base_url`: the server's address, without `/api/v1`. `api_key`: as it was shown when it was made.

        `poll_seconds`: so long a waiting client pauses before it asks again (less at first; above 0; up to 30 s where the server
        finds that its user asks too often). `timeout`: seconds without a sign of life from the server; while a job is waited for
        the server may be away for ten minutes. `retries`: how often a request is sent again when the connection breaks or the
        server is busy and does not say for how long; with 0 nothing is. `longest_wait`: if the server asks for more patience with
        a request than so many seconds, in all, `RateLimitedError` says so instead; waits of 5 s and more are told to the log
        (`logging`, "libreconstruct"). `ca_file`: PEM file of certificates to trust instead of the system's.
        """
        if not poll_seconds > 0:
            raise from_kind("invalid_argument", f"poll_seconds is {poll_seconds}: it must be above 0")
        # ssl takes a while to import, and who has no server does not need it.
        from ._http import Http

        self._poll_seconds = poll_seconds
        self._http: Http = Http(
            base_url, api_key, timeout=timeout, retries=retries, longest_wait=longest_wait, ca_file=ca_file
        )

    @property
    def base_url(self) -> str:
        """The server's address."""
        return self._http.base

    def close(self) -> None:
        self._http.close()

    def _submit(self, video: Path, options: dict[str, Any], progress: ProgressOption) -> str:
        try:
            size = video.stat().st_size
        except FileNotFoundError as error:
            raise from_kind("not_found", f"cannot open {video}: it does not exist") from error
        extension = video.suffix.removeprefix(".")
        upload = self._http.api("POST", "generate-upload-url/", {"file_extension": extension}).json()
        headers = {
            "Content-Length": str(size),
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(video.name, safe='')}",
        }
        # What a cloud storage wants of the upload.
        headers |= upload.get("headers", {})
        if any(name.lower().startswith("x-ms-") for name in headers):
            headers["x-ms-blob-content-disposition"] = headers["Content-Disposition"]
        with Bar(progress, f"upload of {video.name}") as bar:

            def body() -> IO[bytes]:
                return cast("IO[bytes]", _Counted(video.open("rb"), size, bar))

            self._http.send("PUT", upload["url"], body, headers)
        fields = {"blob_name": upload["blob_name"], **options}
        submitted = self._http.api("POST", "submit-job/", fields, {"Idempotency-Key": f'"{os.urandom(16).hex()}"'}).json()
        return str(submitted["job_id"])

    def _get(self, job_id: str) -> Mapping[str, Any]:
        return self._fields("GET", job_id)

    def _look(self, job_id: str) -> Mapping[str, Any]:
        """As `_get`, for who will ask again whatever comes."""
        fields: dict[str, Any] = self._http.api("GET", _path(job_id), once=True).json()
        return fields

    def _fields(self, method: str, job_id: str, changes: Any = None) -> Mapping[str, Any]:
        fields: dict[str, Any] = self._http.api(method, _path(job_id), changes).json()
        return fields

    def _page(self, limit: int | None, cursor: str | None, status: str | None, public: bool | None) -> IdPage:
        named = {"limit": limit, "cursor": cursor, "status": status, "public": None if public is None else str(public).lower()}
        query = urlencode({name: value for name, value in named.items() if value is not None})
        answer = self._http.api("GET", f"jobs/?{query}" if query else "jobs/")
        jobs = [(str(job["job_id"]), str(job["title"])) for job in answer.json()]
        return jobs, _next_cursor(answer.headers.get("Link"))

    def _update(self, job_id: str, changes: dict[str, Any]) -> Mapping[str, Any]:
        return self._fields("PATCH", job_id, changes)

    def _cancel(self, job_id: str) -> Mapping[str, Any]:
        from ._http import refused

        answer = self._http.api("POST", _path(job_id) + "cancel/", done=409)
        if answer.status != 409:
            fields: dict[str, Any] = answer.json()
            return fields
        # The first answer was lost. The job has ended since, by that request or otherwise.
        job = self._get(job_id)
        if job["status"] != "Failed" or self._failure(job)["code"] != "cancelled":
            raise refused(answer)
        return job

    def _restart(self, job_id: str, options: dict[str, Any]) -> str:
        key = {"Idempotency-Key": f'"{os.urandom(16).hex()}"'}
        return str(self._http.api("POST", _path(job_id) + "restart/", options, key).json()["job_id"])

    def _report(self, job_id: str) -> Mapping[str, Any]:
        report: dict[str, Any] = self._http.api("GET", _path(job_id) + "report/").json()
        return report

    def _delete(self, job_id: str) -> None:
        self._http.api("DELETE", _path(job_id), done=404)

    def _log(self, job_id: str) -> str:
        with self._open(job_id, "log") as log:
            return b"".join(iter(lambda: log.read(CHUNK), b"")).decode(errors="replace")

    def _open(self, job_id: str, kind: str) -> Artifact:
        path = _path(job_id) + ("preview/" if kind == "preview" else f"download/{quote(kind, safe='')}/")
        return _Download(self._http, path)

    def _watch(self, job_id: str) -> Watch:
        from ._http import tell

        # Soon at first: short jobs should not seem long.
        pause = min(0.25, self._poll_seconds)
        longest, doubled = self._poll_seconds, self._poll_seconds
        # Not the same for all jobs, which may be waited for since the same moment.
        share = 0.7 + 0.3 * (zlib.crc32(job_id.encode()) % 256) / 255
        due = time.monotonic() + pause
        away: float | None = None

        def watch(seen: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
            nonlocal pause, longest, doubled, due, away
            end = time.monotonic() + seconds
            # The pause goes on beyond the end of this call: who waits in short pieces must not make us ask more often.
            while due <= end:
                time.sleep(max(0.0, due - time.monotonic()))
                fields = seen
                try:
                    fields = self._look(job_id)
                    away = None
                    pause = min(1.5 * pause, longest)
                except RateLimitedError:
                    # It is there.
                    away = None
                    doubled = max(self._poll_seconds, min(2 * doubled, _LONGEST_OF_MANY))
                    pause = longest = max(self._poll_seconds, share * doubled)
                except ServerConnectionError as error:
                    if away is None:
                        away = time.monotonic()
                        tell(f"{error.message}; job {job_id} goes on")
                    if time.monotonic() - away >= _AWAY:
                        raise
                    pause = min(1.5 * pause, longest)
                due = time.monotonic() + pause
                if fields != seen:
                    return fields
            time.sleep(max(0.0, end - time.monotonic()))
            return seen

        return watch

    def _failure(self, fields: Mapping[str, Any]) -> Mapping[str, str]:
        try:
            failure: Mapping[str, str] | None = self._report(str(fields["job_id"]))["failure"]
        except NotFoundError:
            # An older server has no reports; or the job was deleted in this moment.
            failure = None
        return failure or {"code": "unknown", "message": "the job failed (the server does not tell why)"}

    def __repr__(self) -> str:
        return f"Client({self.base_url!r})"


def _path(job_id: str) -> str:
    return f"jobs/{quote(job_id, safe='')}/"


def _next_cursor(link: str | None) -> str | None:
    """The cursor in `Link: <…?cursor=…>; rel="next"`."""
    if link is None or 'rel="next"' not in link:
        return None
    query = parse_qs(urlsplit(link[link.index("<") + 1 : link.index(">")]).query)
    return query.get("cursor", [None])[0]


class _Counted:
    """A file that tells how much of it was read."""

    def __init__(self, file: IO[bytes], size: int, bar: Bar):
        self._file, self._size, self._bar, self._read = file, size, bar, 0
        self.failure: Exception | None = None
        """What the disk or who is told of the progress raised: an `OSError` of theirs is none of the connection."""

    def read(self, count: int = -1) -> bytes:
        try:
            block = self._file.read(count)
            self._read += len(block)
            self._bar.update(Progress(self._read / max(self._size, 1), "upload", f"{self._read / 1e6:.1f} MB"))
        except Exception as error:
            self.failure = error
            raise
        return block

    def close(self) -> None:
        self._file.close()


class _Download(Artifact):
    """A file behind a redirect. Where the connection breaks it goes on, as long as it is the same file."""

    def __init__(self, http: Http, path: str):
        self._http = http
        self._path = path
        self._moved = 0
        self._broken = 0
        self._etag: str | None = None
        self.size = None
        self._answer = self._ask()
        self._etag = self._answer.headers.get("ETag")

    def _ask(self) -> Answer:
        """The rest of the file. The address is asked for each time, since an old one may not work any more."""
        target = self._http.redirect(self._path)
        headers = {}
        if self._moved and self._etag:
            headers = {"Range": f"bytes={self._moved}-", "If-Range": self._etag}
        # Without the key: the address itself is the permission, and may be another server's.
        answer = self._http.fetch(target, headers)
        if answer.status != (206 if headers else 200):
            answer.close()
            if headers:
                raise ServerConnectionError("the connection broke, and the file cannot be continued", slug="io")
            raise ServerConnectionError(f"the address of the file answers with the status {answer.status}", slug="io")
        if self.size is None and answer.length is not None:
            self.size = self._moved + answer.length
        return answer

    def read(self, count: int, /) -> bytes:
        while True:
            try:
                left = count if self.size is None else min(count, self.size - self._moved)
                block = self._answer.read(left) if left > 0 else b""
                # What comes in chunks ends where it says so.
                if block or left <= 0 or self.size is None:
                    self._moved += len(block)
                    return block
                raise ServerConnectionError(f"the connection broke after {self._moved} of {self.size} bytes", slug="io")
            except ServerConnectionError:
                self._broken += 1
                if self._broken > 5 or not self._etag:
                    raise
                self._answer.close()
                self._answer = self._ask()

    def close(self) -> None:
        self._answer.close()
