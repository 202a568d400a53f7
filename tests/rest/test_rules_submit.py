"""Rules 34 to 49 of docs/rest.md: submission of jobs."""

import threading
import uuid

import pytest

from . import storage
from .test_rules_upload import BLOB_NOT_FOUND
from .test_specification import SUBMITTED_FIELDS, is_error


@pytest.fixture(scope="module")
def blob(alice, flat):
    return alice.upload(flat)


def test_rule_34_rule_35_rule_36_rule_49_201_with_location_ten_keys_and_queued(alice, blob):
    response = alice.try_submit(blob)
    body = response.json()
    assert response.status_code == 201
    assert response.headers["Location"] == f"/api/v1/jobs/{body['job_id']}/"
    assert set(body) == SUBMITTED_FIELDS and body["status"] == "queued" and body["success"] is True
    assert alice.get(response.headers["Location"]).json()["status"].startswith("Queued - position: ")


@pytest.mark.parametrize(("field", "written", "read"), [
    ("training_max_num_gaussians", "1000000.0", 1_000_000), ("training_max_num_gaussians", "1e6", 1_000_000),
    ("training_num_steps", "2.5e3", 2500), ("training_num_steps", "1", 1), ("training_num_steps", "200000", 200_000),
    ("training_max_num_gaussians", "1000", 1000), ("training_max_num_gaussians", "10000000", 10_000_000),
    ("training_max_num_gaussians", "null", 1_000_000), ("training_num_steps", "null", 25_000),
    ("public", "null", False), ("remove_background", "null", False), ("reconstruction_method", "null", "glomap"),
])
def test_rule_37_and_rule_40_values_that_are_good(alice, blob, field, written, read):
    body = f'{{"blob_name":"{blob}","{field}":{written}}}'
    response = alice.request("POST", "/api/v1/submit-job/", data=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 201, response.text
    value = response.json()[field]
    assert value == read and type(value) is type(read)


BAD_VALUES = [
    ("training_max_num_gaussians", bad) for bad in ['"1000000"', "1000000.5", "true", "[]", "{}", "999", "10000001", "0", "-1", "1e300"]
] + [
    ("training_num_steps", bad) for bad in ['"7000"', "0.5", "false", "0", "200001", "-7000", "18446744073709551616"]
] + [
    ("public", bad) for bad in ['"true"', "1", "0", "[]"]
] + [
    ("remove_background", bad) for bad in ['"false"', "1", "{}"]
] + [
    ("apriltag_size_mm", bad) for bad in ["0", "-1", "0.99999", "1000.00001", '"50"', "true", "[50]"]
] + [
    ("camera_type", bad) for bad in ['"car"', '"Drone"', '"ORBITAL"', '""', "1", "true"]
] + [
    ("reconstruction_method", bad) for bad in ['"magic"', '""', '"glomap "', "1", "[]"]
] + [
    ("title", bad) for bad in ["1", "true", '""', '"   "', '"a\\nb"', '"\\u0000"', '"tab\\t"', '"\\u007f"', '"' + "x" * 256 + '"', "[]"]
] + [
    ("blob_name", bad) for bad in ["1", "true", "[]", "{}"]
]


@pytest.mark.parametrize(("field", "written"), BAD_VALUES, ids=lambda v: str(v)[:24])
def test_rule_37_to_rule_43_and_rule_48_values_that_are_wrong_are_400_and_named(alice, blob, field, written):
    first = "" if field == "blob_name" else f'"blob_name":"{blob}",'
    body = f'{{{first}"{field}":{written}}}'
    response = alice.request("POST", "/api/v1/submit-job/", data=body, headers={"Content-Type": "application/json"})
    is_error(response, 400)
    assert field in response.json()["error"], response.text


def test_rule_37_all_problems_in_one_message(alice):
    wrong = {
        "title": "", "public": "yes", "reconstruction_method": "magic", "training_max_num_gaussians": 1, "training_num_steps": 0,
        "apriltag_size_mm": 0, "remove_background": 1, "camera_type": "car",
    }
    response = alice.request("POST", "/api/v1/submit-job/", json=wrong)
    is_error(response, 400)
    for name in ["blob_name", *wrong]:
        assert name in response.json()["error"], name


def test_rule_37_null_is_absent(alice, blob):
    fields = dict.fromkeys(["title", "public", "reconstruction_method", "training_max_num_gaussians", "training_num_steps",
                            "apriltag_size_mm", "remove_background", "camera_type"])
    assert alice.try_submit(blob, **fields).status_code == 201
    is_error(alice.try_submit(None), 400)


def test_rule_38_unknown_fields_are_ignored(alice, blob):
    response = alice.try_submit(blob, quality="best", job_id="x", status="Finished", has_ply=True, camera_data=7)
    assert response.status_code == 201 and set(response.json()) == SUBMITTED_FIELDS


@pytest.mark.parametrize(("written", "read"), [("glomap", "glomap"), ("GLOMAP", "glomap"), ("colmap", "colmap"), ("Colmap", "colmap")])
def test_rule_39_methods_in_any_case(alice, blob, written, read):
    response = alice.try_submit(blob, reconstruction_method=written)
    assert response.json()["reconstruction_method"] == read
    assert alice.job(response.json()["job_id"])["reconstruction_method"] == read


def test_rule_39_another_method_is_answered_with_those_that_there_are(alice, blob):
    message = alice.try_submit(blob, reconstruction_method="magic").json()["error"]
    assert "glomap" in message and "colmap" in message


def test_rule_40_the_limits_are_the_servers(make_server, flat):
    server = make_server({"limits": {"min_gaussians": 2000, "max_gaussians": 5000, "max_steps": 100}})
    anna = server.user("anna")
    blob = anna.upload(flat)
    is_error(anna.try_submit(blob, training_max_num_gaussians=5001, training_num_steps=100), 400)
    is_error(anna.try_submit(blob, training_max_num_gaussians=1999, training_num_steps=100), 400)
    is_error(anna.try_submit(blob, training_max_num_gaussians=5000, training_num_steps=101), 400)
    assert anna.try_submit(blob, training_max_num_gaussians=5000, training_num_steps=100).status_code == 201


@pytest.mark.parametrize(("given", "shown"), [({"camera_type": "orbital"}, "orbital"), ({"camera_type": "drone"}, "drone"), ({}, "drone")])
def test_rule_43_camera_type(alice, blob, given, shown):
    assert alice.job(alice.submit(blob, **given))["camera_data"]["cameraType"] == shown


@pytest.mark.parametrize("name", [
    "", "x", "videos/", "videos/x.mp4", "/etc/passwd", "videos/../../etc/passwd", "videos/{id}", "videos/{id}.exe", "{id}.mp4",
    "/videos/{id}.mp4", "videos//{id}.mp4", "videos/{id}.mp4/", "scenes/{id}.mp4", "videos/{id}.mp4\u0000", "x" * 20_000,
])
def test_rule_44_a_bad_name_is_a_blob_that_is_not_there(alice, name):
    is_error(alice.try_submit(name.replace("{id}", str(uuid.uuid4()))), 400, BLOB_NOT_FOUND)


def test_rule_44_unknown_foreign_and_not_yet_uploaded_are_not_told_apart(alice, bob, flat):
    foreign, missing = bob.upload(flat), alice.upload_url()["blob_name"]
    answers = {alice.try_submit(name).content for name in (f"videos/{uuid.uuid4()}.mp4", foreign, missing, bob.upload_url()["blob_name"])}
    assert len(answers) == 1
    is_error(alice.try_submit(foreign), 400, BLOB_NOT_FOUND)
    assert bob.try_submit(foreign).status_code == 201


@pytest.mark.parametrize("content", [
    b"", b"\x00", b"hello", b"\x89PNG\r\n\x1a\n" + bytes(1000), b"\xff\xd8\xff\xe0" + bytes(1000), b"#EXTM3U\n#EXTINF:1,\nx.ts\n",
    b"ffconcat version 1.0\nfile x.mp4\n", b"%PDF-1.7", b"PK\x03\x04" + bytes(100), b"<html></html>", bytes(100_000),
    b"\x00\x00\x00\x18ftypmp42", b"RIFF\x00\x00\x00\x00WAVEfmt ", b"\x1a\x45\xdf\xa3",
], ids=lambda c: repr(c[:16]))
def test_rule_45_what_is_no_video_is_an_invalid_file_format(alice, content):
    is_error(alice.try_submit(alice.upload(content, "mp4")), 400, "Invalid file format")


def test_rule_45_the_container_counts_and_not_the_extension(alice, flat):
    assert alice.try_submit(alice.upload(flat.read_bytes(), "mkv")).status_code == 201


def test_rule_46_a_blob_may_be_submitted_twice_and_goes_with_its_last_job(server, alice, flat):
    blob = alice.upload(flat)
    identity = blob.split("/")[1].split(".")[0]
    first, second = alice.submit(blob), alice.submit(blob, title="again")
    assert first != second
    assert alice.delete(first).status_code == 204
    assert any(identity in name for name in server.files("videos"))
    third = alice.submit(blob)
    for job in (second, third):
        assert any(identity in name for name in server.files("videos"))
        assert alice.delete(job).status_code == 204
    assert not any(identity in name for name in server.files("videos"))
    is_error(alice.try_submit(blob), 400, BLOB_NOT_FOUND)


def test_rule_47_same_key_and_body_is_the_same_job(fresh, flat):
    blob = fresh.upload(flat)
    headers = {"Idempotency-Key": f'"{uuid.uuid4()}"'}
    first = fresh.try_submit(blob, title="once", headers=headers)
    again = fresh.try_submit(blob, title="once", headers=headers)
    assert first.status_code == again.status_code == 201
    assert first.content == again.content and first.headers["Location"] == again.headers["Location"]
    assert len(fresh.jobs()) == 1


def test_rule_47_same_key_and_another_body_is_422(fresh, flat):
    blob = fresh.upload(flat)
    headers = {"Idempotency-Key": '"k"'}
    assert fresh.try_submit(blob, title="one", headers=headers).status_code == 201
    is_error(fresh.try_submit(blob, title="two", headers=headers), 422)
    assert len(fresh.jobs()) == 1


def test_rule_47_keys_are_per_user_and_a_failed_submission_uses_none(alice, bob, flat):
    headers = {"Idempotency-Key": f'"{uuid.uuid4()}"'}
    is_error(alice.try_submit("videos/x.mp4", headers=headers), 400)
    jobs = {client.try_submit(client.upload(flat), headers=headers).json()["job_id"] for client in (alice, bob)}
    assert len(jobs) == 2


def test_rule_47_submissions_at_the_same_time_make_one_job(fresh, flat):
    blob = fresh.upload(flat)
    headers = {"Idempotency-Key": '"together"'}
    answers = []

    def submit():
        client = type(fresh)(fresh.server, fresh.key)
        answers.append(client.try_submit(blob, headers=headers))

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {a.status_code for a in answers} <= {201, 409}
    assert len({a.json()["job_id"] for a in answers if a.status_code == 201}) == 1
    assert len(fresh.jobs()) == 1


def test_rule_47_a_key_is_kept_for_a_day(make_server, flat):
    server = make_server()
    anna = server.user("anna")
    blob = anna.upload(flat)
    headers = {"Idempotency-Key": '"k"'}
    first = anna.try_submit(blob, headers=headers).json()["job_id"]
    hour = 3600 * 1_000_000

    def age(hours: int) -> None:
        with server.rows() as database:
            assert database.execute("UPDATE idempotency SET created_at = created_at - ?", (hours * hour,)).rowcount == 1

    age(23)
    assert anna.try_submit(blob, headers=headers).json()["job_id"] == first
    age(2)
    assert anna.try_submit(blob, headers=headers).json()["job_id"] != first


def test_rule_47_a_replayed_answer_survives_a_restart(make_server, flat):
    server = make_server()
    anna = server.user("anna")
    blob = anna.upload(flat)
    headers = {"Idempotency-Key": '"k"'}
    first = anna.try_submit(blob, headers=headers)
    server.kill()
    server.start()
    assert anna.try_submit(blob, headers=headers).content == first.content


@pytest.mark.parametrize(("headers", "title"), [
    ({"Content-Disposition": 'attachment; filename="kitchen.mp4"'}, "kitchen.mp4"),
    ({"Content-Disposition": "attachment; filename=\"x.mp4\"; filename*=UTF-8''K%C3%BCche.mp4"}, "Küche.mp4"),
    pytest.param({"x-ms-meta-filename": "garden.mov"}, "garden.mov", marks=pytest.mark.skipif(
        storage.SCHEME in ("s3", "gs"), reason="a store that is not Azure's keeps nothing of headers for Azure")),
    ({"Content-Disposition": 'attachment; filename="../../etc/passwd"'}, "passwd"),
    ({"Content-Disposition": 'attachment; filename="C:\\\\videos\\\\a.mp4"'}, "a.mp4"),
])
def test_rule_48_the_title_is_the_name_of_the_upload(alice, flat, headers, title):
    assert alice.try_submit(alice.upload(flat, headers=headers)).json()["title"] == title


def test_rule_48_the_title_is_the_name_of_the_blob_if_no_other_is_known(alice, flat):
    blob = alice.upload(flat)
    assert alice.try_submit(blob).json()["title"] == blob.removeprefix("videos/")
    assert alice.try_submit(blob, title=None).json()["title"] == blob.removeprefix("videos/")


@pytest.mark.parametrize(("written", "read"), [
    ("  Garden  ", "Garden"), ("x" * 255, "x" * 255), ("é" * 255, "é" * 255), ("  " + "x" * 255 + "  ", "x" * 255), ("🌳" * 255, "🌳" * 255),
    ("<script>alert(1)</script>", "<script>alert(1)</script>"), ("'; DROP TABLE jobs; --", "'; DROP TABLE jobs; --"),
    ("../../x", "../../x"), ("%s%n{}", "%s%n{}"), ("\u202e", "\u202e"),
], ids=lambda v: repr(v[:16]))
def test_rule_48_titles_are_trimmed_and_otherwise_kept(alice, blob, written, read):
    response = alice.try_submit(blob, title=written)
    assert response.json()["title"] == read
    assert alice.job(response.json()["job_id"])["title"] == read
