"""Checks of saved pages."""

import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

from tilegrad.viewer.page import DATA, data_of


def data_alone(text: str) -> Any:
    """Return the data of a page, having checked that it loads nothing and runs only its own script."""
    data = data_of(text)
    before, _, rest = text.partition(DATA)
    script = rest.partition('<script type="module">')[2].rpartition("</script>")[0]
    style = before.partition("<style>")[2].partition("</style>")[0]
    for part in (script, style):
        assert f"'sha256-{b64encode(sha256(part.encode()).digest()).decode()}'" in before
    assert "default-src 'none'" in before
    markup = before.replace(style, "") + rest.replace(script, "").partition("</script>")[2]
    assert not re.search(r"\b(src|href|on\w+|style)=", markup)
    assert set(re.findall(r"https?://[^\s\"']+", script + style)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\(", style)
    return data
