"""Programs in C and C++: a real reconstruction, the examples, and many cycles under the sanitizers and Valgrind."""

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from PIL import Image

from .binding import ROOT, call, handle, header, library, structure
from .conftest import HERE, STRICT, build, run

CYCLES = 1000
SANITIZED = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]
STRICT_SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
EXAMPLES = ROOT / "ffi/examples"


@pytest.fixture
def quick_folder():
    """In memory where there is such a place: what is flushed thousands of times is not under test here."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def cycles(command: list, video: Path, folder: Path, times: int, environment: dict) -> None:
    """Runs `cycle` where there is no ffprobe: a submission then takes its video as it is, for the worker to look at."""
    environment = environment | {"PATH": "/there/are/no/programs"}
    assert run(*command, folder / "engine", video, times, env=environment, timeout=3600) == f"{times} cycles\n"


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_cycles_under_the_sanitizers(prefix, flat, tmp_path, quick_folder, compiler):
    program = build(prefix, HERE / "cycle.c", tmp_path / "cycle", compiler, *SANITIZED)
    cycles([program], flat, quick_folder, CYCLES, os.environ | STRICT_SANITIZERS)


def test_the_sanitizers_are_at_work(prefix, tmp_path):
    """A handle that is not freed is found."""
    source = tmp_path / "leak.c"
    source.write_text("#include <reconstruct.h>\nint main(void) { return rc_cancel_new() == NULL; }\n")
    program = build(prefix, source, tmp_path / "leak", "gcc", *SANITIZED)
    done = subprocess.run([program], capture_output=True, text=True, env=os.environ | STRICT_SANITIZERS)
    assert done.returncode != 0 and "LeakSanitizer: detected memory leaks" in done.stderr


@pytest.mark.parametrize("part", range(4))
def test_cycles_under_valgrind(prefix, flat, tmp_path, quick_folder, part):
    """A thousand in all, by programs that run side by side."""
    program = build(prefix, HERE / "cycle.c", tmp_path / "cycle", "gcc", "-g")
    valgrind = [shutil.which("valgrind"), "--quiet", "--leak-check=full", "--show-leak-kinds=definite,indirect,possible",
                "--errors-for-leak-kinds=definite,indirect", "--error-exitcode=9", "--trace-children=no"]  # fmt: skip
    cycles([*valgrind, program], flat, quick_folder, CYCLES // 4, dict(os.environ))


@pytest.mark.parametrize("compiler, flags", [("g++", []), ("clang++", SANITIZED)], ids=["g++", "clang++ sanitized"])
def test_a_real_reconstruction(prefix, capture, tmp_path, compiler, flags):
    program = build(prefix, HERE / "real.cpp", tmp_path / "real", compiler, *flags)
    environment = os.environ | (STRICT_SANITIZERS if flags else {})
    assert run(program, tmp_path, capture, env=environment) == "all is well\n"


@pytest.fixture(scope="module", params=["shared", "static"])
def examples(request, prefix, tmp_path_factory):
    built = tmp_path_factory.mktemp(f"examples-{request.param}")
    run("cmake", "-S", EXAMPLES, "-B", built, f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DRECONSTRUCT_STATIC={'ON' if request.param == 'static' else 'OFF'}")  # fmt: skip
    run("cmake", "--build", built)
    return built


@pytest.mark.parametrize("examples", ["shared"], indirect=True)
def test_the_examples_that_reconstruct(examples, capture, tmp_path):
    printed = run(examples / "reconstruct_c", capture, tmp_path / "scene", 20)
    assert "% training" in printed and f"the scene is in {tmp_path / 'scene'}" in printed
    printed = run(examples / "reconstruct_cpp", tmp_path / "engine", capture, tmp_path / "out.ply", 20)
    assert "done" in printed and (tmp_path / "out.ply").read_bytes().startswith(b"ply\n")


def test_the_example_that_shows_a_scene(examples, tmp_path):
    """Two balls, red and green, from three sides."""
    means, scales = [(ctypes.c_float * 6)(*values) for values in ((-1, 0, 0, 1, 0, 0), [-1.5] * 6)]
    rotations, opacities = (ctypes.c_float * 8)(1, 0, 0, 0, 1, 0, 0, 0), (ctypes.c_float * 2)(4, 4)
    colours = (ctypes.c_float * 6)(1.7, -1.7, -1.7, -1.7, 1.7, -1.7)
    address = ctypes.addressof
    splats = structure("rc_splats", count=2, means=address(means), log_scales=address(scales), sh=address(colours),
                       rotations=address(rotations), opacities=address(opacities))  # fmt: skip
    scene = handle("rc_scene_new", ctypes.byref(splats))
    call("rc_scene_save", scene, str(tmp_path / "balls.spz").encode())
    library().rc_scene_free(scene)
    printed = run(examples / "splat_view", tmp_path / "balls.spz", tmp_path / "views", 3)
    assert printed.startswith("3 pictures of 2 splats")
    assert sorted(p.name for p in (tmp_path / "views").iterdir()) == ["view_000.png", "view_001.png", "view_002.png"]
    for picture in (tmp_path / "views").iterdir():
        seen = Image.open(picture)
        assert seen.size == (640, 480) and seen.mode == "RGBA"
        red, green, blue, alpha = (band.getextrema()[1] for band in seen.split())
        assert min(red, green) > 150 and blue < 60 and alpha > 150, picture.name


def test_the_examples_say_what_is_wrong(examples, tmp_path):
    for program, arguments, said in [
        ("reconstruct_c", [tmp_path / "none.mp4", tmp_path / "out"], "RC_NOT_FOUND"),
        ("reconstruct_cpp", [tmp_path / "engine", tmp_path / "none.mp4", tmp_path / "out.ply"], "does not exist"),
        ("splat_view", [tmp_path / "none.ply", tmp_path / "out"], "does not exist"),
        ("reconstruct_c", [], "usage"),
    ]:
        done = subprocess.run([examples / program, *arguments], capture_output=True, text=True)
        assert done.returncode in (1, 2) and said in done.stderr, (program, done)


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_the_example_of_the_readme(prefix, capture, tmp_path, language):
    """The blocks of the section on C and C++, as they stand there."""
    readme = (ROOT / "README.md").read_text()
    block = re.search(rf"```{language}\n(.*?)```", readme, re.S)
    source = tmp_path / f"readme.{language}"
    source.write_text(block[1])
    program = build(prefix, source, tmp_path / "readme", "g++" if language == "cpp" else "gcc")
    (tmp_path / "garden.mp4").symlink_to(capture)
    # They ask for scenes that take long: that they start and tell how far they are is enough.
    with subprocess.Popen(["stdbuf", "-oL", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(2)]
        process.kill()
    assert all("%" in line for line in lines), lines


def test_the_example_of_the_header_is_c(tmp_path, prefix):
    """The one in the front chapter compiles as it stands."""
    lines = [line[7:] for line in header().text.splitlines() if line.startswith("//     ")]
    begin = next(k for k, line in enumerate(lines) if line.startswith("rc_error *error = NULL"))
    end = next(k for k, line in enumerate(lines) if line.startswith("rc_string_free(report)"))
    source = tmp_path / "front.c"
    body = "\n".join(lines[begin : end + 1])
    source.write_text(f"#include <stdio.h>\n#include <reconstruct.h>\nint main(void) {{\n{body}\nreturn 0;\n}}\n")
    run("gcc", "-std=c11", *STRICT, "-I", prefix / "include", "-fsyntax-only", source)
