"""Compile every kernel of the op examples for GPUs; none may spill."""

from __future__ import annotations

import os

import pytest

from tests.backend.cuda.some_kernels import together
from tests.ops.registry import all_examples
from tilegrad.backend.cuda import build, nvrtc
from tilegrad.backend.cuda.build import ARCHITECTURES
from tilegrad.backend.cuda.code.lower import lower
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.ir.program import Launch
from tilegrad.ir.tile import Assign, Dot, Kernel
from tilegrad.ir.tile_access import statements, walk
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse
from tilegrad.transform.pipeline import optimise

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not here: pip install nvidia-cuda-nvrtc")
PARTS = 8


def kernels(part: int) -> tuple[Kernel, ...]:
    """Return the distinct kernels of an eighth of the examples; adjacent examples share many."""
    found: dict[str, Kernel] = {}
    target = gpu_model(132)
    examples = all_examples()
    for example in examples[len(examples) * part // PARTS : len(examples) * (part + 1) // PARTS]:
        graph = example.graph()
        graph = optimise(graph, target)
        steps = assemble(fuse(graph, target)).steps
        found |= {step.kernel.form(): step.kernel for step in steps if isinstance(step, Launch)}
    return tuple(found.values())


def multiplies(kernel: Kernel) -> bool:
    """Return whether a kernel has matrix products."""
    assigned = [s.value for s in statements(kernel.body) if isinstance(s, Assign)]
    return any(isinstance(x, Dot) for value in assigned for x in walk(value))


def texts(kernel: Kernel, turn: int) -> dict[str, str]:
    """Return the distinct sources of a kernel by architecture.

    A kernel without a product has one source for all, and so have most products. EVERY=1 compiles each for each.
    """
    if os.environ.get("EVERY"):
        return {architecture: lower(kernel, architecture).text for architecture in ARCHITECTURES}
    first = turn % len(ARCHITECTURES)
    order = ARCHITECTURES[first:] + ARCHITECTURES[:first]
    found: dict[str, str] = {}
    for architecture in order if multiplies(kernel) else order[:1]:
        text = lower(kernel, architecture).text
        if text not in found.values():
            found[architecture] = text
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_every_kernel_is_compiled(part: int) -> None:
    made = kernels(part)
    assert len(made) > 40
    chosen = [texts(kernel, turn) for turn, kernel in enumerate(made)]
    for architecture in ARCHITECTURES:
        sources = [found[architecture] for found in chosen if architecture in found]
        log = nvrtc.compile(together(sources), architecture).log
        reports = [build.report(report) for report in log.split("Compiling entry function")[1:]]
        assert len(reports) == len(sources)
        assert all(registers > 0 for registers, _ in reports)
        spilling = [text for text, (_, spills) in zip(sources, reports, strict=True) if spills]
        assert not spilling, (architecture, spilling)
