"""A hundred uploads that are no good videos, each made from a seed: cut, damaged, mislabelled, lying about themselves.
docs/hostile-uploads.md has a line for each kind.

    cd tests && python -m rest.hostile            sends them to a server and prints what became of each, as a table
"""

import random
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from . import media
from .server import Client, Server

Damage = Callable[[bytes, random.Random], bytes]


def cut(data: bytes, choice: random.Random) -> bytes:
    return data[: choice.randrange(1, len(data))]


def lose_the_head(data: bytes, choice: random.Random) -> bytes:
    return data[choice.randrange(1, len(data)) :]


def flip_bits(data: bytes, choice: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(choice.choice([1, 10, 100, 1000])):
        damaged[choice.randrange(len(damaged))] ^= 1 << choice.randrange(8)
    return bytes(damaged)


def drop_a_piece(data: bytes, choice: random.Random) -> bytes:
    first = choice.randrange(len(data))
    return data[:first] + data[first + choice.randrange(1, 4096) :]


def repeat_a_piece(data: bytes, choice: random.Random) -> bytes:
    first, length = choice.randrange(len(data)), choice.randrange(1, 4096)
    piece = data[first : first + length]
    return data[:first] + piece * choice.choice([2, 50]) + data[first + length :]


def extreme_numbers(data: bytes, choice: random.Random) -> bytes:
    """Lengths, counts and times that cannot be."""
    damaged = bytearray(data)
    for _ in range(choice.choice([1, 4, 16])):
        at = choice.randrange(max(1, len(damaged) - 8))
        value = choice.choice([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", struct.pack("<I", 1 << 31)])
        damaged[at : at + 4] = value
    return bytes(damaged)


def noise_inside(data: bytes, choice: random.Random) -> bytes:
    first = choice.randrange(len(data) // 2)
    return data[:first] + choice.randbytes(choice.randrange(1, 65536)) + data[first:]


def splice(data: bytes, choice: random.Random) -> bytes:
    """The head of one file and the tail of another kind."""
    other = media.flat_video(choice.choice(["mp4", "avi", "mkv", "webm"])).read_bytes()
    return data[: choice.randrange(1, len(data))] + other[choice.randrange(len(other)) :]


def boxes_in_boxes(data: bytes, choice: random.Random) -> bytes:
    """A head of MP4 whose boxes hold each other, deeper than any program should follow."""
    inner = b""
    for _ in range(choice.choice([100, 10_000])):
        inner = struct.pack(">I4s", len(inner) + 8, choice.choice([b"moov", b"trak", b"udta", b"meta"])) + inner
        if len(inner) > 1 << 20:
            break
    return struct.pack(">I4s4sI", 16, b"ftyp", b"isom", 0) + inner + data[:4096]


def a_text(data: bytes, choice: random.Random) -> bytes:
    lines = ["#EXTM3U", "file '/etc/passwd'", "ffconcat version 1.0", "<svg/>", "http://127.0.0.1:1/x", "%s%n", "\0"]
    choice.shuffle(lines)
    return "\n".join(lines).encode() + data[: choice.choice([0, 32])]


DAMAGES: list[Damage] = [
    cut, lose_the_head, flip_bits, drop_a_piece, repeat_a_piece, extreme_numbers, noise_inside, splice, boxes_in_boxes, a_text,
]
# Without the head of a video they are refused at the submission. Of the others some can be decoded in part: that is a job, and fails.
REFUSED = {lose_the_head.__name__, a_text.__name__}
FORMATS = ["mp4", "avi", "mkv", "webm"]


def uploads(count: int = 100) -> Iterator[tuple[str, str, bytes]]:
    """Name, file extension and content; the same for every run."""
    for number in range(count):
        damage, kind = DAMAGES[number % len(DAMAGES)], FORMATS[number // len(DAMAGES) % len(FORMATS)]
        choice = random.Random(f"hostile {number}")
        yield f"{number:03} {damage.__name__} of {kind}", kind, damage(media.flat_video(kind).read_bytes(), choice)


def outcomes(client: Client) -> Iterator[tuple[str, int, str, str]]:
    """Name and bytes of each upload, what became of it ("refused", "Failed" or "Finished"), and why."""
    submitted = []
    for name, extension, data in uploads():
        response = client.try_submit(client.upload(data, extension), training_max_num_gaussians=1000, training_num_steps=20)
        submitted.append((name, len(data), response))
    for name, size, response in submitted:
        if response.status_code == 400:
            yield name, size, "refused", response.json()["error"]
            continue
        assert response.status_code == 201, response.text
        job = client.wait(response.json()["job_id"], within=300)
        failure = client.server.command("jobs", "show", job["job_id"])["failure"] or {"code": "", "message": ""}
        yield name, size, job["status"], f"{failure['code']}: {failure['message']}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), {"workers": 1}).start()
        client = server.user("anna")
        print("| upload | bytes | outcome | why |\n| --- | --- | --- | --- |")
        for name, size, what, why in outcomes(client):
            print(f"| {name} | {size} | {what} | {why.splitlines()[0][:120]} |", flush=True)
        server.stop()


if __name__ == "__main__":
    main()
