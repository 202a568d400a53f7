"""Rule 79 of docs/rest.md: videos that a page sends, in a real browser, and the page of the scene that comes of one."""

import base64
import io
import json
import re
import struct
import time
import uuid
import zipfile
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from . import media
from .test_web_browser import PHONE, WIDE, at, browser, go, join, look, press, text  # noqa: F401 (fixtures)

BLOCK = 4 << 20
PIECE = 256 << 10


def enlarged(video, size: int, path):
    """The same video with a free box at its end, so that it has `size` bytes."""
    whole = video.read_bytes()
    path.write_bytes(whole + struct.pack(">I4s", size - len(whole), b"free") + bytes(size - len(whole) - 8))
    return path


def said(name: str) -> str:
    """An expression: what the page says of a file."""
    return f"document.querySelector('[data-file={json.dumps(name)}] [role=status]')?.textContent"


def sent_blocks(server) -> int:
    """Requests to addresses of uploads that went well."""
    metrics = requests.get(f"{server.url}/metrics").text
    found = re.search(r'reconstruct_http_requests_total\{route="/blob/",method="PUT",status="201"\} (\d+)', metrics)
    return int(found[1]) if found else 0


def begin(page, server) -> None:
    go(page, server.url + "/scenes/new")
    page.wait_for("document.readyState === 'complete' && document.querySelector('#new-scene')?.hidden === false")


def send(page) -> None:
    page.wait_for("!document.querySelector('#start').disabled")
    press(page, "Send and reconstruct")


def begin_with(page, words: str) -> None:
    """Presses one of the buttons that say where the viewer begins, and waits for the page that comes of it."""
    page.evaluate("window.before = true")
    press(page, words)
    page.wait_for("!window.before && document.querySelector('.viewer')?.dataset.state === 'ready'", within=120)


def test_rule_79_from_a_dropped_video_to_a_scene_that_is_looked_at(browser, worker_server, wendy, capture):
    server = worker_server
    with browser.open("about:blank", *WIDE) as page:
        join(page, server, wendy.name)
        press(page, "New")
        at(page, "/scenes/new")
        page.wait_for("document.querySelector('#new-scene').hidden === false")
        page.drop_files("#drop", [capture])
        page.wait_for(f"!!document.querySelector('[data-file={json.dumps(capture.name)}]')")
        page.evaluate("document.querySelector('.upload input').value = 'dropped here'")
        page.evaluate("document.querySelector('details').open = true")
        for field, value in {"training_num_steps": 30, "training_max_num_gaussians": 1000}.items():
            page.evaluate(f"document.querySelector('#{field}').value = {value}")
        look(page, "upload")
        send(page)
        at(page, "/scenes")
        job = next(entry["job_id"] for entry in wendy.jobs() if entry["title"] == "dropped here")
        assert wendy.job(job)["training_num_steps"] == 30
        assert wendy.wait(job)["status"] == "Finished"

        go(page, f"{server.url}/scenes/{job}")
        page.wait_for("document.querySelector('.viewer')?.dataset.state === 'ready'", within=120)
        page.wait_for("!document.querySelector('#begin-here').hidden")
        assert "The camera poses are" in text(page)
        look(page, "scene")
        before = wendy.job(job)["camera_data"]
        press(page, "Camera path")
        spoken = "document.querySelector('.viewer .spoken').textContent"
        page.wait_for(f"{spoken}.startsWith('The way of the camera, with ')")
        page.wait_for("document.querySelectorAll('.viewer .frames path[d^=M]').length > 3")
        # They are where the frames were taken: in front of the first view, which looks at what they saw.
        cameras = page.evaluate("fetch(document.querySelector('.viewer').dataset.frames).then((answer) => answer.json())")
        assert len(cameras) > 3 and all(0 <= camera["doubt"] < 100 for camera in cameras)
        look(page, "camera-path")
        press(page, "Camera path")
        page.wait_for(f"!document.querySelector('.viewer .frames') && {spoken} === ''")
        picture = page.evaluate("document.querySelector('.viewer').viewer.picture().then((picture) => picture.size)")
        assert picture > 1000
        box = page.evaluate("(({ left, top }) => [left, top])(document.querySelector('canvas').getBoundingClientRect())")
        page.mouse("mouseWheel", box[0] + 100, box[1] + 100, deltaX=0, deltaY=-300)
        begun = "document.querySelector('.viewer').viewer.camera"
        page.wait_for(f"{begun}.position.join() !== {begun}.start.position.join()")
        begin_with(page, "Begin with this view")
        moved = wendy.job(job)["camera_data"]
        # Nearer, and the rest as it was.
        assert moved["position"] != before["position"] and moved["cameraType"] == before["cameraType"]
        assert all(abs(moved["up"][k] - before["up"][k]) < 1e-6 for k in "xyz")
        begin_with(page, "Begin as at first")
        assert wendy.job(job)["camera_data"] == before
        assert page.complaints() == []


def test_rule_79_a_scene_is_seen_while_it_is_trained(browser, worker_server, wendy, capture):
    job = wendy.submit(capture, title="to be watched", training_max_num_gaussians=1000, training_num_steps=30_000)
    with browser.open("about:blank", *WIDE) as page:
        join(page, worker_server, wendy.name)
        page.evaluate("window.same = true")
        picture = f"document.querySelector('[data-job=\"{job}\"] img.preview')"
        # By itself: as a rule the page is there before the picture.
        page.wait_for(f"{picture}?.complete && {picture}.naturalWidth === 160", within=120)
        assert page.evaluate("window.same") and "live.jpg?at=" in page.evaluate(f"{picture}.src")
        look(page, "training")
        wendy.request("POST", f"/api/v1/jobs/{job}/cancel/")
        page.wait_for(f"!window.same && document.readyState === 'complete' && !{picture}", within=30)
        assert page.complaints() == []


class Blocks:
    """Holds each block that a page sends until the test says what becomes of it, or the list of them (`what`). The page sends two
    side by side, and which of them comes first is left open: a block is asked for by its number, a piece of one by its name."""

    def __init__(self, browser, page, what: str = "block&"):
        self.browser, self.page, self.decided = browser, page, set()
        page.call("Fetch.enable", patterns=[{"urlPattern": f"*comp={what}*"}])

    def waiting(self) -> dict[str, str]:
        """The names of the blocks that are held, by the identities of their requests; a list has none."""
        self.page.evaluate("0")
        ours = [event for event in self.browser.events if event.get("sessionId") == self.page.session]
        paused = [event["params"] for event in ours if event["method"] == "Fetch.requestPaused"]
        names = {}
        for request in paused:
            if request["requestId"] not in self.decided:
                (block,) = parse_qs(urlsplit(request["request"]["url"]).query).get("blockid", [""])
                names[request["requestId"]] = base64.b64decode(block).decode()
        return names

    def held(self, block: int | str, within: float = 60) -> str:
        """Waits until the block is sent; the identity of the request."""
        name = f"{block:06}" if isinstance(block, int) else block
        end = time.monotonic() + within
        while True:
            for request, waits in self.waiting().items():
                if waits == name:
                    self.decided.add(request)
                    return request
            assert time.monotonic() < end, f"block {block!r} is not sent"
            time.sleep(0.05)

    def let_through(self, *blocks: int | str) -> None:
        for block in blocks:
            self.page.call("Fetch.continueRequest", requestId=self.held(block))

    def lose(self, *blocks: int | str) -> None:
        """As when the connection is gone."""
        for block in blocks:
            self.page.call("Fetch.failRequest", requestId=self.held(block), errorReason="InternetDisconnected")

    def answer(self, block: int | str, status: int, message: str, **headers: str) -> None:
        """Answers in the place of the server."""
        body = base64.b64encode(json.dumps({"error": message}).encode()).decode()
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in headers.items()]
        self.page.call("Fetch.fulfillRequest", requestId=self.held(block), responseCode=status, responseHeaders=named, body=body)


def test_rule_79_an_upload_goes_on_after_a_lost_connection_and_after_a_reload(browser, make_server, flat, tmp_path):
    server = make_server()
    client = server.user("anna")
    video = enlarged(flat, 8 * BLOCK - 1000, tmp_path / "large.mp4")
    with browser.open("about:blank", *PHONE) as page:
        join(page, server, client.name)
        begin(page, server)
        page.choose_files("#videos", [video])
        blocks = Blocks(browser, page)
        send(page)
        blocks.let_through(0, 1, 2, 3)
        blocks.lose(4, 5)
        page.wait_for(f"{said('large.mp4')}?.includes('Trying again')")
        # The same two again. Those that follow them are held.
        blocks.let_through(4, 5)
        page.wait_for("Object.values(JSON.parse(sessionStorage.getItem('uploads-2')))[0].blocks.length === 6")
        assert sorted(page.evaluate("Object.values(JSON.parse(sessionStorage.getItem('uploads-2')))[0].blocks")) == [0, 1, 2, 3, 4, 5]
        # While two more are under way.
        page.call("Page.reload")
        page.wait_for("document.querySelector('#interrupted')?.textContent.includes('large.mp4 was interrupted at 75 %')")
        assert sent_blocks(server) == 6
        look(page, "interrupted")
        page.call("Fetch.disable")
        page.choose_files("#videos", [video])
        page.wait_for("document.querySelector('#interrupted').textContent === ''")
        send(page)
        at(page, "/scenes")
        # What was there was not sent again: the other two, and the list.
        assert sent_blocks(server) == 8 + 1
        (job,) = client.jobs()
        assert job["title"] == "large"
        assert page.evaluate("sessionStorage.getItem('uploads-2')") == "{}"


def test_rule_79_what_was_sent_and_is_gone_is_sent_again(browser, make_server, flat):
    server = make_server({"limits": {"max_queued_jobs": 1}})
    client = server.user("anna")
    waiting = client.submit(flat)
    with browser.open("about:blank", *WIDE) as page:
        join(page, server, client.name)
        begin(page, server)
        page.choose_files("#videos", [flat])
        send(page)
        # It is there, and not queued.
        page.wait_for(f"{said(flat.name)}?.includes('Trying again')")
        page.call("Page.reload")
        page.wait_for(f"document.querySelector('#interrupted')?.textContent.includes('{flat.name} was interrupted at 100 %')")
        gone = f"videos/{uuid.uuid4()}{flat.suffix}"
        memory = "JSON.parse(sessionStorage.getItem('uploads-2'))"
        with_gone = f"Object.fromEntries(Object.entries({memory}).map(([file, upload]) => [file, {{ ...upload, blob_name: {json.dumps(gone)} }}]))"
        page.evaluate(f"sessionStorage.setItem('uploads-2', JSON.stringify({with_gone}))")
        assert page.evaluate(f"Object.values({memory})[0].complete && Object.values({memory})[0].blob_name") == gone
        client.delete(waiting)
        page.choose_files("#videos", [flat])
        send(page)
        at(page, "/scenes")
        assert [job["title"] for job in client.jobs()] == [flat.stem]
        assert page.evaluate("sessionStorage.getItem('uploads-2')") == "{}"


def test_rule_79_who_signs_in_next_does_not_see_what_was_sent(browser, make_server):
    server = make_server()
    anna, eve = server.user("anna"), server.user("eve")
    interrupted = "document.querySelector('#interrupted').textContent"
    with browser.open("about:blank", *WIDE) as page:
        join(page, server, anna.name)
        begin(page, server)
        upload = {"name": "secret.mp4", "size": 8, "blocks": [], "pieces": {}, "complete": False}
        page.evaluate(f"sessionStorage.setItem('uploads-2', {json.dumps(json.dumps({'secret.mp4|8|8': upload}))})")
        begin(page, server)
        page.wait_for(f"{interrupted}.includes('secret.mp4')")
        press(page, "Sign out")
        at(page, "/sign-in")
        join(page, server, eve.name)
        begin(page, server)
        assert page.evaluate(interrupted) == "" and page.evaluate("sessionStorage.getItem('uploads-2')") is None


def test_rule_79_a_slow_line_has_one_block_at_a_time_and_in_pieces(browser, make_server, flat, tmp_path):
    server = make_server()
    client = server.user("anna")
    video = enlarged(flat, 2 * BLOCK - 1000, tmp_path / "slow.mp4")
    with browser.open("about:blank", *WIDE) as page:
        join(page, server, client.name)
        begin(page, server)
        page.choose_files("#videos", [video])
        blocks = Blocks(browser, page)
        send(page)
        # It is the page that takes this one back.
        blocks.held(1)
        blocks.answer(0, 408, "The upload is too slow")
        page.wait_for(f"{said('slow.mp4')}?.includes('Trying again')")
        # Under another name: the whole may still come, and must not take the place of a piece.
        first = blocks.held("000000.0")
        time.sleep(0.5)
        assert blocks.waiting() == {}
        page.call("Fetch.continueRequest", requestId=first)
        blocks.let_through(*(f"000000.{piece}" for piece in range(1, BLOCK // PIECE)))
        page.call("Fetch.disable")
        at(page, "/scenes")
        # The other block came whole if the line was quick enough by then, and the list.
        assert sent_blocks(server) - BLOCK // PIECE - 1 in (1, BLOCK // PIECE)
        (job,) = client.jobs()
        assert job["title"] == "slow"
    (stored,) = [name for name in server.stored.names() if name.startswith("videos/")]
    assert server.stored.read(stored) == video.read_bytes()


def test_rule_87_a_list_at_which_the_server_still_is_comes_again(browser, make_server, flat):
    server = make_server()
    client = server.user("anna")
    with browser.open("about:blank", *WIDE) as page:
        join(page, server, client.name)
        begin(page, server)
        page.choose_files("#videos", [flat])
        lists = Blocks(browser, page, "blocklist")
        send(page)
        lists.answer("", 409, "The blocks are being put together", Retry_After="5")
        page.wait_for(f"{said(flat.name)}?.includes('Trying again')")
        lists.let_through("")
        at(page, "/scenes")
        # The block was not sent again.
        assert sent_blocks(server) == 1 + 1
        assert [job["title"] for job in client.jobs()] == [flat.stem]


def test_rule_79_what_is_no_video_is_said_before_it_is_sent(browser, make_server, flat, tmp_path):
    server = make_server({"limits": {"max_upload_bytes": 1_000_000}})
    client = server.user("anna")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "liar.mp4").write_text("this is a text, whatever its name says")
    large = enlarged(flat, 1_000_001, tmp_path / "large.mp4")
    with browser.open("about:blank", *WIDE) as page:
        join(page, server, client.name)
        begin(page, server)
        page.choose_files("#videos", [tmp_path / "notes.txt", tmp_path / "liar.mp4", large])
        for name, words in {"notes.txt": "no video by its name", "liar.mp4": "although it is called like one", "large.mp4": "too large"}.items():
            page.wait_for(f"{said(name)}?.includes({json.dumps(words)})")
        assert page.evaluate("document.querySelector('#start').disabled")
        # Beside them a good one is sent, and the others stay to be read.
        page.choose_files("#videos", [flat])
        send(page)
        page.wait_for("document.querySelector('#said').textContent === '3 of 4 were not queued.'")
        assert [job["title"] for job in client.jobs()] == [flat.stem]
        assert page.complaints() == []


def test_rule_79_what_the_server_refuses_is_said_and_can_be_tried_again(browser, make_server, flat, tmp_path):
    server = make_server({"limits": {"max_queued_jobs": 1}})
    client = server.user("anna")
    (tmp_path / "broken.mp4").write_bytes(struct.pack(">I4s", 24, b"ftyp") + bytes(16))
    waiting = client.submit(flat)
    with browser.open("about:blank", *WIDE) as page:
        join(page, server, client.name)
        begin(page, server)
        page.choose_files("#videos", [flat])
        send(page)
        # A full queue passes.
        page.wait_for(f"{said(flat.name)}?.includes('Trying again')")
        client.delete(waiting)
        at(page, "/scenes")
        client.delete(client.jobs()[0]["job_id"])

        begin(page, server)
        page.choose_files("#videos", [tmp_path / "broken.mp4"])
        send(page)
        page.wait_for("document.querySelector('#start').textContent === 'Try again'")
        assert page.evaluate(f"document.querySelector('[data-file=\"broken.mp4\"] [role=status]').className") == "problem"
        press(page, "Leave out")
        page.wait_for("!document.querySelector('[data-file]')")
        assert client.jobs() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_rule_79_the_page_of_a_finished_scene_is_accessible(browser, worker_server, wendy, finished, scheme):
    from .test_web_browser import AXE, axe_script

    with browser.open("about:blank", *PHONE) as page:
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        join(page, worker_server, wendy.name)
        go(page, f"{worker_server.url}/scenes/{finished['job_id']}")
        page.wait_for("document.querySelector('.viewer')?.dataset.state === 'ready'", within=120)
        page.evaluate(axe_script() + "; undefined")
        assert page.evaluate(AXE) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        look(page, f"scene-{scheme}-phone")


def test_rule_79_a_folder_of_pictures_is_packed_by_the_page(browser, make_server, flat, tmp_path):
    server = make_server()
    client = server.user("anna")
    folder = tmp_path / "by the sea"
    (folder / "2").mkdir(parents=True)
    media.ffmpeg("-i", flat, "-frames:v", "3", folder / "IMG_%d.jpg")
    (folder / "IMG_3.jpg").rename(folder / "2" / "Größe.JPG")
    for name in (".hidden.jpg", "notes.txt"):
        (folder / name).write_text("x")
    pictures = {str(path.relative_to(tmp_path)): path.read_bytes() for path in folder.rglob("[IG]*.*")}
    assert len(pictures) == 3
    with browser.open("about:blank", *PHONE) as page:
        join(page, server, client.name)
        begin(page, server)
        page.drop_files("#drop", [folder])
        page.wait_for(f"!!document.querySelector({json.dumps('[data-file=' + json.dumps('by the sea.zip') + ']')})")
        # Two are too few, and those that were chosen before are not taken twice.
        page.choose_files("#videos", sorted(folder.glob("IMG*")))
        page.wait_for("document.querySelector('#said').textContent.startsWith('pictures has 2 pictures')")
        page.drop_files("#drop", [folder])
        page.wait_for("document.querySelector('#said').textContent === ''")
        assert page.evaluate("document.querySelectorAll('#chosen li').length") == 1
        send(page)
        at(page, "/scenes")
        assert [job["title"] for job in client.jobs()] == ["by the sea"]
        assert page.complaints() == []
    (stored,) = [name for name in server.stored.names() if name.endswith(".zip")]
    with zipfile.ZipFile(io.BytesIO(server.stored.read(stored))) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == pictures
