"""docs/hostile-uploads.md says of every kind of hostile upload what becomes of it."""

import re
from pathlib import Path

from . import hostile

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/hostile-uploads.md").read_text(encoding="utf-8")


def test_every_kind_has_its_line_with_its_outcome():
    lines = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    kinds = [damage.__name__ for damage in hostile.DAMAGES]
    assert lines == [(kind, "refused" if kind in hostile.REFUSED else "refused or failed") for kind in kinds]
    assert f"as {', '.join(hostile.FORMATS[:-1])} and {hostile.FORMATS[-1]}," in PAGE


def test_the_tests_that_are_named_are_there():
    named = re.findall(r"`(test_\w+)`", PAGE)
    source = Path(__file__).with_name("test_hostile_media.py").read_text(encoding="utf-8")
    assert named and [name for name in named if f"def {name}(" not in source] == []
