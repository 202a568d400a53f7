"""Clients that go away in the middle: of the head of a request, of an upload, of a download."""

import json
import random
import socket
import struct
from urllib.parse import urlsplit

from rest.server import Client, Server


def connect(server: Server, url: str = "") -> socket.socket:
    """To a server, or to where an address leads that it gave."""
    return socket.create_connection(("127.0.0.1", urlsplit(url).port or server.port), timeout=20)


def part_with(connection: socket.socket, choice: random.Random) -> None:
    """Ends the connection in order, or as the system of a client does that was switched off."""
    if choice.random() < 0.5:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def head(method: str, path: str, client: Client, length: int = 0, kind: str = "application/json") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{client.server.port}", f"Authorization: Api-Key {client.key}"]
    if length:
        lines += [f"Content-Type: {kind}", f"Content-Length: {length}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def request_for_upload(client: Client) -> bytes:
    body = json.dumps({"file_extension": "mp4"}).encode()
    return head("POST", "/api/v1/generate-upload-url/", client, len(body)) + body


def upload(url: str, content: bytes) -> bytes:
    parts = urlsplit(url)
    lines = [f"PUT {parts.path}?{parts.query} HTTP/1.1", f"Host: {parts.netloc}", "Content-Type: video/mp4", f"Content-Length: {len(content)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + content


def send_until(server: Server, payload: bytes, count: int, choice: random.Random, url: str = "") -> None:
    """Sends so many bytes and leaves. All of them may be taken for the whole: then the answer is not waited for."""
    connection = connect(server, url)
    try:
        connection.sendall(payload[:count])
    finally:
        part_with(connection, choice)


def read_until(server: Server, url: str, count: int, choice: random.Random) -> None:
    """Reads so many bytes of an answer and leaves."""
    parts = urlsplit(url)
    connection = connect(server, url)
    try:
        connection.sendall(f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        while count > 0:
            got = connection.recv(min(count, 65536))
            if not got:
                break
            count -= len(got)
    finally:
        part_with(connection, choice)


def anywhere(server: Server, client: Client, finished: list[str], video: bytes, choice: random.Random) -> None:
    """One client that leaves, anywhere."""
    way = choice.randrange(3)
    if way == 0:
        payload = request_for_upload(client)
        send_until(server, payload, choice.randrange(len(payload) + 1), choice)
    elif way == 1:
        response = client.request("POST", "/api/v1/generate-upload-url/", json={"file_extension": "mp4"}, timeout=60)
        if response.status_code == 200:
            url = response.json()["url"]
            payload = upload(url, video)
            send_until(server, payload, choice.randrange(len(payload) + 1), choice, url)
    elif finished:
        response = client.get(f"/api/v1/jobs/{choice.choice(finished)}/download/ply/")
        if response.status_code == 302:
            read_until(server, response.headers["Location"], choice.randrange(60_000), choice)


def everywhere(server: Server, client: Client, video: bytes, job: str, choice: random.Random, steps: int) -> int:
    """Clients that leave after every single byte of a request's head and body, and after `steps` places of an upload and of a
    download; how many there were."""
    count = 0
    payload = request_for_upload(client)
    for cut in range(len(payload) + 1):
        send_until(server, payload, cut, choice)
        count += 1
    for step in range(steps + 1):
        url = client.upload_url()["url"]
        payload = upload(url, video)
        send_until(server, payload, len(payload) * step // steps, choice, url)
        location = client.get(f"/api/v1/jobs/{job}/download/ply/").headers["Location"]
        read_until(server, location, 60_000 * step // steps, choice)
        count += 2
    return count
