"""Binds the library by its header alone: what a program in another language does, and a test of the header as such.

`library()` is the shared library with every function of `include/reconstruct.h` declared to ctypes as the header says.
"""

import ctypes
import functools
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "include/reconstruct.h"
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
SHARED = BUILT / "libreconstruct.so"

SCALARS = {
    "void": None,
    "bool": ctypes.c_bool,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


@dataclass
class Parameter:
    type: str
    name: str


@dataclass
class Function:
    name: str
    returns: str
    parameters: list[Parameter]
    comment: str


@dataclass
class Header:
    text: str
    functions: dict[str, Function] = field(default_factory=dict)
    structures: dict[str, type[ctypes.Structure]] = field(default_factory=dict)
    enumerators: dict[str, int] = field(default_factory=dict)
    enums: dict[str, list[str]] = field(default_factory=dict)
    handles: list[str] = field(default_factory=list)
    callbacks: list[str] = field(default_factory=list)

    def ctype(self, text: str):
        """What ctypes calls a type of C. Every pointer is an address, except text that comes or goes as it is."""
        text = " ".join(text.replace("*", " * ").split())
        if text == "const char *":
            return ctypes.c_char_p
        if text.endswith("*") or text in self.callbacks:
            return ctypes.c_void_p
        if text in self.enums:
            return ctypes.c_uint
        if text in self.structures:
            return self.structures[text]
        return SCALARS[text]


def split(declaration: str) -> tuple[str, str]:
    """A type and the name behind it."""
    found = re.fullmatch(r"(.*?[\s*])(\w+)", declaration.strip(), re.S)
    assert found, declaration
    return " ".join(found[1].split()).replace("* *", "**"), found[2]


@functools.cache
def header() -> Header:
    text = HEADER.read_text()
    read = Header(text)
    bare = re.sub(r"//[^\n]*", "", text)
    read.handles = re.findall(r"typedef struct (\w+) \1;", bare)
    read.callbacks = re.findall(r"typedef \w+ \(\*(\w+)\)", bare)
    for body, name in re.findall(r"typedef enum \w* ?\{(.*?)\} (\w+);", bare, re.S):
        values = re.findall(r"(\w+) = (-?\d+)", body)
        read.enumerators.update((key, int(value)) for key, value in values)
        read.enums[name] = [key for key, _ in values]
    for body, name in re.findall(r"typedef struct \w* ?\{(.*?)\} (\w+);", bare, re.S):
        fields = []
        for declaration in filter(str.strip, body.split(";")):
            count = re.search(r"\[(\d+)\]$", declaration.strip())
            kind, called = split(re.sub(r"\[\d+\]$", "", declaration.strip()))
            base = read.ctype(kind)
            fields.append((called, base * int(count[1]) if count else base))
        read.structures[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    prototype = re.compile(r"((?://[^\n]*\n)+)([^\n/#{}]*?\b(rc_\w+)\(([^;{}]*?)\));", re.S)
    for comment, declaration, name, parameters in prototype.findall(text):
        if declaration.lstrip().startswith("typedef"):
            continue
        returns = declaration.split(name + "(")[0].strip()
        listed = [] if parameters.strip() == "void" else [Parameter(*split(p)) for p in parameters.split(",")]
        plain = " ".join(line.removeprefix("//").strip() for line in comment.splitlines())
        read.functions[name] = Function(name, returns, listed, plain)
    return read


@functools.cache
def library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(SHARED))
    for function in header().functions.values():
        bound = getattr(loaded, function.name)
        bound.argtypes = [header().ctype(p.type) for p in function.parameters]
        bound.restype = header().ctype(function.returns)
    return loaded


class RcError(Exception):
    """A call of the library failed."""

    def __init__(self, code: int, slug: str, message: str):
        super().__init__(f"{slug}: {message}")
        self.code = code
        self.slug = slug
        self.message = message


def take_error(error: ctypes.c_void_p, code: int) -> RcError:
    """The exception of an `rc_error`, which is freed."""
    lib = library()
    assert lib.rc_error_code(error) == code
    found = RcError(code, lib.rc_error_slug(error).decode(), lib.rc_error_message(error).decode())
    lib.rc_error_free(error)
    return found


def call(name: str, *arguments) -> None:
    """Calls a function that can fail with all but its last argument."""
    error = ctypes.c_void_p()
    code = getattr(library(), name)(*arguments, ctypes.byref(error))
    if code:
        raise take_error(error, code)
    assert not error, "an error was stored though the call succeeded"


def handle(name: str, *arguments) -> ctypes.c_void_p:
    """Calls a function whose last output is a handle."""
    out = ctypes.c_void_p()
    call(name, *arguments, ctypes.byref(out))
    return out


def text(name: str, *arguments) -> str:
    """Calls a function whose last output is a string."""
    out = handle(name, *arguments)
    try:
        return ctypes.string_at(out).decode()
    finally:
        library().rc_string_free(out)


def structure(name: str, **fields) -> ctypes.Structure:
    """A structure of the header, with its size. Numbers whose macro does not start at 0 are for the caller to give."""
    made = header().structures[name](**fields)
    made.struct_size = ctypes.sizeof(made)
    return made
