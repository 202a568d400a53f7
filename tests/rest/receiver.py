"""Servers that webhooks are told at: real ones, which take, refuse, hang, redirect or never end."""

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# The settings of a server that may tell them.
TO_THIS_MACHINE = {"webhooks": {"allow_http": True, "allowed_networks": ["127.0.0.0/8", "::1/128"]}}


@dataclass
class Request:
    """What a receiver was told."""

    at: float
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


# Answers a request: as a rule by `answer.reply(status)`.
Behaviour = Callable[["Answering", Request], None]


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(time.monotonic(), self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        self.server.receiver.told.append(request)
        # A client that has heard enough goes.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.server.receiver.behaviour(self, request)

    def reply(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Receiver:
    """A server on a free port, or on one that another receiver had."""

    def __init__(self, behaviour: Behaviour | None = None, port: int = 0, tls: tuple[Path, Path] | None = None):
        self.behaviour = behaviour or (lambda answer, _: answer.reply(204))
        self.told: list[Request] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", port), Answering)
        self.server.daemon_threads = True
        self.server.receiver = self
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}/hook"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def wait(self, count: int = 1, within: float = 20) -> list[Request]:
        """What it was told, as soon as that is so much."""
        end = time.monotonic() + within
        while len(self.told) < count:
            assert time.monotonic() < end, f"told {len(self.told)} of {count} times within {within} s"
            time.sleep(0.02)
        return self.told[:]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, *_):
        self.close()
