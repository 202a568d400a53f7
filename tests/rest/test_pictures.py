"""Pictures that come as a zip archive instead of a video, and archives that are none or worse: rule 99 of docs/rest.md."""

import io
import os
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest

from . import media
from .server import BINARY
from .test_rules_report import report
from .test_specification import is_error

QUICK = {"training_max_num_gaussians": 1000, "training_num_steps": 20}


@pytest.fixture(scope="module")
def photos(capture, tmp_path_factory) -> list[Path]:
    """The frames of a capture, as pictures."""
    folder = tmp_path_factory.mktemp("photos")
    media.ffmpeg("-i", capture, "-q:v", "2", folder / "IMG_%d.jpg")
    return sorted(folder.iterdir(), key=lambda path: int(path.stem.split("_")[1]))


def packed(files: dict[str, bytes], method: int = zipfile.ZIP_STORED, links: tuple[str, ...] = ()) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", method) as out:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            if name in links:
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
            out.writestr(info, content)
    return archive.getvalue()


@pytest.fixture(scope="module")
def three(photos) -> dict[str, bytes]:
    """As few pictures as may be."""
    return {path.name: path.read_bytes() for path in photos[:3]}


def test_pictures_become_a_scene(worker_server, wendy, photos):
    files = {f"holiday/{path.name}": path.read_bytes() for path in photos}
    files |= {"holiday/notes.txt": b"by the sea", "__MACOSX/holiday/._IMG_1.jpg": b"x", "holiday/inner.zip": packed({"a": b"b"})}
    blob = wendy.upload(packed(files, zipfile.ZIP_DEFLATED), "ZIP", headers={"Content-Disposition": 'attachment; filename="holiday.zip"'})
    assert blob.endswith(".zip")
    job = wendy.wait(wendy.submit(blob))
    assert job["status"] == "Finished" and job["has_ply"] and job["title"] == "holiday.zip"
    told = report(wendy, job["job_id"])
    assert told["ran"]["frames"] == min(len(photos), 12) and told["quality"]["registered"] >= 3
    # Nothing of it is left where it was worked on.
    assert not [name for name in worker_server.files("work") if "pictures" in name]


def test_a_command_submits_an_archive(worker_server, wendy, photos, tmp_path):
    archive = tmp_path / "garden.zip"
    archive.write_bytes(packed({path.name: path.read_bytes() for path in photos}))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LIBRECONSTRUCT_", "RECONSTRUCT_"))}
    environment |= {"RECONSTRUCT_API_KEY": wendy.key, "XDG_CACHE_HOME": str(tmp_path)}
    command = [BINARY, "submit", archive, "--server", worker_server.url, "-o", tmp_path / "scene", "--training-num-steps", "20",
               "--training-max-num-gaussians", "1000"]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "scene/scene.ply").stat().st_size > 1000


def test_the_content_decides(alice, three, flat):
    assert alice.try_submit(alice.upload(packed(three), "mp4"), **QUICK).status_code == 201
    assert alice.try_submit(alice.upload(flat.read_bytes(), "zip"), **QUICK).status_code == 201
    refused = alice.request("POST", "/api/v1/generate-upload-url/", json={"file_extension": "rar"})
    is_error(refused, 400, "Invalid file format")


def encrypted(data: bytes) -> bytes:
    """Its table says so of the first file."""
    at = data.index(b"PK\x01\x02") + 8
    return data[:at] + bytes([data[at] | 1]) + data[at + 1 :]


def bad_archives(three: dict[str, bytes]) -> dict[str, bytes]:
    more = lambda name, content=b"x": packed(three | {name: content})  # noqa: E731
    return {
        "no archive": b"PK\x03\x04" + b"x" * 1000,
        "empty": packed({}),
        "two pictures": packed(dict(list(three.items())[:2])),
        "no pictures": packed({f"{n}.txt": b"x" for n in range(5)}),
        "only an archive": packed({"inner.zip": packed(three)}),
        "cut off": packed(three)[:-30],
        "out of it": more("../../secrets.jpg"),
        "out of it, as Windows": more("..\\..\\secrets.jpg"),
        "out of it, inside": more("a/../../b.jpg"),
        "absolute": more("/etc/cron.d/x.jpg"),
        "a drive": more("C:/x.jpg"),
        "a link": packed(three | {"link.jpg": b"/etc/passwd"}, links=("link.jpg",)),
        "a link that is no picture": packed(three | {"link": b"/etc"}, links=("link",)),
        "control characters": more("a\nb.jpg"),
        "the same name": more("img_1.JPG"),
        "encrypted": encrypted(packed(three)),
        "bzip2": packed(three, zipfile.ZIP_BZIP2),
        "lzma": packed(three, zipfile.ZIP_LZMA),
        "a bomb": packed(three | {"bomb.png": bytes(80 << 20)}, zipfile.ZIP_DEFLATED),
        "many files": packed(three | {f"{n}": b"" for n in range(20_001)}),
    }


@pytest.mark.parametrize("kind", bad_archives({"IMG_1.jpg": b"", "b.jpg": b"", "c.jpg": b""}))
def test_what_is_wrong_with_the_table_is_refused(server, fresh, three, kind):
    response = fresh.try_submit(fresh.upload(bad_archives(three)[kind], "zip"), **QUICK)
    is_error(response, 400, "Invalid file format")
    assert fresh.jobs() == [] and "panicked" not in server.log_text()


def test_what_is_wrong_inside_fails_the_job(worker_server, wendy, three):
    whole = packed(three)
    first = next(iter(three.values()))
    at = whole.index(first)
    damaged = whole[: at + 100] + bytes([whole[at + 100] ^ 0xFF]) + whole[at + 101 :]
    job = wendy.wait(wendy.submit(wendy.upload(damaged, "zip")))
    assert job["status"] == "Failed"
    failure = report(wendy, job["job_id"])["failure"]
    assert failure["code"] == "invalid_media" and "IMG_1.jpg" in failure["message"] and "damaged" in failure["message"]
    assert str(worker_server.data) not in failure["message"]
    # Pictures that are none are left out; then there are too few.
    none = packed({f"{n}.jpg": b"no picture" * 10 for n in range(5)})
    job = wendy.wait(wendy.submit(wendy.upload(none, "zip")))
    assert job["status"] == "Failed" and report(wendy, job["job_id"])["failure"]["code"] == "too_few_frames"
    assert worker_server.is_alive() and "panicked" not in worker_server.log_text()
