"""Signing in by another service (docs/web.md): OpenID Connect, with a provider that can be wrong in every way."""

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from .provider import CLIENT, SECRET, Key, Provider, encoded
from .server import CommandFailed
from .test_machine import wait_for
from .test_web import alert
from .web import PASSWORD, Visitor, invited

BACK = "/sign-in/company/return"
ENVIRONMENT = {"LIBRECONSTRUCT_OIDC_CLIENT_SECRET": SECRET}


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    provider = Provider(tmp_path_factory.mktemp("provider"))
    yield provider
    provider.close()


@pytest.fixture(autouse=True)
def honest(provider):
    """Each test begins with a provider that tells the truth, of somebody new."""
    provider.change = lambda claims: claims
    provider.sign = lambda claims: provider.key.sign(claims)
    provider.claims = {"sub": f"subject-{time.monotonic_ns()}"}


@pytest.fixture(scope="module")
def server(make_server, provider):
    """Its own for this module: of one address only so many may try."""
    return make_server({"oidc": provider.settings()}, ENVIRONMENT)


def leave(visitor) -> tuple[str, str]:
    """Goes to sign in: the cookie for the way, and where the provider sends the browser back to."""
    left = visitor.get("/sign-in/company")
    assert left.status_code == 303, left.text
    way = re.match(r"__Host-way=([0-9a-f]{64}); Path=/; Max-Age=900; Secure; HttpOnly; SameSite=Lax$", left.headers["Set-Cookie"])[1]
    there = requests.get(left.headers["Location"], allow_redirects=False)
    return way, there.headers["Location"]


def come_back(visitor, way: str, address: str):
    return visitor.get(urlsplit(address)._replace(scheme="", netloc="").geturl(), headers={"Cookie": f"__Host-way={way}"})


def sign_in(server):
    visitor = Visitor(server)
    return visitor, come_back(visitor, *leave(visitor))


def linked(server, provider, name: str) -> str:
    server.user(name)
    server.command("users", "link", name, provider.claims["sub"])
    return name


def test_who_is_linked_signs_in_and_nobody_else(server, provider):
    assert "Sign in with Example Ltd" in Visitor(server).page("/sign-in")
    visitor, refused = sign_in(server)
    assert refused.status_code == 403 and "Nobody here is known by this account" in alert(refused) and visitor.cookie is None
    name = linked(server, provider, "olga")
    visitor, answer = sign_in(server)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/scenes"), answer.text
    assert name in visitor.page("/profile")
    assert "__Host-way=;" in answer.headers["Set-Cookie"]
    # Somebody's account is nobody else's.
    server.user("other")
    with pytest.raises(CommandFailed, match="somebody's already"):
        server.command("users", "link", "other", provider.claims["sub"])
    assert server.command("users", "unlink", name)["unlinked"] == 1
    assert sign_in(server)[1].status_code == 403 and visitor.get("/scenes").status_code == 200
    # The password is a way of its own.
    assert invited(server, name).get("/scenes").status_code == 200


def test_an_answer_counts_once_and_in_the_browser_that_has_asked(server, provider):
    linked(server, provider, "once")
    visitor = Visitor(server)
    way, address = leave(visitor)
    other_way, other_address = leave(visitor)
    state = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    assert state["state"] not in other_address
    cases = [
        # Somebody else's browser, or none; the answer to another question; none of ours.
        (other_way, address), ("", address), ("0" * 64, address), (way, other_address),
        (way, f"{BACK}?code={state['code']}"), (way, f"{BACK}?code={state['code']}&state=made.up.x"),
    ]
    for kept, given in cases:
        answer = come_back(Visitor(server), kept, given)
        assert answer.status_code == 401 and "began in another browser" in alert(answer), given
    # The provider has refused.
    refused = come_back(Visitor(server), way, f"{BACK}?error=access_denied&state={state['state']}")
    assert refused.status_code == 401 and "not signed in there" in alert(refused)
    assert come_back(visitor, way, address).status_code == 303
    cookie = visitor.cookie
    # The same again: the code is used, and if it were not, the state is.
    again = Visitor(server)
    assert come_back(again, way, address).status_code == 401 and again.cookie is None
    provider.codes[state["code"]] = {"redirect_uri": server.url + BACK, "code_challenge": "", "nonce": ""}
    kept_token = provider.token
    try:
        # A provider that takes a code twice.
        provider.token = lambda form, authorization: (
            200, {"id_token": provider.key.sign({"iss": provider.url, "aud": CLIENT, "sub": provider.claims["sub"], "iat": time.time(),
                                                 "exp": time.time() + 300, "nonce": nonce_of(way)})})
        replayed = come_back(again, way, address)
    finally:
        provider.token = kept_token
    assert replayed.status_code == 401 and "done already" in alert(replayed) and again.cookie is None
    assert Visitor(server, cookie).get("/scenes").status_code == 200


def nonce_of(way: str) -> str:
    """What the server asks for while a browser keeps this."""
    import hashlib

    return hashlib.sha256(f"nonce\n{way}".encode()).hexdigest()


@pytest.mark.parametrize("wrong", ["nonce", "aud", "iss", "expired", "future", "azp", "sub", "signature", "unsigned", "symmetric", "foreign key", "no token"])
def test_what_does_not_hold_is_not_believed(server, provider, wrong, tmp_path):
    linked(server, provider, f"wrong {wrong}")
    changes = {
        "nonce": {"nonce": "another"}, "aud": {"aud": "another"}, "iss": {"iss": "https://evil.example"}, "azp": {"azp": "another"},
        "expired": {"exp": int(time.time()) - 120}, "future": {"iat": int(time.time()) + 600}, "sub": {"sub": ""},
    }
    provider.change = lambda claims: claims | changes.get(wrong, {})
    if wrong == "signature":
        provider.sign = lambda claims: provider.key.sign(claims)[:-8] + "AAAAAAAA"
    elif wrong == "unsigned":
        provider.sign = lambda claims: provider.key.sign(claims, {"alg": "none"}).rsplit(".", 1)[0] + "."
    elif wrong == "symmetric":
        provider.sign = lambda claims: provider.key.sign(claims, {"alg": "HS256"})
    elif wrong == "foreign key":
        foreign = Key(tmp_path, "first")
        provider.sign = foreign.sign
    elif wrong == "no token":
        provider.sign = lambda claims: encoded(b"{}")
    visitor, answer = sign_in(server)
    assert answer.status_code == 401 and "does not hold" in alert(answer) and visitor.cookie is None, answer.text
    # What was wrong is for the log, and nothing secret is.
    assert "an answer of oidc.issuer is not believed" in server.log_text() and SECRET not in server.log_text()
    honest_again = lambda claims: provider.key.sign(claims)  # noqa: E731
    provider.change, provider.sign = (lambda claims: claims), honest_again
    assert sign_in(server)[1].status_code == 303


def test_a_provider_may_change_its_keys(make_server, provider, tmp_path):
    server = make_server({"oidc": provider.settings()}, ENVIRONMENT)
    linked(server, provider, "keys")
    assert sign_in(server)[1].status_code == 303
    asked = provider.asked_for_keys
    assert sign_in(server)[1].status_code == 303 and provider.asked_for_keys == asked
    before = provider.key
    provider.key = Key(tmp_path, "second")
    provider.keys = [before, provider.key]
    try:
        # Not for each token that is signed by nobody: that would be asked by whoever likes.
        assert sign_in(server)[1].status_code == 401 and provider.asked_for_keys == asked
        time.sleep(5.1)
        assert sign_in(server)[1].status_code == 303 and provider.asked_for_keys == asked + 1
    finally:
        provider.key, provider.keys = before, [before]


def test_users_are_added_if_the_operator_wants_it_and_are_who_is_admitted(make_server, provider):
    server = make_server({"oidc": provider.settings(create_users=True, allowed_domains=["example.org"], required_claims=["groups=scenes"])}, ENVIRONMENT)
    member = provider.claims | {"email": "nora@example.org", "email_verified": True, "groups": ["staff", "scenes"]}
    for change in ({"email_verified": False}, {"email": "nora@evil.example"}, {"groups": ["staff"]}, {"groups": None}):
        provider.claims = member | change
        visitor, answer = sign_in(server)
        assert answer.status_code == 403 and "not among those" in alert(answer) and visitor.cookie is None
    assert server.command("users", "list")["users"] == []
    provider.claims = member
    visitor, answer = sign_in(server)
    assert answer.status_code == 303, answer.text
    assert "nora@example.org" in visitor.page("/profile")
    [user] = server.command("users", "list")["users"]
    assert (user["name"], user["tier"]) == ("nora@example.org", "free")
    # Again it is the same user, by another name too.
    provider.claims = member | {"email": "nora.new@example.org"}
    assert sign_in(server)[1].status_code == 303 and len(server.command("users", "list")["users"]) == 1
    # A name that is taken is not taken over.
    server.user("boss@example.org")
    provider.claims = member | {"sub": "somebody else", "email": "boss@example.org"}
    visitor, answer = sign_in(server)
    assert answer.status_code == 403 and "already" in alert(answer) and visitor.cookie is None
    # Who may sign in no more does not.
    provider.claims = member | {"groups": []}
    assert sign_in(server)[1].status_code == 403


def test_a_provider_that_is_away_or_wrong_is_said_to_be_so(make_server, provider):
    settings = provider.settings()
    for changed in (
        settings | {"issuer": "http://127.0.0.1:9"}, settings | {"issuer": provider.url + "/"}, settings | {"issuer": provider.url + "/nowhere"},
        # Nothing leads into the operator's network that the operator has not named.
        settings | {"allowed_networks": [], "issuer": provider.url.replace("127.0.0.1", "localhost")},
    ):
        server = make_server({"oidc": changed}, ENVIRONMENT)
        answer = Visitor(server).get("/sign-in/company")
        assert answer.status_code == 502 and "try again later" in alert(answer).lower() and "Set-Cookie" not in answer.headers, changed
        assert "oidc.issuer" in server.log_text()
        # Passwords go on.
        server.user("anna")
        assert invited(server, "anna").get("/scenes").status_code == 200


def test_a_provider_that_hangs_is_waited_for_once(make_server, provider):
    with socket.create_server(("127.0.0.1", 0), backlog=16) as silent, ThreadPoolExecutor(4) as pool:
        server = make_server({"oidc": provider.settings() | {"issuer": f"http://127.0.0.1:{silent.getsockname()[1]}"}}, ENVIRONMENT)
        began = time.monotonic()
        answers = list(pool.map(lambda visitor: visitor.get("/sign-in/company"), [Visitor(server) for _ in range(4)]))
        # One try lasts for ten seconds; one after the other they would be forty.
        assert [answer.status_code for answer in answers] == [502] * 4 and time.monotonic() - began < 30


def test_a_provider_that_has_failed_is_asked_again_after_a_while(make_server, provider):
    server = make_server({"oidc": provider.settings()}, ENVIRONMENT)
    provider.metadata["issuer"] = "http://another.example"
    try:
        assert Visitor(server).get("/sign-in/company").status_code == 502
    finally:
        provider.metadata["issuer"] = provider.url
    wait_for(lambda: Visitor(server).get("/sign-in/company").status_code == 303, "a way to sign in", within=30)


def test_it_is_off_unless_it_is_set_and_settings_are_checked(make_server, server, provider):
    off = make_server()
    assert "/sign-in/company" not in Visitor(off).page("/sign-in")
    for path in ("/sign-in/company", BACK):
        assert Visitor(off).get(path).status_code == 404
    for settings, word in (
        ({"issuer": "http://login.example.org", "client_id": "x"}, "without TLS"), ({"issuer": "https://10.0.0.1", "client_id": "x"}, "no other may be told"),
        ({"issuer": "https://login.example.org"}, "oidc.client_id"), (provider.settings(create_users=True), "whoever has an account"),
    ):
        with pytest.raises(CommandFailed, match=word):
            make_server({"oidc": settings}, start=False).command("users", "list")
    # The secret is printed nowhere.
    assert SECRET not in server.log_text()


def test_a_secret_may_come_from_a_file_and_go_with_the_form(make_server, provider, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    provider.methods = provider.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    try:
        server = make_server({"oidc": provider.settings(client_secret_file=str(secret))})
        linked(server, provider, "file")
        assert sign_in(server)[1].status_code == 303
        secret.write_text("another")
        server.stop()
        server.start()
        assert sign_in(server)[1].status_code == 401
    finally:
        provider.methods = ["client_secret_basic"]
        del provider.metadata["token_endpoint_auth_methods_supported"]


def test_tries_from_one_address_have_to_wait(make_server, provider):
    server = make_server({"oidc": provider.settings()}, ENVIRONMENT)
    answers = [come_back(Visitor(server), "0" * 64, f"{BACK}?code=x&state=y").status_code for _ in range(40)]
    assert answers[0] == 401 and answers[-1] == 429
    assert Visitor(server).sign_in("anna", PASSWORD).status_code == 429
