"""The functions of `tl`, each against numpy, compiled for the CPU and interpreted."""

from collections.abc import Callable

import numpy as np
import pytest

import tilegrad as tg
from tests.language.kernel_texts import made
from tilegrad.language.kernel import KernelFunction

M, N = 4, 8
RNG = np.random.default_rng(5)
X = RNG.standard_normal((M, N)).astype(np.float32)
Y = RNG.standard_normal((M, N)).astype(np.float32)
P = RNG.permutation(M * N).reshape(M, N).astype(np.int32)
TURNED = np.fmod(P - 16, 3)
HIGH = (P.astype(np.uint64) * 0x9E3779B9 >> 32).astype(np.int32)
BOTH = (X > 1).any(1) * 1 + (X > -2).all(1)
SOFT = np.exp(X) / np.exp(X).sum(0)

CASES: dict[str, tuple[str, Callable[[], np.ndarray]]] = {
    "zeros_like": ("tl.zeros_like(a) + 1", lambda: np.ones_like(X)),
    "full": ("tl.full((M, N), 3, tl.float32)", lambda: np.full((M, N), 3.0)),
    "num_programs": ("tl.num_programs(0) + tl.zeros([3], tl.int32)", lambda: np.full(3, 1)),
    "where": ("tl.where(a > 0, a, b)", lambda: np.where(X > 0, X, Y)),
    "where of numbers": ("tl.where(a > 0, 1.0, -1)", lambda: np.where(X > 0, 1.0, -1.0)),
    "a choice of numbers": ("1 if M > 3 else a", lambda: np.array(1)),
    "maximum": ("tl.maximum(a, b)", lambda: np.maximum(X, Y)),
    "python's min": ("min(a, b, 0.5)", lambda: np.minimum(np.minimum(X, Y), 0.5)),
    "clamp": ("tl.clamp(a, -0.5, 0.5)", lambda: X.clip(-0.5, 0.5)),
    "abs": ("abs(a) + tl.abs(b)", lambda: abs(X) + abs(Y)),
    "fma": ("tl.fma(a, b, a)", lambda: X * Y + X),
    "fdiv": ("tl.fdiv(a, b)", lambda: X / Y),
    "division of integers": ("p / 4", lambda: P / np.float32(4)),
    "division towards zero": ("(p - 16) // 3 * 100 + (p - 16) % 3", lambda: np.trunc((P - 16) / 3) * 100 + TURNED),
    "cdiv": ("tl.cdiv(p, 5) + tl.cdiv(7, 2)", lambda: (P + 4) // 5 + 4),
    "shifts": ("(p << 3) >> 1", lambda: (P << 3) >> 1),
    "bits": ("(p & 5) | (p ^ 3)", lambda: (P & 5) | (P ^ 3)),
    "logic": ("tl.where((a > 0) & (b > 0) | ~(a > -1), 1, 0)", lambda: ((X > 0) & (Y > 0)) | ~(X > -1)),
    "chained comparison": ("tl.where(-0.5 < a < 0.5, 1, 0)", lambda: (X > -0.5) & (X < 0.5)),
    "umulhi": ("tl.umulhi(p, 0x9E3779B9).to(tl.int32)", lambda: HIGH),
    "exp": ("tl.exp(a) + tl.exp2(a)", lambda: np.exp(X) + np.exp2(X)),
    "log": ("tl.log(tl.abs(a)) + tl.log2(tl.abs(b))", lambda: np.log(abs(X)) + np.log2(abs(Y))),
    "roots": ("tl.sqrt(tl.abs(a)) + tl.rsqrt(tl.abs(b))", lambda: np.sqrt(abs(X)) + 1 / np.sqrt(abs(Y))),
    "trigonometry": ("tl.sin(a) * tl.cos(b)", lambda: np.sin(X) * np.cos(Y)),
    "libdevice": ("tl.libdevice.tanh(a) + tl.math.atan2(a, b)", lambda: np.tanh(X) + np.arctan2(X, Y)),
    "floor": ("tl.floor(a) + tl.ceil(b)", lambda: np.floor(X) + np.ceil(Y)),
    "erf": ("tl.erf(a)", lambda: np.vectorize(__import__("math").erf)(X)),
    "sigmoid": ("tl.sigmoid(a)", lambda: 1 / (1 + np.exp(-X))),
    "softmax": ("tl.softmax(a)", lambda: SOFT),
    "reshape": ("tl.reshape(a, N, M)", lambda: X.reshape(N, M)),
    "view": ("a.view([M * N])", lambda: X.ravel()),
    "reshape with one left out": ("a.reshape(2, -1)", lambda: X.reshape(2, -1)),
    "ravel": ("tl.ravel(a)", lambda: X.ravel()),
    "trans": ("tl.trans(a) + a.T", lambda: 2 * X.T),
    "permute": ("tl.permute(a[:, None, :], (2, 0, 1))", lambda: X[:, None].transpose(2, 0, 1)),
    "expand_dims": ("tl.expand_dims(a, 1)", lambda: X[:, None]),
    "broadcast": ("tl.broadcast(a, b[:, :])[0]", lambda: X),
    "broadcast_to": ("tl.broadcast_to(tl.sum(a, 0)[None, :], (M, N))", lambda: np.broadcast_to(X.sum(0), (M, N))),
    "join": ("tl.join(a, b)", lambda: np.stack([X, Y], -1)),
    "split": ("tl.split(tl.join(a, b))[1]", lambda: Y),
    "interleave": ("tl.interleave(a, b)", lambda: np.stack([X, Y], -1).reshape(M, 2 * N)),
    "cat": ("tl.cat(a, b, dim=1)", lambda: np.concatenate([X, Y], 1)),
    "flip": ("tl.flip(a, 0) + tl.flip(a)", lambda: X[::-1] + X[:, ::-1]),
    "gather": ("tl.gather(a, p % M, 0)", lambda: np.take_along_axis(X, P % M, 0)),
    "gather along rows": ("tl.gather(a, p % N, 1)", lambda: np.take_along_axis(X, P % N, 1)),
    "sum": ("tl.sum(a, 1)", lambda: X.sum(1)),
    "sum of all": ("tl.sum(a)", lambda: X.sum()),
    "sum that keeps": ("a.sum(1, keep_dims=True)", lambda: X.sum(1, keepdims=True)),
    "sum of truth values": ("tl.sum(a > 0, 0)", lambda: (X > 0).sum(0)),
    "max": ("tl.max(a, 0) - tl.min(a, 0)", lambda: X.max(0) - X.min(0)),
    "max of halves is wide": (
        "tl.max(h, 0) if tl.max(h, 0).dtype == tl.float32 else a", lambda: X.astype(np.float16).max(0)
    ),
    "max with places": ("tl.max(a, 1, return_indices=True)[1]", lambda: X.argmax(1)),
    "argmin": ("tl.argmin(a, axis=1)", lambda: X.argmin(1)),
    "xor_sum": ("tl.xor_sum(p, 1)", lambda: np.bitwise_xor.reduce(P, 1)),
    "any and all": ("tl.any(a > 1, 1).to(tl.int32) + tl.all(a > -2, 1).to(tl.int32)", lambda: BOTH),  # type: ignore[return-value]
    "cumsum": ("tl.cumsum(a, 1)", lambda: X.cumsum(1)),
    "cumsum backwards": ("tl.cumsum(a, 0, reverse=True)", lambda: X[::-1].cumsum(0)[::-1]),
    "cumprod": ("tl.cumprod(a, 0)", lambda: X.cumprod(0)),
    "sort": ("tl.sort(a)", lambda: np.sort(X)),
    "sort downwards": ("tl.sort(p, descending=True)", lambda: -np.sort(-P)),
    "histogram": ("tl.histogram(tl.ravel(p) % 3, 3)", lambda: np.bincount(P.ravel() % 3)),
    "reduce": ("tl.reduce(a, 1, added)", lambda: X.sum(1)),
    "reduce of all": ("tl.reduce(a, None, added)", lambda: X.sum()),
    "reduce of two": ("tl.reduce((a, p), 1, better)[1]", lambda: P[np.arange(M), X.argmax(1)]),
    "reduce in order": ("tl.reduce(tl.ravel(p), 0, second)", lambda: P.ravel()[-1]),
    "scan": ("tl.associative_scan(a, 1, added)", lambda: X.cumsum(1)),
    "scan backwards": ("tl.associative_scan(a, 0, added, reverse=True)", lambda: X[::-1].cumsum(0)[::-1]),
    "dot": ("tl.dot(a, tl.trans(b))", lambda: X @ Y.T),
    "dot with accumulator": ("tl.dot(a, b.T, tl.full([M, M], 1.0, tl.float32))", lambda: X @ Y.T + 1),
    "dot of integers": ("tl.dot(p.to(tl.int8), p.to(tl.int8).T)", lambda: P @ P.T),
    "dot into halves": ("tl.dot(a, b.T, out_dtype=tl.float16)", lambda: (X @ Y.T).astype(np.float16)),
    "conversion": ("a.to(tl.int32)", lambda: X.astype(np.int32)),
    "bits as another type": ("a.to(tl.int32, bitcast=True)", lambda: X.view(np.int32)),
    "tuples": ("swapped(a, b)[0] - swapped(a, b)[1]", lambda: Y - X),
    "text and types": ("a if f'{M}x{N}' == '4x8' and a.dtype.is_floating() and a.shape[1] == N else b", lambda: X),
}  # fmt: skip

PARAMETERS = "x, y, q, out, M: tl.constexpr, N: tl.constexpr, SHAPE: tl.constexpr"
BODY = """at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
a, b, p = tl.load(x + at), tl.load(y + at), tl.load(q + at)
h = a.to(tl.float16)
made = {}
flat = tl.reshape(made, [SHAPE]) if SHAPE > 0 else made
tl.store(out + tl.arange(0, SHAPE) if SHAPE > 0 else out, flat)
"""


def kernel_of(expression: str) -> KernelFunction:
    return made(BODY.format(expression), PARAMETERS)


@pytest.mark.parametrize("case", CASES)
def test_function(case: str) -> None:
    expression, expected_of = CASES[case]
    expected = np.asarray(expected_of())
    is_float = expected.dtype.kind == "f"
    out = tg.empty(max(1, expected.size), dtype=tg.float32 if is_float else tg.int32)
    size = expected.size if expected.shape else 0
    k = kernel_of(expression)
    for run in (k, k.check):
        run[(1,)](tg.tensor(X), tg.tensor(Y), tg.tensor(P), out, M, N, size)
        np.testing.assert_allclose(out.numpy().reshape(expected.shape), expected, 2e-5 if is_float else 0, 1e-5)
        out.zero_()


@pytest.mark.parametrize("dtype", [tg.float32, tg.int8])
def test_a_product_added_to_what_is_needed_again(dtype: tg.DType) -> None:
    total = "float32" if dtype is tg.float32 else "int32"
    k = made(
        f"""i = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
a = tl.load(x + i)
total = tl.zeros((32, 32), tl.{total})
for t in range(n):
    other = tl.dot(a, a, total)
    tl.store(once + i, other)
    total = tl.dot(a, a, total)
tl.store(out + i, total)""",
        "x, out, once, n",
    )
    out, once = (tg.empty(32, 32, dtype=getattr(tg, total)) for _ in range(2))
    k[(1,)](tg.ones(32, 32, dtype=dtype), out, once, 2)
    assert (out == 64).all().item()
    assert (once == 64).all().item()
