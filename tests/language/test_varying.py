"""Launches within `jit` where an axis varies from call to call: one program for all sizes, or one for each."""

from collections.abc import Callable
from typing import Any

import pytest

import tilegrad as tg
from tests.language.kernel_texts import made
from tests.language.test_tutorials import add, matmul
from tilegrad.language.tuning import cdiv, next_power_of_2


def added(x: tg.Tensor) -> tg.Tensor:
    out = tg.empty_like(x)
    n = x.shape[0]
    add[(cdiv(n, 64),)](x, x, out, n, BLOCK=64)
    return out + 1


def added_by_rows(x: tg.Tensor) -> tg.Tensor:
    """The grid is an extent itself, and so is a function of the arguments."""
    out = tg.zeros(x.shape[0], 3)
    add[lambda meta: (x.shape[0],)](x, x, out, x.numel(), BLOCK=3)
    return out * 2


def multiplied(x: tg.Tensor) -> tg.Tensor:
    """Strides vary as well, and the grid has two axes."""
    k = made(
        """i, j = tl.program_id(0) * 16 + tl.arange(0, 16), tl.program_id(1) * 16 + tl.arange(0, 16)
total = tl.zeros((16, 16), tl.float32)
for start in range(0, K, 16):
    k = start + tl.arange(0, 16)
    a = tl.load(x + i[:, None] * s + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
    b = tl.load(x + j[None, :] * s + k[:, None], mask=(j[None, :] < M) & (k[:, None] < K), other=0.0)
    total = tl.dot(a, b, total)
tl.store(out + i[:, None] * M + j[None, :], total, mask=(i[:, None] < M) & (j[None, :] < M))""",
        "x, out, M, K, s",
    )
    out = tg.empty(x.shape[0], x.shape[0])
    k[(cdiv(x.shape[0], 16), cdiv(x.shape[0], 16))](x, out, x.shape[0], x.shape[1], x.stride(0))
    return out


def mapped(x: tg.Tensor) -> tg.Tensor:
    return tg.vmap(added)(x.reshape(1, -1).expand(3, x.shape[0])).sum(0)


def in_place(x: tg.Tensor) -> tg.Tensor:
    """A counter of a kernel that changes within it."""
    k = made("n -= 1\ntl.store(x + n, 7.0)\nn += 1\ntl.store(x, n)", "x, n")
    y = x.clone()
    k[(1,)](y, y.shape[0])
    return y


SYMBOLIC: dict[str, tuple[Callable[[tg.Tensor], tg.Tensor], Callable[[int], tg.Tensor]]] = {
    "one axis": (added, lambda n: tg.arange(n).float()),
    "an extent as grid": (added_by_rows, lambda n: tg.arange(3 * n).float().reshape(n, 3)),
    "two axes": (multiplied, lambda n: tg.randn(n, n + 5)),
    "mapped": (mapped, lambda n: tg.arange(n).float()),
    "a number that changes": (in_place, lambda n: tg.arange(n).float()),
}


@pytest.mark.parametrize("case", SYMBOLIC)
def test_one_program_for_all_sizes(case: str) -> None:
    fn, data = SYMBOLIC[case]
    jitted: Any = tg.jit(fn)
    for n in (10, 33, 70, 129, 64):
        x = data(n)
        assert tg.allclose(jitted(x), fn(x), atol=1e-4), n
    assert len(jitted.programs) == 2


def by_products(x: tg.Tensor) -> tg.Tensor:
    """The number of programs is no simple rounding up of an axis."""
    m, k = x.shape
    out = tg.empty(m, m, dtype=tg.float16)
    matmul[(cdiv(m, 16) * cdiv(m, 16),)](
        x, x.t(), out, m, m, k, *x.stride(), *x.t().stride(), *out.stride(),
        BM=16, BN=16, BK=16, GROUP=2, ACTIVATION="",
    )  # fmt: skip
    return out.float()


def by_powers(x: tg.Tensor) -> tg.Tensor:
    out = tg.empty_like(x)
    add[(1,)](x, x, out, x.shape[0], BLOCK=next_power_of_2(x.shape[0]))
    return out


@pytest.mark.parametrize("fn", [by_products, by_powers], ids=lambda fn: fn.__name__)
def test_a_program_for_each_size(fn: Callable[[tg.Tensor], tg.Tensor]) -> None:
    jitted: Any = tg.jit(fn)
    for n in (10, 33, 70):
        x = tg.randn(n) if fn is by_powers else tg.randn(n, n).half()
        assert tg.allclose(jitted(x), fn(x), atol=1e-4)
    assert len(jitted.programs) == 3


def test_a_constant_that_varies_is_told() -> None:
    with pytest.raises(tg.errors.KernelLaunchError, match="`BLOCK` is a constexpr, and n varies from call to call"):
        made("tl.store(x, BLOCK)", "x, BLOCK: tl.constexpr").compiled(tg.ones(1), _varying())


def _varying() -> Any:
    from tilegrad.ir.size import Size

    return Size.named("n")
