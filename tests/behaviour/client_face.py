"""The face of Python's `Client`: a `reconstruct serve` process, over HTTP."""

from pathlib import Path
from typing import Any

import libreconstruct

from rest.server import BINARY, Server

from .python_face import PythonFace


class ClientFace(PythonFace):
    def __init__(self, server: Server, user: str):
        # More than one test asks for the face of another user.
        users = {known["name"] for known in server.command("users", "list")["users"]}
        client = server.client_with_new_key(user) if user in users else server.user(user)
        assert client.key is not None
        super().__init__(libreconstruct.Client(server.url, client.key, poll_seconds=0.5))
        self._server = server
        self._owns_server = False

    def other(self) -> "ClientFace":
        return ClientFace(self._server, "bob")

    def close(self) -> None:
        super().close()
        if self._owns_server:
            self._server.stop()


def open_face(folder: Path, options: dict[str, Any], workers: int) -> ClientFace:
    if not BINARY.exists():
        raise FileNotFoundError(f"{BINARY} is missing: cargo build --release -p libreconstruct-server, or set RECONSTRUCT")
    server = Server(folder, {"workers": workers, **options}).start()
    face = ClientFace(server, "alice")
    face._owns_server = True
    return face
