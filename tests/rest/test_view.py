"""Rule 72 of docs/rest.md: everybody may look at a public, finished job if the operator allows it, and at nothing else."""

import re
import subprocess
import uuid

import pytest

from .server import BINARY, Client
from .test_isolation import seen
from .test_reconstruction import follow
from .test_specification import UNKNOWN, is_error

FILES = ("scene.spz", "preview.jpg", "camera.json")
PATHS = ("", "/", *(f"/{name}" for name in FILES))


@pytest.fixture(scope="session")
def viewing(make_server, worker_server):
    """A server that has the viewer, over the jobs of the server that runs them (and has none)."""
    server = make_server({"public_view": True}, start=False)
    server.share(worker_server)
    return server.start()


@pytest.fixture(scope="session")
def anyone(viewing):
    """Somebody without a key."""
    return Client(viewing, None)


@pytest.fixture
def public(wendy, finished):
    """A finished job while it is public."""
    job = finished["job_id"]
    assert wendy.patch(job, {"public": True}).status_code == 200
    yield job
    wendy.patch(job, {"public": False, "title": finished["job"]["title"], "camera_data": None})


def answers(client, job: str) -> list:
    """What all addresses of a job answer, but for what differs between any two answers."""
    return [seen(client.request(method, f"/view/{job}{path}")) for path in PATHS for method in ("GET", "HEAD")]


def test_rule_72_there_is_no_viewer_by_default(worker_server, public):
    nobody = Client(worker_server, None)
    assert answers(nobody, public) == answers(nobody, UNKNOWN)
    assert all(answer[0] == 404 for answer in answers(nobody, public))


def test_rule_72_whatever_is_not_public_and_finished_is_not_there(make_server, worker_server, anyone, wendy, finished, flat, capture):
    unknown = answers(anyone, UNKNOWN)
    assert [answer[0] for answer in unknown] == [404] * len(unknown)
    failed = wendy.submit(flat, public=True)
    assert wendy.wait(failed)["status"] == "Failed"
    idle = make_server({"public_view": True})
    waiting = idle.user("anna").submit(flat, public=True)
    cases = {
        "private": (anyone, finished["job_id"]), "failed": (anyone, failed), "waiting": (Client(idle, None), waiting),
        "malformed": (anyone, "x"), "traversal": (anyone, ".."), "viewer off": (Client(worker_server, None), finished["job_id"]),
        "private, with its owner's key": (Client(anyone.server, wendy.key), finished["job_id"]),
    }
    for name, (client, job) in cases.items():
        if name == "traversal":  # A client resolves it before it asks.
            job = "%2e%2e"
        assert answers(client, job) == unknown, name
    for path in PATHS[2:]:
        is_error(anyone.get(f"/view/{UNKNOWN}{path}"), 404, "Job not found")
    page = anyone.get(f"/view/{UNKNOWN}/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8" and "no public scene" in page.text


def test_rule_72_a_public_scene_is_shown_to_everybody(anyone, wendy, public):
    page = anyone.get(f"/view/{public}/")
    assert page.status_code == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert 'data-scene="scene.spz"' in page.text and 'data-camera="camera.json"' in page.text
    job = f"/api/v1/jobs/{public}"
    spz = anyone.get(f"/view/{public}/scene.spz")
    assert spz.status_code == 200 and spz.content == follow(wendy, f"{job}/download/spz/").content
    assert spz.headers["Content-Type"] == "application/octet-stream" and "Content-Encoding" not in spz.headers
    preview = anyone.get(f"/view/{public}/preview.jpg")
    assert preview.status_code == 200 and preview.content == follow(wendy, f"{job}/preview/").content
    assert preview.headers["Content-Type"] == "image/jpeg"
    camera = anyone.get(f"/view/{public}/camera.json")
    assert camera.status_code == 200 and camera.json() == wendy.job(public)["camera_data"]
    assert camera.headers["Content-Type"] == "application/json"
    mine = {"position": {"x": 1, "y": 2, "z": 3}, "lookAt": {"x": 0, "y": 0, "z": 0}, "up": {"x": 0, "y": -1, "z": 0}}
    wendy.patch(public, {"camera_data": mine})
    assert anyone.get(f"/view/{public}/camera.json").json() == wendy.job(public)["camera_data"] == mine | {"cameraType": "orbital"}


def test_rule_72_and_rule_1_both_slash_forms_and_an_upper_case_id(anyone, public):
    for path in (f"/view/{public}", f"/view/{public.upper()}"):
        page = anyone.get(path)
        assert page.status_code == 200 and f'data-scene="{public}/scene.spz"' in page.text
    assert anyone.get(f"/view/{public.upper()}/scene.spz").status_code == 200


@pytest.mark.parametrize("end", ["private", "deleted"])
def test_rule_72_what_is_taken_back_is_gone_at_once(anyone, wendy, capture, finished, end):
    # One that may be deleted; the other is private anyway.
    job = wendy.submit(capture, public=True) if end == "deleted" else finished["job_id"]
    assert wendy.wait(job)["status"] == "Finished"
    assert wendy.patch(job, {"public": True}).status_code == 200
    shown = {name: anyone.get(f"/view/{job}/{name}") for name in ("", *FILES)}
    assert [response.status_code for response in shown.values()] == [200] * 4
    # No cache keeps anything without asking again.
    caching = [response.headers["Cache-Control"] for response in shown.values()]
    assert caching == ["no-store", "no-cache", "no-cache", "no-store"]
    for name in ("scene.spz", "preview.jpg"):
        assert anyone.get(f"/view/{job}/{name}", headers={"If-None-Match": shown[name].headers["ETag"]}).status_code == 304
    if end == "deleted":
        assert wendy.delete(job).status_code == 204
    else:
        assert wendy.patch(job, {"public": False}).status_code == 200
    assert answers(anyone, job) == answers(anyone, UNKNOWN)
    for name in ("scene.spz", "preview.jpg"):
        is_error(anyone.get(f"/view/{job}/{name}", headers={"If-None-Match": shown[name].headers["ETag"]}), 404, "Job not found")


def test_rule_72_and_rule_4_head_is_get_without_a_body(anyone, public):
    for path in PATHS:
        head, get = (anyone.request(method, f"/view/{public}{path}") for method in ("HEAD", "GET"))
        assert head.status_code == get.status_code == 200 and head.content == b""
        for name in ("Content-Type", "Content-Length", "Cache-Control", "ETag", "Content-Security-Policy"):
            assert head.headers.get(name) == get.headers.get(name), (path, name)


def test_rule_72_and_rule_70_ranges_and_conditions_of_the_scene(anyone, public):
    path = f"/view/{public}/scene.spz"
    whole = anyone.get(path)
    etag, size = whole.headers["ETag"], len(whole.content)
    assert whole.headers["Accept-Ranges"] == "bytes" and int(whole.headers["Content-Length"]) == size
    part = anyone.get(path, headers={"Range": "bytes=10-99"})
    assert part.status_code == 206 and part.content == whole.content[10:100]
    assert part.headers["Content-Range"] == f"bytes 10-99/{size}"
    assert anyone.get(path, headers={"Range": "bytes=10-99", "If-Range": '"other"'}).content == whole.content
    assert anyone.get(path, headers={"Range": f"bytes={size}-"}).status_code == 416
    assert anyone.get(path, headers={"If-None-Match": etag}).status_code == 304


def test_rule_72_and_rule_3_other_methods_are_405(anyone, public):
    for job in (public, UNKNOWN):
        for path in PATHS:
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                response = anyone.request(method, f"/view/{job}{path}", json={"public": False})
                is_error(response, 405)
                assert response.headers["Allow"] == "GET, HEAD, OPTIONS"
            options = anyone.request("OPTIONS", f"/view/{job}{path}")
            assert options.status_code == 204 and options.headers["Allow"] == "GET, HEAD, OPTIONS"
    for path in ("/view", "/view/", f"/view/{public}/scene.ply", f"/view/{public}/report.json", f"/view/{public}/scene.spz/x"):
        is_error(anyone.get(path), 404, "Not found")


def test_rule_72_a_title_is_text(anyone, wendy, public):
    title = "<script>alert(\"1\")</script> & 'Küche' {{script}}"
    assert wendy.patch(public, {"title": title}).json()["title"] == title
    page = anyone.get(f"/view/{public}/").text
    escaped = "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;Küche&#39; {{script}}"
    assert f"<title>{escaped}</title>" in page and f"<h1>{escaped}</h1>" in page
    assert page.count("<script") == page.count("</script>") == 1 and title not in page


def test_rule_72_the_page_is_shut_to_everything_else(anyone, public):
    for job in (public, UNKNOWN):
        response = anyone.get(f"/view/{job}/")
        policy = dict(part.strip().split(" ", 1) for part in response.headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
        # It knows no user, so it may be shown within any page.
        assert policy["frame-ancestors"] == "*"
        sources = set(" ".join(policy.values()).split()) - {"'none'", "'self'", "blob:", "data:", "*"}
        assert len(sources) == 2 and all(re.fullmatch(r"'sha256-[\w+/]{43}='", source) for source in sources)
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Referrer-Policy"] == "no-referrer"
        assert "Set-Cookie" not in response.headers
        # Nothing comes from elsewhere.
        assert "//" not in "".join(re.findall(r'(?:src|href|data-\w+)="([^"]*)"', response.text))
    for name in FILES:
        response = anyone.get(f"/view/{public}/{name}", headers={"Origin": "https://elsewhere.example"})
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert "Set-Cookie" not in response.headers and "Access-Control-Allow-Origin" not in response.headers


def test_rule_72_public_opens_nothing_else(anyone, viewing, public):
    job = f"/api/v1/jobs/{public}/"
    stranger = viewing.user(f"stranger-{uuid.uuid4()}")
    for path in ("", "download/ply/", "download/spz/", "preview/"):
        is_error(anyone.get(job + path), 401)
        is_error(stranger.get(job + path), 404, "Job not found")
    for client, status in ((anyone, 401), (stranger, 404)):
        assert client.patch(public, {"title": "stolen"}).status_code == client.delete(public).status_code == status
    assert stranger.jobs() == stranger.jobs("?public=true") == []
    assert anyone.get(f"/view/{public}/").status_code == 200


def test_rule_72_requests_are_counted_by_their_kind(anyone, public):
    for path in PATHS:
        anyone.get(f"/view/{public}{path}")
    counted = anyone.get("/metrics").text
    for name in ("", *FILES):
        assert f'route="/view/{{job_id}}/{name}"' in counted
    assert public not in counted


def test_rule_72_the_operator_allows_it_by_file_environment_or_option(tmp_path):
    def in_force(*options: str, **environment: str) -> str:
        command = [BINARY, "serve", "--print-config", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=60)
        return re.search(r"^public_view = (\w+)$", done.stdout, re.MULTILINE)[1]

    file = tmp_path / "serve.toml"
    file.write_text("public_view = true\n")
    assert in_force() == "false"
    assert in_force("--public-view") == in_force(LIBRECONSTRUCT_PUBLIC_VIEW="true") == in_force("--config", str(file)) == "true"
