"""Everything that the server says of its interface in /openapi.json is true: schemathesis with all its checks.

SCHEMATHESIS_EXAMPLES sets the number of examples for each operation and phase (250 make more than 2000 in all).
With LIBRECONSTRUCT_TEST_SERVERS=2 the requests go to so many servers of one service by turns.
"""

import os
import subprocess
import sys
from pathlib import Path

import requests

from . import many

EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "10")
SEED = os.environ.get("SCHEMATHESIS_SEED", "1")


def test_schemathesis_finds_nothing(make_server, flat, tmp_path):
    config = {"limits": {"max_queued_jobs": 1_000_000}, "webhooks": {"max_per_user": 1_000_000}}
    server = make_server(config, kind=many.SHARED)
    client = server.user("anna")
    client.jobs()
    blob = client.upload(flat)
    client.submit(blob)
    command = [
        Path(sys.executable).with_name("schemathesis"), "run", f"{server.url}/openapi.json",
        "--header", f"Authorization: Api-Key {client.key}", "--checks", "all", "--max-examples", EXAMPLES, "--seed", SEED,
        "--suppress-health-check", "all", "--continue-on-failure", "--max-redirects", "0", "--request-timeout", "60",
        "--warnings", "off", "--no-color",
    ]
    environment = os.environ | {
        "SCHEMATHESIS_HOOKS": "rest.schemathesis_hooks", "REST_BLOB_NAME": blob,
        "REST_SERVERS": " ".join(server.urls),
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
    }
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    print(done.stdout[-20_000:])
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]
    assert server.is_alive()
    for url in server.urls:
        assert requests.get(f"{url}/healthz", timeout=60).status_code == 200
    assert "panicked" not in server.log_text()
