"""Operands besides tensors: numpy arrays, and operands that functions refuse."""

import operator
import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import ArgumentError, TilegradError

A = np.array([1.0, 2.0, 4.0])
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.mod, operator.floordiv]
OPERATORS += [operator.lt, operator.ge, operator.eq, operator.ne, operator.matmul]


@pytest.mark.parametrize("op", OPERATORS)
def test_arrays_on_either_side(op: Callable[[Any, Any], Any]) -> None:
    x = tg.tensor([3.0, 2.0, 0.5])
    own = x.numpy()
    for left, right, wanted in ((x, A, op(own, A)), (A, x, op(A, own))):
        result = op(left, right)
        assert isinstance(result, tg.Tensor)
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-6)


def test_gradients_flow_past_arrays() -> None:
    x = tg.ones(3, requires_grad=True)
    (A * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == A.tolist()


def test_a_traced_function_does_not_freeze_an_array() -> None:
    with pytest.raises(ArgumentError, match="wrap it"):
        tg.jit(lambda x: x * A)(tg.ones(3))


@pytest.mark.parametrize(
    ("reduce", "own", "dim"), list(product(("sum", "mean", "amax", "amin", "prod"), (True, False), (0, 1)))
)
def test_scatter_reduce(reduce: str, own: bool, dim: int) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, source = rng.normal(size=(4, 5)).astype(np.float32), rng.normal(size=(3, 4)).astype(np.float32)
    index = rng.integers(0, 4, (3, 4))
    found: list[list[Any]] = []
    for library in (torch, tg):
        a, b = library.tensor(x, requires_grad=True), library.tensor(source, requires_grad=True)
        y = a.scatter_reduce(dim, library.tensor(index), b, reduce, include_self=own)
        found.append([y.detach().numpy()])
        if reduce != "prod":
            (y * y).sum().backward()
            found[-1] += [a.grad.numpy(), b.grad.numpy()]
        whole = library.tensor((x * 10).astype(np.int64))
        given = library.tensor((source * 10).astype(np.int64))
        found[-1].append(whole.scatter_reduce(dim, library.tensor(index), given, reduce, include_self=own).numpy())
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_refused() -> None:
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: tg.nn.functional.one_hot(tg.tensor([-1]), 4), "-1"),
        (lambda: tg.nn.functional.one_hot(tg.tensor([4]), 4), "4"),
        (lambda: tg.bernoulli(tg.ones(2), p=2), "probability"),
        (lambda: tg.ones(2).bernoulli_(-0.5), "probability"),
        (lambda: tg.zeros(2).scatter_reduce(0, tg.tensor([0]), tg.ones(1), "median"), "'mean'"),
    ]
    for call, words in cases:
        with pytest.raises(TilegradError, match=words):
            call()


X = np.ones((2, 3), np.float32)
WRONG: dict[str, tuple[Any, ...]] = {
    "relu": (X,),
    "celu": ([1.0],),
    "leaky_relu_": ([1.0],),
    "pad": ([1.0], (1, 1)),
    "layer_norm": (X, (3,)),
    "group_norm": (X, 2),
    "embedding": (tg.tensor([1]), X),
    "max_pool2d": (X, 2),
    "cosine_similarity": (X, tg.ones(2, 3)),
    "mse_loss": (tg.ones(2, 3), [1.0]),
    "triplet_margin_loss": (X, X, X),
    "multi_margin_loss": (X, tg.tensor([1, 1])),
    "scaled_dot_product_attention": (X, X, X),
    "multi_head_attention_forward": ([1.0], X, X, 4, 2, None, None, None, None, False, 0.0, X, X),
    "interpolate": (X, 2),
    "dropout": (X,),
    "fractional_max_pool2d": (X, 2, 1),
}


@pytest.mark.parametrize("name", WRONG)
def test_functions_of_networks_name_what_is_no_tensor(name: str) -> None:
    with pytest.raises(ArgumentError, match=r"(ndarray|list).*wrap it: tilegrad.tensor"):
        getattr(tg.nn.functional, name)(*WRONG[name])


def test_functions_of_networks_can_be_pickled() -> None:
    for name in ("relu", "elu_", "cross_entropy", "max_pool2d_with_indices"):
        function = getattr(tg.nn.functional, name)
        assert pickle.loads(pickle.dumps(function)) is function
    layer = tg.nn.TransformerEncoderLayer(4, 2, activation=tg.nn.functional.gelu)
    assert pickle.loads(pickle.dumps(layer)).activation is tg.nn.functional.gelu


def test_a_tensor_of_another_library_is_named() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match="not a Tensor of torch; wrap it"):
        tg.ones(2) + torch.ones(2)
    with pytest.raises(ArgumentError, match="input is a Tensor of torch, not a tensor"):
        tg.nn.functional.relu6(torch.ones(2))


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16], ids=str)
def test_a_number_beside_16_bits_keeps_its_range_and_digits(dtype: tg.DType) -> None:
    """Products are of float32 and rounded once, as PyTorch's: float16 has no 1e5, and 0.1 only to three digits."""
    x = tg.tensor(np.concatenate([[1e-3, 2.0, -3.0], np.random.default_rng(0).standard_normal(100)])).to(dtype)
    exact = x.to(tg.float32).numpy()
    jitted = tg.jit(lambda x, n: (x * n, n * x, x / n))
    for number in (1e5, 0.1, 3e-6, 1 / 3, 7.0):
        n = np.float32(number)
        wanted = [tg.tensor(a).to(dtype).to(tg.float32).numpy() for a in (exact * n, exact * n, exact / n)]
        for found in ((x * number, number * x, x / number), jitted(x, number)):
            for a, b in zip(found, wanted, strict=True):
                assert a.dtype is dtype
                np.testing.assert_array_equal(a.to(tg.float32).numpy(), b)
    x.requires_grad = True
    (x * 1e5).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype is dtype
