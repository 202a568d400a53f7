"""Rules 1 to 12 of docs/rest.md: transport, routing, errors."""

import gzip
import json
import shutil
import socket
import subprocess
import time

import jsonschema
import pytest

from . import storage
from .server import raw_exchange
from .test_specification import ENDPOINTS, UNKNOWN, is_error


@pytest.fixture(scope="module")
def job(alice, flat):
    return alice.submit(flat)


def test_rule_1_both_slash_forms_without_redirect(alice, flat, job):
    for path in ("/api/v1/jobs", f"/api/v1/jobs/{job}"):
        assert alice.get(path).status_code == alice.get(path + "/").status_code == 200
        assert alice.get(path).content == alice.get(path + "/").content
    assert alice.patch(job, {}).status_code == 200
    assert alice.request("PATCH", f"/api/v1/jobs/{job}", json={"title": "no slash"}).status_code == 200
    for path in ("download/ply", "preview"):
        is_error(alice.get(f"/api/v1/jobs/{job}/{path}"), 404)
    response = alice.request("POST", "/api/v1/generate-upload-url", json={"file_extension": "mp4"})
    assert response.status_code == 200
    response = alice.request("POST", "/api/v1/submit-job", json={"blob_name": alice.upload(flat)})
    assert response.status_code == 201
    assert response.headers["Location"] == f"/api/v1/jobs/{response.json()['job_id']}/"
    assert all(path.endswith("/") for path in alice.get("/openapi.json").json()["paths"])
    assert alice.request("DELETE", f"/api/v1/jobs/{response.json()['job_id']}").status_code == 204


@pytest.mark.parametrize("text", ["x", "0", "{}", UNKNOWN[:-1], UNKNOWN + "0", UNKNOWN.replace("-", ""), "%00", "..%2f.."])
def test_rule_2_a_malformed_id_is_no_job(alice, text):
    for method, path in [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "download/ply/"), ("GET", "preview/")]:
        is_error(alice.request(method, f"/api/v1/jobs/{text}/{path}", json={}), 404, "Job not found")


def test_rule_2_an_upper_case_id_is_the_same_job(alice, job):
    assert alice.get(f"/api/v1/jobs/{job.upper()}/").json()["job_id"] == job


@pytest.mark.parametrize("path", ["/x", "/scenes/x/stop", "/api", "/api/v1", "/api/v1/", "/api/v1/job/", "/api/v1/jobs//", "/API/v1/jobs/"])
def test_rule_3_an_unknown_route_is_404(alice, path):
    is_error(alice.get(path), 404)
    is_error(type(alice)(alice.server, None).get(path), 404)


ALLOWED = {
    "/api/v1/jobs/": {"GET", "HEAD", "OPTIONS"},
    f"/api/v1/jobs/{UNKNOWN}/": {"GET", "HEAD", "PATCH", "DELETE", "OPTIONS"},
    f"/api/v1/jobs/{UNKNOWN}/download/ply/": {"GET", "HEAD", "OPTIONS"},
    f"/api/v1/jobs/{UNKNOWN}/preview/": {"GET", "HEAD", "OPTIONS"},
    "/api/v1/generate-upload-url/": {"POST", "OPTIONS"},
    "/api/v1/submit-job/": {"POST", "OPTIONS"},
}


@pytest.mark.parametrize("path", ALLOWED)
def test_rule_3_and_rule_5_a_wrong_method_is_405_with_allow(alice, path):
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"} - ALLOWED[path]:
        response = alice.request(method, path, json={})
        is_error(response, 405)
        assert {m.strip() for m in response.headers["Allow"].split(",")} == ALLOWED[path]


@pytest.mark.parametrize("path", ALLOWED)
def test_rule_4_options_is_204_with_allow(alice, path):
    response = alice.request("OPTIONS", path)
    assert response.status_code == 204 and response.content == b""
    assert {m.strip() for m in response.headers["Allow"].split(",")} == ALLOWED[path]


def test_rule_4_head_is_get_without_a_body(alice, job):
    for path in ("/api/v1/jobs/", f"/api/v1/jobs/{job}/", f"/api/v1/jobs/{UNKNOWN}/", f"/api/v1/jobs/{job}/preview/"):
        head, get = alice.request("HEAD", path), alice.get(path)
        assert head.status_code == get.status_code and head.content == b""
        for name in ("Content-Type", "Content-Length", "Cache-Control"):
            assert head.headers.get(name) == get.headers.get(name), (path, name)


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON", None])
def test_rule_6_json_with_and_without_its_type(alice, content_type):
    headers = {} if content_type is None else {"Content-Type": content_type}
    response = alice.request("POST", "/api/v1/generate-upload-url/", data=b'{"file_extension":"mp4"}', headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"])
def test_rule_6_another_type_is_415(alice, content_type, job):
    body = b'{"file_extension":"mp4"}'
    for method, path in [("POST", "/api/v1/generate-upload-url/"), ("POST", "/api/v1/submit-job/"), ("PATCH", f"/api/v1/jobs/{job}/")]:
        is_error(alice.request(method, path, data=body, headers={"Content-Type": content_type}), 415)


BAD_JSON = [
    b"", b"{", b"nonsense", b"[]", b"1", b'"x"', b"null", b"true", b"{}{}", b'{"a":1,}', b"{'a':1}", b'{"a":NaN}',
    b'{"a":Infinity}', b'{"a":1e999}', b'{"title":"a","title":"b"}', b'{"x":{"y":1,"y":2}}', b'{"a":"\xff"}', b"\xef\xbb\xbf{}x",
    b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}",
]


@pytest.mark.parametrize("body", BAD_JSON, ids=lambda b: repr(b[:30]))
def test_rule_7_a_body_that_is_no_json_object_is_400(alice, job, body):
    headers = {"Content-Type": "application/json"}
    for method, path in [("POST", "/api/v1/generate-upload-url/"), ("POST", "/api/v1/submit-job/"), ("PATCH", f"/api/v1/jobs/{job}/")]:
        response = alice.request(method, path, data=body, headers=headers)
        is_error(response, 400)
        assert response.json()["error"].startswith("Request body is not valid JSON: "), response.text


def test_rule_8_a_body_over_64_kib_is_413(alice, job):
    limit = 64 * 1024
    for size, status in [(limit, 200), (limit + 1, 413)]:
        body = b'{"file_extension":"mp4","x":"' + b"x" * (size - 31) + b'"}'
        assert len(body) == size
        for data in (body, iter([body[:1000], body[1000:]])):
            response = alice.request(
                "POST", "/api/v1/generate-upload-url/", data=data, headers={"Content-Type": "application/json"}
            )
            assert response.status_code == status, response.text
    is_error(response, 413)
    is_error(alice.patch(job, {"x": "x" * limit}), 413)


def test_rule_8_a_body_announced_too_large_is_refused_before_it_is_sent(alice):
    head = (
        f"POST /api/v1/generate-upload-url/ HTTP/1.1\r\nHost: x\r\nAuthorization: Api-Key {alice.key}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n"
    )
    assert raw_exchange(alice.server.port, head.encode()).startswith(b"HTTP/1.1 413 ")


def test_rule_9_every_answer_has_a_request_id_of_its_own(alice, job):
    paths = ["/api/v1/jobs/", f"/api/v1/jobs/{job}/", f"/api/v1/jobs/{UNKNOWN}/", "/x", "/healthz"]
    ids = [alice.get(path).headers["X-Request-Id"] for path in paths]
    ids.append(alice.request("POST", "/api/v1/submit-job/", data=b"{").headers["X-Request-Id"])
    ids.append(type(alice)(alice.server, None).get("/api/v1/jobs/").headers["X-Request-Id"])
    assert len(set(ids)) == len(ids) and all(ids)


def test_rule_9_error_details_are_an_option(make_server):
    server = make_server({"error_details": True})
    client = server.user("anna")
    response = client.get(f"/api/v1/jobs/{UNKNOWN}/")
    body = response.json()
    assert set(body) == {"error", "code", "request_id"} and body["error"] == "Job not found"
    assert body["request_id"] == response.headers["X-Request-Id"]
    assert client.get("/x").json()["code"] == body["code"]


def test_rule_10_an_internal_error_says_nothing_about_the_inside(make_server, flat):
    server = make_server()
    client = server.user("anna")
    job = client.submit(flat)
    with server.rows() as database:
        database.execute("ALTER TABLE jobs RENAME COLUMN title TO hidden")
    response = client.get(f"/api/v1/jobs/{job}/")
    is_error(response, 500, "Internal server error")
    assert response.headers["X-Request-Id"] in server.log_text()
    is_error(client.patch(job, {"title": "x"}), 500, "Internal server error")
    assert client.get("/healthz").status_code == 200


def test_rule_11_the_key_is_checked_before_everything_else(alice, server):
    stranger = type(alice)(server, None)
    for method, path in ENDPOINTS + [("GET", "/api/v1/jobs/not-an-id/"), ("GET", f"/api/v1/jobs/{UNKNOWN}/download/exe/")]:
        is_error(stranger.request(method, path, data=b"no json"), 401, "Invalid API key")
    is_error(stranger.get("/api/v1/nothing/"), 404)


def test_rule_12_http2_without_tls_is_off_by_default_and_an_option(server, make_server):
    def version(port):
        command = ["curl", "-sS", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_version}", f"http://127.0.0.1:{port}/healthz"]
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout

    assert version(server.port) != "2"
    assert version(make_server({"h2c": True}).port) == "2"


def test_rule_12_http2_with_tls(make_server, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )
    server = make_server({"tls_certificate": str(certificate), "tls_key": str(key)}, start=False)
    server.scheme = "https"
    server.start()
    for flag, version in [("--http2", "2"), ("--http1.1", "1.1")]:
        command = ["curl", "-sS", flag, "--cacert", certificate, "-o", "/dev/null", "-w", "%{http_version}", f"{server.url}/healthz"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.stdout == version, done.stderr
    client = server.user("anna")
    client.session.verify = False
    if not storage.IS_ASKED_FOR:
        assert client.upload_url()["url"].startswith("https://")


def test_rule_12_only_json_over_1_kib_is_compressed(fresh, flat):
    small = fresh.get("/api/v1/jobs/", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in small.headers
    blob = fresh.upload(flat)
    for n in range(16):
        fresh.submit(blob, title=f"job {n}")
    plain = fresh.get("/api/v1/jobs/", headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers and len(plain.content) > 1024
    response = fresh.get("/api/v1/jobs/", headers={"Accept-Encoding": "gzip"}, stream=True)
    packed = response.raw.read(decode_content=False)
    assert response.headers["Content-Encoding"] == "gzip" and "accept-encoding" in response.headers["Vary"].lower()
    assert gzip.decompress(packed) == plain.content


MALFORMED = [
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST /api/v1/submit-job/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"POST /api/v1/submit-job/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"POST /api/v1/submit-job/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\n",
    b"POST /api/v1/submit-job/ HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: a\nb\x00\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET  /  HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
    b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    b"A" * 100_000,
    b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(5000)) + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
]


@pytest.mark.parametrize("payload", MALFORMED, ids=lambda p: repr(p[:40]))
def test_a_malformed_request_is_refused_and_harms_nobody(server, payload):
    answer = raw_exchange(server.port, payload)
    assert answer == b"" or answer.split(b" ", 2)[1][:1] == b"4", answer[:200]
    assert b"HTTP/1.1 2" not in answer
    assert raw_exchange(server.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_requests_that_come_together_are_answered_in_their_order(alice, job):
    head = f"GET /api/v1/jobs/{job}/ HTTP/1.1\r\nHost: x\r\nAuthorization: Api-Key {alice.key}\r\n\r\n".encode()
    other = f"GET /api/v1/jobs/{UNKNOWN}/ HTTP/1.1\r\nHost: x\r\nAuthorization: Api-Key {alice.key}\r\nConnection: close\r\n\r\n".encode()
    answer = raw_exchange(alice.server.port, head + other)
    assert answer.startswith(b"HTTP/1.1 200") and b"HTTP/1.1 404" in answer


@pytest.mark.parametrize(("method", "path"), [
    ("GET", "/api/v1/jobs/"), ("DELETE", f"/api/v1/jobs/{UNKNOWN}/"), ("PUT", f"/api/v1/jobs/{UNKNOWN}/"), ("POST", "/nothing"),
])
def test_a_client_that_is_still_sending_gets_its_answer(alice, method, path):
    """RFC 9112, section 9.6: what comes after the answer must not destroy it."""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Api-Key {alice.key}\r\nContent-Length: 7\r\n\r\n"
    with socket.create_connection(("127.0.0.1", alice.server.port), timeout=10) as s:
        s.sendall(head.encode())
        time.sleep(0.1)
        s.sendall(b"no")
        time.sleep(0.1)
        s.sendall(b" json")
        answer = s.recv(65536)
        assert answer.startswith(b"HTTP/1.1 ")
        if b"connection: close" not in answer.lower():
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert s.recv(65536).startswith(b"HTTP/1.1 200")


def test_an_idle_connection_is_closed(make_server):
    server = make_server({"connections": {"header_timeout_seconds": 1}})
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as s:
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        answer = s.recv(4096)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 408")


def test_openapi_describes_the_specification(alice):
    document = alice.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    assert set(document["paths"]) == {
        "/api/v1/jobs/", "/api/v1/jobs/{job_id}/", "/api/v1/jobs/{job_id}/download/{file_type}/",
        "/api/v1/jobs/{job_id}/preview/", "/api/v1/generate-upload-url/", "/api/v1/submit-job/",
        # Beyond the specification (rules 80 and 85).
        "/api/v1/jobs/{job_id}/report/", "/api/v1/jobs/{job_id}/cancel/", "/api/v1/jobs/{job_id}/restart/",
        # Webhooks (rules 93 to 98).
        "/api/v1/webhooks/", "/api/v1/webhooks/{webhook_id}/", "/api/v1/webhooks/{webhook_id}/deliveries/",
        "/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay/",
    }
    assert json.dumps(document).count('"Authorization"') >= 1


@pytest.mark.parametrize(("title", "is_good"), [
    ("x" * 255, True), ("é" * 255, True), ("🌳" * 255, True), ("花", True), (" a ", True), ("\u202e", True),
    ("", False), ("  ", False), ("\u00a0\u3000", False), ("a\nb", False), ("\u0001", False), ("\u007f", False), ("x" * 256, False),
], ids=lambda value: repr(value)[:16])
def test_openapi_and_rule_48_take_the_same_titles(alice, job, title, is_good):
    document = alice.get("/openapi.json").json()
    assert alice.patch(job, {"title": title}).status_code == (200 if is_good else 400)
    body = {"blob_name": f"videos/{UNKNOWN}.mp4", "title": title}
    for name in ("SubmitRequest", "JobUpdate", "RestartRequest"):
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        assert jsonschema.Draft202012Validator(schema).is_valid(body) == is_good, name


@pytest.mark.parametrize(("status", "is_good"), [
    ("Queued", True), ("processing video", True), ("GENERATING 3D SCENE", True), ("finished", True), ("fAILED", True), ("not Found", True),
    ("Queued ", False), ("Queued - position: 1", False), ("Done", False),
])
def test_openapi_and_rule_50_take_the_same_states(alice, status, is_good):
    operation = alice.get("/openapi.json").json()["paths"]["/api/v1/jobs/"]["get"]
    [schema] = [parameter["schema"] for parameter in operation["parameters"] if parameter["name"] == "status"]
    assert alice.get("/api/v1/jobs/", params={"status": status}).status_code == (200 if is_good else 400)
    assert jsonschema.Draft202012Validator(schema).is_valid(status) == is_good
