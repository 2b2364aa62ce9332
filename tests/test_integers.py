"""Sizes, axes and counts may be 0-d tensors and integers of numpy; bools are refused, as in PyTorch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import TilegradError
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import TensorType

F = tg.nn.functional
Given = Callable[[int], Any]

CALLS: dict[str, Callable[[Any, Given], Any]] = {
    "narrow": lambda x, n: x.narrow(n(1), n(1), n(2)),
    "select": lambda x, n: x.select(n(0), n(1)),
    "split": lambda x, n: x.split(n(2), n(1)),
    "split into sizes": lambda x, n: x.split([n(1), n(3)], 1),
    "chunk": lambda x, n: x.chunk(n(2), n(1)),
    "tensor_split": lambda x, n: x.tensor_split(n(2), n(1)),
    "unbind": lambda x, n: x.unbind(n(1)),
    "unfold": lambda x, n: x.unfold(n(1), n(2), n(1)),
    "diagonal": lambda x, n: x.diagonal(n(1), n(0), n(1)),
    "transpose": lambda x, n: x.transpose(n(0), n(1)),
    "permute": lambda x, n: x.permute(n(1), n(0)),
    "reshape": lambda x, n: x.reshape(n(4), n(3)),
    "view": lambda x, n: x.view(n(2), n(6)),
    "expand": lambda x, n: x.expand(n(2), n(3), n(4)),
    "flatten": lambda x, n: x.flatten(n(0), n(1)),
    "unflatten": lambda x, n: x.unflatten(n(1), (2, 2)),
    "squeeze": lambda x, n: x.squeeze(n(0)),
    "unsqueeze": lambda x, n: x.unsqueeze(n(1)),
    "movedim": lambda x, n: x.movedim(n(0), n(1)),
    "repeat": lambda x, n: x.repeat(n(2), n(2)),
    "tile": lambda x, n: x.tile(n(2), n(2)),
    "roll": lambda x, n: x.roll(n(1), n(1)),
    "flip": lambda x, n: x.flip(n(1)),
    "rot90": lambda x, n: tg.rot90(x, n(1)),
    "tril": lambda x, n: x.tril(n(1)),
    "repeat_interleave": lambda x, n: x.repeat_interleave(2, n(1)),
    "sum": lambda x, n: x.sum(n(1)),
    "sum over several": lambda x, n: x.sum((n(0), 1)),
    "prod": lambda x, n: x.prod(n(1)),
    "mean": lambda x, n: x.mean(n(1)),
    "amax": lambda x, n: x.amax(n(1)),
    "max": lambda x, n: x.max(dim=int(n(1))),
    "argmax": lambda x, n: x.argmax(n(1)),
    "cumsum": lambda x, n: x.cumsum(n(1)),
    "softmax": lambda x, n: x.softmax(n(1)),
    "topk": lambda x, n: x.topk(n(2), n(1)),
    "kthvalue": lambda x, n: x.kthvalue(n(2), n(1)),
    "sort": lambda x, n: x.sort(n(0)),
    "index_select": lambda x, n: x.index_select(n(1), tg.tensor([0, 2])),
    "cat": lambda x, n: tg.cat([x, x], n(1)),
    "stack": lambda x, n: tg.stack([x, x], n(1)),
    "eye": lambda x, n: tg.eye(n(2), n(3)),
    "zeros": lambda x, n: tg.zeros(n(2), n(3)),
    "full": lambda x, n: tg.full((2, n(3)), 1.0),
    "linspace": lambda x, n: tg.linspace(0, 1, n(3)),
    "tril_indices": lambda x, n: tg.tril_indices(n(3), n(2)),
    "one_hot": lambda x, n: F.one_hot(x.long(), n(12)),
    "pad": lambda x, n: F.pad(x, (n(1), 2)),
    "max_pool2d": lambda x, n: F.max_pool2d(x[None], n(2)),
    "cosine_similarity": lambda x, n: F.cosine_similarity(x, x, n(1)),
}
REFUSED = set(CALLS) - {"split into sizes", "sum over several", "max", "full", "expand", "view", "flip"}


def flat(found: Any) -> list[Any]:
    return [y for x in found for y in flat(x)] if isinstance(found, (tuple, list)) else [found.tolist()]


@pytest.mark.parametrize("name", CALLS)
def test_integers_of_all_kinds(name: str) -> None:
    x = tg.arange(12.0).reshape(3, 4).realize()
    wanted = CALLS[name](x, lambda n: n)
    for given in (tg.tensor, np.int64, lambda n: tg.tensor([n]).sum()):
        found = CALLS[name](x, given)
        shapes = [n for y in (found if isinstance(found, tuple) else (found,)) for n in y.shape]
        assert all(type(n) is int for n in shapes)
        assert flat(found) == flat(wanted)
    if name in REFUSED:
        with pytest.raises(TilegradError):
            flat(CALLS[name](x, bool))


def test_a_shape_holds_integers() -> None:
    for wrong in (tg.tensor(2), np.int64(2), True, 2.0):
        with pytest.raises(TilegradError, match="a size is an integer"):
            TensorType(float32, (3, wrong))  # type: ignore[arg-type]
