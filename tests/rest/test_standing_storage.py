"""A storage of many machines that does not answer, as a network disk whose server is away: it keeps nobody from rows."""

import os
import socket
import time

from . import postgres

# More than calls may wait at once, for whatever it is.
REQUESTS = 300


def test_who_needs_rows_alone_is_served_while_the_storage_stands_still(make_server):
    server = make_server({"connections": {"max_connections_per_address": 1000}}, start=False)
    server.config |= postgres.settings(server.data)
    client = server.start().user("anna")
    addresses = [client.upload_url() for _ in range(REQUESTS)]
    identities = [address["blob_name"].split("/")[1].split(".")[0] for address in addresses]
    assert client.put(addresses[0]["url"], b"x", headers={"Upload-Complete": "?0"}).status_code == 201
    # What is noted of an upload that has begun. To open a pipe of that name takes until somebody writes to it: for ever.
    note = next(name for name in server.files("blocks") if server.stored.read(name).startswith(b"{"))
    (server.data / note).unlink()
    for identity in identities:
        pipe = server.data / note.replace(identities[0], identity)
        pipe.parent.mkdir(exist_ok=True)
        os.mkfifo(pipe)
    waiting = []
    try:
        for address in addresses:
            asking = socket.create_connection(("127.0.0.1", server.port))
            path = address["url"].removeprefix(server.url)
            asking.sendall(f"HEAD {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
            waiting.append(asking)
        time.sleep(1)
        for path in ("/api/v1/jobs/", "/readyz"):
            began = time.monotonic()
            answer = client.get(path)
            assert answer.status_code == 200, answer.text
            assert time.monotonic() - began < 2, path
    finally:
        for asking in waiting:
            asking.close()
