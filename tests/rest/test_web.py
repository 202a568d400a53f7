"""Rule 79 of docs/rest.md: the web application, by HTTP. What a browser makes of it is in test_web_browser.py."""

import html
import io
import itertools
import json
import re
import time
import uuid
from pathlib import Path

import pytest
import requests
from PIL import Image

from .server import CommandFailed, Server
from .test_isolation import seen
from .test_specification import UNKNOWN, is_error
from .web import COOKIE, PASSWORD, Visitor, invite, invited

_names = (f"web{n}" for n in itertools.count(1))
MARKUP = "<script>alert(1)</script> \"'&amp;"
PAGES = ["/", "/sign-in", "/profile", "/scenes", "/scenes/new", "/web/style.css", "/web/scenes.js", "/web/new_scene.js", "/web/scene.js", "/web/passkeys.js",
         "/web/viewer.js", f"/invitation/{'0' * 64}", f"/scenes/{UNKNOWN}", f"/scenes/{UNKNOWN}/delete"]


def alert(answer) -> str:
    """What a page says was wrong."""
    found = re.search(r'role="alert"[^>]*>(.*?)</p>', answer.text)
    assert found, answer.text
    return html.unescape(found[1])


def test_rule_79_from_the_invitation_to_a_key_that_works_and_is_revoked(server):
    name = next(_names)
    server.command("users", "add", name)
    visitor = Visitor(server)
    assert visitor.get("/").headers["Location"] == "/sign-in"
    link = invite(server, name)
    for _ in range(3):
        # To look at the link uses nothing up.
        assert name in visitor.page(link)
    answer = visitor.send(link, password=PASSWORD, again=PASSWORD)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/scenes")
    assert visitor.get("/").headers["Location"] == "/scenes"
    assert "You have none yet" in visitor.page("/scenes")
    assert "You have no key" in visitor.page("/profile")

    made = visitor.send("/profile/keys", name="laptop")
    assert made.status_code == 201
    key = re.search(r'id="new-key">([^<]+)<', made.text)[1]
    api = {"Authorization": f"Api-Key {key}"}
    assert requests.get(f"{server.url}/api/v1/jobs/", headers=api).json() == []
    # It is shown this once, and by its prefix from now on.
    prefix, secret = key.split(".")
    page = visitor.page("/profile")
    assert prefix in page and secret not in page and "laptop" in page

    asked = visitor.page(f"/profile/keys/{prefix}/revoke")
    assert "laptop" in asked and requests.get(f"{server.url}/api/v1/jobs/", headers=api).status_code == 200
    assert visitor.send(f"/profile/keys/{prefix}/revoke").status_code == 303
    is_error(requests.get(f"{server.url}/api/v1/jobs/", headers=api), 401, "Invalid API key")
    assert prefix not in visitor.page("/profile")
    assert visitor.get(f"/profile/keys/{prefix}/revoke").status_code == 404


def test_rule_79_a_link_works_once_and_the_newest_alone(server, name):
    first = invite(server, name)
    link = invite(server, name)
    assert Visitor(server).get(first).status_code == 404
    visitor = Visitor(server)
    for fields, text in [
        ({"password": "short", "again": "short"}, "at least 8"),
        ({"password": "password1", "again": "password1"}, "guessed first"),
        ({"password": name + "12345"[: 8 - len(name)], "again": name + "12345"[: 8 - len(name)]}, ""),
        ({"password": PASSWORD, "again": "something else"}, "not the same"),
        ({}, "at least 8"),
    ]:
        answer = visitor.send(link, **fields)
        assert answer.status_code == 400 and text in alert(answer), answer.text
        assert visitor.cookie is None
    assert visitor.send(link, password=PASSWORD, again=PASSWORD).status_code == 303
    again = Visitor(server).send(link, password="another password", again="another password")
    assert again.status_code == 404
    assert seen(Visitor(server).get(link)) == seen(Visitor(server).get("/invitation/nonsense"))
    assert Visitor(server).sign_in(name, PASSWORD).status_code == 303


def test_rule_79_a_new_link_is_the_way_back_and_ends_what_was_open(server, name, visitor):
    other = Visitor(server)
    assert other.sign_in(name, PASSWORD).status_code == 303
    back = invited(server, name, "a new password")
    assert [v.get("/scenes").status_code for v in (visitor, other, back)] == [303, 303, 200]
    assert Visitor(server).sign_in(name, PASSWORD).status_code == 401


def test_rule_79_no_cookie_opens_the_interface_and_no_key_a_page(server, fresh, name, visitor):
    # A job, so that there would be something to see.
    for path in ("/api/v1/jobs/", f"/api/v1/jobs/{UNKNOWN}/"):
        is_error(visitor.get(path), 401, "Invalid API key")
    is_error(visitor.send("/api/v1/generate-upload-url/"), 401, "Invalid API key")
    for value in (visitor.cookie, f"Api-Key {visitor.cookie}", f"Bearer {visitor.cookie}"):
        is_error(requests.get(f"{server.url}/api/v1/jobs/", headers={"Authorization": value}), 401, "Invalid API key")
    for path in ("/profile", "/scenes", "/scenes/new", *(f"/scenes/{UNKNOWN}{what}" for what in ("", "/report", "/delete", "/restart", "/camera.json"))):
        answer = fresh.get(path)
        assert (answer.status_code, answer.headers["Location"]) == (303, "/sign-in"), path
        assert fresh.get(path, headers={"Cookie": f"{COOKIE}={fresh.key}"}).status_code == 303
    for path, fields in {"/profile/keys": {"name": "x"}, "/scenes/uploads": {"file_extension": "mp4"}, "/scenes": {"blob_name": "x"}}.items():
        sent = fresh.request("POST", path, data=fields, headers={"Sec-Fetch-Site": "same-origin"})
        assert sent.status_code == 303, path


FOREIGN = [
    {}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Site": "cross-site", "Origin": "ours"}, {"Referer": "ours"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_rule_79_what_another_site_sends_is_refused(server, name, visitor, headers):
    headers = {key: server.url if value == "ours" else value for key, value in headers.items()}
    link = invite(server, name)
    prefix = server.command("keys", "list", name)["keys"][0]["prefix"]
    before = visitor.page("/profile")
    paths = ["/sign-in", "/sign-out", "/sign-out-everywhere", "/profile/keys", "/profile/password", f"/profile/keys/{prefix}/revoke", link,
             "/profile/sessions/0000000000000000/end"]
    paths += ["/scenes", "/scenes/uploads", *(f"/scenes/{UNKNOWN}/{what}" for what in ("delete", "cancel", "restart", "public", "title", "camera"))]
    for path in paths:
        fields = {"name": name, "password": PASSWORD, "again": PASSWORD}
        answer = visitor.request("POST", path, headers=headers, data=fields)
        assert answer.status_code == 403 and "Set-Cookie" not in answer.headers, path
    assert visitor.page("/profile") == before
    assert Visitor(server).get(link).status_code == 200


def test_rule_79_a_browser_that_only_says_the_origin_is_believed(server, name, visitor):
    # The whole address: where there are several servers each has its own.
    answer = visitor.request("POST", f"{server.url}/profile/keys", headers={"Origin": server.url}, data={"name": "x"})
    assert answer.status_code == 201


def test_rule_79_a_form_is_sent_as_a_form(visitor):
    ours = {"Sec-Fetch-Site": "same-origin"}
    assert visitor.request("POST", "/profile/keys", headers=ours, json={"name": "x"}).status_code == 415
    large = visitor.request("POST", "/profile/keys", headers=ours, data={"name": "x" * 70_000})
    assert large.status_code == 413
    assert visitor.get("/profile/keys").status_code == 405
    assert visitor.request("POST", "/scenes/new", headers=ours).status_code == 405
    assert visitor.get("/scenes/uploads").status_code == 405
    assert visitor.request("PUT", "/profile", headers=ours).status_code == 405
    assert visitor.request("OPTIONS", "/sign-in").headers["Allow"] == "GET, HEAD, POST, OPTIONS"


def processor_seconds(server) -> float:
    """How long the threads of the server have been at work."""
    files = Path(f"/proc/{server.process.pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def test_rule_79_unknown_names_and_wrong_passwords_have_the_same_answer(make_server):
    server = make_server()
    invited(server, server.user("known").name)
    server.user("without")
    names = ("known", "without", "nobody")
    answers, work = [], {name: [] for name in names}
    for _ in range(4):
        # Fewer than after which one has to wait.
        for name in names:
            before = processor_seconds(server)
            answer = Visitor(server).sign_in(name, "wrong password")
            work[name].append(processor_seconds(server) - before)
            assert answer.status_code == 401 and answer.text.count(f'value="{name}"') == 1
            status, headers, body = seen(answer)
            headers = {key.lower(): value for key, value in headers.items() if key.lower() != "content-length"}
            answers.append((status, headers, body.replace(f'value="{name}"'.encode(), b"")))
    assert all(answer == answers[0] for answer in answers)
    # Not the time that passes, which depends on what else the machine does; and the least of each, as the server may do other things.
    known, *others = (min(work[name]) for name in names)
    print({name: f"{min(work[name]) * 1e3:.1f} ms" for name in names})
    # A hash takes most of it. One that was left out would be a tenth.
    assert all(0.4 < other / known < 2.5 for other in others)


def test_rule_79_after_a_few_tries_one_has_to_wait(make_server):
    server = make_server()
    invited(server, server.user("anna").name)
    server.user("eve")
    invited(server, "eve")
    for name in ("anna", "nobody"):
        answers = [Visitor(server).sign_in(name, "wrong password") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [401] * 5
        refused = Visitor(server).sign_in(name, PASSWORD)
        assert refused.status_code == 429
        assert re.search(r"Try again in \d+ seconds", alert(refused))
    assert Visitor(server).sign_in("eve", PASSWORD).status_code == 303
    time.sleep(2.1)
    assert Visitor(server).sign_in("anna", PASSWORD).status_code == 303
    # From this address, whatever the name.
    tried = [Visitor(server).sign_in(f"name{n}", "wrong password").status_code for n in range(40)]
    assert tried[0] == 401 and tried[-1] == 429
    assert Visitor(server).sign_in("eve", PASSWORD).status_code == 429


def test_rule_79_sessions_end(server, name, visitor):
    other = next(_names)
    server.user(other)
    stranger = invited(server, other)
    first = Visitor(server, visitor.cookie)
    # Who signs in again has a new token, and the old one is worth nothing.
    assert visitor.sign_in(name, PASSWORD).status_code == 303
    assert visitor.cookie != first.cookie and first.get("/scenes").status_code == 303

    copy = Visitor(server, visitor.cookie)
    left = visitor.send("/sign-out")
    assert (left.status_code, left.headers["Location"], visitor.cookie) == (303, "/sign-in", None)
    assert copy.get("/scenes").status_code == 303
    # Again, and without a session: no reason for an error.
    assert copy.send("/sign-out").status_code == 303

    visitors = [Visitor(server) for _ in range(3)]
    assert [v.sign_in(name, PASSWORD).status_code for v in visitors] == [303] * 3
    page = visitors[0].page("/profile")
    assert page.count("Firefox on Linux</strong>") == 3 and page.count("(this browser)") == 1
    # One of them alone, which is not at hand.
    ends = re.findall(r'action="(/profile/sessions/[0-9a-f]{16}/end)"', page)
    assert len(ends) == 2
    assert stranger.send(ends[0]).status_code == stranger.send("/profile/sessions/0000000000000000/end").status_code == 404
    assert visitors[0].send(ends[0]).status_code == 303
    assert sorted(v.get("/scenes").status_code for v in visitors) == [200, 200, 303] and visitors[0].get("/scenes").status_code == 200
    assert visitors[0].send(ends[0]).status_code == 404
    assert visitors[0].send("/sign-out-everywhere").status_code == 303
    assert [v.get("/scenes").status_code for v in visitors] == [303] * 3

    assert visitors[0].sign_in(name, PASSWORD).status_code == 303
    assert server.command("users", "sign-out", name)["ended_sessions"] == 1
    assert visitors[0].get("/scenes").status_code == 303


def test_rule_79_a_session_is_looked_up_in_the_rows(server, name, visitor):
    with server.rows() as rows:
        # A token stands nowhere: neither the session's nor, of the password, anything but its hash.
        tables = [str(rows.execute(f"SELECT * FROM {table}").fetchall()) for table in ("sessions", "passwords")]
        assert not any(visitor.cookie in text or PASSWORD in text for text in tables)
        assert "$argon2id$v=19$m=19456,t=2,p=1$" in tables[1]
        user = rows.execute(f"SELECT user_id FROM users WHERE name = '{name}'").fetchone()[0]
        rows.execute(f"UPDATE sessions SET expires_at = 1 WHERE user_id = '{user}'")
    assert visitor.get("/scenes").status_code == 303


def test_rule_79_the_password_is_changed_with_the_old_one(server, name, visitor):
    other = Visitor(server)
    other.sign_in(name, PASSWORD)
    new = "an even better one"

    def change(current: str, password: str, again: str):
        return visitor.send("/profile/password", current=current, password=password, again=again)

    assert change("wrong password", new, new).status_code == 403
    assert change(PASSWORD, new, "another").status_code == 400
    assert change(PASSWORD, "short", "short").status_code == 400
    assert other.get("/scenes").status_code == 200
    assert "signed out everywhere else" in change(PASSWORD, new, new).text
    assert [v.get("/scenes").status_code for v in (visitor, other)] == [200, 303]
    assert Visitor(server).sign_in(name, PASSWORD).status_code == 401
    assert Visitor(server).sign_in(name, new).status_code == 303


def test_rule_78_free_users_sign_in_and_are_given_no_key(server, name, visitor):
    visitor.send("/profile/keys", name="before")
    server.command("users", "set-tier", name, "free")
    page = visitor.page("/profile")
    assert "Enterprise" in page and 'action="/profile/keys"' not in page
    refused = visitor.send("/profile/keys", name="after")
    assert refused.status_code == 403 and "Enterprise" in alert(refused)
    assert [key["name"] for key in server.command("keys", "list", name)["keys"]] == ["default", "before"]
    for bad in ("", "   ", "a\nb", "x" * 256):
        server.command("users", "set-tier", name, "enterprise")
        assert visitor.send("/profile/keys", name=bad).status_code == 400, bad


def titles(page: str) -> list[str]:
    """Those of the scenes on a page, in its order."""
    return [html.unescape(title) for title in re.findall(r'<h2><a href="/scenes/[-0-9a-f]+">([^<]*)</a></h2>', page)]


def test_rule_79_the_scenes_of_a_user(server, flat):
    client = server.user(next(_names))
    visitor = invited(server, client.name)
    jobs = [client.submit(flat, title=f"scene {n}") for n in range(26)]
    page = visitor.page("/scenes")
    shown = titles(page)
    assert shown == [f"scene {n}" for n in range(25, 1, -1)]
    assert "Queued - position: " in page
    older = html.unescape(re.search(r'href="(/scenes\?cursor=[^"]+)"', page)[1])
    assert titles(visitor.page(older)) == ["scene 1", "scene 0"]
    assert visitor.get("/scenes?cursor=x").status_code == 400

    # The same report as by the interface.
    job = jobs[-1]
    assert visitor.get(f"/scenes/{job}/report").json() == client.get(f"/api/v1/jobs/{job}/report/").json()

    assert visitor.send(f"/scenes/{job}/public", public="true").status_code == 303
    assert client.job(job)["public"] is True
    assert visitor.send(f"/scenes/{job}/public", public="maybe").status_code == 400
    assert visitor.send(f"/scenes/{job}/public", public="false").status_code == 303
    assert client.job(job)["public"] is False

    assert visitor.send(f"/scenes/{job}/restart").status_code == visitor.get(f"/scenes/{job}/restart").status_code == 409
    assert visitor.send(f"/scenes/{job}/cancel").status_code == 303
    assert client.job(job)["status"] == "Failed"
    page = visitor.page("/scenes")
    assert "<code>cancelled</code>" in page
    # Twice is no error: it may have ended while the page was looked at.
    assert visitor.send(f"/scenes/{job}/cancel").status_code == 303
    count = len(client.jobs())
    assert visitor.send(f"/scenes/{job}/restart").status_code == 303
    assert len(client.jobs()) == count + 1

    # With other options, of which what was asked for before is filled in.
    first = client.submit(flat, title="with tags", apriltag_size_mm=50, remove_background=True, training_num_steps=70)
    client.request("POST", f"/api/v1/jobs/{first}/cancel/")
    form = visitor.page(f"/scenes/{first}/restart")
    assert 'value="with tags"' in form and 'value="50"' in form and 'value="70"' in form and " checked" in form
    other = {"title": "again", "training_num_steps": "80", "apriltag_size_mm": "", "remove_background": "false", "camera_type": "orbital"}
    assert visitor.send(f"/scenes/{first}/restart", **other).status_code == 303
    again = client.job(client.jobs()[0]["job_id"])
    assert (again["title"], again["training_num_steps"], again["remove_background"]) == ("again", 80, False)
    assert again["camera_data"]["cameraType"] == "orbital"
    asked = client.get(f"/api/v1/jobs/{again['job_id']}/report/").json()["requested"]
    assert asked["apriltag_size_mm"] is None and asked["blob_name"] == client.get(f"/api/v1/jobs/{first}/report/").json()["requested"]["blob_name"]
    # A second click on its button sends a form once more: that is one job. The page asked for anew is another wish, and so is
    # something else in the same form.
    def fields() -> dict[str, str]:
        field = re.search(r'name="once" value="([^"]+)"', visitor.page(f"/scenes/{first}/restart"))
        assert field is not None
        return {"title": "clicked twice", "once": field[1]}

    count, clicked = len(client.jobs("?limit=100")), fields()
    for sent, more in ((clicked, 1), (clicked, 1), (fields(), 2), (clicked | {"title": "changed"}, 3)):
        assert visitor.send(f"/scenes/{first}/restart", **sent).status_code == 303
        assert len(client.jobs("?limit=100")) == count + more
    refused = visitor.send(f"/scenes/{first}/restart", training_num_steps="many")
    assert refused.status_code == 400 and "training_num_steps" in refused.text

    # The page of a scene, its title, and where the viewer begins.
    assert visitor.send(f"/scenes/{job}/title", title="renamed").headers["Location"] == f"/scenes/{job}"
    assert client.job(job)["title"] == "renamed" and "<h1>renamed</h1>" in visitor.page(f"/scenes/{job}")
    assert visitor.send(f"/scenes/{job}/title", title=" ").status_code == 400
    before = client.job(job)["camera_data"]
    camera = before | {"position": {"x": 1, "y": 2, "z": 3}}
    assert visitor.send(f"/scenes/{job}/camera", camera_data=json.dumps(camera)).status_code == 303
    assert client.job(job)["camera_data"] == camera == visitor.get(f"/scenes/{job}/camera.json").json()
    for bad in ("", "{", "{}", json.dumps(camera | {"up": {"x": 0, "y": 0, "z": 0}})):
        assert visitor.send(f"/scenes/{job}/camera", camera_data=bad).status_code == 400, bad
    assert visitor.send(f"/scenes/{job}/camera", camera_data="null").status_code == 303
    assert client.job(job)["camera_data"] == before

    assert "renamed" in visitor.page(f"/scenes/{job}/delete")
    assert client.job(job)
    assert visitor.send(f"/scenes/{job}/delete").status_code == 303
    is_error(client.get(f"/api/v1/jobs/{job}/"), 404)
    assert visitor.send(f"/scenes/{job}/delete").status_code == 404


def test_rule_79_a_page_sends_a_video_in_blocks(server, name, flat):
    visitor = invited(server, name)
    page = visitor.page("/scenes/new")
    # The form has every option of a job, and nothing that it does not know.
    options = {"training_num_steps", "training_max_num_gaussians", "remove_background", "apriltag_size_mm", "reconstruction_method", "camera_type"}
    assert set(re.findall(r'<(?:input|select)[^>]* name="(\w+)"', page)) == options
    script = {"Accept": "application/json"}
    for bad in ({}, {"file_extension": "exe"}):
        is_error(visitor.send("/scenes/uploads", headers=script, **bad), 400, "Invalid file format")
    # A person reads a page.
    assert visitor.send("/scenes/uploads", file_extension="exe").headers["Content-Type"] == "text/html; charset=utf-8"
    made = visitor.send("/scenes/uploads", headers=script, file_extension="MP4").json()
    assert set(made) == {"path", "blob_name"} and made["path"].startswith("/blob/videos/")
    # The address needs no session, and holds as long as a video may wait for its job.
    video = flat.read_bytes()
    address = server.url + made["path"]
    for number, at in enumerate(range(0, len(video), 5000)):
        assert requests.put(f"{address}&comp=block&blockid={number:06}", data=video[at : at + 5000]).status_code == 201
    listed = "".join(f"<Latest>{number:06}</Latest>" for number in range(-(-len(video) // 5000)))
    assert requests.put(f"{address}&comp=blocklist", data=f"<BlockList>{listed}</BlockList>").status_code == 201

    fields = {"blob_name": made["blob_name"], "title": MARKUP, "training_num_steps": "300", "remove_background": "true"}
    is_error(visitor.send("/scenes", headers=script, **fields | {"training_num_steps": "0"}), 400)
    stranger = server.user(next(_names))
    is_error(invited(server, stranger.name).send("/scenes", headers=script, **fields), 400, "Blob not found. Please verify the upload.")
    submitted = visitor.send("/scenes", headers=script, **fields)
    assert submitted.status_code == 201 and submitted.json()["title"] == MARKUP
    # An answer that was lost: the same request is the same job, another one for the same video is refused.
    assert visitor.send("/scenes", headers=script, **fields).json() == submitted.json()
    assert 400 <= visitor.send("/scenes", headers=script, **fields | {"title": "x"}).status_code < 500
    assert titles(visitor.page("/scenes")) == [MARKUP]
    report = visitor.get(f"/scenes/{submitted.json()['job_id']}/report").json()
    assert report["requested"]["training_num_steps"] == 300 and report["requested"]["remove_background"] is True


def test_rule_79_a_finished_scene_and_a_failed_one(worker_server, wendy, finished, flat):
    visitor = invited(worker_server, wendy.name)
    failed = wendy.submit(flat, title="too little")
    assert wendy.wait(failed)["status"] == "Failed"
    failure = wendy.get(f"/api/v1/jobs/{failed}/report/").json()["failure"]
    page = html.unescape(visitor.page("/scenes"))
    assert failure["message"] in page and failure["code"] in page
    job = finished["job_id"]
    picture = visitor.get(f"/scenes/{job}/preview.jpg")
    assert picture.headers["Content-Type"] == "image/jpeg" and picture.headers["Cache-Control"] == "no-store"
    for kind in ("ply", "spz", "sog", "poses", "cameras", "report", "log"):
        answer = visitor.get(f"/scenes/{job}/download/{kind}")
        assert answer.status_code == 302
        assert requests.get(answer.headers["Location"], stream=True).status_code == 200
    assert visitor.get(f"/scenes/{job}/download/exe").status_code == visitor.get(f"/scenes/{job}/download/masks").status_code == 404
    page = visitor.page(f"/scenes/{job}")
    assert f"/scenes/{job}/download/cameras" in page and f"/scenes/{job}/download/masks" not in page
    page = visitor.get(f"/scenes/{job}")
    assert "worker-src blob:" in page.headers["Content-Security-Policy"] and "unsafe" not in page.headers["Content-Security-Policy"]
    error = wendy.get(f"/api/v1/jobs/{job}/report/").json()["quality"]["mean_reprojection_error"]
    assert "The camera poses are" in page.text and f"{error:.2f} pixels" in page.text
    scene = visitor.get(f"/scenes/{job}/scene.spz")
    assert scene.content == wendy.get(f"/api/v1/jobs/{job}/download/spz/", allow_redirects=True).content and scene.headers["Cache-Control"] == "private, no-cache"
    assert visitor.get(f"/scenes/{job}/scene.spz", headers={"If-None-Match": scene.headers["ETag"]}).status_code == 304
    # Without a session nothing of it.
    nobody = Visitor(worker_server)
    assert nobody.get(f"/scenes/{job}/preview.jpg").status_code == nobody.get(f"/scenes/{job}/scene.spz").status_code == 404
    assert nobody.get(f"/scenes/{job}/download/ply").status_code == 303


def test_rule_79_a_scene_is_seen_while_it_is_trained(worker_server, wendy, capture):
    # More than it is trained for here.
    job = wendy.submit(capture, training_max_num_gaussians=1000, training_num_steps=30_000)
    visitor, stranger = invited(worker_server, wendy.name), invited(worker_server, worker_server.user(next(_names)).name)
    path = f"/scenes/{job}/live.jpg"
    waiting = visitor.get(path)
    assert waiting.status_code in (200, 204)
    end = time.monotonic() + 120
    while (answer := visitor.get(path)).status_code == 204:
        assert time.monotonic() < end, wendy.job(job)
        time.sleep(0.2)
    assert (answer.status_code, answer.headers["Content-Type"], answer.headers["Cache-Control"]) == (200, "image/jpeg", "no-store")
    assert len(answer.content) <= 40 << 10
    picture = Image.open(io.BytesIO(answer.content)).convert("RGB")
    # The training renders what it trains on here: 160 pixels.
    assert max(picture.size) == 160 and len(picture.getcolors(1 << 24)) > 100
    # How long that goes on, as soon as there is something to go by; the picture may come before the job is said to be trained.
    while True:
        progress = visitor.get(f"/scenes/{job}/report").json()["progress"]
        if progress["stage"] == "train" and progress["stage_seconds_left"] is not None:
            break
        assert time.monotonic() < end, progress
        time.sleep(0.5)
    assert progress["stage_seconds_left"] > 0 and re.search(r"training, \d+ %, [^<]+ left", visitor.page("/scenes"))
    for page in ("/scenes", f"/scenes/{job}"):
        # Without a script, too.
        assert re.search(rf'<img class="preview" src="{path}\?at=\d+"', visitor.page(page)), page
    assert seen(stranger.get(path)) == seen(stranger.get(f"/scenes/{uuid.uuid4()}/live.jpg")) and stranger.get(path).status_code == 404
    assert Visitor(worker_server).get(path).status_code == 404
    assert requests.get(worker_server.url + path, headers={"Authorization": f"Api-Key {wendy.key}"}).status_code == 404
    # What has ended has none.
    assert visitor.send(f"/scenes/{job}/cancel").status_code == 303
    assert visitor.get(path).status_code == 204 and "live.jpg?" not in visitor.page("/scenes")


ON_A_JOB = [("GET", ""), ("GET", "live.jpg"), ("GET", "scene.spz"), ("GET", "camera.json"), ("GET", "report"), ("GET", "preview.jpg"), ("GET", "download/ply"),
            ("GET", "download/spz"), ("GET", "delete"), ("GET", "restart"), ("POST", "delete"), ("POST", "cancel"), ("POST", "restart"),
            ("POST", "public"), ("POST", "title"), ("POST", "camera")]


@pytest.mark.parametrize(("method", "path"), ON_A_JOB)
def test_rule_16_a_foreign_job_is_as_one_that_does_not_exist_on_pages_too(server, alice, visitor, flat, method, path):
    job = alice.submit(flat, public=True, title="secret title")
    before = alice.job(job)
    ours = {"Sec-Fetch-Site": "same-origin"}
    data = {"public": "false", "title": "another", "camera_data": "null"} if method == "POST" else None
    foreign, unknown = (visitor.request(method, f"/scenes/{j}/{path}", headers=ours, data=data) for j in (job, uuid.uuid4()))
    assert foreign.status_code == 404 and seen(foreign) == seen(unknown)
    assert alice.job(job) == before and "secret title" not in visitor.page("/scenes")


def test_rule_16_a_foreign_key_is_as_one_that_does_not_exist(server, alice, visitor):
    prefix = alice.key.split(".")[0]
    for method in ("GET", "POST"):
        ours = {"Sec-Fetch-Site": "same-origin"}
        foreign, unknown = (visitor.request(method, f"/profile/keys/{key}/revoke", headers=ours) for key in (prefix, "lrk_00000000"))
        assert foreign.status_code == 404 and seen(foreign) == seen(unknown)
    assert alice.jobs() is not None and prefix not in visitor.page("/profile")


def test_rule_79_text_stays_text(server, flat):
    name = f"{next(_names)} {MARKUP}"
    client = server.user(name)
    visitor = Visitor(server, agent=MARKUP)
    link = invite(server, name)
    pages = [visitor.page(link)]
    visitor.send(link, password=PASSWORD, again=PASSWORD)
    job = client.submit(flat, title=MARKUP)
    made = visitor.send("/profile/keys", name=MARKUP)
    prefix = re.search(r'id="new-key">(lrk_\w+)', made.text)[1]
    client.request("POST", f"/api/v1/jobs/{job}/cancel/")
    own = (f"/scenes/{job}", f"/scenes/{job}/restart", f"/scenes/{job}/delete")
    pages += [made.text, *(visitor.page(p) for p in ("/scenes", "/profile", *own, f"/profile/keys/{prefix}/revoke"))]
    pages += [Visitor(server).sign_in(MARKUP, "wrong password").text]
    for page in pages:
        assert "alert(1)" in page
        assert not re.search(r"<script>|<[^>]*alert\(1\)</script>", page)
        assert len(re.findall(r"<script", page)) == len(re.findall(r'<script type="module" src="/web/', page)) <= 1


def test_rule_79_headers_of_every_page(server, visitor):
    answers = [(who, path, who.get(path)) for who in (visitor, Visitor(server)) for path in PAGES]
    answers += [(visitor, "POST", visitor.send("/profile/keys", name="x")), (visitor, "POST", visitor.send("/sign-out", headers={"Sec-Fetch-Site": "none"}))]
    for _, path, answer in answers:
        headers = answer.headers
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["Referrer-Policy"] == "no-referrer" and headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Opener-Policy"] == headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["X-Frame-Options"] == "DENY" and "X-Request-Id" in headers
        is_file = path.startswith("/web/")
        assert headers["Cache-Control"] == ("public, max-age=300" if is_file else "no-store"), path
        # Neither scripts nor styles stand in a page.
        assert is_file or not re.search(r"<style| style=|<script(?! type=\"module\" src=)| on\w+=\"", answer.text)


def test_rule_79_the_cookie_is_kept_from_scripts_other_sites_and_plain_lines(server, name):
    answer = Visitor(server).send(invite(server, name), password=PASSWORD, again=PASSWORD)
    value, *attributes = answer.headers["Set-Cookie"].split("; ")
    assert re.fullmatch(rf"{COOKIE}=[0-9a-f]{{64}}", value)
    assert set(attributes) == {"Path=/", "Max-Age=2592000", "Secure", "HttpOnly", "SameSite=Lax"}


def test_rule_79_no_password_is_taken_over_a_line_that_others_can_read(make_server):
    server = make_server({"public_url": "http://scenes.example.org"})
    client = server.user("anna")
    link = invite(server, client.name)
    far = {"Host": "scenes.example.org"}
    for path in ("/sign-in", link):
        page = Visitor(server).get(path, headers=far)
        assert "https" in page.text and "<form" not in page.text
        ours = far | {"Origin": "http://scenes.example.org"}
        fields = {"name": "anna", "password": PASSWORD, "again": PASSWORD}
        assert Visitor(server).request("POST", path, headers=ours, data=fields).status_code == 403
    # A browser tells only those where a form comes from whose line is private, as behind a proxy that the server does not know.
    assert Visitor(server).send(link, headers=far, password=PASSWORD, again=PASSWORD).status_code == 303


def test_rule_79_behind_a_proxy_with_a_path(make_server):
    server = make_server({"public_url": "https://example.org/scans/"})
    server.user("anna")
    link = server.command("users", "invite", "anna")["link"]
    assert link.startswith("https://example.org/scans/invitation/")
    visitor = Visitor(server)
    path = link.removeprefix("https://example.org/scans")
    answer = visitor.request("POST", path, headers={"Origin": "https://example.org"}, data={"password": PASSWORD, "again": PASSWORD})
    assert answer.headers["Location"] == "/scans/scenes"
    for page in ("/scenes", "/profile"):
        links = re.findall(r'(?:href|src|action)="(/[^"]*)"', visitor.page(page))
        assert len(links) > 4 and all(link.startswith("/scans/") for link in links)


def test_rule_79_can_be_switched_off(make_server):
    server = make_server({"web": False})
    server.user("anna")
    nobody = Visitor(server)
    for path in PAGES:
        is_error(nobody.get(path), 404, "Not found")
    is_error(nobody.send("/sign-in", name="anna", password=PASSWORD), 404, "Not found")
    with pytest.raises(CommandFailed, match="web"):
        server.command("users", "invite", "anna")


def test_rule_79_a_bad_address_of_a_link_is_said(server, name):
    assert server.command("users", "invite", name, "--url", "https://a.example/x/")["link"].startswith("https://a.example/x/invitation/")
    for bad in ("a.example", "ftp://a.example", "https://a.example/?x"):
        with pytest.raises(CommandFailed, match="--url"):
            server.command("users", "invite", name, "--url", bad)
    with pytest.raises(CommandFailed, match="there is no user"):
        server.command("users", "invite", "nobody at all")


def test_rule_79_tokens_and_passwords_are_not_in_the_log(make_server):
    server: Server = make_server({"log": "debug"})
    server.user("anna")
    link = invite(server, "anna")
    visitor = Visitor(server)
    visitor.get(link)
    visitor.get(link + "/more")
    visitor.send(link, password=PASSWORD, again=PASSWORD)
    visitor.page("/scenes")
    Visitor(server).sign_in("anna", "a wrong password")
    log = server.log_text()
    assert "/invitation/{token}" in log and "/sign-in" in log
    for secret in (link.removeprefix("/invitation/"), visitor.cookie, PASSWORD, "a wrong password"):
        assert secret not in log


def test_rule_21_pages_count_as_requests_of_their_user(make_server):
    limits = {"requests_per_minute": 60, "requests_burst": 5, "submits_per_hour": 0, "uploads_per_hour": 0, "failed_authentications_per_minute": 0}
    server = make_server({"rate_limits": limits})
    client = server.user("anna")
    visitor = invited(server, "anna")
    statuses = [visitor.get("/profile").status_code for _ in range(8)]
    assert statuses[:4] == [200] * 4 and statuses[-1] == 429
    is_error(client.get("/api/v1/jobs/"), 429, "Rate limit exceeded")
    assert "Rate limit exceeded" in visitor.get("/profile").text


def test_rule_79_restarts_and_other_servers_know_the_sessions(make_server):
    server = make_server()
    server.user("anna")
    visitor = invited(server, "anna")
    server.stop()
    server.start()
    assert visitor.get("/scenes").status_code == 200
    other = make_server(start=False)
    other.share(server)
    other.start()
    there = Visitor(other, visitor.cookie)
    assert there.get("/scenes").status_code == 200
    assert there.send("/sign-out").status_code == 303
    assert visitor.get("/scenes").status_code == 303
