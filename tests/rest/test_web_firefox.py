"""Rule 79 of docs/rest.md: the web application in Firefox, where there is one. test_web_browser.py has all of it, in Chromium."""

import json
import os
import shutil
import subprocess

import pytest
import requests
from prerequisites import is_missing

from .server import ROOT
from .web import PASSWORD, invite

# Its name in most systems, and in Debian's.
FIREFOX = next((path for name in ("firefox-esr", "firefox") if (path := shutil.which(name))), None)


def test_rule_79_from_the_invitation_to_a_scene_in_firefox(worker_server, capture, tmp_path):
    if FIREFOX is None:
        # Not installed by `make test`: it takes 300 MB, and a screen (xvfb) for the viewer.
        pytest.skip("Firefox is not here (apt-get install firefox-esr)")
    node = shutil.which("node")
    if node is None:
        is_missing("interop", "Node.js")
    server = worker_server
    server.command("users", "add", "franz", "--tier", "enterprise")
    screen = ["xvfb-run", "--auto-servernum"] if "DISPLAY" not in os.environ and shutil.which("xvfb-run") else []
    # Its profile and what else it keeps is in the folder of the test.
    environment = os.environ | {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "LIBGL_ALWAYS_SOFTWARE": "1"}
    done = subprocess.run(
        [*screen, node, ROOT / "tests/interop/firefox_walk.mjs", FIREFOX, server.url, invite(server, "franz"), PASSWORD, capture],
        capture_output=True, text=True, timeout=580, stdin=subprocess.DEVNULL, env=environment,
    )
    if done.returncode == 77:
        is_missing("interop", done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    jobs = requests.get(f"{server.url}/api/v1/jobs/", headers={"Authorization": f"Api-Key {found['key']}"})
    assert len(jobs.json()) == 1
    scene = found["scene"]
    assert "The camera poses are" in scene["words"] and scene["preview"] > 0
    if scene["webgl2"]:
        assert scene["state"] == "ready" and "frames" in scene["path"]
        assert found["complaints"] == []
    else:
        # Without a screen there is none: people read why, and see the picture.
        assert scene["state"] == "failed" and "no WebGL 2" in scene["status"]
