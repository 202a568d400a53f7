"""Of all tests in Python: notes those that are skipped (see tests/prerequisites.py), and has videos for them."""

pytest_plugins = ["prerequisites", "videos"]
