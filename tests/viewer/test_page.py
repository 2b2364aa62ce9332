"""The saved page: its data, its policy, its size, and what it is made of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilegrad as tg
from tests.profile.training import made
from tests.viewer.saved import data_alone
from tilegrad.errors import ArgumentError
from tilegrad.profile.step_model import step_of
from tilegrad.viewer.model import MAX_TEXT_CHARACTERS, PageStep, clipped, page_of
from tilegrad.viewer.page import ASSETS, data_of, json_text, page, script_text

MAX_ASSET_BYTES = 300_000
SOURCES = sorted(ASSETS.glob("*.js"))


@pytest.fixture(scope="module")
def explained() -> tg.profile.explanation.Explanation:
    step, x, y = made()
    step(x, y)
    return tg.explain(step, x, y)


@pytest.fixture(scope="module")
def step(explained: tg.profile.explanation.Explanation) -> PageStep:
    return step_of(explained)


def test_what_is_saved_is_one_file(explained: tg.profile.explanation.Explanation, tmp_path: Path) -> None:
    data = data_alone(explained.save(tmp_path / "step.html").read_text())
    assert [s["name"] for s in data["steps"]] == ["step"]
    assert data_of(explained.save(tmp_path / "step.json").read_text())["steps"][0]["nodes"] == data["steps"][0]["nodes"]


def test_parameters_have_their_names(step: PageStep) -> None:
    names = {node["name"]: node["role"] for node in step["nodes"]}
    assert names["block.layers.0.weight"] == names["head.bias"] == "parameter"
    assert not any(name.startswith("state") for name in names)


def test_kernels_are_called_by_what_they_are_for(step: PageStep) -> None:
    titles = [kernel["title"] for kernel in step["kernels"]]
    assert len(set(titles)) == len(titles)
    assert titles[0] == "block.layers.0: matmul"
    assert "gradient of block.layers.0: matmul → block.layers.0.weight" in titles


def test_each_kernel_says_why(step: PageStep) -> None:
    for kernel in step["kernels"]:
        assert re.match(r"(One operation is|\d+ operations are) one kernel: ", kernel["why"][0])
        assert all(text.startswith("Not fused with kernel") for text in kernel["why"][1:])
        assert kernel["text"].startswith("@tg.kernel")
        assert "define" in kernel["source"]
        lines = kernel["machine"].count("\n")
        assert all(0 <= first <= last <= lines for first, last in kernel["hot"])


def test_each_pass_says_what_it_does(step: PageStep) -> None:
    for stage in step["passes"]:
        assert re.match(r"[A-Z].*\.$", stage["sentence"]), stage["name"]
        assert stage["state"] in ("changed", "unchanged") or stage["state"].startswith("skipped")
        assert bool(stage["text"]) <= (stage["state"] == "changed")


def test_references_are_right(step: PageStep) -> None:
    nodes, lines, kernels = step["nodes"], step["lines"], step["kernels"]
    for n, node in enumerate(nodes):
        assert all(0 <= r < len(nodes) and r != n for r in node["reads"])
        assert all(0 <= k < len(kernels) for k in node["kernels"])
        assert node["line"] is None or 0 <= node["line"] < len(lines)
    for k, kernel in enumerate(kernels):
        assert all(k in lines[line]["kernels"] for line in kernel["lines"])
    for owner in step["memory"]["owners"]:
        assert 0 <= owner["first"] <= owner["last"] < len(kernels)
        assert owner["node"] is None or nodes[owner["node"]]["bytes"] == owner["bytes"]


def test_lines_are_whole_functions_in_order(step: PageStep) -> None:
    places = [(line["file"], line["number"]) for line in step["lines"]]
    assert places == sorted(places)
    assert any("def forward" in line["text"] for line in step["lines"])
    shares = [line["share"] for line in step["lines"] if line["share"] is not None]
    assert sum(shares) == pytest.approx(1, abs=0.02)


def test_memory_adds_up(step: PageStep) -> None:
    memory = step["memory"]
    for n, live in enumerate(memory["live"]):
        assert live == sum(o["bytes"] for o in memory["owners"] if o["first"] <= n <= o["last"])
    kinds = {owner["kind"] for owner in memory["owners"]}
    assert {"parameter", "gradient", "activation", "temporary", "input"} <= kinds


def test_kernels_of_values_that_fusion_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions are cut into values that the graph does not have; only the slowest kernels are compiled again."""
    net = tg.nn.Sequential(tg.nn.Conv2d(3, 16, 3, padding=1), tg.nn.ReLU(), tg.nn.MaxPool2d(2))

    @tg.jit
    def step(images: tg.Tensor) -> tg.Tensor:
        loss = net(images).square().mean()
        loss.backward()
        return loss

    images = tg.rand(4, 3, 16, 16)
    step(images)
    monkeypatch.setattr("tilegrad.profile.step_model.MAX_CODES", 2)
    found = step_of(tg.explain(step, images))
    assert {node["name"] for node in found["nodes"]} >= {"images", "0.weight", "0.bias"}
    left_out = [kernel for kernel in found["kernels"] if kernel["machine"].startswith("left out")]
    assert len(left_out) == len(found["kernels"]) - 2


def test_texts_do_not_end_the_script() -> None:
    hostile = "</script><script>alert(1)</script><!--"
    text = page(page_of(hostile, notes=[hostile]))
    assert data_alone(text)["notes"] == [hostile]
    assert text.count("</script>") == 2
    assert "<title>&lt;/script&gt;" in text


def test_a_long_text_is_clipped() -> None:
    text = clipped("line\n" * MAX_TEXT_CHARACTERS)
    assert len(text) < MAX_TEXT_CHARACTERS + 60
    assert text.endswith("more lines are left out")


@pytest.mark.parametrize("text", ["", "{", "<html></html>", '{"format": 99, "steps": []}', "[]", "[" * 100_000])
def test_what_is_no_page_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ArgumentError, match="no page of the viewer"):
        data_of(text)


def test_infinities_are_no_json() -> None:
    with pytest.raises(ValueError):
        json_text([float("nan")])


def test_the_assets_are_small_and_local() -> None:
    files = list(ASSETS.iterdir())
    assert sum(file.stat().st_size for file in files) < MAX_ASSET_BYTES
    assert {file.suffix for file in files} == {".js", ".css"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
def test_no_text_becomes_markup(path: Path) -> None:
    text = path.read_text()
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|createContextual"
    )
    assert not re.search(forbidden, text)
    assert len(text.splitlines()) <= 500


def test_modules_import_what_they_use_and_export_what_others_import() -> None:
    imported, exported = set(), set()
    for path in SOURCES:
        text = path.read_text()
        body = re.sub(r"^import .*$", "", text, flags=re.MULTILINE)
        lists = re.findall(r"^import \{([^}]*)\}", text, re.MULTILINE)
        names = {name.strip() for names in lists for name in names.split(",")}
        assert not [name for name in names if not re.search(rf"\b{name}\b", body)], path.name
        imported |= names
        exported |= set(re.findall(r"^export (?:function|const|class) (\w+)", text, re.MULTILINE))
    assert imported == exported


def test_names_of_the_modules_are_unique() -> None:
    """The page has the modules as one script."""
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", script_text(), re.MULTILINE)
    assert len(names) > 50
    assert len(names) == len(set(names)), sorted(n for n in set(names) if names.count(n) > 1)
    assert not re.search(r"^(import|export) ", script_text(), re.MULTILINE)


def test_the_function_of_tensors_called_view_is_still_there(explained: tg.profile.explanation.Explanation) -> None:
    """A package of the name of a function would take its place once it is imported."""
    step_of(explained)
    assert tg.view(tg.ones(2, 3), (3, 2)).shape == (3, 2)
