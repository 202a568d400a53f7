"""Programs outside the tree build against the installed library by pkg-config and by CMake, dynamically and statically."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .binding import ROOT
from .conftest import STRICT, run

PROGRAM = """
#include <stdio.h>
#include <reconstruct.h>
int main(void) {
    rc_scene *scene = NULL;
    rc_error *error = NULL;
    rc_code code = rc_scene_load("there is no such file", &scene, &error);
    printf("%s %s %d\\n", rc_version(), rc_error_slug(error), scene == NULL);
    rc_error_free(error);
    return code == RC_NOT_FOUND && rc_abi_version() == RC_ABI_VERSION ? 0 : 1;
}
"""


def pkg_config(prefix: Path, *arguments: str) -> list[str]:
    return run("pkg-config", *arguments, env=os.environ | {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}).split()


def loads(program: Path) -> str:
    return run("ldd", program)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("package", ["reconstruct", "reconstruct-static"])
def test_pkg_config(prefix, tmp_path, package, compiler):
    source, program = tmp_path / "main.c", tmp_path / "main"
    source.write_text(PROGRAM)
    flags = pkg_config(prefix, "--cflags", "--libs", package)
    run(compiler, "-std=c11", *STRICT, source, "-o", program, *flags)
    printed = run(program, env=os.environ | {"LD_LIBRARY_PATH": str(prefix / "lib")})
    assert printed == f"{pkg_config(prefix, '--modversion', package)[0]} not_found 1\n"
    assert ("libreconstruct" in loads(program)) == (package == "reconstruct")


@pytest.mark.skipif(sys.platform != "linux", reason="only the loader of Linux has a cache")
@pytest.mark.parametrize("destination", ["", "package"])
def test_the_loader_is_told(tmp_path, destination):
    """By a stand-in: the machine's own cache is not the tests' to change."""
    programs, asked = tmp_path / "programs", tmp_path / "asked"
    programs.mkdir()
    (programs / "ldconfig").write_text(f'#!/bin/sh\necho "asked $*" >>{asked}\n')
    (programs / "ldconfig").chmod(0o755)
    destdir = str(tmp_path / destination) if destination else ""
    environment = {"PREFIX": str(tmp_path / "prefix"), "DESTDIR": destdir, "PATH": f"{programs}:{os.environ['PATH']}"}
    said = run(ROOT / "scripts/install-library.sh", env=os.environ | environment)
    if destination:
        assert not asked.exists() and "ldconfig" not in said, "who unpacks the package does it"
    else:
        expected = ["asked "] if os.geteuid() == 0 else []
        assert asked.read_text().splitlines() == [*expected, "asked -p"]
        assert f"-rpath,{tmp_path}/prefix/lib" in said, "the stand-in's cache does not have it"


@pytest.mark.parametrize("components", ["", "COMPONENTS shared", "COMPONENTS static"])
def test_cmake(prefix, tmp_path, components):
    (tmp_path / "main.cpp").write_text(PROGRAM.replace("reconstruct.h", "reconstruct.hpp").replace("main(void)", "main()"))
    (tmp_path / "CMakeLists.txt").write_text(f"""
        cmake_minimum_required(VERSION 3.16)
        project(consumer CXX)
        set(CMAKE_CXX_STANDARD 17)
        find_package(reconstruct 0.1 CONFIG REQUIRED {components})
        add_executable(consumer main.cpp)
        target_compile_options(consumer PRIVATE {' '.join(STRICT)})
        target_link_libraries(consumer PRIVATE reconstruct::reconstruct)
    """)
    built = tmp_path / "build"
    run("cmake", "-S", tmp_path, "-B", built, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", built)
    assert "not_found" in run(built / "consumer")
    assert ("libreconstruct" in loads(built / "consumer")) == ("static" not in components)


@pytest.mark.parametrize("wanted", ["0.2", "1.0", "0.1 CONFIG COMPONENTS framework"])
def test_cmake_refuses_what_is_not_there(prefix, tmp_path, wanted):
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.16)\nproject(consumer CXX)\nfind_package(reconstruct {wanted} REQUIRED)\n"
    )
    command = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "reconstruct" in done.stderr


def test_a_moved_cmake_package_still_works(prefix, tmp_path):
    """Packages are built for one place and unpacked in another."""
    moved = tmp_path / "moved"
    shutil.copytree(prefix, moved, symlinks=True)
    (tmp_path / "main.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(consumer C)\nfind_package(reconstruct CONFIG REQUIRED)\n"
        "add_executable(consumer main.c)\ntarget_link_libraries(consumer PRIVATE reconstruct::reconstruct)\n"
    )
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={moved}")
    run("cmake", "--build", tmp_path / "build")
    assert str(moved) in loads(tmp_path / "build/consumer")
    run(tmp_path / "build/consumer")


def test_destdir_is_put_before_the_prefix(tmp_path):
    environment = os.environ | {"PREFIX": "/opt/reconstruct", "DESTDIR": str(tmp_path)}
    run(ROOT / "scripts/install-library.sh", env=environment)
    written = (tmp_path / "opt/reconstruct/lib/pkgconfig/reconstruct.pc").read_text()
    assert "prefix=/opt/reconstruct\n" in written
    lib = tmp_path / "opt/reconstruct/lib"
    assert (lib / "libreconstruct.so").resolve().name.startswith("libreconstruct.so.0.")
    assert os.readlink(lib / "libreconstruct.so") == "libreconstruct.so.1"


def test_the_installation_makes_the_folders_it_needs_readable(prefix):
    for path in [prefix / "include/reconstruct.h", prefix / "lib/cmake/reconstruct/reconstruct-config.cmake"]:
        assert path.stat().st_mode & 0o444 == 0o444
