"""The package as a whole: version, import, exceptions, types, fork."""

import importlib.metadata
import math
import multiprocessing
import os
import pickle
import types

import pytest

import libreconstruct as lr
from libreconstruct import _errors, _native, _progress

from .conftest import SETTINGS, random_scene, run_python


def test_the_package_and_the_engine_have_one_version():
    assert lr.version() == importlib.metadata.version("libreconstruct")
    assert lr.__version__ == lr.version()


def test_importing_is_quick_and_loads_nothing_heavy(tmp_path):
    code = "import sys, time; t = time.process_time(); import libreconstruct; t = time.process_time() - t\n"
    code += "heavy = {'numpy', 'ssl', 'asyncio', 'PIL', 'tqdm', 'IPython'} & set(sys.modules)\n"
    code += "print(t, ' '.join(sorted(heavy)))"
    seconds = []
    # The first time writes the compiled modules.
    for _ in range(6):
        done = run_python(code, tmp_path, PYTHONPYCACHEPREFIX=str(tmp_path / "compiled"))
        assert done.returncode == 0, done.stderr
        time, *heavy = done.stdout.split()
        assert heavy == []
        seconds.append(float(time))
    # Processor time, since other work on the machine says nothing about the package.
    assert min(seconds) < 0.1, seconds


def test_calls_compute_with_as_many_threads_as_were_asked_for():
    usual = lr.num_threads()
    assert usual >= 1
    try:
        for threads in (1, 3):
            lr.set_num_threads(threads)
            assert lr.num_threads() == threads
        with pytest.raises(lr.InvalidInputError, match="threads is 1025"):
            lr.set_num_threads(1025)
        with pytest.raises(OverflowError):
            lr.set_num_threads(-1)
        assert lr.num_threads() == 3
    finally:
        lr.set_num_threads(0)
    assert lr.num_threads() == usual


def test_every_kind_of_error_has_a_class_that_survives_pickling():
    assert set(_errors.KINDS) == set(_native.error_kinds())
    for slug in _native.error_kinds():
        error = _errors.from_kind(slug, "what was wrong", "what to do", "train")
        assert isinstance(error, lr.ReconstructError) and type(error) is not lr.ReconstructError
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error) and str(copy) == str(error) == "what was wrong (what to do)"
        assert (copy.slug, copy.message, copy.hint, copy.stage) == (slug, "what was wrong", "what to do", "train")
    for reason, cls in (("cancelled", lr.JobCancelledError), ("too_few_frames", lr.JobFailedError)):
        error = pickle.loads(pickle.dumps(_errors.job_failed("some id", reason, "text")))
        assert type(error) is cls and (error.job_id, error.reason, str(error)) == ("some id", reason, "text")
    limited = lr.RateLimitedError("slow down")
    limited.retry_after = 12.5
    assert pickle.loads(pickle.dumps(limited)).retry_after == 12.5


@pytest.mark.parametrize(("call", "cls", "builtin"), [
    (lambda: lr.Scene.load("missing.ply"), lr.NotFoundError, LookupError),
    (lambda: lr.Scene.load(__file__), lr.InvalidInputError, ValueError),
    (lambda: lr.reconstruct("missing.mp4", quality="odd"), lr.InvalidInputError, ValueError),
    (lambda: lr.reconstruct("missing.mp4", progress=False), lr.NotFoundError, LookupError),
    (lambda: lr.reconstruct(__file__, progress=False, require_scale=True), lr.InvalidInputError, ValueError),
    (lambda: lr.reconstruct(__file__, progress=False, steps=5), lr.InvalidInputError, ValueError),
    (lambda: random_scene(1, 5, 0).render(device="no such adapter"), lr.MissingDependencyError, RuntimeError),
    (lambda: lr.Client("ftp://x", "key"), lr.InvalidInputError, ValueError),
    (lambda: lr.Client("http://x", " \n"), lr.InvalidInputError, ValueError),
    (lambda: lr.Client("http://x", "key", poll_seconds=0), lr.InvalidInputError, ValueError),
    (lambda: lr.Client("https://x", "key", ca_file=__file__), lr.InvalidInputError, ValueError),
    (lambda: lr.Client("https://x", "key", ca_file="missing.pem"), lr.NotFoundError, LookupError),
    *((lambda fov=fov: lr.Camera.look_at((0, 0, -4), (0, 0, 0), fov=fov), lr.InvalidInputError, ValueError)
      for fov in (0, -60, 180, math.nan)),
    (lambda: random_scene(1, 5, 0).save("scene.spz", spz_version=-1), lr.InvalidInputError, ValueError),
    (lambda: random_scene(1, 5, 0).turntable(frames=-1), lr.InvalidInputError, ValueError),
    (lambda: random_scene(1, 5, 0).render(random_scene(1, 5, 0).view(width=-5)), lr.InvalidInputError, ValueError),
    (lambda: lr.reconstruct(__file__, progress=False, reconstruction_method="odd"), lr.InvalidInputError, ValueError),
])  # fmt: skip
def test_errors_are_of_the_class_that_one_expects(call, cls, builtin):
    with pytest.raises(cls) as caught:
        call()
    assert isinstance(caught.value, builtin) and caught.value.message


@pytest.mark.parametrize("key", ["lrk_secret.\nsecret", "lrk_secret.\tsecret", "lrk_secret.sécret"])
def test_what_is_no_key_is_not_shown(key):
    with pytest.raises(lr.InvalidInputError, match="API key") as caught:
        lr.Client("http://x", key)
    assert "cret" not in str(caught.value)


def test_a_warning_is_heard_without_a_bar():
    hear = _progress.listener(_progress.Bar(False, "kitchen.mp4"))
    with pytest.warns(_progress.ReconstructionWarning, match="no tag"):
        hear('{"event": "warning", "stage": "sfm", "code": "apriltag_not_found", "message": "no tag was found"}')
    hear('{"event": "progress", "stage": "sfm", "step": "match", "fraction": 0.5}')


def test_a_callable_hears_how_long_the_stage_will_take():
    seen: list[lr.Progress] = []
    with _progress.Bar(seen.append, "kitchen.mp4") as bar:
        hear = _progress.listener(bar)
        hear('{"event": "progress", "stage": "frames", "step": "opening", "fraction": 0.0}')
        hear('{"event": "progress", "stage": "sfm", "step": "matching", "fraction": 0.25, "remaining_seconds": 30.0}')
    assert seen == [lr.Progress(0.0, "frames", "opening"), lr.Progress(0.25, "sfm", "matching", 30.0)]
    assert seen[0].remaining_seconds is None


def test_a_callable_is_called_ten_times_a_second_and_at_the_end(monkeypatch):
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(_progress, "time", types.SimpleNamespace(monotonic=lambda: clock.now))
    seen: list[lr.Progress] = []
    with _progress.Bar(seen.append, "garden.mp4") as bar:
        for step in range(2001):
            clock.now = step / 1000
            bar.update(lr.Progress(step / 2000, "upload", ""))
    assert 18 <= len(seen) <= 22 and seen[0].fraction == 0.0 and seen[-1].fraction == 1.0

    # No stage goes unheard, however short it is.
    seen.clear()
    with _progress.Bar(seen.append, "garden.mp4") as bar:
        for stage in ("frames", "sfm", "train"):
            for fraction in (0.0, 0.5, 1.0):
                bar.update(lr.Progress(fraction, stage, ""))
    assert [(progress.stage, progress.fraction) for progress in seen] == [("frames", 0.0), ("sfm", 0.0), ("train", 0.0), ("train", 1.0)]

    # What must be heard before the work goes on is told at once, and once.
    seen.clear()
    with _progress.Bar(seen.append, "garden.mp4") as bar:
        for fraction in (0.0, 0.5, 1.0):
            bar.update(lr.Progress(fraction, "upload", ""), at_once=fraction == 1.0)
        assert [progress.fraction for progress in seen] == [0.0, 1.0]
    assert len(seen) == 2

    # What stops the work is told nothing more.
    seen.clear()
    with pytest.raises(KeyError), _progress.Bar(seen.append, "garden.mp4") as bar:
        bar.update(lr.Progress(0.0, "upload", ""))
        bar.update(lr.Progress(0.5, "upload", ""))
        raise KeyError
    assert len(seen) == 1


def test_a_forked_child_uses_scenes_but_not_its_parents_engine(tmp_path, flat):
    """Rayon's threads do not survive fork: what works in parallel must do so in the child, too."""
    scene = random_scene(2, 20_000, 3)
    scene.save(tmp_path / "parent.spz")
    with lr.Engine(tmp_path / "engine", settings=SETTINGS, workers=1) as engine:
        job = engine.submit(flat)

        def child(queue) -> None:
            scene.save(tmp_path / "child.spz")
            picture = scene.transform(scale=2.0).render(device="cpu")
            refusals = []
            for call in (engine.jobs, lambda: lr.Engine(tmp_path / "engine", workers=0)):
                try:
                    call()
                except lr.ConflictError as error:
                    refusals.append(error.message)
            queue.put((os.getpid(), picture.shape, refusals))

        fork = multiprocessing.get_context("fork")
        queue = fork.Queue()
        process = fork.Process(target=child, args=(queue,))
        process.start()
        pid, shape, refusals = queue.get(timeout=60)
        process.join(60)
        assert process.exitcode == 0 and pid != os.getpid()
        assert shape == (480, 640, 3)
        assert len(refusals) == 2 and all("forked" in refusal for refusal in refusals)
        # The parent goes on.
        assert job.wait(60, check=False).status == "Failed"
    assert (tmp_path / "child.spz").read_bytes() == (tmp_path / "parent.spz").read_bytes()


def test_engines_that_were_opened_after_a_fork_are_closed_at_the_end(tmp_path):
    code = f"""
import atexit, os, sys
engines = []
atexit.register(lambda: print([engine._native.is_closed for engine in engines], flush=True))
import libreconstruct as lr
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
engines.append(lr.Engine("scenes", settings={SETTINGS!r}))
"""
    done = run_python(code, tmp_path)
    assert done.returncode == 0 and done.stdout.split("\n") == ["[True]", "[]", ""], done.stderr
