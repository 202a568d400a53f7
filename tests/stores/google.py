"""Google's dialect of the interface that S3 has too: what it calls otherwise is renamed on the way to a server for S3.

Google's XML API has the requests of S3 under the same names, also those of uploads in parts; its own headers begin with `x-goog-`.
The server behind is SeaweedFS, asked as its owner: signatures for Google are not looked at here.
"""

import hashlib
import hmac
import http.client
import sys
import threading
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from . import body

# Of one connection only, not of what is sent.
HOPS = {"connection", "keep-alive", "transfer-encoding", "host", "authorization"}
PIECE = 1 << 16
# A large file is copied before the answer comes.
WITHIN_SECONDS = 600


class Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address) -> None:
        # A client may leave in the middle of an answer.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def serve(behind: int, key: str, secret: str) -> ThreadingHTTPServer:
    """Serves Google's interface on a free port, in threads of this process; `behind` is the port of the server for S3."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments) -> None:
            pass

        def forward(self) -> None:
            target = urlsplit(self.path)
            # Google does not mind how a path is encoded; the signature of S3 does.
            path = quote(unquote(target.path), safe="/-_.~")
            query = [(n, v) for n, v in parse_qsl(target.query, keep_blank_values=True) if not n.lower().startswith("x-goog-")]
            encoded = "&".join(f"{quote(n, safe='-_.~')}={quote(v, safe='-_.~')}" for n, v in sorted(query))
            headers = {}
            for name, value in self.headers.items():
                if name.lower() not in HOPS:
                    headers[renamed(name, "x-goog-", "x-amz-")] = value
            own = {name.lower(): value.strip() for name, value in headers.items() if name.lower().startswith("x-amz-")}
            own |= {"host": f"127.0.0.1:{behind}"}
            headers |= authorization(self.command, path, encoded, own, key, secret)
            connection = http.client.HTTPConnection("127.0.0.1", behind, timeout=WITHIN_SECONDS)
            try:
                # Its length is among the headers.
                content = body.pieces(self) if body.length(self) else b""
                connection.request(self.command, path + (f"?{encoded}" if encoded else ""), content, headers)
                self.answer(connection.getresponse())
            finally:
                connection.close()

        def answer(self, answer: http.client.HTTPResponse) -> None:
            self.send_response_only(answer.status)
            length = answer.getheader("Content-Length")
            for name, value in answer.getheaders():
                if name.lower() not in HOPS:
                    self.send_header(renamed(name, "x-amz-", "x-goog-"), value)
            if length is None and self.command != "HEAD":
                # It is not known before it has come.
                whole = answer.read()
                self.send_header("Content-Length", str(len(whole)))
                self.end_headers()
                self.wfile.write(whole)
                return
            self.end_headers()
            while piece := answer.read(PIECE):
                self.wfile.write(piece)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def renamed(name: str, prefix: str, other: str) -> str:
    return other + name[len(prefix) :] if name.lower().startswith(prefix) else name


def authorization(method: str, path: str, query: str, headers: dict[str, str], key: str, secret: str) -> dict[str, str]:
    """The headers by which S3 knows who asks (Signature Version 4)."""
    now = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    added = {"x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": now}
    signed = dict(sorted((headers | added).items()))
    lines = [f"{name}:{value}" for name, value in signed.items()]
    request = "\n".join([method, path, query, *lines, "", ";".join(signed), "UNSIGNED-PAYLOAD"])
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
    secret_key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        secret_key = hmac.digest(secret_key, part.encode(), "sha256")
    signature = hmac.new(secret_key, text.encode(), "sha256").hexdigest()
    value = f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={';'.join(signed)}, Signature={signature}"
    return added | {"Authorization": value}
