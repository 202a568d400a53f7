"""Rule 72 of docs/rest.md: the page of a public scene in a real browser shows what our own renderer shows."""

import base64
import functools
import gzip
import html
import http.server
import json
import re
import struct
import subprocess
import threading

import numpy as np
import pytest
from PIL import Image
from prerequisites import is_missing

from .browser import CHROMIUM, Browser, psnr
from .server import BINARY, ROOT
from .test_reconstruction import follow
from .test_view import anyone, public, viewing  # noqa: F401 (fixtures)

SOURCES = ROOT / "server/src/http/view"
SCRIPTS = ("spz.js", "worker.js", "renderer.js", "camera.js", "controls.js", "ruler.js", "viewer.js")
READY = "document.querySelector('main')?.dataset.state"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        is_missing("browser", "Chromium")
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


def only_the_canvas(page) -> None:
    """Takes away what is written over the picture, and waits for it."""
    page.wait_for(f"{READY} === 'ready'")
    page.evaluate("for (const other of document.querySelectorAll('main > :not(canvas)')) other.remove()")
    page.evaluate("document.querySelector('canvas').style.outline = 'none'")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def rendered(folder, scene, camera: dict, width: int, height: int) -> np.ndarray:
    """What our renderer shows, with the angle of view of the page."""
    (folder / "camera.json").write_text(json.dumps(camera))
    picture = folder / "rendered.jpg"
    angle = 50 if width >= height else np.degrees(2 * np.arctan(np.tan(np.radians(25)) * height / width))
    command = [BINARY, "render", scene, "--camera", folder / "camera.json", "--field-of-view", str(angle), "--aspect", str(width / height),
               "--max-resolution", str(max(width, height)), "--device", "cpu", "-o", picture]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return np.asarray(Image.open(picture))


def moved(camera: dict) -> dict:
    """The same camera, a tenth of its distance to the side."""
    distance = sum((camera["position"][k] - camera["lookAt"][k]) ** 2 for k in "xyz") ** 0.5
    return camera | {"position": camera["position"] | {"x": camera["position"]["x"] + 0.1 * distance}}


@pytest.mark.parametrize(("width", "height", "ratio"), [(640, 360, 1), (240, 320, 1.5)])
def test_rule_72_a_browser_shows_what_we_render(browser, anyone, wendy, public, tmp_path, width, height, ratio):
    scene = tmp_path / "scene.spz"
    scene.write_bytes(follow(wendy, f"/api/v1/jobs/{public}/download/spz/").content)
    camera = wendy.job(public)["camera_data"]
    with browser.open(f"{anyone.server.url}/view/{public}", width, height, ratio) as page:
        only_the_canvas(page)
        shown = page.screenshot()
        assert page.complaints() == []
    width, height = round(ratio * width), round(ratio * height)
    right = psnr(shown, rendered(tmp_path, scene, camera, width, height))
    wrong = psnr(shown, rendered(tmp_path, scene, moved(camera), width, height))
    print(f"{width} x {height}: {right:.1f} dB, from elsewhere {wrong:.1f} dB")
    assert right > 30 and right > wrong + 8


def some_spz(version: int, degree: int) -> bytes:
    """A cloud of coloured ellipsoids of all shapes and directions, whose colours depend on the direction as far as `degree` allows."""
    random = np.random.default_rng(7)
    count, bits = 400, 12
    means = random.normal(0, 0.6, (count, 3))
    if version == 1:
        positions = means.astype("<f2").tobytes()
    else:
        fixed = np.round(means * 2**bits).astype("<i4")
        positions = fixed.view(np.uint8).reshape(count, 3, 4)[:, :, :3].tobytes()
    opacities, colours = random.integers(0, 256, count, dtype=np.uint8), random.integers(30, 226, (count, 3), dtype=np.uint8)
    scales = random.integers(70, 142, (count, 3), dtype=np.uint8)
    quaternions = random.normal(size=(count, 4))
    quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
    if version < 3:
        quaternions *= np.where(quaternions[:, 3:] < 0, -1, 1)
        rotations = np.round(quaternions[:, :3] * 127.5 + 127.5).astype(np.uint8).tobytes()
    else:
        rotations = b"".join(struct.pack("<I", smallest_three(q)) for q in quaternions)
    harmonics = random.integers(64, 193, (count, 3 * ((degree + 1) ** 2 - 1)), dtype=np.uint8)
    header = struct.pack("<IIIBBBB", 0x5053474E, version, count, degree, bits, 0, 0)
    parts = (positions, opacities, colours, scales, rotations, harmonics)
    return gzip.compress(header + b"".join(part if isinstance(part, bytes) else part.tobytes() for part in parts))


def smallest_three(quaternion) -> int:
    """A quaternion x, y, z, w as files of version 3 have it."""
    largest = int(np.argmax(np.abs(quaternion)))
    packed = largest
    for k in range(4):
        if k != largest:
            negative = (quaternion[k] < 0) != (quaternion[largest] < 0)
            packed = packed << 10 | int(negative) << 9 | int(abs(quaternion[k]) * 2**0.5 * 511 + 0.5)
    return packed


def whole_page(scene: bytes, camera: dict, title: str = "A cloud") -> str:
    """The viewer as one file: what it shows is in its addresses."""
    page = (SOURCES / "viewer.html").read_text()
    page = page.replace("{{style}}", (SOURCES / "viewer.css").read_text()).replace("{{title}}", html.escape(title))
    page = page.replace("{{script}}", "".join((SOURCES / name).read_text() for name in SCRIPTS))
    address = lambda media_type, content: f"data:{media_type};base64,{base64.b64encode(content).decode()}"
    page = page.replace("{{first}}", "").replace("{{base}}scene.spz", address("application/octet-stream", scene))
    page = page.replace("{{base}}camera.json", address("application/json", json.dumps(camera).encode()))
    return page.replace("{{base}}preview.jpg", address("image/gif", b"GIF89a\1\0\1\0\0\0\0;"))


CLOUD_CAMERA = {
    "position": {"x": 1.5, "y": -1.1, "z": -1.9}, "lookAt": {"x": 0.1, "y": 0, "z": 0.2}, "up": {"x": 0.1, "y": -1, "z": 0.05},
    "cameraType": "drone",
}


@pytest.fixture
def cloud(browser, tmp_path):
    """Opens a page with a scene of its own, without any server."""

    def open(scene: bytes, camera: dict = CLOUD_CAMERA, width: int = 400, height: int = 300):
        file = tmp_path / "viewer.html"
        file.write_text(whole_page(scene, camera))
        return browser.open(file.as_uri(), width, height)

    return open


@pytest.mark.parametrize(("version", "degree"), [(1, 0), (2, 1), (3, 2), (3, 3), (3, 4)])
def test_every_version_and_degree_as_we_render_it(cloud, tmp_path, version, degree):
    scene = tmp_path / "scene.spz"
    scene.write_bytes(some_spz(version, degree))
    with cloud(scene.read_bytes()) as page:
        only_the_canvas(page)
        shown = page.screenshot()
        assert page.complaints() == []
    expected = rendered(tmp_path, scene, CLOUD_CAMERA, 400, 300)
    assert expected.mean() > 30
    right, wrong = psnr(shown, expected), psnr(shown, rendered(tmp_path, scene, moved(CLOUD_CAMERA), 400, 300))
    print(f"version {version}, degree {degree}: {right:.1f} dB, from elsewhere {wrong:.1f} dB")
    assert right > 33 and right > wrong + 12


@pytest.mark.parametrize("kind", ["orbital", "drone"])
def test_mouse_and_keys_move_the_camera_and_bring_it_back(cloud, kind):
    def settled() -> np.ndarray:
        """The picture once it does not change any more."""
        before = None
        while True:
            page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 100))")
            now = page.screenshot()
            if np.array_equal(now, before):
                return now
            before = now

    with cloud(some_spz(3, 0), CLOUD_CAMERA | {"cameraType": kind}) as page:
        only_the_canvas(page)
        start = settled()
        page.evaluate("document.querySelector('canvas').focus()")

        def drag():
            page.mouse("mousePressed", 200, 150, button="left", buttons=1, clickCount=1)
            page.mouse("mouseMoved", 260, 130, button="left", buttons=1)
            page.mouse("mouseReleased", 260, 130, button="left", clickCount=1)

        moves = [drag, lambda: page.mouse("mouseWheel", 200, 150, deltaX=0, deltaY=-400)]
        moves += [lambda code=code: page.key(code, 0.3) for code in ("ArrowLeft", "ArrowUp", "KeyW", "KeyA", "KeyE", "Minus")]
        seen = []
        for move in moves:
            move()
            seen.append(settled())
            assert psnr(seen[-1], start) < 30, len(seen)
            page.key("KeyR")
            assert psnr(settled(), start) > 45
        # Each of them does something of its own.
        assert all(psnr(a, b) < 35 for k, a in enumerate(seen) for b in seen[:k])
        drag()
        for count in (1, 2):
            page.mouse("mousePressed", 200, 150, button="left", buttons=1, clickCount=count)
            page.mouse("mouseReleased", 200, 150, button="left", clickCount=count)
        assert psnr(settled(), start) > 45
        assert page.complaints() == []


def balls(*centres) -> bytes:
    """Small opaque balls at these places, in the frame of the file."""
    count, bits = len(centres), 12
    fixed = np.round(np.array(centres) * 2**bits).astype("<i4")
    positions = fixed.view(np.uint8).reshape(count, 3, 4)[:, :, :3].tobytes()
    # Opacity, colour, deviation exp(112 / 16 - 10) = 0.05, no rotation.
    rest = b"\xff" * count + b"\xe0\x60\x60" * count + bytes([112] * 3 * count) + bytes([128] * 3 * count)
    return gzip.compress(struct.pack("<IIIBBBB", 0x5053474E, 2, count, 0, bits, 0, 0) + positions + rest)


def test_a_length_is_measured(cloud):
    ends = [(0.1, 0.0, -0.2), (-0.5, 0.35, 0.4)]
    length = sum((a - b) ** 2 for a, b in zip(*ends, strict=True)) ** 0.5
    spoken = "document.querySelector('.spoken').textContent"
    with cloud(balls(*ends)) as page:
        page.wait_for(f"{READY} === 'ready'")
        places = page.evaluate("""(() => {
          const { camera, canvas } = document.querySelector("main").viewer;
          const { right, down, forward } = camera.axes();
          const focal = camera.focal(canvas.clientWidth, canvas.clientHeight);
          return ENDS.map((end) => {
            const at = end.map((value, k) => value - camera.position[k]);
            const along = (axis) => axis.reduce((sum, value, k) => sum + value * at[k], 0);
            return [along(right), along(down)].map((value, k) =>
              focal * value / along(forward) + [canvas.clientWidth, canvas.clientHeight][k] / 2);
          });
        })()""".replace("ENDS", json.dumps(ends)))

        def click(x, y):
            page.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
            page.mouse("mouseReleased", x, y, button="left", clickCount=1)

        click(*places[0])
        assert page.evaluate(spoken) == "" and page.evaluate("document.querySelector('.ruler')") is None
        assert page.evaluate("document.querySelector('main').viewer.measure()") is True
        assert "click a point" in page.evaluate(spoken)
        click(5, 5)
        assert "nothing to measure" in page.evaluate(spoken)
        # The first end is what the camera looks at, and so in the middle: the key does it.
        page.evaluate("document.querySelector('canvas').focus()")
        page.key("KeyM")
        assert page.evaluate(spoken) == "Now the other end."
        click(*places[1])
        told = page.evaluate(spoken)
        page.wait_for("document.querySelector('.ruler text').textContent !== ''")
        shown = page.evaluate("document.querySelector('.ruler text').textContent")
        assert told.startswith(shown + ".") and shown.endswith(" cm"), told
        measured = float(shown.removesuffix(" cm")) / 100
        print(f"{length:.4f} m is measured as {measured:.4f} m")
        assert abs(measured / length - 1) < 0.02
        # A drag turns the view and measures nothing; the ruler goes with the scene.
        before = page.evaluate("document.querySelector('.ruler line').getAttribute('x2')")
        page.mouse("mousePressed", 200, 150, button="left", buttons=1, clickCount=1)
        page.mouse("mouseMoved", 260, 130, button="left", buttons=1)
        page.mouse("mouseReleased", 260, 130, button="left", clickCount=1)
        page.wait_for(f"document.querySelector('.ruler line').getAttribute('x2') !== '{before}'")
        assert page.evaluate(spoken) == told
        assert page.evaluate("document.querySelector('main').viewer.measure()") is False
        page.wait_for("document.querySelector('.ruler line').style.display === 'none'")
        assert page.evaluate(spoken) == "" and page.complaints() == []


def test_rule_72_another_page_may_show_a_scene_in_a_frame(browser, anyone, public, tmp_path):
    text = f"<title>A blog</title><link rel='icon' href='data:,'><iframe src='{anyone.server.url}/view/{public}/' width='400' height='300'></iframe>"
    (tmp_path / "index.html").write_text(text)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as blog:
        threading.Thread(target=blog.serve_forever, daemon=True).start()
        try:
            in_a_frame(browser, f"http://127.0.0.1:{blog.server_port}/")
        finally:
            blog.shutdown()


def in_a_frame(browser, address: str) -> None:
    """The page at `address` shows a scene in a frame."""
    with browser.open(address, 480, 360) as page:
        # What is in a frame of another site can be seen, and not asked.
        for _ in range(200):
            page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 100))")
            inside = page.screenshot()[20:280, 20:380]
            if inside.astype(float).std() > 10:
                break
        assert inside.astype(float).std() > 10, "the frame shows nothing"
        assert page.complaints() == []


@pytest.mark.parametrize("first_comes", [True, False])
def test_few_splats_are_shown_until_all_have_come(browser, tmp_path, first_comes):
    first, scene = balls((0.1, 0.0, -0.2)), some_spz(3, 2)
    (tmp_path / "first.spz").write_bytes(first)
    (tmp_path / "scene.spz").write_bytes(scene)
    page = whole_page(scene, CLOUD_CAMERA)
    whole = re.search(r'data-scene="[^"]*"', page)[0]
    (tmp_path / "index.html").write_text(page.replace(whole, 'data-scene="scene.spz" data-first="first.spz"'))
    may_come = threading.Event()

    class Slow(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/scene.spz":
                may_come.wait(60)
            if self.path == "/first.spz" and not first_comes:
                self.send_error(404)
            else:
                super().do_GET()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Slow, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with browser.open(f"http://127.0.0.1:{server.server_port}/", 400, 300) as page:
                if first_comes:
                    page.wait_for(f"{READY} === 'first'")
                    page.key("KeyW", 0.3)  # it can be moved through already
                    page.key("KeyR")
                    page.wait_for("getComputedStyle(document.querySelector('main > img')).opacity === '0'")
                    assert page.evaluate("document.querySelector('progress').getClientRects().length") == 1
                    shown = without_words(page)
                    # Half as fine as the whole will be.
                    like_few, like_all = (psnr(shown, rendered(tmp_path, tmp_path / name, CLOUD_CAMERA, 400, 300)) for name in ("first.spz", "scene.spz"))
                    assert like_few > 27 and like_few > like_all + 12, (like_few, like_all)
                may_come.set()
                only_the_canvas(page)
                shown = page.screenshot()
                assert psnr(shown, rendered(tmp_path, tmp_path / "scene.spz", CLOUD_CAMERA, 400, 300)) > 33
                complaints = page.complaints()
                assert complaints == [] if first_comes else all("404" in complaint for complaint in complaints)
        finally:
            may_come.set()
            server.shutdown()


def without_words(page) -> np.ndarray:
    """The picture alone."""
    page.evaluate("for (const other of document.querySelectorAll('main > :not(canvas)')) other.style.visibility = 'hidden'")
    page.evaluate("document.querySelector('canvas').style.outline = 'none'")
    page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 300))")
    return page.screenshot()


def test_a_page_at_rest_draws_nothing(cloud):
    with cloud(some_spz(3, 0)) as page:
        only_the_canvas(page)
        page.evaluate("""
            window.draws = 0;
            const draw = WebGL2RenderingContext.prototype.drawElementsInstanced;
            WebGL2RenderingContext.prototype.drawElementsInstanced = function (...all) { window.draws++; draw.apply(this, all); };
        """)
        page.evaluate("new Promise((done) => setTimeout(done, 500))")
        assert page.evaluate("draws") == 0
        page.evaluate("document.querySelector('canvas').focus()")
        page.key("ArrowLeft", 0.3)
        assert page.evaluate("draws") > 0


@pytest.mark.parametrize(("scene", "why"), [
    (b"NGSP nonsense", "begin as gzip does"), (gzip.compress(b"x" * 100), "no .spz file"), (b"\x1f\x8bnonsense", "damaged"),
    (gzip.compress(gzip.decompress(some_spz(3, 0))[:-1]), "ends before the last"), (some_spz(3, 0)[:-100], "damaged"),
    (gzip.compress(struct.pack("<IIIBBBB", 0x5053474E, 4, 1, 0, 12, 0, 0) + bytes(99)), "version 4"),
], ids=range(6))
def test_a_scene_that_cannot_be_read_is_said_to_be_so(cloud, scene, why):
    with cloud(scene) as page:
        page.wait_for(f"{READY} === 'failed'")
        text = page.evaluate("document.querySelector('[role=status]').textContent")
        assert text.startswith("The scene cannot be shown: ") and why in text


def test_a_browser_that_cannot_is_told_so(browser, tmp_path):
    for missing, why in (("delete window.DecompressionStream", "DecompressionStream"),
                         ("HTMLCanvasElement.prototype.getContext = () => null", "WebGL 2")):
        file = tmp_path / "viewer.html"
        file.write_text(f"<script>{missing}</script>" + whole_page(some_spz(3, 0), CLOUD_CAMERA))
        with browser.open(file.as_uri(), 400, 300) as page:
            page.wait_for(f"{READY} === 'failed'")
            assert why in page.evaluate("document.querySelector('[role=status]').textContent")
