"""The status page in a browser."""

from pathlib import Path

import pytest

from tests.serve.models import encoded, request
from tests.viewer.devtools import browser, chromium

pytest.importorskip("uvicorn")
pytest.importorskip("httptools")

from tests.serve.test_server import INFER, ask, serving


@pytest.mark.skipif(chromium() is None, reason="there is no Chromium: apt-get install chromium")
def test_the_page_follows_the_server(tmp_path: Path) -> None:
    with serving() as server, browser(tmp_path) as tab:
        tab.call("Page.navigate", url=f"{server.address}/")
        tab.until("document.querySelectorAll('.model').length === 1")
        tab.until("document.querySelector('.model').textContent.includes('none')")
        for n in range(5):
            assert ask(server.port, "POST", INFER, encoded(request([[n, 1, 1, 1]]))) == 200
        assert ask(server.port, "POST", INFER, b"") == 400
        tab.until("document.querySelector('.model').textContent.includes('400: 1')")
        tab.until("document.querySelectorAll('.bar').length > 2")
        assert "answered5" in tab.run("document.querySelector('.model').textContent")
        assert tab.problems == []
