"""Functions of tensors against PyTorch's of the same name: values, shapes and dtypes, and gradients."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch

torch = pytorch()

rng = np.random.default_rng(0)
P = rng.uniform(0.1, 0.9, (3, 4)).astype(np.float32)  # in (0, 1): in the domain of everything
X = rng.normal(size=(3, 4)).astype(np.float32)
I = rng.integers(-5, 6, (3, 4))
B = rng.integers(0, 2, (3, 4)).astype(bool)
D = rng.normal(size=(2, 3, 4))
V = rng.normal(size=4).astype(np.float32)
M = rng.normal(size=(4, 5)).astype(np.float32)
AT = rng.integers(0, 3, (3, 4))
ROWS = np.array([0, 2])
EDGES = np.array([0.2, 0.5], np.float32)

UNARY = """abs acos asin asinh atan atanh ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor frac isfinite isinf
isnan log log10 log1p log2 logical_not logit nan_to_num neg positive rad2deg reciprocal relu round rsqrt sigmoid
sign signbit sin sinc sinh sqrt square tan tanh trunc"""
UNARY_OF_INTEGERS = "abs bitwise_not exp floor isnan logical_not neg relu round sigmoid sign sin sqrt square"
BINARY = """add atan2 copysign div eq floor_divide fmod ge gt le logical_and logical_or logical_xor lt maximum minimum
mul ne remainder sub xlogy"""
WITH_NUMBERS = "add div eq floor_divide fmod lt mul remainder sub"
REDUCTIONS = "all any argmax argmin count_nonzero max mean min norm prod std sum var"
ALONG = """all amax amin any argmax argmin argsort count_nonzero cummax cummin cumprod cumsum diff
logcumsumexp logsumexp max mean median min norm prod sort std sum var"""

NO_GRADIENT = {"floor_divide", "heaviside", "scatter_reduce"}

Case = tuple[str, tuple[Any, ...], dict[str, Any]]


def calls() -> Iterator[Case]:
    """Every function with arguments, some in several ways."""
    yield from ((name, (P,), {}) for name in UNARY.split())
    yield from ((name, (I,), {}) for name in UNARY_OF_INTEGERS.split())
    for name in BINARY.split():
        yield from ((name, pair, {}) for pair in ((X, P), (I, I + 7), (X, V), (X, I), (X, D[0].T[:3, :1])))
    for name in WITH_NUMBERS.split():
        yield from ((name, pair, {}) for pair in ((X, 2.5), (I, 3), (I, 1.5)))
    yield from ((name, (X,), {}) for name in REDUCTIONS.split())
    for name in ALONG.split():
        yield name, (X,), {"dim": 1}
    for name in ("sum", "mean", "amax", "max", "argmax", "logsumexp", "var", "std", "all", "norm"):
        yield name, (X,), {"dim": 0, "keepdim": True}


OTHERS: list[tuple[Any, ...]] = [
    ("hypot", X, P), ("add", B, B), ("mul", B, B), ("add", B, 1), ("add", B, 1.5), ("pow", P, X), ("pow", 2.0, P),
    ("pow", I, 2),
    ("pow", I, 2.0), ("pow", P, 2.5), ("pow", X, 3), ("div", I, I + 7, {"rounding_mode": "floor"}),
    ("div", X, P, {"rounding_mode": "trunc"}), ("add", X, P, {"alpha": 2}), ("sub", I, I, {"alpha": 3}),
    ("clamp", X, -0.5, 0.5), ("clamp", X, {"min": 0.0}), ("clamp", I, -2, 2.5), ("where", B, X, P), ("where", B, X,
    1.0),
    ("where", B, I, 1.5), ("where", B, 1, 2), ("bitwise_and", I, I + 3), ("bitwise_or", B, ~B), ("bitwise_xor", I, 3),
    ("bitwise_left_shift", I, 2), ("bitwise_right_shift", I, 1), ("lerp", X, P, 0.3), ("addcmul", X, P, P,
    {"value": 2}),
    ("addcdiv", X, P, P, {"value": 2}), ("heaviside", X, P), ("logaddexp", X, P), ("isclose", X, X), ("allclose", X, X),
    ("equal", X, P), ("sum", X, {"dim": (0, 1)}), ("sum", I), ("sum", B, {"dim": 1}), ("sum", X, ()), ("prod", I + 6),
    ("mean", D, {"dim": (0, 2)}), ("var", D, {"dim": (0, 2), "correction": 0}), ("var", X, {"unbiased": False}),
    ("var_mean", X, {"dim": 1}), ("std_mean", X), ("aminmax", X), ("amax", D, {"dim": (0, 1)}), ("norm", X, 1),
    ("norm", X, {"p": float("inf")}), ("cumsum", I, {"dim": 0}), ("cumsum", B, {"dim": 0}), ("any", I), ("median", X),
    ("cat", [X, P], 1), ("cat", [I, P], 0), ("stack", [X, P], 1), ("hstack", [V, V]), ("vstack", [V, V]), ("flip", X,
    (0, 1)),
    ("roll", X, 1), ("roll", X, (1, 2), (0, 1)), ("tile", V, (2, 2)), ("repeat_interleave", X, 2),
    ("repeat_interleave", X, 2, {"dim": 1}), ("rot90", X), ("rot90", X, 2), ("diag", V), ("diag", X[:, :3]),
    ("diag_embed", X),
    ("trace", X), ("tril", X), ("triu", X, 1), ("meshgrid", V, V, {"indexing": "ij"}),
    ("meshgrid", V, V[:2], {"indexing": "xy"}), ("split", X, 2, 1), ("chunk", X, 3, 1), ("tensor_split", X, 3, 1),
    ("tensor_split", X, (1, 3), 1), ("unbind", X, 1), ("diagonal", D, 0, 1, 2), ("movedim", D, 0, 2), ("transpose",
    D, 0, 2),
    ("permute", D, (2, 0, 1)), ("squeeze", X[:1]), ("unsqueeze", X, -1), ("flatten", D, 1), ("narrow", X, 1, 1, 2),
    ("select", X, 1, 2), ("broadcast_to", V, (3, 4)), ("unflatten", D, 2, (2, 2)), ("ravel", D), ("swapaxes", D, 0, 1),
    ("t", X), ("matmul", X, M), ("matmul", D, M.astype(np.float64)), ("matmul", V, M), ("matmul", X, V), ("matmul",
    V, V),
    ("mm", X, M), ("mv", X, V), ("dot", V, V), ("outer", V, V), ("inner", X, X), ("kron", X, P), ("tensordot", X, M, 1),
    ("einsum", "ij,jk->ki", X, M), ("einsum", "bij->bj", D), ("addmm", M[:3], X, M, {"beta": 2, "alpha": 3}),
    ("bmm", D, D.swapaxes(1, 2)), ("gather", X, 0, AT), ("gather", X, 1, AT), ("take_along_dim", X, AT[:, :1], 1),
    ("take", X, AT), ("index_select", X, 1, ROWS), ("masked_select", X, B), ("nonzero", I), ("argwhere", I),
    ("masked_fill", X, B, 2.0), ("scatter", X, 1, AT, 3.0), ("scatter_add", X, 1, AT, P), ("index_add", X, 0, ROWS,
    P[:2]),
    ("index_copy", X, 0, ROWS, P[:2]), ("index_fill", X, 0, ROWS, 1.0), ("scatter_reduce", X, 0, AT, P, "amax"),
    ("topk", X, 2), ("topk", X, 2, 0, False), ("kthvalue", X, 2), ("sort", X, 0, True), ("unique", I),
    ("unique", I, {"return_inverse": True, "return_counts": True}), ("bincount", np.array([1, 2, 2, 5])),
    ("bucketize", P, EDGES), ("searchsorted", EDGES, P), ("softmax", X, {"dim": 1}), ("log_softmax", X, {"dim": 0}),
    ("result_type", X, 1.5), ("masked_scatter", X, B, P), ("multiply", X, P), ("clip", X, 0.1, 0.2),
]  # fmt: skip


def cases() -> list[Case]:
    rest = [(c[0], c[1:-1], c[-1]) if isinstance(c[-1], dict) else (c[0], c[1:], {}) for c in OTHERS]
    return [*calls(), *rest]


def given(library: Any, x: Any, track: bool = False) -> Any:
    if isinstance(x, np.ndarray):
        made = library.tensor(np.ascontiguousarray(x))
        return made.requires_grad_() if track and x.dtype.kind == "f" else made
    return [given(library, y, track) for y in x] if isinstance(x, list) else x


def flat(x: Any) -> list[Any]:
    return [z for y in x for z in flat(y)] if isinstance(x, (tuple, list)) else [x]


def called(library: Any, case: Case, track: bool = False) -> tuple[list[Any], list[Any]]:
    """The result of a function, and its arguments afterwards."""
    name, args, options = case
    inputs = [given(library, x, track) for x in args]
    on_method = name in ("masked_scatter",) or not hasattr(library, name)
    fn = getattr(library.Tensor if on_method else library, name)
    return flat(fn(*inputs, **options)), flat(inputs)


def name_of(case: Case) -> str:
    return case[0]


@pytest.mark.parametrize("case", cases(), ids=name_of)
def test_values(case: Case) -> None:
    expected, actual = called(torch, case)[0], called(tg, case)[0]
    assert len(actual) == len(expected)
    for y, x in zip(expected, actual, strict=True):
        if not isinstance(y, torch.Tensor):
            assert repr(x) == repr(y).replace("torch", "tilegrad")
            continue
        array = x.numpy()
        assert (array.dtype, array.shape) == (y.numpy().dtype, tuple(y.shape))
        np.testing.assert_allclose(array, y.numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize("case", cases(), ids=name_of)
def test_gradients(case: Case) -> None:
    """All gradients, from random numbers flowing into every floating-point result."""
    if case[0] in NO_GRADIENT:
        pytest.skip(f"{case[0]} has no gradient")
    results, inputs = called(torch, case, True)
    flowing = [y for y in results if isinstance(y, torch.Tensor) and y.requires_grad]
    if not flowing:
        pytest.skip("no gradient in PyTorch either")
    ups = [np.random.default_rng(7).normal(size=y.shape).astype(y.detach().numpy().dtype) for y in flowing]
    try:
        torch.autograd.backward(flowing, [torch.tensor(u) for u in ups])
    except RuntimeError as problem:
        if "is not implemented" not in str(problem):
            raise
        pytest.skip(f"{problem} in this PyTorch")
    own_results, own_inputs = called(tg, case, True)
    own_flowing = [y for y in own_results if isinstance(y, tg.Tensor) and y.requires_grad]
    assert len(own_flowing) == len(flowing)
    tg.autograd.backward(own_flowing, [tg.tensor(u) for u in ups])
    for x, y in zip(own_inputs, inputs, strict=True):
        if isinstance(y, torch.Tensor) and y.requires_grad:
            expected = torch.zeros_like(y) if y.grad is None else y.grad
            actual = tg.zeros_like(x) if x.grad is None else x.grad
            np.testing.assert_allclose(actual.numpy(), expected.numpy(), 1e-4, 1e-5)


def test_what_is_no_number_is_not_equal() -> None:
    x = tg.ones(1)
    assert (x == None, x != "a", None == x, x == [1.0], x in (None, "x")) == (False, True, False, False, False)  # noqa: E711


def test_take_counts_from_the_end_too() -> None:
    assert tg.arange(6).reshape(2, 3).take(tg.tensor([[0, -1], [-6, 5]])).tolist() == [[0, 5], [0, 5]]
