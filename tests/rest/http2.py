"""HTTP/2 frame by frame, for clients that do what no library does (RFC 9113). Without TLS, with prior knowledge."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: str, value: str) -> bytes:
    """A header that is in no table (RFC 7541, section 6.2.2)."""

    def text(t: str) -> bytes:
        # A length above 126 takes more bytes (section 5.1).
        length, more = len(t), b""
        if length >= 127:
            rest, length = length - 127, 127
            while rest >= 128:
                more += bytes([rest % 128 + 128])
                rest //= 128
            more += bytes([rest])
        return bytes([length]) + more + t.encode()

    return b"\0" + text(name) + text(value)


def head(method: str, path: str, more: bytes = b"") -> bytes:
    """The header block of a request."""
    fields = [(":method", method), (":scheme", "http"), (":authority", "x"), (":path", path)]
    return b"".join(literal(*field) for field in fields) + more


def get(path: str, more: bytes = b"") -> bytes:
    """The header block of a GET."""
    return head("GET", path, more)


# Statuses that have a place in the static table (RFC 7541, appendix A), and how digits are coded (appendix B).
STATUSES = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}
DIGITS = dict(zip(("00000", "00001", "00010", "011001", "011010", "011011", "011100", "011101", "011110", "011111"), "0123456789"))


def status(block: bytes) -> int:
    """The status with which the header block of an answer begins, if the connection has not had an answer of that status before."""
    if block[0] & 0x80:
        return STATUSES[block[0] & 0x7F]
    assert block[0] & 0x0F == 8, block
    text = block[2 : 2 + (block[1] & 0x7F)]
    if not block[1] & 0x80:
        return int(text)
    bits, digits = "".join(f"{byte:08b}" for byte in text), ""
    while len(digits) < 3:
        code = next(code for code in DIGITS if bits.startswith(code))
        bits, digits = bits[len(code) :], digits + DIGITS[code]
    return int(digits)


class Connection:
    def __init__(self, port: int, timeout: float = 30, receive_buffer: int | None = None):
        self.socket = socket.socket()
        self.socket.settimeout(timeout)
        if receive_buffer is not None:
            # What the first segments offer as room follows from it.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def _exactly(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            more = self.socket.recv(count - len(got))
            if not more:
                raise EOFError
            got += more
        return got

    def receive(self) -> tuple[int, int, int, bytes]:
        """The next frame: kind, flags, stream and payload; EOFError at the end of the connection."""
        head = self._exactly(9)
        payload = self._exactly(int.from_bytes(head[:3], "big"))
        if head[3] == SETTINGS and not head[4] & ACK:
            self.send(frame(SETTINGS, ACK, 0))
        return head[3], head[4], int.from_bytes(head[5:9], "big"), payload

    def answer(self, stream: int) -> bytes:
        """Reads until the stream has ended; its body."""
        body = b""
        while True:
            kind, flags, of, payload = self.receive()
            if of == stream and kind == DATA:
                body += payload
            if of == stream and kind == RST_STREAM:
                raise EOFError
            if of == stream and kind in (DATA, HEADERS) and flags & END_STREAM:
                return body

    def end(self) -> int | None:
        """Reads until the connection has ended; the error code with which the server took its leave, if it did."""
        code = None
        try:
            while True:
                kind, _, _, payload = self.receive()
                if kind == GOAWAY:
                    code = struct.unpack(">I", payload[4:8])[0]
        except (EOFError, ConnectionError):
            return code

    def close(self) -> None:
        self.socket.close()
