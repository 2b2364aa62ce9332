"""The other views in Chromium: times, memory, trainings that go on; many nodes; hostile names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import tilegrad as tg
from tests.profile.training import made
from tests.viewer.devtools import Tab
from tests.viewer.test_files import HOSTILE, span, write_run
from tilegrad.viewer.model import Line, PageBlock, PageKernel, PageMemory, PageNode, PagePass, PageStep, page_of
from tilegrad.viewer.page import page
from tilegrad.viewer.server import served
from tilegrad.viewer.sources import PageSource, opened

MAX_ELEMENTS = 2_500
"""Elements of a page, however much it shows."""


def show(tab: Tab, path: Path, view: str) -> None:
    tab.open(f"file://{path}")
    tab.run(f"tilegrad.goTo({view!r})")
    tab.frame()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a step, its trace and a run, as one page."""
    root = tmp_path_factory.mktemp("folder")
    step, x, y = made()
    step(x, y)
    tg.explain(step, x, y).save(root / "step.json")
    with tg.profiler.profile(profile_memory=True) as prof:
        for _ in range(3):
            step(x, y)
            prof.step()
    prof.export_chrome_trace(root / "trace.json")
    write_run(root / "first")
    write_run(root / "second")
    (root / "whole.html").write_text(page(PageSource(root).page()))
    return root / "whole.html"


def rows(tab: Tab) -> list[str]:
    return list(tab.run("[...document.querySelectorAll('.view:not([hidden]) tbody tr')].map(e => e.innerText)"))


def test_a_kernel_is_selected_in_the_table_and_the_trace(tab: Tab, folder: Path) -> None:
    show(tab, folder, "time")
    assert len(rows(tab)) == 11
    tab.click("tbody tr")
    assert tab.run("tilegrad.store.selection.kind") == "kernel"
    assert tab.run("document.querySelectorAll('tr.selected').length") == 1
    assert tab.run("tilegrad.store.related.labels.size") > 0, "its launches in the trace"
    assert tab.run("document.querySelectorAll('circle.selected').length") == 1
    tab.run("document.querySelectorAll('circle')[0].dispatchEvent(new MouseEvent('click'))")
    assert tab.run("tilegrad.store.selection.id") == 0


def test_a_span_of_a_trace_leads_to_its_line(tab: Tab, folder: Path) -> None:
    show(tab, folder, "time")
    tab.run("document.querySelector('.time select').value = 1")
    tab.run("document.querySelector('.time select').dispatchEvent(new Event('change'))")
    tab.frame()
    assert "ProfilerStep*" in "".join(rows(tab))
    launch = tab.run("[...document.querySelectorAll('.time tbody tr')].findIndex(e => e.innerText.includes('launch'))")
    tab.run(f"document.querySelectorAll('.time tbody tr')[{launch}].click()")
    assert tab.run("tilegrad.store.related.lines.size") > 0
    assert tab.run("tilegrad.handles.time.lanes.drawn") > 10
    spans = "tilegrad.handles.time.lanes.timeline.lanes.flatMap(lane => lane.rows.flat()).length"
    lanes = tab.run(spans)
    tab.run("[...document.querySelectorAll('.time button')].find(b => b.textContent === 'flame').click()")
    tab.frame()
    assert 0 < tab.run(spans) < lanes
    tab.run("tilegrad.handles.time.lanes.canvas.focus()")
    scale = tab.run("tilegrad.handles.time.lanes.scale")
    tab.press("+")
    assert tab.run("tilegrad.handles.time.lanes.scale") > scale


def test_the_owners_of_a_peak(tab: Tab, folder: Path) -> None:
    show(tab, folder, "memory")
    assert "at the peak" in tab.run("document.querySelector('.memory .tools').innerText")
    assert any("block.layers.0.weight" in row and "parameter" in row for row in rows(tab))
    _, y = tab.middle(".stage.memory canvas")
    left = tab.run("document.querySelector('.stage.memory').getBoundingClientRect().left")
    tab.click((left + 70, y))
    assert "during 0 block.layers.0" in tab.run("document.querySelector('.memory .tools').innerText")
    tab.run("document.querySelector('.memory tbody tr').click()")
    assert tab.run("tilegrad.store.selection.kind") == "owner"
    assert tab.run("tilegrad.store.related.nodes.size") == 1
    tab.press("1")
    assert tab.run("tilegrad.handles.graph.drawing.boxes.length") > 0


def test_runs_are_drawn_over_each_other(tab: Tab, folder: Path) -> None:
    show(tab, folder, "training")
    titles = tab.run("[...document.querySelectorAll('.training figcaption b')].map(e => e.textContent)")
    assert titles[:2] == ["throughput", "loss"]
    assert {"gradient norms by layer", "confusion", "pictures", "about"} <= set(titles)
    lines = "document.querySelectorAll('.training .card:nth-child(2) path').length"
    both = tab.run(lines)
    tab.click(".run input")
    assert tab.run(lines) == both / 2
    assert "80.0 % right" in tab.run("document.querySelector('.training').innerText")
    tab.run("document.querySelector('.training .legend button').click()")
    assert tab.run("tilegrad.store.selection.kind") == "node", "the layer's parameter"


def test_a_training_is_shown_while_it_goes_on(tab: Tab, tmp_path: Path) -> None:
    with tg.tensorboard.SummaryWriter(tmp_path / "now") as writer:
        writer.add_scalar("loss", 1.0, 0)
        writer.flush()
        with served(PageSource(tmp_path), None) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            tab.open(server.address)
            tab.until("document.querySelector('.live') !== null")
            for n in range(1, 5):
                writer.add_scalar("loss", 1 / (n + 1), n)
            writer.flush()
            tab.until("tilegrad.store.page.runs[0].curves.loss.length === 5")
            tab.until("document.querySelector('.training figcaption').innerText.length > 0")
            server.shutdown()
        tab.until("document.body.classList.contains('lost')")
        tab.run("location.href = 'about:blank'")
    tab.problems.clear()  # the browser notes that the server is gone


def many(count: int) -> PageStep:
    """A step of many values, without modules or lines that fold."""
    nodes = [
        PageNode(
            name=f"v{n}", op="add", type="f32[8,8]", bytes=256, role="operation", phase="forward", module="", line=None,
            kernels=[n % 50], reads=sorted({max(0, n - 1 - n % 7), max(0, n - 40)} - {n}), output=False,
        )
        for n in range(count)
    ]  # fmt: skip
    return PageStep(
        name="many", device="cpu", facts=[], nodes=nodes, lines=[], kernels=[], passes=[],
        memory=PageMemory(moments=[], live=[], owners=[]), roof={}, note="",
    )  # fmt: skip


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "many.html"
    path.write_text(page(page_of("many", steps=[many(5_000)])))
    return path


def test_5000_nodes_cost_a_frame_no_more_than_what_is_in_sight(tab: Tab, large: Path) -> None:
    """Counted, not timed: the boxes that a frame draws, and the elements of the page."""
    show(tab, large, "graph")
    assert tab.run("document.querySelectorAll('*').length") < MAX_ELEMENTS
    assert "5,000 of 5,000" in tab.run("document.querySelector('.count').textContent")
    assert tab.run("tilegrad.handles.graph.scale") > 0.4, "what is too large to be read whole begins readable"
    middle = tab.middle(".graph canvas")
    tab.run("tilegrad.handles.graph.canvas.focus()")
    tab.press("0")
    for by in (-1200, -600, 2400, 1200):
        tab.wheel(middle, by)
        drawn = tab.run("tilegrad.handles.graph.stats")
        assert drawn["boxes"] <= 1_500
        assert drawn["edges"] <= 3_000
    for _ in range(12):
        tab.wheel(middle, -400)
    assert tab.run("tilegrad.handles.graph.scale") == 3
    assert tab.run("tilegrad.handles.graph.stats.boxes") < 60
    tab.press("/")
    tab.type("v4321")
    tab.press("Enter")
    assert "v4321" in tab.run("document.querySelector('.inspector').innerText")
    assert tab.run("document.querySelectorAll('*').length") < MAX_ELEMENTS


def test_60000_spans_are_drawn_as_pixels(tab: Tab, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": [span(f"s{n % 90}", 10 * n, 9) for n in range(60_000)]}))
    path = tmp_path / "x.html"
    path.write_text(page(opened(trace)))
    show(tab, path, "time")
    assert tab.run("tilegrad.handles.time.lanes.drawn") < 2 * 1280
    assert tab.run("document.querySelectorAll('*').length") < MAX_ELEMENTS


def hostile_page(tmp_path: Path) -> Path:
    """A page whose every text is markup."""
    write_run(tmp_path / HOSTILE.replace("/", "").replace("\x00", ""))
    with tg.tensorboard.SummaryWriter(tmp_path / "run") as writer:
        for n in range(3):
            writer.add_scalar(HOSTILE, n, n)
        writer.add_histogram(f"grad/{HOSTILE}", np.ones(3), 1)
        writer.add_image(HOSTILE, np.zeros((1, 2, 2), np.float32))
    trace = tmp_path / "trace.json"
    about = {"lines": {HOSTILE: 1}, "module": HOSTILE}
    meta = [{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": HOSTILE}}]
    counter = [{"ph": "C", "name": HOSTILE, "ts": n, "args": {HOSTILE: n}} for n in range(3)]
    trace.write_text(json.dumps({"traceEvents": [span(HOSTILE, 0, 1, cat=HOSTILE, args=about), *meta, *counter]}))
    step = poisoned(many(6))
    data = PageSource(tmp_path).page()
    path = tmp_path / "x.html"
    path.write_text(page({**data, "title": HOSTILE, "steps": [step], "notes": [HOSTILE]}))
    return path


def poisoned(step: PageStep) -> PageStep:
    """The step with every text replaced by markup."""
    line = Line(file=HOSTILE, number=1, text=HOSTILE, kernels=[0], share=0.5)
    for n, node in enumerate(step["nodes"]):
        node.update(name=HOSTILE, op=HOSTILE, type=HOSTILE, module=HOSTILE if n else "", line=0, kernels=[0])
    kernel = PageKernel(
        title=HOSTILE, name=HOSTILE, phase="forward", module=HOSTILE, lines=[0], why=[HOSTILE], text=HOSTILE,
        source=HOSTILE, language=HOSTILE, machine=HOSTILE, hot=[[0, 0]], seconds=1e-6, bytes=8, operations=8,
        limit=1e-7, share=0.1, bound=HOSTILE, hint=HOSTILE,
    )  # fmt: skip
    stage = PagePass(name=HOSTILE, sentence=HOSTILE, state="changed", seconds=1.0, operations=1, text=HOSTILE)
    owner = PageBlock(
        name=HOSTILE, kind=HOSTILE, type=HOSTILE, bytes=8, line=0, node=0, kernel=0, first=0, last=0,
    )  # fmt: skip
    return PageStep(
        name=HOSTILE, device=HOSTILE, facts=[[HOSTILE, HOSTILE]], nodes=step["nodes"], lines=[line], kernels=[kernel],
        passes=[stage], memory=PageMemory(moments=[HOSTILE], live=[8], owners=[owner]),
        roof={"bytes": 1e9, "operations": 1e9}, note=HOSTILE,
    )  # fmt: skip


@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_names_become_no_elements(tab: Tab, tmp_path: Path, width: int) -> None:
    path = hostile_page(tmp_path)
    tab.size(width)
    for view in ("graph", "code", "time", "memory", "training"):
        show(tab, path, view)
        tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        tab.press("/")
        tab.type("img")
        assert tab.run("document.querySelectorAll('.found li').length") > 0
        tab.run("document.activeElement.blur()")
        for kind, number in (("node", 0), ("kernel", 0), ("line", 0), ("owner", 0), ("label", "'0/0'")):
            tab.run(f"tilegrad.select({{kind: {kind!r}, id: {number}}})")
            tab.frame()
            assert "onerror" in tab.run("document.querySelector('.inspector').innerText")
            assert tab.run("[...document.images].filter(e => !e.src.startsWith('data:image/png')).length") == 0
            assert tab.run("document.querySelectorAll('script').length") == 2
        assert tab.run("document.documentElement.scrollWidth") <= width


def test_no_script_of_the_file_runs(tab: Tab, tmp_path: Path) -> None:
    """Even markup that somebody wrote into a saved page is stopped by its policy."""
    text = page(page_of("t")).replace(
        "<noscript>", "<script>window.evil = 1</script><img src=x onerror=evil=1><noscript>"
    )
    path = tmp_path / "x.html"
    path.write_text(text)
    tab.open(f"file://{path}")
    assert tab.run("window.evil === undefined")
    assert any("Content Security Policy" in problem for problem in tab.problems)
    tab.problems.clear()


@pytest.mark.parametrize("part", ["steps", "traces", "runs"])
def test_damaged_data_is_said_in_a_sentence(tab: Tab, tmp_path: Path, part: str) -> None:
    path = tmp_path / "x.html"
    path.write_text(page({**page_of("t"), part: [{"name": "<b>x</b>"}]}))  # type: ignore[typeddict-item]
    tab.call("Page.navigate", url=f"file://{path}")
    tab.until("Boolean(document.body?.innerText.includes('The data of this page is damaged: '))")
    assert tab.run("document.querySelectorAll('b').length") == 0
    tab.call("Page.navigate", url="about:blank")
    tab.frame()
    tab.problems.clear()  # what the page threw


def test_light_and_dark(tab: Tab, folder: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    tab.size(1280, dark=True)
    show(tab, folder, "graph")
    dark = tab.run(ground)
    tab.press("t")
    assert tab.run("document.documentElement.dataset.theme") == "light"
    assert tab.run(ground) != dark
    tab.run("localStorage.clear()")


@pytest.mark.parametrize("view", ["graph", "code", "time", "memory", "training"])
def test_a_page_without_anything(tab: Tab, tmp_path: Path, view: str) -> None:
    path = tmp_path / "x.html"
    path.write_text(page(page_of("nothing")))
    show(tab, path, view)
    assert " here: " in tab.run("document.querySelector('.view:not([hidden])').innerText")


def test_everything_is_reached_by_keys(tab: Tab, folder: Path) -> None:
    show(tab, folder, "graph")
    for n, view in enumerate(["graph", "code", "time", "memory", "training"], 1):
        tab.press(str(n))
        assert tab.run("tilegrad.store.tab") == view
    tab.press("3")
    tab.run("document.querySelector('.time tbody tr').focus()")
    tab.press("Enter")
    assert tab.run("tilegrad.store.selection.kind") == "kernel"
    unnamed = tab.run(
        "[...document.querySelectorAll('button, input, select, canvas, [role]')].filter(e => "
        "!e.matches('.tabs, .found') && !(e.innerText || e.ariaLabel || e.title || e.closest('label')))"
        ".map(e => e.outerHTML)"
    )
    assert unnamed == []


@pytest.fixture(autouse=True)
def _clean(tab: Tab) -> Iterator[None]:
    yield
    tab.size(1280)


def test_a_graph_from_an_event_file_is_shown_without_launches(tab: Tab, tmp_path: Path) -> None:
    net = tg.nn.Sequential(tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.ReLU()), tg.nn.Linear(4, 2))
    with tg.tensorboard.SummaryWriter(tmp_path) as writer:
        writer.add_graph(net, tg.ones(5, 3))
    (tmp_path / "graph.html").write_text(page(PageSource(tmp_path).page()))
    for view in ("code", "time", "memory", "training", "graph"):
        show(tab, tmp_path / "graph.html", view)
    text = tab.run("document.body.innerText")
    assert "the graph of add_graph" in text
    assert tab.run("tilegrad.handles.graph.drawing.boxes.length") > 3
