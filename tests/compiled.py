"""Small programs and libraries in C, compiled once and kept under `target/`."""

import os
import shutil
import subprocess
from pathlib import Path

from rest.server import ROOT

FOLDER = ROOT / "target" / "fault-tools"


def compiled(source: Path, *, library: bool) -> Path:
    """The program or library made of `source`, made anew if that is younger."""
    made = FOLDER / (source.stem + (".so" if library else ""))
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        FOLDER.mkdir(parents=True, exist_ok=True)
        compiler = shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("cc is missing: the faults need a C compiler, as building does")
        part = made.with_name(f"{made.name}.{os.getpid()}")
        shape = ["-shared", "-fPIC"] if library else []
        subprocess.run([compiler, "-O2", "-Wall", "-Wextra", *shape, "-o", part, source, "-ldl"], check=True)
        part.rename(made)
    return made
