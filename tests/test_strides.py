"""Strides that are PyTorch's are true wherever somebody looks: memory, files, gradients, jitted functions, kernels."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl
from tilegrad import nn
from tilegrad.errors import ShapeError

STRIDES = (1, 12, 4)


def numbers() -> np.ndarray[Any, Any]:
    return np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1)


def permuted() -> tg.Tensor:
    """A result, not a view."""
    return tg.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1) * 1


def made() -> dict[str, tg.Tensor]:
    """Tensors with these strides that came about in other ways."""
    x = permuted()
    written = permuted()
    written[0] = written[0] * 1
    in_place = permuted()
    in_place.add_(1).sub_(1)
    return {
        "a result": permuted(),
        "a view": tg.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        "a clone": x.clone(),
        "a leaf": permuted().requires_grad_(),
        "a parameter": nn.Parameter(permuted()),
        "a leaf that was a view": tg.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1).requires_grad_(),
        "detached": permuted().requires_grad_().detach(),
        "a jitted result": tg.jit(lambda x: x * 1)(x),
        "a copy": copy.deepcopy(x),
        "pickled": pickle.loads(pickle.dumps(x)),
        "partly written": written,
        "changed in place": in_place,
        "of numpy": tg.from_numpy(np.ascontiguousarray(numbers().transpose(1, 2, 0)).transpose(2, 0, 1)),
        "like another": tg.zeros_like(x).copy_(x),
    }


@pytest.mark.parametrize("kind", made())
def test_tensors_lie_as_their_strides_say(kind: str) -> None:
    x = made()[kind]
    assert x.stride() == STRIDES
    assert not x.is_contiguous()
    with pytest.raises(ShapeError, match="without moving elements"):
        x.view(-1)
    array = x.detach().numpy()
    assert array.strides == tuple(4 * s for s in STRIDES)
    np.testing.assert_array_equal(array, numbers())
    np.testing.assert_array_equal(np.from_dlpack(x.detach()), numbers())
    np.testing.assert_array_equal(x.permute(1, 2, 0).view(-1).detach().numpy(), np.arange(24))
    np.testing.assert_array_equal(x.reshape(-1).detach().numpy(), numbers().reshape(-1))
    assert x.contiguous().stride() == (6, 3, 1)
    assert x[1].stride() == STRIDES[1:]
    address = x.data_ptr()
    assert address == x.data_ptr()
    assert x[1].data_ptr() == address + 4 or kind in ("a leaf", "a parameter", "a leaf that was a view", "detached")
    file = io.BytesIO()
    tg.save(x, file)
    loaded = tg.load(io.BytesIO(file.getvalue()))
    assert loaded.stride() == STRIDES
    np.testing.assert_array_equal(loaded.detach().numpy(), numbers())


@tg.kernel
def doubled(x, stride, out, n: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, n)
    tl.store(out + at, tl.load(x + at * stride) * 2)


@tg.kernel
def raised(x, stride, n: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, n)
    tl.store(x + at * stride, tl.load(x + at * stride) + 100)


@pytest.mark.parametrize("kind", made())
def test_kernels_find_elements_by_strides(kind: str) -> None:
    """The tensor and its views see what kernels write."""
    x = made()[kind]
    out = tg.zeros(4)
    with tg.no_grad():
        doubled[(1,)](x, x.stride(0), out, 4)
    np.testing.assert_array_equal(out.numpy(), numbers()[:, 0, 0] * 2)
    row = x[:, 0]
    with tg.no_grad():
        raised[(1,)](x, x.stride(1), 2)
    expected = numbers().copy()
    expected[0, :, 0] += 100
    np.testing.assert_array_equal(x.detach().numpy(), expected)
    np.testing.assert_array_equal(row.detach().numpy(), expected[:, 0])
    assert x.requires_grad == (kind.startswith("a leaf") or kind == "a parameter")


def test_gradients_have_the_strides_of_their_leaves() -> None:
    for x in (permuted().requires_grad_(), nn.Parameter(permuted())):
        (x * x).sum().backward()
        assert x.grad is not None
        assert x.grad.stride() == STRIDES
        (x.exp() * 0).sum().backward()
        assert x.grad.stride() == STRIDES
        np.testing.assert_array_equal(x.grad.numpy(), numbers() * 2)


@pytest.mark.parametrize("kind", made())
def test_jitted_functions_give_the_same_strides(kind: str) -> None:
    """One function for arguments that lie in several ways, whatever order they come in."""

    def several(x: tg.Tensor) -> tuple[tg.Tensor, ...]:
        return x * 2, x.exp().transpose(0, 1), x.sum(0), x + x.contiguous(), x.contiguous() + x, x.half(), x[0]

    jitted = tg.jit(several)
    x = made()[kind].detach()
    for given in (x, x.contiguous(), x, x.transpose(0, 1), x * 1, x.contiguous()):
        for ours, plain in zip(jitted(given), several(given), strict=True):
            assert ours.stride() == plain.stride()
            np.testing.assert_array_equal(ours.numpy(), plain.numpy())


def test_view_is_refused_within_jit_where_it_is_outside() -> None:
    flat = tg.jit(lambda x: (x * 2).view(-1))
    assert flat(permuted().contiguous()).shape == (24,)
    with pytest.raises(ShapeError, match="without moving elements"):
        flat(permuted())


def test_a_network_with_channels_last() -> None:
    """Parameters, results and gradients have the channels innermost, jitted or not, and the same values."""
    tg.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    last = copy.deepcopy(plain).to(memory_format=tg.channels_last)
    weight: Any = last[0].weight
    assert weight.stride() == (27, 1, 9, 3)
    x = tg.randn(2, 3, 8, 8)
    for run in (last, tg.jit(last)):
        y = run(x.to(memory_format=tg.channels_last))
        assert y.is_contiguous(memory_format=tg.channels_last)
    optimizer = tg.optim.Adam(last.parameters())

    @tg.jit
    def step(x: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        loss = last(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x.to(memory_format=tg.channels_last)).item() for _ in range(3)]
    assert losses[2] < losses[0]
    assert weight.grad.stride() == weight.stride() == (27, 1, 9, 3)
    np.testing.assert_allclose(weight.grad.numpy(), weight.grad.contiguous().numpy())


def test_a_loop_that_transposes_keeps_no_history() -> None:
    """Memory of what was computed before is freed."""
    x = tg.ones(64, 64).realize()
    live = []
    gc.collect()  # what other tests left
    for _ in range(6):
        x = (x.T * 0.5 + 1).realize()
        x[0].sum().item()
        live.append(tg.live_bytes())
    assert live[5] <= live[2]


def test_formats_are_for_their_ranks() -> None:
    with pytest.raises(ShapeError, match="4 dimensions"):
        tg.ones(2, 3).to(memory_format=tg.channels_last)
    assert not tg.ones(2, 3).is_contiguous(memory_format=tg.channels_last)
    assert tg.ones(1, 3, 2, 2, 2).to(memory_format=tg.channels_last_3d).stride() == (24, 1, 12, 6, 3)
