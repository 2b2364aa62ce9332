"""Arguments that PyTorch refuses, and impossible numbers: the message names them and the remedy."""

from collections.abc import Callable
from typing import Any

import pytest

import tilegrad as tg
from tilegrad import nn, optim
from tilegrad.errors import ArgumentError, DTypeError, ShapeError, TilegradError
from tilegrad.nn import functional as F

X, ROWS = tg.ones(3), tg.ones(3, 2, 4)
LOG, LABELS = tg.zeros(5, 2, 4), tg.ones(2, 3, dtype=tg.int64)
WEIGHTS = [tg.ones(2, requires_grad=True)]


def of_another(first: type[optim.Optimizer], second: type[optim.Optimizer]) -> Callable[[], None]:
    return lambda: first(WEIGHTS, lr=0.1).load_state_dict(second(WEIGHTS, lr=0.1).state_dict())  # type: ignore[call-arg, arg-type]


CASES: dict[str, tuple[Callable[[], Any], type[TilegradError], str]] = {
    "one value a group": (
        lambda: nn.GroupNorm(6, 6)(tg.ones(1, 6)),
        ShapeError,
        r"\(1, 6\) has one value for each of 6",
    ),
    "limits": (lambda: F.hardtanh(X, 1, -1), ArgumentError, "min_val=1 is more than max_val=-1"),
    "huber": (lambda: F.huber_loss(X, X, delta=0), ArgumentError, "delta=0"),
    "smooth l1": (lambda: F.smooth_l1_loss(X, X, beta=-1), ArgumentError, "beta=-1"),
    "ignored probabilities": (lambda: F.cross_entropy(X, X, ignore_index=1), ArgumentError, "ignore_index=1 is for"),
    "no classes": (lambda: F.one_hot(tg.zeros(0, dtype=tg.int64)), ArgumentError, "give num_classes"),
    "no pixels": (lambda: F.affine_grid(tg.ones(1, 2, 3), (1, 1, 0, 2)), ShapeError, r"\(1, 1, 0, 2\)"),
    "long input": (
        lambda: F.ctc_loss(LOG, LABELS, (5, 6), (3, 2)),
        ArgumentError,
        r"input_lengths are \[5, 6\].*0 to 5",
    ),
    "long target": (lambda: F.ctc_loss(LOG, LABELS, (5, 5), (4, 2)), ArgumentError, r"\[4, 2\].*0 to 3"),
    "negative target": (lambda: F.ctc_loss(LOG, LABELS, (5, 5), (3, -2)), ArgumentError, r"\[3, -2\]"),
    "not packed": (lambda: nn.utils.rnn.pad_packed_sequence(X), ArgumentError, "pack_padded_sequence"),  # type: ignore[arg-type]
    "whole parameters": (lambda: nn.Linear(2, 2).to(tg.int64), DTypeError, "no int64"),
    "batches": (lambda: nn.MultiheadAttention(4, 2)(ROWS, ROWS[:, :1], ROWS[:, :1]), ShapeError, "batches of queries"),
    "uniform": (lambda: nn.init.uniform_(tg.ones(2), 2, 1), ArgumentError, "from 2 to 1"),
    "truncated": (lambda: nn.init.trunc_normal_(tg.ones(2), a=2, b=1), ArgumentError, "from"),
    "deviation": (lambda: nn.init.normal_(tg.ones(2), std=-1), ArgumentError, "std=-1"),
    "negative weights": (lambda: tg.multinomial(tg.tensor([1.0, -1.0]), 1), ArgumentError, "0 or more"),
    "weights of 0": (lambda: tg.multinomial(tg.tensor([[1.0, 1.0], [0.0, 0.0]]), 1), ArgumentError, "in each row"),
    "probability": (lambda: tg.bernoulli(tg.tensor([0.5, 1.5])), ArgumentError, "from 0 to 1"),
    "group": (lambda: optim.SGD(WEIGHTS, lr=0.1).add_param_group([1]), ArgumentError, "a group is a dict"),  # type: ignore[arg-type]
    "SGD of Adam": (of_another(optim.SGD, optim.Adam), ArgumentError, "no momentum, dampening but .*betas"),
    "Adam of SGD": (of_another(optim.Adam, optim.SGD), ArgumentError, "no betas, eps but dampening, momentum"),
    "no epochs": (lambda: optim.lr_scheduler.PolynomialLR(optim.SGD(WEIGHTS, lr=0.1), 0), ArgumentError, "at least 1"),
    "no samples": (lambda: tg.data.RandomSampler([1], num_samples=-1), ArgumentError, "num_samples=-1"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    use, error, message = CASES[name]
    with pytest.raises(error, match=message):
        use()


def test_a_switch_may_be_missing() -> None:
    """States of older versions have fewer of them."""
    optimizer = optim.Adam(WEIGHTS)
    state = optimizer.state_dict()
    del state["param_groups"][0]["decoupled_weight_decay"]
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is False
