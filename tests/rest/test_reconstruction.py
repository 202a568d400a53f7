"""A real reconstruction, through every endpoint, as clients do it."""

import gzip
import json
import os
import re
import struct
import subprocess
import time
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import requests

from . import storage
from .server import BINARY, ENDINGS, SMALL_RECONSTRUCTION, TAKEN
from .test_rules_upload import signed
from .test_specification import JOB_FIELDS, is_error


def follow(client, path: str, **options) -> requests.Response:
    """As Python's requests does it: the key is sent to the target of the redirect again."""
    response = client.get(path, allow_redirects=True, **options)
    assert response.history and response.history[0].status_code == 302
    return response


def check_ply(data: bytes) -> int:
    """Checks that the file is whole; the number of its Gaussians."""
    head, body = data.split(b"end_header\n", 1)
    assert head.startswith(b"ply\nformat binary_little_endian 1.0\n")
    count = int(re.search(rb"element vertex (\d+)", head)[1])
    properties = re.findall(rb"property float (\w+)", head)
    assert len(body) == count * 4 * len(properties)
    return count


def check_spz(data: bytes) -> int:
    """Checks that the file is whole; the number of its Gaussians."""
    plain = gzip.decompress(data)
    magic, version, count = struct.unpack("<III", plain[:12])
    assert magic == 0x5053474E and version == 3
    return count


def test_s3_and_rule_53_the_statuses_of_a_run(finished):
    order = ["Queued", "Processing video", "Generating 3D scene", "Finished"]
    seen = [order.index(job["status"].split(" - ")[0]) for job in finished["seen"]]
    assert seen == sorted(seen) and seen[-1] == 3
    assert {1, 2} & set(seen)


def test_s2_1_and_rule_55_percent_complete(finished):
    values = []
    for job in finished["seen"]:
        percent = job["percent_complete"]
        if job["status"] in ("Processing video",) or job["status"].startswith("Queued"):
            assert percent is None
        else:
            assert type(percent) is int and 0 <= percent <= 100
            values.append(percent)
            assert (percent == 100) == (job["status"] == "Finished")
    assert values == sorted(values) and values[-1] == 100


def test_rule_56_and_rule_57_files_are_there_when_it_is_finished_and_not_before(finished):
    for job in finished["seen"]:
        assert job["has_ply"] == job["has_spz"] == (job["status"] == "Finished")
        assert set(job) == JOB_FIELDS


def test_rule_59_the_camera_is_the_reconstructions_and_keeps_its_type(finished):
    camera = finished["job"]["camera_data"]
    assert camera["cameraType"] == "orbital"
    assert camera["position"] != {"x": 0, "y": 0, "z": -3} and camera["position"] != camera["lookAt"]
    assert any(camera["up"].values())


def test_s4_9_with_requests(wendy, finished):
    job = f"/api/v1/jobs/{finished['job_id']}"
    ply, spz, preview = (follow(wendy, f"{job}/{path}/") for path in ("download/ply", "download/spz", "preview"))
    assert ply.status_code == spz.status_code == preview.status_code == 200
    # Requests has sent the key to the target if that is on the same host and port.
    assert ("Authorization" in ply.request.headers) == (not storage.IS_ASKED_FOR)
    count = check_ply(ply.content)
    assert count == check_spz(spz.content) and 0 < count <= 1000
    assert preview.content.startswith(b"\xff\xd8\xff") and preview.content.endswith(b"\xff\xd9")


def curl(*arguments) -> str:
    done = subprocess.run(["curl", "-sS", "--fail-with-body", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_s4_9_with_curl(wendy, capture, tmp_path):
    """The whole flow, as in a shell script: address, upload, submission, poll, downloads with -L, update, deletion."""
    api, key = f"{wendy.server.url}/api/v1", f"Authorization: Api-Key {wendy.key}"
    as_json = ["-H", key, "-H", "Content-Type: application/json"]
    address = json.loads(curl(*as_json, "-d", '{"file_extension": "mp4"}', f"{api}/generate-upload-url/"))
    needed = [part for name, value in address.get("headers", {}).items() for part in ("-H", f"{name}: {value}")]
    curl("-T", capture, *needed, address["url"])
    body = {"blob_name": address["blob_name"], "title": "With curl", "training_max_num_gaussians": 1000, "training_num_steps": 20}
    submitted = json.loads(curl(*as_json, "-d", json.dumps(body), f"{api}/submit-job/"))
    job = f"{api}/jobs/{submitted['job_id']}"
    end = time.monotonic() + 240
    while (status := json.loads(curl("-H", key, f"{job}/"))["status"]) not in ("Finished", "Failed"):
        assert time.monotonic() < end, status
        time.sleep(0.3)
    assert status == "Finished"
    ply, spz, preview = tmp_path / "scene.ply", tmp_path / "scene.spz", tmp_path / "preview.jpg"
    curl("-L", "-H", key, "-o", ply, f"{job}/download/ply/")
    curl("-L", "-H", key, "-o", spz, f"{job}/download/spz/")
    curl("-L", "-H", key, "-o", preview, f"{job}/preview/")
    assert check_ply(ply.read_bytes()) == check_spz(spz.read_bytes()) > 0
    assert preview.read_bytes().startswith(b"\xff\xd8\xff")
    patched = json.loads(curl("-X", "PATCH", *as_json, "-d", '{"title": "Patched", "public": true}', f"{job}/"))
    assert patched["title"] == "Patched" and patched["public"] is True and patched["status"] == "Finished"
    assert curl("-X", "DELETE", "-H", key, "-w", "%{http_code}", f"{job}/") == "204"
    gone = subprocess.run(["curl", "-sS", "-H", key, "-o", os.devnull, "-w", "%{http_code}", f"{job}/"], capture_output=True, text=True)
    assert gone.stdout == "404"
    identity = address["blob_name"].split("/")[1].split(".")[0]
    own = lambda: [n for n in wendy.server.files("videos", "scenes", "work") if submitted["job_id"] in n or identity in n]
    # Another process may be just about to remove them.
    end = time.monotonic() + 5
    while left := own():
        assert time.monotonic() < end, left
        time.sleep(0.05)


@storage.answered_by_us
def test_s4_5_and_rule_68_the_redirect(wendy, finished):
    job = f"/api/v1/jobs/{finished['job_id']}"
    for path in ("download/ply", "download/spz", "preview"):
        response = wendy.get(f"{job}/{path}/")
        assert response.status_code == 302 and response.content == b""
        assert response.headers["Cache-Control"] == "no-store"
        location = response.headers["Location"]
        assert location.startswith(wendy.server.url + "/")
        [expiry] = parse_qs(urlsplit(location).query)["se"]
        assert 890 <= int(expiry) - time.time() <= 901
        assert wendy.key not in location and wendy.user["user_id"] not in location


def test_rule_4_head_on_preview_and_downloads_is_302(wendy, finished):
    for path in ("download/ply", "download/spz", "preview"):
        response = wendy.request("HEAD", f"/api/v1/jobs/{finished['job_id']}/{path}/")
        assert response.status_code == 302 and "Location" in response.headers


def location(client, job_id: str, path: str = "download/ply") -> str:
    return client.get(f"/api/v1/jobs/{job_id}/{path}/").headers["Location"]


@pytest.mark.parametrize("authorization", [None, "Api-Key wrong", "Bearer x", "Basic dXNlcjpwYXNz", "nonsense", ""])
@storage.answered_by_us
def test_rule_69_authorization_is_ignored_on_the_redirect_target(wendy, finished, authorization):
    url = location(wendy, finished["job_id"])
    headers = {} if authorization is None else {"Authorization": authorization}
    assert requests.get(url, headers=headers, timeout=30).status_code == 200


@storage.answered_by_us
def test_s4_5_the_address_cannot_be_altered_and_expires(wendy, finished):
    url = location(wendy, finished["job_id"])
    blob, query = urlsplit(url).path, urlsplit(url).query
    server = wendy.server
    for changed in [
        blob, f"{blob}?{query[:-2]}", f"{blob}?{query.replace('se=', 'se=9')}", f"{blob.replace('.ply', '.spz')}?{query}",
        f"{blob.replace('.ply', '.log')}?{query}", f"{blob}?{re.sub('rscd=[^&]*', 'rscd=x.html', query)}", f"{blob}?{query}&sig=x",
    ]:
        assert requests.get(server.url + changed, timeout=30).status_code == 403, changed
    name = blob.removeprefix("/blob/")
    assert requests.get(signed(server, "GET", name, time.time() + 60), timeout=30).status_code == 200
    response = requests.get(signed(server, "GET", name, time.time() - 1), timeout=30)
    is_error(response, 403)
    is_error(requests.put(url, data=b"x", timeout=30), 403)
    is_error(requests.get(signed(server, "PUT", name, time.time() + 60), timeout=30), 403)


@storage.answered_by_us
def test_rule_70_the_headers_of_a_download(wendy, finished):
    # All that such a job has, but the preview.
    for kind in ("ply", "spz", "report", "log", "cameras", "sog", "poses"):
        url = location(wendy, finished["job_id"], f"download/{kind}")
        response = requests.get(url, timeout=30)
        assert response.status_code == 200, kind
        name = quote(finished["job"]["title"] + "." + ENDINGS[kind], safe="")
        assert response.headers["Content-Disposition"] == f"attachment; filename*=UTF-8''{name}"
        assert response.headers["Content-Type"] == "application/octet-stream", kind
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Accept-Ranges"] == "bytes"
        assert int(response.headers["Content-Length"]) == len(response.content)
        assert response.headers["ETag"].startswith('"') and "Content-Encoding" not in response.headers
        # No cache shows what is deleted; who keeps the file can still ask for a part of it, or whether it is the same.
        part = requests.get(url, headers={"Range": "bytes=0-1", "If-Range": response.headers["ETag"]}, timeout=30)
        same = requests.get(url, headers={"If-None-Match": response.headers["ETag"]}, timeout=30)
        assert (part.status_code, part.content, same.status_code) == (206, response.content[:2], 304)
        assert [answer.headers["Cache-Control"] for answer in (response, part, same)] == ["no-store"] * 3
        # A HEAD is of the whole file, whatever part it names.
        for asked in ({}, {"Range": "bytes=0-1"}, {"Range": f"bytes={len(response.content)}-"}):
            head = requests.head(url, headers=asked, timeout=30)
            assert head.status_code == 200 and head.content == b"" and "Content-Range" not in head.headers
            for header in ("Content-Length", "ETag", "Content-Type", "Content-Disposition", "Accept-Ranges", "Cache-Control"):
                assert head.headers[header] == response.headers[header]


@pytest.mark.parametrize(("asked", "first", "last"), [
    ("bytes=0-0", 0, 0), ("bytes=10-99", 10, 99), ("bytes=100-", 100, -1), ("bytes=-50", -50, -1), ("bytes=0-99999999999", 0, -1),
])
def test_rule_70_ranges(wendy, finished, asked, first, last):
    if storage.SCHEME == "az" and asked == "bytes=-50":
        pytest.skip("Azure knows no range from the end (rule 83 of docs/rest.md)")
    url = location(wendy, finished["job_id"])
    whole = requests.get(url, timeout=30).content
    response = requests.get(url, headers={"Range": asked}, timeout=30)
    first, last = first % len(whole), last % len(whole)
    assert response.status_code == 206 and response.content == whole[first : last + 1]
    assert response.headers["Content-Range"] == f"bytes {first}-{last}/{len(whole)}"


@storage.answered_by_us
def test_rule_70_ranges_that_cannot_be(wendy, finished):
    url = location(wendy, finished["job_id"])
    whole = requests.get(url, timeout=30)
    size = len(whole.content)
    for asked in (f"bytes={size}-", f"bytes={size + 5}-{size + 9}", "bytes=-0"):
        response = requests.get(url, headers={"Range": asked}, timeout=30)
        assert response.status_code == 416 and response.headers["Content-Range"] == f"bytes */{size}", asked
    for ignored in ("bytes=5-2", "lines=1-2", "bytes=a-b", "bytes", "bytes=99999999999999999999999999-", "bytes=0-0,2-3"):
        response = requests.get(url, headers={"Range": ignored}, timeout=30)
        assert response.status_code in (200, 416), ignored
        assert response.status_code == 416 or response.content == whole.content


def test_rule_70_conditions(wendy, finished):
    url = location(wendy, finished["job_id"])
    # A store signs the method, too.
    etag = requests.get(url, timeout=30).headers["ETag"]
    again = location(wendy, finished["job_id"])
    assert requests.get(again, timeout=30).headers["ETag"] == etag
    assert requests.get(url, headers={"If-None-Match": etag}, timeout=30).status_code == 304
    part = {"Range": "bytes=0-9"}
    assert requests.get(url, headers=part | {"If-Range": etag}, timeout=30).status_code == 206
    # What a store makes of a condition that does not hold is its own affair.
    for stale in ('"other"', f"W/{etag}", "Thu, 01 Jan 1970 00:00:00 GMT") if not storage.IS_ASKED_FOR else ():
        assert requests.get(url, headers=part | {"If-Range": stale}, timeout=30).status_code == 200
    for wanted in (etag, "*", f'"other", {etag}') if not storage.IS_ASKED_FOR else ():
        assert requests.get(url, headers=part | {"If-Match": wanted}, timeout=30).status_code == 206
    for other in ('"other"', f"W/{etag}") if not storage.IS_ASKED_FOR else ():
        for method in ("GET", "HEAD"):
            refused = requests.request(method, url, headers=part | {"If-Match": other}, timeout=30)
            assert refused.status_code == 412 and "Content-Range" not in refused.headers
        is_error(requests.get(url, headers={"If-Match": other, "If-None-Match": etag}, timeout=30), 412)
    modified = requests.get(url, timeout=30).headers.get("Last-Modified")
    assert modified is None or parsedate_to_datetime(modified)


def test_rule_70_a_download_in_parts_is_the_file(wendy, finished):
    url = location(wendy, finished["job_id"])
    whole = requests.get(url, timeout=30).content
    step = len(whole) // 7 + 1
    parts = [requests.get(url, headers={"Range": f"bytes={at}-{at + step - 1}"}, timeout=30).content for at in range(0, len(whole), step)]
    assert b"".join(parts) == whole


def test_rule_71_the_preview_is_a_jpeg_of_at_most_1280(wendy, finished):
    response = follow(wendy, f"/api/v1/jobs/{finished['job_id']}/preview/")
    assert response.headers["Content-Type"] == "image/jpeg" and "Content-Disposition" not in response.headers
    # The frame header (SOF0 to SOF2): marker, length, precision, height, width.
    height, width = struct.unpack(">HH", re.search(rb"\xff[\xc0-\xc2]\x00\x11\x08(....)", response.content, re.DOTALL)[1])
    assert 0 < max(width, height) <= 1280 and min(width, height) > 0


def test_rule_48_the_title_came_from_the_upload(finished):
    assert finished["submitted"]["title"] == 'Küche "1".mp4'


def test_rule_59_a_camera_of_the_user_stays_and_null_brings_back_the_reconstructions(wendy, finished):
    found = finished["job"]["camera_data"]
    mine = {"position": {"x": 9, "y": 9, "z": 9}, "lookAt": {"x": 0, "y": 0, "z": 0}, "up": {"x": 0, "y": 1, "z": 0}}
    assert wendy.patch(finished["job_id"], {"camera_data": mine}).json()["camera_data"] == mine | {"cameraType": "orbital"}
    assert wendy.patch(finished["job_id"], {"camera_data": None}).json()["camera_data"] == found


def test_rule_59_a_camera_that_was_set_during_the_run_is_not_overwritten(wendy, capture):
    job = wendy.submit(capture)
    mine = {"position": {"x": 5, "y": 6, "z": 7}, "lookAt": {"x": 0, "y": 0, "z": 0}, "up": {"x": 0, "y": 1, "z": 0}, "cameraType": "orbital"}
    assert wendy.patch(job, {"camera_data": mine, "title": "During"}).status_code == 200
    ended = wendy.wait(job)
    assert ended["status"] == "Finished" and ended["camera_data"] == mine and ended["title"] == "During"
    url = location(wendy, job)
    assert wendy.delete(job).status_code == 204
    assert requests.get(url, timeout=30).status_code in (403, 404)


def test_rule_18_and_rule_73_the_operator_sees_the_job_and_its_log(worker_server, finished):
    shown = worker_server.command("jobs", "show", finished["job_id"])
    assert shown["status"] == "Finished" and shown["failure"] is None
    assert worker_server.command("jobs", "log", finished["job_id"])["log"]


def test_a_finished_job_keeps_no_workspace(worker_server, finished):
    assert not any(finished["job_id"] in name for name in worker_server.files("work"))


def test_a_stop_of_the_server_and_its_start_keep_a_running_job(make_server, capture):
    # With a film and in another format, which only services make whose operator wants it.
    server = make_server({"workers": 1, "reconstruction": SMALL_RECONSTRUCTION | {"turntable": True, "formats": ["glb"]}})
    anna = server.user("anna")
    job = anna.submit(capture, training_num_steps=60)
    end = time.monotonic() + 120
    while anna.job(job)["status"].startswith("Queued"):
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(1)
    assert server.stop(within=40) == 0
    server.start()
    assert anna.wait(job)["status"] == "Finished"
    film = anna.get(f"/api/v1/jobs/{job}/download/turntable/", allow_redirects=True)
    assert film.content[4:8] == b"ftyp" and ".mp4" in film.headers["Content-Disposition"]
    scene = anna.get(f"/api/v1/jobs/{job}/download/glb/", allow_redirects=True)
    assert scene.content[:4] == b"glTF" and ".glb" in scene.headers["Content-Disposition"]
    assert anna.get(f"/api/v1/jobs/{job}/download/sog/").status_code == 404


def test_a_worker_in_a_process_of_its_own(make_server, capture):
    server = make_server()
    anna = server.user("anna")
    job = anna.submit(capture)
    command = [BINARY, "worker", "--data", server.data, "--config", server.folder / "serve.toml"]
    worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert anna.wait(job)["status"] == "Finished"
    finally:
        worker.terminate()
        assert worker.wait(30) in (0, 130)


def test_two_servers_over_one_folder_share_users_jobs_and_work(make_server, flat):
    first = make_server({"workers": 1})
    second = make_server({"workers": 1}, start=False)
    second.share(first)
    second.start()
    anna = first.user("anna")
    same = type(anna)(second, anna.key)
    blob = anna.upload(flat)
    jobs = [client.submit(blob) for client in (anna, same) * 3]
    for job in jobs:
        assert same.wait(job)["status"] == "Failed"
        assert first.command("jobs", "show", job)["attempt"] == 1
    assert anna.jobs() == same.jobs() and len(anna.jobs()) == 6
    url = anna.upload_url()["url"].replace(first.url, second.url)
    assert anna.put(url, flat.read_bytes()).status_code == TAKEN
    first.command("keys", "revoke", "anna", anna.key.split(".")[0])
    assert anna.get("/api/v1/jobs/").status_code == same.get("/api/v1/jobs/").status_code == 401
