"""A way to an object store, or to any server: requests pass through here unchanged, are counted, and can be refused, cut off, or done
without that anybody is told of it."""

import contextlib
import http.client
import random
import re
import socket
import sys
import threading
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from . import body

PIECE = 1 << 16
# Of one connection only.
HOPS = {"connection", "keep-alive", "transfer-encoding"}
# What a busy store says.
BUSY = b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
# When a file was written, in a list of files.
WRITTEN = re.compile(rb"<LastModified>(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[^<]*</LastModified>")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    # Those of a machine may all come at once.
    request_queue_size = 128

    def handle_error(self, request, client_address) -> None:
        # A client may leave in the middle of an answer, and is sent away in the middle of one.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Door:
    """From a port of its own to that of the store, both on this machine. Within `patience` seconds the store goes on with its answer."""

    def __init__(self, to: int, patience: float = 60):
        self.to = to
        self.patience = patience
        # One request in so many fails; none if it is 0.
        self.fails_one_in = 0
        # Files look older by so much, seconds.
        self.ages = 0
        self.choice = random.Random(to)
        self.failed = 0
        # Of the bodies of requests, and of those of answers.
        self.bytes_in = self.bytes_out = 0
        door = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # What stands still ends.
            timeout = 60

            def log_message(self, *arguments) -> None:
                pass

            def pass_on(self) -> None:
                door.pass_on(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = pass_on

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def pass_on(self, request: BaseHTTPRequestHandler) -> None:
        fate = "done"
        one_in = self.fails_one_in
        if one_in and self.choice.randrange(one_in) == 0:
            self.failed += 1
            # A store that fails as a whole leaves its clients without an answer as often as it has a word for them.
            fate = self.choice.choice(["busy", "busy", "busy after it was done", "cut", "cut after it was done"])
        if fate == "cut":
            self.cut(request)
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.to, timeout=self.patience)
        try:
            if fate == "busy":
                for piece in body.pieces(request):
                    self.bytes_in += len(piece)
                self.answer(request, 503, {"Content-Type": "application/xml", "Retry-After": "1"}, BUSY)
                return
            connection.putrequest(request.command, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name.lower() not in HOPS:
                    connection.putheader(name, value)
            connection.endheaders()
            for piece in body.pieces(request):
                self.bytes_in += len(piece)
                connection.send(piece)
            answer = connection.getresponse()
            headers = {name.title(): value for name, value in answer.getheaders() if name.lower() not in HOPS}
            is_list = request.command == "GET" and "xml" in headers.get("Content-Type", "")
            if fate == "busy after it was done":
                answer.read()
                self.answer(request, 503, {"Content-Type": "application/xml"}, BUSY)
            elif fate == "cut after it was done":
                self.cut(request)
            elif request.command == "HEAD":
                self.answer(request, answer.status, headers, b"")
            elif is_list or "Content-Length" not in headers:
                content = answer.read()
                if self.ages:
                    content = WRITTEN.sub(self.older, content)
                self.bytes_out += len(content)
                self.answer(request, answer.status, headers | {"Content-Length": str(len(content))}, content)
            else:
                self.answer(request, answer.status, headers, b"")
                # Who asked may have enough of it at any moment.
                while piece := answer.read(PIECE):
                    request.wfile.write(piece)
                    self.bytes_out += len(piece)
        except (OSError, http.client.HTTPException):
            # The store is at its end, or who asked is.
            self.cut(request)
        finally:
            connection.close()

    def older(self, written: re.Match) -> bytes:
        at = datetime.fromisoformat(written[1].decode()) - timedelta(seconds=self.ages)
        return f"<LastModified>{at.isoformat()}.000Z</LastModified>".encode()

    @staticmethod
    def answer(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], content: bytes) -> None:
        request.send_response_only(status)
        if status != 204 and "content-length" not in {name.lower() for name in headers}:
            headers = headers | {"Content-Length": str(len(content))}
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)

    @staticmethod
    def cut(request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        with contextlib.suppress(OSError):
            request.connection.shutdown(socket.SHUT_RDWR)
