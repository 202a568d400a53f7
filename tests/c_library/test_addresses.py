"""Engines over rows and files that many machines share, each with a folder of its own."""

import ctypes
import json

import pytest

from rest import postgres, storage

from . import binding
from .binding import RcError, handle, library, structure, text


def opened(folder, **options):
    given = {name: str(value).encode() for name, value in options.items()}
    asked = structure("rc_engine_options", settings_json=b'{"min_free_bytes": 0}', **given)
    return handle("rc_engine_open", str(folder).encode(), ctypes.byref(asked))


def refused(folder, **options) -> RcError:
    with pytest.raises(RcError) as caught:
        opened(folder, **options)
    return caught.value


@pytest.mark.parametrize("store", ["folder", "s3"])
def test_what_one_machine_submits_another_sees(store, request, tmp_path, flat):
    shared = postgres.settings(tmp_path / "shared") | {"secrets": tmp_path / "shared/secrets.json"}
    files = storage.Folder(tmp_path / "shared")
    if store == "s3":
        s3 = request.getfixturevalue("s3")
        shared["storage"] = s3.place("s3")
        files = s3.look(shared["storage"])
    here, there = opened(tmp_path / "here", **shared), opened(tmp_path / "there", **shared)
    assert library().rc_engine_folder(there).decode() == str(tmp_path / "there")
    blob = text("rc_engine_import_video", here, str(flat).encode())
    job = handle("rc_engine_submit", here, blob.encode(), None)
    job_id = library().rc_job_id(job)
    videos = [name for name in files.names() if name.startswith("videos/")]
    assert [files.read(name) for name in videos] == [flat.read_bytes()]
    seen = handle("rc_engine_job", there, job_id)
    assert json.loads(text("rc_job_json", seen))["job_id"] == job_id.decode()
    # A key of one machine is good on the other.
    key = text("rc_engine_create_key", here, b"laptop")
    library().rc_engine_free(handle("rc_engine_for_key", there, key.encode()))
    binding.call("rc_job_delete", seen)
    for free, of in [("rc_job_free", job), ("rc_job_free", seen), ("rc_engine_free", here), ("rc_engine_free", there)]:
        getattr(library(), free)(of)
    assert not list((tmp_path / "here").glob("jobs.db*")), "its rows are not in its folder"


def test_addresses_that_are_none(tmp_path):
    shared = postgres.settings(tmp_path / "shared")
    folder = tmp_path / "engine"
    assert refused(folder, **shared).slug == "not_found", "there are no secrets in its folder"
    secrets = {"secrets": tmp_path / "shared/secrets.json"}
    for wrong, says in [
        ({"database": shared["database"]}, "none of the storage"),
        ({"storage": shared["storage"]}, "none of the database"),
        (shared | {"storage": "scenes"}, "scenes"),
        (shared | {"database": "nonsense"}, ""),
        ({"secrets": ""}, "options.secrets is empty"),
    ]:
        error = refused(folder, **secrets | wrong)
        assert error.slug == "invalid_argument" and says in error.message, (wrong, error)
