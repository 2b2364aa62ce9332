"""Linked code is bounded: a process has a limited number of memory mappings. What readers ask for is lowered once."""

import gc
from typing import Any

import pytest

import tilegrad as tg
from tilegrad.backend.cpu import build
from tilegrad.profile.step_model import step_of


def test_programs_of_ever_new_shapes_are_unlinked(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    most = len(build._linked) + 12
    monkeypatch.setattr(build, "MAX_LINKED", most)
    functions: list[Any] = []
    for n in range(2, 42):
        factor = float(n) / 7
        f = tg.jit(lambda x, factor=factor: (x * factor).tanh().cumsum(0) if factor else x)
        functions.append((f, factor))
        x = tg.ones(n, 3)
        assert f(x).shape == (n, 3)
        assert (x * 2.5 + n).sum(0).tolist() == [n * (2.5 + n)] * 3
        assert len(build._linked) <= most + 6
    gc.collect()
    for f, factor in functions[::7]:  # what was let go of is made again
        assert f(tg.ones(2, 1)).tolist()[0][0] == pytest.approx(float(tg.tensor(factor).tanh().item()), rel=1e-6)


def test_the_ir_and_the_assembly_of_a_kernel_are_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of the viewer shows both for each kernel."""
    f = tg.jit(lambda x: (x * 1.25 + 3.5).tanh() + x.sum(0))
    x = tg.ones(7, 5)
    f(x)
    lowered: list[str] = []
    lower = build.kernel_ir
    monkeypatch.setattr(build, "kernel_ir", lambda kernel: lowered.append(kernel.name) or lower(kernel))  # type: ignore[func-returns-value]
    kernels = step_of(tg.explain(f, x))["kernels"]
    assert all(k["source"] and k["machine"] for k in kernels)
    assert 0 < len(lowered) <= len(kernels)
