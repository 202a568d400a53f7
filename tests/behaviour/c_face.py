"""The face of C: ctypes over the shared library, bound by its header."""

import ctypes
import json
from pathlib import Path
from typing import Any

from .face import FaceError

from c_library import binding
from rest import postgres

if not binding.SHARED.exists():
    raise FileNotFoundError(f"{binding.SHARED} is not there: cargo build --release -p libreconstruct-ffi")

KINDS = {"ply": "RC_ARTIFACT_PLY", "spz": "RC_ARTIFACT_SPZ", "preview": "RC_ARTIFACT_PREVIEW", "report": "RC_ARTIFACT_REPORT", "log": "RC_ARTIFACT_LOG",
         "cameras": "RC_ARTIFACT_CAMERAS", "masks": "RC_ARTIFACT_MASKS", "turntable": "RC_ARTIFACT_TURNTABLE",
         "sog": "RC_ARTIFACT_SOG", "glb": "RC_ARTIFACT_GLB", "first_look": "RC_ARTIFACT_FIRST_LOOK",
         "poses": "RC_ARTIFACT_POSES"}


def encoded(value: str | None) -> bytes | None:
    return None if value is None else str(value).encode()


class _Refusals:
    """Turns errors of the library into those of the suite."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, binding.RcError):
            raise FaceError(error.slug, error.message) from error


class CFace:
    def __init__(self, engine: ctypes.c_void_p):
        self.engine = engine

    def submit(self, video: Path, **options: Any) -> str:
        with _Refusals():
            blob_name = binding.text("rc_engine_import_video", self.engine, encoded(str(video)))
            body = json.dumps({"blob_name": blob_name, **options}).encode()
            job = binding.handle("rc_engine_submit_json", self.engine, body, None)
            job_id = binding.library().rc_job_id(job).decode()
            binding.library().rc_job_free(job)
            return job_id
        raise AssertionError

    def _job(self, job_id: str, work) -> Any:
        with _Refusals():
            job = binding.handle("rc_engine_job", self.engine, encoded(job_id))
            try:
                return work(job)
            finally:
                binding.library().rc_job_free(job)
        raise AssertionError

    def job(self, job_id: str) -> dict[str, Any]:
        return self._job(job_id, lambda job: json.loads(binding.text("rc_job_json", job)))

    def jobs(self, **query: Any) -> dict[str, Any]:
        public = {None: "RC_ANY", False: "RC_NO", True: "RC_YES"}[query.get("public")]
        limit = query.get("limit")
        asked = binding.structure(
            "rc_list_query",
            limit=-1 if limit is None else limit,
            cursor=encoded(query.get("cursor")),
            status=encoded(query.get("status")),
            is_public=binding.header().enumerators[public],
        )
        with _Refusals():
            found = binding.handle("rc_engine_jobs", self.engine, ctypes.byref(asked))
            page = json.loads(binding.library().rc_job_list_json(found))
            binding.library().rc_job_list_free(found)
            return page
        raise AssertionError

    def update(self, job_id: str, **changes: Any) -> dict[str, Any]:
        body = json.dumps(changes).encode()
        self._job(job_id, lambda job: binding.call("rc_job_update_json", job, body))
        return self.job(job_id)

    def cancel(self, job_id: str) -> None:
        self._job(job_id, lambda job: binding.call("rc_job_cancel", job))

    def restart(self, job_id: str, **options: Any) -> str:
        def again(job: ctypes.c_void_p) -> str:
            new = binding.handle("rc_job_restart_json", job, json.dumps(options).encode())
            new_id = binding.library().rc_job_id(new).decode()
            binding.library().rc_job_free(new)
            return new_id

        return self._job(job_id, again)

    def report(self, job_id: str) -> dict[str, Any]:
        return self._job(job_id, lambda job: json.loads(binding.text("rc_job_report_json", job)))

    def delete(self, job_id: str) -> None:
        self._job(job_id, lambda job: binding.call("rc_job_delete", job))

    def download(self, job_id: str, kind: str, path: Path) -> None:
        number = binding.header().enumerators.get(KINDS.get(kind, ""), 0)  # 0 is none: the library refuses it
        self._job(job_id, lambda job: binding.call("rc_job_download", job, number, encoded(str(path))))

    def wait(self, job_id: str, timeout: float) -> dict[str, Any]:
        self._job(job_id, lambda job: binding.call("rc_job_wait", job, timeout, None, None))
        return self.job(job_id)

    def failure(self, job_id: str) -> dict[str, Any] | None:
        def ask(job: ctypes.c_void_p) -> dict[str, Any] | None:
            lib, found = binding.library(), binding.handle("rc_job_failure", job)
            if not found:
                return None
            told = {"code": lib.rc_error_slug(found).decode(), "message": lib.rc_error_message(found).decode()}
            lib.rc_error_free(found)
            return told

        return self._job(job_id, ask)

    def other(self) -> "CFace":
        with _Refusals():
            return CFace(binding.handle("rc_engine_for_user", self.engine, b"bob", 0))
        raise AssertionError

    def close(self) -> None:
        binding.library().rc_engine_free(self.engine)
        self.engine = ctypes.c_void_p()


def open_face(folder: Path, options: dict[str, Any], workers: int) -> CFace:
    settings = json.dumps(options).encode()
    shared = {name: encoded(address) for name, address in postgres.settings(folder).items()} if postgres.IS_ASKED_FOR else {}
    asked = binding.structure("rc_engine_options", user=b"alice", workers=workers, settings_json=settings, **shared)
    return CFace(binding.handle("rc_engine_open", encoded(str(folder)), ctypes.byref(asked)))
