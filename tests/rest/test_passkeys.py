"""Rule 79 of docs/rest.md: passkeys, with the authenticator that a real browser pretends to have."""

import base64
import itertools
import json

import pytest
from prerequisites import is_missing

from . import many
from .browser import CHROMIUM, Browser
from .test_isolation import seen
from .test_web import alert
from .test_web_browser import WIDE, at, fill, go, join, press, text
from .web import PASSWORD, Visitor, invited

_names = (f"passkey{n}" for n in itertools.count(1))
AUTHENTICATOR = {
    "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True, "isUserVerified": True,
    "automaticPresenceSimulation": True,
}
FIELDS = ("credential", "client_data", "authenticator_data", "signature", "user_handle")


class ByName:
    """The server by the name of its host: browsers have passkeys for no number."""

    def __init__(self, server):
        self.server = server
        self.url = f"http://localhost:{server.port}"

    def __getattr__(self, name):
        return getattr(self.server, name)

    def url_of_a_request(self) -> str:
        return self.url


@pytest.fixture
def browser(tmp_path):
    if CHROMIUM is None:
        is_missing("browser", "Chromium")
    browser = Browser(tmp_path / "profile")
    yield browser
    browser.close()


@pytest.fixture
def by_name(server):
    if many.IS_ASKED_FOR:
        pytest.skip("each of several servers has a port of its own, and a passkey is used on the page that has asked")
    return ByName(server)


def with_authenticator(page, **changes) -> str:
    """Gives the page an authenticator."""
    page.call("WebAuthn.enable")
    return page.call("WebAuthn.addVirtualAuthenticator", options=AUTHENTICATOR | changes)["authenticatorId"]


def add_passkey(page, name: str, password: str = PASSWORD) -> None:
    page.wait_for("document.querySelector('#add-passkey')?.hidden === false")
    page.evaluate("document.querySelector('#passkey-name').value = ''; document.querySelector('#passkey-password').value = ''")
    fill(page, "#passkey-name", name)
    fill(page, "#passkey-password", password)
    press(page, "Add a passkey")


def hold(page) -> None:
    """Keeps what the next passkey says on the page instead of sending it."""
    page.evaluate("HTMLFormElement.prototype.submit = function () { window.held = Object.fromEntries(new FormData(this)); }")


def said(page) -> dict[str, str]:
    """What the passkey of the page says to a new challenge."""
    page.evaluate("window.held = null")
    press(page, "Sign in with a passkey")
    return page.wait_for("window.held")


def decoded(value: str) -> bytes:
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))


def encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def changed(value: str, at: int) -> str:
    """The same bytes, one bit of them changed."""
    value = bytearray(decoded(value))
    value[at] ^= 1
    return encoded(bytes(value))


def test_rule_79_a_passkey_is_added_used_and_removed(browser, by_name):
    name = next(_names)
    by_name.command("users", "add", name)
    with browser.open("about:blank", *WIDE) as page:
        with_authenticator(page)
        join(page, by_name, name)
        go(page, by_name.url + "/profile")
        # A wrong password adds none.
        add_passkey(page, "phone", "a wrong password")
        page.wait_for("document.querySelector('#add-passkey .problem').textContent.includes('password is wrong')")
        assert "You have none." in text(page)
        add_passkey(page, "phone")
        page.wait_for("document.querySelector('[aria-labelledby=passkeys] strong')?.textContent === 'phone'")
        assert "for localhost" in text(page) and "last used never" in text(page)
        # The device knows that it has one.
        add_passkey(page, "again")
        page.wait_for("document.querySelector('#add-passkey .problem').textContent.includes('has a passkey for you already')")

        press(page, "Sign out")
        at(page, "/sign-in")
        page.wait_for("document.querySelector('#use-passkey')?.hidden === false")
        press(page, "Sign in with a passkey")
        at(page, "/scenes")
        go(page, by_name.url + "/profile")
        page.wait_for("!!document.querySelector('[aria-labelledby=passkeys] strong')")
        assert "last used never" not in text(page)
        press(page, "Remove the passkey phone")
        page.wait_for("document.querySelector('h1')?.textContent.includes('Remove the passkey phone?')")
        press(page, "Remove the passkey")
        at(page, "/profile")
        press(page, "Sign out")
        at(page, "/sign-in")
        page.wait_for("document.querySelector('#use-passkey')?.hidden === false")
        press(page, "Sign in with a passkey")
        page.wait_for("document.querySelector('[role=alert]:not([hidden])')?.textContent.includes('not known here')")
        assert Visitor(by_name).sign_in(name, PASSWORD).status_code == 303
        # Answers 401 and 403 are what the browser notes.
        assert all("401" in str(complaint) or "403" in str(complaint) for complaint in page.complaints())


def test_rule_79_what_a_passkey_says_counts_once_here_and_unchanged(browser, make_server):
    # Of its own: here is tried more often than anybody may try.
    server = ByName(make_server())
    name, other = next(_names), next(_names)
    for user in (name, other):
        server.command("users", "add", user)
    with browser.open("about:blank", *WIDE) as page:
        device = with_authenticator(page)
        join(page, server, name)
        go(page, server.url + "/profile")
        add_passkey(page, "phone")
        page.wait_for("document.querySelector('[aria-labelledby=passkeys] strong')?.textContent === 'phone'")
        press(page, "Sign out")
        at(page, "/sign-in")
        page.wait_for("document.querySelector('#use-passkey')?.hidden === false")
        hold(page)

        def send(**fields):
            return Visitor(server).send("/sign-in/passkey", **fields)

        good = said(page)
        assert set(good) == set(FIELDS)
        opened = Visitor(server)
        assert opened.send("/sign-in/passkey", **good).status_code == 303
        assert name in opened.page("/profile")
        refused = send(**good)
        assert refused.status_code == 401 and "not known here" in alert(refused) and "Set-Cookie" not in refused.headers

        # Nothing of it may be changed, and what is unknown is answered in the same way.
        fresh = said(page)
        client = json.loads(decoded(fresh["client_data"]))
        wrong = {
            "signature": changed(fresh["signature"], 20),
            "authenticator_data": changed(fresh["authenticator_data"], 0),
            "credential": changed(fresh["credential"], 0),
            "user_handle": changed(fresh["user_handle"], 0),
        }
        cases = [fresh | {field: value} for field, value in wrong.items()]
        cases += [fresh | {"client_data": encoded(json.dumps(client | change).encode())} for change in (
            {"origin": "https://evil.example"}, {"type": "webauthn.create"}, {"challenge": encoded(b"guessed")}, {"crossOrigin": True})]
        # One that was asked for elsewhere: another server has another pepper.
        cases += [fresh | {"signature": ""}, fresh | {"client_data": ""}, dict.fromkeys(FIELDS, "")]
        for case in cases:
            answer = send(**case)
            assert answer.status_code == 401 and seen(answer)[2] == seen(refused)[2], case
        for broken in ("!", "a", "=", "é"):
            assert send(**fresh | {"signature": broken}).status_code == 400
        # What another site sends is not even looked at.
        foreign = Visitor(server).request("POST", "/sign-in/passkey", headers={"Sec-Fetch-Site": "cross-site"}, data=fresh)
        assert foreign.status_code == 403
        # All of this has not used it up.
        assert send(**fresh).status_code == 303

        # A device that does not ask who is there opens nothing.
        page.call("WebAuthn.setUserVerified", authenticatorId=device, isUserVerified=False)
        press(page, "Sign in with a passkey")
        page.wait_for("document.querySelector('#use-passkey .problem').textContent.includes('was cancelled, took too long')")
        page.call("WebAuthn.setUserVerified", authenticatorId=device, isUserVerified=True)

        # A new password by invitation takes the passkeys away with the sessions.
        invited(server, name)
        assert send(**said(page)).status_code == 401
        # Guesses from one address have to wait.
        answers = [send(**fresh).status_code for _ in range(40)]
        assert answers[0] == 401 and answers[-1] == 429
        assert Visitor(server).sign_in(name, PASSWORD).status_code == 429


def test_rule_79_passkeys_need_a_name_and_a_session(server, visitor):
    assert visitor.get("/sign-in/passkey").status_code == 404
    assert "use-passkey" not in Visitor(server).page("/sign-in") and "add-passkey" not in visitor.page("/profile")
    by_name = ByName(server)
    asked = Visitor(by_name).get("/sign-in/passkey").json()
    assert asked["rpId"] == "localhost" and asked["userVerification"] == "required"
    assert Visitor(by_name).get("/sign-in/passkey").json()["challenge"] != asked["challenge"]
    for path in ("/profile/passkeys/begin", "/profile/passkeys", f"/profile/passkeys/{'0' * 16}/remove"):
        answer = Visitor(by_name).send(path, current=PASSWORD)
        assert (answer.status_code, answer.headers["Location"]) == (303, "/sign-in"), path
    here = Visitor(by_name, visitor.cookie)
    assert here.send("/profile/passkeys/begin", current="wrong").status_code == 403
    options = here.send("/profile/passkeys/begin", current=PASSWORD).json()
    assert options["attestation"] == "none" and options["authenticatorSelection"]["userVerification"] == "required"
    # The name of a user stays out of what the device keeps as a handle.
    assert len(decoded(options["user"]["id"])) == 16
    assert here.send("/profile/passkeys", name="x", client_data="e30", authenticator_data="").status_code == 400
    assert here.send(f"/profile/passkeys/{'0' * 16}/remove").status_code == here.get(f"/profile/passkeys/{'0' * 16}/remove").status_code == 404


def test_rule_16_a_foreign_passkey_is_as_one_that_does_not_exist(browser, by_name, visitor):
    name = next(_names)
    by_name.command("users", "add", name)
    with browser.open("about:blank", *WIDE) as page:
        with_authenticator(page)
        join(page, by_name, name)
        go(page, by_name.url + "/profile")
        add_passkey(page, "phone")
        link = page.wait_for("document.querySelector('[aria-labelledby=passkeys] li a')?.getAttribute('href')")
        for method in ("GET", "POST"):
            ours = {"Sec-Fetch-Site": "same-origin"}
            foreign, unknown = (visitor.request(method, path, headers=ours) for path in (link, f"/profile/passkeys/{'0' * 16}/remove"))
            assert foreign.status_code == 404 and seen(foreign) == seen(unknown)
        go(page, by_name.url + "/profile")
        page.wait_for("document.querySelector('[aria-labelledby=passkeys] strong')?.textContent === 'phone'")
