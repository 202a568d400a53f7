"""HTTP as the client needs it: connections that stay open, bodies in streams, and patience.

What is tried again, and when: everything if the connection breaks, since every request of the client may be sent twice
(submissions carry an idempotency key; one that the server is still at is asked for again); 429 and 503 after the time that
the server asks for, which is no failed try; 502 and 504 after a while.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, Any
from urllib.parse import SplitResult, urljoin, urlsplit

from ._errors import KINDS, RateLimitedError, ReconstructError, ServerConnectionError, from_kind
from ._native import version

BLOCK = 1 << 20
"""Bytes of a body that are read and sent at a time."""

_BY_STATUS = {
    400: "invalid_argument",
    401: "unauthenticated",
    403: "permission_denied",
    404: "not_found",
    405: "unsupported",
    408: "deadline_exceeded",
    409: "conflict",
    413: "too_large",
    415: "invalid_argument",
    422: "idempotency_mismatch",
    429: "too_many_requests",
    501: "unsupported",
    507: "disk_full",
}

_REDIRECTS = (301, 302, 303, 307, 308)

_MOST_REDIRECTS = 5
"""So often a storage may send a download on, for example to the region where the file is."""

_TOLD_FROM = 5.0
"""A wait of so many seconds, or more, is told to the log."""

OpenBody = Callable[[], IO[bytes]]
"""Opens the body, from its beginning, as often as it has to be sent."""


class Answer:
    """A response. Its body is here, unless it was asked for as a stream: then it comes with `read`, and the end is `close`."""

    def __init__(self, http: Http, connection: _Connection, response: http.client.HTTPResponse):
        self._http = http
        self._connection = connection
        self._response = response
        self.status = response.status
        self.headers = response.headers
        self.length = response.length
        """Bytes of the body; `None` if it comes in chunks, of which a cut one is an error."""
        self.body = b""
        self._closed = False

    def read(self, count: int | None = None) -> bytes:
        """At most `count` bytes; fewer only at the end."""
        try:
            return self._response.read(count)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise _broken(self._connection.host, error) from error

    def take_body(self) -> None:
        """Reads the whole body; the connection is free then."""
        self.body = self._response.read()
        self.close()

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise from_kind("internal", f"the server's answer is no JSON: {self.body[:80]!r}") from error

    def close(self) -> None:
        """The connection serves again if all was read, else it ends. To close twice is fine: it is another request's by then."""
        if self._closed:
            return
        self._closed = True
        if self._response.isclosed() and not self._connection.closing:
            self._http._put_back(self._connection)
        else:
            self._connection.close()


class _Connection:
    def __init__(self, address: SplitResult, timeout: float, context: ssl.SSLContext):
        self.process = os.getpid()
        self.host = address.netloc
        self.place = (address.scheme, address.netloc)
        self.used = False
        self.closing = False
        host = address.hostname or ""
        self.http: http.client.HTTPConnection
        if address.scheme == "https":
            self.http = http.client.HTTPSConnection(host, address.port, timeout=timeout, context=context, blocksize=BLOCK)
        else:
            self.http = http.client.HTTPConnection(host, address.port, timeout=timeout, blocksize=BLOCK)

    def exchange(self, method: str, target: str, body: IO[bytes] | bytes | None, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        try:
            self.http.request(method, target, body=body, headers=dict(headers))
        except (BrokenPipeError, ConnectionResetError) as error:
            if _is_of_body(error, body):
                raise
            # A server that refuses a body may answer and close while we still send.
            response = self.http.getresponse()
            self.closing = True
            return response
        response = self.http.getresponse()
        if response.length is None and not response.chunked:
            # One that does not say how long it is cannot be told from one that broke off within its head.
            raise http.client.IncompleteRead(b"")
        self.used = True
        self.closing = response.will_close
        return response

    def close(self) -> None:
        self.http.close()


class Http:
    """Requests to one server and the addresses that it names. Any number of threads may share it."""

    def __init__(self, base_url: str, api_key: str, *, timeout: float, retries: int, longest_wait: float, ca_file: str | None):
        address = urlsplit(base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise from_kind("invalid_argument", f"{base_url!r} is no address of a server", "for example https://scenes.example.org")
        self.base = base_url.rstrip("/")
        self._api_key = _checked_key(api_key)
        self._timeout = timeout
        self._retries = retries
        self._longest_wait = longest_wait
        self._context = _trust(ca_file)
        self._idle: dict[tuple[str, str], list[_Connection]] = {}
        self._lock = threading.Lock()

    def api(
        self,
        method: str,
        path: str,
        fields: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        done: int | None = None,
        redirects: bool = False,
        once: bool = False,
    ) -> Answer:
        """A request of the interface, with the key. `done`, `redirects` and `once` as in `send`."""
        all_headers = {"Authorization": f"Api-Key {self._api_key}", **(headers or {})}
        body = None
        if fields is not None:
            body = json.dumps(fields).encode()
            all_headers["Content-Type"] = "application/json"
        url = f"{self.base}/api/v1/{path}"
        return self.send(method, url, lambda: body, all_headers, done=done, redirects=redirects, once=once)

    def send(
        self,
        method: str,
        url: str,
        body: Callable[[], IO[bytes] | bytes | None],
        headers: Mapping[str, str],
        *,
        stream: bool = False,
        done: int | None = None,
        redirects: bool = False,
        once: bool = False,
    ) -> Answer:
        """A request to any address, as it is; the key only goes where the headers say so. Redirects are not followed.

        Answers of 400 and above become exceptions, but for `done` after an answer was lost: with this status the server refuses
        what it has done already. So does a redirect, unless the caller looks at `redirects` itself: nothing was done then.
        `once`: nothing is tried again, since the caller will ask again soon; a server that fails, however it does, is a
        `ServerConnectionError` then.
        """
        address = urlsplit(url)
        target = address._replace(scheme="", netloc="", fragment="").geturl() or "/"
        retries = 0 if once else self._retries
        attempt, waited, lost = 0, 0.0, False
        while True:
            connection = self._take(address)
            fresh = not connection.used
            content = body()
            try:
                response = connection.exchange(method, target, content, {"User-Agent": f"libreconstruct-python/{version()}", **headers})
                answer = Answer(self, connection, response)
                if response.status >= 400 or not stream:
                    answer.take_body()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if _is_of_body(error, content):
                    raise
                lost = True
                # A connection that was idle too long says nothing about the server.
                if fresh:
                    attempt += 1
                    if attempt > retries or isinstance(error, ssl.SSLCertVerificationError):
                        raise _broken(address.netloc, error) from error
                    time.sleep(_backoff(attempt))
                continue
            finally:
                if content is not None and not isinstance(content, bytes):
                    content.close()
            if response.status < (400 if redirects else 300) or (lost and response.status == done):
                return answer
            if response.status < 400:
                answer.close()
                raise _moved(answer, url)
            # The server may still be at the submission whose answer was lost.
            at_work = lost and response.status == 409 and "Idempotency-Key" in headers
            asked = retry_after(response.headers.get("Retry-After")) if response.status in (429, 503) else None
            if asked:
                waited += asked
                if retries == 0 or waited > self._longest_wait:
                    raise refused(answer)
                if asked >= _TOLD_FROM:
                    tell(f"{address.netloc} is busy and asks to wait for {asked:.0f} s")
                time.sleep(asked)
                continue
            if attempt >= retries or not (at_work or response.status in (429, 502, 503, 504)):
                raise _failed(answer) if once else refused(answer)
            attempt += 1
            time.sleep(_backoff(attempt))

    def redirect(self, path: str) -> str:
        """Where the interface redirects to."""
        answer = self.api("GET", path, redirects=True)
        target = _target(answer, f"{self.base}/api/v1/{path}")
        if target is None:
            raise from_kind("internal", f"{path}: the server answers {answer.status} where a redirect is expected")
        return target

    def fetch(self, url: str, headers: Mapping[str, str]) -> Answer:
        """A file at any address, as a stream; from where that redirects to, if it does."""
        for _ in range(_MOST_REDIRECTS + 1):
            answer = self.send("GET", url, lambda: None, headers, stream=True, redirects=True)
            target = _target(answer, url)
            if target is None:
                return answer
            answer.close()
            url = target
        raise ServerConnectionError(f"a file was redirected {_MOST_REDIRECTS + 1} times, at last to {_place(url)}", slug="io")

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    def _take(self, address: SplitResult) -> _Connection:
        place = (address.scheme, address.netloc)
        with self._lock:
            idle = self._idle.get(place, [])
            while idle:
                connection = idle.pop()
                # One that the parent of this process opened is the parent's.
                if connection.process == os.getpid():
                    return connection
        return _Connection(address, self._timeout, self._context)

    def _put_back(self, connection: _Connection) -> None:
        with self._lock:
            self._idle.setdefault(connection.place, []).append(connection)


def _checked_key(api_key: str) -> str:
    """The key, which may come from a file with its line's end. One that cannot stand in a header is not shown: it may be most of one."""
    key = api_key.strip()
    if not key or not all("!" <= letter <= "~" for letter in key):
        what = "has blanks or characters that no key has" if key else "is empty"
        raise from_kind("invalid_argument", f"the API key {what}", "the whole key is lrk_, eight letters, a dot and 43 letters")
    return key


def _trust(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        hint = "ca_file names a PEM file"
        raise from_kind("invalid_argument", f"{ca_file} has no certificates to trust: {error.reason or error}", hint) from error
    except OSError as error:
        slug = "not_found" if isinstance(error, FileNotFoundError) else "io"
        raise from_kind(slug, f"cannot read ca_file {ca_file}: {error.strerror}") from error


def tell(why: str) -> None:
    """Says why something takes longer: on standard error, unless the program has told `logging` otherwise."""
    # It takes a while to import, and few need it.
    import logging

    logging.getLogger("libreconstruct").warning("waiting: %s", why)


def _backoff(attempt: int) -> float:
    """Seconds: about 0.2, 0.4, 0.8 and so on, not the same for all clients of a server that was away."""
    return min(10.0, 0.1 * 2.0**attempt) * random.uniform(0.8, 1.2)


def retry_after(value: str | None) -> float | None:
    """The seconds that a `Retry-After` asks for, whether it names a number or a point in time."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _target(answer: Answer, url: str) -> str | None:
    """The address to which an answer from `url` redirects."""
    location = answer.headers.get("Location")
    return urljoin(url, location) if answer.status in _REDIRECTS and location is not None else None


def _place(url: str) -> str:
    """What may be shown of an address: what follows may be a permission."""
    address = urlsplit(url)
    return f"{address.scheme}://{address.netloc}"


def _moved(answer: Answer, url: str) -> ServerConnectionError:
    """The exception of a redirect that is not followed: the request may have the key with it, or do something."""
    target = _target(answer, url)
    where = f"the status {answer.status}" if target is None else f"a redirect to {_place(target)}"
    return ServerConnectionError(f"{_place(url)} answers with {where}", slug="io", hint="give the address at which the server itself answers")


def _is_of_body(error: Exception, body: object) -> bool:
    """Whether reading the body raised it (then it is the body's `failure`): no fault of the line, and no reason to try again."""
    return getattr(body, "failure", None) is error


def _broken(host: str, error: Exception) -> ServerConnectionError:
    return ServerConnectionError(f"the connection to {host} failed: {error or type(error).__name__}", slug="io")


def _failed(answer: Answer) -> ReconstructError:
    """The exception of an answer of 400 or above, for who will ask again: a server that fails may be well by then."""
    error = refused(answer)
    if answer.status < 500 or answer.status in (501, 507) or isinstance(error, RateLimitedError):
        return error
    return ServerConnectionError(error.message, slug="io")


def refused(answer: Answer) -> ReconstructError:
    """The exception of an answer of 400 or above."""
    try:
        fields = json.loads(answer.body)
        message, code = str(fields["error"]), fields.get("code")
    except (ValueError, KeyError, TypeError):
        message, code = f"the server answers {answer.status}", None
    asked = retry_after(answer.headers.get("Retry-After"))
    if code in KINDS:
        slug = code
    elif answer.status == 503 and asked is not None:
        # It is there and asks for more patience than the client has.
        slug = "too_many_requests"
    elif answer.status in (502, 503, 504):
        # The way to the server fails, or what is before it.
        return ServerConnectionError(message, slug="io")
    else:
        slug = _BY_STATUS.get(answer.status, "internal")
    error = from_kind(slug, message)
    if isinstance(error, RateLimitedError):
        error.retry_after = asked
    return error
