"""Runs drawn graphs on the CPU in another process: `python -m tests.fuzz.worker` answers a line for each."""

from __future__ import annotations

import traceback

import numpy as np

from tests.fuzz.check import backward, meaning
from tests.fuzz.child import Child, Ended, serve
from tests.fuzz.graphs import Drawn, compare, drawn, tolerance


class Workers(Child):
    """Runs graphs in a process of their own."""

    def __init__(self) -> None:
        super().__init__("tests.fuzz.worker")

    def answer(self, choices: list[int], smooth: bool, gradients: bool) -> str:
        """Whether a graph was computed right, or what went wrong."""
        try:
            return str(self.ask([choices, smooth, gradients]))
        except Ended as e:
            return str(e)


def on_cpu(d: Drawn, gradients: bool) -> None:
    """Compiles a graph for the CPU, runs it twice, and compares with what it means."""
    from tilegrad.compiler import compile
    from tilegrad.runtime.device import device

    cpu, graph, exact = device("cpu"), d.graph, d.exact
    if gradients:
        graph = backward(graph)
        exact = (False,) * len(graph.outputs)
    if not graph.outputs:
        return
    compiled = compile(graph)
    wanted = meaning(graph, d.arrays, d.sizes)
    for _ in range(2):
        given = [cpu.from_host(a) for a in d.arrays]
        made = compiled.executable.bound(d.sizes)(given)
        for buffer, value, want, e in zip(made, graph.outputs, wanted, exact, strict=True):
            compare(cpu.to_host(buffer, value.dtype, want.shape), want, e, tolerance(graph), f"{d}\n{compiled.program}")


def answer(question: tuple[list[int], bool, bool]) -> str:
    choices, smooth, gradients = question
    try:
        with np.errstate(all="ignore"):
            on_cpu(drawn(choices, smooth), gradients)
    except Exception:
        return traceback.format_exc()
    return "right"


if __name__ == "__main__":
    serve(answer)
