"""How far work is: to a callable, or as a bar in a notebook or on the terminal."""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Union


class Progress(NamedTuple):
    """How far a reconstruction, a job or a transfer is."""

    fraction: float | None
    """0 to 1 of the whole; `None` as long as nobody knows."""
    stage: str | None
    """`frames`, `sfm`, `train`, `export`, a job's status, `upload` or `download`."""
    message: str
    """Details for people."""
    remaining_seconds: float | None = None
    """Estimated seconds until the *stage* is done; `None` as long as nobody knows, and of jobs, transfers and `Trainer.run`."""


ProgressOption = Union[bool, Callable[[Progress], None]]
"""`True` shows a bar (tqdm if it is there), `False` none; warnings come in any case. A callable gets `Progress` at most ten times a second,
when another stage begins, and at the end."""

_PAUSE = 0.1
"""Seconds between two calls of a callable at least, within a stage."""


class Bar:
    """A bar that is only there while it is used as a context; `update` may be called as often as one likes."""

    def __init__(self, option: ProgressOption, title: str):
        self._option = option
        self._title = title
        self._bar: Any = None
        self._printed = 0.0
        self._line = ""
        self._told = -math.inf
        self._stage: str | None = None
        self._waiting: Progress | None = None

    def __enter__(self) -> Bar:
        if self._option is True:
            self._bar = _tqdm(self._title)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._line:
            sys.stderr.write(f"\r{self._line}\n")
        # Where something went wrong the callable may be what raised it.
        if callable(self._option) and self._waiting is not None and kind is None:
            self._option(self._waiting)

    def update(self, progress: Progress, *, at_once: bool = False) -> None:
        """`at_once`: a callable is told now, however short ago it was told before: what it raises can still stop the work."""
        if callable(self._option):
            now = time.monotonic()
            if progress.stage == self._stage and now - self._told < _PAUSE and not at_once:
                self._waiting = progress
                return
            self._told, self._stage, self._waiting = now, progress.stage, None
            self._option(progress)
        elif self._bar is not None:
            if progress.fraction is not None:
                self._bar.n = round(100 * progress.fraction)
            self._bar.set_postfix_str(" ".join(filter(None, [progress.stage, progress.message])), refresh=False)
            self._bar.refresh()
        elif self._option:
            percent = "" if progress.fraction is None else f"{100 * progress.fraction:3.0f} % "
            line = f"{self._title}: {percent}{progress.stage or ''} {progress.message}"[:100]
            width = len(self._line)
            self._line = line
            if time.monotonic() - self._printed > 0.5:
                self._printed = time.monotonic()
                sys.stderr.write("\r" + line.ljust(width))
                sys.stderr.flush()


def _tqdm(title: str) -> Any:
    try:
        with warnings.catch_warnings():
            # It warns where ipywidgets is missing, and then shows a bar of text: nothing to worry about.
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm

            return tqdm(total=100, desc=title, bar_format="{l_bar}{bar}| {elapsed}<{remaining}{postfix}")
    except ImportError:
        return None


def listener(bar: Bar, *, pipeline: bool = False) -> Callable[[str], None]:
    """What hears the engine's events (as JSON) and shows them. It is needed without a bar, too: a warning is no progress.

    Events of a pipeline tell the fraction of the whole, most of them; others that of their one stage.
    """
    whole: float | None = None

    def hear(text: str) -> None:
        nonlocal whole
        event = json.loads(text)
        if event["event"] == "warning":
            warnings.warn(event["message"], ReconstructionWarning, stacklevel=2)
            return
        whole = event.get("total", whole) if pipeline else event["fraction"]
        message = " ".join(filter(None, [event["step"], event.get("message")]))
        bar.update(Progress(whole, event["stage"], message, event.get("remaining_seconds")))

    return hear


class ReconstructionWarning(UserWarning):
    """Something that did not stop the work but that the user should know."""
