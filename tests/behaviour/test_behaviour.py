"""The same behaviour through every face: a job as docs/rest.md has it, as Python, C and HTTP show it."""

import json
import re
import struct
import time
import uuid
import zipfile
from datetime import datetime, timezone

import pytest

from .face import QUICK, Face, FaceError

FIELDS = {
    "job_id", "title", "status", "percent_complete", "uploaded_at", "public", "reconstruction_method",
    "training_max_num_gaussians", "training_num_steps", "remove_background", "has_ply", "has_spz", "camera_data",
}  # fmt: skip
DEFAULT_VIEW = {
    "position": {"x": 0, "y": 0, "z": -3},
    "lookAt": {"x": 0, "y": 0, "z": 0},
    "up": {"x": 0, "y": 1, "z": 0},
    "cameraType": "drone",
}


def refused(slug: str, call, *arguments, **named) -> str:
    """The message of a call that must be refused."""
    with pytest.raises(FaceError) as caught:
        call(*arguments, **named)
    assert caught.value.slug == slug, caught.value
    assert caught.value.message
    return caught.value.message


def test_a_job_has_the_fields_and_defaults_of_the_specification(idle: Face, flat):
    before = datetime.now(timezone.utc)
    job_id = idle.submit(flat)
    assert str(uuid.UUID(job_id)) == job_id
    job = idle.job(job_id)
    assert job.keys() == FIELDS
    assert re.fullmatch(r"Queued( - position: [1-9]\d*)?", job["status"])
    assert (job["job_id"], job["title"], job["percent_complete"], job["public"]) == (job_id, flat.name, None, False)
    assert (job["reconstruction_method"], job["training_max_num_gaussians"]) == ("glomap", 1_000_000)
    assert (job["training_num_steps"], job["remove_background"]) == (25_000, False)
    assert (job["has_ply"], job["has_spz"], job["camera_data"]) == (False, False, DEFAULT_VIEW)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", job["uploaded_at"])
    assert abs((datetime.fromisoformat(job["uploaded_at"].replace("Z", "+00:00")) - before).total_seconds()) < 60


def test_what_was_asked_for_is_echoed(idle: Face, flat):
    asked = {
        "title": "Büro \N{OFFICE BUILDING}",
        "public": True,
        "reconstruction_method": "colmap",
        "training_max_num_gaussians": 30_000,
        "training_num_steps": 7_000,
        "remove_background": True,
    }
    job = idle.job(idle.submit(flat, camera_type="orbital", **asked))
    assert {name: job[name] for name in asked} == asked
    assert job["camera_data"]["cameraType"] == "orbital"


@pytest.mark.parametrize(("name", "value"), [
    ("training_num_steps", 0), ("training_num_steps", 200_001), ("training_max_num_gaussians", 999),
    ("training_max_num_gaussians", 10_000_001), ("apriltag_size_mm", 0.5), ("apriltag_size_mm", 1000.5),
    ("reconstruction_method", "magic"), ("camera_type", "car"), ("title", ""), ("title", "x" * 256), ("title", "a\x07b"),
])  # fmt: skip
def test_options_out_of_range_are_refused_by_name(idle: Face, flat, name, value):
    count = len(idle.jobs()["jobs"])
    assert name in refused("invalid_argument", idle.submit, flat, **{name: value})
    assert len(idle.jobs()["jobs"]) == count


def test_what_is_no_video_is_refused(idle: Face, tmp_path):
    text = tmp_path / "text.mp4"
    text.write_text("this is no video")
    assert refused("invalid_argument", idle.submit, text) == "Invalid file format"
    unknown = tmp_path / "video.xyz"
    unknown.write_text("this is no video")
    assert refused("invalid_argument", idle.submit, unknown) == "Invalid file format"
    refused("not_found", idle.submit, tmp_path / "missing.mp4")


def test_jobs_are_listed_newest_first_in_pages(idle: Face, flat):
    mine = [idle.submit(flat, title=f"list {k}", public=k % 2 == 0) for k in range(5)]
    listed = idle.jobs()
    assert listed["next"] is None
    assert [job["job_id"] for job in listed["jobs"]][:5] == mine[::-1]
    assert listed["jobs"][0] == {"job_id": mine[-1], "title": "list 4"}

    seen, cursor = [], None
    while True:
        page = idle.jobs(limit=2, **({"cursor": cursor} if cursor else {}))
        assert 1 <= len(page["jobs"]) <= 2
        seen += page["jobs"]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == listed["jobs"]

    public = [job["job_id"] for job in idle.jobs(public=True)["jobs"]]
    assert [job for job in public if job in mine] == [mine[4], mine[2], mine[0]]
    assert idle.jobs(status="Finished")["jobs"] == []
    assert mine[0] in [job["job_id"] for job in idle.jobs(status="Queued")["jobs"]]
    for wrong in ({"limit": 0}, {"limit": 1001}, {"status": "Done"}, {"cursor": "x"}):
        refused("invalid_argument", idle.jobs, **wrong)


def test_an_update_changes_what_it_names(idle: Face, flat):
    job_id = idle.submit(flat, title="before")
    before = idle.job(job_id)
    after = idle.update(job_id, title="after")
    assert after == idle.job(job_id)
    assert after == before | {"title": "after", "status": after["status"]}
    assert idle.update(job_id, public=True)["public"] is True

    view = {
        "position": {"x": 1, "y": -2, "z": 3.5},
        "lookAt": {"x": 0, "y": 0, "z": 1},
        "up": {"x": 0, "y": -1, "z": 0},
        "cameraType": "orbital",
    }
    assert idle.update(job_id, camera_data=view)["camera_data"] == view
    assert idle.update(job_id)["camera_data"] == view
    assert idle.update(job_id, camera_data=None)["camera_data"] == DEFAULT_VIEW

    assert "title" in refused("invalid_argument", idle.update, job_id, title="")
    broken = view | {"up": {"x": 0, "y": 0, "z": 0}}
    assert "camera_data" in refused("invalid_argument", idle.update, job_id, camera_data=broken)
    assert idle.job(job_id)["title"] == "after"


def test_a_deleted_job_is_gone(idle: Face, flat):
    job_id = idle.submit(flat)
    idle.delete(job_id)
    assert refused("not_found", idle.job, job_id) == "Job not found"
    assert refused("not_found", idle.delete, job_id) == "Job not found"
    assert job_id not in [job["job_id"] for job in idle.jobs()["jobs"]]


@pytest.mark.parametrize("job_id", ["00000000-0000-4000-8000-000000000000", "no id", "../jobs"])
def test_what_names_no_job_is_not_found(idle: Face, tmp_path, job_id):
    for call in (idle.job, idle.update, idle.delete, lambda j: idle.download(j, "ply", tmp_path / "a.ply")):
        refused("not_found", call, job_id)


def test_jobs_of_others_do_not_exist(idle: Face, flat, tmp_path):
    job_id = idle.submit(flat, public=True)
    other = idle.other()
    try:
        for call in (other.job, other.update, other.delete, lambda j: other.download(j, "ply", tmp_path / "a.ply")):
            assert refused("not_found", call, job_id) == "Job not found"
        assert job_id not in [job["job_id"] for job in other.jobs()["jobs"]]
        theirs = other.submit(flat)
        assert [job["job_id"] for job in other.jobs()["jobs"]] == [theirs]
        refused("not_found", idle.job, theirs)
    finally:
        other.close()
    assert idle.job(job_id)["public"] is True


def test_nothing_can_be_downloaded_before_there_is_something(idle: Face, flat, tmp_path):
    job_id = idle.submit(flat)
    for kind in ("ply", "spz", "preview"):
        assert "not available for this job" in refused("not_found", idle.download, job_id, kind, tmp_path / kind)
    assert list(tmp_path.iterdir()) == []
    refused("invalid_argument", idle.download, job_id, "obj", tmp_path / "a.obj")


def test_a_wait_ends_in_time(idle: Face, flat):
    job_id = idle.submit(flat)
    began = time.monotonic()
    refused("deadline_exceeded", idle.wait, job_id, 0.5)
    assert 0.4 < time.monotonic() - began < 10
    assert idle.failure(job_id) is None


def test_a_cancelled_job_has_failed(idle: Face, flat):
    job_id = idle.submit(flat, title="Garden", training_num_steps=7)
    refused("conflict", idle.restart, job_id)
    idle.cancel(job_id)
    assert idle.wait(job_id, 10)["status"] == "Failed"
    failure = idle.failure(job_id)
    assert failure is not None and failure["code"] == "cancelled"
    refused("conflict", idle.cancel, job_id)
    report = idle.report(job_id)
    assert report["failure"] == failure and report["status"] == "Failed" and report["progress"]["finished_at"] is not None
    # It can be made again, with other options, and is a job of its own.
    refused("invalid_argument", idle.restart, job_id, training_num_steps=0)
    again = idle.restart(job_id, training_max_num_gaussians=2000)
    job = idle.job(again)
    assert again != job_id and job["status"].startswith("Queued") and job["title"] == "Garden"
    assert (job["training_max_num_gaussians"], job["training_num_steps"]) == (2000, 7)
    assert idle.job(job_id)["status"] == "Failed"
    stranger = idle.other()
    refused("not_found", stranger.report, again)
    refused("not_found", stranger.restart, job_id)


def test_a_waiting_job_reports_what_was_asked_for(idle: Face, flat):
    job_id = idle.submit(flat, apriltag_size_mm=50, **QUICK)
    report = idle.report(job_id)
    assert report["job_id"] == job_id and report["status"].startswith("Queued")
    asked = {name: report["requested"][name] for name in QUICK}
    assert asked == QUICK and report["requested"]["apriltag_size_mm"] == 50
    assert report["requested"]["blob_name"].startswith("videos/")
    assert (report["progress"]["attempt"], report["progress"]["stage"], report["warnings"]) == (0, None, [])
    assert [report[name] for name in ("failure", "ran", "quality", "verdict", "scale", "costs")] == [None] * 6


def test_a_finished_job_has_a_scene(finished, tmp_path):
    face, job_id = finished
    job = face.job(job_id)
    assert (job["status"], job["percent_complete"], job["has_ply"], job["has_spz"]) == ("Finished", 100, True, True)
    assert job["camera_data"]["cameraType"] == "orbital" and job["camera_data"] != DEFAULT_VIEW | {"cameraType": "orbital"}
    assert job_id in [listed["job_id"] for listed in face.jobs(status="Finished")["jobs"]]
    for kind in ("ply", "spz", "preview"):
        face.download(job_id, kind, tmp_path / kind)
    ply, spz, preview = ((tmp_path / kind).read_bytes() for kind in ("ply", "spz", "preview"))
    header, body = ply.split(b"end_header\n", 1)
    (count,) = map(int, re.findall(rb"element vertex (\d+)\n", header))
    assert len(body) == count * 4 * header.count(b"property float")
    assert 0 < count <= QUICK["training_max_num_gaussians"]
    assert spz[:2] == b"\x1f\x8b" and len(spz) < len(ply)
    assert preview[:3] == b"\xff\xd8\xff" and preview[-2:] == b"\xff\xd9"


def test_a_finished_job_reports_how_it_was_made(finished, tmp_path):
    face, job_id = finished
    report = face.report(job_id)
    assert report["ran"]["steps"] == QUICK["training_num_steps"] and report["ran"]["method"] in ("global", "incremental")
    assert 0 < report["ran"]["splats"] <= QUICK["training_max_num_gaussians"]
    assert 3 <= report["quality"]["registered"] <= report["ran"]["frames"] <= 12
    assert 0 < report["quality"]["mean_reprojection_error"] < 4 and report["costs"]["train"]["seconds"] > 0
    assert report["verdict"]["grade"] in ("good", "doubtful") and report["verdict"]["rotation_error_degrees"] > 0
    for kind in ("report", "log"):
        face.download(job_id, kind, tmp_path / kind)
    figures = json.loads((tmp_path / "report").read_text())
    assert figures["sfm"]["registered"] == report["quality"]["registered"]
    # Neither names a folder of the server.
    assert "/" not in figures["input"]
    for text in ((tmp_path / "report").read_text(), (tmp_path / "log").read_text()):
        assert str(tmp_path.parent) not in text and "/tmp" not in text


def test_the_camera_poses_of_a_finished_job_are_colmaps_files(finished, tmp_path):
    face, job_id = finished
    face.download(job_id, "cameras", tmp_path / "cameras.zip")
    with zipfile.ZipFile(tmp_path / "cameras.zip") as archive:
        assert archive.testzip() is None
        assert {f"sparse/{name}.bin" for name in ("cameras", "images", "points3D")} <= set(archive.namelist())
        (count,) = struct.unpack("<Q", archive.read("sparse/images.bin")[:8])
    assert count == face.report(job_id)["quality"]["registered"]


def test_a_download_replaces_a_file_whole(finished, tmp_path):
    face, job_id = finished
    path = tmp_path / "scene.spz"
    path.write_bytes(b"old")
    face.download(job_id, "spz", path)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert [p.name for p in tmp_path.iterdir()] == ["scene.spz"]
    assert struct.unpack("<I", path.read_bytes()[-4:])[0] > 16  # gzip's length of what is inside


def test_what_is_finished_stays_so(finished):
    face, job_id = finished
    refused("conflict", face.cancel, job_id)
    assert face.job(job_id)["status"] == "Finished"
    assert face.wait(job_id, 1)["status"] == "Finished"
    assert face.failure(job_id) is None


def test_a_video_without_motion_fails_and_says_why(busy: Face, flat):
    job_id = busy.submit(flat, **QUICK)
    job = busy.wait(job_id, 120)
    assert (job["status"], job["has_ply"], job["has_spz"]) == ("Failed", False, False)
    failure = busy.failure(job_id)
    assert failure is not None
    assert failure["code"] in ("too_few_frames", "insufficient_features", "insufficient_parallax")
    assert len(failure["message"]) > 20


def test_tags_that_are_not_found_cost_the_scale_and_not_the_scene(busy: Face, capture):
    # Rule 42 of docs/rest.md: the room has none.
    job_id = busy.submit(capture, apriltag_size_mm=50, **QUICK)
    job = busy.wait(job_id, 300)
    assert (job["status"], job["has_ply"], job["has_spz"]) == ("Finished", True, True), busy.failure(job_id)
    report = busy.report(job_id)
    [warning] = [warning for warning in report["warnings"] if warning["code"] == "apriltag_not_found"]
    assert "no metric scale" in warning["message"]
    scale = report["scale"]
    assert (scale["apriltag_size_mm"], scale["applied"], scale["relative_sigma"], scale["tags"]) == (50, False, None, [])


def test_a_running_job_can_be_deleted(busy: Face, capture):
    job_id = busy.submit(capture, training_num_steps=200_000, training_max_num_gaussians=1000)
    end = time.monotonic() + 120
    while not busy.job(job_id)["status"].startswith(("Processing", "Generating")):
        assert time.monotonic() < end, busy.job(job_id)
        time.sleep(0.1)
    busy.delete(job_id)
    refused("not_found", busy.job, job_id)
    # The worker is free again, soon.
    following = busy.submit(capture, **QUICK)
    assert busy.wait(following, 300)["status"] == "Finished"
