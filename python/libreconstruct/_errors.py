"""The exceptions. One table says which kind of error of the engine becomes which class."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex


class ReconstructError(Exception):
    """Everything that this package raises by itself.

    `slug` names the kind of error (stable, for programs), `message` says what was wrong and with which value, `hint` what to
    do about it, `stage` in which stage of a reconstruction it happened (`frames`, `sfm`, `train`, `export`).
    """

    slug: str
    message: str
    hint: str | None
    stage: str | None

    def __init__(self, message: str, *, slug: str = "internal", hint: str | None = None, stage: str | None = None):
        super().__init__(f"{message} ({hint})" if hint else message)
        self.slug = slug
        self.message = message
        self.hint = hint
        self.stage = stage

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(cls: type[ReconstructError], args: tuple[Any, ...], state: dict[str, Any]) -> ReconstructError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidInputError(ReconstructError, ValueError):
    """An option, a file or a video is not what it should be."""


class NotFoundError(ReconstructError, LookupError):
    """There is no such job, file or user."""


class UnsupportedError(ReconstructError, NotImplementedError):
    """This build, or this server, cannot do it."""


class MissingDependencyError(ReconstructError, RuntimeError):
    """A program, package or device that is needed is not there."""


class DeviceError(ReconstructError, RuntimeError):
    """The graphics device was lost or ran out of memory."""


class CannotReconstructError(ReconstructError, RuntimeError):
    """The pictures do not determine a scene; the message says why and what to film instead."""


class StorageError(ReconstructError, OSError):
    """The disk is full, or the operating system refused to read or write."""


class AuthError(ReconstructError, PermissionError):
    """The API key is missing, unknown or revoked."""


class PermissionDeniedError(ReconstructError, PermissionError):
    """The API key is genuine, but its owner may not do this."""


class ConflictError(ReconstructError, RuntimeError):
    """What was asked for contradicts the state of the job, the upload or the engine."""


class RateLimitedError(ReconstructError, RuntimeError):
    """A limit on how much one user may ask for. `retry_after`: seconds until it makes sense to try again, if known."""

    retry_after: float | None = None


class ServerConnectionError(ReconstructError, ConnectionError):
    """The server cannot be reached, or the connection broke more often than it is worth trying again."""


class CancelledError(ReconstructError, RuntimeError):
    """The work was cancelled."""


class DeadlineError(ReconstructError, TimeoutError):
    """It took longer than it was allowed to."""


class InternalError(ReconstructError, RuntimeError):
    """A fault of the engine or of the server."""


class JobFailedError(ReconstructError, RuntimeError):
    """A job ended without a scene: `job_id`, and as `reason` the slug of the failure (`unknown` if a server does not tell)."""

    job_id: str
    reason: str

    def __init__(self, message: str, *, job_id: str, reason: str):
        super().__init__(message, slug=reason)
        self.job_id = job_id
        self.reason = reason


class JobCancelledError(JobFailedError):
    """A job was cancelled before it had a scene."""


KINDS: dict[str, type[ReconstructError]] = {
    "invalid_argument": InvalidInputError,
    "unsupported": UnsupportedError,
    "not_found": NotFoundError,
    "invalid_media": InvalidInputError,
    "invalid_file": InvalidInputError,
    "ffmpeg_missing": MissingDependencyError,
    "too_few_frames": CannotReconstructError,
    "insufficient_features": CannotReconstructError,
    "insufficient_parallax": CannotReconstructError,
    "partial_reconstruction": CannotReconstructError,
    "intrinsics_unreliable": CannotReconstructError,
    "unreliable_reconstruction": CannotReconstructError,
    "no_gpu": MissingDependencyError,
    "gpu": DeviceError,
    "disk_full": StorageError,
    "io": StorageError,
    "unauthenticated": AuthError,
    "permission_denied": PermissionDeniedError,
    "conflict": ConflictError,
    "idempotency_mismatch": ConflictError,
    "too_many_requests": RateLimitedError,
    "too_large": InvalidInputError,
    "cancelled": CancelledError,
    "deadline_exceeded": DeadlineError,
    "internal": InternalError,
}
"""The class of every kind of error (`libreconstruct::ErrorKind` in Rust)."""


def from_kind(slug: str, message: str, hint: str | None = None, stage: str | None = None) -> ReconstructError:
    """The exception for a kind of error; the extension module calls this."""
    return KINDS.get(slug, ReconstructError)(message, slug=slug, hint=hint, stage=stage)


def job_failed(job_id: str, reason: str, message: str) -> JobFailedError:
    """The exception for a failed job."""
    cls = JobCancelledError if reason == "cancelled" else JobFailedError
    return cls(message, job_id=job_id, reason=reason)


def whole(name: str, value: SupportsIndex) -> int:
    """The value, if it is a number that the engine can count with; what is beyond that never gets as far as the engine's own checks."""
    number = operator.index(value)
    if not 0 <= number < 1 << 32:
        raise from_kind("invalid_argument", f"{name} is {number}: it must be {'0 or more' if number < 0 else 'below 4294967296'}")
    return number


def need(package: str, what: str) -> Any:
    """Imports an optional package, or says who needs it."""
    import importlib

    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        name = {"PIL.Image": "pillow"}.get(package, package.partition(".")[0])
        raise MissingDependencyError(f"{what} needs the package {name}", hint=f"pip install {name}") from error
