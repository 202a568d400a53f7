"""What some tests need and a machine may lack: a browser, other programs. Without it such a test is skipped, and noted.

- `LIBRECONSTRUCT_REQUIRE` lists what must be here, for example `interop,browser`. The test then fails instead.
- `LIBRECONSTRUCT_SKIPS` names a file that gets a line for each test that is skipped, for whatever reason.

`tests/src/prerequisites.rs` is the same for tests in Rust, and knows the same words. This is a plugin of pytest, too, which
the `conftest.py` at the root loads.
"""

import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

# The words of LIBRECONSTRUCT_REQUIRE, and how to get what they stand for.
REMEDIES = {
    "interop": "`make test-rust` installs what it needs",
    "browser": "apt-get install chromium",
    "gpu": "a software driver will do: apt-get install mesa-vulkan-drivers",
    "captures": "put the captures into ../shared/data beside the workspace, or name their folder in LIBRECONSTRUCT_CAPTURES",
    "mask-model": "make mask-model",
    "encoders": "install a full build of ffmpeg, such as Debian's",
    "postgres": "apt-get install postgresql",
    "stores": "`make test-rust` installs and starts them; by hand: tests/stores/__main__.py",
    "sandbox": "run Linux 5.13 or newer with landlock in the list of /sys/kernel/security/lsm",
}


def required(words: str) -> list[str]:
    """What a list of words asks for."""
    found = [word.strip() for word in words.split(",") if word.strip()]
    for word in found:
        if word not in REMEDIES:
            raise ValueError(f"LIBRECONSTRUCT_REQUIRE does not know `{word}`; it knows {', '.join(REMEDIES)}")
    return found


def is_missing(word: str, what: str) -> NoReturn:
    """Skips the running test, since `what` is not here; fails it if LIBRECONSTRUCT_REQUIRE asks for `word`."""
    if word in required(os.environ.get("LIBRECONSTRUCT_REQUIRE", "")):
        pytest.fail(f"{what} is not here, and LIBRECONSTRUCT_REQUIRE asks for `{word}`. To get it: {REMEDIES[word]}", pytrace=False)
    pytest.skip(f"{what} is not here ({word})")


def package(word: str, name: str) -> ModuleType:
    """A Python package that may not be installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        is_missing(word, f"the Python package {error.name}")


def pytest_configure(config: pytest.Config) -> None:
    try:
        required(os.environ.get("LIBRECONSTRUCT_REQUIRE", ""))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    # With pytest-xdist, the workers report to the process that started them.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(), "notes-of-skips")


class Notes:
    """Notes every test, and every file of tests, that is skipped."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        path = os.environ.get("LIBRECONSTRUCT_SKIPS")
        if path and report.skipped and not hasattr(report, "wasxfail"):
            # Of a skip: file, line, reason.
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}: {reason.removeprefix('Skipped: ')}\n")
