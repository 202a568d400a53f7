"""Where the weights of the mask model are, if they came with Python."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from . import _native


def find_weights() -> None:
    """Tells the engine of the weights in the package of the extra `background`, which is looked up and not imported."""
    try:
        package = find_spec("rembg")
    except (ImportError, ValueError):
        return
    for folder in (package.submodule_search_locations or []) if package else []:
        weights = Path(folder) / "u2netp.onnx"
        if weights.is_file():
            _native.set_mask_model_place(weights)
            return
