"""Addresses that are told when a job ends: rules 93 to 98 of docs/rest.md, with receivers that behave well and badly."""

import contextlib
import shutil
import socket
import subprocess
import threading
import time
import uuid

import pytest
import requests
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from . import postgres, storage
from .receiver import TO_THIS_MACHINE, Receiver
from .server import free_port
from .test_failpoints import built_with_failpoints
from .test_isolation import seen
from .test_specification import is_error

WEBHOOK_FIELDS = {"webhook_id", "url", "created_at"}
DELIVERY_FIELDS = {
    "delivery_id", "event", "job_id", "status", "attempts", "created_at", "last_attempt_at", "next_attempt_at", "response_status",
    "error",
}  # fmt: skip


@pytest.fixture(scope="module")
def teller(make_server):
    """A server that may tell receivers on this machine, without workers."""
    return make_server(TO_THIS_MACHINE)


@pytest.fixture
def user(teller):
    return teller.user(f"u{uuid.uuid4().hex[:12]}")


def add(client, url: str) -> dict:
    response = client.request("POST", "/api/v1/webhooks/", json={"url": url})
    assert response.status_code == 201, response.text
    hook = response.json()
    assert set(hook) == WEBHOOK_FIELDS | {"secret"}
    assert response.headers["Location"] == f"/api/v1/webhooks/{hook['webhook_id']}/"
    return hook


def deliveries(client, hook: dict, query: str = "") -> list[dict]:
    response = client.get(f"/api/v1/webhooks/{hook['webhook_id']}/deliveries/{query}")
    assert response.status_code == 200, response.text
    assert all(set(delivery) == DELIVERY_FIELDS for delivery in response.json())
    return response.json()


def settled(client, hook: dict, is_so, within: float = 30) -> dict:
    """The newest delivery, once it is so."""
    end = time.monotonic() + within
    while not ((told := deliveries(client, hook)) and is_so(told[0])):
        assert time.monotonic() < end, told
        time.sleep(0.05)
    return told[0]


def is_delivered(delivery: dict) -> bool:
    return delivery["status"] == "delivered"


def is_tried(delivery: dict) -> bool:
    return delivery["attempts"] > 0


def ended(client, video) -> str:
    """A job that has ended: its user stopped it."""
    job = client.submit(video)
    began = time.monotonic()
    response = client.request("POST", f"/api/v1/jobs/{job}/cancel/")
    assert response.status_code == 200, response.text
    # Nobody who is told, or not, keeps a job from its end.
    assert time.monotonic() - began < 2
    return job


def verify(hook: dict, request) -> dict:
    """What was told, if it is genuine."""
    return Webhook(hook["secret"]).verify(request.body, request.headers)


def test_rule_93_webhooks_are_added_shown_and_removed(fresh):
    assert fresh.get("/api/v1/webhooks/").json() == []
    first = add(fresh, "https://Hooks.Example.org/a?b=c")
    assert first["url"] == "https://hooks.example.org/a?b=c"
    second = add(fresh, "https://8.8.8.8/")
    # The secret is shown once.
    assert first.pop("secret").startswith("whsec_") and first["webhook_id"] != second["webhook_id"]
    path = f"/api/v1/webhooks/{first['webhook_id']}"
    assert fresh.get("/api/v1/webhooks/").json()[0] == first == fresh.get(path + "/").json() == fresh.get(path).json()
    assert fresh.get("/api/v1/webhooks/").headers["Cache-Control"] == "no-store"
    assert fresh.request("DELETE", path + "/").status_code == 204
    is_error(fresh.request("DELETE", path + "/"), 404, "Webhook not found")
    is_error(fresh.get(path + "/"), 404, "Webhook not found")
    assert [hook["webhook_id"] for hook in fresh.get("/api/v1/webhooks/").json()] == [second["webhook_id"]]
    for _ in range(9):
        add(fresh, "https://hooks.example.org/")
    refused = fresh.request("POST", "/api/v1/webhooks/", json={"url": "https://hooks.example.org/"})
    is_error(refused, 409, "10 webhooks are registered already; 10 are allowed")
    for method, path, allow in [
        ("PATCH", f"/api/v1/webhooks/{second['webhook_id']}/", "GET, HEAD, DELETE, OPTIONS"),
        ("DELETE", "/api/v1/webhooks/", "GET, HEAD, POST, OPTIONS"),
        ("GET", f"/api/v1/webhooks/{uuid.uuid4()}/deliveries/{uuid.uuid4()}/replay/", "POST, OPTIONS"),
    ]:
        response = fresh.request(method, path)
        assert (response.status_code, response.headers["Allow"]) == (405, allow)


@pytest.mark.parametrize(("body", "word"), [
    ({}, "url is required"), ({"url": None}, "url is required"), ({"url": 5}, "must be a string"), ({"url": ""}, "no address"),
    ({"url": "example.org"}, "no address"), ({"url": "http://example.org/"}, "without TLS"),
    ({"url": "gopher://example.org/"}, "https:// is expected"), ({"url": "https://a:b@example.org/"}, "name or password"),
    ({"url": "https://example.org/#x"}, "#"), ({"url": "https://example.org/" + "x" * 2048}, "2048"),
    ({"url": "https://127.0.0.1/"}, "no other may be told"), ({"url": "https://0x7f000001/"}, "no other may be told"),
    ({"url": "https://10.0.0.1/"}, "no other may be told"), ({"url": "https://169.254.169.254/latest/"}, "no other may be told"),
    ({"url": "https://[::1]/"}, "no other may be told"), ({"url": "https://[::ffff:169.254.169.254]/"}, "no other may be told"),
    ({"url": "https://[fd00:ec2::254]/"}, "no other may be told"), ({"url": "https://224.0.0.1/"}, "no other may be told"),
], ids=str)  # fmt: skip
def test_rules_93_and_97_wrong_addresses_are_refused(alice, body, word):
    response = alice.request("POST", "/api/v1/webhooks/", json=body)
    is_error(response, 400)
    assert word in response.json()["error"], response.text
    assert alice.get("/api/v1/webhooks/").json() == []


def test_rule_16_webhooks_of_others_are_not_there(teller, user, flat):
    other = teller.user(f"u{uuid.uuid4().hex[:12]}")
    with Receiver() as receiver:
        hook = add(user, receiver.url)
        ended(user, flat)
        ended(other, flat)
        delivery = settled(user, hook, is_delivered)
        assert len(receiver.told) == 1
        for method, path in [
            ("GET", ""), ("HEAD", ""), ("DELETE", ""), ("GET", "deliveries/"), ("GET", "deliveries/?limit=0"),
            ("POST", f"deliveries/{delivery['delivery_id']}/replay/"), ("POST", f"deliveries/{uuid.uuid4()}/replay/"),
        ]:  # fmt: skip
            foreign = other.request(method, f"/api/v1/webhooks/{hook['webhook_id']}/{path}")
            unknown = other.request(method, f"/api/v1/webhooks/{uuid.uuid4()}/{path}")
            assert seen(foreign) == seen(unknown) and foreign.status_code in (404, 400)
        is_error(type(user)(teller, None).get("/api/v1/webhooks/"), 401)
        assert other.get("/api/v1/webhooks/").json() == [] and deliveries(user, hook) == [delivery]
        assert len(receiver.told) == 1


def test_rules_94_and_95_every_end_is_told_and_signed(make_server, flat, capture):
    server = make_server(TO_THIS_MACHINE | {"workers": 1})
    client = server.user("anna")
    with Receiver() as receiver:
        hook, other = add(client, receiver.url), add(client, receiver.url + "/2")
        jobs = {client.submit(capture): "job.finished", client.submit(flat): "job.failed", ended(client, flat): "job.cancelled"}
        told = receiver.wait(2 * len(jobs), within=240)
        assert len({request.id for request in told}) == len(told)
        for request in told:
            mine, foreign = (hook, other) if request.path == "/hook" else (other, hook)
            event = verify(mine, request)
            assert set(event) == {"type", "timestamp", "data"} and event["type"] == jobs[event["data"]["job_id"]]
            assert event["data"] == client.job(event["data"]["job_id"])
            assert event["timestamp"].endswith("Z") and request.headers["content-type"] == "application/json"
            assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 300
            # Nothing else is genuine: another secret, another body, another id, another time.
            with pytest.raises(WebhookVerificationError):
                verify(foreign, request)
            for changed in ({"webhook-id": "x"}, {"webhook-timestamp": str(int(request.headers["webhook-timestamp"]) + 1)}):
                with pytest.raises(WebhookVerificationError):
                    Webhook(mine["secret"]).verify(request.body, request.headers | changed)
            with pytest.raises(WebhookVerificationError):
                Webhook(mine["secret"]).verify(request.body.replace(b"false", b"true"), request.headers)
        for one in (hook, other):
            assert sorted(d["event"] for d in deliveries(client, one)) == sorted(jobs.values())
        secret = hook["secret"].removeprefix("whsec_")
        assert secret not in server.log_text()
        with server.rows(read_only=True) as rows:
            assert secret not in str(rows.execute("SELECT * FROM webhooks").fetchall())


def test_rule_96_one_that_fails_is_told_again_when_it_comes_back(user, flat):
    answers = iter([500, 429])
    with Receiver(lambda answer, _: answer.reply(next(answers, 200))) as receiver:
        hook = add(user, receiver.url)
        job = ended(user, flat)
        tried = settled(user, hook, is_tried)
        assert (tried["status"], tried["response_status"], tried["attempts"]) == ("pending", 500, 1)
        assert tried["error"] == "it answered 500 Internal Server Error" and tried["next_attempt_at"] > tried["last_attempt_at"]
        first, second, third = receiver.wait(3, within=60)
        # About 5 and about 20 seconds; up to one more until it is looked.
        assert 3.9 < second.at - first.at < 8.5 and 15.9 < third.at - second.at < 26.5
        assert first.id == second.id == third.id == tried["delivery_id"] and first.body == second.body
        assert verify(hook, third)["data"]["job_id"] == job
        done = settled(user, hook, is_delivered)
        assert (done["attempts"], done["response_status"], done["error"], done["next_attempt_at"]) == (3, 200, None, None)


def test_rule_96_one_that_is_not_there_keeps_nobody_waiting(user, flat):
    with Receiver() as receiver:
        gone, hook = add(user, f"http://127.0.0.1:{free_port()}/"), add(user, receiver.url)
        ended(user, flat)
        began = time.monotonic()
        receiver.wait(within=5)
        assert time.monotonic() - began < 4
        assert "cannot be connected to" in settled(user, gone, is_tried)["error"]
        assert settled(user, hook, is_delivered)["attempts"] == 1


def test_rule_96_one_that_hangs_is_left_after_ten_seconds(user, flat):
    release = threading.Event()
    with Receiver(lambda *_: release.wait(60)) as hanging, Receiver() as receiver:
        hook, other = add(user, hanging.url), add(user, receiver.url)
        jobs = [ended(user, flat) for _ in range(3)]
        # The other is told all meanwhile, in order.
        assert [request.event["data"]["job_id"] for request in receiver.wait(3, within=8)] == jobs
        assert len(hanging.told) == 1, "one at a time"
        end = time.monotonic() + 25
        while not (tried := [d for d in deliveries(user, hook) if d["attempts"]]):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert tried[0]["error"] == "it did not answer within 10 seconds" and tried[0]["job_id"] == jobs[0]
        release.set()
        assert all(d["status"] == "delivered" for d in deliveries(user, other))


def test_rule_96_redirects_are_not_followed(user, flat):
    with Receiver() as elsewhere:
        for target in ("http://169.254.169.254/latest/meta-data/", elsewhere.url):
            with Receiver(lambda answer, _, to=target: answer.reply(302, {"Location": to})) as receiver:
                hook = add(user, receiver.url)
                ended(user, flat)
                tried = settled(user, hook, is_tried)
                assert (tried["status"], tried["response_status"]) == ("pending", 302)
                assert tried["error"] == "it answered 302 Found; redirects are not followed"
                user.request("DELETE", f"/api/v1/webhooks/{hook['webhook_id']}/")
        assert elsewhere.told == []


def test_rule_96_an_endless_answer_is_not_taken(user, flat):
    sent = []

    def endless(answer, _):
        answer.send_response(200)
        answer.send_header("Content-Length", str(5 * 10**9))
        answer.end_headers()
        for _ in range(5 * 10**9 // 2**16):
            answer.wfile.write(bytes(2**16))
            sent.append(2**16)

    with Receiver(endless) as receiver:
        hook = add(user, receiver.url)
        ended(user, flat)
        assert settled(user, hook, is_delivered)["response_status"] == 200
        # No more than what lies in the buffers of the system.
        time.sleep(1)
        assert sum(sent) < 16 * 2**20


def test_rule_96_who_says_gone_is_told_once(user, flat):
    with Receiver(lambda answer, _: answer.reply(410)) as receiver:
        hook = add(user, receiver.url)
        ended(user, flat)
        tried = settled(user, hook, is_tried)
        assert (tried["status"], tried["attempts"], tried["next_attempt_at"]) == ("failed", 1, None)
        assert len(receiver.told) == 1


def test_rule_96_what_always_fails_is_given_up_and_can_be_told_again(teller, user, flat):
    status = [503]
    with Receiver(lambda answer, _: answer.reply(status[0])) as receiver:
        hook = add(user, receiver.url)
        ended(user, flat)
        delivery = settled(user, hook, is_tried)
        with teller.rows() as rows:
            # Ten tries and most of a day later.
            changed = rows.execute("UPDATE webhook_deliveries SET attempts = 11, next_at = 0 WHERE delivery_id = ?", (delivery["delivery_id"],))
            assert changed.rowcount == 1
        given_up = settled(user, hook, lambda d: d["status"] == "failed")
        assert (given_up["attempts"], given_up["response_status"], given_up["next_attempt_at"]) == (12, 503, None)
        status[0] = 200
        path = f"/api/v1/webhooks/{hook['webhook_id']}/deliveries/{delivery['delivery_id']}/replay"
        replayed = user.request("POST", path)
        assert replayed.status_code == 200 and set(replayed.json()) == DELIVERY_FIELDS
        assert (replayed.json()["status"], replayed.json()["attempts"]) == ("pending", 0)
        assert settled(user, hook, is_delivered)["attempts"] == 1
        # One that was taken is told again too, as the same.
        before = len(receiver.told)
        assert user.request("POST", path + "/").status_code == 200
        again = receiver.wait(before + 1)[-1]
        assert again.id == delivery["delivery_id"] and verify(hook, again)["type"] == "job.cancelled"
        is_error(user.request("POST", path.replace(delivery["delivery_id"], str(uuid.uuid4()))), 404, "Delivery not found")
        is_error(user.request("POST", path.replace(delivery["delivery_id"], "x")), 404, "Delivery not found")


def test_rule_96_of_a_job_nothing_is_told_before_what_happened_first(teller, user, flat):
    answers = iter([500])
    with Receiver(lambda answer, _: answer.reply(next(answers, 200))) as receiver:
        hook = add(user, receiver.url)
        job = ended(user, flat)
        settled(user, hook, is_tried)
        with teller.rows() as rows:
            # As when the files of a scene were lost, and it is made once more.
            rows.execute("UPDATE jobs SET state = 'queued', failure_code = NULL, failure_message = NULL WHERE job_id = ?", (job,))
        assert user.request("POST", f"/api/v1/jobs/{job}/cancel/").status_code == 200
        last = ended(user, flat)
        told = receiver.wait(4)
        assert [request.event["data"]["job_id"] for request in told] == [job, last, job, job]
        assert told[0].id == told[2].id != told[3].id


def test_rule_97_a_name_that_leads_inside_is_not_connected_to(server, fresh, flat):
    """It is judged by the address that it has when it is told; the server may tell nobody on this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(1)
        hook = add(fresh, f"https://localhost:{listener.getsockname()[1]}/")
        ended(fresh, flat)
        error = settled(fresh, hook, is_tried)["error"]
        assert error == "its name does not lead to an address that everybody on the Internet can reach"
        with pytest.raises(TimeoutError):
            listener.accept()
    unknown = add(fresh, "https://no-such-name.invalid/")
    ended(fresh, flat)
    assert "cannot be connected to" in settled(fresh, unknown, is_tried)["error"]


def test_rule_97_a_number_is_looked_at_again_when_it_is_told(teller, flat, make_server):
    """What the operator has taken back is told nothing any more."""
    server = make_server(TO_THIS_MACHINE)
    client = server.user("anna")
    with Receiver() as receiver:
        hook = add(client, receiver.url)
        ended(client, flat)
        settled(client, hook, is_delivered)
        server.stop()
        server.config["webhooks"] = {"allow_http": True}
        server.start()
        ended(client, flat)
        assert "no other may be told" in settled(client, hook, is_tried)["error"]
        assert len(receiver.told) == 1


def test_rule_97_certificates_are_verified(make_server, tmp_path, flat):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    authority, certificate, key = tmp_path / "authority.pem", tmp_path / "certificate.pem", tmp_path / "key.pem"
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for command in (
        ["req", "-x509", *new_key, "-days", "2", "-keyout", "authority.key", "-out", authority, "-subj", "/CN=authority"],
        ["req", "-new", *new_key, "-keyout", key, "-out", "request.pem", "-subj", "/CN=receiver"],
        ["x509", "-req", "-in", "request.pem", "-CA", authority, "-CAkey", "authority.key", "-CAcreateserial", "-days", "2",
         "-extfile", "names", "-out", certificate],
    ):  # fmt: skip
        subprocess.run(["openssl", *command], cwd=tmp_path, check=True, capture_output=True)
    settings = {"webhooks": {"allowed_networks": ["127.0.0.0/8"]}}
    trusting, doubting = make_server(settings, {"SSL_CERT_FILE": str(authority)}), make_server(settings)
    with Receiver(tls=(certificate, key)) as receiver:
        client = doubting.user("anna")
        hook = add(client, receiver.url)
        ended(client, flat)
        assert "certificate" in settled(client, hook, is_tried)["error"]
        assert receiver.told == []
        client = trusting.user("anna")
        hook = add(client, receiver.url)
        ended(client, flat)
        settled(client, hook, is_delivered)
        verify(hook, receiver.wait()[0])


def test_rule_96_a_killed_server_loses_nothing(make_server, flat):
    server = make_server(TO_THIS_MACHINE)
    client = server.user("anna")
    port = free_port()
    hook = add(client, f"http://127.0.0.1:{port}/hook")
    jobs = [ended(client, flat) for _ in range(5)]
    server.kill()
    with Receiver(port=port) as receiver:
        server.start()
        # What the killed process was at is told again when its time is over.
        told = receiver.wait(5, within=90)
        assert sorted(verify(hook, request)["data"]["job_id"] for request in told) == sorted(jobs)


@pytest.mark.skipif(not built_with_failpoints(), reason="the binary is built without failpoints")
@pytest.mark.parametrize("place", ["take_deliveries", "note_delivery", "cancel_job"])
def test_rule_96_a_server_that_is_killed_before_a_commit(make_server, flat, place):
    server = make_server(TO_THIS_MACHINE)
    client = server.user("anna")
    with Receiver() as receiver:
        hook, job = add(client, receiver.url), client.submit(flat)
        server.stop()
        server.start({"FAILPOINTS": f"database.{place}.commit=1*return(kill)"})
        # The answer may be lost with the server.
        with contextlib.suppress(requests.RequestException):
            client.request("POST", f"/api/v1/jobs/{job}/cancel/")
        server.process.wait(20)
        told_before = [request.id for request in receiver.told]
        assert len(told_before) == (1 if place == "note_delivery" else 0)
        with server.rows() as rows:
            # Who held it is gone; nobody need wait for that minute.
            rows.execute("UPDATE webhook_deliveries SET taken_until = 0 WHERE taken_until IS NOT NULL")
        server.start()
        if place == "cancel_job":
            # Neither is there: the end, and what is told of it.
            assert client.job(job)["status"].startswith("Queued") and deliveries(client, hook) == []
            assert client.request("POST", f"/api/v1/jobs/{job}/cancel/").status_code == 200
        delivery = settled(client, hook, is_delivered)
        assert [request.id for request in receiver.told] == [*told_before, delivery["delivery_id"]]
        assert set(told_before) <= {delivery["delivery_id"]} and verify(hook, receiver.told[-1])["data"]["job_id"] == job


def test_rule_96_each_of_many_servers_tells_and_each_thing_is_told_once(make_server, flat):
    if storage.IS_ASKED_FOR and not postgres.IS_ASKED_FOR:
        pytest.skip("servers share what is stored only with the rows")
    first = make_server(TO_THIS_MACHINE)
    second = make_server(TO_THIS_MACHINE, start=False)
    second.share(first)
    if postgres.IS_ASKED_FOR:
        second.config["secrets"] = str(first.data / "secrets.json")
    second.start()
    client = first.user("anna")
    with Receiver() as receiver:
        hooks = [add(client, f"{receiver.url}/{n}") for n in range(10)]
        jobs = [ended(client, flat) for _ in range(10)]
        receiver.wait(100, within=60)
        time.sleep(2)
        told = [(request.path, request.event["data"]["job_id"]) for request in receiver.told]
        assert len(told) == len(set(told)) == 100
        # Each by the secret that the first server gave out, and each address in order.
        for n, hook in enumerate(hooks):
            mine = [request for request in receiver.told if request.path == f"/hook/{n}"]
            assert [verify(hook, request)["data"]["job_id"] for request in mine] == jobs


def test_rule_98_deliveries_in_pages(user, flat):
    with Receiver() as receiver:
        hook = add(user, receiver.url)
        jobs = [ended(user, flat) for _ in range(5)]
        receiver.wait(5)
        settled(user, hook, is_delivered)
        assert [d["job_id"] for d in deliveries(user, hook)] == jobs[::-1]
        url, found = f"/api/v1/webhooks/{hook['webhook_id']}/deliveries/?limit=2", []
        while url:
            response = user.get(url)
            found += response.json()
            url = response.links.get("next", {}).get("url")
        assert found == deliveries(user, hook)
        for query in ("?limit=0", "?limit=1001", "?limit=x", "?cursor=x"):
            is_error(user.get(f"/api/v1/webhooks/{hook['webhook_id']}/deliveries/{query}"), 400)
        # A job that is deleted takes along what was told of it.
        assert user.delete(jobs[0]).status_code == 204
        assert [d["job_id"] for d in deliveries(user, hook)] == jobs[:0:-1]


def test_rule_98_a_deleted_job_or_webhook_is_not_told_of(teller, user, flat):
    port = free_port()
    hook, other = add(user, f"http://127.0.0.1:{port}/hook"), add(user, f"http://127.0.0.1:{port}/other")
    job, kept = ended(user, flat), ended(user, flat)
    settled(user, hook, is_tried)
    assert user.delete(job).status_code == 204
    assert user.request("DELETE", f"/api/v1/webhooks/{other['webhook_id']}/").status_code == 204
    with Receiver(port=port) as receiver:
        told = receiver.wait(within=60)
        time.sleep(2)
        assert [(r.path, r.event["data"]["job_id"]) for r in receiver.told] == [("/hook", kept)], told


def test_rule_15_who_has_left_the_tier_is_told_nothing(teller, user, flat):
    with Receiver() as receiver:
        hook = add(user, receiver.url)
        job = user.submit(flat)
        teller.command("users", "set-tier", user.name, "free")
        with teller.rows() as rows:
            rows.execute("UPDATE jobs SET state = 'failed', failure_code = 'cancelled', failure_message = '' WHERE job_id = ?", (job,))
        time.sleep(3)
        assert receiver.told == []
        teller.command("users", "set-tier", user.name, "enterprise")
        assert verify(hook, receiver.wait()[0])["type"] == "job.cancelled"


def test_an_operator_may_switch_it_off(make_server, flat):
    server = make_server({"webhooks": {"max_per_user": 0}})
    client = server.user("anna")
    refused = client.request("POST", "/api/v1/webhooks/", json={"url": "https://example.org/"})
    is_error(refused, 409, "0 webhooks are registered already; 0 are allowed")
    ended(client, flat)


def test_what_is_told_is_counted(user, flat):
    with Receiver() as receiver:
        add(user, receiver.url)
        ended(user, flat)
        receiver.wait()
    counted = user.get("/metrics").text
    assert 'reconstruct_webhook_attempts_total{outcome="taken"}' in counted
