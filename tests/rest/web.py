"""Somebody at the web application without a browser: sends what a browser would, and keeps the cookie that it would keep."""

import re

import requests

COOKIE = "__Host-session"


class Visitor:
    """A browser as far as HTTP shows it. Forms come from our own pages unless a test says otherwise."""

    def __init__(self, server, cookie: str | None = None, agent: str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"):
        self.server = server
        self.cookie = cookie
        self.agent = agent
        self.session = requests.Session()
        self.session.trust_env = False

    def request(self, method: str, path: str, headers: dict | None = None, **options) -> requests.Response:
        """A request to a page; redirects are not followed."""
        sent = {"User-Agent": self.agent}
        if self.cookie is not None:
            # By hand: the library would keep what is Secure from plain http, where browsers make an exception for this machine.
            sent["Cookie"] = f"{COOKIE}={self.cookie}"
        url = path if path.startswith("http") else self.server.url_of_a_request() + path
        answer = self.session.request(method, url, headers=sent | (headers or {}), allow_redirects=False, timeout=60, **options)
        self.session.cookies.clear()
        given = re.match(rf"{COOKIE}=([^;]*);(.*)", answer.headers.get("Set-Cookie", ""))
        if given:
            self.cookie = given[1] or None
        return answer

    def get(self, path: str, **options) -> requests.Response:
        return self.request("GET", path, **options)

    def send(self, path: str, headers: dict | None = None, **fields) -> requests.Response:
        """Sends a form of a page of the server."""
        return self.request("POST", path, headers={"Sec-Fetch-Site": "same-origin"} | (headers or {}), data=fields)

    def sign_in(self, name: str, password: str) -> requests.Response:
        return self.send("/sign-in", name=name, password=password)

    def page(self, path: str) -> str:
        """The page; it must be there."""
        answer = self.get(path)
        assert answer.status_code == 200, (answer.status_code, answer.text)
        return answer.text


PASSWORD = "correct horse battery"


def invite(server, name: str) -> str:
    """The path of a link for a user."""
    link = server.command("users", "invite", name)["link"]
    return link[link.index("/invitation/") :]


def invited(server, name: str, password: str = PASSWORD) -> Visitor:
    """A user who has just chosen a password."""
    visitor = Visitor(server)
    answer = visitor.send(invite(server, name), password=password, again=password)
    assert answer.status_code == 303, answer.text
    return visitor
