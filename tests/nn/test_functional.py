"""Every function of nn.functional against PyTorch: values and gradients."""

import math
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tests.recorded import pytorch
from tilegrad.errors import IndexRangeError
from tilegrad.nn import functional as F

torch = pytorch()

ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    ("relu", {}),
    ("relu6", {}),
    ("sigmoid", {}),
    ("tanh", {}),
    ("tanhshrink", {}),
    ("silu", {}),
    ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
    ("elu", {}),
    ("elu", {"alpha": 0.7}),
    ("celu", {"alpha": 0.7}),
    ("selu", {}),
    ("leaky_relu", {}),
    ("leaky_relu", {"negative_slope": 0.2}),
    ("softplus", {}),
    ("softplus", {"beta": 2.0, "threshold": 3.0}),
    ("softsign", {}),
    ("mish", {}),
    ("logsigmoid", {}),
    ("hardtanh", {"min_val": -0.5, "max_val": 2.0}),
    ("hardsigmoid", {}),
    ("hardswish", {}),
    ("softmax", {"dim": 1}),
    ("softmin", {"dim": 0}),
    ("log_softmax", {"dim": -1}),
    ("normalize", {}),
]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(np.float32)


def same(ours: Any, theirs: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance)


def both(array: np.ndarray) -> tuple[Any, Any]:
    """The same tensor here and in PyTorch, wanting a gradient."""
    return tg.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)


def compare(ours: Any, theirs: Any, *inputs: tuple[Any, Any]) -> None:
    """Values are equal, and so are the gradients of a weighted sum."""
    same(ours, theirs)
    weights = random(*theirs.shape, seed=9)
    (ours * tg.tensor(weights)).sum().backward()
    (theirs * torch.tensor(weights)).sum().backward()
    for x, y in inputs:
        same(x.grad, y.grad)


@pytest.mark.parametrize(("name", "settings"), ACTIVATIONS, ids=str)
def test_activation(name: str, settings: dict[str, Any]) -> None:
    x, y = both(random(5, 7))
    compare(getattr(F, name)(x, **settings), getattr(torch.nn.functional, name)(y, **settings), (x, y))


@pytest.mark.parametrize("name", ["elu", "selu", "celu", "softplus", "silu", "gelu", "logsigmoid", "mish"])
def test_gradients_are_finite_far_out(name: str) -> None:
    """The branch of a `where` that is not taken must not bring in 0 * inf."""
    x, y = both(np.array([-1e4, -100, -50, 50, 100, 1e4], np.float32))
    compare(getattr(F, name)(x), getattr(torch.nn.functional, name)(y), (x, y))


@pytest.mark.parametrize("shape", [(6,), (4, 6), (2, 3, 6), (0, 6)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@checklist(38)
def test_linear(shape: tuple[int, ...], bias: bool) -> None:
    x, w, b = both(random(*shape)), both(random(5, 6, seed=1)), both(random(5, seed=2))
    ours = F.linear(x[0], w[0], b[0] if bias else None)
    theirs = torch.nn.functional.linear(x[1], w[1], b[1] if bias else None)
    compare(ours, theirs, x, w, *([b] if bias else []))


@pytest.mark.parametrize("shape", [(6,), (4, 6), (2, 0, 6)], ids=str)
def test_linear_with_a_weight_of_one_axis(shape: tuple[int, ...]) -> None:
    x, w = both(random(*shape)), both(random(6, seed=1))
    compare(F.linear(x[0], w[0]), torch.nn.functional.linear(x[1], w[1]), x, w)


@pytest.mark.parametrize("padding", [None, 2, -1])
def test_embedding(padding: int | None) -> None:
    numbers = np.array([[0, 2, 2], [5, 1, 0]])
    w = both(random(6, 4))
    ours = F.embedding(tg.tensor(numbers), w[0], padding_idx=padding)
    compare(ours, torch.nn.functional.embedding(torch.tensor(numbers), w[1], padding_idx=padding), w)


@pytest.mark.parametrize("normalized", [(6,), (3, 6)], ids=str)
def test_layer_norm(normalized: tuple[int, ...]) -> None:
    x, w, b = both(random(4, 3, 6)), both(random(*normalized, seed=1)), both(random(*normalized, seed=2))
    ours = F.layer_norm(x[0], normalized, w[0], b[0])
    compare(ours, torch.nn.functional.layer_norm(x[1], normalized, w[1], b[1]), x, w, b)


def test_prelu() -> None:
    x, w = both(random(4, 3, 5)), both(random(3, seed=1))
    compare(F.prelu(x[0], w[0]), torch.nn.functional.prelu(x[1], w[1]), x, w)


def test_one_hot() -> None:
    numbers = np.array([[0, 3], [1, 1]])
    for count in (-1, 6):
        same(F.one_hot(tg.tensor(numbers), count), torch.nn.functional.one_hot(torch.tensor(numbers), count))


REDUCTIONS = ["none", "mean", "sum"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 5, 2), (2, 5, 2, 3)], ids=str)
@checklist(147)
def test_cross_entropy_of_class_numbers(
    shape: tuple[int, ...], weighted: bool, smoothing: float, reduction: str
) -> None:
    x = both(random(*shape))
    wanted = np.random.default_rng(1).integers(0, 5, (*shape[:1], *shape[2:]) if len(shape) > 1 else ())
    if wanted.ndim:
        wanted.flat[0] = 3  # ignored below
    weight = np.abs(random(5, seed=2))
    kwargs = {"reduction": reduction, "label_smoothing": smoothing, "ignore_index": 3 if wanted.ndim else -100}
    ours = F.cross_entropy(x[0], tg.tensor(wanted), tg.tensor(weight) if weighted else None, **kwargs)
    given = torch.tensor(weight) if weighted else None
    compare(ours, torch.nn.functional.cross_entropy(x[1], torch.tensor(wanted), given, **kwargs), x)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 5, 2)], ids=str)
def test_cross_entropy_of_probabilities(shape: tuple[int, ...], smoothing: float, reduction: str) -> None:
    x = both(random(*shape))
    share = np.abs(random(*shape, seed=1))
    weight = np.abs(random(5, seed=2))
    kwargs = {"reduction": reduction, "label_smoothing": smoothing}
    ours = F.cross_entropy(x[0], tg.tensor(share), tg.tensor(weight), **kwargs)
    theirs = torch.nn.functional.cross_entropy(x[1], torch.tensor(share), torch.tensor(weight), **kwargs)
    compare(ours, theirs, x)


@checklist(147)
def test_cross_entropy_of_huge_logits() -> None:
    x = both(np.array([[1e4, -1e4, 0], [-1e4, 1e4, 1e4]], np.float32))
    wanted = np.array([1, 2])
    compare(F.cross_entropy(x[0], tg.tensor(wanted)), torch.nn.functional.cross_entropy(x[1], torch.tensor(wanted)), x)


def test_a_class_that_does_not_exist_is_not_passed_over() -> None:
    logits, wrong = tg.tensor(random(80, 3)), tg.tensor([0, 3] * 40)
    with pytest.raises(IndexRangeError, match="the class 3, but there are 3 classes, 0 to 2"):
        F.cross_entropy(logits, wrong)
    assert np.isnan(F.cross_entropy(logits, wrong.abs()).item()), "classes that are not known yet"


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_distance(name: str, reduction: str) -> None:
    x, y = both(random(4, 5)), both(random(4, 5, seed=1))
    ours = getattr(F, name)(x[0], y[0], reduction=reduction)
    compare(ours, getattr(torch.nn.functional, name)(x[1], y[1], reduction=reduction), x, y)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy(weighted: bool, reduction: str) -> None:
    logits, wanted, weight = (
        both(random(4, 5)),
        (random(4, 5, seed=1) > 0).astype(np.float32),
        np.abs(random(5, seed=2)),
    )
    weights = {"weight": weight, "pos_weight": weight + 1} if weighted else {}
    name = "binary_cross_entropy_with_logits"
    ours = getattr(F, name)(
        logits[0], tg.tensor(wanted), reduction=reduction, **{k: tg.tensor(v) for k, v in weights.items()}
    )
    theirs = getattr(torch.nn.functional, name)(
        logits[1], torch.tensor(wanted), reduction=reduction, **{k: torch.tensor(v) for k, v in weights.items()}
    )
    compare(ours, theirs, logits)
    p = both(1 / (1 + np.exp(-random(4, 5))))
    kept = {k: v for k, v in weights.items() if k == "weight"}
    ours = F.binary_cross_entropy(
        p[0], tg.tensor(wanted), reduction=reduction, **{k: tg.tensor(v) for k, v in kept.items()}
    )
    theirs = torch.nn.functional.binary_cross_entropy(
        p[1], torch.tensor(wanted), reduction=reduction, **{k: torch.tensor(v) for k, v in kept.items()}
    )
    compare(ours, theirs, p)


@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
def test_kl_div(reduction: str, log_target: bool) -> None:
    x, y = both(random(4, 5)), np.abs(random(4, 5, seed=1))
    y[0, 0] = 0.5 if log_target else 0
    ours = F.kl_div(x[0], tg.tensor(y), reduction=reduction, log_target=log_target)
    theirs = torch.nn.functional.kl_div(x[1], torch.tensor(y), reduction=reduction, log_target=log_target)
    compare(ours, theirs, x)


@checklist(54)
def test_dropout_keeps_the_mean_and_scales() -> None:
    tg.manual_seed(0)
    x = tg.ones(200, 200, requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    values = y.detach().numpy()
    assert set(np.unique(values)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(values.mean() - 1) < 0.01
    np.testing.assert_array_equal(x.grad.numpy(), values)
    assert F.dropout(x, 0.25, training=False) is x
    assert not F.dropout(x, 1.0).detach().numpy().any()


@pytest.mark.parametrize("name", ["huber_loss", "smooth_l1_loss"])
def test_second_derivatives_of_a_loss_that_is_a_square_near_its_target(name: str) -> None:
    """1 where both are equal, too; 0 where the two parts meet and beyond, at infinity as well."""
    x = tg.tensor([0.0, 0.5, -0.9, 1.0, -3.0, math.inf], requires_grad=True)
    loss = getattr(F, name)(x, tg.zeros(6), reduction="sum")
    (first,) = tg.autograd.grad(loss, x, create_graph=True)
    (second,) = tg.autograd.grad(first.sum(), x)
    assert first.tolist() == pytest.approx([0.0, 0.5, -0.9, 1.0, -1.0, 1.0])
    assert second.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
