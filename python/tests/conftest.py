"""A small capture, and what was made of it once for all tests."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import libreconstruct as lr

ROOT = Path(__file__).resolve().parents[2]
# With these a tiny capture is a scene in seconds on two cores.
SMALL = {
    "max_frames": 12,
    "max_resolution": 240,
    "training_max_resolution": 160,
    "sh_degree": 1,
    "training_num_steps": 40,
    "training_max_num_gaussians": 2000,
    "device": "cpu",
}
# The same for an engine or server; the rest is asked for with each job.
SETTINGS = {
    "reconstruction": {k: SMALL[k] for k in ("max_frames", "max_resolution", "training_max_resolution", "device")} | {"sh_degree": 0}
}
# A shell starts what runs in the background deaf to Ctrl-C, and its children would be so, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
QUICK = {"training_num_steps": 20, "training_max_num_gaussians": 1000}


@pytest.fixture(scope="session")
def reconstruction(capture, tmp_path_factory) -> Path:
    """The folder of a reconstruction of the capture."""
    folder = tmp_path_factory.mktemp("reconstruction")
    lr.reconstruct(capture, folder, progress=False, turntable=False, **SMALL)
    return folder


@pytest.fixture
def scene() -> lr.Scene:
    """Splats in about the ranges of trained ones."""
    return random_scene(1, 300, 3)


def random_scene(seed: int, n: int, degree: int) -> lr.Scene:
    random = np.random.default_rng(seed)
    rotations = random.normal(size=(n, 4))
    rotations /= np.linalg.norm(rotations, axis=1, keepdims=True)
    sh = random.normal(size=(n, (degree + 1) ** 2, 3)) * 0.2
    return lr.Scene.from_arrays(
        random.normal(size=(n, 3)), random.normal(size=(n, 3)) * 0.5 - 2, rotations, random.normal(size=n), sh
    )


def run_python(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a fresh interpreter."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=clean | environment, capture_output=True, text=True, timeout=300
    )
