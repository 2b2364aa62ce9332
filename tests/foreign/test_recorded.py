"""Functions in C++ within graphs: jitted, mapped, and as kernels of operators."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import ForeignError, GradientError

pytestmark = pytest.mark.usefixtures("cpp")

squares = tg.cpp.inline(
    """
    for (int64_t i = 0; i < x.size(); ++i) {
        TG_CHECK(x[i] >= 0, "a negative number");
        out[i] = x[i] * x[i] * by;
    }
    """,
    "squares(x: float[*s], by: float = 1.0) -> float[*s]",
)


@tg.op("tests::squares_of(x: float[*s]) -> float[*s]")
def squares_of(x: Any) -> Any:
    return x * x * 2


@squares_of.kernel("cpu")
def in_cpp(x: Any) -> Any:
    return squares(x, 2.0)


def test_jitted() -> None:
    fast = tg.jit(lambda x: squares(x + 1, by=3.0).sum())
    for _ in range(3):
        assert fast(tg.ones(50)).item() == 600
    assert "call squares(add_1)" in str(tg.explain(fast, tg.ones(50))["program"])


def test_mapped_and_as_a_kernel() -> None:
    x = tg.rand(3, 4)
    np.testing.assert_allclose(tg.vmap(squares)(x).numpy(), x.numpy() ** 2, rtol=1e-6)
    np.testing.assert_allclose(squares_of(x).numpy(), 2 * x.numpy() ** 2, rtol=1e-6)
    np.testing.assert_allclose(tg.grad(lambda x: squares_of(x).sum())(x).numpy(), 4 * x.numpy(), rtol=1e-6)


def test_failures_are_told_after_the_run() -> None:
    fast = tg.jit(lambda x: squares(x * 1))
    for _ in range(2):
        with pytest.raises(ForeignError, match="squares: a negative number"):
            fast(tg.tensor([1.0, -1.0]))
    assert fast(tg.tensor([1.0, 2.0])).tolist() == [1, 4]


def test_no_derivative() -> None:
    with pytest.raises(GradientError, match="squares has no derivative: call it within.*tilegrad.op"):
        tg.jit(tg.grad(lambda x: squares(x).sum()))(tg.ones(3))


def test_kernels_of_cuda_under_jit(cuda: None, tmp_path: Path) -> None:
    """The null device gets a program with the launch, once for each mapped entry."""
    script = tmp_path / "script.py"
    script.write_text(
        "import tilegrad as tg\n"
        "f = tg.cuda.inline('int i = threadIdx.x; if (i < n) out[i] = x[i] * x[i] * by;',\n"
        "    'f(x: float[n], by: float) -> float[n]')\n"
        "step = tg.jit(lambda x: f(x + 1, 2.0) - 1)\n"
        "x = tg.tensor([1.0, 2.0, 3.0], device='cuda:0')\n"
        "for _ in range(4): print(step(x).shape)\n"
        "print(tg.vmap(lambda x: f(x, 1.0))(tg.ones(4, 3, device='cuda:0')).shape)\n"
    )
    environment = {**os.environ, "TILEGRAD_CUDA": "null", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:5] == ["(3,)"] * 4 + ["(4, 3)"]


NEXT = """
import sys
import tilegrad as tg
import tilegrad.language as tl
from tilegrad.runtime import events

compiled = []
events.listeners.append(lambda e: compiled.append(e.name) if e.kind == "compile" else None)
plus = tg.cpp.inline("for (int64_t i = 0; i < n; ++i) out[i] = x[i] + by;", "plus(x: float[n], by: float) -> float[n]")


@tg.op("next::doubled(x: float[n]) -> float[n]")
def doubled(x):
    return x * 2


@doubled.kernel
def in_tiles(x, out):
    twice[(tg.cdiv(x.shape[0], 16),)](x, out, x.shape[0], BLOCK=16)


@doubled.gradient
def rule(upstream):
    return plus(upstream, 1.0)


@tg.kernel
def twice(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


x = tg.arange(40).float()
jitted, mapped = tg.jit(lambda x: plus(doubled(x) * 2, 3.0).sum()), tg.vmap(lambda x: plus(x, NUMBER))
print(jitted(x).item(), mapped(x[None] + 1).sum().item())
print(tg.jit(tg.grad(lambda x: doubled(x).sum()))(x)[:2].tolist())
print(plus.report().compiled, *compiled)
print(*sorted(m for m in sys.modules if m.startswith(("tilegrad.schedule.", "tilegrad.transform.pipeline"))))
"""


def test_the_next_process_compiles_nothing(tmp_path: Path) -> None:
    """No compiler is started for the function in C++, and the programs with it, with a kernel in the tile language and
    with an operator of both are found on the disk; with another number it is another program.
    """
    script = tmp_path / "script.py"

    def run(number: float) -> list[str]:
        script.write_text(NEXT.replace("NUMBER", str(number)))
        environment = {**os.environ, "TILEGRAD_CACHE": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split("\n")

    first, second, other = run(1.0), run(1.0), run(2.0)
    assert first[:2] == second[:2] == ["3240.0 860.0", "[2.0, 2.0]"]
    assert first[2].startswith("1 plus")
    assert first[3]
    assert second[2:4] == ["0", ""]
    assert other[0] == "3240.0 900.0"
