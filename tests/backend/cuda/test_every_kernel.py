"""Every kernel that the examples of ops become on a GPU, compiled: none spills."""

from __future__ import annotations

import os

import pytest

from tests.ops.registry import all_examples
from tilegrad.backend.cuda import build, nvrtc
from tilegrad.backend.cuda.build import ARCHITECTURES
from tilegrad.backend.cuda.code.lower import lower
from tilegrad.ir.program import Launch
from tilegrad.ir.tile import Assign, Dot, Kernel
from tilegrad.ir.tile_access import statements, walk
from tilegrad.runtime.grain import many_small
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse
from tilegrad.transform.pipeline import PASSES, fitted

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not here: pip install nvidia-cuda-nvrtc")
PARTS = 8


def kernels(part: int) -> tuple[Kernel, ...]:
    """Those of every eighth example."""
    found: dict[str, Kernel] = {}
    grain = many_small(132)
    for example in all_examples()[part::PARTS]:
        graph = example.graph()
        for transform in PASSES:
            graph = fitted(transform, grain)(graph)
        steps = assemble(fuse(graph, grain)).steps
        found |= {step.kernel.digest(): step.kernel for step in steps if isinstance(step, Launch)}
    return tuple(found.values())


def multiplies(kernel: Kernel) -> bool:
    """Whether there are matrix products in a kernel."""
    assigned = [s.value for s in statements(kernel.body) if isinstance(s, Assign)]
    return any(isinstance(x, Dot) for value in assigned for x in walk(value))


def together(texts: list[str]) -> str:
    """Kernels in one source, which takes less than half the time of as many sources."""
    plain = [text.replace('extern "C" ', "") for text in texts]
    return "\n".join(f"namespace kernel_{n} {{\n{text}\n}}" for n, text in enumerate(plain))


@pytest.mark.parametrize("part", range(PARTS))
def test_every_kernel_is_compiled(part: int) -> None:
    """What has no matrix product has one text for all architectures, and is compiled for one; with EVERY=1 for each."""
    made = kernels(part)
    assert len(made) > 40
    every = bool(os.environ.get("EVERY"))
    for turn, architecture in enumerate(ARCHITECTURES):
        wanted = [k for n, k in enumerate(made) if every or n % len(ARCHITECTURES) == turn or multiplies(k)]
        sources = [lower(kernel, architecture) for kernel in wanted]
        log = nvrtc.compile(together([source.text for source in sources]), architecture).log
        reports = [build.report(report) for report in log.split("Compiling entry function")[1:]]
        assert len(reports) == len(sources)
        assert all(registers > 0 for registers, _ in reports)
        assert not [spills for _, spills in reports if spills], architecture
