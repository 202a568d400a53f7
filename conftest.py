"""Of all tests in Python: notes those that are skipped (see tests/prerequisites.py)."""

pytest_plugins = ["prerequisites"]
