"""Bodies of requests in pieces: a large one is never in memory as a whole."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

PIECE = 1 << 20


def length(request: BaseHTTPRequestHandler) -> int:
    """How many bytes the body of a request has."""
    return int(request.headers.get("Content-Length") or 0)


def pieces(request: BaseHTTPRequestHandler) -> Iterator[bytes]:
    """The body of a request as it comes. `ConnectionResetError` if the client leaves before its end."""
    left = length(request)
    while left:
        piece = request.rfile.read(min(left, PIECE))
        if not piece:
            raise ConnectionResetError("the client has left in the middle of a request")
        left -= len(piece)
        yield piece
