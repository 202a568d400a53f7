"""What docs/web.md says of the requirements of OWASP's ASVS, as far as no other test shows it."""

import re
import uuid

import pytest
import requests

from .server import ROOT, raw_exchange
from .test_isolation import seen
from .web import COOKIE, PASSWORD, Visitor, invited

OURS = {"Sec-Fetch-Site": "same-origin"}
# All pages, by the paths under which the log knows them.
TEMPLATES = sorted(set(re.findall(r'=> "(/[^"]*)"', (ROOT / "server/src/http/web/route.rs").read_text())))


def path_of(template: str, **values: str) -> str:
    """The path of a page; what is not given names nothing."""
    given = {"job_id": str(uuid.uuid4()), "prefix": "lrk_00000000", "id": "0" * 16, "token": "0" * 64, "file_type": "ply", "name": "style.css"}
    return template.format(**given | values)


def methods(visitor, path: str) -> set[str]:
    return set(visitor.request("OPTIONS", path).headers["Allow"].split(", "))


def test_the_list_of_pages_is_whole():
    assert {"/", "/sign-in", "/profile/keys", "/scenes/{job_id}", "/scenes/{job_id}/delete", "/web/{name}"} <= set(TEMPLATES)
    assert len(TEMPLATES) > 20


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_page_that_changes_anything_is_asked_by_post_from_our_own_pages(visitor, template):
    path = path_of(template)
    allowed = methods(visitor, path)
    if "POST" in allowed:
        for foreign in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
            answer = visitor.request("POST", path, headers=foreign, data={"name": "x"})
            assert answer.status_code == 403 and "Set-Cookie" not in answer.headers
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - allowed:
        assert visitor.request(method, path, headers=OURS).status_code == 405
    # No header makes another request of it.
    for header in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        answer = visitor.request("GET", path, headers=OURS | {header: "POST"})
        assert seen(answer) == seen(visitor.request("GET", path, headers=OURS))
    assert visitor.get("/scenes").status_code == 200


@pytest.mark.parametrize("template", [template for template in TEMPLATES if "{job_id}" in template])
def test_every_page_of_a_scene_is_its_owners(server, alice, visitor, flat, template):
    job = alice.submit(flat, public=True, title="secret title")
    before = alice.job(job)
    for method in methods(visitor, path_of(template)) & {"GET", "POST"}:
        fields = {"public": "false", "title": "stolen", "camera_data": "null"} if method == "POST" else None
        foreign, unknown = (
            visitor.request(method, path_of(template, job_id=id), headers=OURS, data=fields) for id in (job, str(uuid.uuid4()))
        )
        assert foreign.status_code == 404 and seen(foreign) == seen(unknown)
        nobody = Visitor(server).request(method, path_of(template, job_id=job), headers=OURS, data=fields)
        assert nobody.status_code in (303, 404) and "secret" not in nobody.text
    assert alice.job(job) == before


def test_a_session_that_somebody_else_has_chosen_is_not_taken(server, name, visitor):
    chosen = "a" * 64
    victim = Visitor(server, chosen)
    assert victim.sign_in(name, PASSWORD).status_code == 303
    assert victim.cookie != chosen and Visitor(server, chosen).get("/scenes").status_code == 303
    # Neither is one that is known but not the browser's: its own ends, and a new one begins.
    taken = visitor.cookie
    assert Visitor(server, taken).sign_in(name, PASSWORD).status_code == 303
    assert visitor.get("/scenes").status_code == 303


@pytest.mark.parametrize("cookie", ["", "x", "0" * 64, "' OR '1'='1", "../../etc/passwd", "é", "a" * 4000])
def test_no_other_cookie_opens_a_page(server, cookie):
    headers = {"Cookie": f"{COOKIE}={cookie}".encode()}
    assert Visitor(server).get("/scenes", headers=headers).status_code == 303


def test_a_token_is_in_the_cookie_alone(server, name):
    visitor = Visitor(server)
    answer = visitor.sign_in(name, PASSWORD)
    assert answer.status_code == 401
    visitor = invited(server, name)
    for path in ("/scenes", "/profile", "/scenes/new"):
        answer = visitor.get(path)
        assert visitor.cookie not in answer.text and visitor.cookie not in str(answer.headers)


INJECTED = [
    "' OR 1=1 --", "'; DROP TABLE users; --", "\" OR \"\"=\"", "%' OR '1'='1", "\\'; SELECT pg_sleep(5); --", "$(id)", "`id`", "{{7*7}}",
    "${7*7}", "<%= 7*7 %>", "../../../../etc/passwd", "%00", "\u202egnp.exe",
]


@pytest.mark.parametrize("text", INJECTED)
def test_what_is_typed_is_text_everywhere(server, alice, name, visitor, flat, text):
    assert Visitor(server).sign_in(text, text).status_code == 401
    made = visitor.send("/profile/keys", name=text)
    assert made.status_code == 201
    keys = server.command("keys", "list", name)["keys"]
    assert text in [key["name"] for key in keys]
    job = alice.submit(flat, title=text)
    assert alice.job(job)["title"] == text
    assert alice.patch(job, {"title": text + "!"}).json()["title"] == text + "!"
    for query in ("status", "cursor", "limit", "public"):
        assert alice.get("/api/v1/jobs/", params={query: text}).status_code in (200, 400)
    for path in (f"/profile/keys/{requests.utils.quote(text, safe='')}/revoke", f"/scenes/{requests.utils.quote(text, safe='')}"):
        assert visitor.get(path).status_code == 404
    assert len(server.command("keys", "list", name)["keys"]) == len(keys)


@pytest.mark.parametrize("path", [
    "/web/../Cargo.toml", "/web/..%2f..%2fetc%2fpasswd", "/web/%2e%2e/%2e%2e/etc/passwd", "/web//etc/passwd", "/web/style.css%00.js",
    "/blob/../../etc/passwd", "/blob/videos/%2e%2e/%2e%2e/jobs.db", "/view/../jobs.db", "/scenes/../../jobs.db", "/invitation/../../jobs.db",
    "//etc/passwd", "/\\etc\\passwd",
])
def test_no_path_leads_to_a_file(server, path):
    answer = raw_exchange(server.port, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert answer.split(b" ")[1] in (b"400", b"403", b"404"), answer
    assert b"root:" not in answer and b"SQLite" not in answer


def test_nothing_leads_elsewhere(server, name, visitor):
    for path in ("/sign-in?next=//evil.example", "/sign-in?return_to=https://evil.example", "//evil.example/", "/\\evil.example"):
        answer = visitor.get(server.url + path)
        assert not answer.headers.get("Location", "/").startswith(("//", "/\\", "http")), path
        assert "evil.example" not in answer.headers.get("Location", "")
    sent = Visitor(server).send("/sign-in?next=//evil.example", name=name, password=PASSWORD, next="https://evil.example")
    assert sent.headers["Location"] == "/scenes"
    # Nor does a name by which the server is called.
    for path in ("/", "/scenes", "/profile", "/sign-in"):
        answer = visitor.get(path, headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"})
        assert "evil.example" not in answer.text and "evil.example" not in answer.headers.get("Location", "")


def test_pages_are_for_no_other_origin(make_server):
    server = make_server({"cors_origins": ["https://a.example", "*"]})
    server.user("anna")
    visitor = invited(server, "anna")
    for method, path in (("GET", "/scenes"), ("GET", "/web/scenes.js"), ("OPTIONS", "/profile/keys"), ("GET", "/api/v1/jobs/"), ("GET", "/healthz")):
        answer = visitor.request(method, path, headers={"Origin": "https://a.example", "Access-Control-Request-Method": "POST"})
        assert not [header for header in answer.headers if header.lower().startswith("access-control")], path


def test_a_host_that_has_tls_says_that_it_always_has(make_server, server):
    secure = make_server({"public_url": "https://scenes.example.org"})
    for path in ("/", "/sign-in", "/scenes", "/web/style.css", "/api/v1/jobs/", "/healthz", "/nowhere", "/blob/x"):
        assert requests.get(secure.url + path, allow_redirects=False).headers["Strict-Transport-Security"] == "max-age=31536000"
    # Over plain HTTP it means nothing, and with a port it would be said for others on the host.
    assert "Strict-Transport-Security" not in requests.get(server.url + "/sign-in").headers


def test_every_answer_keeps_its_type(server, visitor):
    for path in ("/", "/scenes", "/web/scenes.js", "/nowhere", "/api/v1/jobs/", "/openapi.json", "/docs", "/healthz", "/blob/x", "/view/x/"):
        assert visitor.get(path).headers["X-Content-Type-Options"] == "nosniff", path
