"""What lies in a place of a store, asked of the store itself as its owner: how tests see what a server has written there, and lose it."""

import base64
import hmac
import http.client
import xml.etree.ElementTree
from datetime import datetime, timezone
from email.utils import format_datetime
from urllib.parse import parse_qs, quote, urlsplit

from . import google

# Every answer must come, however busy the machine is.
WITHIN_SECONDS = 60


class Place:
    """A place in a store of the tests' own, by its address. `open_with` is the account and the key of the store that is asked, `port`
    where it is, if not where the address says: Google's dialect is a mask, and who owns the store behind it asks that one."""

    def __init__(self, address: str, open_with: tuple[str, str], port: int | None = None):
        parts = urlsplit(address)
        self.account_and_key = open_with
        self.is_azure = parts.scheme == "az"
        endpoint = urlsplit(parse_qs(parts.query)["endpoint"][0])
        self.port = port or endpoint.port
        names = ([parts.netloc] if parts.netloc else []) + parts.path.strip("/").split("/")
        # The path of the bucket, as its store's clients ask for it, and the beginning of all names in it.
        first = 2 if self.is_azure else 1
        self.bucket = "/" + "/".join(names[:first])
        self.prefix = "".join(f"{name}/" for name in names[first:])

    def names(self) -> dict[str, int]:
        """All that lies there, with the number of its bytes."""
        found: dict[str, int] = {}
        query = {"prefix": self.prefix} | ({"restype": "container", "comp": "list"} if self.is_azure else {"list-type": "2"})
        name_of, next_of, next_is = ("Name", "NextMarker", "marker") if self.is_azure else ("Key", "NextContinuationToken", "continuation-token")
        size_of = "Content-Length" if self.is_azure else "Size"
        more: str | None = None
        while True:
            status, body = self._ask(self.bucket, query | ({next_is: more} if more else {}))
            if status != 200:
                raise AssertionError(f"the list of {self.bucket}{self.prefix} is {status}: {body[:500]!r}")
            more = None
            names, sizes = [], []
            for element in xml.etree.ElementTree.fromstring(body).iter():
                tag, text = element.tag.rsplit("}", 1)[-1], element.text or ""
                if tag == name_of:
                    names.append(text)
                elif tag == size_of:
                    sizes.append(int(text))
                elif tag == next_of and text:
                    more = text
            found |= {name.removeprefix(self.prefix): size for name, size in zip(names, sizes, strict=True)}
            if more is None:
                return found

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; nothing if it is not there."""
        status, body = self._ask(f"{self.bucket}/{self.prefix}{name}", {})
        if status == 404:
            return None
        if status != 200:
            raise AssertionError(f"{name} is {status}: {body[:500]!r}")
        return body

    def size(self, name: str) -> int | None:
        """The number of bytes of a file; nothing if it is not there."""
        # The length of a file that is not sent is in the head of the answer only.
        status, length = self._ask(f"{self.bucket}/{self.prefix}{name}", {}, "HEAD")
        if status == 404:
            return None
        if status != 200:
            raise AssertionError(f"the head of {name} is {status}")
        return int(length)

    def remove(self, name: str) -> None:
        """Removes a file that is there, as a mishap would."""
        status, body = self._ask(f"{self.bucket}/{self.prefix}{name}", {}, "DELETE")
        if status not in (200, 202, 204):
            raise AssertionError(f"{name} could not be removed, {status}: {body[:500]!r}")

    def _ask(self, path: str, query: dict[str, str], method: str = "GET") -> tuple[int, bytes]:
        account, key = self.account_and_key
        path = quote(path, safe="/-_.~")
        encoded = "&".join(f"{quote(n, safe='-_.~')}={quote(v, safe='-_.~')}" for n, v in sorted(query.items()))
        headers = azure_headers(method, path, query, account, key) if self.is_azure else self._headers_of_s3(method, path, encoded)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_SECONDS)
        try:
            connection.request(method, path + (f"?{encoded}" if encoded else ""), headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            return answer.status, (answer.getheader("Content-Length") or "0").encode() if method == "HEAD" else body
        finally:
            connection.close()

    def _headers_of_s3(self, method: str, path: str, encoded: str) -> dict[str, str]:
        return google.authorization(method, path, encoded, {"host": f"127.0.0.1:{self.port}"}, *self.account_and_key)


def azure_headers(method: str, path: str, query: dict[str, str], account: str, key: str) -> dict[str, str]:
    """The headers of a request without a body by which Azure knows the owner of an account (Shared Key)."""
    headers = {"x-ms-date": format_datetime(datetime.now(timezone.utc), usegmt=True), "x-ms-version": "2023-11-03"}
    lines = [method, *[""] * 11, *[f"{name}:{value}" for name, value in headers.items()]]
    # The emulator has the account in its paths; there it stands twice.
    lines += [f"/{account}{path}", *[f"{name}:{value}" for name, value in sorted(query.items())]]
    signature = hmac.digest(base64.b64decode(key), "\n".join(lines).encode(), "sha256")
    return headers | {"Authorization": f"SharedKey {account}:{base64.b64encode(signature).decode()}"}
