"""Tests that drive the real `reconstruct` binary over HTTP, as clients do."""
