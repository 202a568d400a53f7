"""A service that knows who somebody is (OpenID Connect), as strict as it has to be, and with the faults that a test wants of it."""

import base64
import hashlib
import json
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import pytest

CLIENT, SECRET = "scenes", "s3cret:with+signs"


def encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


class Key:
    """An RSA key in a file, used by OpenSSL."""

    def __init__(self, folder: Path, kid: str):
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        self.path, self.kid = folder / f"{kid}.pem", kid
        subprocess.run(["openssl", "genrsa", "-out", self.path, "2048"], check=True, capture_output=True)
        modulus = subprocess.run(["openssl", "rsa", "-in", self.path, "-noout", "-modulus"], check=True, capture_output=True, text=True).stdout
        self.modulus = bytes.fromhex(modulus.strip().removeprefix("Modulus="))

    @property
    def public(self) -> dict:
        return {"kty": "RSA", "kid": self.kid, "use": "sig", "alg": "RS256", "n": encoded(self.modulus), "e": "AQAB"}

    def sign(self, claims: dict, header: dict | None = None) -> str:
        header = {"alg": "RS256", "kid": self.kid, "typ": "JWT"} | (header or {})
        signed = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
        made = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.path], input=signed.encode(), check=True, capture_output=True)
        return f"{signed}.{encoded(made.stdout)}"


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        provider, address = self.server.provider, urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(address.query).items()}
        if address.path == "/.well-known/openid-configuration":
            self.reply(200, provider.metadata)
        elif address.path == "/keys":
            provider.asked_for_keys += 1
            self.reply(200, {"keys": [{"kty": "strange"}, *(key.public for key in provider.keys)]})
        elif address.path == "/authorize":
            self.send_response(302)
            self.send_header("Location", provider.authorize(asked))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.reply(404, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self.reply(*self.server.provider.token(form, self.headers.get("Authorization")))

    def reply(self, status: int, value: dict) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Provider:
    """Signs in as `claims` says whoever comes; `change` may change what its token says, `sign` how it is signed."""

    def __init__(self, folder: Path):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.server.daemon_threads = True
        self.server.provider = self
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.folder = folder
        self.key = Key(folder, "first")
        self.keys = [self.key]
        self.asked_for_keys = 0
        self.claims: dict = {"sub": "7"}
        self.change: Callable[[dict], dict] = lambda claims: claims
        self.sign: Callable[[dict], str] = lambda claims: self.key.sign(claims)
        self.methods = ["client_secret_basic"]
        self.codes: dict[str, dict] = {}
        self.metadata = {
            "issuer": self.url, "authorization_endpoint": f"{self.url}/authorize", "token_endpoint": f"{self.url}/token", "jwks_uri": f"{self.url}/keys",
        }
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def settings(self, **more) -> dict:
        return {"issuer": self.url, "client_id": CLIENT, "name": "Example Ltd", "allow_http": True, "allowed_networks": ["127.0.0.0/8"]} | more

    def authorize(self, asked: dict) -> str:
        """Where the browser goes back to."""
        assert asked["response_type"] == "code" and asked["client_id"] == CLIENT and "openid" in asked["scope"].split()
        assert asked["code_challenge_method"] == "S256" and len(asked["code_challenge"]) == 43 and asked["nonce"] and asked["state"]
        code = secrets.token_urlsafe()
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state'], 'iss': self.url})}"

    def token(self, form: dict, authorization: str | None) -> tuple[int, dict]:
        """The answer to a code, which counts once, from who has the secret and the verifier."""
        if "client_secret_basic" in self.methods:
            pair = base64.b64decode((authorization or "").removeprefix("Basic ")).decode()
            client, secret = (unquote_plus(part) for part in pair.split(":", 1)) if ":" in pair else ("", "")
        else:
            client, secret = form.get("client_id"), form.get("client_secret")
        if (client, secret) != (CLIENT, SECRET):
            return 401, {"error": "invalid_client"}
        asked = self.codes.pop(form.get("code", ""), None)
        if form.get("grant_type") != "authorization_code" or asked is None or asked["redirect_uri"] != form.get("redirect_uri"):
            return 400, {"error": "invalid_grant"}
        if encoded(hashlib.sha256(form["code_verifier"].encode()).digest()) != asked["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"]} | self.claims
        return 200, {"access_token": "x", "token_type": "Bearer", "id_token": self.sign(self.change(claims))}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
