"""Calls with nonsense end in errors of ours, at the user's line, where PyTorch refuses them too."""

from collections.abc import Callable
from typing import Any

import pytest

import tilegrad as tg
from tilegrad.errors import TilegradError
from tilegrad.nn import functional as F

NAN, HUGE = float("nan"), 10**400
X = tg.arange(6).float().reshape(2, 3)
CALLS: dict[str, Callable[[], Any]] = {
    "a negative extent": lambda: tg.randn(-1),
    "a negative extent of zeros": lambda: tg.zeros(2, -1),
    "an axis that is NaN": lambda: X.argsort(NAN),
    "a negative spread": lambda: tg.normal(0.0, -1.0, (3,)),
    "negative spreads": lambda: tg.normal(0.0, tg.tensor([1.0, -1.0])),
    "a negative rate": lambda: X.clone().exponential_(-1),
    "a rate that is NaN": lambda: X.clone().exponential_(NAN),
    "a window of -2**63": lambda: tg.nn.MaxPool1d(-(2**63))(X),
    "a window of 2**63": lambda: tg.nn.MaxPool1d(2**63)(X),
    "a word in a tensor": lambda: "a" in X,
    "None in a tensor": lambda: None in X,
    "half a diagonal": lambda: X.diagonal(1.5),
    "half a triangle": lambda: X.tril(1.5),
    "None among numbers": lambda: tg.isin(None, 7),
    "a number among None": lambda: tg.isin(7, None),
    "a number of 400 digits": lambda: X * HUGE,
    "400 digits, filled": lambda: X.clone().fill_(HUGE),
    "400 digits, in a tensor": lambda: tg.tensor(HUGE),
    "up to NaN": lambda: tg.arange(0, NAN),
    "up to infinity": lambda: tg.arange(0, float("inf")),
    "-5 classes": lambda: F.one_hot(tg.tensor([1]), -5),
    "a factor that is NaN": lambda: F.interpolate(tg.zeros(1, 1, 4), scale_factor=NAN),
}  # fmt: skip
BUILTIN = dict.fromkeys(("400 digits, in a tensor", "a number of 400 digits", "400 digits, filled"), (OverflowError,))
"""Messages of Python itself, which PyTorch passes on too."""


def computed(call: Callable[[], Any]) -> None:
    made = call()
    if isinstance(made, tg.Tensor):
        made.realize()


@pytest.mark.parametrize("name", CALLS)
def test_nonsense_is_refused_by_us(name: str) -> None:
    with pytest.raises((TilegradError, *BUILTIN.get(name, ()))) as caught:
        computed(CALLS[name])
    if isinstance(caught.value, TilegradError):
        assert "test_raw_errors.py" in str(caught.value)


def test_what_is_in_a_tensor() -> None:
    assert 3 in X
    assert 3.0 in X
    assert True in X
    assert 7 not in X
    assert tg.tensor(2.0) in X
    assert tg.isin(3, X).item()
    assert tg.isin(X, 3).any().item()


@pytest.mark.parametrize(
    "call",
    [
        lambda: tg.slice_copy(X, 99),
        lambda: tg.renorm(X, 2, 0, -1.0),
        lambda: tg.isposinf("text"),
        lambda: tg.isneginf(1.5),
        lambda: tg.is_nonzero([1.5]),
        lambda: tg.einsum("ij,ij->i", {}),
    ],
)
def test_nothing_is_made_of_nonsense(call: Callable[[], Any]) -> None:
    with pytest.raises(TilegradError, match="test_raw_errors.py"):
        computed(call())
