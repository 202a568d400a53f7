"""Jobs in this process: several at once, asynchronously, interrupted; and as notebooks show them."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

import libreconstruct as lr

from .conftest import QUICK, SETTINGS, run_python


@pytest.fixture(scope="module")
def finished(capture, tmp_path_factory):
    """A job that has finished."""
    with lr.Engine(tmp_path_factory.mktemp("finished"), settings=SETTINGS) as engine:
        yield engine.submit(capture, title="<b>Küche</b>", **QUICK).wait(300)


def test_two_jobs_and_a_busy_interface_run_at_once(capture, tmp_path):
    """Ticks of a user interface come in time while two jobs run in the same process."""
    ticks: list[float] = []
    done = threading.Event()

    def interface(job: lr.Job) -> None:
        while not done.wait(0.02):
            job.refresh()
            ticks.append(time.monotonic())

    with lr.Engine(tmp_path, settings=SETTINGS, workers=2, threads=1) as engine:
        jobs = [engine.submit(capture, **QUICK) for _ in range(2)]
        thread = threading.Thread(target=interface, args=(engine.job(jobs[0].job_id),))
        thread.start()
        try:
            waiters = [threading.Thread(target=job.wait, args=(300,)) for job in jobs]
            for waiter in waiters:
                waiter.start()
            for waiter in waiters:
                waiter.join()
        finally:
            done.set()
            thread.join()
        first, second = (job.refresh().fields["details"] for job in jobs)
    assert [job.status for job in jobs] == ["Finished", "Finished"]
    begin, end = (datetime.fromisoformat(max(a, b)) for a, b in [(first["started_at"], second["started_at"])] * 2)
    end = datetime.fromisoformat(min(first["finished_at"], second["finished_at"]))
    assert (end - begin).total_seconds() > 1, "they ran one after the other"
    gaps = np.diff(ticks)
    assert np.median(gaps) < 0.06 and gaps.max() < 1.0, f"median {np.median(gaps)}, longest {gaps.max()} s"


def test_jobs_can_be_awaited_and_followed(capture, flat, tmp_path):
    async def follow(job: lr.Job) -> list[str]:
        return [event.status async for event in job.events()]

    async def both(engine: lr.Engine) -> None:
        good, bad = engine.submit(capture, **QUICK), engine.submit(flat, **QUICK)
        statuses, result = await asyncio.gather(follow(good), good)
        assert result is good and statuses[-1] == "Finished" and len(statuses) > 2
        kinds = list(dict.fromkeys(status.partition(" - ")[0] for status in statuses))
        order = ["Queued", "Processing video", "Generating 3D scene", "Finished"]
        assert kinds == [status for status in order if status in kinds]
        with pytest.raises(lr.JobFailedError) as caught:
            await bad
        assert caught.value.job_id == bad.job_id and caught.value.reason == bad.failure["code"]

    with lr.Engine(tmp_path, settings=SETTINGS) as engine:
        asyncio.run(both(engine))


def test_a_cancelled_job_says_so(capture, tmp_path):
    with lr.Engine(tmp_path, settings=SETTINGS) as engine:
        job = engine.submit(capture, training_num_steps=200_000, training_max_num_gaussians=1000)
        for event in job:
            if event.status == "Processing video":
                break
        began = time.monotonic()
        assert job.cancel().status == "Failed"
        with pytest.raises(lr.ConflictError):
            job.cancel()
        with pytest.raises(lr.JobCancelledError):
            job.wait(10)
        engine.pause()
        assert time.monotonic() - began < 30
        assert job.log()


def test_ctrl_c_stops_the_work_and_another_engine_goes_on(capture, tmp_path):
    code = f"""
import libreconstruct as lr
engine = lr.Engine("scenes", settings={SETTINGS!r})
job = engine.submit({str(capture)!r}, **{QUICK!r})
print(job.job_id, flush=True)
def hear(progress):
    print(progress.stage, flush=True)
try:
    job.wait(progress=hear)
except KeyboardInterrupt:
    print(job.refresh().status, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    job_id = process.stdout.readline().strip()
    for line in process.stdout:
        if line.startswith("Processing"):
            break
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    assert process.communicate(timeout=60)[0].splitlines()[-1].startswith("Queued")
    assert process.returncode == 0 and time.monotonic() - sent < 30
    with lr.Engine(tmp_path / "scenes", settings=SETTINGS) as engine:
        assert engine.job(job_id).wait(300).status == "Finished"


def test_a_closed_engine_says_so(flat, tmp_path):
    engine = lr.Engine(tmp_path, settings=SETTINGS)
    job = engine.submit(flat)
    engine.close()
    engine.close()
    for call in (engine.jobs, job.refresh, lambda: job.wait(1), lambda: engine.submit(flat)):
        with pytest.raises(lr.ConflictError, match="closed"):
            call()
    with pytest.raises(lr.InvalidInputError, match="lease"):
        lr.Engine(tmp_path, settings={"lease_seconds": 1})
    with pytest.raises(lr.InvalidInputError, match="colour"):
        lr.Engine(tmp_path, settings={"colour": 1})


def test_an_engine_that_is_let_go_of_stops_its_work_and_keeps_no_thread(capture, tmp_path):
    ticks: list[float] = []
    done = threading.Event()

    def interface() -> None:
        while not done.wait(0.001):
            ticks.append(time.monotonic())

    engine = lr.Engine(tmp_path, settings=SETTINGS)
    job = engine.submit(capture, training_num_steps=200_000, training_max_num_gaussians=1000)
    while job.refresh().status.startswith("Queued"):
        time.sleep(0.02)
    job_id = job.job_id
    thread = threading.Thread(target=interface)
    thread.start()
    try:
        # Without `close`: the last to know of it are these two names.
        del job
        before = len(ticks)
        del engine
        passed = len(ticks) - before
    finally:
        done.set()
        thread.join()
    assert passed > 1, "the interpreter stood still until the worker had ended"
    with lr.Engine(tmp_path, workers=0) as after:
        assert after.job(job_id).status.startswith("Queued"), "the worker has put its job back"


def test_a_video_that_is_refused_leaves_no_copy(tmp_path):
    text = tmp_path / "text.mp4"
    text.write_text("#EXTM3U\n/etc/passwd\n")
    with lr.Engine(tmp_path / "scenes", workers=0) as engine:
        for _ in range(2):
            with pytest.raises(lr.InvalidInputError):
                engine.submit(text)
        assert [path for path in (tmp_path / "scenes" / "videos").rglob("*") if path.is_file()] == []


@pytest.mark.skipif(sys.platform != "linux", reason="the threads are those that /proc names")
def test_an_open_engine_is_looked_after_and_keeps_no_thread(tmp_path):
    def of_upkeep() -> int:
        names = []
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                names.append((task / "comm").read_text().strip())
        return names.count("upkeep")

    def wait_for(count: int) -> None:
        # A thread names itself when it begins, and is gone a moment after it has ended.
        end = time.monotonic() + 10
        while (now := of_upkeep()) != count:
            assert time.monotonic() < end, f"{now} threads, not {count}"
            time.sleep(0.01)

    before = of_upkeep()
    with lr.Engine(tmp_path, workers=0):
        wait_for(before + 1)
    wait_for(before)


def test_threads_that_are_refused_do_not_keep_each_other(tmp_path):
    """In a process of its own, since none would come out of it."""
    code = """
import sys, threading
import libreconstruct as lr
engine = lr.Engine("scenes", workers=0)
engine.close()
sys.setswitchinterval(1e-6)
def ask():
    for call in [engine.jobs, engine.resume] * 300:
        try:
            call()
        except lr.ConflictError:
            pass
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("all came back")
"""
    done = run_python(code, tmp_path)
    assert done.stdout == "all came back\n", done.stderr


def test_engines_of_two_users_and_processes_share_a_folder(flat, tmp_path):
    with lr.Engine(tmp_path, workers=0) as anna, lr.Engine(tmp_path, user="ben", workers=0) as ben:
        job = anna.submit(flat)
        assert ben.jobs() == [] and [j.job_id for j in anna.jobs()] == [job.job_id]
        assert anna.jobs()[0].title == "flat.mp4" and anna.path == tmp_path


def test_notebooks_show_jobs(finished, flat, tmp_path):
    html = finished._repr_html_()
    assert "&lt;b&gt;Küche" in html and "<b>Küche" not in html and "Finished" in html and "data:image/jpeg" in html
    assert finished._repr_png_()[1:4] == b"PNG"
    preview = finished.preview
    assert preview.format == "JPEG" and max(preview.size) <= 1280
    with lr.Engine(tmp_path, workers=0) as engine:
        waiting = engine.submit(flat)
        assert "Queued" in waiting._repr_html_() and waiting._repr_png_() is None


def test_a_jobs_scene_is_what_was_downloaded(finished, tmp_path):
    scene = finished.scene()
    assert len(scene) == len(lr.Scene.load(finished.download("ply", tmp_path / "a.ply")))
    assert np.array_equal(scene.means, lr.Scene.load(tmp_path / "a.ply").means)
    seen = []
    finished.download("spz", tmp_path / "a.spz", progress=seen.append)
    assert seen[-1].fraction == 1.0
    assert scene.render(device="cpu").std() > 5, "the view of the job shows the scene"


def test_a_jobs_scene_can_be_had_whatever_its_viewer_sees_first(finished):
    above = {"position": (0, -5, 0), "lookAt": (0, 0, 0), "up": (0, -1, 0)}
    finished.update(camera_data={name: dict(zip("xyz", vector)) for name, vector in above.items()})
    try:
        scene = finished.scene()
    finally:
        finished.update(camera_data=None)
    assert len(scene) > 0 and scene.view(width=8, height=6).width == 8


def test_engines_share_rows_and_files_on_many_machines(capture, tmp_path, monkeypatch):
    """Two engines in folders of their own, as on two machines; what one submits the other does."""
    from rest import postgres

    shared = tmp_path / "shared"
    address = postgres.settings(shared)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = {"storage": address["storage"], "secrets": shared / "secrets.json", "settings": SETTINGS}
    with lr.Engine(address["database"], workers=0, scratch=tmp_path / "here", **place) as here:
        assert here.path == tmp_path / "here"
        job = here.submit(capture, **QUICK)
        with lr.Engine(address["database"], workers=1, **place) as there:
            assert there.path.is_relative_to(tmp_path / "cache" / "libreconstruct")
            assert there.job(job.job_id).wait(300).status == "Finished"
        assert job.refresh().status == "Finished"
        job.download("ply", tmp_path / "scene.ply")
        assert (tmp_path / "scene.ply").stat().st_size > 0
    # Nothing of the address of the rows is to be seen, as it may have a password.
    assert "postgres" not in repr(here)


def test_engines_share_files_in_an_object_store(s3, flat, tmp_path):
    from rest import postgres

    shared, storage = tmp_path / "shared", s3.place("s3")
    address = postgres.settings(shared)["database"]
    place = {"storage": storage, "secrets": shared / "secrets.json", "workers": 0}
    with lr.Engine(address, scratch=tmp_path / "here", **place) as here, lr.Engine(address, scratch=tmp_path / "there", **place) as there:
        job = here.submit(flat)
        videos = [name for name in s3.look(storage).names() if name.startswith("videos/")]
        assert [s3.look(storage).read(name) for name in videos] == [flat.read_bytes()]
        assert there.job(job.job_id).title == "flat.mp4"


def test_a_submission_tells_of_its_copy_and_can_be_stopped(flat, tmp_path):
    class Enough(Exception):
        pass

    def stop(progress: lr.Progress) -> None:
        raise Enough

    seen: list[lr.Progress] = []
    with lr.Engine(tmp_path, workers=0) as engine:
        with pytest.raises(Enough):
            engine.submit(flat, progress=stop)
        assert engine.jobs() == []
        job = engine.submit(flat, progress=seen.append)
        assert [j.job_id for j in engine.jobs()] == [job.job_id]
    size = f"{flat.stat().st_size / 1e6:.1f} MB"
    assert seen[-1] == lr.Progress(1.0, "upload", size)


def test_a_submission_can_be_stopped_until_there_is_a_job(flat, tmp_path, monkeypatch):
    class Enough(Exception):
        pass

    def stop(progress: lr.Progress) -> None:
        if progress.fraction == 1.0:
            raise Enough

    with lr.Engine(tmp_path, workers=0) as engine:
        native = engine._native

        class Halves:
            """Tells of half a copy just before the end of it."""

            def submit(self, video, request, listener) -> str:
                listener(1, 2)
                return native.submit(video, request, listener)

        with monkeypatch.context() as patch, pytest.raises(Enough):
            patch.setattr(engine, "_native", Halves())
            engine.submit(flat, progress=stop)
        assert engine.jobs() == []


def test_numbers_that_are_none_are_named(tmp_path):
    for wrong in ({"workers": -1}, {"threads": -1}, {"workers": 1 << 70}):
        with pytest.raises(lr.InvalidInputError, match=next(iter(wrong))):
            lr.Engine(tmp_path / "none", **wrong)
    with pytest.raises(lr.InvalidInputError, match="257 workers are asked for: 0 to 256 are allowed"):
        lr.Engine(tmp_path / "none", workers=257)
    with pytest.raises(lr.InvalidInputError, match="threads is 1025: 0 to 1024 is allowed"):
        lr.Engine(tmp_path / "none", threads=1025)
    assert not (tmp_path / "none").exists(), "nothing is opened for what is refused"
    with lr.Engine(tmp_path, workers=0) as engine:
        for limit in (-1, 0, 1 << 40):
            with pytest.raises(lr.InvalidInputError, match="limit"):
                engine.jobs(limit=limit)


def test_wrong_addresses_are_named(tmp_path):
    from rest import postgres

    def refused(kind: type[lr.ReconstructError], *arguments, **options) -> str:
        with pytest.raises(kind) as caught:
            lr.Engine(*arguments, **options)
        return f"{caught.value} {caught.value.hint}"

    assert "s3://" in refused(lr.InvalidInputError, "s3://bucket")
    assert "storage is 'file:///a'" in refused(lr.InvalidInputError, tmp_path / "a", storage="file:///a")
    assert "scratch is" in refused(lr.InvalidInputError, tmp_path / "a", scratch=tmp_path)
    assert not (tmp_path / "a").exists()
    alone = refused(lr.InvalidInputError, "postgres://127.0.0.1:1/none", scratch=tmp_path / "b")
    assert "none of the storage" in alone
    address = postgres.settings(tmp_path / "shared")
    missing = refused(lr.NotFoundError, address["database"], storage=address["storage"], scratch=tmp_path / "c")
    assert "secrets.json" in missing


def test_an_engine_makes_users_and_keys(tmp_path):
    with lr.Engine(tmp_path, workers=0) as engine, lr.Engine(tmp_path, user="anna", workers=0) as anna:
        assert [(user["name"], user["tier"]) for user in engine.users()] == [("anna", "enterprise"), ("local", "enterprise")]
        key = anna.create_key("laptop")
        prefix = key.split(".")[0]
        (known,) = anna.keys()
        assert (known["name"], known["prefix"], known["revoked_at"]) == ("laptop", prefix, None)
        assert key not in str(anna.keys()) and engine.keys() == []
        with pytest.raises(lr.NotFoundError):
            engine.revoke_key(prefix)
        anna.revoke_key(prefix)
        assert anna.keys()[0]["revoked_at"] is not None
        engine.set_tier("anna", "free")
        assert engine.users()[0]["tier"] == "free"
        with pytest.raises(lr.PermissionDeniedError):
            anna.create_key("another")
        with pytest.raises(lr.NotFoundError, match="nobody"):
            engine.set_tier("nobody", "free")
        with pytest.raises(lr.InvalidInputError, match="gold"):
            engine.set_tier("anna", "gold")
