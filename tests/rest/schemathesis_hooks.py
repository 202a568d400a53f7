"""What the description of the interface cannot say, told to schemathesis: which videos there are, and which cameras make sense."""

import os
import uuid

import schemathesis

BLOB_NAME = os.environ["REST_BLOB_NAME"]


def is_good(case, location: str) -> bool:
    """Whether that part of the request was generated to be valid."""
    for where, component in case.meta.components.items():
        if str(where.value) == location:
            return component.mode.value == "positive"
    return True


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.operation.definition.raw.get("operationId") == "submit_job":
        # A video must have been uploaded, and a key stands for one body only.
        if isinstance(case.body, dict) and is_good(case, "body"):
            case.body["blob_name"] = BLOB_NAME
        for name in list(case.headers):
            if name.lower() == "idempotency-key" and is_good(case, "header"):
                case.headers[name] = str(uuid.uuid4())


@schemathesis.hook
def filter_body(context, body):
    """No camera that looks nowhere: `up` is not zero, and `position` is not `lookAt`."""
    camera = body.get("camera_data") if isinstance(body, dict) else None
    if not isinstance(camera, dict):
        return True
    try:
        up, position, target = ([camera[v][k] for k in "xyz"] for v in ("up", "position", "lookAt"))
        return any(up) and position != target
    except (KeyError, TypeError):
        return True
