"""The example notebooks and the README, as a reader runs them: in a folder with a video called kitchen.mp4."""

import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from .conftest import ROOT

NOTEBOOKS = sorted((ROOT / "python/examples").glob("*.ipynb"))


@pytest.fixture
def kitchen(capture, tmp_path):
    shutil.copy(capture, tmp_path / "kitchen.mp4")
    return tmp_path


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, kitchen):
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "committed without outputs"
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(kitchen)}}).execute()
    shown = [data for cell in notebook.cells for output in cell.get("outputs", ()) for data in output.get("data", ())]
    assert shown.count("image/png") >= 1 and shown.count("text/html") >= 1
    assert (kitchen / "kitchen/scene.ply").stat().st_size > 10_000


def test_the_readme_runs(kitchen):
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert blocks and "import libreconstruct" in blocks[0]
    for code in blocks:
        done = subprocess.run([sys.executable, "-c", code], cwd=kitchen, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    assert (kitchen / "kitchen.spz").read_bytes()[:2] == b"\x1f\x8b"
