"""A compiled training step in Chromium: the graph and the code, and one selection for all views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from tests.profile.training import made
from tests.viewer.devtools import Tab


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    step, x, y = made()
    step(x, y)
    return tg.explain(step, x, y).save(tmp_path_factory.mktemp("saved") / "step.html")


@pytest.fixture
def page(tab: Tab, saved: Path) -> Tab:
    tab.open(f"file://{saved}")
    return tab


def boxes(tab: Tab) -> dict[str, tuple[float, float]]:
    """The middle of each folded group and value on the canvas, by its label."""
    found = tab.run(
        """(() => { const g = tilegrad.handles.graph, r = g.canvas.getBoundingClientRect();
        return g.drawing.boxes.filter(b => !b.open).map(b => [
          b.group ? b.group.label : tilegrad.store.step.nodes[b.node].name || tilegrad.store.step.nodes[b.node].op,
          r.x + g.x + (b.x + b.width / 2) * g.scale, r.y + g.y + (b.y + b.height / 2) * g.scale]); })()"""
    )
    return {label: (x, y) for label, x, y in found}


def selection(tab: Tab) -> Any:
    return tab.run("tilegrad.store.selection && [tilegrad.store.selection.kind, tilegrad.store.selection.label]")


def text(tab: Tab, selector: str) -> str:
    return str(tab.run(f"document.querySelector({selector!r}).innerText"))


def test_modules_are_folded(page: Tab) -> None:
    labels = set(boxes(page))
    assert {"block", "head", "cross_entropy", "gradient of block", "gradient of head", "update.step"} <= labels
    assert len(labels) < 15


def test_a_click_selects_in_all_views(page: Tab) -> None:
    page.click(boxes(page)["head"])
    assert selection(page) == ["group", "head"]
    assert "self.head(self.block(x))" in text(page, ".inspector")
    page.press("2")
    marked = page.run("[...document.querySelectorAll('.row.related')].map(e => e.innerText)")
    assert any("self.head" in line for line in marked)
    row = page.run(
        "(() => { const r = [...document.querySelectorAll('.row')].find(e => e.innerText.includes('cross_entropy'));"
        "r.id = 'wanted'; return r.className })()"
    )
    assert row == "row"
    page.click("#wanted")
    assert selection(page)[0] == "line"
    assert "cross_entropy" in text(page, ".pick")
    assert page.run("tilegrad.store.related.nodes.size") > 20
    page.press("Escape")
    assert selection(page) is None


def test_a_double_click_unfolds_a_module(page: Tab) -> None:
    page.click(boxes(page)["block"], count=2)
    assert {"layers.0", "layers.1"} <= set(boxes(page))
    page.press("Enter")
    assert "layers.0" not in boxes(page)


def test_the_wheel_zooms_where_it_is(page: Tab) -> None:
    before = boxes(page)["head"]
    scale = page.run("tilegrad.handles.graph.scale")
    page.run("tilegrad.handles.graph.canvas.focus()")
    page.wheel(before, -300)
    assert page.run("tilegrad.handles.graph.scale") > 1.5 * scale
    after = boxes(page)["head"]
    assert after == pytest.approx(before, abs=2)
    page.press("0")
    assert page.run("tilegrad.handles.graph.scale") == pytest.approx(scale)


def test_search_finds_parameters_and_unfolds_them(page: Tab) -> None:
    page.press("/")
    page.type("layers.1.weight")
    assert "block.layers.1.weight" in text(page, ".found")
    wanted = page.run("[...document.querySelectorAll('.found li')].findIndex(e => e.innerText.startsWith('parameter'))")
    for _ in range(wanted):
        page.press("ArrowDown")
    page.press("Enter")
    assert text(page, ".inspector h2") == "block.layers.1.weight"
    assert "block.layers.1.weight" in boxes(page)


def test_arrows_walk_along_the_graph(page: Tab) -> None:
    page.run("tilegrad.handles.graph.canvas.focus()")
    page.press("ArrowDown")
    first = selection(page)
    page.press("ArrowDown")
    assert selection(page) != first
    assert page.run("tilegrad.store.related.nodes.size") > 0


def test_the_forms_of_a_kernel(page: Tab) -> None:
    page.press("2")
    page.run("tilegrad.select({kind: 'kernel', id: 0})")
    assert "@tg.kernel" in text(page, ".listing")
    names = page.run("[...document.querySelectorAll('.way .tools button')].map(e => e.innerText)")
    assert names == ["tile kernel", "LLVM IR", "machine code"]
    page.run("[...document.querySelectorAll('.way .tools button')][2].click()")
    assert page.run("document.querySelectorAll('.listing .hot').length") > 0


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("view", ["graph", "code", "time", "memory", "training"])
def test_nothing_is_wider_than_the_window(page: Tab, width: int, view: str) -> None:
    page.size(width)
    page.run(f"tilegrad.goTo({view!r})")
    page.run("tilegrad.select({kind: 'kernel', id: 3})")
    page.frame()
    assert page.run("document.documentElement.scrollWidth") <= width
    wide = page.run(
        f"[...document.querySelectorAll('button, h1, h2, h3, .chip, p, li')].filter(e => "
        f"e.getBoundingClientRect().right > {width} + 1 && !e.closest('nav, .scroll')).map(e => e.outerHTML)"
    )
    assert wide == []
