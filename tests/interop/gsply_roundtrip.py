"""Reads our scene files with gsply and writes what it read: gsply_roundtrip.py FOLDER.

FOLDER holds ours.ply and ours_v2.spz, ours_v3.spz, ours_v4.spz (their frame unchanged). For each, gsply_<name>.ply is
written from what gsply decoded; gsply.spz is its own encoding of ours.ply. Exits with 77 and says so if gsply, or the
package that it reads version 4 with, is not installed.
"""

import sys
from pathlib import Path

try:
    import gsply
    import zstandard  # noqa: F401 (gsply reads version 4 with it)
except ModuleNotFoundError as error:
    print("the Python package", error.name)
    sys.exit(77)

folder = Path(sys.argv[1])
scene = gsply.plyread(folder / "ours.ply")
gsply.plywrite(folder / "gsply_ours.ply", scene)
gsply.write_spz(folder / "gsply.spz", scene)
for version in (2, 3, 4):
    gsply.plywrite(folder / f"gsply_v{version}.ply", gsply.read_spz(folder / f"ours_v{version}.spz"))
