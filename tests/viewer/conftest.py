"""A browser for the tests of this folder; they are skipped where there is none."""

from collections.abc import Iterator

import pytest

from tests.viewer.devtools import Tab, browser, chromium


@pytest.fixture(scope="module")
def shared_tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    if chromium() is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with browser(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.fixture
def tab(shared_tab: Tab) -> Iterator[Tab]:
    """The browser, in which nothing may go wrong."""
    shared_tab.call("Page.navigate", url="about:blank")
    shared_tab.size(1280)
    shared_tab.problems.clear()  # what the page before had to say comes late
    yield shared_tab
    assert shared_tab.problems == []
