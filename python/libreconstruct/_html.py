"""What notebooks show."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape


def data_uri(content: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def card(title: str, facts: Mapping[str, object], picture: str | None = None, fraction: float | None = None) -> str:
    """A title, a bar if `fraction` (0 to 1) is given, a table of facts, and a picture (a data URI) beside them."""
    rows = "".join(
        f'<tr><td style="text-align:left;opacity:.7">{escape(name)}</td>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in facts.items()
    )
    bar = ""
    if fraction is not None:
        bar = (
            '<div style="width:16em;height:.5em;border-radius:.25em;background:#8884;margin:.3em 0">'
            f'<div style="width:{100 * fraction:.0f}%;height:100%;border-radius:.25em;background:#4a90d9"></div></div>'
        )
    image = "" if picture is None else f'<img src="{picture}" style="max-height:16em;max-width:24em;border-radius:.3em"/>'
    return (
        '<div style="display:flex;gap:1em;align-items:flex-start">'
        f"{image}<div><b>{escape(title)}</b>{bar}<table>{rows}</table></div></div>"
    )
