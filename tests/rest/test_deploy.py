"""The files of deploy/: no engine of containers runs them here, so what they name must be there, fit its schema, and do what it
says: settings, options, the query of the queue."""

import json
import math
import os
import re
import subprocess

import kubernetes_validate
import pytest
import yaml

from . import media, postgres
from .server import BINARY, ROOT, Server

DEPLOY = ROOT / "deploy"
CONTAINERFILE = (ROOT / "packaging/container/Containerfile").read_text()
# The oldest version of Kubernetes that has all that is used: podFailurePolicy is stable since.
KUBERNETES = "1.31"
# Variables of others.
FOREIGN = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "NVIDIA_DRIVER_CAPABILITIES"}


def clean() -> dict:
    return {k: v for k, v in os.environ.items() if not k.startswith("LIBRECONSTRUCT_")}


@pytest.fixture(scope="module")
def settings() -> set[str]:
    """All variables that the program knows."""
    done = subprocess.run([BINARY, "serve", "--print-config"], capture_output=True, text=True, check=True, env=clean())
    section, names = "", set()
    for line in done.stdout.splitlines():
        if found := re.fullmatch(r"\[(\w+)\]", line):
            section = found[1] + "_"
        elif found := re.match(r"(?:# )?(\w+) =", line):
            names.add(f"LIBRECONSTRUCT_{section}{found[1]}".upper())
    assert len(names) > 30
    return names


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def compose() -> dict:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def templates():
    """The containers of Kubernetes, by the object that has them."""
    for document in documents("kubernetes/servers.yaml") + documents("kubernetes/workers.yaml"):
        spec = document.get("spec", {})
        template = spec.get("template") or spec.get("jobTargetRef", {}).get("template")
        if template:
            yield document["kind"], template["spec"]


def parses(arguments: list[str]) -> None:
    done = subprocess.run([BINARY, *map(str, arguments), "--help"], capture_output=True, text=True, env=clean())
    assert done.returncode == 0, done.stderr


def test_the_objects_of_kubernetes_fit_their_schemas():
    kinds = []
    for document in documents("kubernetes/servers.yaml"):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
        kinds.append(document["kind"])
    assert kinds == ["ConfigMap", "Deployment", "Service", "PodDisruptionBudget"]
    [authentication, scaled] = documents("kubernetes/workers.yaml")
    # KEDA makes Jobs of it.
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "worker"}, "spec": scaled["spec"]["jobTargetRef"]}
    kubernetes_validate.validate(job, KUBERNETES, strict=True)
    assert (scaled["kind"], authentication["kind"]) == ("ScaledJob", "TriggerAuthentication")
    known = {
        "jobTargetRef", "pollingInterval", "minReplicaCount", "maxReplicaCount", "successfulJobsHistoryLimit", "failedJobsHistoryLimit",
        "envSourceContainerName", "rollout", "scalingStrategy", "triggers",
    }
    assert set(scaled["spec"]) <= known
    # The default would kill running workers when this file changes.
    assert scaled["spec"]["rollout"]["strategy"] == "gradual"
    assert scaled["spec"]["triggers"][0]["authenticationRef"]["name"] == authentication["metadata"]["name"]
    # What Kubernetes refuses, and the schema does not know.
    pod = scaled["spec"]["jobTargetRef"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    rule = scaled["spec"]["jobTargetRef"]["podFailurePolicy"]["rules"][1]
    assert rule["onExitCodes"]["containerName"] in [container["name"] for container in pod["containers"]]
    budget, deployment = documents("kubernetes/servers.yaml")[3], documents("kubernetes/servers.yaml")[1]
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]


def test_the_commands_for_kubernetes_are_in_order():
    text = (DEPLOY / "README.md").read_text()
    [block] = [block for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if "kubectl" in block]
    commands = block.replace("\\\n", " ").strip().splitlines()
    [made, *others] = [command for command in commands if command.startswith("kubectl ")]
    assert made == "kubectl create namespace reconstruct"
    for command in others:
        assert command.startswith("kubectl -n reconstruct "), command
    # No object says it itself, or it would be told twice.
    for name in ("kubernetes/servers.yaml", "kubernetes/workers.yaml"):
        assert all("namespace" not in document["metadata"] for document in documents(name)), name
    # The role may read a table of the first server.
    assert commands[-1].startswith("psql ") and "queue-reader.sql" in commands[-1]
    [awaited] = [command for command in others if "rollout status" in command]
    deployments = [document for document in documents("kubernetes/servers.yaml") if document["kind"] == "Deployment"]
    assert f"deployment/{deployments[0]['metadata']['name']}" in awaited


def test_every_setting_and_option_is_one_of_the_program(settings):
    [config] = [d for d in documents("kubernetes/servers.yaml") if d["kind"] == "ConfigMap"]
    names = set(config["data"])
    for _, pod in templates():
        for container in pod["containers"]:
            names |= {variable["name"] for variable in container["env"]}
            parses(container["args"])
    services = compose()["services"]
    for service in services.values():
        if service["image"] == "reconstruct":
            names |= set(service.get("environment", {}))
            parses(service["command"])
    names |= set(re.findall(r"\b(LIBRECONSTRUCT_[A-Z_]+)=", CONTAINERFILE))
    assert names - FOREIGN <= settings, names - FOREIGN - settings
    assert {"LIBRECONSTRUCT_DATABASE", "LIBRECONSTRUCT_STORAGE", "LIBRECONSTRUCT_SECRETS"} <= names


def test_the_values_are_taken(settings):
    """What the program says with these variables set: a value that it cannot read is an error."""
    [config] = [d for d in documents("kubernetes/servers.yaml") if d["kind"] == "ConfigMap"]
    environments = [config["data"]]
    for service in compose()["services"].values():
        if service["image"] == "reconstruct":
            values = {k: re.sub(r"\$\{(\w+):-([^}]*)\}", r"\2", v) for k, v in service.get("environment", {}).items()}
            environments.append(values)
    for kind, pod in templates():
        environments.append({v["name"]: v["value"] for c in pod["containers"] for v in c["env"] if "value" in v})
    for environment in environments:
        done = subprocess.run([BINARY, "serve", "--print-config"], capture_output=True, text=True, env=clean() | environment)
        assert done.returncode == 0, (environment, done.stderr)


def test_no_job_may_ask_for_more_than_a_worker_has_memory_for():
    """Else it waits for ever, and KEDA starts one worker after the other for it."""
    [config] = [d for d in documents("kubernetes/servers.yaml") if d["kind"] == "ConfigMap"]
    [pod] = [pod for kind, pod in templates() if kind == "ScaledJob"]
    [worker] = pod["containers"]
    environment = config["data"] | {v["name"]: v["value"] for v in worker["env"] if "value" in v}
    done = subprocess.run([BINARY, "serve", "--print-config"], capture_output=True, text=True, check=True, env=clean() | environment)

    def setting(name: str) -> int:
        [value] = re.findall(rf"^{name} = (\d+)$", done.stdout, re.MULTILINE)
        return int(value)

    source = (ROOT / "core/src/service/machine.rs").read_text()

    def constant(name: str) -> int:
        [expression] = re.findall(rf"^const {name}: u64 = ([\d *<]+);", source, re.MULTILINE)
        numbers = [int(number) for number in re.findall(r"\d+", expression)]
        return numbers[0] << numbers[1] if "<<" in expression else math.prod(numbers)

    assert "LIBRECONSTRUCT_LIMITS_MAX_GAUSSIANS" in config["data"]
    side = min(setting("max_resolution"), setting("training_max_resolution"))
    # As the worker reckons: pictures of 16:9 at four bytes a pixel.
    beside = constant("BYTES_BESIDE") + constant("USUAL_PICTURES") * 4 * (side * side * 9 // 16)
    needed = setting("max_gaussians") * constant("BYTES_PER_GAUSSIAN") + beside
    memory = re.fullmatch(r"(\d+)Gi", worker["resources"]["limits"]["memory"])
    # What the program itself has taken before is not free.
    assert needed + (256 << 20) <= int(memory[1]) << 30


def test_containers_have_no_rights_that_they_do_not_need():
    for kind, pod in templates():
        assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"], kind
        for container in pod["containers"]:
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"] and rights["capabilities"] == {"drop": ["ALL"]}
            # All that is written has a place.
            assert {"/var/lib/reconstruct", "/tmp"} <= {mount["mountPath"] for mount in container["volumeMounts"]}
    for name, service in compose()["services"].items():
        if service["image"] == "reconstruct":
            assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["tmpfs"], name
    assert re.search(r"^USER 10001", CONTAINERFILE, re.MULTILINE)
    # Without it NVIDIA's toolkit brings no Vulkan.
    assert re.search(r"NVIDIA_DRIVER_CAPABILITIES=\S*graphics", CONTAINERFILE)
    for _, pod in templates():
        for container in pod["containers"]:
            if "nvidia.com/gpu" in container["resources"]["limits"]:
                assert "graphics" in {v["name"]: v.get("value", "") for v in container["env"]}["NVIDIA_DRIVER_CAPABILITIES"]


def test_all_that_compose_names_is_there():
    whole = compose()
    services = whole["services"]
    volumes = {v.split(":")[0] for s in services.values() for v in s.get("volumes", [])}
    assert volumes == set(whole["volumes"])
    for name, service in services.items():
        assert set(service.get("depends_on", [])) <= set(services), name
        assert {c["source"] for c in service.get("configs", [])} <= set(whole["configs"]), name
        assert set(service.get("networks", [])) <= set(whole["networks"]), name
    servers = [name for name in services if services[name].get("command") == ["serve"]]
    workers = [name for name in services if services[name].get("command", [""])[0] == "worker"]
    assert (len(servers), len(workers)) == (2, 2)
    balancer = whole["configs"]["balancer"]["content"]
    for server in servers:
        assert f"server {server} {server}:8080" in balancer
    # The servers believe the balancer, and nobody else, who asks.
    believed = services[servers[0]]["environment"]["LIBRECONSTRUCT_TRUSTED_PROXIES"]
    assert services["balancer"]["networks"]["inside"]["ipv4_address"] == believed
    # As it will be once the passwords are in it.
    assert json.loads(re.sub(r"\$\{\w+\}", "x", whole["configs"]["s3"]["content"]))["identities"][0]["credentials"]


def test_secrets_are_made_once_for_their_owner(tmp_path):
    script = tmp_path / "make-secrets"
    script.write_text((DEPLOY / "make-secrets").read_text())
    subprocess.run(["sh", script], check=True)
    first = (tmp_path / ".env").read_text()
    subprocess.run(["sh", script], check=True, capture_output=True)
    assert (tmp_path / ".env").read_text() == first and (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    values = dict(line.split("=") for line in first.splitlines())
    asked = set(re.findall(r"\$\{(\w+)(?::\?[^}]*)?\}", (DEPLOY / "compose.yaml").read_text()))
    assert asked == set(values) and all(re.fullmatch("[0-9a-f]{48}", value) for value in values.values())
    # The one-shot service of compose.yaml: a command on a new folder makes the secrets, the next one leaves them.
    command = compose()["services"]["secrets"]["command"]
    command = [str(tmp_path / "data") if word == "/var/lib/reconstruct" else word for word in command]
    subprocess.run([BINARY, *command], check=True, capture_output=True, env=clean())
    made = (tmp_path / "data/secrets.json").read_text()
    subprocess.run([BINARY, *command], check=True, capture_output=True, env=clean())
    assert (tmp_path / "data/secrets.json").read_text() == made


def test_the_query_of_the_queue_counts_what_needs_a_worker(tmp_path):
    """Against a real PostgreSQL with our tables, as the role that may do no more than that."""
    cluster = postgres.cluster()
    data = tmp_path / "server"
    server = Server(data, postgres.settings(data / "data"))
    server.start()
    try:
        client = server.user("anna")
        jobs = [client.submit(media.flat_video()) for _ in range(3)]
        name = server.config["database"].rsplit("/", 1)[1]
        script = DEPLOY / "kubernetes/queue-reader.sql"
        # It runs as another user, who may not see our files.
        psql = [cluster.programs / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h", cluster.folder, "-d", name]
        for _ in range(2):
            subprocess.run([*psql, "--set", "password=it's", "-f", script], check=True, capture_output=True)
        [_, scaled] = documents("kubernetes/workers.yaml")
        query = scaled["spec"]["triggers"][0]["metadata"]["query"]

        def as_reader(sql: str) -> subprocess.CompletedProcess:
            return subprocess.run([*psql, "-A", "-t", "-U", "queue_reader", "-c", sql], capture_output=True, text=True)

        assert as_reader(query).stdout.strip() == "3"
        # One that a worker has still needs it: KEDA takes those that run from the count.
        cluster.sql(name, f"UPDATE jobs SET state = 'running', lease_owner = 'x', lease_until = 9e15 WHERE job_id = '{jobs[0]}'")
        assert as_reader(query).stdout.strip() == "3"
        client.request("DELETE", f"/api/v1/jobs/{jobs[1]}/")
        assert as_reader(query).stdout.strip() == "2"

        def rest(job: str, seconds: int) -> None:
            until = f"extract(epoch FROM clock_timestamp() + interval '{seconds} seconds') * 1000000"
            cluster.sql(name, f"UPDATE jobs SET rest_until = {until} WHERE job_id = '{job}'")

        # No worker is given one that rests; what runs has rested before.
        for job, seconds, counted in [(jobs[2], 7200, "1"), (jobs[2], -1, "2"), (jobs[0], 7200, "2")]:
            rest(job, seconds)
            assert as_reader(query).stdout.strip() == counted, (job, seconds)
        # No rest is so long: the clock was ahead when it was noted.
        rest(jobs[2], 2 * 24 * 3600)
        assert as_reader(query).stdout.strip() == "2"
        for forbidden in ("SELECT title FROM jobs", "SELECT * FROM api_keys", "UPDATE jobs SET deleted = TRUE", "DELETE FROM jobs"):
            done = as_reader(forbidden)
            assert done.returncode != 0 and re.search("permission denied|read-only", done.stderr), (forbidden, done)
    finally:
        server.kill()
