"""The specification of docs/rest.md, section by section: each test is named after the one that it holds the server to."""

import re
import uuid
from urllib.parse import urlsplit

import pytest

from . import storage

UNKNOWN = "00000000-0000-4000-8000-000000000000"
JOB_FIELDS = {
    "job_id", "title", "status", "percent_complete", "uploaded_at", "public", "reconstruction_method",
    "training_max_num_gaussians", "training_num_steps", "remove_background", "has_ply", "has_spz", "camera_data",
}
SUBMITTED_FIELDS = {
    "success", "job_id", "title", "status", "uploaded_at", "public", "reconstruction_method",
    "training_max_num_gaussians", "training_num_steps", "remove_background",
}
ENDPOINTS = [
    ("GET", "/api/v1/jobs/"),
    ("GET", f"/api/v1/jobs/{UNKNOWN}/"),
    ("PATCH", f"/api/v1/jobs/{UNKNOWN}/"),
    ("DELETE", f"/api/v1/jobs/{UNKNOWN}/"),
    ("GET", f"/api/v1/jobs/{UNKNOWN}/download/ply/"),
    ("GET", f"/api/v1/jobs/{UNKNOWN}/download/spz/"),
    ("GET", f"/api/v1/jobs/{UNKNOWN}/preview/"),
    ("POST", "/api/v1/generate-upload-url/"),
    ("POST", "/api/v1/submit-job/"),
]


def is_error(response, status: int, message: str | None = None) -> None:
    """An error as docs/rest.md, §7 has it."""
    assert response.status_code == status, (response.status_code, response.text)
    assert response.headers["Content-Type"].split(";")[0] == "application/json"
    body = response.json()
    assert list(body) == ["error"] and isinstance(body["error"], str) and body["error"]
    if message is not None:
        assert body["error"] == message


@pytest.fixture(scope="module")
def job(alice, flat):
    """A job with all defaults, waiting."""
    response = alice.try_submit(alice.upload(flat))
    assert response.status_code == 201, response.text
    return response.json()["job_id"]


def test_s2_1_job_has_exactly_these_fields_with_these_types(alice, job):
    found = alice.job(job)
    assert set(found) == JOB_FIELDS
    assert str(uuid.UUID(found["job_id"])) == found["job_id"] == job
    assert isinstance(found["title"], str) and isinstance(found["status"], str)
    assert found["percent_complete"] is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", found["uploaded_at"])
    assert found["public"] is False and found["remove_background"] is False
    assert found["has_ply"] is False and found["has_spz"] is False
    assert found["reconstruction_method"] == "glomap"
    assert found["training_max_num_gaussians"] == 1_000_000 and type(found["training_max_num_gaussians"]) is int
    assert found["training_num_steps"] == 25_000 and type(found["training_num_steps"]) is int
    camera = found["camera_data"]
    assert set(camera) == {"position", "lookAt", "up", "cameraType"}
    for vector in ("position", "lookAt", "up"):
        assert set(camera[vector]) == {"x", "y", "z"}
        assert all(type(v) in (int, float) for v in camera[vector].values())
    assert camera["cameraType"] in ("orbital", "drone")


def test_s2_2_keys_have_name_prefix_created_and_last_used_and_are_shown_once(server, fresh):
    made = server.command("keys", "create", fresh.name, "--name", "laptop")
    assert made["key"].startswith(made["prefix"]) and len(made["key"]) > len(made["prefix"])
    listed = server.command("keys", "list", fresh.name)["keys"]
    [key] = [k for k in listed if k["prefix"] == made["prefix"]]
    assert key["name"] == "laptop" and key["created_at"] and key["last_used"] is None
    secret = made["key"].removeprefix(made["prefix"])
    assert secret not in str(listed) and secret not in server.log_text()
    assert all(secret.encode() not in p.read_bytes() for p in server.data.iterdir() if p.is_file())


def test_s2_3_and_s4_7_generate_upload_url(alice):
    response = alice.request("POST", "/api/v1/generate-upload-url/", json={"file_extension": "mov"})
    assert response.status_code == 200
    body = response.json()
    assert set(body) - ({"headers"} if storage.IS_ASKED_FOR else set()) == {"url", "blob_name"}
    kind, name = body["blob_name"].split("/")
    identity, extension = name.split(".")
    assert kind == "videos" and extension == "mov" and uuid.UUID(identity)
    assert urlsplit(body["url"]).scheme == "http"
    is_error(alice.request("POST", "/api/v1/generate-upload-url/", json={}), 400)


def test_s3_the_submission_is_queued_in_lowercase_and_then_has_a_position(alice, flat):
    response = alice.try_submit(alice.upload(flat))
    assert response.json()["status"] == "queued"
    assert re.fullmatch(r"Queued - position: [1-9]\d*", alice.job(response.json()["job_id"])["status"])


def test_s4_1_list_jobs_has_id_and_title_of_own_jobs_only(alice, bob, job, flat):
    other = bob.submit(flat)
    mine = alice.jobs()
    assert all(set(entry) == {"job_id", "title"} for entry in mine)
    assert job in {entry["job_id"] for entry in mine} and other not in {entry["job_id"] for entry in mine}


def test_s4_2_get_job_of_an_unknown_id_is_404(alice):
    is_error(alice.get(f"/api/v1/jobs/{UNKNOWN}/"), 404)


def test_s4_3_update_job_changes_title_public_and_camera_data(alice, job):
    camera = {
        "position": {"x": 1.5, "y": 0, "z": -2}, "lookAt": {"x": 0, "y": 0.25, "z": 0},
        "up": {"x": 0, "y": 1, "z": 0}, "cameraType": "orbital",
    }
    response = alice.patch(job, {"title": "Kitchen", "public": True, "camera_data": camera})
    assert response.status_code == 200
    found = alice.job(job)
    assert found["title"] == "Kitchen" and found["public"] is True and found["camera_data"] == camera
    alice.patch(job, {"title": "Garden"})
    found = alice.job(job)
    assert found["title"] == "Garden" and found["public"] is True and found["camera_data"] == camera
    is_error(alice.patch(UNKNOWN, {"title": "x"}), 404)


def test_s4_4_delete_job_removes_it_with_its_files(server, alice, flat):
    blob = alice.upload(flat)
    identity = blob.split("/")[1].split(".")[0]
    job = alice.submit(blob)
    assert any(identity in name for name in server.files("videos"))
    assert alice.delete(job).status_code == 204
    is_error(alice.get(f"/api/v1/jobs/{job}/"), 404)
    assert job not in {entry["job_id"] for entry in alice.jobs()}
    assert not any(identity in name for name in server.files("videos"))


def test_s4_5_and_s4_6_nothing_to_download_before_the_job_is_finished(alice, job):
    for path in ("download/ply", "download/spz", "preview"):
        is_error(alice.get(f"/api/v1/jobs/{job}/{path}/"), 404)


def test_s4_8_submit_job_has_exactly_these_fields(alice, flat):
    response = alice.try_submit(
        alice.upload(flat), title="Shed", public=True, reconstruction_method="glomap",
        training_max_num_gaussians=30000, training_num_steps=7000, apriltag_size_mm=80.5, remove_background=True,
        camera_type="orbital",
    )
    assert response.status_code == 201
    body = response.json()
    assert set(body) == SUBMITTED_FIELDS
    assert body["success"] is True and body["title"] == "Shed" and body["public"] is True
    assert body["reconstruction_method"] == "glomap" and body["remove_background"] is True
    assert body["training_max_num_gaussians"] == 30000 and body["training_num_steps"] == 7000
    found = alice.job(body["job_id"])
    for field in SUBMITTED_FIELDS - {"success", "status"}:
        assert found[field] == body[field], field
    assert found["camera_data"]["cameraType"] == "orbital"


def test_s4_8_submit_job_defaults(alice, flat):
    body = alice.try_submit(alice.upload(flat)).json()
    assert body["public"] is False and body["remove_background"] is False
    assert body["reconstruction_method"] == "glomap"
    assert body["training_max_num_gaussians"] == 1_000_000 and body["training_num_steps"] == 25_000
    assert alice.job(body["job_id"])["camera_data"]["cameraType"] == "drone"
    is_error(alice.request("POST", "/api/v1/submit-job/", json={}), 400)


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_s5_every_endpoint_needs_a_valid_key(server, fresh, method, path):
    key = fresh.key
    wrong = [None, "", key, f"Bearer {key}", "Api-Key ", "Api-Key wrong", f"Api-Key {key}x", f"Api-Key {key[:-1]}"]
    stranger = type(fresh)(server, None)
    for value in wrong:
        headers = {} if value is None else {"Authorization": value}
        is_error(stranger.request(method, path, headers=headers, json={}), 401)


def test_s5_3_and_8_a_genuine_key_of_another_tier_is_forbidden_everywhere(server):
    poor = server.user("poor")
    server.command("users", "set-tier", "poor", "free")
    for method, path in ENDPOINTS:
        is_error(poor.request(method, path, json={}), 403)


def test_s5_5_a_revoked_key_stops_working_at_once_and_for_ever(server, fresh):
    made = server.command("keys", "create", fresh.name)
    client = type(fresh)(server, made["key"])
    assert client.get("/api/v1/jobs/").status_code == 200
    server.command("keys", "revoke", fresh.name, made["prefix"])
    is_error(client.get("/api/v1/jobs/"), 401)
    assert fresh.get("/api/v1/jobs/").status_code == 200
    [key] = [k for k in server.command("keys", "list", fresh.name)["keys"] if k["prefix"] == made["prefix"]]
    assert key["revoked_at"]
    try:
        server.command("keys", "revoke", fresh.name, made["prefix"])
    except Exception:
        pass
    is_error(client.get("/api/v1/jobs/"), 401)


def test_s7_errors_are_json_with_one_message(alice):
    is_error(alice.request("POST", "/api/v1/generate-upload-url/", json={"file_extension": "exe"}), 400)
    is_error(type(alice)(alice.server, None).get("/api/v1/jobs/"), 401)
    is_error(alice.get("/api/v1/nothing/"), 404)


@pytest.mark.parametrize(("size", "status"), [(1, 201), (1000, 201), (0.999, 400), (1000.001, 400), (0, 400), (-5, 400)])
def test_s8_apriltag_size_limits(alice, flat, size, status):
    assert alice.try_submit(alice.upload(flat), apriltag_size_mm=size).status_code == status


def test_s9_the_version_is_in_the_path(alice):
    is_error(alice.get("/api/v2/jobs/"), 404)
    is_error(alice.get("/jobs/"), 404)
