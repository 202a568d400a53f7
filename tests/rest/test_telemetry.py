"""What servers and workers tell of their work: a line in the log for each change of a job, counts at the worker itself, spans at a
collector of OpenTelemetry that this file plays."""

import http.server
import json
import re
import socket
import subprocess
import threading
import time

import pytest
import requests

from . import media, postgres
from .server import BINARY, free_port
from .test_machine import wait_for
from .web import invited


class Collector:
    """Takes spans over OTLP/HTTP as JSON, as collectors do on port 4318."""

    def __init__(self, answer: int = 200):
        self.spans, self.bodies = [], []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/json")
                for resource in body["resourceSpans"]:
                    names = {a["key"]: a["value"]["stringValue"] for a in resource["resource"]["attributes"]}
                    assert names["service.name"] == "reconstruct"
                    for scope in resource["scopeSpans"]:
                        collector.spans += scope["spans"]
                self.send_response(answer)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def named(self, name: str) -> list[dict]:
        return [span for span in self.spans if span["name"] == name]


def attributes(span: dict) -> dict:
    return {a["key"]: a["value"]["stringValue"] for a in span["attributes"]}


def job_lines(server, job: str) -> list[dict]:
    lines = (json.loads(line) for line in server.log_text().splitlines() if line.startswith("{"))
    return [line for line in lines if line.get("target") == "job" and line.get("job") == job]


def lines_of(server, target: str, **fields) -> list[dict]:
    """The lines of a target that have these fields."""
    lines = (json.loads(line) for line in server.log_text().splitlines() if line.startswith("{"))
    return [line for line in lines if line.get("target") == target and fields.items() <= line.items()]


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.server.shutdown()


def test_a_request_and_a_job_are_traces(make_server, collector):
    server = make_server({"workers": 1, "otlp_endpoint": collector.url})
    client = server.user("anna")
    video = media.capture() if media.GENERATOR else media.flat_video()
    blob = client.upload(video)
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    options = {"training_max_num_gaussians": 1000, "training_num_steps": 30}
    submitted = client.request(
        "POST", "/api/v1/submit-job/", json={"blob_name": blob} | options, headers={"traceparent": f"00-{trace}-{parent}-01"}
    ).json()
    job = submitted["job_id"]
    wait_for(lambda: client.job(job)["status"] in ("Finished", "Failed"), "the end of the job", within=600)
    wait_for(lambda: collector.named("attempt") and collector.named("POST /api/v1/submit-job/"), "spans", within=20)

    [request] = collector.named("POST /api/v1/submit-job/")
    assert (request["traceId"], request["parentSpanId"], request["kind"]) == (trace, parent, 2)
    facts = attributes(request)
    assert facts["http.response.status_code"] == "201" and facts["job"] == job and facts["user"]
    assert 0 < int(request["endTimeUnixNano"]) - int(request["startTimeUnixNano"]) < 60e9
    # The job is a trace by itself, and the request leads to it.
    [attempt] = collector.named("attempt")
    assert attempt["traceId"] == job.replace("-", "")
    assert request["links"] == [{"traceId": attempt["traceId"], "spanId": attempt["spanId"]}]
    assert attributes(attempt)["attempt"] == "1" and attributes(attempt)["worker"]
    stages = [span for span in collector.spans if span.get("parentSpanId") == attempt["spanId"]]
    assert {span["traceId"] for span in stages} == {attempt["traceId"]}
    names = [span["name"] for span in sorted(stages, key=lambda span: int(span["startTimeUnixNano"]))]
    assert names == (["frames", "sfm", "train", "export"] if media.GENERATOR else names[:1]) and names[0] == "frames"
    assert all(re.fullmatch("[0-9a-f]{16}", span["spanId"]) for span in collector.spans)
    # Who does not want its requests recorded is not.
    before = len(collector.named("GET /api/v1/jobs/"))
    client.get("/api/v1/jobs/", headers={"traceparent": f"00-{trace}-{parent}-00"})
    client.get("/api/v1/jobs/")
    server.stop()
    assert len(collector.named("GET /api/v1/jobs/")) == before + 1
    assert not [span for span in collector.spans if "healthz" in span["name"]]


def test_methods_that_clients_make_up_have_one_name(make_server, collector):
    server = make_server({"otlp_endpoint": collector.url})
    client = server.user("anna")
    for method in ("PROPFIND", "M" * 5000):
        assert client.request(method, "/api/v1/jobs/").status_code == 405
    wait_for(lambda: len(collector.named("_OTHER /api/v1/jobs/")) == 2, "spans", within=20)
    assert {attributes(span)["http.request.method"] for span in collector.named("_OTHER /api/v1/jobs/")} == {"_OTHER"}
    assert [line["method"] for line in lines_of(server, "access", status=405)] == ["_OTHER", "_OTHER"]
    assert "MMMM" not in server.log_text() + client.get("/metrics").text + json.dumps(collector.spans)


def test_a_collector_that_is_away_keeps_nobody_waiting(make_server):
    server = make_server({"otlp_endpoint": f"http://127.0.0.1:{free_port()}"})
    client = server.user("anna")
    began = time.monotonic()
    for _ in range(50):
        assert client.get("/api/v1/jobs/").status_code == 200
    assert time.monotonic() - began < 5
    wait_for(lambda: "did not take spans" in server.log_text(), "a word about it", within=20)
    assert "reconstruct_spans_dropped_total" in client.get("/metrics").text


def test_who_hangs_up_while_a_change_is_made_is_noted(make_server):
    postgres.skip_if_asked_for()
    server = make_server()
    client = server.user("anna")
    job = client.submit(media.flat_video())
    head = f"DELETE /api/v1/jobs/{job}/ HTTP/1.1\r\nHost: x\r\nAuthorization: Api-Key {client.key}\r\n\r\n"

    def noted():
        return lines_of(server, "access", method="DELETE", status=499)

    # Nobody says when the change has begun to wait for its turn to write, which we hold meanwhile.
    for patience in (0.5, 1, 2):
        with server.rows() as rows:
            rows.execute("BEGIN IMMEDIATE")
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
                connection.sendall(head.encode())
                time.sleep(patience)
            end = time.monotonic() + 2
            while not noted() and time.monotonic() < end:
                time.sleep(0.05)
            rows.rollback()
        if noted():
            break
    [line] = noted()
    assert line["job"] == job and line["user"] and line["request_id"] and line["client"] == "127.0.0.1"
    [audit] = lines_of(server, "audit", method="DELETE", status=499)
    assert audit["request_id"] == line["request_id"] and audit["job"] == job
    wait_for(lambda: client.get(f"/api/v1/jobs/{job}/").status_code == 404, "the change")
    counts = client.get("/metrics").text.splitlines()
    assert [line for line in counts if 'method="DELETE"' in line and 'status="499"' in line]


def test_who_is_given_a_file_is_noted(make_server):
    server = make_server()
    client = server.user("anna")
    job = client.submit(media.flat_video())
    visitor = invited(server, "anna")
    [user] = [user["user_id"] for user in server.command("users", "list")["users"]]
    interface = ("/api/v1/jobs/{job_id}/download/{file_type}/", "/api/v1/jobs/{job_id}/preview/")
    pages = tuple(f"/scenes/{{job_id}}/{name}" for name in ("download/{file_type}", "scene.spz", "first.spz", "preview.jpg"))
    for path in interface + pages:
        asked = client if path in interface else visitor
        # Whether there is such a file or not.
        assert asked.get(path.format(job_id=job, file_type="spz")).status_code == 404
        [line] = lines_of(server, "audit", path=path)
        assert (line["method"], line["status"], line["user"], line["job"]) == ("GET", 404, user, job)
    # To look at a page is no more than to look at it.
    for path in (f"/scenes/{job}", f"/scenes/{job}/report", f"/scenes/{job}/live.jpg"):
        assert visitor.get(path).status_code in (200, 204)
    assert {line["path"] for line in lines_of(server, "audit", method="GET")} == set(interface + pages)


def test_every_change_of_a_job_is_a_line(make_server):
    server = make_server({"workers": 1})
    client = server.user("anna")
    job = client.submit(media.flat_video())
    wait_for(lambda: client.job(job)["status"] == "Failed", "the failure", within=60)
    assert client.request("DELETE", f"/api/v1/jobs/{job}/").status_code == 204
    wait_for(lambda: "deleted" in [line["event"] for line in job_lines(server, job)], "the last line")
    lines = job_lines(server, job)
    events = [line["event"] for line in lines]
    assert events[:2] == ["queued", "claimed"] and events[-2:] == ["failed", "deleted"]
    assert set(events[2:-2]) <= {"stage"}
    [owner] = [user["user_id"] for user in server.command("users", "list")["users"]]
    for line in lines:
        assert line["user"] == owner and line["message"] == "job" and line["level"] == "INFO"
    for line in lines[1:-1]:
        assert line["attempt"] == 1 and line["worker"]
    assert lines[-2]["detail"]


def test_lines_for_people_have_the_same(make_server):
    server = make_server({"log_format": "text"})
    client = server.user("anna")
    job = client.submit(media.flat_video())
    wait_for(lambda: job in server.log_text(), "the line")
    [line] = [line for line in server.log_text().splitlines() if " job: " in line]
    for part in (f"job={job}", 'event="queued"', "user="):
        assert part in line, line


def test_a_worker_can_be_asked(make_server):
    server = make_server()
    client = server.user("anna")
    port = free_port()
    with (server.folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [BINARY, "worker", "--data", server.data, "--config", server.folder / "serve.toml", "--metrics-listen", f"127.0.0.1:{port}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=server._environment(),
        )
    try:
        def ask(path: str) -> requests.Response | None:
            try:
                return requests.get(f"http://127.0.0.1:{port}{path}", timeout=5)
            except requests.ConnectionError:
                return None

        wait_for(lambda: ask("/healthz"), "the worker")
        assert ask("/healthz").status_code == 200 and ask("/api/v1/jobs/").status_code == 404
        job = client.submit(media.flat_video())
        wait_for(lambda: client.job(job)["status"] == "Failed", "the failure", within=60)

        def counted(pattern: str) -> float:
            found = re.search(rf"^{pattern} (\S+)$", ask("/metrics").text, re.MULTILINE)
            return float(found[1]) if found else -1.0

        wait_for(lambda: counted(r'reconstruct_job_changes_total\{change="failed",detail="[a-z_]+"\}') == 1, "the count")
        assert counted(r'reconstruct_job_changes_total\{change="claimed",detail=""\}') == 1
        assert counted("reconstruct_jobs_at_work") == 0 and counted("reconstruct_workers_paused") == 0
        # One that is cancelled, and one that is deleted, while they are worked on.
        for method, path in (("POST", "cancel/"), ("DELETE", "")):
            job = client.submit(media.capture(), training_num_steps=100_000)
            wait_for(lambda: counted("reconstruct_jobs_at_work") == 1, "the work")
            assert client.request(method, f"/api/v1/jobs/{job}/{path}").ok
            wait_for(lambda: counted("reconstruct_jobs_at_work") == 0, "the end of the work")
        assert counted(r'reconstruct_job_changes_total\{change="left",detail=""\}') == 2
        assert "reconstruct_build_info" in ask("/metrics").text
    finally:
        worker.terminate()
        assert worker.wait(30) == 0
