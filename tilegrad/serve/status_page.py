"""Write the status page: the viewer's style and charts, with the histograms of a server, asked for every second."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ..viewer.page import document, script_text, style_text
from ..viewer.server import SAFETY

ASSETS = Path(__file__).with_name("assets")
SAFETY_HEADERS = [(name.lower().encode(), value.encode()) for name, value in SAFETY.items()]


def status_page(status: dict[str, Any]) -> str:
    """Format the status of a server."""
    return document("tilegrad server", status, script_text("status", ASSETS), _style(), live=True)


@cache
def _style() -> str:
    return style_text() + (ASSETS / "status.css").read_text(encoding="utf-8")
