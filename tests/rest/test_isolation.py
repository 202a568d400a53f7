"""Two users over every endpoint: nobody sees, changes or learns of what belongs to somebody else.

Rules 16, 17, 44 and 72 of docs/rest.md.
"""

import statistics
import time
import uuid

import pytest

from .test_specification import is_error

CAMERA = {"position": {"x": 1, "y": 2, "z": 3}, "lookAt": {"x": 0, "y": 0, "z": 0}, "up": {"x": 0, "y": 1, "z": 0}}
ON_A_JOB = [
    ("GET", "", None), ("HEAD", "", None), ("PATCH", "", {}), ("PATCH", "", {"title": "stolen", "public": True, "camera_data": CAMERA}),
    ("PATCH", "", {"title": ""}), ("DELETE", "", None), ("GET", "download/ply/", None), ("GET", "download/spz/", None),
    ("GET", "download/exe/", None), ("GET", "preview/", None), ("HEAD", "preview/", None),
    ("GET", "report/", None), ("GET", "report/?wait=20", None), ("GET", "download/report/", None), ("GET", "download/log/", None),
    ("POST", "cancel/", None), ("POST", "restart/", {}), ("POST", "restart/", {"title": ""}), ("PUT", "", {}), ("OPTIONS", "", None),
]


def seen(response) -> tuple:
    """All of an answer but what differs between any two answers."""
    headers = {k: v for k, v in response.headers.items() if k.lower() not in ("date", "x-request-id")}
    return response.status_code, headers, response.content


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize(("method", "path", "body"), ON_A_JOB, ids=lambda v: str(v)[:20])
def test_rule_16_a_foreign_job_is_byte_identical_to_an_unknown_one(alice, bob, flat, method, path, body, public):
    job = alice.submit(flat, public=public, title="secret title")
    before, listed = alice.job(job), alice.jobs()
    foreign = bob.request(method, f"/api/v1/jobs/{job}/{path}", json=body)
    unknown = bob.request(method, f"/api/v1/jobs/{uuid.uuid4()}/{path}", json=body)
    assert seen(foreign) == seen(unknown)
    if method not in ("PUT", "OPTIONS"):
        assert foreign.status_code in (404, 400)
    assert alice.job(job) == before and alice.jobs() == listed


@pytest.mark.parametrize(("path", "status"), [("download/ply/", 404), ("download/spz/", 404), ("preview/", 404)])
def test_rule_16_files_of_a_finished_foreign_job_are_not_there(worker_server, finished, wendy, path, status):
    other = worker_server.user(f"stranger-{uuid.uuid4()}")
    foreign = other.get(f"/api/v1/jobs/{finished['job_id']}/{path}")
    unknown = other.get(f"/api/v1/jobs/{uuid.uuid4()}/{path}")
    assert seen(foreign) == seen(unknown) and foreign.status_code == status
    is_error(other.delete(finished["job_id"]), 404, "Job not found")
    assert wendy.get(f"/api/v1/jobs/{finished['job_id']}/{path}").status_code == 302


def test_rule_72_public_grants_nothing_to_other_users_and_to_nobody(server, alice, bob, flat):
    job = alice.submit(flat, public=True)
    is_error(bob.get(f"/api/v1/jobs/{job}/"), 404)
    is_error(type(bob)(server, None).get(f"/api/v1/jobs/{job}/"), 401)
    assert job not in str(bob.jobs("?public=true"))


def test_lists_are_disjoint_also_with_a_foreign_cursor(fresh, bob, flat):
    blob = fresh.upload(flat)
    mine = [fresh.submit(blob) for _ in range(4)]
    bob.submit(flat)
    response = fresh.get("/api/v1/jobs/?limit=2")
    following = response.links["next"]["url"]
    assert not set(mine) & {entry["job_id"] for entry in bob.get(following).json()}
    assert not set(mine) & {entry["job_id"] for entry in bob.jobs()}


def test_rule_44_a_foreign_blob_cannot_be_submitted_or_held_back(alice, bob, flat):
    blob = alice.upload(flat)
    is_error(bob.try_submit(blob), 400, "Blob not found. Please verify the upload.")
    assert alice.try_submit(blob).status_code == 201
    is_error(bob.try_submit(blob), 400, "Blob not found. Please verify the upload.")


def test_rule_47_a_foreign_idempotency_key_answers_nothing(alice, bob, flat):
    headers = {"Idempotency-Key": f'"{uuid.uuid4()}"'}
    blob = alice.upload(flat)
    mine = alice.try_submit(blob, headers=headers)
    is_error(bob.try_submit(blob, headers=headers), 400)
    assert alice.try_submit(blob, headers=headers).content == mine.content


def test_a_deletion_takes_nothing_of_others(server, alice, bob, flat):
    blobs = {client: client.upload(flat) for client in (alice, bob)}
    jobs = {client: client.submit(blob) for client, blob in blobs.items()}
    assert alice.delete(jobs[alice]).status_code == 204
    identity = blobs[bob].split("/")[1].split(".")[0]
    assert any(identity in name for name in server.files("videos"))
    assert bob.job(jobs[bob])["job_id"] == jobs[bob]


def test_rule_17_an_operator_with_a_key_sees_only_own_jobs(server, alice, flat):
    alice.submit(flat)
    admin = server.user(f"admin-{uuid.uuid4()}")
    assert admin.jobs() == [] and admin.jobs("?user=alice") == []


def test_a_revoked_key_leaves_other_keys_and_users_alone(server, fresh, bob):
    second = server.command("keys", "create", fresh.name)
    server.command("keys", "revoke", fresh.name, second["prefix"])
    assert fresh.get("/api/v1/jobs/").status_code == bob.get("/api/v1/jobs/").status_code == 200
    with pytest.raises(Exception):
        server.command("keys", "revoke", bob.name, fresh.key.split(".")[0])
    assert fresh.get("/api/v1/jobs/").status_code == 200


def test_rule_16_foreign_and_unknown_take_the_same_time(alice, bob, flat):
    """Medians of many requests, in turns; a difference of work would be far larger than the tolerance."""
    job = alice.submit(flat)
    unknown = str(uuid.uuid4())
    times = {job: [], unknown: []}
    for _ in range(300):
        for name, taken in times.items():
            began = time.perf_counter()
            bob.get(f"/api/v1/jobs/{name}/")
            taken.append(time.perf_counter() - began)
    foreign, nobody = (statistics.median(t) for t in times.values())
    assert abs(foreign - nobody) < 0.25 * max(foreign, nobody) + 50e-6, (foreign, nobody)
