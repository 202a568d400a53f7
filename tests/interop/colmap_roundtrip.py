"""Reads a sparse model with COLMAP's own code and writes it again: colmap_roundtrip.py INPUT OUTPUT {bin,txt}.

Exits with 77 and says so if pycolmap is not installed.
"""

import sys

try:
    import pycolmap
except ModuleNotFoundError as error:
    print("the Python package", error.name)
    sys.exit(77)

source, target, form = sys.argv[1:]
model = pycolmap.Reconstruction(source)
print(model.summary())
if form == "bin":
    model.write_binary(target)
else:
    model.write_text(target)
