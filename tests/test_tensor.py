"""Tensors behave as PyTorch's: each script runs with both libraries and must give the same."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch

torch = pytorch()

Script = Callable[[Any], Any]


def plain(x: Any) -> Any:
    """Something in a form that can be compared: of tensors dtype, shape and elements."""
    if isinstance(x, (tg.Tensor, torch.Tensor)):
        array = np.asarray(x.detach())
        return (
            str(array.dtype),
            array.shape,
            np.round(array.astype(np.float64), 4).tolist() if array.dtype.kind == "f" else array.tolist(),
        )
    if isinstance(x, (list, tuple)):
        return [plain(y) for y in x]
    return x


def alike(script: Script, library: Any = torch) -> None:
    assert plain(script(tg)) == plain(script(library))


# --- views and writes --------------------------------------------------------------------------


def grid(library: Any) -> Any:
    return library.arange(24.0).reshape(2, 3, 4)


def view_chain(t: Any) -> Any:
    x = grid(t)
    y = x.transpose(0, 2)[1:, :, 0].t()
    y[1] = -1
    z = x.view(6, 4)
    z.select(0, 2).mul_(10)
    return x, y, z, y.stride(), y.storage_offset(), y.is_contiguous(), x.is_contiguous()


def write_through_every_view(t: Any) -> Any:
    made = []
    for cut in (
        lambda x: x.view(24)[3:9],
        lambda x: x.permute(2, 0, 1)[0],
        lambda x: x[:, None, 1],
        lambda x: x.unsqueeze(0).squeeze(0)[1],
        lambda x: x.narrow(2, 1, 2),
        lambda x: x.diagonal(0, 1, 2),
        lambda x: x.diagonal(1, 0, 2),
        lambda x: x[..., ::2],
        lambda x: x.unbind(1)[2],
        lambda x: x.split(2, 2)[1],
        lambda x: x.chunk(2, 0)[1],
        lambda x: x.flatten(1)[:, 5:7],
        lambda x: x.movedim(0, 2)[1],
        lambda x: x.detach()[0],
        lambda x: x.data[1],
        lambda x: x.mT[0, 1:],
        lambda x: x.view(6, 4).T[2],
    ):
        x = grid(t)
        cut(x).add_(100)
        cut(x)[...] *= 2
        made.append(x)
    return made


def base_seen_by_views(t: Any) -> Any:
    x = grid(t)
    y, z = x[1], x.view(-1)[::5]
    x.zero_()
    x[1, 2] = t.tensor([1.0, 2, 3, 4])
    return x, y, z, y._version, z._version


def assignments(t: Any) -> Any:
    x = grid(t)
    x[0, 1, 2] = 7
    x[1] = t.arange(4.0)
    x[:, 0, :2] = t.tensor([[50.0, 51], [52, 53]])
    x[..., -1] = -5.5
    x[x > 20] = 20
    x[[0, 1], [1, 2]] = t.tensor([9.0, 8, 7, 6])
    x[0, t.tensor([0, 2])] += 1000
    x[t.tensor([True, False]), 0] = 3
    x[:, [0, 2], 1] = t.ones(1, 2) * 77
    x[None, 0, 0] = t.zeros(1, 1, 4)
    return x


def reads(t: Any) -> Any:
    x = grid(t)
    i, j, mask = t.tensor([1, 0, 1]), t.tensor([[1], [0]]), x[:, :, 0] > 5
    return [
        x[1], x[-1, 2], x[0, 1, 3], x[:, 1:], x[..., 2], x[None].shape, x[:, None, ::2].shape, x[1:1], x[i], x[:, i],
        x[i, i],
        x[j, i], x[0, :, i], x[:, :, [0, 3]], x[[0, 1], [2, 2]], x[mask], x[i, :, i], x[..., [1], 2], x[[]],
        x[True].shape,
        x[False].shape, x[i, None].shape, x[None, i].shape, x[:, j, i].shape, x[j, :, i].shape, x[(x > 3) & (x < 9)],
        x[np.array([0, 1])], x[t.tensor(1)], x[1][t.tensor([True, False, True])], x[:, t.tensor([[True] * 4,
        [False] * 4, [True] * 4])],
    ]  # fmt: skip


def in_place_family(t: Any) -> Any:
    x = t.tensor([-2.5, 0.5, 3.0])
    made = []
    for change in (
        lambda y: y.add_(1), lambda y: y.sub_(1, alpha=2), lambda y: y.mul_(x), lambda y: y.div_(2),
        lambda y: y.pow_(2),
        lambda y: y.clamp_(min=0), lambda y: y.clamp_(-1, 1), lambda y: y.neg_(), lambda y: y.abs_(),
        lambda y: y.exp_(),
        lambda y: y.fill_(3), lambda y: y.zero_(), lambda y: y.copy_(t.tensor([1, 2, 3])),
        lambda y: y.copy_(t.tensor(4)),
        lambda y: y.sigmoid_(), lambda y: y.relu_(), lambda y: y.round_(), lambda y: y.masked_fill_(x > 0, 9),
        lambda y: y.index_fill_(0, t.tensor([0, 2]), 5), lambda y: y.lerp_(x * 2, 0.5), lambda y: y.addcmul_(x, x,
        value=2),
        lambda y: y.scatter_(0, t.tensor([0]), 7.0), lambda y: y.floor_(), lambda y: y.remainder_(2),
        lambda y: y.eq_(0.5),
    ):  # fmt: skip
        y = x.clone()
        assert change(y) is y
        made.append((y, y._version))
    return made


def augmented(t: Any) -> Any:
    x = t.arange(6).reshape(2, 3)
    same = x
    x += 1
    x *= x
    x -= t.tensor([1, 2, 3])
    x //= 2
    x %= 5
    y = t.tensor([True, False])
    y &= t.tensor([True, True])
    y |= t.tensor([False, True])
    z = t.ones(2)
    z /= 4
    z **= 2
    return x, same, y, z


def aliases(t: Any) -> Any:
    x = t.ones(3)
    y, c, d = x.detach(), x.clone(), x.data
    y.add_(1)
    d.mul_(3)
    z = copy.copy(x)
    z.add_(1)
    w = copy.deepcopy(x)
    w.zero_()
    return x, y, c, d, z, w, x._version


def written_views(t: Any) -> Any:
    x = t.arange(12.0).reshape(3, 4)
    y, z = x[1:], x.t()[1]
    y.mul_(2)
    z[:2] = 5
    return y.shape, y.ndim, y.stride(), z.shape, y, z, x


def detached_views(t: Any) -> Any:
    x = t.arange(12.0).reshape(3, 4)
    y, z = x[1:].detach(), x.t()[None].data
    shapes = y.shape, z.shape
    z.mul_(2)
    return shapes, y.ndim, y.stride(), z.shape, z.numel(), y, z, x


def flips_and_repeats_copy(t: Any) -> Any:
    x = t.arange(4.0)
    y, z = x.flip(0), x.repeat(2)
    x.zero_()
    return y, z


SCRIPTS = [
    view_chain, write_through_every_view, base_seen_by_views, assignments, reads, in_place_family, augmented, aliases,
    written_views, detached_views, flips_and_repeats_copy,
]  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.__name__)
def test_views_and_writes(script: Script) -> None:
    alike(script, pytest.importorskip("torch") if script is in_place_family else torch)


def test_strides() -> None:
    def script(t: Any) -> Any:
        x = grid(t)
        cuts = [
            x, x.mT, x.permute(1, 2, 0), x[:, 1], x[:, ::2, 1:], x.unsqueeze(1), x.expand(5, 2, 3, 4), x.diagonal(0,
            1, 2),
            x.unfold(2, 2, 1), x.transpose(0, 1).unsqueeze(-1), x.view(6, 4)[1:, 2:], x[0].t().unfold(0, 2, 2),
            x.squeeze(),
            x[1:, :, None], x.transpose(1, 2).flatten(1), t.zeros(0, 3), t.zeros(()),
        ]  # fmt: skip
        return [
            (c.stride(), c.storage_offset(), c.is_contiguous(), c.contiguous().stride(), tuple(c.shape)) for c in cuts
        ]

    alike(script)


def test_reshape_is_a_view_where_it_can_be() -> None:
    def script(t: Any) -> Any:
        made = []
        for cut, shape in (
            (lambda x: x, (6, 4)),
            (lambda x: x.transpose(0, 1), (3, 2, 2, 2)),
            (lambda x: x.transpose(0, 1), (24,)),
            (lambda x: x[:, :, :2], (2, 3, 2, 1)),
            (lambda x: x[:, :, :2], (6, 2)),
            (lambda x: x[:, 1:], (2, 8)),
        ):
            x = grid(t)
            cut(x).reshape(shape).fill_(-1)
            made.append(x)
        return made

    alike(script)


def test_view_needs_memory_that_allows_it() -> None:
    with pytest.raises(tg.errors.ShapeError, match="reshape"):
        tg.ones(2, 3).t().view(6)


# --- types -------------------------------------------------------------------------------------

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()


@pytest.mark.parametrize("first", DTYPES)
def test_promotion(first: str) -> None:
    def dtype(t: Any, name: str) -> Any:
        return getattr(t, name)

    def script(t: Any) -> Any:
        x = t.ones(2, dtype=dtype(t, first))
        rows = (
            [t.ones(2, dtype=dtype(t, d)) for d in DTYPES]
            + [t.ones((), dtype=dtype(t, d)) for d in DTYPES]
            + [True, 2, 2.5]
        )
        found = [repr((x * y).dtype) for y in rows] + [repr((y * x[0]).dtype) for y in rows]
        found += [repr((x / y).dtype) for y in rows] + [repr((x == y).dtype) for y in rows]
        found += [repr(t.where(x == x, x, y).dtype) for y in rows]
        return [name.replace("torch", "tilegrad") for name in found]

    alike(script)


def test_conversions() -> None:
    def script(t: Any) -> Any:
        x = t.tensor([-1.7, 0.0, 2.5])
        return [
            x.int(),
            x.long(),
            x.bool(),
            x.double(),
            x.half().float(),
            x.short(),
            x.to(t.int8),
            x.type_as(t.ones(1).double()),
        ]

    alike(script)


def test_creation() -> None:
    def script(t: Any) -> Any:
        x = t.ones(2, 3, dtype=t.int32)
        return [
            t.zeros(2, 3), t.zeros((2,)), t.ones([2], dtype=t.int64), t.full((2, 2), 7), t.full((2,), 1.5),
            t.full((1,), True),
            t.arange(5), t.arange(1, 4), t.arange(0, 1, 0.25), t.arange(5, 0, -2), t.arange(3.0), t.linspace(0, 1, 5),
            t.logspace(0, 2, 3), t.eye(3), t.eye(2, 3), t.zeros_like(x), t.ones_like(x, dtype=t.float32),
            t.full_like(x, 4),
            t.tensor([1, 2]), t.tensor([1.0, 2]), t.tensor([True]), t.tensor(3), t.tensor(2.5), t.tensor([]),
            t.tensor([[1], [2]]),
            t.tensor(np.float64(2)), t.tensor(np.arange(3, dtype=np.int16)), t.as_tensor([1, 2]), x.new_zeros(2),
            x.new_ones((1,)),
            x.new_full((2,), 3), x.new_tensor([1.5]), t.tril_indices(3, 3), t.triu_indices(2, 3, 1), t.scalar_tensor(3),
        ]  # fmt: skip

    alike(script)


def test_properties() -> None:
    def script(t: Any) -> Any:
        made = []
        for x in (t.tensor(1.0), t.zeros(0, 2), t.ones(2, 3, 4, dtype=t.float64), t.tensor([True])):
            made.append(
                [
                    tuple(x.shape),
                    x.ndim,
                    x.dim(),
                    x.numel(),
                    x.element_size(),
                    x.itemsize,
                    x.nbytes,
                    x.is_floating_point(),
                ]
            )
            made.append(
                [tuple(x.size()), x.is_leaf, x.requires_grad, x.grad_fn, x.grad, x.stride(), x.storage_offset()]
            )
        return made

    alike(script)


# --- Python's and numpy's protocols --------------------------------------------------------------


def test_protocols() -> None:

    def script(t: Any) -> Any:
        x = t.tensor([[1.5, 2.0], [3.0, 4.0]])
        one = t.tensor(2.25)
        return [
            len(x), [r.tolist() for r in x], x.tolist(), one.item(), float(one), int(one), bool(one), f"{one:.1f}",
            4.0 in x, 9 in x,
            [10, 20, 30][t.tensor(1)], -x, +x, abs(-x), 2 - x, 2 / x, 2**x, x @ x, 7 // x, 7 % x, ~t.tensor([True]),
            x.T.tolist(),
            round(1.5), sum(x.tolist()[0]), max(x[0].tolist()),
        ]  # fmt: skip

    alike(script)


def test_numpy_border() -> None:
    x = tg.arange(6.0).reshape(2, 3)
    assert np.sqrt(np.asarray(x)).shape == (2, 3)
    assert np.asarray(x.T).tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(ValueError):
        x.numpy()[0] = 1  # what a tensor reads must not change unseen
    array = np.arange(3.0)
    shared = tg.from_numpy(array)
    assert shared.tolist() == [0, 1, 2]
    copied = tg.tensor(array)
    array[0] = 9
    assert shared.tolist() == [9, 1, 2]
    assert copied.tolist() == [0, 1, 2]
    taken, kept = tg.as_tensor(array) * 2, tg.asarray(array, copy=False)
    array[0] = 8  # computations are made later: they have the elements of when they were written
    assert taken.tolist() == [18, 2, 4]
    assert kept.tolist() == [8, 1, 2]
    assert tg.from_numpy(array).data_ptr() == array.__array_interface__["data"][0]


def test_dlpack() -> None:
    torch = pytest.importorskip("torch")
    x = tg.arange(6.0).reshape(2, 3)
    assert torch.from_dlpack(x + 0).tolist() == x.tolist()
    assert np.from_dlpack(x).tolist() == x.tolist()
    assert tg.from_dlpack(torch.ones(2, 2)).tolist() == [[1, 1], [1, 1]]


def test_pickle_and_copies() -> None:
    x = tg.arange(6.0).reshape(2, 3).T.requires_grad_()
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert y.tolist() == x.tolist()
        assert y.requires_grad
        assert y.is_leaf
        assert y.dtype is x.dtype
    half = tg.ones(2, dtype=tg.bfloat16)
    assert pickle.loads(pickle.dumps(half)).dtype is tg.bfloat16


def test_views_share_memory() -> None:
    x = tg.arange(6.0).reshape(2, 3).clone()
    assert x.T.data_ptr() == x.data_ptr()
    assert x[1].data_ptr() == x.data_ptr() + 12


@pytest.mark.parametrize("given, meant", [(float, tg.float64), (int, tg.int64), (bool, tg.bool)])
def test_types_of_python_are_dtypes(given: Any, meant: tg.dtype) -> None:
    """As in PyTorch, dtype=float has 64 bits."""
    made = [tg.zeros(2, dtype=given), tg.tensor([1, 0], dtype=given), tg.ones(2).to(given), tg.arange(2, dtype=given)]
    made += [tg.randint(0, 2, (2,), dtype=given), tg.eye(2, dtype=given)]
    assert {x.dtype for x in made} == {meant}
    assert tg.ones(2).sum(dtype=float).dtype is tg.float64  # type: ignore[arg-type]
