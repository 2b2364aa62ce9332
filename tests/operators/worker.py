"""Run drawn calls here and in PyTorch, in a child process: `tests.fuzz.child.Child("tests.operators.worker")`.

A crash of PyTorch then costs a sample instead of the process that runs the tests.
"""

from __future__ import annotations

import functools
import os
import random
import sys
from typing import Any

import tilegrad as tg
from tests.fuzz.child import serve
from tests.target_models import GPU
from tests.verifier import net
from tilegrad.runtime.device import device
from tilegrad.runtime.target_model import TargetModel

from .agreement import Call, Found, difference, run, tensors_of
from .drawing import DTYPES, Scene
from .recipes import RANDOM, TIED, Word, draw, recipes

FORMS = ("function", "function", "function", "method", "in place", "out")


def drawn_call(name: str, words: list[Word], rng: random.Random) -> Call:
    """Draw one call by a recipe."""
    s = Scene(rng, rng.choice(DTYPES))
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        if word.optional and s.one_in(2):
            continue
        given = draw(word, s)
        if word.unpacked:
            args += given
        elif word.keyword:
            kwargs[word.keyword] = given
        else:
            args.append(given)
    short, form = _name_and_form(name, rng)
    return Call(short, form, tuple(args), kwargs, short in TIED and s.dtype == "bool", name in RANDOM)


def _name_and_form(name: str, rng: random.Random) -> tuple[str, str]:
    """Choose a form in which both libraries have the operator."""
    package, _, short = name.rpartition(".")
    if package:
        return short, f"function.{package}"
    form = rng.choice(FORMS)
    torch = sys.modules["torch"]
    if not hasattr(torch, short):
        return short, "method"
    if name in RANDOM or (form == "out" and not _takes_out(short)):
        return short, "function"
    if form in ("in place", "method"):
        method = short + "_" * (form == "in place")
        if not (hasattr(torch.Tensor, method) and hasattr(tg.Tensor, method)):
            return short, "function"
    return short, form


def _takes_out(name: str) -> bool:
    torch = sys.modules["torch"]
    return "out=None" in (getattr(torch, name).__doc__ or "").partition("->")[0]


@functools.cache
def drawn(seed: int, count: int) -> list[Call]:
    """Draw calls; every recipe comes up before one comes up again."""
    rng, table, calls = random.Random(seed), recipes(), []
    while len(calls) < count:
        rng.shuffle(table)
        calls += [drawn_call(name, words, rng) for name, words in table[: count - len(calls)]]
    return calls


def answer(question: dict[str, Any]) -> Any:
    """Run drawn calls, or report which kernels have been verified so far."""
    return net.SEEN.as_lists() if question.get("verified") else rows(question)


def rows(question: dict[str, Any]) -> list[list[Any]]:
    """Run the calls from `start` to `stop` of those drawn: name, form, text, difference, whether PyTorch computed it.

    "pytorch" alone asks whether PyTorch survives them; nothing is compared.
    """
    calls = drawn(question["seed"], question["count"])[question["start"] : question["stop"]]
    if question["libraries"] == "none":
        return [[call.name, call.form, str(call), "", False] for call in calls]
    torch = sys.modules["torch"]
    if question["libraries"] == "pytorch":
        for call in calls:
            run(torch, call)
        return []
    ours = [run(tg, call) for call in calls]
    theirs = [run(torch, call) for call in calls]
    _compute(calls, ours)
    return [
        [call.name, call.form, str(call), _difference(call, mine, other), "refused" not in other]
        for call, mine, other in zip(calls, ours, theirs, strict=True)
    ]


def _compute(calls: list[Call], ours: list[Found]) -> None:
    """Compute all in one program; where that is refused, make each call once more and compute it by itself."""
    try:
        tg.compute(*[x for found in ours for x in tensors_of(found)])
    except Exception:
        for n, call in enumerate(calls):
            try:
                ours[n] = run(tg, call)
                tg.compute(*tensors_of(ours[n]))
            except Exception as error:
                ours[n]["refused"] = error


def _difference(call: Call, ours: Found, theirs: Found) -> str:
    try:
        return difference(call, ours, theirs)
    except Exception as error:
        return f"refused: {type(error).__name__}: {str(error)[:160]}"


def main() -> None:
    """Answer questions; kernels are made and verified as in the process that runs the tests (`conftest.py`)."""
    import torch  # noqa: F401

    device("cpu").__dict__["target"] = GPU if os.environ.get("TESTS_TARGET") == "gpu" else TargetModel()
    with net.watching():
        serve(answer)


if __name__ == "__main__":
    main()
