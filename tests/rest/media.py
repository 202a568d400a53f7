"""Small videos, made once and kept under `target/`: most with ffmpeg, one that can be reconstructed with our generator."""

import contextlib
import os
import subprocess
from pathlib import Path

from .server import ROOT, BINARY

CACHE = ROOT / "target" / "rest-media"
# Beside the binary under test, or where this repository builds it.
GENERATOR = next((p for p in (BINARY.parent / "synthetic-capture", ROOT / "target/release/synthetic-capture") if p.exists()), None)


def ffmpeg(*arguments: str) -> None:
    subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-y", *map(str, arguments)], check=True, timeout=600)


def made(name: str, make) -> Path:
    """The file `name`; `make` is called with its place unless it is there."""
    path = CACHE / name
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        # Tests of another process may make the same, and use it by then: what is there first stays.
        part = path.with_name(f"part-{os.getpid()}-{path.name}")
        make(part)
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(part)
        part.unlink()
    return path


def flat_video(extension: str = "mp4") -> Path:
    """A genuine video in which no camera can be found: five frames of a test picture."""
    codecs = {"webm": "libvpx", "avi": "mjpeg", "mkv": "mjpeg"}
    codec = codecs.get(extension, "mpeg4")

    def make(path: Path) -> None:
        ffmpeg("-f", "lavfi", "-i", "testsrc=size=64x48:rate=5:duration=1", "-c:v", codec, "-pix_fmt", "yuvj420p"
               if codec == "mjpeg" else "yuv420p", path)

    return made(f"flat.{extension}", make)


def bomb() -> Path:
    """8192 x 8192 pixels of black: a few kilobytes that decode to gigabytes."""

    def make(path: Path) -> None:
        ffmpeg("-f", "lavfi", "-i", "color=black:size=8192x8192:rate=10", "-frames:v", "8", "-c:v", "libx264",
               "-preset", "ultrafast", "-threads", "1", path)

    return made("bomb.mp4", make)


def filmed(name: str, **options) -> Path:
    """A film of our generator, with these of its options."""

    def make(path: Path) -> None:
        folder = path.with_suffix("")
        if GENERATOR is None:
            raise FileNotFoundError("synthetic-capture is missing: cargo build --release -p libreconstruct-tests")
        arguments = [part for option, value in options.items() for part in (f"--{option.replace('_', '-')}", str(value))]
        subprocess.run([GENERATOR, "-o", folder, *arguments], check=True, timeout=900, stdout=subprocess.DEVNULL)
        (folder / "video.mp4").rename(path)

    return made(name, make)


def capture() -> Path:
    """A walk around a furnished room, just enough for a reconstruction."""
    return filmed("capture.mp4", width=256, height=192, frames=20, frame_rate=10, arc=50, exposure_drift=0)


def tagged() -> Path:
    """A vase, a globe, books and a cup on a table with three tags of 80 mm."""
    return filmed("tagged.mp4", width=480, height=360, frames=28, frame_rate=10, arc=110, tag_mm=80, tags=3)
