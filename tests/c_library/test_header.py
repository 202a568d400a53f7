"""The headers compile as strict C11 and C++17, alone, twice, and in two units of one program."""

import pytest

from .binding import ROOT, header
from .conftest import STRICT, run

COMPILERS = {"c": ["gcc", "clang"], "cpp": ["g++", "clang++"]}
STANDARDS = {"c": ["c11", "c17"], "cpp": ["c++17", "c++20"]}
INCLUDE = ROOT / "include"
CASES = [
    (compiler, standard, name, kind)
    for kind in ("c", "cpp")
    for compiler in COMPILERS[kind]
    for standard in STANDARDS[kind]
    for name in (["reconstruct.h"] if kind == "c" else ["reconstruct.h", "reconstruct.hpp"])
]
FLAGS = [*STRICT, "-Wshadow", "-Wconversion"]


@pytest.mark.parametrize("compiler, standard, name, kind", CASES)
def test_alone_and_twice(compiler, standard, name, kind, tmp_path):
    """Nothing has to be included before, and including it again changes nothing."""
    unit = tmp_path / f"unit.{kind}"
    unit.write_text(f"#include <{name}>\n#include <{name}>\nint nothing_else(void);\n")
    run(compiler, f"-std={standard}", *FLAGS, "-I", INCLUDE, "-fsyntax-only", unit)


@pytest.mark.parametrize("compiler, kind", [(c, k) for k in COMPILERS for c in COMPILERS[k]])
def test_in_two_units_of_one_program(compiler, kind, prefix, tmp_path):
    name = "reconstruct.h" if kind == "c" else "reconstruct.hpp"
    nothing = "void" if kind == "c" else ""
    one, two, program = tmp_path / f"one.{kind}", tmp_path / f"two.{kind}", tmp_path / "program"
    version = "rc_abi_version()" if kind == "c" else "(reconstruct::check_abi(), rc_abi_version())"
    one.write_text(f"#include <{name}>\nunsigned other({nothing});\n"
                   f"int main({nothing}) {{ return {version} == other() ? 0 : 1; }}\n")  # fmt: skip
    two.write_text(f"#include <{name}>\nunsigned other({nothing});\n"
                   f"unsigned other({nothing}) {{ return {version}; }}\n")  # fmt: skip
    standard = "c11" if kind == "c" else "c++17"
    run(compiler, f"-std={standard}", *FLAGS, "-I", prefix / "include", one, two, "-o", program, "-L", prefix / "lib",
        f"-Wl,-rpath,{prefix}/lib", "-lreconstruct")  # fmt: skip
    run(program)


@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++", "clang++"])
def test_every_structure_can_be_started_from_its_macro(compiler, tmp_path):
    """Also as a static object, with every field in its place."""
    kind = "cpp" if "++" in compiler else "c"
    sized = [name for name, made in header().structures.items() if made._fields_[0][0] == "struct_size"]
    assert len(sized) >= 9
    unit = tmp_path / f"unit.{kind}"
    unit.write_text("#include <reconstruct.h>\n" + "".join(
        f"static const {name} a_{name} = {name.upper()}_INIT;\n"
        f"size_t size_{name}(void);\nsize_t size_{name}(void) {{ return a_{name}.struct_size; }}\n" for name in sized
    ))  # fmt: skip
    standard = "c++17" if kind == "cpp" else "c11"
    run(compiler, f"-std={standard}", *FLAGS, "-I", INCLUDE, "-fsyntax-only", unit)


def test_every_function_is_documented_with_its_threads():
    for function in header().functions.values():
        # What is said of types and constants does not count: a comment of a function ends with its threads.
        assert "Thread-safe" in function.comment, function.name
        reports = bool(function.parameters) and function.parameters[-1].type == "rc_error **"
        assert reports == (function.returns == "rc_code" and function.name != "rc_error_code"), function.name


def test_the_enums_have_the_values_that_other_languages_copy():
    values = header().enumerators
    assert values["RC_OK"] == 0
    assert (values["RC_NOT_FOUND"], values["RC_INTERNAL"], values["RC_PANIC"]) == (3, 25, 103)
    assert (values["RC_JOB_FINISHED"], values["RC_ARTIFACT_SPZ"], values["RC_STAGE_EXPORT"]) == (4, 2, 4)
