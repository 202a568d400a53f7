"""The two videos that tests of every face use. A plugin of pytest, which the `conftest.py` at the root loads."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def capture() -> Path:
    """A walk around a furnished room, 2 seconds, which can be reconstructed in seconds."""
    # Not at the top: tests that need no video need nothing of this either.
    from rest import media

    return media.capture()


@pytest.fixture(scope="session")
def flat() -> Path:
    """A genuine video in which no camera can be found."""
    from rest import media

    return media.flat_video()
