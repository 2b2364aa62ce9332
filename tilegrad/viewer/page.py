"""Write the viewer's page: one HTML file with its scripts, its style and its data, which fetches nothing.

The scripts are ES modules in `assets/`. A page has them as one script: their imports are dropped and all share a scope,
so top-level names are unique among them (a test checks it).
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from .model import VERSION, Page, is_page

ASSETS = Path(__file__).with_name("assets")
IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', re.MULTILINE)
DATA = '<script type="application/json" id="data">'


def page(data: Page) -> str:
    """Format a page of the viewer."""
    return document(data["title"], data, script_text(), style_text(), data["live"])


def document(title: str, data: Any, script: str, style: str, live: bool) -> str:
    """Format a page. Its policy forbids every script, style and address but its own; a live one asks its server."""
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_digest(script)}",
            f"style-src {_digest(style)}",
            "img-src data:",
            f"connect-src {chr(39)}{'self' if live else 'none'}{chr(39)}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<noscript>This page needs JavaScript, all of which is in it.</noscript>
{DATA}{json_text(data)}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def json_text(data: Any) -> str:
    """Encode data so that it can stand within a script element.

    >>> json_text({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def data_of(text: str) -> Page:
    """Read the data of a saved page, or of its JSON alone."""
    _, found, rest = text.partition(DATA)
    try:
        data = json.loads(rest.partition("</script>")[0] if found else text)
    except (ValueError, RecursionError) as problem:
        raise ArgumentError(f"it is no page of the viewer, or it is damaged: {problem}") from None
    if not is_page(data):
        raise ArgumentError(f"it is no page of the viewer (of format {VERSION})")
    return data  # type: ignore[no-any-return]


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def style_text() -> str:
    """Return the style sheet."""
    return (ASSETS / "view.css").read_text(encoding="utf-8")


@cache
def script_text(first: str = "main", folder: Path = ASSETS) -> str:
    """Return a module, from a folder, and all that it imports as one script, each after those that it imports."""
    done: dict[str, str] = {}

    def add(name: str, path: Path) -> None:
        if name in done:
            return
        text = path.read_text(encoding="utf-8")
        done[name] = ""
        for other in IMPORT.findall(text):
            add(other, ASSETS / f"{other}.js")
        done[name] = done.pop(name) or re.sub(r"^export ", "", IMPORT.sub("", text), flags=re.MULTILINE)

    add(first, folder / f"{first}.js")
    return "\n".join(done.values())
