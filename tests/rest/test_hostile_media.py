"""Videos that are none, or worse: each is refused, or its job fails; nothing outside the job is read, and the server goes on."""

import struct
import time

import pytest

from . import hostile, media, postgres
from .test_specification import is_error


def judged(client, data: bytes, extension: str = "mp4", **options) -> str:
    """What becomes of an upload: "refused" at the submission, or the status with which its job ends."""
    response = client.try_submit(
        client.upload(data, extension, **options), training_max_num_gaussians=1000, training_num_steps=20
    )
    if response.status_code == 400:
        is_error(response, 400, "Invalid file format")
        return "refused"
    assert response.status_code == 201, response.text
    job = client.wait(response.json()["job_id"], within=120)
    assert job["has_ply"] is False and job["has_spz"] is False
    failure = client.server.command("jobs", "show", job["job_id"])["failure"]
    assert failure["code"] and failure["message"] and str(client.server.data) not in failure["message"]
    return job["status"]


@pytest.fixture(autouse=True)
def server_goes_on(worker_server, wendy):
    yield
    assert worker_server.is_alive() and wendy.get("/healthz").status_code == 200
    assert "panicked" not in worker_server.log_text()


@pytest.fixture(scope="module")
def tenant(worker_server, wendy, flat, tmp_path_factory):
    """A video of somebody else on the same disk, as an MPEG transport stream that a playlist could name."""
    path = tmp_path_factory.mktemp("tenant") / "secret.ts"
    media.ffmpeg("-i", flat, "-c:v", "mpeg2video", "-f", "mpegts", path)
    return path


def playlists(tenant) -> dict[str, bytes]:
    hls = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10.0,\n{}\n#EXT-X-ENDLIST\n"
    return {
        "hls-absolute": hls.format(tenant).encode(),
        "hls-file-url": hls.format(f"file://{tenant}").encode(),
        "hls-http": hls.format("http://127.0.0.1:1/x.ts").encode(),
        "hls-relative": hls.format("../jobs.db").encode(),
        "hls-concat": hls.format(f"concat:{tenant}|{tenant}").encode(),
        "ffconcat": f"ffconcat version 1.0\nfile '{tenant}'\n".encode(),
        "ffconcat-relative": b"ffconcat version 1.0\nfile ../../secrets.json\n",
        "sdp": b"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n",
        "image-list": str(tenant).encode(),
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="/etc/passwd"/></svg>',
        "dash": f'<?xml version="1.0"?><MPD><Period><BaseURL>{tenant}</BaseURL></Period></MPD>'.encode(),
    }


@pytest.mark.parametrize("kind", playlists("x"))
def test_a_playlist_named_mp4_reads_nothing(wendy, tenant, kind):
    assert judged(wendy, playlists(tenant)[kind]) == "refused"


@pytest.mark.parametrize("kind", ["hls-absolute", "ffconcat"])
@pytest.mark.parametrize("head", [
    struct.pack(">I4s4sI4s", 20, b"ftyp", b"isom", 512, b"isom"), b"RIFF\xff\xff\x00\x00AVI LIST", b"\x1a\x45\xdf\xa3\x80",
], ids=["mp4", "avi", "mkv"])
def test_a_playlist_behind_the_head_of_a_video_reads_nothing(wendy, tenant, kind, head):
    assert judged(wendy, head + b"\n" + playlists(tenant)[kind]) in ("refused", "Failed")


def test_a_picture_of_8192_squared_is_no_harm(worker_server, wendy):
    data = media.bomb().read_bytes()
    assert len(data) < 4 << 20
    before = peak_memory(worker_server)
    began = time.monotonic()
    workers = worker_server.workers()
    assert judged(wendy, data) in ("refused", "Failed")
    assert time.monotonic() - began < 60
    # The same one: none was ended.
    assert worker_server.workers() == workers
    assert peak_memory(worker_server) - before < 512 << 20


def peak_memory(server) -> int:
    """Largest memory that the server's process and that of its worker have had, in bytes."""
    return sum(peak_of(pid) for pid in [server.process.pid, *server.workers()])


def peak_of(pid: int) -> int:
    status = open(f"/proc/{pid}/status").read().split("VmHWM:")[1]
    return int(status.split()[0]) * 1024


@pytest.mark.parametrize("data", [
    b"", b"\x00" * 4096, b"\xff" * 4096, b"x",
    struct.pack(">I4s", 0xFFFFFFFF, b"ftyp") + b"isom" * 4,
    struct.pack(">I4sQ", 1, b"ftyp", 2**63 - 1) + b"isom" * 4,
    struct.pack(">I4s4sI", 16, b"ftyp", b"isom", 0) + struct.pack(">I4s", 0x7FFFFFFF, b"moov") + bytes(1000),
    struct.pack(">I4s4sI", 16, b"ftyp", b"isom", 0) + struct.pack(">I4s", 8, b"moov") * 50_000,
    b"\x1a\x45\xdf\xa3\x01\xff\xff\xff\xff\xff\xff\xff" + bytes(1000),
    b"RIFF" + b"\xff" * 4 + b"AVI " + b"LIST" + b"\xff" * 1000,
], ids=["empty", "zeros", "ones", "letter", "huge-box", "huge-large-box", "huge-moov", "many-moov", "huge-ebml", "huge-avi"])
def test_a_broken_head_is_refused_or_fails(wendy, data):
    assert judged(wendy, data) in ("refused", "Failed")


def test_a_hundred_hostile_uploads_end_in_order(worker_server, wendy):
    """None becomes a scene, none takes the server or its worker along, none is blamed on the machine."""
    workers = worker_server.workers()
    for name, _, what, why in hostile.outcomes(wendy):
        _, kind, *_ = name.split()
        assert what == "refused" or (what == "Failed" and kind not in hostile.REFUSED), (name, what, why)
        if what == "Failed":
            assert why.split(":")[0] not in ("io", "crashed", "internal", "disk_full", "deadline_exceeded"), (name, why)
    assert worker_server.workers() == workers
    assert wendy.get("/readyz").json()["paused_workers"] == []


def test_a_video_that_is_cut_off_is_refused_or_fails(wendy, flat):
    data = flat.read_bytes()
    for part in (data[:100], data[: len(data) // 2], data[: len(data) - 100]):
        assert judged(wendy, part) in ("refused", "Failed")


def test_sound_alone_is_refused_or_fails(wendy, tmp_path):
    path = tmp_path / "sound.mp4"
    media.ffmpeg("-f", "lavfi", "-i", "sine=duration=1", "-c:a", "aac", path)
    assert judged(wendy, path.read_bytes()) in ("refused", "Failed")


def test_a_picture_is_refused(wendy, tmp_path):
    for name in ("a.png", "a.jpg", "a.gif"):
        media.ffmpeg("-f", "lavfi", "-i", "testsrc=size=64x48", "-frames:v", "1", tmp_path / name)
        assert judged(wendy, (tmp_path / name).read_bytes()) == "refused"


@pytest.mark.parametrize("extension", ["mov", "mkv", "webm", "avi"])
def test_a_wrong_extension_changes_nothing(wendy, flat, extension):
    assert judged(wendy, flat.read_bytes(), extension) in ("refused", "Failed")


@pytest.mark.parametrize("name", [
    "../../../../tmp/evil.mp4", "/etc/passwd", "..", ".", "-i.mp4", "a;touch evil;.mp4", "$(touch evil).mp4", "`touch evil`.mp4",
    "|touch evil", "file:evil.mp4", "http://127.0.0.1/x.mp4", "concat:a|b", "pipe:0", "nul\x00l".replace("\x00", "%00"), "%s%n%d", "x" * 3000,
])
def test_names_are_text_and_never_paths(worker_server, wendy, flat, name):
    headers = {"Content-Disposition": f"attachment; filename=\"{name}\"", "x-ms-meta-filename": name}
    assert judged(wendy, flat.read_bytes(), headers=headers) == "Failed"
    found = [p for p in worker_server.folder.rglob("*") if "evil" in p.name or "passwd" in p.name]
    assert found == []


def test_the_files_of_the_service_are_their_owners_only(worker_server):
    mode = lambda path: path.stat().st_mode & 0o777
    for folder in [worker_server.data, *(p for p in worker_server.data.iterdir() if p.is_dir())]:
        assert mode(folder) == 0o700, folder
    for file in ("secrets.json", "jobs.db") if not postgres.IS_ASKED_FOR else ("secrets.json",):
        assert mode(worker_server.data / file) == 0o600, file


def test_a_link_in_the_storage_of_a_job_is_not_made(worker_server):
    assert not [p for p in worker_server.data.rglob("*") if p.is_symlink()]
