"""Of all tests in Python: notes those that are skipped (see tests/prerequisites.py), and has videos and an object store for them."""

pytest_plugins = ["prerequisites", "videos", "s3"]
