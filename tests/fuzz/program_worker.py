"""Draws and checks random programs in a process of its own: `tests.fuzz.child.Child("tests.fuzz.program_worker")`.

A question is {"seed": 3, "mode": ..., "device": ...} or {"program": ...}; the answer has a verdict (right, wrong,
refused; unfit where PyTorch itself refuses) and what was seen.
"""

from __future__ import annotations

import gc
import warnings
from typing import Any

from tests.fuzz.child import serve
from tests.fuzz.program_check import Refused, Wrong, compare, expected, measured
from tests.fuzz.program_rounding import compare_within_roundings
from tests.fuzz.programs import Program, Unfit, drawn, from_plain, to_plain


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """The verdict on a program."""
    try:
        p = from_plain(question["program"]) if "program" in question else drawn(question["seed"], question.get("mode"))
    except Unfit:
        return {"verdict": "unfit", "text": "nothing was drawn"}
    if question.get("only drawn"):
        return {"verdict": "", "text": ""}
    verdict, text = verdict_on(p, question.get("device", "cpu"))
    return {"verdict": verdict, "text": text, "program": to_plain(p) if verdict in ("wrong", "refused") else None}


def verdict_on(p: Program, device: str = "cpu") -> tuple[str, str]:
    try:
        want, tolerances = expected(p)
    except Exception as e:
        return "unfit", f"{type(e).__name__}: {e}"
    try:
        got = measured(p, device)
        try:
            compare(got, want, tolerances)
        except Wrong:
            compare_within_roundings(p, got, want, tolerances)
    except Wrong as e:
        return "wrong", str(e)
    except Refused as e:
        return "refused", str(e)
    return "right", ""


def main() -> None:
    """Answers on one thread of PyTorch, and with no warnings.

    Compiling makes many objects and few cycles: the collector looks seldom, and not at what import has made.
    """
    import torch

    import tilegrad  # noqa: F401

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    serve(answer)


if __name__ == "__main__":
    main()
