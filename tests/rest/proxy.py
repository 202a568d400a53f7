"""A line to a server that can be slow, and break."""

import socket
import threading
import time


class Line:
    """Forwards connections to a port. `cut_after`: a connection breaks after so many bytes to the server. `pause`: seconds of rest
    after each piece of 64 KiB."""

    def __init__(self, port: int, cut_after: int | None = None, pause: float = 0):
        self.target = port
        self.cut_after = cut_after
        self.pause = pause
        self.sent = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            for source, sink, up in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._forward, args=(source, sink, up), daemon=True).start()

    def _forward(self, source, sink, up: bool):
        passed = 0
        try:
            while piece := source.recv(65536):
                sink.sendall(piece)
                if up:
                    self.sent += len(piece)
                    passed += len(piece)
                    time.sleep(self.pause)
                    if self.cut_after is not None and passed >= self.cut_after:
                        break
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_):
        self.listener.close()
