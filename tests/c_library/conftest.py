"""The library as it is installed, and compilers to build against it."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from .binding import ROOT, SHARED

STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
HERE = Path(__file__).parent


def run(*command, timeout: float = 600, **options) -> str:
    """What a command prints; one that fails is shown."""
    done = subprocess.run([str(c) for c in command], text=True, capture_output=True, timeout=timeout, **options)
    assert done.returncode == 0, f"{shlex.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def prefix(tmp_path_factory) -> Path:
    """Where the library is installed, outside the tree."""
    if not SHARED.exists():
        pytest.fail(f"{SHARED} is not there: cargo build --release -p libreconstruct-ffi")
    folder = tmp_path_factory.mktemp("prefix")
    environment = os.environ | {"PREFIX": str(folder)}
    environment.pop("DESTDIR", None)
    run(ROOT / "scripts/install-library.sh", env=environment)
    return folder


def build(prefix: Path, source: Path, program: Path, compiler: str, *flags: str) -> Path:
    """Builds a program against the installed library, which it finds again by itself."""
    standard = "-std=c++17" if source.suffix == ".cpp" else "-std=c11"
    library = ["-L", prefix / "lib", f"-Wl,-rpath,{prefix}/lib", "-lreconstruct"]
    run(compiler, standard, *STRICT, *flags, "-I", prefix / "include", source, "-o", program, *library, "-lpthread")
    return program
