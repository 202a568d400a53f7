"""An object store of the tests' own for a single test. A plugin of pytest, which the `conftest.py` at the root loads."""

from collections.abc import Iterator

import pytest
from prerequisites import is_missing


@pytest.fixture(scope="session")
def started_s3() -> Iterator:
    """A store that speaks like S3, for all tests of this process that want one."""
    # Not at the top: tests that need no store need nothing of this either.
    import stores

    with stores.started(("s3",)) as found:
        if "s3" in found.missing:
            is_missing("stores", found.missing["s3"])
        yield found


@pytest.fixture
def s3(started_s3, monkeypatch):
    """The same (`stores.Stores`), with what opens it in the environment: of this process, and of those that the test starts."""
    for name, value in started_s3.credentials.items():
        monkeypatch.setenv(name, value)
    return started_s3
