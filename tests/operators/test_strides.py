"""Strides of results are PyTorch's: in expressions, whose strides are recorded, and in calls that are drawn."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
import tilegrad.nn.functional as F
from tests.operators import drawing, strides
from tests.operators.agreement import Call, flat, mapped
from tests.operators.drawing import Drawn
from tests.operators.recipes import RANDOM, recipes
from tests.operators.worker import drawn_call

DRAWN = 700
AGREE = 0.98
MANY_LAYOUTS = ("dense", "permuted", "permuted", "permuted", "stepped", "expanded", "offset")


def test_expressions_have_the_strides_of_pytorch() -> None:
    """All of them, and views are refused where PyTorch refuses them."""
    found = strides.strides(tg, F)
    differ = [
        f"{layout}: {expression}: {own[expression]}, not {wanted}"
        for expression, row in json.loads(strides.RECORD.read_text()).items()
        for (layout, own), wanted in zip(found.items(), row, strict=True)
        if own[expression] != wanted
    ]
    assert not differ, "\n".join(differ)


def test_the_record_has_all_expressions() -> None:
    assert list(json.loads(strides.RECORD.read_text())) == strides.expressions()


def _known() -> list[str]:
    lines = (Path(__file__).parent / "strides.txt").read_text().splitlines()
    return [line.partition(" # ")[0].strip() for line in lines if line and not line.startswith("#")]


def _results(library: Any, call: Call) -> list[Any]:
    def make(x: Any) -> Any:
        if not isinstance(x, Drawn):
            return getattr(library, x[1:]) if isinstance(x, str) and x.startswith(":") else x
        return x.make(library)

    args, kwargs = mapped(call.args, make), mapped(call.kwargs, make)
    if call.form == "method":
        return flat(getattr(args[0], call.name)(*args[1:], **kwargs))
    package: Any = library
    for part in call.form.split(".")[1:]:
        package = getattr(package, part)
    return flat(getattr(package, call.name)(*args, **kwargs))


def _steps(x: Any) -> list[int]:
    return [s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1]


def drawn_differences(count: int, seed: int) -> tuple[int, list[str]]:
    """The number of results whose strides were compared, and those that differ."""
    torch = sys.modules["torch"]
    rng, table, compared, differ = random.Random(seed), recipes(), 0, []
    rng.shuffle(table)
    while True:
        for name, words in table:
            call = drawn_call(name, words, rng)
            if name in RANDOM or call.form in ("in place", "out"):
                continue
            try:
                results = zip(_results(tg, call), _results(torch, call), strict=True)
            except Exception:
                continue
            for x, y in results:
                if not isinstance(x, tg.Tensor) or not y.numel() or tuple(x.shape) != tuple(y.shape):
                    continue
                compared += 1
                if _steps(x) != _steps(y):
                    differ.append(f"{call.name}: {x.stride()}, not {y.stride()} | {call}")
            if compared >= count:
                return compared, differ


@pytest.mark.filterwarnings("ignore")
def test_drawn_calls_have_the_strides_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(drawing, "LAYOUTS", MANY_LAYOUTS)
    compared, differ = drawn_differences(DRAWN, 7)
    said = "\n".join(differ)
    assert len(differ) <= (1 - AGREE) * compared, f"{len(differ)} of {compared} differ:\n{said}"
    unknown = [d for d in differ if not any(fnmatch(d, pattern) for pattern in _known())]
    assert not unknown, f"{dict(Counter(d.partition(':')[0] for d in unknown))}\n" + "\n".join(unknown)
