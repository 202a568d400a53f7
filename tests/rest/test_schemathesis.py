"""Everything that the server says of its interface in /openapi.json is true: schemathesis with all its checks.

SCHEMATHESIS_EXAMPLES sets the number of examples for each operation and phase (250 make more than 2000 in all).
"""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "10")
SEED = os.environ.get("SCHEMATHESIS_SEED", "1")


def test_schemathesis_finds_nothing(make_server, flat, tmp_path):
    server = make_server({"limits": {"max_queued_jobs": 1_000_000}, "webhooks": {"max_per_user": 1_000_000}})
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
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
    }
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    print(done.stdout[-20_000:])
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]
    assert server.is_alive() and client.get("/healthz").status_code == 200
    assert "panicked" not in server.log_text()
