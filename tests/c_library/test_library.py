"""What the built library shows to the linker and the loader."""

import re
import subprocess

from .binding import SHARED, RcError, call, handle, header, library
from .conftest import run


def symbols(*arguments) -> set[str]:
    listed = run("nm", "--defined-only", *arguments)
    return {line.split()[2] for line in listed.splitlines() if len(line.split()) == 3}


def test_the_shared_library_exports_the_functions_of_the_header_and_nothing_else():
    assert symbols("-D", SHARED) == set(header().functions)


def test_the_installed_static_library_too(prefix):
    found = symbols("-g", prefix / "lib/libreconstruct.a")
    assert {name for name in found if name.startswith("rc_")} == set(header().functions)
    assert {name for name in found if not name.startswith("rc_")} == set()


def test_the_versions_are_those_of_the_header():
    text, lib = header().text, library()
    number = {name: int(re.search(rf"#define {name} (\d+)", text)[1])
              for name in ("RC_ABI_VERSION", "RC_VERSION_MAJOR", "RC_VERSION_MINOR", "RC_VERSION_PATCH")}  # fmt: skip
    assert lib.rc_abi_version() == number["RC_ABI_VERSION"]
    assert lib.rc_version().decode() == "{RC_VERSION_MAJOR}.{RC_VERSION_MINOR}.{RC_VERSION_PATCH}".format(**number)
    dynamic = subprocess.check_output(["readelf", "-d", SHARED], text=True)
    assert f"[libreconstruct.so.{number['RC_ABI_VERSION']}]" in dynamic


def test_every_code_has_its_name():
    lib = library()
    for name in header().enums["rc_code"]:
        assert lib.rc_code_name(header().enumerators[name]).decode() == name
    assert lib.rc_code_name(4711) == b"unknown code"


def test_what_cannot_be_undistorted_has_the_codes_of_the_header(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.png").write_bytes(b"no picture")
    (tmp_path / "sparse").mkdir()
    (tmp_path / "sparse/images.txt").write_text("1 1 0 0 0 0 0 0 1 a.png\n\n")
    (tmp_path / "sparse/points3D.txt").write_text("")

    def code_of(distortion: float) -> int:
        (tmp_path / "sparse/cameras.txt").write_text(f"1 SIMPLE_RADIAL 320 240 260 160 120 {distortion}\n")
        model = handle("rc_model_load", str(tmp_path / "sparse").encode())
        images, folder = (str(tmp_path / name).encode() for name in ("images", "out"))
        try:
            call("rc_model_undistort", model, images, folder, 1, None, None, None, None)
        except RcError as error:
            return error.code
        finally:
            library().rc_model_free(model)
        return 0

    said = header().functions["rc_model_undistort"].comment
    for distortion, name in [(-0.1, "RC_INVALID_MEDIA"), (-60.0, "RC_INTRINSICS_UNRELIABLE")]:
        assert code_of(distortion) == header().enumerators[name]
        assert name in said
