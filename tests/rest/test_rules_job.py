"""Rules 50 to 77 of docs/rest.md, as far as they need no reconstruction; see test_reconstruction.py for the others."""

import re
import threading
import time
import uuid
from datetime import datetime, timezone
from urllib.parse import urljoin, urlsplit

import pytest

from . import storage
from .receiver import TO_THIS_MACHINE
from .server import CommandFailed
from .test_specification import JOB_FIELDS, UNKNOWN, is_error

DEFAULT_CAMERA = {
    "position": {"x": 0, "y": 0, "z": -3}, "lookAt": {"x": 0, "y": 0, "z": 0}, "up": {"x": 0, "y": 1, "z": 0}, "cameraType": "drone",
}
CAMERA = {"position": {"x": 1, "y": 2, "z": 3}, "lookAt": {"x": 0, "y": 0, "z": 0}, "up": {"x": 0, "y": -1, "z": 0}}


@pytest.fixture
def job(alice, flat):
    return alice.submit(flat)


def test_rule_50_newest_first_and_everything(fresh, flat):
    blob = fresh.upload(flat)
    assert fresh.jobs() == []
    jobs = [fresh.submit(blob, title=str(n)) for n in range(5)]
    assert [entry["job_id"] for entry in fresh.jobs()] == jobs[::-1]
    assert [entry["title"] for entry in fresh.jobs()] == list("43210")


def test_rule_50_pages_by_link(fresh, flat):
    blob = fresh.upload(flat)
    jobs = [fresh.submit(blob, public=n % 2 == 0) for n in range(7)][::-1]
    pages, url = [], "/api/v1/jobs/?limit=3"
    while url:
        response = fresh.get(url)
        assert response.status_code == 200
        pages.append([entry["job_id"] for entry in response.json()])
        url = response.links.get("next", {}).get("url")
        assert url is None or (fresh.server.is_ours(url) and "/api/v1/jobs/?" in url)
    assert [len(page) for page in pages] == [3, 3, 1] and sum(pages, []) == jobs
    # Filters go along.
    response = fresh.get("/api/v1/jobs/?public=true&limit=3")
    following = fresh.get(response.links["next"]["url"])
    both = response.json() + following.json()
    assert len(both) == 4 and all(fresh.job(entry["job_id"])["public"] for entry in both)
    # A job that comes or goes meanwhile moves no other over the border of a page.
    first = fresh.get("/api/v1/jobs/?limit=3")
    fresh.submit(blob)
    fresh.delete(first.json()[-1]["job_id"])
    second = fresh.get(first.links["next"]["url"]).json()
    assert [entry["job_id"] for entry in second] == jobs[3:6]


def test_rule_50_filters(fresh, flat):
    blob = fresh.upload(flat)
    shown, hidden = fresh.submit(blob, public=True), fresh.submit(blob)
    ids = lambda query: [entry["job_id"] for entry in fresh.jobs(query)]
    assert ids("?public=true") == [shown] and ids("?public=false") == [hidden]
    assert ids("?status=Queued") == [hidden, shown] and ids("?status=Finished") == []
    assert ids("?status=Generating%203D%20scene") == ids("?status=Processing+video") == ids("?status=Failed") == []
    assert ids("?nonsense=1") == [hidden, shown]


@pytest.mark.parametrize("query", [
    "limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=1.5", "public=yes", "status=Nonsense", "cursor=x", "cursor=",
])
def test_rule_50_wrong_filters_are_400(alice, query):
    is_error(alice.get(f"/api/v1/jobs/?{query}"), 400)


def test_rule_50_a_long_list_comes_whole(make_server, flat):
    server = make_server()
    anna = server.user("anna")
    job = anna.submit(flat)
    count = 3500
    with server.rows() as database:
        columns = [one[0] for one in database.execute("SELECT * FROM jobs").description if one[0] not in ("seq", "job_id", "uploaded_at")]
        names = ", ".join(columns)
        rows = [(str(uuid.uuid4()), n, job) for n in range(1, count)]
        database.executemany(
            f"INSERT INTO jobs (job_id, uploaded_at, {names}) SELECT ?, uploaded_at + ?, {names} FROM jobs WHERE job_id = ?", rows
        )
    for encoding in ("identity", "gzip"):
        found = [entry["job_id"] for entry in anna.get("/api/v1/jobs/", headers={"Accept-Encoding": encoding}).json()]
        assert found == [row[0] for row in rows][::-1] + [job]
    assert len(anna.jobs("?limit=1000")) == 1000


def test_rule_51_and_rule_52_positions_are_of_the_whole_service_in_order(make_server, flat):
    server = make_server()
    anna, ben = server.user("anna"), server.user("ben")
    owners = [anna, ben, anna, ben]
    jobs = [owner.submit(flat) for owner in owners]
    statuses = [owner.job(job)["status"] for owner, job in zip(owners, jobs)]
    assert statuses == [f"Queued - position: {n}" for n in (1, 2, 3, 4)]
    assert ben.delete(jobs[1]).status_code == 204
    statuses = [owners[n].job(jobs[n])["status"] for n in (0, 2, 3)]
    assert statuses == [f"Queued - position: {n}" for n in (1, 2, 3)]
    server.kill()
    server.start()
    assert [owners[n].job(jobs[n])["status"] for n in (0, 2, 3)] == statuses


def test_rule_53_a_video_without_a_scene_fails_for_good(wendy, flat):
    seen = []
    job = wendy.wait(wendy.submit(flat), seen=seen)
    assert job["status"] == "Failed"
    assert job["percent_complete"] is None and job["has_ply"] is False and job["has_spz"] is False
    for path in ("download/ply", "download/spz", "preview"):
        is_error(wendy.get(f"/api/v1/jobs/{job['job_id']}/{path}/"), 404)
    time.sleep(1.5)
    assert wendy.job(job["job_id"]) == job
    assert wendy.patch(job["job_id"], {"title": "still mine"}).json()["status"] == "Failed"
    assert wendy.delete(job["job_id"]).status_code == 204


def test_rule_58_camera_before_it_is_known(alice, flat):
    assert alice.job(alice.submit(flat))["camera_data"] == DEFAULT_CAMERA
    assert alice.job(alice.submit(flat, camera_type="orbital"))["camera_data"] == DEFAULT_CAMERA | {"cameraType": "orbital"}


def test_rule_60_patch_answers_with_the_whole_job(alice, job):
    response = alice.patch(job, {"title": "Hall"})
    assert response.status_code == 200 and set(response.json()) == JOB_FIELDS
    assert response.json() == alice.job(job)


def test_rule_61_unknown_and_read_only_fields_change_nothing(alice, job):
    before = alice.job(job)
    for body in [{}, {"status": "Finished", "job_id": UNKNOWN, "has_ply": True, "percent_complete": 100, "user_id": 1, "x": [1]},
                 {"title": None, "public": None}]:
        response = alice.patch(job, body)
        assert response.status_code == 200 and response.json() == before == alice.job(job)


@pytest.mark.parametrize("body", [
    {"title": ""}, {"title": "  "}, {"title": 1}, {"title": "a\u0007"}, {"title": "x" * 256}, {"public": "true"}, {"public": 1},
    {"camera_data": 1}, {"camera_data": []}, {"camera_data": "orbital"}, {"title": "good", "public": "bad"},
])
def test_rule_61_wrong_values_are_400_and_change_nothing(alice, job, body):
    before = alice.job(job)
    is_error(alice.patch(job, body), 400)
    assert alice.job(job) == before


def test_rule_62_camera_is_replaced_whole_and_keeps_its_type(alice, job):
    assert alice.patch(job, {"camera_data": CAMERA}).json()["camera_data"] == CAMERA | {"cameraType": "drone"}
    assert alice.patch(job, {"camera_data": CAMERA | {"cameraType": "orbital"}}).json()["camera_data"]["cameraType"] == "orbital"
    moved = CAMERA | {"position": {"x": -1e3, "y": 0.125, "z": 1e-6}}
    assert alice.patch(job, {"camera_data": moved}).json()["camera_data"] == moved | {"cameraType": "orbital"}
    assert alice.patch(job, {"camera_data": None}).json()["camera_data"] == DEFAULT_CAMERA


def changed(**parts):
    return {key: value for key, value in (CAMERA | parts).items() if value is not ...}


@pytest.mark.parametrize("camera", [
    changed(position=...), changed(lookAt=...), changed(up=...), changed(extra=1), changed(cameraType="car"), changed(cameraType=1),
    changed(position={"x": 1, "y": 2}), changed(position={"x": 1, "y": 2, "z": 3, "w": 4}), changed(position=[1, 2, 3]),
    changed(position={"x": "1", "y": 2, "z": 3}), changed(position={"x": True, "y": 2, "z": 3}), changed(position={"x": None, "y": 2, "z": 3}),
    changed(up={"x": 0, "y": 0, "z": 0}), changed(position=CAMERA["lookAt"]), {},
], ids=range(15))
def test_rule_62_an_incomplete_or_impossible_camera_is_400(alice, job, camera):
    before = alice.job(job)
    response = alice.patch(job, {"camera_data": camera})
    is_error(response, 400)
    assert "camera_data" in response.json()["error"] and alice.job(job) == before


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-1e999"])
def test_rule_62_numbers_are_finite(alice, job, number):
    body = f'{{"camera_data":{{"position":{{"x":{number},"y":0,"z":0}},"lookAt":{{"x":1,"y":0,"z":0}},"up":{{"x":0,"y":1,"z":0}}}}}}'
    is_error(alice.request("PATCH", f"/api/v1/jobs/{job}/", data=body, headers={"Content-Type": "application/json"}), 400)


def test_rule_62_large_numbers_do_not_break_the_job(alice, job):
    far = CAMERA | {"position": {"x": 1.7e308, "y": -1.7e308, "z": 1.7e308}}
    assert alice.patch(job, {"camera_data": far}).status_code in (200, 400)
    assert alice.get(f"/api/v1/jobs/{job}/").status_code == 200


def test_rule_63_concurrent_updates_of_different_fields_all_stay(alice, job):
    def change(key, values):
        client = type(alice)(alice.server, alice.key)
        for value in values:
            assert client.patch(job, {key: value}).status_code == 200

    changes = [("title", [f"t{n}" for n in range(20)]), ("public", [n % 2 == 0 for n in range(20)] + [True]),
               ("camera_data", [CAMERA | {"position": {"x": n, "y": 0, "z": 1}} for n in range(20)])]
    threads = [threading.Thread(target=change, args=c) for c in changes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = alice.job(job)
    assert found["title"] == "t19" and found["public"] is True and found["camera_data"]["position"] == {"x": 19, "y": 0, "z": 1}


def test_rule_64_delete_is_204_then_404(alice, job):
    response = alice.delete(job)
    assert response.status_code == 204 and response.content == b"" and "Content-Length" not in response.headers
    for response in (alice.delete(job), alice.get(f"/api/v1/jobs/{job}/"), alice.patch(job, {})):
        is_error(response, 404, "Job not found")
    is_error(alice.get(f"/api/v1/jobs/{job}/download/ply/"), 404, "Job not found")


def test_rule_64_a_running_job_is_stopped_and_its_files_go(worker_server, wendy, capture):
    blob = wendy.upload(capture)
    job = wendy.submit(blob, training_num_steps=200_000)
    end = time.monotonic() + 120
    while wendy.job(job)["status"].startswith("Queued"):
        assert time.monotonic() < end
        time.sleep(0.1)
    time.sleep(1)
    assert any(job in name for name in worker_server.files("work"))
    assert wendy.delete(job).status_code == 204
    is_error(wendy.get(f"/api/v1/jobs/{job}/"), 404)
    identity = blob.split("/")[1].split(".")[0]
    left = lambda: [n for n in worker_server.files("work", "scenes", "videos") if job in n or identity in n]
    end = time.monotonic() + 10
    while left() and time.monotonic() < end:
        time.sleep(0.1)
    assert left() == []


def test_rule_65_and_rule_67_nothing_to_fetch_is_404(alice, job):
    is_error(alice.get(f"/api/v1/jobs/{job}/download/ply/"), 404, "PLY file not available for this job")
    is_error(alice.get(f"/api/v1/jobs/{job}/download/spz/"), 404, "SPZ file not available for this job")
    is_error(alice.get(f"/api/v1/jobs/{job}/preview/"), 404)
    is_error(alice.get(f"/api/v1/jobs/{job}/download/first_look/"), 404)


@pytest.mark.parametrize("kind", ["exe", "PLY", "ply.gz", "splat", "preview", "%70ly%00"])
def test_rule_66_another_file_type_is_400(alice, job, kind):
    others = "report, log, cameras, masks, turntable, sog, glb, first_look, poses"
    expected = f'Invalid file type. Must be "ply" or "spz" (or one of: {others})'
    is_error(alice.get(f"/api/v1/jobs/{job}/download/{kind}/"), 400, expected)


def test_rule_73_the_reason_of_a_failure_is_shown_as_an_option(make_server, flat):
    server = make_server({"workers": 1, "extra_fields": True})
    anna = server.user("anna")
    job = anna.wait(anna.submit(flat))
    assert set(job) == JOB_FIELDS | {"error_code", "error_message"}
    assert re.fullmatch(r"[a-z_]+", job["error_code"]) and job["error_message"]
    assert str(server.data) not in job["error_message"] and "videos/" not in job["error_message"]
    # Without the option the operator still sees it.
    shown = server.command("jobs", "show", job["job_id"])
    assert shown["failure"]["code"] == job["error_code"]


def test_rule_74_timestamps(alice, flat):
    before = datetime.now(timezone.utc)
    job = alice.try_submit(alice.upload(flat)).json()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", job["uploaded_at"])
    submitted = datetime.fromisoformat(job["uploaded_at"])
    assert before.timestamp() - 1 <= submitted.timestamp() <= datetime.now(timezone.utc).timestamp() + 1
    assert alice.job(job["job_id"])["uploaded_at"] == job["uploaded_at"]


def test_rule_75_ids_are_random_and_lower_case(alice, flat):
    blob = alice.upload(flat)
    for text in (alice.submit(blob), blob.split("/")[1].split(".")[0]):
        assert uuid.UUID(text).version == 4 and text == str(uuid.UUID(text))


def test_rule_77_what_is_written_is_read(alice, flat):
    blob = alice.upload(flat)
    # Keeps the video while the others come and go.
    alice.submit(blob)
    for n in range(20):
        job = alice.submit(blob)
        assert alice.jobs()[0]["job_id"] == job
        alice.patch(job, {"title": f"n{n}"})
        assert alice.job(job)["title"] == f"n{n}" == alice.jobs()[0]["title"]
        alice.delete(job)
        assert alice.get(f"/api/v1/jobs/{job}/").status_code == 404


def test_rule_77_answers_are_not_stored(alice, job):
    for path in ("/api/v1/jobs/", f"/api/v1/jobs/{job}/"):
        assert alice.get(path).headers["Cache-Control"] == "no-store"


def test_the_operator_cancels_a_job(server, alice, job):
    assert server.command("jobs", "show", job)["job_id"] == job
    assert server.command("jobs", "cancel", job)["status"] == "Failed"
    assert alice.job(job)["status"] == "Failed"
    with pytest.raises(CommandFailed, match="ended already"):
        server.command("jobs", "cancel", job)
    assert server.command("jobs", "delete", job)["deleted"] is True
    is_error(alice.get(f"/api/v1/jobs/{job}/"), 404)


@storage.answered_by_us
def test_addresses_begin_with_the_public_address(make_server, flat):
    server = make_server({"public_url": "https://scenes.example.org/base"})
    anna = server.user("anna")
    address = anna.upload_url()["url"]
    assert address.startswith("https://scenes.example.org/base/")
    blob = urlsplit(address).path.removeprefix("/base")
    assert anna.put(f"{server.url}{blob}?{urlsplit(address).query}", flat.read_bytes()).status_code == 201


@storage.answered_by_us
def test_all_addresses_are_below_the_path_of_the_public_address(make_server, flat):
    public = "https://scenes.example.org/base"
    server = make_server({"public_url": public + "/"} | TO_THIS_MACHINE)
    anna = server.user("anna")

    def here(address: str, seen_at: str) -> str:
        """The path at this server of an address in an answer, as it is understood where the request came from."""
        whole = urljoin(public + seen_at, address)
        assert whole.startswith(public + "/"), address
        return whole.removeprefix(public)

    address = anna.upload_url()
    assert anna.put(server.url + here(address["url"], "/api/v1/generate-upload-url/"), flat.read_bytes()).status_code == 201
    submitted = anna.try_submit(address["blob_name"])
    job = submitted.json()["job_id"]
    assert anna.get(here(submitted.headers["Location"], "/api/v1/submit-job/")).json()["job_id"] == job
    assert anna.request("POST", f"/api/v1/jobs/{job}/cancel/").status_code == 200
    again = anna.request("POST", path := f"/api/v1/jobs/{job}/restart/", json={})
    assert anna.get(here(again.headers["Location"], path)).json()["job_id"] == again.json()["job_id"]
    hook = anna.request("POST", "/api/v1/webhooks/", json={"url": "http://127.0.0.1:9/"})
    assert anna.get(here(hook.headers["Location"], "/api/v1/webhooks/")).json()["webhook_id"] == hook.json()["webhook_id"]

    for path in ("/docs", "/docs/"):
        page = anna.get(path).text
        links = re.findall(r'href="([^"]*)"', page)
        assert len(links) == 2 and {here(link, path) for link in links} == {"/openapi.json"}
    assert anna.get("/openapi.json").json()["servers"] == [{"url": public}]


def test_a_host_of_the_client_is_not_repeated_unchecked(alice):
    response = alice.request("POST", "/api/v1/generate-upload-url/", json={"file_extension": "mp4"}, headers={"Host": 'x"><script>'})
    assert response.status_code == 400 or "<script>" not in response.text
    headers = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"}
    response = alice.request("POST", "/api/v1/generate-upload-url/", json={"file_extension": "mp4"}, headers=headers)
    assert "evil.example" not in response.text
