"""Functions of tensors that are needed more seldom, against PyTorch's of the same name: values, dtypes, gradients."""

import math
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.test_tensor_functions import B, D, I, M, P, V, X, called, name_of, torch
from tilegrad.errors import TilegradError

N = X.copy()
N[0, 1] = N[2, 3] = np.nan
W = np.array([2, 1, 1, 3, 3, 3, 1])
Q = np.array([0.1, 0.5, 0.9], np.float32)
T = np.array([[1.0, 2.0, 2.0, 1.0], [3.0, 3.0, 1.0, 0.0]], np.float32)
K = [np.random.default_rng(n).normal(size=s) for n, s in enumerate(((3, 5), (5, 2), (2, 6), (6, 1)))]

CASES: list[tuple[Any, ...]] = [
    ("lgamma", P), ("digamma", P), ("polygamma", 1, P), ("polygamma", 2, P), ("mvlgamma", P + 2, 3), ("erfinv", P),
    ("lgamma", I), ("fmax", X, N), ("fmax", N, X), ("fmin", N, X), ("fmax", I, I + 1), ("sgn", X), ("sgn", I),
    ("nextafter", X, P), ("isposinf", X), ("isneginf", X), ("isreal", I), ("float_power", P, 2), ("float_power", 2, I),
    ("float_power", P, P), ("ldexp", X, abs(I)), ("gcd", I, I + 7), ("lcm", I, I + 7), ("gcd", I, I[0]),
    ("quantile", X, 0.3), ("quantile", X, 0.3, 1), ("quantile", X, Q, 0),
    ("quantile", X, Q, {"dim": 1, "keepdim": True}),
    ("quantile", N, 0.5, {"dim": 1}), ("nanquantile", N, 0.5, {"dim": 1}), ("nanquantile", N, Q),
    ("quantile", X, 0.3, {"keepdim": True}), ("quantile", X, 1.0, {"dim": -1}),
    *(("quantile", X, Q, {"dim": 1, "interpolation": how}) for how in ("lower", "higher", "midpoint", "nearest")),
    ("nanmean", N), ("nanmean", N, 1), ("nanmedian", N), ("nanmedian", N, {"dim": 1}), ("msort", X), ("msort", D),
    ("unique_consecutive", W), ("unique_consecutive", W, {"return_inverse": True, "return_counts": True}),
    ("isin", I, W), ("isin", I, W, {"invert": True}), ("histc", X, {"bins": 5}), ("histc", X, 4, -1.0, 1.0),
    ("cov", X), ("cov", X, {"correction": 0}), ("cov", V), ("corrcoef", X), ("dist", X, P), ("dist", X, P, 1),
    ("cdist", X, P), ("cdist", D, D[:, :2], 1.0), ("cdist", X, P, float("inf")),
    ("trapezoid", X), ("trapezoid", X, V), ("trapezoid", X, {"dx": 0.5, "dim": 0}), ("cumulative_trapezoid", X, V),
    ("atleast_2d", V), ("atleast_3d", V), ("atleast_3d", X),
    ("atleast_3d", [V, X]), ("column_stack", [V, V]), ("column_stack", [X, X]), ("dstack", [V, V]), ("dstack", [X, X]),
    ("hsplit", X, 2), ("hsplit", V, [1, 3]), ("vsplit", X, 3), ("dsplit", D, 2), ("split_with_sizes", X, (1, 3), 1),
    ("block_diag", X, M, V), ("cartesian_prod", V, W[:2].astype(np.float32)), ("combinations", V),
    ("combinations", V, 3), ("combinations", V, 2, True), ("vander", V), ("vander", V, 3, True), ("diagflat", X),
    ("diagflat", V, 1), ("unravel_index", I[:1] + 9, (5, 4)), ("select_scatter", X, V, 0, 1),
    ("slice_scatter", X, X[:, :2], 1, 0, 4, 2), ("diagonal_scatter", X, V[:3]), ("cross", X[:, :3], P[:, :3]),
    ("cross", D, D * 2), ("vdot", V, V), ("addbmm", D[0, :, :3], D, D.swapaxes(1, 2), {"beta": 2, "alpha": 3}),
    ("chain_matmul", *K), ("matrix_power", M[:, :4], 5), ("matrix_power", M[:, :4], 1),
    ("broadcast_shapes", (2, 1), (3,)),
    ("conv1d", D, D[:1, :, :2]), ("layer_norm", X, (4,)), ("max_pool1d", D, 2), ("pairwise_distance", X, P),
    ("cosine_similarity", X, P), ("selu", X), ("is_nonzero", V[:1]), ("is_same_size", X, P), ("is_signed", X),
    ("hann_window", 7), ("hamming_window", 8, False), ("blackman_window", 9), ("bartlett_window", 6),
    ("hann_window", 1, False),
]  # fmt: skip


NO_GRADIENT = ("sgn", "nextafter", "vander")
"""Functions for which PyTorch has no gradient, a ZeroTensor, or an error."""


def case(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    return (given[0], given[1:-1], given[-1]) if isinstance(given[-1], dict) else (given[0], given[1:], {})


@pytest.mark.parametrize("given", [case(c) for c in CASES], ids=name_of)
def test_values_and_gradients(given: Any) -> None:
    (theirs, inputs), (ours, own) = called(torch, given, True), called(tg, given, True)
    assert len(theirs) == len(ours)
    for y, x in zip(theirs, ours, strict=True):
        if not isinstance(y, torch.Tensor):
            assert x == y
            continue
        array, wanted = x.detach().numpy(), y.detach().numpy()
        assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(array, wanted, 2e-5, 2e-6)
    flowing = [(y, x) for y, x in zip(theirs, ours, strict=True) if isinstance(y, torch.Tensor) and y.requires_grad]
    if not flowing or given[0] in NO_GRADIENT or any(isinstance(x, np.ndarray) and x is N for x in given[1]):
        return
    sum(
        y.sum() * math.e if y.dim() < 1 else (y * torch.linspace(1, 2, y.shape[-1])).sum() for y, _ in flowing
    ).backward()
    sum(x.sum() * math.e if x.dim() < 1 else (x * tg.linspace(1, 2, x.shape[-1])).sum() for _, x in flowing).backward()
    for a, b in zip(inputs, own, strict=True):
        if isinstance(a, torch.Tensor) and a.grad is not None:
            np.testing.assert_allclose(b.grad.numpy(), a.grad.numpy(), 1e-4, 1e-5, err_msg=given[0])


def test_methods_are_the_functions() -> None:
    for name in """lgamma digamma polygamma erfinv fmax fmin nextafter gcd lcm quantile nanmedian mode histc cov dist
        hsplit vsplit cross vdot matrix_power addbmm msort unique_consecutive diagflat select_scatter isneginf sgn
        ndimension nelement is_signed lgamma_ multiply_ subtract_ divide_ fill_diagonal_""".split():
        assert hasattr(tg.Tensor, name), name
        assert hasattr(torch.Tensor, name), name
    x = tg.zeros(3, 3)
    assert x.fill_diagonal_(2.0).trace().item() == 6
    assert x.multiply_(2).polygamma(1).shape == (3, 3)
    assert (x.ndimension(), x.nelement(), x.is_signed()) == (2, 9, True)


def test_weighted_covariances() -> None:
    times, weights = np.array([1, 2, 3, 1]), np.abs(V)
    for options in ({"fweights": times}, {"aweights": weights}, {"fweights": times, "aweights": weights}):
        found = [
            lib.cov(lib.tensor(X), **{k: lib.tensor(v) for k, v in options.items()}).numpy() for lib in (tg, torch)
        ]
        np.testing.assert_allclose(found[0], found[1], 1e-5, 1e-6)


def test_mode() -> None:
    """PyTorch does not specify which of the most frequent elements it points to; ours points to one of them."""
    for x, dim in ((T, 1), (T, 0), (I.astype(np.float32), 1), (I, -1), (W, 0), (B.astype(np.int32), 1)):
        values, places = tg.mode(tg.tensor(x), dim)
        assert values.tolist() == torch.mode(torch.tensor(x), dim).values.tolist()
        assert tg.tensor(x).gather(dim, places.unsqueeze(dim)).squeeze(dim).tolist() == values.tolist()
    assert tg.mode(tg.tensor(T), 1, True).values.shape == (2, 1)


def test_histograms() -> None:
    x, edges = X.ravel(), np.array([-1.0, 0.0, 0.25, 2.0], np.float32)
    for options in ({"bins": 4}, {"bins": 3, "range": (-1.0, 1.0)}, {"bins": 5, "density": True}):
        ours, theirs = tg.histogram(tg.tensor(x), **options), torch.histogram(torch.tensor(x), **options)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-5, 1e-6)
    ours, theirs = tg.histogram(tg.tensor(x), tg.tensor(edges)), torch.histogram(torch.tensor(x), torch.tensor(edges))
    assert ours.hist.tolist() == theirs.hist.tolist()


LINEAR: list[tuple[Any, ...]] = [
    ("vector_norm", X), ("vector_norm", X, 1, 0), ("vecdot", X, P), ("multi_dot", K), ("cross", X[:, :3], P[:, :3]),
    ("multi_dot", [V, M, M.T, V]), ("matrix_power", M[:, :4], 3), ("diagonal", D), ("norm", X), ("norm", X, 1),
    ("norm", D, "fro", (0, 2)), ("norm", V, 3), ("norm", D, 2, 1), ("matmul", X, M),
    *(("matrix_norm", D, kind) for kind in ("fro", 1, -1, float("inf"), float("-inf"))),
    ("matrix_norm", D, 1, (0, 2), True), ("matrix_norm", D, 1, (2, 0)),
]  # fmt: skip


@pytest.mark.parametrize("given", [case(c) for c in LINEAR], ids=name_of)
def test_linear_algebra(given: Any) -> None:
    name, args, options = given
    found = []
    for library in (torch, tg):
        tensors = [
            [library.tensor(a) for a in x]
            if isinstance(x, list)
            else library.tensor(x)
            if isinstance(x, np.ndarray)
            else x
            for x in args
        ]
        found.append(getattr(library.linalg, name)(*tensors, **options).numpy())
    assert found[0].shape == found[1].shape
    np.testing.assert_allclose(found[1], found[0], 2e-5, 1e-5)


def test_what_types_hold() -> None:
    for name in ("float16", "bfloat16", "float32", "float64"):
        ours, theirs = tg.finfo(getattr(tg, name)), torch.finfo(getattr(torch, name))
        for field in ("bits", "min", "max", "eps", "tiny", "smallest_normal", "resolution"):
            assert getattr(ours, field) == pytest.approx(getattr(theirs, field), rel=1e-12), (name, field)
    for name in ("uint8", "int8", "int16", "int32", "int64"):
        ours_, theirs_ = tg.iinfo(getattr(tg, name)), torch.iinfo(getattr(torch, name))
        assert (ours_.bits, ours_.min, ours_.max) == (theirs_.bits, theirs_.min, theirs_.max)
    assert (tg.pi, tg.e, tg.inf, tg.newaxis) == (math.pi, math.e, math.inf, None)
    assert math.isnan(tg.nan)
    assert isinstance(tg.zeros(2).shape, tg.Size)


def test_old_constructors() -> None:
    assert tg.LongTensor([1, 2]).dtype is tg.int64
    assert tg.FloatTensor(2, 3).shape == (2, 3)
    assert tg.BoolTensor([True, False]).tolist() == [True, False]
    assert [f([1]).dtype for f in (tg.DoubleTensor, tg.IntTensor, tg.ByteTensor)] == [tg.float64, tg.int32, tg.uint8]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tg.quantile(tg.ones(3), 1.5), "from 0 to 1"),
        (lambda: tg.quantile(tg.ones(3), 0.5, interpolation="cubic"), "linear, lower"),
        (lambda: tg.gcd(tg.ones(3), tg.ones(3)), "whole numbers"),
        (lambda: tg.cross(tg.ones(2), tg.ones(2)), "has 3 elements"),
        (lambda: tg.cdist(tg.ones(2, 3), tg.ones(2, 4)), "different lengths"),
        (lambda: tg.hsplit(tg.ones(2, 3), 2), "2 equal parts of 3"),
        (lambda: tg.vsplit(tg.ones(3), 3), "at least 2 dimensions"),
        (lambda: tg.matrix_power(tg.ones(2, 3), 2), "no square matrix"),
        (lambda: tg.matrix_power(tg.ones(2, 2), -1), "inverses are not there"),
        (lambda: tg.linalg.matrix_norm(tg.ones(2, 2), 2), "singular values"),
        (lambda: tg.polygamma(-1, tg.ones(2)), "counted from 0"),
        (lambda: tg.finfo(tg.int32), "use iinfo"),
        (lambda: tg.iinfo(tg.float32), "use finfo"),
        (lambda: tg.zeros(2, 2, 2).fill_diagonal_(1.0), "takes a matrix"),
        (lambda: tg.histc(tg.ones(2), 0), "must be some"),
    ],
)
def test_refused(call: Any, words: str) -> None:
    with pytest.raises(TilegradError, match=words):
        call()
