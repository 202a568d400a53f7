"""The installed package and the engine it was built from agree."""

import importlib.metadata

import libreconstruct


def test_the_package_and_the_engine_have_one_version():
    assert libreconstruct.version() == importlib.metadata.version("libreconstruct")
    assert libreconstruct.__version__ == libreconstruct.version()
