"""What the description of the interface cannot say, told to schemathesis: which videos there are, which cameras make sense, which addresses
may be told; and which servers there are."""

import itertools
import os
import uuid

import schemathesis

BLOB_NAME = os.environ["REST_BLOB_NAME"]
# Each request goes to the next server of the service.
TURNS = itertools.cycle(os.environ["REST_SERVERS"].split())


def is_good(case, location: str) -> bool:
    """Whether that part of the request was generated to be valid."""
    for where, component in case.meta.components.items():
        if str(where.value) == location:
            return component.mode.value == "positive"
    return True


@schemathesis.hook
def before_call(context, case, kwargs):
    case.operation.base_url = next(TURNS)
    body = case.body if isinstance(case.body, dict) and is_good(case, "body") else {}
    operation = case.operation.definition.raw.get("operationId")
    wait = str(case.query.get("wait", "")) if operation == "get_report" and isinstance(case.query, dict) else ""
    if wait.isdecimal() and 1 <= int(wait) <= 60:
        # A real wait would take most of the time, and more than an answer may; also where other parts of the query are wrong.
        case.query["wait"] = 1
    if operation == "add_webhook" and body:
        # Which addresses may be told no pattern says.
        body["url"] = "https://hooks.example.org/"
    if operation in ("submit_job", "restart_job"):
        # A video must have been uploaded, and a key stands for one body only.
        if body and operation == "submit_job":
            body["blob_name"] = BLOB_NAME
        for name in list(case.headers):
            if name.lower() == "idempotency-key" and is_good(case, "header"):
                case.headers[name] = str(uuid.uuid4())
    camera = body.get("camera_data")
    if camera:
        # One that looks somewhere: `up` is not zero, and `position` is not `lookAt`.
        if not any(camera["up"].values()):
            camera["up"] = {"x": 0, "y": 1, "z": 0}
        if camera["position"] == camera["lookAt"]:
            camera["position"] = {"x": 1, "y": 2, "z": 3}
            camera["lookAt"] = {"x": 0, "y": 0, "z": 0}
