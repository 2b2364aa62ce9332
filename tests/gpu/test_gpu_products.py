"""Products on a GPU: warp-specialised attention, and the accuracy of float32 at each precision."""

from itertools import product

import numpy as np
import pytest

import tilegrad as tg

ERRORS = {"highest": 1e-6, "high": 4e-4, "medium": 4e-3}
"""Relative root mean square errors: normal data, sums of 512 products."""


@pytest.mark.parametrize("precision", ERRORS)
@pytest.mark.parametrize("order", list(product([False, True], repeat=2)))
@pytest.mark.parametrize("size", [64, 384, 512])
def test_products_meet_their_precision(precision: str, order: tuple[bool, bool], size: int) -> None:
    rng = np.random.default_rng(size)
    given = [rng.standard_normal((size, 512)), rng.standard_normal((512, size))]
    exact = given[0] @ given[1]
    x, y = (
        tg.tensor(np.ascontiguousarray(a.T if t else a).astype(np.float32), device="cuda")
        for a, t in zip(given, order, strict=True)
    )
    found = tg.matmul(x.T if order[0] else x, y.T if order[1] else y, precision=precision)
    error = np.sqrt(np.mean((found.cpu().numpy() - exact) ** 2) / np.mean(exact**2))
    assert error < ERRORS[precision]


@pytest.mark.parametrize("dtype", [tg.bfloat16, tg.float16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("heads", "few", "queries", "keys", "width"),
    [(2, 2, 128, 128, 64), (4, 2, 192, 320, 128), (2, 1, 256, 64, 64), (3, 3, 512, 512, 128)],
)
def test_attention_and_its_gradient(
    heads: int, few: int, queries: int, keys: int, width: int, causal: bool, dtype: tg.DType
) -> None:
    """Compare with float32, which has different kernels."""
    rng = np.random.default_rng(width)
    shapes = [(2, heads, queries, width), (2, few, keys, width), (2, few, keys, width), (2, heads, queries, width)]
    *inputs, upstream = [tg.tensor(rng.standard_normal(s).astype(np.float32), device="cuda").to(dtype) for s in shapes]

    def results(*given: tg.Tensor, above: tg.Tensor) -> list[np.ndarray]:
        leaves = [x.detach().requires_grad_() for x in given]
        seen = tg.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=True)
        return [x.detach().float().cpu().numpy() for x in (seen, *tg.autograd.grad(seen, leaves, above))]

    wanted = results(*(x.float() for x in inputs), above=upstream.float())
    for got, want in zip(results(*inputs, above=upstream), wanted, strict=True):
        assert np.linalg.norm(got - want) < (1e-2 if dtype is tg.bfloat16 else 2e-3) * np.linalg.norm(want)


def test_scatter_of_frequent_rows_is_deterministic() -> None:
    rng = np.random.default_rng(0)
    index, rows = rng.integers(0, 300, 5000), rng.standard_normal((5000, 96)).astype(np.float32)
    table = tg.zeros(300, 96, device="cuda").requires_grad_()
    picked = tg.nn.functional.embedding(tg.tensor(index, device="cuda"), table)
    above = tg.tensor(rows, device="cuda")
    twice = [tg.autograd.grad(picked, [table], above, retain_graph=True)[0] for _ in range(2)]
    found = [gradient.cpu().numpy() for gradient in twice]
    wanted = np.zeros((300, 96))
    np.add.at(wanted, index, rows)
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=2e-5)


SHORT = {
    tg.int8: (lambda x, y: x.int() @ y.int(), 0.0),
    tg.uint8: (lambda x, y: x.int() @ y.int(), 0.0),
    tg.float8_e4m3fn: (lambda x, y: x.float() @ y.float(), 1e-6),
    tg.float8_e5m2: (lambda x, y: x.float() @ y.float(), 1e-6),
}


@pytest.mark.parametrize("dtype", SHORT, ids=str)
@pytest.mark.parametrize("order", list(product([False, True], repeat=2)))
@pytest.mark.parametrize("shape", [(64, 128, 64), (256, 512, 384), (1024, 2048, 1024), (100, 333, 77)])
def test_products_of_eight_bits(dtype: tg.DType, order: tuple[bool, bool], shape: tuple[int, int, int]) -> None:
    """On tensor cores, accumulated in int32 or float32."""
    m, k, n = shape
    rng = np.random.default_rng(m)
    given = [rng.standard_normal(s) * 40 for s in ((m, k), (k, n))]
    if dtype.is_integer:
        given = [np.clip(np.round(a), 0 if dtype is tg.uint8 else -128, 127) for a in given]
    tensors = [
        tg.tensor(np.ascontiguousarray(a.T if t else a).astype(np.float32), device="cuda").to(dtype)
        for a, t in zip(given, order, strict=True)
    ]
    x, y = (a.T if t else a for a, t in zip(tensors, order, strict=True))
    exact = np.matmul(*(a.float().cpu().numpy().astype(np.float64) for a in (x, y)))
    multiply, allowed = SHORT[dtype]
    found = tg.jit(multiply)(x, y).cpu().numpy()
    assert np.linalg.norm(found - exact) <= allowed * np.linalg.norm(exact)
    if dtype.is_float:  # with sums of fewer digits, at twice the speed
        quick = tg.jit(lambda x, y: tg.matmul(x.float(), y.float(), precision="medium"))(x, y).cpu().numpy()
        assert np.linalg.norm(quick - exact) <= 1e-3 * np.linalg.norm(exact)
