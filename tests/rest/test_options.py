"""What the options of a job ask for is done, with a real video: only the object, in metres, by the mapper that was named."""

import io
import os
import zipfile

import pytest
import requests
from PIL import Image
from prerequisites import is_missing

from . import media
from .server import BINARY
from .test_rules_report import report


@pytest.fixture(scope="module")
def job(wendy) -> str:
    """A job that asks for all of it, finished."""
    if "LIBRECONSTRUCT_MASK_MODEL" not in os.environ and not list(BINARY.parent.glob("*.onnx")):
        is_missing("mask-model", "the mask model")
    options = {"remove_background": True, "apriltag_size_mm": 80, "reconstruction_method": "colmap"}
    job = wendy.submit(media.tagged(), training_num_steps=150, training_max_num_gaussians=5000, **options)
    assert wendy.wait(job, within=400)["status"] == "Finished"
    return job


def test_only_the_object_is_left(wendy, job):
    figures = wendy.get(f"/api/v1/jobs/{job}/download/report/", allow_redirects=True).json()
    background = figures["background"]
    assert background["masks"] == figures["sfm"]["registered"] > 10 and background["empty"] == 0
    assert background["support_plane"] and 0.05 < background["coverage"] < 0.5
    assert background["object_gaussians"] > 100 and background["agreement"] > 0.8
    # It stands before white.
    url = wendy.get(f"/api/v1/jobs/{job}/preview/").headers["Location"]
    picture = Image.open(io.BytesIO(requests.get(url, timeout=60).content)).convert("L")
    white = sum(picture.histogram()[240:]) / (picture.width * picture.height)
    assert 0.4 < white < 0.98, white


def test_rule_81_its_masks_can_be_fetched(wendy, job):
    masks = wendy.get(f"/api/v1/jobs/{job}/download/masks/", allow_redirects=True)
    with zipfile.ZipFile(io.BytesIO(masks.content)) as archive:
        assert archive.testzip() is None and len(archive.namelist()) == report(wendy, job)["quality"]["registered"]
        mask = Image.open(io.BytesIO(archive.read(archive.namelist()[0])))
    assert mask.mode == "L" and 0.02 < sum(mask.histogram()[128:]) / (mask.width * mask.height) < 0.7


def test_the_scene_is_in_metres(wendy, job):
    scale = report(wendy, job)["scale"]
    assert scale["applied"] is True and scale["relative_sigma"] < 0.05, scale


def test_the_mapper_is_the_one_that_was_named(wendy, job):
    told = report(wendy, job)
    assert told["requested"]["reconstruction_method"] == "colmap" and told["ran"]["method"] == "incremental"
