"""Lines as they stand in scripts for PyTorch: each runs with both libraries, and gives the same."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import tilegrad as tg
from tests.test_tensor import plain, torch
from tilegrad.errors import ArgumentError, InPlaceError, ShapeError

LINES = """
t.arange(24.).reshape(2, 3, 4).sum(axis=1)
t.arange(24.).reshape(2, 3, 4).mean(axis=(0, 2), keepdims=True)
t.arange(6.).reshape(2, 3).max(axis=1).indices
t.cat([t.ones(1, 2), t.zeros(1, 2)], axis=1)
t.softmax(t.arange(4.), axis=0)
t.stack([t.ones(2), t.zeros(2)], axis=1)
t.arange(3).unsqueeze(axis=0).squeeze(axis=0)
t.std(t.arange(6.).reshape(2, 3), axis=1, keepdims=True)
t.zeros(size=(2, 3)), t.ones(size=(2,)), t.empty(size=(2, 3)).shape == (2, 3)
t.randn(size=(2, 3)).shape == (2, 3), t.rand(size=(4,)).shape == (4,)
t.arange(6.).reshape(shape=(2, 3)).permute(dims=(1, 0)).flip(dims=(0,))
t.permute(t.ones(1, 2, 3), dims=(2, 0, 1)), t.reshape(t.arange(4), shape=(2, 2)), t.tile(t.arange(2), dims=(2, 2))
t.flip(t.arange(3), dims=[0]), t.ones(1, 2).expand(size=(3, 2)), t.arange(2).repeat(repeats=(2, 2))
t.diff(t.tensor([1, 4, 9]), prepend=t.tensor([0]), append=t.tensor([16]))
t.diff(t.tensor([True, False, False, True])), t.diff(t.tensor([True, False, False, True]), 2)
t.tensordot(t.arange(6.).reshape(2, 3), t.arange(4.).reshape(1, 4), 1)
t.tensordot(t.arange(6.).reshape(2, 1, 3), t.arange(12.).reshape(2, 3, 2), 2)
t.tensordot(t.arange(6.).reshape(2, 3), t.ones(2, 1), ([0, 1], [0, 1]))
t.gather(t.ones(2, 2), 1, t.zeros(3, 0, dtype=t.int64))
t.ones(2, 2).scatter(0, t.zeros(3, 0, dtype=t.int64), t.ones(2, 2))
t.ones(2, 2).scatter_add(1, t.zeros(3, 0, dtype=t.int64), t.ones(2, 2))
t.atleast_1d(t.tensor(3.0), t.ones(2))
t.bucketize(t.tensor([0.3, 2.0]), t.tensor([0.0, 1.0, 2.0]), out_int32=True)
t.bucketize(1.0, t.tensor([0.0, 1.0, 2.0]), right=True)
t.searchsorted(t.tensor([1, 3, 5]), t.tensor([3, 9]), side="right")
t.searchsorted(t.tensor([[1, 3, 5], [2, 4, 6]]), t.tensor([[3, 6], [3, 6]]))
t.searchsorted(t.tensor([5, 1, 3]), t.tensor([3]), sorter=t.tensor([1, 2, 0]))
t.searchsorted(t.tensor([1., 3.]), 2)
t.repeat_interleave(t.tensor([2, 0, 1]))
t.repeat_interleave(t.arange(3), t.tensor([2, 0, 1]), output_size=3)
t.nanmean(t.tensor([1.0, float("nan")]), dtype=t.float64)
t.embedding(t.arange(6.).reshape(3, 2), t.tensor([2, 0]))
t.swapaxes(t.ones(2, 3), axis0=0, axis1=1)
t.tril_indices(3, 2, dtype=t.int32)
t.asarray([1.0, 2.0], requires_grad=True).requires_grad
t.ones(2, dtype=t.float64).new_zeros((2, 2), device="cpu").dtype == t.float64
t.ones(2).new_full((2,), 7, dtype=t.int64)
t.randperm(5, dtype=t.int32).dtype == t.int32
t.ones(2, 3).sum_to_size(1, 3)
t.zeros(3, 2).index_reduce(0, t.tensor([0, 2, 0]), t.arange(6.).reshape(3, 2), "amax")
t.ones(3, 2).index_reduce(0, t.tensor([0, 2, 0]), t.arange(6.).reshape(3, 2), "mean", include_self=False)
t.zeros(2, 2).put(t.tensor([0, -1]), t.tensor([5.0, 6.0]))
t.ones(2, 2).put_(t.tensor([1, 1]), t.tensor([5.0, 6.0]), accumulate=True)
t.renorm(t.arange(6.).reshape(2, 3), 2, 0, 1.5)
t.arange(6.).reshape(2, 3).mH, t.adjoint(t.arange(6.).reshape(2, 3))
t.ones(2, 3, 4).to(memory_format=t.channels_last_3d if False else t.contiguous_format)
t.ones(1, 2, 3, 3).contiguous(memory_format=t.channels_last).sum()
t.ones(2).clone(memory_format=t.preserve_format)
t.exp_(t.zeros(2)), t.relu_(t.tensor([-1.0, 2.0])), t.clamp_(t.arange(3), max=1), t.fill_(t.ones(2), 3)
t.tensor([6, 8]).gcd_(t.tensor([4, 12])), t.tensor([1, 2]).bitwise_left_shift_(2), t.tensor([1.0]).ldexp_(t.tensor([3]))
t.tensor([3, 5]).less_(t.tensor([4, 4])), t.tensor([0.5]).arcsin_(), t.tensor([1.7]).fix_()
t.zeros(2, 2).addr_(t.ones(2), t.ones(2)), t.zeros(2, 2).addbmm_(t.ones(1, 2, 3), t.ones(1, 3, 2))
t.ones(2).is_cpu, t.ones(1).is_nonzero(), t.ones(2).retains_grad, t.ones(2).is_sparse
t.ones(2, 3).unsqueeze_(0).shape == (1, 2, 3), t.ones(1, 2).squeeze_().shape == (2,)
t.arange(6).reshape(2, 3).t_(), t.arange(6).reshape(1, 2, 3).transpose_(0, 2), t.ones(2, 3).swapdims_(0, 1)
t.nn.functional.mse_loss(t.ones(3), t.zeros(3), False), t.nn.functional.mse_loss(t.ones(3), t.zeros(3), reduce=False)
t.nn.functional.cross_entropy(t.eye(3), t.tensor([0, 1, 2]), None, None, 1)
t.nn.functional.mse_loss(t.arange(3.), t.zeros(3), weight=t.tensor([1.0, 0.5, 2.0]))
t.nn.functional.l1_loss(t.arange(3.), t.zeros(3), reduction="sum", weight=t.tensor([1.0, 0.5, 2.0]))
t.nn.functional.huber_loss(t.arange(3.), t.zeros(3), weight=t.tensor([1.0, 0.5, 2.0]))
t.nn.MSELoss(size_average=False)(t.ones(3), t.zeros(3)), t.nn.L1Loss(reduce=False)(t.ones(3), t.zeros(3))
t.nn.CrossEntropyLoss(None, None, 1)(t.eye(3), t.tensor([0, 1, 2])), t.nn.SmoothL1Loss(None, None, "sum", 2.0).beta
t.nn.functional.conv_tbc(t.ones(5, 2, 3), t.ones(3, 3, 4), t.zeros(4), 1)
"""


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_line(line: str) -> None:
    found, wanted = (eval(line, {"t": t}) for t in (tg, torch))
    assert plain(found) == plain(wanted)


def test_shapes_change_in_place() -> None:
    def script(t: Any) -> Any:
        base = t.arange(6.0)
        x = base.view(2, 3)
        y = x[1]
        x.t_()
        x.mul_(2)  # seen by all who share the storage
        z = (t.ones(3, requires_grad=True) * 2).unsqueeze_(1)
        z.sum().backward()
        return base, x, y, x.stride(), x.shape == (3, 2)

    assert plain(script(tg)) == plain(script(torch))
    with pytest.raises(InPlaceError, match="unsqueeze_.*no_grad"):
        tg.ones(3, requires_grad=True).unsqueeze_(0)
    x = tg.ones(1, 2)
    assert tg.jit(lambda x: x.squeeze_())(x) is x
    assert x.shape == (2,)


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(TypeError, match="dtyp"):
        tg.ones(2).to(dtyp=tg.int32)
    with pytest.raises(ShapeError, match=r"\(2, 2\).*\(3, 1\)|rows of"):
        tg.searchsorted(tg.ones(2, 2), tg.ones(3, 1))
    with pytest.raises(ArgumentError, match="size_average is 'sum'"):
        tg.nn.functional.mse_loss(tg.ones(3), tg.zeros(3), "sum")
    with pytest.raises(ShapeError, match="sum_to_size"):
        tg.ones(2, 3).sum_to_size(2)


def arguments(thing: Any) -> list[str]:
    return [p.name for p in inspect.signature(thing).parameters.values()]


LOSSES = [name for name in dir(tg.nn) if name.endswith("Loss")]


@pytest.mark.parametrize(
    "name", [*LOSSES, "ELU", "Hardshrink", "GELU", "Softmax", "FractionalMaxPool2d", "AdaptiveLogSoftmaxWithLoss"]
)
def test_arguments_have_the_order_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    assert arguments(getattr(tg.nn, name)) == arguments(getattr(torch.nn, name))


def test_functions_have_the_order_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for name in dir(torch.nn.functional):
        theirs, ours = getattr(torch.nn.functional, name), getattr(tg.nn.functional, name, None)
        if ours is not None and name.endswith(("_loss", "_entropy", "_logits", "_div")) and inspect.isfunction(theirs):
            assert arguments(ours) == arguments(theirs), name


def test_a_buffer_is_registered() -> None:
    class Counting(tg.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = tg.nn.Buffer(tg.zeros(2))
            self.passing = tg.nn.Buffer(tg.ones(2), persistent=False)

    module = Counting()
    assert list(module.state_dict()) == ["count"]
    assert [name for name, _ in module.named_buffers()] == ["count", "passing"]
