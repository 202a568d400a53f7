"""Rule 79 of docs/rest.md: the web application in a real browser."""

import http.server
import itertools
import json
import os
import threading
from pathlib import Path

import pytest
import requests
from prerequisites import is_missing

from .browser import CHROMIUM, Browser
from .web import PASSWORD, invite

_names = (f"browsing{n}" for n in itertools.count(1))
WIDE, PHONE = (1100, 800), (360, 740)
MARKUP = "<img src=x onerror=alert(1)> & “Küche”"


@pytest.fixture
def browser(tmp_path):
    """A new one for each test: nobody is signed in."""
    if CHROMIUM is None:
        is_missing("browser", "Chromium")
    browser = Browser(tmp_path / "profile")
    yield browser
    browser.close()


@pytest.fixture
def client(server):
    return server.user(next(_names))


def at(page, path: str) -> None:
    """Waits until the page at this path is there."""
    page.wait_for(f"location.pathname === {json.dumps(path)} && document.readyState === 'complete'")


def go(page, address: str) -> None:
    page.call("Page.navigate", url=address)


def fill(page, selector: str, text: str) -> None:
    """Types into a field."""
    page.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
    page.call("Input.insertText", text=text)


def press(page, text: str) -> None:
    """Presses the button, or follows the link, that reads so."""
    find = f"[...document.querySelectorAll('button, a')].find((e) => e.textContent.trim() === {json.dumps(text)})"
    page.wait_for(f"!!{find}")
    page.follow(f"{find}.click()")


def join(page, server, name: str) -> None:
    """Signs in as a person does who was invited."""
    go(page, server.url + invite(server, name))
    page.wait_for("!!document.querySelector('#password')")
    fill(page, "#password", PASSWORD)
    fill(page, "#again", PASSWORD)
    press(page, "Set the password and sign in")
    at(page, "/scenes")


def text(page) -> str:
    return page.evaluate("document.querySelector('main').innerText")


def look(page, name: str) -> None:
    """Keeps a picture of the page for people, if they say where."""
    if folder := os.environ.get("LIBRECONSTRUCT_SCREENSHOTS"):
        from PIL import Image

        Image.fromarray(page.screenshot()).save(Path(folder) / f"{name}.png")


def test_rule_79_from_the_first_visit_to_a_key_and_out_again(browser, server):
    name = next(_names)
    server.command("users", "add", name)
    with browser.open("about:blank", *WIDE) as page:
        join(page, server, name)
        # Scripts do not see the cookie.
        assert page.evaluate("document.cookie") == ""
        press(page, "Profile")
        at(page, "/profile")
        fill(page, "#key-name", "laptop")
        press(page, "Make a key")
        key = page.wait_for("document.querySelector('#new-key')?.textContent")
        api = {"Authorization": f"Api-Key {key}"}
        assert requests.get(f"{server.url}/api/v1/jobs/", headers=api).json() == []
        browser.call("Browser.grantPermissions", origin=server.url, permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        page.call("Page.bringToFront")
        press(page, "Copy")
        page.wait_for("document.querySelector('[data-copy]').textContent === 'Copied'")
        assert page.evaluate("navigator.clipboard.readText()") == key
        look(page, "key")

        go(page, server.url + "/profile")
        page.wait_for("!document.querySelector('#new-key')")
        press(page, "Revoke the key laptop")
        page.wait_for("document.querySelector('h1')?.textContent.includes('Revoke')")
        press(page, "Keep it")
        at(page, "/profile")
        assert requests.get(f"{server.url}/api/v1/jobs/", headers=api).status_code == 200
        press(page, "Revoke the key laptop")
        press(page, "Revoke the key")
        at(page, "/profile")
        assert "You have no key" in text(page)
        assert requests.get(f"{server.url}/api/v1/jobs/", headers=api).status_code == 401

        press(page, "Sign out")
        at(page, "/sign-in")
        # Nor does the way back show what was there.
        page.evaluate("window.before = true")
        page.follow("history.back()")
        page.wait_for("!window.before && document.readyState === 'complete'")
        at(page, "/sign-in")

        fill(page, "#name", name)
        fill(page, "#password", "a wrong password")
        page.follow("document.querySelector('form button.main').click()")
        page.wait_for("document.readyState === 'complete' && !!document.querySelector('[role=alert]')")
        assert page.evaluate("document.querySelector('#name').value") == name
        fill(page, "#password", PASSWORD)
        page.follow("document.querySelector('form button.main').click()")
        at(page, "/scenes")
        # A wrong password is an answer 401, which the browser notes.
        assert all("401" in str(complaint) for complaint in page.complaints())


def test_rule_79_the_page_of_scenes_follows_what_happens(browser, server, client, flat):
    first, second = client.submit(flat, title="the first"), client.submit(flat, title=MARKUP)
    with browser.open("about:blank", *WIDE) as page:
        join(page, server, client.name)

        def status(job: str):
            return f"document.querySelector('[data-job=\"{job}\"] [data-field=status]')?.textContent"

        place = int(page.evaluate(status(second)).split(": ")[1])
        assert MARKUP in text(page) and not page.evaluate("!!document.querySelector('main img')")
        page.evaluate("window.same = true")
        client.delete(first)
        # The place in the queue by itself; that the first is gone brings the page anew.
        page.wait_for(f"{status(second)} === 'Queued - position: {place - 1}'", within=20)
        page.wait_for("!window.same && document.readyState === 'complete'", within=20)
        assert "the first" not in text(page)
        client.request("POST", f"/api/v1/jobs/{second}/cancel/")
        page.wait_for(f"{status(second)} === 'Failed'", within=20)
        page.wait_for("document.querySelector('.problem code')?.textContent === 'cancelled'")
        press(page, f"Run again {MARKUP}")
        press(page, "Run it again")
        at(page, "/scenes")
        page.wait_for("document.querySelectorAll('[data-job]').length === 2 && document.readyState === 'complete'")
        press(page, f"Delete {MARKUP}")
        page.wait_for("document.querySelector('h1')?.textContent.startsWith('Delete')")
        press(page, "Delete it")
        at(page, "/scenes")
        page.wait_for("document.querySelectorAll('[data-job]').length === 1")
        # To have asked for a job that is gone is what the browser notes.
        assert all("404" in str(complaint) for complaint in page.complaints())
        assert len(client.jobs()) == 1


class Evil(http.server.BaseHTTPRequestHandler):
    """A page of another site that sends forms to `target` in the name of who looks at it."""

    target = ""

    def do_GET(self):
        form = f'<form method="post" action="{self.target}"><input name="name" value="evil"></form><script>document.forms[0].submit()</script>'
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(form.encode())

    def log_message(self, *_):
        pass


def test_rule_79_a_page_of_another_site_cannot_act_for_who_is_signed_in(browser, server, client):
    # On the same machine it is the same site to the browser, which sends the cookie along then.
    handler = type("Handler", (Evil,), {"target": f"{server.url}/profile/keys"})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as evil, browser.open("about:blank", *WIDE) as page:
        threading.Thread(target=evil.serve_forever, daemon=True).start()
        join(page, server, client.name)
        for host in ("127.0.0.1", "localhost"):
            go(page, f"http://{host}:{evil.server_port}/")
            page.wait_for("document.querySelector('main')?.innerText.includes('not sent by a page of this server')")
        evil.shutdown()
    assert [key["name"] for key in server.command("keys", "list", client.name)["keys"]] == ["default"]


def test_rule_79_all_works_without_scripts(browser, server, client, flat):
    client.submit(flat, title="a scene")
    with browser.open("about:blank", *PHONE) as page:
        join(page, server, client.name)
        page.call("Emulation.setScriptExecutionDisabled", value=True)
        go(page, server.url + "/profile")
        at(page, "/profile")
        # (Commands of the test still run.)
        assert page.evaluate("document.querySelector('[data-copy]')") is None
        fill(page, "#key-name", "phone")
        press(page, "Make a key")
        page.wait_for("!!document.querySelector('#new-key')")
        assert page.evaluate("document.querySelector('[data-copy]').hidden")
        press(page, "Revoke the key phone")
        press(page, "Revoke the key")
        at(page, "/profile")
        press(page, "My scenes")
        at(page, "/scenes")
        press(page, "Stop a scene")
        page.wait_for("document.querySelector('.problem code')?.textContent === 'cancelled'")
        press(page, "Sign out")
        at(page, "/sign-in")


AXE = """(async () => {
    const found = await axe.run(document, { resultTypes: ["violations"] });
    return found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html + " " + n.failureSummary).join("; ")}`);
})()"""


def axe_script() -> str:
    """What finds violations of the rules for accessible pages; LIBRECONSTRUCT_AXE names a newer one."""
    import axe_core_python

    given = os.environ.get("LIBRECONSTRUCT_AXE")
    return Path(given or Path(axe_core_python.__file__).parent / "axe.min.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_rule_79_the_pages_are_accessible_and_fit(browser, server, client, flat, scheme, size):
    axe = axe_script()
    job = client.submit(flat, title="a very long title " * 8)
    failed = client.submit(flat, title="x" * 200)
    client.request("POST", f"/api/v1/jobs/{failed}/cancel/")
    prefix = client.key.split(".")[0]
    with browser.open("about:blank", *size) as page:
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

        def check(name: str) -> None:
            page.wait_for("document.readyState === 'complete' && !!document.querySelector('main h1')")
            page.evaluate(axe + "; undefined")
            assert page.evaluate(AXE) == [], name
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the window"
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
            assert dark == (scheme == "dark")
            look(page, f"{name}-{scheme}-{size[0]}")

        go(page, server.url + "/sign-in")
        check("sign-in")
        go(page, server.url + invite(server, client.name))
        page.wait_for("!!document.querySelector('#password')")
        check("invitation")
        join(page, server, client.name)
        check("scenes")
        for name, path in {
            "profile": "/profile", "revoke": f"/profile/keys/{prefix}/revoke", "new": "/scenes/new", "scene": f"/scenes/{job}",
            "again": f"/scenes/{failed}/restart", "delete": f"/scenes/{job}/delete", "not-found": "/scenes/x/delete",
        }.items():
            go(page, server.url + path)
            page.wait_for(f"location.pathname === '{path}'")
            check(name)
