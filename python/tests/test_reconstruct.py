"""From a video to a scene in this process, and the stages by themselves."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import libreconstruct as lr

from .conftest import SMALL, run_python


def test_a_video_becomes_a_scene_with_its_cameras(reconstruction):
    scene = lr.Scene.load(reconstruction)
    assert 100 < len(scene) <= 2000 and scene.sh_degree == 1
    assert scene.model is not None and len(scene.model) == len(scene.model.cameras) > 5
    assert scene.report is not None and scene.report["frames"]["used"] == 12
    # A training view looks like its photograph, also after a short training.
    from PIL import Image

    camera = scene.model.camera(3)
    photograph = np.asarray(Image.open(reconstruction / "undistorted/images" / scene.model.image_names[3]), dtype=float)
    picture = scene.render(camera, device="cpu").astype(float)
    assert picture.shape == photograph.shape
    error = np.sqrt(np.mean((picture - photograph) ** 2))
    flat = np.sqrt(np.mean((photograph.mean(axis=(0, 1)) - photograph) ** 2))
    assert error < 0.6 * flat, f"error {error}, of a picture of one colour {flat}"
    assert "cameras" in scene._repr_html_()


def test_a_report_is_read_whatever_the_locale(reconstruction, tmp_path):
    shutil.copy(reconstruction / "scene.ply", tmp_path)
    report = json.loads((reconstruction / "report.json").read_bytes()) | {"title": "Küche"}
    (tmp_path / "report.json").write_text(json.dumps(report, ensure_ascii=False), encoding="utf-8")
    code = "import libreconstruct as lr; print(ascii(lr.Scene.load('.').report['title']))"
    done = run_python(code, tmp_path, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.stdout == "'K\\xfcche'\n", done.stderr


def test_progress_goes_up_while_the_interpreter_goes_on(capture, tmp_path):
    """Callbacks come from the calling thread, and the GIL is released: another thread hardly notices."""
    seen, threads = [], set()
    turns, done = [], threading.Event()

    def hear(progress: lr.Progress) -> None:
        seen.append(progress)
        threads.add(threading.current_thread())

    def take_turns() -> None:
        while not done.wait(0.01):
            turns.append(time.monotonic())

    other = threading.Thread(target=take_turns)
    other.start()
    began = time.monotonic()
    lr.reconstruct(capture, tmp_path / "out", progress=hear, **SMALL)
    seconds = time.monotonic() - began
    done.set()
    other.join()
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    assert list(dict.fromkeys(progress.stage for progress in seen)) == ["frames", "sfm", "train", "export"]
    assert threads == {threading.main_thread()} and len(seen) <= 12 * seconds + 5
    gaps = np.diff(turns)
    assert np.median(gaps) < 0.05 and gaps.max() < 2.0, f"median {np.median(gaps)}, longest {gaps.max()} s"

    began = time.monotonic()
    lr.reconstruct(capture, tmp_path / "out", progress=False, **SMALL)
    assert time.monotonic() - began < seconds / 2, "what is finished is not done again"


def test_floaters_are_left_if_asked_and_that_is_another_scene(reconstruction, capture, tmp_path):
    folder = tmp_path / "out"
    shutil.copytree(reconstruction, folder)
    made = {name: (folder / name).stat().st_mtime_ns for name in ("frames/frames.json", "sparse/images.bin", "scene.ply")}
    scene = lr.reconstruct(capture, folder, progress=False, turntable=False, clean=False, **SMALL)
    assert scene.report is not None and scene.report["options"]["clean"] is False
    again = [name for name, before in made.items() if (folder / name).stat().st_mtime_ns != before]
    assert again == ["scene.ply"], "frames and poses are the same"


def test_an_exception_in_a_callback_stops_the_work_and_comes_out(capture, tmp_path):
    class Enough(Exception):
        pass

    def hear(progress: lr.Progress) -> None:
        raise Enough

    with pytest.raises(Enough):
        lr.reconstruct(capture, tmp_path / "out", progress=hear, **SMALL)
    assert not (tmp_path / "out" / "scene.ply").exists()


def test_ctrl_c_stops_a_reconstruction_which_then_goes_on(capture, tmp_path):
    code = f"""
import libreconstruct as lr
def hear(progress):
    print(progress.stage, flush=True)
try:
    lr.reconstruct({str(capture)!r}, "out", progress=hear, **{SMALL!r})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "sfm":
            break
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    assert process.communicate(timeout=60)[0].splitlines()[-1] == "interrupted"
    assert time.monotonic() - sent < 20 and process.returncode == 0
    # The frames are there, and are not extracted again.
    frames = tmp_path / "out/frames/frames.json"
    before = frames.stat().st_mtime_ns
    scene = lr.reconstruct(capture, tmp_path / "out", progress=False, **SMALL)
    assert frames.stat().st_mtime_ns == before and len(scene) > 100


def test_a_sparse_model_is_arrays(reconstruction, tmp_path):
    model = lr.SparseModel.load(reconstruction / "sparse")
    n, m = len(model), len(model.points)
    assert model.poses.shape == (n, 4, 4) and model.centers.shape == (n, 3) and not model.poses.flags.writeable
    assert np.allclose(model.poses[:, :3, :3] @ model.poses[:, :3, :3].transpose(0, 2, 1), np.eye(3), atol=1e-9)
    assert np.allclose(np.einsum("nij,nj->ni", model.poses[:, :3, :3], model.centers) + model.poses[:, :3, 3], 0, atol=1e-9)
    assert m > 100 and model.colors.shape == (m, 3) and model.colors.dtype == np.uint8
    assert model.errors.shape == model.track_lengths.shape == (m,) and model.track_lengths.min() >= 2

    # Points are seen where their images are.
    undistorted = lr.SparseModel.load(reconstruction / "undistorted/sparse")
    camera = undistorted.camera(undistorted.image_names[0])
    pixels = camera.project(undistorted.points)
    inside = (pixels > 0).all(axis=1) & (pixels < (camera.width, camera.height)).all(axis=1)
    assert inside.mean() > 0.2 and np.allclose(camera.center, undistorted.centers[0])

    model.save(tmp_path / "text", text=True)
    copy = lr.SparseModel.load(tmp_path / "text")
    assert np.allclose(copy.poses, model.poses, atol=1e-12) and np.array_equal(copy.points, model.points)
    assert copy.image_names == model.image_names and copy.lenses == model.lenses

    double = model.transform(scale=2.0, translation=(1, 0, 0))
    assert np.allclose(double.centers, 2 * model.centers + (1, 0, 0))
    assert np.allclose(double.points, 2 * model.points + (1, 0, 0))
    assert f"{n} images" in repr(model) and "image/png" in model._repr_html_() and model._repr_png_()[1:4] == b"PNG"
    with pytest.raises(lr.NotFoundError):
        model.camera("nobody.jpg")


def test_training_is_an_iterator_with_a_preview(reconstruction, tmp_path):
    folder = reconstruction / "undistorted"
    options = {"training_num_steps": 60, "training_max_num_gaussians": 2000, "max_resolution": 160, "sh_degree": 0}
    checkpoint = tmp_path / "checkpoint.bin"

    def trainer() -> lr.Trainer:
        return lr.Trainer(
            folder / "sparse", folder / "images", device="cpu", every=10, test_every=6, checkpoint=checkpoint, **options
        )

    first = trainer()
    untrained = first.preview()
    assert np.isnan(first.last.loss)
    losses = []
    for step in first:
        losses.append(step.loss)
        if step.step == 30:
            break
    assert step.step == 30 and step.total == 60 and step.splats == len(first.scene()) > 100
    assert untrained.shape == first.preview().shape and (first.preview() != untrained).any()
    assert "30 of 60" in first._repr_html_()
    first.save(checkpoint)

    second = trainer()
    assert second.last.step == 30 and second.last.loss == pytest.approx(step.loss)
    seen = []
    scene = second.run(progress=seen.append)
    assert second.last.step == 60 and seen[-1].fraction == 1.0 and scene.model is not None
    assert np.mean(losses) > second.last.loss
    scores = second.evaluate()
    assert scores["longest_side"] > 0
    assert scores["psnr"] > 10 and len(scores["views"]) == sum(held_out for _, held_out in second.views) == 2

    # Interrupted or not, the scene is the same.
    for _ in first:
        pass
    assert np.array_equal(first.scene().means, scene.means)
    with pytest.raises(lr.InvalidInputError, match="training_num_steps"):
        lr.Trainer(folder / "sparse", folder / "images", training_num_steps=0)
    with pytest.raises(lr.InvalidInputError, match="undistort"):
        lr.Trainer(reconstruction / "sparse", reconstruction / "frames")
    with pytest.raises(lr.InvalidInputError, match="checkpoint_interval_seconds"):
        lr.Trainer(folder / "sparse", folder / "images", checkpoint_interval_seconds=5)


def test_a_training_with_little_time_makes_the_steps_that_fit_and_ends(reconstruction):
    folder = reconstruction / "undistorted"
    options = {"training_num_steps": 200_000, "training_max_num_gaussians": 2000, "max_resolution": 64, "sh_degree": 0}
    with pytest.warns(lr.ReconstructionWarning, match="to end within 2 seconds, training makes about .* of 200000 steps") as told:
        trainer = lr.Trainer(folder / "sparse", folder / "images", device="cpu", every=50, time_budget_seconds=2, **options)
        steps = list(trainer)
    assert len(told) == 1
    assert 500 <= steps[-1].step == steps[-1].total < 200_000 and trainer.last.fraction == 1.0
    assert all(step.step <= step.total for step in steps)


def test_with_masks_only_the_object_is_trained(reconstruction, tmp_path):
    from PIL import Image

    model = lr.SparseModel.load(reconstruction / "undistorted/sparse")
    images, masks = tmp_path / "images", tmp_path / "masks"
    shutil.copytree(reconstruction / "undistorted/images", images)
    options = {"training_num_steps": 20, "training_max_num_gaussians": 2000, "max_resolution": 160, "sh_degree": 0, "device": "cpu"}

    def trained(**more) -> lr.Scene:
        return lr.Trainer(model, images, **options, **more).run()

    def inside(scene: lr.Scene) -> np.ndarray:
        """Of each splat, in what part of the pictures that see it it is within the frame of the masks."""
        seen, within = np.zeros(len(scene)), np.zeros(len(scene))
        for camera in model.cameras:
            with np.errstate(invalid="ignore"):
                place = camera.project(scene.means) / (camera.width, camera.height)
                seen += ((place > 0) & (place < 1)).all(axis=1)
                within += ((place > 0.115) & (place < 0.885)).all(axis=1)
        return within / np.maximum(seen, 1)

    whole = trained()
    assert (inside(whole) < 0.7).any()
    # They are taken where they lie beside the pictures, as by the command; a folder without them is named.
    masks.mkdir()
    with pytest.raises(lr.NotFoundError, match="have no mask"):
        trained()
    for name in model.image_names:
        width, height = Image.open(images / name).size
        mask = np.zeros((height, width), dtype=np.uint8)
        mask[height // 8 : height - height // 8, width // 8 : width - width // 8] = 255
        Image.fromarray(mask).save(masks / Path(name).with_suffix(".png").name)
    found = trained()
    assert len(found) > 0 and (inside(found) > 0.7).all()
    assert np.array_equal(trained(masks=False).means, whole.means)
    other = tmp_path / "of my own"
    masks.rename(other)
    assert np.array_equal(trained(masks=other).means, found.means)
    assert np.array_equal(trained().means, whole.means)


def test_with_masks_the_scores_are_those_of_the_scene_that_is_given(reconstruction, tmp_path):
    from PIL import Image

    model = lr.SparseModel.load(reconstruction / "undistorted/sparse")
    images, masks = reconstruction / "undistorted/images", tmp_path
    for n, name in enumerate(model.image_names):
        width, height = Image.open(images / name).size
        mask = np.zeros((height, width), dtype=np.uint8)
        # Half of the views show less: what not nearly all show is cut off.
        mask[height // 8 : height - height // 8, (3 if n % 2 else 1) * width // 8 : width - width // 8] = 255
        Image.fromarray(mask).save(masks / Path(name).with_suffix(".png").name)

    def trainer() -> lr.Trainer:
        options = {"training_num_steps": 20, "training_max_num_gaussians": 2000, "max_resolution": 160, "sh_degree": 0, "test_every": 4}
        return lr.Trainer(model, images, masks=masks, device="cpu", **options)

    asked, other = trainer(), trainer()
    asked.step()
    asked.evaluate()
    found = asked.run()
    scores = asked.evaluate()
    assert (scores["step"], scores["splats"]) == (20, len(found))
    assert len(found) < asked.last.splats, "nothing was cut off"
    # To be scored changes nothing.
    assert np.array_equal(other.run().means, found.means) and np.array_equal(asked.scene().means, found.means)


def test_pictures_lose_their_distortion(reconstruction, tmp_path):
    model = lr.SparseModel.load(reconstruction / "sparse")
    straight = model.undistort(reconstruction / "frames", tmp_path / "out")
    assert {lens.model for lens in straight.lenses} == {"PINHOLE"}
    assert np.array_equal(straight.poses, model.poses)
    assert len(os.listdir(tmp_path / "out/images")) == len(model)
    # Of the same folder they would be gone.
    before = (tmp_path / "out/images" / model.image_names[0]).read_bytes()
    with pytest.raises(lr.InvalidInputError, match="written anew"):
        straight.undistort(tmp_path / "out/images", tmp_path / "out")
    assert (tmp_path / "out/images" / model.image_names[0]).read_bytes() == before


def test_the_stages_before_the_training_one_by_one(reconstruction, capture, tmp_path):
    frames = lr.extract_frames(capture, tmp_path / "frames", max_frames=12, max_resolution=240, progress=False)
    assert len(frames) == 12 and len(list(frames)) == 12 and frames.source["kind"] == "video" and frames.total > 12
    assert all(path.is_file() for path in frames.paths) and frames[0].width == 240 and len(frames[2:5]) == 3
    assert [frame.timestamp for frame in frames] == sorted(frame.timestamp or 0.0 for frame in frames)
    assert "12 of" in repr(frames) and "image/jpeg" in frames._repr_html_() and (frames._repr_png_() or b"")[1:4] == b"PNG"
    assert lr.Frames.load(tmp_path / "frames")[:] == frames[:]
    with pytest.raises(lr.NotFoundError):
        lr.Frames.load(tmp_path)

    seen: list[lr.Progress] = []
    model = lr.sfm(frames, tmp_path / "poses", progress=seen.append)
    assert seen and {progress.stage for progress in seen} == {"sfm"}
    assert model.report is not None and model.report["registered"] == len(model) and model.components == ()
    assert model.report["verdict"]["grade"] in ("good", "doubtful")
    for name in ("sparse/images.bin", "undistorted/sparse/cameras.bin", "poses.jpg"):
        assert (tmp_path / "poses" / name).is_file(), name
    assert len(lr.SparseModel.load(tmp_path / "poses/undistorted/sparse")) == len(model)

    # In memory it is the same, and the same as that of the whole run; the doubts colour the cameras.
    again = lr.sfm(tmp_path / "frames", reconstruction_method="GLOMAP", progress=False)
    of_run = lr.SparseModel.load(reconstruction / "sparse")
    for other in (again, of_run):
        assert np.array_equal(model.poses, other.poses) and np.array_equal(model.points, other.points)
    picture = model.plot(tmp_path / "poses.png")
    assert picture.shape == (900, 1800, 3) and picture.dtype == np.uint8
    from PIL import Image

    assert np.array_equal(np.asarray(Image.open(tmp_path / "poses.png")), picture)
    assert np.array_equal(again.plot(), picture) and of_run.report is None and not np.array_equal(of_run.plot(), picture)
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.plot(), picture) and copy.report == model.report and copy.image_names == model.image_names
    for name in ("poses", "points", "colors", "errors", "track_lengths"):
        assert np.array_equal(getattr(copy, name), getattr(model, name)), name
    assert model.transform(scale=2.0).report == model.report


def test_pictures_by_two_cameras_are_told_apart(tmp_path):
    from PIL import Image

    (tmp_path / "in").mkdir()
    noise = np.random.default_rng(7).integers(0, 255, (120, 160, 3), dtype=np.uint8)
    for number in range(7):
        width = 160 if number % 2 == 0 else 144
        Image.fromarray(noise[:, :width]).save(tmp_path / f"in/{number}.png")
    frames = lr.extract_frames(tmp_path / "in", tmp_path / "out", progress=False)
    assert [frame.camera for frame in frames] == [0, 1, 0, 1, 0, 1, 0]
    assert [warning["code"] for warning in frames.warnings] == ["several_cameras"]
    assert lr.Frames.load(tmp_path / "out")[:] == frames[:]


def test_a_run_takes_a_focal_length_as_its_stage_does(capture, tmp_path):
    with pytest.raises(lr.InvalidInputError, match="focal length is -1"):
        lr.reconstruct(capture, tmp_path / "out", progress=False, focal=-1.0, **SMALL)
    assert not (tmp_path / "out").exists()


def test_of_stages_what_is_wrong_is_said(reconstruction, tmp_path):
    frames = reconstruction / "frames"
    for options, message in [
        ({"rolling_shutter_ms": 1000.0}, "rolling_shutter_ms is 1000"),
        ({"focal": -1.0}, "focal length is -1"),
        ({"camera_model": "FISHEYE"}, "FISHEYE"),
        ({"reconstruction_method": "magic"}, "'magic': glomap and colmap are known"),
        ({"require_scale": True}, "apriltag_size_mm"),
        ({"mask_dir": frames}, "output"),
        ({"object_at": "10,10"}, "output"),
        ({"object_at": "10"}, "X,Y,FRAME"),
        ({"keep_floor": 1.5}, "output"),
    ]:
        with pytest.raises(lr.InvalidInputError, match=message):
            lr.sfm(frames, progress=False, **options)
    with pytest.raises(lr.InvalidInputError, match="max_frames is 2"):
        lr.extract_frames(tmp_path / "none.mp4", tmp_path / "out", max_frames=2, progress=False)
    with pytest.raises(lr.NotFoundError, match="none.mp4"):
        lr.sfm(tmp_path / "none.mp4", progress=False)
    with pytest.raises(lr.InvalidInputError, match="PNG"):
        lr.SparseModel.load(reconstruction / "sparse").plot(tmp_path / "poses.jpg")
    with pytest.raises(lr.InvalidInputError, match="without images"):
        lr.SparseModel.from_cameras([]).plot()
