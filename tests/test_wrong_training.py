"""Mistakes around training, with their messages: parts of networks, data, optimizers, scalers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import data, nn, optim, simt
from tilegrad.errors import ArgumentError, IndexRangeError, KernelError, KernelLaunchError, ShapeError, TilegradError
from tilegrad.nn import functional as F

Row = tuple[Callable[[], Any], type[TilegradError], str]


def layer() -> nn.Linear:
    return nn.Linear(2, 2)


def bags(offsets: list[int]) -> tg.Tensor:
    return nn.EmbeddingBag(3, 4)(tg.tensor([0, 1, 2]), tg.tensor(offsets))


def batch(*samples: Any, **options: Any) -> Any:
    return next(iter(data.DataLoader(samples, batch_size=len(samples), **options)))


def unscaled() -> None:
    model = layer()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    model(tg.ones(1, 2)).sum().backward()
    tg.amp.GradScaler().step(optimizer)


@tg.kernel
def nothing(x, n):  # type: ignore[no-untyped-def]
    pass


PARTS: dict[str, Row] = {
    "channels": (lambda: nn.Conv2d("1", 1, 3), ArgumentError, "in_channels is an integer, not '1'"),  # type: ignore[arg-type]
    "a state of two": (
        lambda: nn.GRU(3, 4)(tg.ones(2, 2, 3), (tg.zeros(1, 2, 4), tg.zeros(1, 2, 4))),
        ArgumentError,
        "GRU: an initial state is a tensor, not a tuple",
    ),
    "a probability": (lambda: nn.Dropout("0.5"), ArgumentError, r"p is '0.5' \(str\), not a number"),  # type: ignore[arg-type]
    "more cut than there is": (lambda: F.pad(tg.ones(1, 4), (-5, 0)), ShapeError, r"pad: \(-5, 0\) cuts more"),
    "a class": (lambda: nn.Sequential(nn.ReLU), ArgumentError, r"at 0: ReLU is a class: ReLU\(...\)"),
    "a number in a list": (lambda: nn.ModuleList([3]), ArgumentError, "a module is wanted, not 3"),  # type: ignore[list-item]
    "a number by name": (lambda: nn.ModuleDict({"a": 3}), ArgumentError, "at a: a module is wanted"),  # type: ignore[dict-item]
    "a buffer of a number": (lambda: layer().register_buffer("x", 3), ArgumentError, "'x' is to be a Tensor"),  # type: ignore[arg-type]
    "a plain parameter": (
        lambda: layer().register_parameter("x", tg.ones(2)), ArgumentError, "'x' is to be a Parameter or None"
    ),  # type: ignore[arg-type]
    "a name that is taken": (
        lambda: layer().register_buffer("weight", tg.ones(2)), ArgumentError, "already has a part 'weight'"
    ),
    "a hook": (lambda: layer().register_forward_hook(3), ArgumentError, "Linear: a hook takes a function"),  # type: ignore[arg-type]
    "a mode of bags": (lambda: nn.EmbeddingBag(3, 4, mode="median"), ArgumentError, "there are sum, mean, max"),
    "bags that begin late": (lambda: bags([1, 2]), ArgumentError, r"offsets \[1, 2\] of 3 numbers: the first is 0"),
    "bags in disorder": (lambda: bags([0, 2, 1]), ArgumentError, "none is less than the one before it"),
    "bags beyond the end": (lambda: bags([0, 7]), ArgumentError, "none is more than 3"),
    "the mode of a number": (lambda: tg.tensor(2.0).mode().values + "x", ArgumentError, "'x'"),
    "an array to an activation": (
        lambda: nn.ReLU()(np.ones(2)), ArgumentError, r"relu: input is a ndarray, not a tensor"
    ),
    "a list to a network": (lambda: nn.Sequential(nn.LSTM(2, 3))([1.0]), ArgumentError, "LSTM takes tensors, not a"),
    "differences of a number": (lambda: tg.tensor(2.0).diff(), TilegradError, "at least one dimension"),
}  # fmt: skip
TRAINING: dict[str, Row] = {
    "one beta": (lambda: optim.Adam(layer().parameters(), betas=0.9), ArgumentError, "betas are two numbers"),  # type: ignore[arg-type]
    "three betas": (lambda: optim.Adam(layer().parameters(), betas=(0.9,) * 3), ArgumentError, "betas are two"),  # type: ignore[arg-type]
    "a cosine of no length": (
        lambda: optim.lr_scheduler.CosineAnnealingLR(optim.SGD(layer().parameters(), lr=1), 0),
        ArgumentError,
        "T_max is 0: it must be at least 1",
    ),
    "a closure without loss": (
        lambda: optim.LBFGS(layer().parameters()).step(lambda: None), ArgumentError, "the closure returned None"
    ),
    "a model clipped": (
        lambda: nn.utils.clip_grad_norm_(layer(), 1.0), ArgumentError, r"as model.parameters\(\) gives, not of a Linear"
    ),  # type: ignore[arg-type]
    "a loss that was not scaled": (unscaled, ArgumentError, r"no loss was scaled.*scaler.scale\(loss\).backward\(\)"),
    "a model to step": (lambda: tg.amp.GradScaler().step(layer()), ArgumentError, "takes an optimizer, not a Linear"),
    "a state of something else": (
        lambda: tg.amp.GradScaler().load_state_dict({"scale": 1.0}), ArgumentError, "the state has no growth_factor"
    ),
}  # fmt: skip
DATA: dict[str, Row] = {
    "two kinds": (lambda: batch(tg.ones(2), 1.0), ArgumentError, "two kinds, Tensor and float.*collate_fn"),
    "a text among numbers": (lambda: batch(1, "a"), ArgumentError, "two kinds, int and str"),
    "keys": (lambda: batch({"a": 1}, {"b": 1}), ArgumentError, "not all samples of a batch have the keys a, b"),
    "large integers": (lambda: batch(2**70, 1), ArgumentError, "integers of more than 64 bits, as 118059"),
    "no function": (lambda: batch(1, collate_fn=3), ArgumentError, "DataLoader: collate_fn takes a function"),
    "no sampler": (lambda: batch(1, sampler=3), ArgumentError, "sampler gives numbers.*3 cannot be iterated"),
    "outside a part": (lambda: data.Subset([1, 2, 3], [0, 1])[2], IndexRangeError, "no sample 2 in a data set of 2"),  # type: ignore[arg-type]
    "outside of two": (lambda: data.ConcatDataset([[1], [2]])[2], IndexRangeError, "no sample 2 in a data set of 2"),  # type: ignore[list-item]
    "no transforms": (lambda: data.transforms.Compose(3), ArgumentError, "a list of transforms, not a int"),  # type: ignore[arg-type]
    "no transform": (lambda: data.transforms.Compose([3]), ArgumentError, "Compose takes a function, not 3"),  # type: ignore[list-item]
}  # fmt: skip
KERNELS: dict[str, Row] = {
    "a number as kernel": (lambda: tg.kernel(3), KernelError, "a kernel is a function defined by def, and not 3"),
    "a lambda as kernel": (lambda: tg.kernel(lambda x: None), KernelError, "and not a lambda"),
    "a kernel for threads": (lambda: simt.kernel(lambda x: None), KernelError, "and not a lambda"),
    "a grid's constant": (
        lambda: nothing[lambda meta: (meta["B"],)](tg.ones(1), 1), KernelLaunchError, "its grid asks for 'B'; there are"
    ),
    "no configuration": (
        lambda: tg.autotune([{"n": 2}], key=[])(nothing), KernelError, r"a configuration is tilegrad.Config\({...}\)"
    ),  # type: ignore[list-item]
    "fewer than no registers": (lambda: simt.occupancy("H100", registers=-3), ArgumentError, "they are 0 or more"),
}  # fmt: skip
ROWS = PARTS | TRAINING | DATA | KERNELS


@pytest.mark.parametrize("case", ROWS)
def test_told(case: str) -> None:
    use, error, message = ROWS[case]
    with pytest.raises(error, match=message) as caught:
        use()
    assert "test_wrong_training.py:" in str(caught.value)


def test_samples_that_fit_are_joined() -> None:
    assert batch(True, 2.5).tolist() == [1.0, 2.5]
    assert batch(np.float32(1), np.ones((), np.float32)).tolist() == [1.0, 1.0]
    assert batch((1, [2]), [3, (4,)])[1][0].tolist() == [2, 4]


def test_the_mode_of_a_single_number() -> None:
    assert [x.tolist() for x in tg.tensor(2.0).mode()] == [2.0, 0]


def test_modules_may_be_named_again() -> None:
    """A part may be replaced by one of its kind, and left out."""
    model = layer()
    model.register_parameter("bias", None)
    model.register_buffer("mask", tg.ones(2))
    model.register_buffer("mask", None)
    assert model(tg.ones(1, 2)).shape == (1, 2)


def test_attributes_that_modules_miss_themselves_are_as_in_python() -> None:
    class Own(nn.Module):
        def forward(self, x: Any) -> Any:
            return self.missing(x)

    with pytest.raises(AttributeError, match="missing"):
        Own()(np.ones(2))
