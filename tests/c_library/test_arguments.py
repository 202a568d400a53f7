"""Every function of the header, given what it must not be given: NULL, bad UTF-8, another handle, from many threads.

The functions are those that the header has, so a new one cannot be forgotten: it fails here until it is in `good`.
"""

import ctypes
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from . import binding
from .binding import handle, header, library, structure, take_error, text

HEADER = header()
CODE = HEADER.enumerators
FALLIBLE = [f for f in HEADER.functions.values() if f.parameters and f.parameters[-1].type == "rc_error **"]
INFALLIBLE = [f for f in HEADER.functions.values() if f not in FALLIBLE]
SENTINEL = 0x5A5A5A5A5A5A5A5A
VIEW = {"rotation": [1, 0, 0, 0, 1, 0, 0, 0, 1], "fx": 20, "fy": 20, "cx": 8, "cy": 6, "width": 16, "height": 12}


class World:
    """Something of every type, and good arguments for every function."""

    def __init__(self, folder, flat, capture):
        self.folder = folder
        engine_options = structure("rc_engine_options", settings_json=b'{"min_free_bytes": 0}')
        self.handles = {}
        self.handles["rc_engine"] = handle("rc_engine_open", str(folder / "engine").encode(), ctypes.byref(engine_options))
        self.blob = text("rc_engine_import_video", self.engine, str(flat).encode())
        self.handles["rc_job"] = handle("rc_engine_submit", self.engine, self.blob.encode(), None)
        binding.call("rc_job_cancel", self.handles["rc_job"])
        self.handles["rc_upload"] = handle("rc_engine_begin_upload", self.engine, b"a.mp4")
        self.handles["rc_job_list"] = handle("rc_engine_jobs", self.engine, None)
        numbers = [(ctypes.c_float * n)(*range(1, n + 1)) for n in (3, 3, 4, 1, 3)]
        self.floats = numbers
        means, scales, rotations, opacities, sh = [ctypes.addressof(n) for n in numbers]
        self.splats = structure("rc_splats", count=1, means=means, log_scales=scales, rotations=rotations,
                                opacities=opacities, sh=sh)  # fmt: skip
        self.handles["rc_scene"] = handle("rc_scene_new", ctypes.byref(self.splats))
        self.sparse = folder / "sparse"
        self.sparse.mkdir()
        (self.sparse / "cameras.txt").write_text("1 PINHOLE 16 12 20 20 8 6\n")
        (self.sparse / "images.txt").write_text("1 1 0 0 0 0 0 0 1 a.png\n\n")
        (self.sparse / "points3D.txt").write_text("")
        self.handles["rc_model"] = handle("rc_model_load", str(self.sparse).encode())
        self.handles["rc_renderer"] = handle("rc_renderer_open", self.handles["rc_scene"], b"cpu")
        self.handles["rc_cancel"] = ctypes.c_void_p(library().rc_cancel_new())
        library().rc_cancel_raise(self.handles["rc_cancel"])
        failure = handle("rc_job_failure", self.handles["rc_job"])
        self.handles["rc_error"] = failure
        self.handles["rc_artifact"] = None  # needs a finished job, which `done` has
        self.key = text("rc_engine_create_key", self.engine, b"laptop")
        self.scene_file = folder / "scene.ply"
        binding.call("rc_scene_save", self.handles["rc_scene"], str(self.scene_file).encode())
        self.capture = capture

    @property
    def engine(self):
        return self.handles["rc_engine"]

    def done(self):
        """An artifact of a job that has been done."""
        settings = json.dumps({"reconstruction": {"device": "cpu", "max_frames": 12, "max_resolution": 240,
                                                  "training_max_resolution": 160, "sh_degree": 0}})  # fmt: skip
        options = structure("rc_engine_options", workers=1, settings_json=settings.encode())
        engine = handle("rc_engine_open", str(self.folder / "done").encode(), ctypes.byref(options))
        blob = text("rc_engine_import_video", engine, str(self.capture).encode())
        request = structure("rc_request", training_max_num_gaussians=1000, training_num_steps=20)
        job = handle("rc_engine_submit", engine, blob.encode(), ctypes.byref(request))
        binding.call("rc_job_wait", job, 300.0, None, None)
        self.handles["rc_artifact"] = handle("rc_job_artifact", job, CODE["RC_ARTIFACT_PLY"])
        library().rc_job_free(job)
        library().rc_engine_free(engine)

    def out(self):
        """A place for an output that shows whether it was written."""
        # Room for the largest: a picture of 16 x 12 pixels.
        return (ctypes.c_uint64 * 96)(*[SENTINEL] * 96)

    def path(self, name):
        return str(self.folder / name).encode()

    def good(self, function, parameter):
        """An argument with which the function, as a whole, can be called."""
        name, kind, of = parameter.name, parameter.type, function.name
        bare = kind.replace("const ", "").replace("*", "").strip()
        if kind.endswith("**") or (of, name) in {("rc_artifact_read", "count")}:
            return self.out()
        if bare in HEADER.handles:
            return self.handles[bare]
        if bare in HEADER.structures:
            made = {"rc_view": lambda: structure("rc_view", **{k: (ctypes.c_double * 9)(*v) if k == "rotation" else v
                                                               for k, v in VIEW.items()}),
                    "rc_splats": lambda: self.splats,
                    "rc_list_query": lambda: structure("rc_list_query", limit=-1),
                    "rc_reconstruction": lambda: structure("rc_reconstruction", sh_degree=-1),
                    "rc_sfm_options": lambda: structure("rc_sfm_options", rolling_shutter_ms=-1)}  # fmt: skip
            filled = made.get(bare, lambda: structure(bare))()
            return ctypes.byref(filled)
        if kind in HEADER.callbacks or name == "user":
            return None
        named = {
            "folder": self.path("another"), "name": b"anna", "api_key": self.key.encode(), "file_name": b"a.mp4",
            "blob_name": self.blob.encode(), "idempotency_key": None, "device": b"cpu", "prefix": self.key.split(".")[0].encode(),
            "request_json": json.dumps({"blob_name": self.blob}).encode(), "changes_json": b'{"title": "x"}',
            "job_id": library().rc_job_id(self.handles["rc_job"]), "input": b"/there/is/no/such/video.mp4",
            "tier": CODE["RC_TIER_ENTERPRISE"], "kind": CODE["RC_ARTIFACT_PLY"], "level": CODE["RC_LOG_OFF"],
            "timeout_seconds": 0.0, "count": 1, "index": 0, "offset": 0, "capacity": 8, "width": 16, "height": 12,
            "field_of_view": 45.0, "code": 0, "images": b"/there/are/no/pictures", "threads": 1, "as_text": False, "number": 0,
        }  # fmt: skip
        if (of, name) == ("rc_model_load", "folder"):
            return str(self.sparse).encode()
        if (of, name) == ("rc_scene_load", "file"):
            return str(self.scene_file).encode()
        if (of, name) == ("rc_engine_import_video", "file"):
            return str(self.capture).encode()
        if name == "file":
            return self.path("out.spz" if of == "rc_scene_save" else "out.bin")
        if name == "data":
            return ctypes.c_char_p(b"12345678")
        if name == "size":
            return 8 if of == "rc_upload_append" else 4 * 16 * 12
        if name in ("rgba", "buffer"):
            return self.out()
        if kind == "const double *":
            vector = (ctypes.c_double * 3)(*{"position": (0, 0, -3), "target": (0, 0, 0), "up": (0, -1, 0)}[name])
            return vector
        return named[name]

    def arguments(self, function):
        return [self.good(function, p) for p in function.parameters[:-1]]


@pytest.fixture(scope="module")
def world(tmp_path_factory, flat, capture):
    made = World(tmp_path_factory.mktemp("world"), flat, capture)
    made.done()
    return made


def call(function, arguments):
    """The code of a call, with the error it stored."""
    error = ctypes.c_void_p()
    code = getattr(library(), function.name)(*arguments, ctypes.byref(error))
    assert bool(error) == (code != 0), (function.name, code)
    return code, take_error(error, code) if code else None


def is_output(parameter):
    return parameter.type.endswith("**") or (parameter.name, parameter.type) == ("count", "size_t *")


def may_be_null(function, name):
    """As the header says: "name: NULL = ..." or "name: ..., NULL = ...", up to the next of its sentences."""
    return re.search(rf"\b{name}: [^:]*NULL", function.comment) is not None


def unchanged(arguments):
    return all(set(a) == {SENTINEL} for a in arguments if isinstance(a, ctypes.Array) and a._type_ is ctypes.c_uint64)


@pytest.mark.parametrize("function", FALLIBLE, ids=lambda f: f.name)
def test_null(world, function):
    for place, parameter in enumerate(function.parameters[:-1]):
        is_pointer = parameter.type.endswith("*")
        if not is_pointer or parameter.name == "user":
            continue
        arguments = world.arguments(function)
        arguments[place] = None
        code, error = call(function, arguments)
        if may_be_null(function, parameter.name):
            assert code != CODE["RC_NULL_ARGUMENT"], (function.name, parameter.name, error)
        else:
            assert code == CODE["RC_NULL_ARGUMENT"], (function.name, parameter.name, error)
            assert parameter.name in error.message and error.slug == "invalid_argument"
            assert unchanged(arguments), "an output was written though the call failed"
        # Nobody has to listen.
        getattr(library(), function.name)(*arguments, None)


# NULL is how rc_set_log is switched off.
@pytest.mark.parametrize("function", [f for f in FALLIBLE if f.name != "rc_set_log"], ids=lambda f: f.name)
def test_all_null(function):
    nothing = [None if p.type.endswith("*") or p.type in HEADER.callbacks else 0 for p in function.parameters]
    assert getattr(library(), function.name)(*nothing) != 0


@pytest.mark.parametrize("function", FALLIBLE, ids=lambda f: f.name)
def test_bad_utf8(world, function):
    for place, parameter in enumerate(function.parameters[:-1]):
        if parameter.type != "const char *":
            continue
        arguments = world.arguments(function)
        arguments[place] = b"caf\xe9"
        code, error = call(function, arguments)
        assert code == CODE["RC_INVALID_UTF8"], (function.name, parameter.name, error)
        assert parameter.name in error.message and "byte 3" in error.message
        assert unchanged(arguments)


@pytest.mark.parametrize("function", [*FALLIBLE, *INFALLIBLE], ids=lambda f: f.name)
def test_another_handle(world, function):
    for place, parameter in enumerate(function.parameters):
        bare = parameter.type.replace("const ", "").replace("*", "").strip()
        if bare not in HEADER.handles or parameter.type.endswith("**"):
            continue
        for other, wrong in world.handles.items():
            if other == bare:
                continue
            if function in FALLIBLE:
                arguments = world.arguments(function)
                arguments[place] = wrong
                code, error = call(function, arguments)
                assert code == CODE["RC_INVALID_HANDLE"], (function.name, other, error)
                assert bare in error.message and unchanged(arguments)
            else:
                # Frees nothing, raises nothing, shows nothing.
                arguments = [wrong if k == place else 0 for k, _ in enumerate(function.parameters)]
                assert getattr(library(), function.name)(*arguments) in (None, 0, False, b"")
    # All of them are still alive.
    assert library().rc_scene_count(world.handles["rc_scene"]) == 1
    assert library().rc_job_id(world.handles["rc_job"])


@pytest.mark.parametrize("function", FALLIBLE, ids=lambda f: f.name)
def test_structures_that_were_not_started(world, function):
    for place, parameter in enumerate(function.parameters[:-1]):
        bare = parameter.type.replace("const ", "").replace("*", "").strip()
        if bare not in HEADER.structures or bare == "rc_camera":
            continue
        for size in (0, 7, 1 << 40):
            arguments = world.arguments(function)
            raw = (ctypes.c_size_t * 512)(size)
            arguments[place] = raw
            code, error = call(function, arguments)
            assert code == CODE["RC_INVALID_ARGUMENT"] and "_INIT" in HEADER.text, (function.name, size, error)
            assert "struct_size" in error.message


@pytest.mark.parametrize("function", INFALLIBLE, ids=lambda f: f.name)
def test_functions_that_cannot_fail_take_null(function):
    nothing = [None if p.type.endswith("*") else 0 for p in function.parameters]
    result = getattr(library(), function.name)(*nothing)
    expected = {
        "rc_abi_version": 1,
        "rc_version": library().rc_version(),
        "rc_code_name": b"RC_OK",
        "rc_error_slug": b"",
        "rc_error_message": b"",
        "rc_error_debug": b"",
    }
    if function.name == "rc_cancel_new":
        library().rc_cancel_free(result)
    else:
        assert result == expected.get(function.name, None if function.returns in ("void", "const char *") else 0)


@pytest.mark.parametrize("function", FALLIBLE, ids=lambda f: f.name)
def test_numbers_that_are_no_enumerators(world, function):
    for place, parameter in enumerate(function.parameters[:-1]):
        if parameter.type in HEADER.enums:
            arguments = world.arguments(function)
            arguments[place] = 0x7FFF
            code, error = call(function, arguments)
            assert code == CODE["RC_INVALID_ARGUMENT"], (function.name, error)
            assert parameter.name in error.message and "32767" in error.message


def test_enums_in_structures(world):
    for name, fields in [("rc_request", ["reconstruction_method", "camera_type"]), ("rc_engine_options", ["tier"]),
                         ("rc_reconstruction", ["quality", "reconstruction_method", "camera_type", "projection"]),
                         ("rc_frame_options", ["projection"]),
                         ("rc_sfm_options", ["reconstruction_method", "projection"]), ("rc_job_changes", ["is_public"]), ("rc_list_query", ["is_public"])]:  # fmt: skip
        function = next(f for f in FALLIBLE if any(name + " *" in p.type for p in f.parameters))
        for field in fields:
            arguments = world.arguments(function)
            place = next(k for k, p in enumerate(function.parameters) if name in p.type)
            start = {"rc_list_query": {"limit": -1}, "rc_reconstruction": {"sh_degree": -1}, "rc_sfm_options": {"rolling_shutter_ms": -1}}
            start = start.get(name, {})
            arguments[place] = ctypes.byref(structure(name, **start | {field: 99}))
            code, error = call(function, arguments)
            assert code == CODE["RC_INVALID_ARGUMENT"] and field in error.message, (name, field, error)


def test_beyond_the_end_of_an_artifact_there_is_nothing(world):
    artifact = world.handles["rc_artifact"]
    size = library().rc_artifact_size(artifact)
    buffer, count = ctypes.create_string_buffer(8), ctypes.c_size_t(99)
    for offset in (size - 3, size, size + 1, 1 << 63, (1 << 64) - 1):
        binding.call("rc_artifact_read", artifact, offset, buffer, 8, ctypes.byref(count))
        assert count.value == max(size - offset, 0), offset


def test_too_many_workers_are_refused_before_anything_is_made(tmp_path):
    options = structure("rc_engine_options", workers=257)
    with pytest.raises(binding.RcError, match="257 workers are asked for: 0 to 256 are allowed") as caught:
        handle("rc_engine_open", str(tmp_path / "none").encode(), ctypes.byref(options))
    assert caught.value.code == CODE["RC_INVALID_ARGUMENT"] and not (tmp_path / "none").exists()


@pytest.mark.parametrize("body", ['{"title": "a", "title": "a"}', '{"camera_data": {"up": {"x": 1, "\\u0078": 2}}}'])
def test_keys_of_json_that_are_there_twice(world, body):
    """They are refused, as over HTTP: nobody knows which is meant."""
    for name in ("rc_engine_submit_json", "rc_job_restart_json", "rc_job_update_json"):
        function = HEADER.functions[name]
        arguments = world.arguments(function)
        arguments[1] = body.encode()
        code, error = call(function, arguments)
        assert code == CODE["RC_INVALID_ARGUMENT"] and "duplicate key" in error.message, (name, error)
        assert unchanged(arguments), name


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_odd_lengths_of_time(world, seconds):
    error = None
    try:
        # The job has ended: whatever the time, there is nothing to wait for.
        binding.call("rc_job_wait", world.handles["rc_job"], seconds, None, None)
    except binding.RcError as failed:
        error = failed
    assert (error is not None) == (seconds != seconds)


def test_a_newer_program_is_understood_if_it_asks_for_nothing_new(world):
    size = ctypes.sizeof(HEADER.structures["rc_list_query"])

    class Newer(ctypes.Structure):
        _fields_ = [("old", HEADER.structures["rc_list_query"]), ("new", ctypes.c_uint64)]

    query = Newer()
    query.old.struct_size, query.old.limit = size + 8, -1
    library().rc_job_list_free(handle("rc_engine_jobs", world.engine, ctypes.byref(query)))
    query.new = 1
    with pytest.raises(binding.RcError) as caught:
        handle("rc_engine_jobs", world.engine, ctypes.byref(query))
    assert caught.value.code == CODE["RC_UNSUPPORTED"]


def test_a_freed_handle_is_not_taken_for_one(world):
    """Not promised, since its memory may be something else by then; but where it can be seen, it is."""
    raw = ctypes.create_string_buffer(b"\0" * 64, 64)
    with pytest.raises(binding.RcError) as caught:
        text("rc_job_json", ctypes.cast(raw, ctypes.c_void_p))
    assert caught.value.code == CODE["RC_INVALID_HANDLE"]
    with pytest.raises(binding.RcError) as caught:
        text("rc_job_json", ctypes.c_void_p(ctypes.addressof(raw) + 1))
    assert caught.value.code == CODE["RC_INVALID_HANDLE"]


def test_every_function_from_several_threads(world):
    """All functions on the same handles at once, the ones that free excepted: error codes, never a crash."""
    ends = time.monotonic() + 8
    # These change what the others need or whole processes; their threads are tested by what they are made of.
    skipped = {"rc_set_log", "rc_upload_finish", "rc_job_delete", "rc_engine_revoke_key"}
    functions = [f for f in HEADER.functions.values() if not f.name.endswith("_free") and f.name not in skipped]
    allowed = {"RC_OK", "RC_NOT_FOUND", "RC_INVALID_ARGUMENT", "RC_INVALID_MEDIA", "RC_CONFLICT", "RC_CANCELLED",
               "RC_TOO_MANY_REQUESTS", "RC_DEADLINE_EXCEEDED", "RC_TOO_LARGE"}  # fmt: skip
    names = {value: name for name, value in CODE.items() if name in HEADER.enums["rc_code"]}
    calls = {f.name: 0 for f in functions}
    lock = threading.Lock()

    def work(first):
        order = functions[first:] + functions[:first]
        while time.monotonic() < ends or min(calls.values()) < 2:
            for function in order:
                if function in FALLIBLE:
                    arguments = world.arguments(function)
                    code, error = call(function, arguments)
                    assert names[code] in allowed, (function.name, error)
                    if code == 0:
                        free_outputs(function, arguments)
                else:
                    arguments = [world.good(function, p) for p in function.parameters]
                    result = getattr(library(), function.name)(*arguments)
                    if function.name == "rc_cancel_new":
                        library().rc_cancel_free(result)
                with lock:
                    calls[function.name] += 1

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work, k * len(functions) // 6) for k in range(6)]:
            done.result()
    assert min(calls.values()) >= 2


def free_outputs(function, arguments):
    for parameter, argument in zip(function.parameters, arguments):
        if parameter.type.endswith("**"):
            bare = parameter.type.replace("*", "").strip()
            address = ctypes.c_void_p(argument[0])
            getattr(library(), "rc_string_free" if bare == "char" else f"{bare}_free")(address)


@pytest.mark.parametrize("name", ["rc_reconstruct", "rc_sfm"])
def test_a_focal_length_that_none_can_be(world, name):
    function = next(f for f in FALLIBLE if f.name == name)
    place = next(k for k, p in enumerate(function.parameters) if p.name == "options")
    start = {"rc_reconstruct": ("rc_reconstruction", {"sh_degree": -1}), "rc_sfm": ("rc_sfm_options", {"rolling_shutter_ms": -1})}
    kind, fields = start[name]
    options = structure(kind, **fields, focal=-1.0)
    arguments = world.arguments(function)
    arguments[place] = ctypes.byref(options)
    code, error = call(function, arguments)
    assert code == CODE["RC_INVALID_ARGUMENT"] and "the focal length is -1;" in error.message


def test_a_program_from_before_a_field_is_understood(world):
    function = next(f for f in FALLIBLE if f.name == "rc_reconstruct")
    place = next(k for k, p in enumerate(function.parameters) if p.name == "options")
    options = structure("rc_reconstruction", sh_degree=-1, require_scale=True)
    arguments = world.arguments(function)
    arguments[place] = ctypes.byref(options)
    code, error = call(function, arguments)
    assert code == CODE["RC_INVALID_ARGUMENT"] and "apriltag_size_mm" in error.message
    # What is behind the structure is not its own.
    options.struct_size = HEADER.structures["rc_reconstruction"].require_scale.offset
    code, error = call(function, arguments)
    assert code and "no/such/video" in error.message and "apriltag_size_mm" not in error.message
    options.struct_size -= 1
    code, error = call(function, arguments)
    assert code == CODE["RC_INVALID_ARGUMENT"] and "struct_size" in error.message
