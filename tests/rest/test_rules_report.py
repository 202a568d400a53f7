"""What is told of a job beyond its thirteen fields, and what can be done with it: rules 80, 81, 85 and 86 of docs/rest.md."""

import io
import json
import struct
import threading
import time
import uuid
import zipfile

import pytest

from .test_specification import JOB_FIELDS, is_error

REPORT_FIELDS = {
    "job_id", "status", "version", "progress", "failure", "warnings", "requested", "ran", "quality", "verdict", "scale",
    "costs",
}  # fmt: skip


def report(client, job: str, query: str = "") -> dict:
    response = client.get(f"/api/v1/jobs/{job}/report/{query}")
    assert response.status_code == 200, response.text
    assert response.headers["Cache-Control"] == "no-store"
    told = response.json()
    assert set(told) == REPORT_FIELDS
    return told


def test_rule_80_a_waiting_job(alice, flat):
    job = alice.submit(flat, apriltag_size_mm=40)
    told = report(alice, job)
    assert told["job_id"] == job and told["status"] == alice.job(job)["status"]
    assert told["requested"] == {
        "blob_name": told["requested"]["blob_name"], "reconstruction_method": "glomap", "training_max_num_gaussians": 1000,
        "training_num_steps": 20, "apriltag_size_mm": 40, "remove_background": False,
    }  # fmt: skip
    progress = told["progress"]
    assert (progress["stage"], progress["attempt"], progress["started_at"], progress["finished_at"]) == (None, 0, None, None)
    assert progress["uploaded_at"] == alice.job(job)["uploaded_at"]
    # The thirteen fields stay what they were.
    assert set(alice.job(job)) == JOB_FIELDS
    # The video's name can be used again.
    assert alice.try_submit(told["requested"]["blob_name"]).status_code == 201


def test_rule_80_a_failed_job_says_why_without_an_option(worker_server, wendy, flat):
    job = wendy.wait(wendy.submit(flat))
    assert set(job) == JOB_FIELDS
    told = report(wendy, job["job_id"])
    assert told["failure"]["code"] in ("too_few_frames", "insufficient_features", "insufficient_parallax")
    assert len(told["failure"]["message"]) > 20 and str(worker_server.data) not in str(told)
    assert told["progress"]["finished_at"] and told["ran"] is None and told["costs"] is None
    log = wendy.get(f"/api/v1/jobs/{job['job_id']}/download/log/", allow_redirects=True)
    assert log.status_code == 200 and told["failure"]["code"] in log.text and str(worker_server.data) not in log.text


def test_rule_80_and_rule_81_a_finished_job(worker_server, finished, wendy):
    job = finished["job_id"]
    told = report(wendy, job)
    assert told["failure"] is None and told["ran"]["splats"] <= 1000 and told["ran"]["steps"] == 30
    assert 3 <= told["quality"]["registered"] <= told["ran"]["frames"]
    assert told["verdict"]["grade"] in ("good", "doubtful")
    assert 0 < told["verdict"]["rotation_error_degrees"] <= told["verdict"]["rotation_bound_degrees"]
    assert 0 < told["verdict"]["position_error"] <= told["verdict"]["position_bound"]
    assert (told["verdict"]["grade"] == "good") == (told["verdict"]["reasons"] == [])
    assert set(told["costs"]) == {"frames", "sfm", "train", "export"}
    figures = wendy.get(f"/api/v1/jobs/{job}/download/report/", allow_redirects=True).json()
    assert figures["sfm"]["registered"] == told["quality"]["registered"]
    assert str(worker_server.data) not in str(figures) and "/" not in figures["input"]
    cameras = wendy.get(f"/api/v1/jobs/{job}/download/cameras/", allow_redirects=True)
    assert "cameras.zip" in cameras.headers["Content-Disposition"]
    with zipfile.ZipFile(io.BytesIO(cameras.content)) as archive:
        assert archive.testzip() is None and "sparse/images.bin" in archive.namelist()
        (count,) = struct.unpack("<Q", archive.read("sparse/images.bin")[:8])
    assert count == told["quality"]["registered"]
    sog = wendy.get(f"/api/v1/jobs/{job}/download/sog/", allow_redirects=True)
    assert ".sog" in sog.headers["Content-Disposition"]
    with zipfile.ZipFile(io.BytesIO(sog.content)) as archive:
        assert json.loads(archive.read("meta.json"))["count"] == told["ran"]["splats"]
    poses = wendy.get(f"/api/v1/jobs/{job}/download/poses/", allow_redirects=True)
    assert ".jpg" in poses.headers["Content-Disposition"] and poses.content[:2] == b"\xff\xd8"
    # What was not asked for is not there.
    is_error(wendy.get(f"/api/v1/jobs/{job}/download/glb/"), 404, "GLB file not available for this job")
    is_error(wendy.get(f"/api/v1/jobs/{job}/download/masks/"), 404, "Masks not available for this job")
    is_error(wendy.get(f"/api/v1/jobs/{job}/download/turntable/"), 404, "Turntable not available for this job")
    is_error(wendy.request("POST", f"/api/v1/jobs/{job}/cancel/"), 409)


def test_rule_85_cancel_keeps_the_job_and_restart_makes_another(alice, flat):
    job = alice.submit(flat, title="Garden")
    is_error(alice.request("POST", f"/api/v1/jobs/{job}/restart/"), 409)
    cancelled = alice.request("POST", f"/api/v1/jobs/{job}/cancel/")
    assert cancelled.status_code == 200 and set(cancelled.json()) == JOB_FIELDS and cancelled.json()["status"] == "Failed"
    assert report(alice, job)["failure"]["code"] == "cancelled"
    is_error(alice.request("POST", f"/api/v1/jobs/{job}/cancel/"), 409)
    before = alice.job(job)

    again = alice.request("POST", f"/api/v1/jobs/{job}/restart/", json={"training_num_steps": 9, "public": True})
    assert again.status_code == 201 and len(again.json()) == 10
    new = again.json()["job_id"]
    assert new != job and again.headers["Location"] == f"/api/v1/jobs/{new}/"
    made = alice.job(new)
    assert (made["title"], made["training_num_steps"], made["training_max_num_gaussians"], made["public"]) == ("Garden", 9, 1000, True)
    assert report(alice, new)["requested"]["blob_name"] == report(alice, job)["requested"]["blob_name"]
    assert alice.job(job) == before
    # The video stays as long as one of them is there.
    assert alice.delete(job).status_code == 204
    assert alice.request("POST", f"/api/v1/jobs/{new}/cancel/").status_code == 200
    assert alice.request("POST", f"/api/v1/jobs/{new}/restart/").status_code == 201


@pytest.mark.parametrize(
    ("body", "status"),
    [({"training_num_steps": 0}, 400), ({"title": 3}, 400), ({"reconstruction_method": "magic"}, 400), ({"blob_name": "x"}, 201), ({}, 201)],
)
def test_rule_85_options_of_a_restart_are_checked(alice, flat, body, status):
    job = alice.submit(flat)
    alice.request("POST", f"/api/v1/jobs/{job}/cancel/")
    assert alice.request("POST", f"/api/v1/jobs/{job}/restart/", json=body).status_code == status


def test_rule_85_a_restart_can_be_sent_again(alice, flat):
    jobs = [alice.submit(flat), alice.submit(flat)]
    for job in jobs:
        alice.request("POST", f"/api/v1/jobs/{job}/cancel/")
    headers = {"Idempotency-Key": f'"{uuid.uuid4()}"'}
    first, second = (alice.request("POST", f"/api/v1/jobs/{jobs[0]}/restart/", headers=headers) for _ in range(2))
    assert first.status_code == second.status_code == 201 and first.content == second.content
    assert second.headers["Idempotency-Replayed"] == "true"
    # For another job it is another request.
    is_error(alice.request("POST", f"/api/v1/jobs/{jobs[1]}/restart/", headers=headers), 422)
    # It is answered as the first was when the job is gone by then, and nothing else is.
    assert alice.delete(jobs[0]).status_code == 204
    third = alice.request("POST", f"/api/v1/jobs/{jobs[0]}/restart/", headers=headers)
    assert third.status_code == 201 and third.content == first.content and third.headers["Idempotency-Replayed"] == "true"
    is_error(alice.request("POST", f"/api/v1/jobs/{jobs[0]}/restart/"), 404, "Job not found")


def test_rule_86_a_report_waits_for_a_change(alice, flat):
    job = alice.submit(flat)
    told = report(alice, job)
    began = time.monotonic()
    assert report(alice, job, "?wait=1")["version"] == told["version"]
    assert 0.9 < time.monotonic() - began < 5
    timer = threading.Timer(1, lambda: alice.patch(job, {"title": "changed"}))
    timer.start()
    began = time.monotonic()
    changed = report(alice, job, f"?wait=20&version={told['version']}")
    assert changed["version"] > told["version"] and time.monotonic() - began < 10
    timer.join()
    # What has changed since is told at once, and so is a job that will not change any more.
    for query in (f"?wait=20&version={told['version']}", "?wait=20"):
        if query == "?wait=20":
            alice.request("POST", f"/api/v1/jobs/{job}/cancel/")
        began = time.monotonic()
        report(alice, job, query)
        assert time.monotonic() - began < 5
    for bad in ("?wait=51", "?wait=-1", "?wait=x", "?wait=1&version=x"):
        is_error(alice.get(f"/api/v1/jobs/{job}/report/{bad}"), 400)


class Events:
    """What comes of a request for events."""

    def __init__(self, client, job: str, headers: dict | None = None):
        accept = {"Accept": "text/event-stream"}
        self.answer = client.get(f"/api/v1/jobs/{job}/report/", headers=accept | (headers or {}), stream=True, timeout=30)
        assert self.answer.status_code == 200, self.answer.text
        assert self.answer.headers["Content-Type"] == "text/event-stream" and self.answer.headers["Cache-Control"] == "no-store"
        self.lines = self.answer.iter_lines(chunk_size=1, decode_unicode=True)

    def next(self) -> dict | None:
        """The next event with its fields, comments aside; nothing if the stream has ended."""
        fields = {}
        for line in self.lines:
            if not line and "event" in fields:
                return fields
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
        return None


def test_rule_86_events_tell_each_change_until_the_end(alice, flat):
    job = alice.submit(flat)
    events = Events(alice, job)
    first = events.next()
    assert first["event"] == "report" and json.loads(first["data"]) == report(alice, job)
    assert int(first["id"]) == json.loads(first["data"])["version"] and int(first["retry"]) > 0
    alice.patch(job, {"title": "another"})
    second = events.next()
    assert int(second["id"]) > int(first["id"])
    # Who comes back gets what is new, and once where the job stands in the queue now: that may be another place.
    back = Events(alice, job, {"Last-Event-ID": second["id"]})
    again = back.next()
    assert again["id"] == second["id"] and json.loads(again["data"]) == report(alice, job)
    assert Events(alice, job, {"Last-Event-ID": first["id"]}).next()["id"] == second["id"]
    alice.request("POST", f"/api/v1/jobs/{job}/cancel/")
    for stream in (events, back):
        last = stream.next()
        assert json.loads(last["data"])["status"] == "Failed" and json.loads(last["data"])["failure"]["code"] == "cancelled"
        assert stream.next() is None
    headers = {"Accept": "text/event-stream", "Last-Event-ID": last["id"]}
    assert alice.get(f"/api/v1/jobs/{job}/report/", headers=headers).status_code == 204
    # One that has ended is told once.
    ended = Events(alice, job)
    assert ended.next()["id"] == last["id"] and ended.next() is None


def test_rule_86_who_waits_is_told_that_the_queue_moved(make_server, flat):
    server = make_server()
    anna = server.user("anna")
    first, second, third = (anna.submit(flat) for _ in range(3))
    told = report(anna, third)
    assert told["status"] == "Queued - position: 3"
    events = Events(anna, third)
    assert json.loads(events.next()["data"]) == told
    for query in (f"?wait=20&version={told['version']}", "?wait=20"):
        timer = threading.Timer(1, lambda: type(anna)(server, anna.key).delete(first if "version" in query else second))
        timer.start()
        began = time.monotonic()
        moved = report(anna, third, query)
        # Not at once: in a long queue everybody would be told something all the time.
        assert 9 < time.monotonic() - began < 18
        timer.join()
        place = 2 if "version" in query else 1
        assert (moved["version"], moved["status"]) == (told["version"], f"Queued - position: {place}")
        assert json.loads(events.next()["data"]) == moved
    # Who comes back with a version that has not changed hears once where the job is now.
    back = Events(anna, third, {"Last-Event-ID": str(told["version"])})
    assert json.loads(back.next()["data"])["status"] == "Queued - position: 1"
    anna.patch(third, {"title": "another"})
    for stream in (events, back):
        assert int(stream.next()["id"]) > told["version"]


def test_rule_86_events_of_a_job_that_is_deleted(alice, flat):
    job = alice.submit(flat)
    events = Events(alice, job)
    assert events.next()["event"] == "report"
    alice.delete(job)
    assert events.next()["event"] == "deleted" and events.next() is None


def test_rule_86_events_are_for_the_owner(alice, bob, flat):
    job = alice.submit(flat)
    headers = {"Accept": "text/event-stream"}
    for unknown in (job, str(uuid.uuid4())):
        is_error(bob.get(f"/api/v1/jobs/{unknown}/report/", headers=headers), 404, "Job not found")


def test_rule_86_who_waits_with_a_revoked_key_is_told_nothing_more(fresh, flat):
    server = fresh.server
    other = server.client_with_new_key(fresh.name)
    job = fresh.submit(flat)
    events = Events(fresh, job)
    assert events.next()["event"] == "report"
    address = f"/api/v1/jobs/{job}/report/?wait=20&version={report(other, job)['version']}"
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(type(fresh)(server, fresh.key).get(address)))
    waiting.start()
    # Until it waits.
    time.sleep(1)
    server.command("keys", "revoke", fresh.name, fresh.key.split(".")[0])
    assert other.patch(job, {"title": "not for everybody"}).status_code == 200
    assert events.next() is None
    waiting.join()
    is_error(answers[0], 401, "Invalid API key")
    assert answers[0].headers["WWW-Authenticate"] == 'Api-Key realm="api"'
    # Nor that the job is gone.
    second = server.client_with_new_key(fresh.name)
    events = Events(second, job)
    assert events.next()["event"] == "report"
    server.command("keys", "revoke", fresh.name, second.key.split(".")[0])
    assert other.delete(job).status_code == 204
    assert events.next() is None


def test_rule_86_who_waits_and_has_lost_the_tier_is_told_nothing_more(fresh, flat):
    server = fresh.server
    job = fresh.submit(flat)
    events = Events(fresh, job)
    told = events.next()
    answers = []
    address = f"/api/v1/jobs/{job}/report/?wait=20&version={told['id']}"
    waiting = threading.Thread(target=lambda: answers.append(type(fresh)(server, fresh.key).get(address)))
    waiting.start()
    time.sleep(1)
    server.command("users", "set-tier", fresh.name, "free")
    server.command("jobs", "cancel", job)
    assert events.next() is None
    waiting.join()
    is_error(answers[0], 403)
    server.command("users", "set-tier", fresh.name, "enterprise")
    assert Events(fresh, job, {"Last-Event-ID": told["id"]}).next()["event"] == "report"


def test_rule_86_so_many_requests_of_a_user_wait_at_once(make_server, flat):
    server = make_server()
    anna, eve = server.user("anna"), server.user("eve")
    job, other = anna.submit(flat), eve.submit(flat)
    streams = [Events(anna, job) for _ in range(32)]
    address = f"/api/v1/jobs/{job}/report/"
    for refused in (anna.get(address + "?wait=1"), anna.get(address, headers={"Accept": "text/event-stream"})):
        is_error(refused, 429)
        assert refused.headers["Retry-After"]
    # Who does not wait is answered, and so are others.
    report(anna, job)
    report(eve, other, "?wait=1")
    for stream in streams:
        stream.answer.close()
    end = time.monotonic() + 30
    while anna.get(address + "?wait=1").status_code == 429:
        assert time.monotonic() < end, "they still count"
        time.sleep(0.5)


def test_rule_86_a_server_that_stops_ends_its_streams(make_server, flat):
    server = make_server()
    client = server.user("anna")
    events = Events(client, client.submit(flat))
    assert events.next()["event"] == "report"
    begun = time.monotonic()
    assert server.stop() == 0
    assert events.next() is None and time.monotonic() - begun < 10
