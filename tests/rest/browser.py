"""A real browser without a window, driven over the DevTools protocol through a pipe. WebGL is drawn by the processor."""

import base64
import contextlib
import io
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
from PIL import Image

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
SWITCHES = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--no-first-run", "--disable-extensions", "--disable-dev-shm-usage",
    "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--hide-scrollbars", "--disable-background-networking",
)


# What the browser says of a command whose page gave way to the next one before it had answered.
GIVEN_WAY = ("Inspected target navigated or closed", "Execution context was destroyed", "Cannot find context with specified id")


class PageLeft(Exception):
    """The page gave way to the next one before it had answered."""


class Browser:
    """A Chromium process with a profile of its own in `folder`."""

    def __init__(self, folder: Path):
        theirs, self._commands = os.pipe()
        self._answers, ours = os.pipe()

        def as_3_and_4():
            # The browser reads descriptor 3 and writes to 4. First out of each other's way, and of these numbers.
            high = [os.dup2(fd, 100 + k) for k, fd in enumerate((theirs, ours))]
            for k, fd in enumerate(high):
                os.dup2(fd, 3 + k)

        self.process = subprocess.Popen(
            [CHROMIUM, *SWITCHES, f"--user-data-dir={folder}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, pass_fds=(3, 4), preexec_fn=as_3_and_4,
        )
        os.close(theirs)
        os.close(ours)
        self._received = b""
        self._last_id = 0
        self.events: list[dict] = []

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._commands)
        os.close(self._answers)

    def _next(self, end: float) -> dict:
        """The next message of the browser."""
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._answers], [], [], max(0, end - time.monotonic()))
            more = os.read(self._answers, 1 << 20) if ready else b""
            if not more:
                raise AssertionError("the browser has ended" if ready else "the browser does not answer")
            self._received += more
        message, self._received = self._received.split(b"\0", 1)
        return json.loads(message)

    def call(self, method: str, session: str | None = None, within: float = 60, **parameters) -> dict:
        """Sends a command and returns its result; events that come meanwhile are kept."""
        self._last_id += 1
        command = {"id": self._last_id, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        payload = json.dumps(command).encode() + b"\0"
        while payload:
            payload = payload[os.write(self._commands, payload) :]
        end = time.monotonic() + within
        while True:
            message = self._next(end)
            if message.get("id") == self._last_id:
                if message.get("error", {}).get("message", "").startswith(GIVEN_WAY):
                    raise PageLeft(f"{method}: {message['error']['message']}")
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self.events.append(message)

    def open(self, address: str, width: int, height: int, pixel_ratio: float = 1) -> "Page":
        return Page(self, address, width, height, pixel_ratio)


class Page:
    """A tab."""

    def __init__(self, browser: Browser, address: str, width: int, height: int, pixel_ratio: float):
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=pixel_ratio, mobile=False)
        self.call("Page.navigate", url=address)

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)

    def call(self, method: str, **parameters) -> dict:
        return self.browser.call(method, session=self.session, **parameters)

    def evaluate(self, expression: str):
        """The value of an expression in the page, awaited if it is a promise."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str, within: float = 60):
        """Waits until the expression is true in the page, or in the one that follows it, and returns its value."""
        end = time.monotonic() + within
        while True:
            with contextlib.suppress(PageLeft):
                if value := self.evaluate(expression):
                    return value
                assert time.monotonic() < end, f"not within {within} s: {expression}; {self.complaints()}"
            assert time.monotonic() < end + 1, f"one page after another for {within} s: {expression}"
            time.sleep(0.05)

    def follow(self, expression: str) -> None:
        """Evaluates what may lead to another page: then the one that is left need not answer."""
        with contextlib.suppress(PageLeft):
            self.evaluate(expression)

    def choose_files(self, selector: str, files: list[Path]) -> None:
        """Chooses files for a field of a form, as a person does in the window that the browser opens for it."""
        field = self.call("Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})")["result"]["objectId"]
        self.call("DOM.setFileInputFiles", files=[str(file) for file in files], objectId=field)

    def drop_files(self, selector: str, files: list[Path]) -> None:
        """Drops files in the middle of an element."""
        box = self.evaluate(f"(({{ left, top, width, height }}) => [left + width / 2, top + height / 2])(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=box[0], y=box[1], data=data)

    def key(self, code: str, seconds: float = 0) -> None:
        """Presses a key, for so long."""
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", code=code, key=code)
        time.sleep(seconds)
        self.call("Input.dispatchKeyEvent", type="keyUp", code=code, key=code)

    def mouse(self, kind: str, x: float, y: float, **more) -> None:
        """A mouse event: mousePressed, mouseMoved, mouseReleased, mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self) -> np.ndarray:
        """What is seen: height x width x 3, 0 to 255."""
        png = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))

    def complaints(self) -> list:
        """What the browser finds wrong: exceptions, errors in the console, violations of the page's policy."""
        self.evaluate("0")
        mine = [event for event in self.browser.events if event.get("sessionId") == self.session]
        found = [event["params"]["exceptionDetails"] for event in mine if event["method"] == "Runtime.exceptionThrown"]
        found += [e["params"]["entry"] for e in mine if e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error"]
        found += [e["params"]["args"] for e in mine if e["method"] == "Runtime.consoleAPICalled" and e["params"]["type"] == "error"]
        return found


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    """Peak signal-to-noise ratio of two pictures in decibels."""
    assert a.shape == b.shape, (a.shape, b.shape)
    return float(10 * np.log10(255**2 / max(1e-9, np.mean((a.astype(float) - b) ** 2))))
