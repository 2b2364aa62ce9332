"""Many tensors in memory are concatenated and stacked at once, with the results of recorded work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config
from tilegrad.errors import TilegradError

COUNT = 9


def array(n: int, *shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return (np.random.default_rng(n).standard_normal(shape) * 9).astype(dtype)


def own(a: np.ndarray[Any, Any]) -> Any:
    return tg.tensor(a)


def shared(a: np.ndarray[Any, Any]) -> Any:
    return tg.from_numpy(a.copy())


def computed(a: np.ndarray[Any, Any]) -> Any:
    x = tg.tensor(a).clone()
    x.numpy()
    return x


def row(a: np.ndarray[Any, Any]) -> Any:
    return tg.tensor(np.stack([a, a, a]))[1]


def transposed(a: np.ndarray[Any, Any]) -> Any:
    return tg.tensor(np.ascontiguousarray(a.T)).T


def stepped(a: np.ndarray[Any, Any]) -> Any:
    wide = np.zeros((a.shape[0] * 2, *a.shape[1:]), a.dtype)
    wide[::2] = a
    return tg.tensor(wide)[::2]


def written(a: np.ndarray[Any, Any]) -> Any:
    x = tg.zeros(*a.shape, dtype=tg.tensor(a).dtype)
    x[:] = tg.tensor(a)
    return x


KINDS: list[Callable[[np.ndarray[Any, Any]], Any]] = [own, shared, computed, row, transposed, stepped, written]
DTYPES = ["float32", "float64", "int64", "int32", "uint8", "bool"]


def known(x: Any) -> bool:
    return x._value.buffer is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_all_kinds_of_pieces_and_axes(kind: Callable[[np.ndarray[Any, Any]], Any], rank: int) -> None:
    for axis in range(-rank, rank):
        shapes = [[2, 3, 4][:rank] for _ in range(COUNT)]
        for n in range(COUNT):
            shapes[n][axis] = n % 4 + (kind is stepped)
        arrays = [array(n, *shape) for n, shape in enumerate(shapes)]
        pieces = [kind(a) for a in arrays]
        made = tg.cat(pieces, axis)
        assert known(made)
        np.testing.assert_array_equal(made.numpy(), np.concatenate(arrays, axis))
    for axis in range(-rank - 1, rank + 1):
        arrays = [array(n, *[2, 3, 4][:rank]) for n in range(COUNT)]
        made = tg.stack([kind(a) for a in arrays], axis)
        assert known(made)
        np.testing.assert_array_equal(made.numpy(), np.stack(arrays, axis))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str) -> None:
    arrays = [array(n, 2, 3, dtype=dtype) for n in range(COUNT)]
    for made, want in [
        (tg.cat([own(a) for a in arrays]), np.concatenate(arrays)),
        (tg.cat([row(a) for a in arrays], 1), np.concatenate(arrays, 1)),
        (tg.stack([own(a) for a in arrays]), np.stack(arrays)),
        (tg.stack([own(a)[1, 2] for a in arrays]), np.stack([a[1, 2] for a in arrays])),
    ]:
        assert known(made)
        got = made.numpy()
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16])
def test_dtypes_without_numbers_in_python_are_recorded(dtype: Any) -> None:
    arrays = [array(n, 3) for n in range(COUNT)]
    made = tg.cat([tg.tensor(a, dtype=dtype) for a in arrays])
    assert made.dtype is dtype
    np.testing.assert_array_equal(made.float().numpy(), tg.tensor(np.concatenate(arrays)).to(dtype).float().numpy())


def test_dtypes_are_promoted() -> None:
    pieces = [tg.tensor([n]) if n % 2 else tg.tensor([n / 2]) for n in range(COUNT)]
    made = tg.cat(pieces)
    assert made.dtype is tg.float32
    np.testing.assert_array_equal(made.numpy(), [n if n % 2 else n / 2 for n in range(COUNT)])


def test_elements_are_those_of_the_call() -> None:
    arrays = [array(n, 3) for n in range(COUNT)]
    want = np.concatenate(arrays)
    pieces = [tg.from_numpy(a) for a in arrays]
    made, recorded = tg.cat(pieces), tg.cat(pieces[:3])
    for a in arrays:
        a[:] = -1
    np.testing.assert_array_equal(made.numpy(), want)
    np.testing.assert_array_equal(recorded.numpy(), want[:9])
    np.testing.assert_array_equal(tg.cat(pieces).numpy(), np.full(3 * COUNT, -1))
    x = tg.tensor(np.arange(12.0, dtype=np.float32))
    views = [x[n : n + 2] for n in range(COUNT)]  # overlapping
    before = tg.stack(views)
    x[3] = 70.0
    after = tg.stack(views)
    np.testing.assert_array_equal(before.numpy(), [[n, n + 1] for n in range(COUNT)])
    np.testing.assert_array_equal(after.numpy(), np.where(before.numpy() == 3, 70, before.numpy()))
    before[0] = 5.0
    assert x[0].item() == 0


def test_gradients_flow_through_many_pieces() -> None:
    pieces = [tg.tensor(array(n, 2)).requires_grad_(n % 2 == 0) for n in range(COUNT)]
    weights = tg.tensor(array(0, COUNT, 2))
    (tg.stack(pieces) * weights).sum().backward()
    (tg.cat(pieces) * weights.reshape(-1)).sum().backward()
    for n, x in enumerate(pieces):
        if n % 2 == 0:
            np.testing.assert_array_equal(x.grad.numpy(), 2 * weights[n].numpy())
        else:
            assert x.grad is None
    with tg.no_grad():
        assert not tg.cat(pieces).requires_grad
    np.testing.assert_array_equal(tg.cat(pieces).detach().numpy(), np.concatenate([x.detach().numpy() for x in pieces]))
    leaf = tg.cat([x.detach() for x in pieces]).requires_grad_()
    (leaf * 3).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), np.full(2 * COUNT, 3))


def test_recorded_pieces_are_recorded() -> None:
    x = tg.tensor(array(1, 100))
    pieces = [x * n for n in range(COUNT)]
    made = tg.stack(pieces)
    assert not known(made)
    np.testing.assert_array_equal(made.numpy(), np.stack([x.numpy() * np.float32(n) for n in range(COUNT)]))


def test_traced_functions_record() -> None:
    arrays = [array(n, 3) for n in range(COUNT)]
    outside = [tg.tensor(a) for a in arrays]

    @tg.jit
    def joined(*pieces: Any) -> Any:
        return tg.cat(pieces) + tg.cat(outside)

    for k in range(2):
        got = joined(*[tg.tensor(a + k) for a in arrays])
        want = np.concatenate([a + k for a in arrays]) + np.concatenate(arrays)
        np.testing.assert_array_equal(got.numpy(), want)
    mapped = tg.vmap(lambda x: tg.stack([x] * COUNT).sum())(tg.ones(3))
    np.testing.assert_array_equal(mapped.numpy(), np.full(3, COUNT))


def test_the_compiled_tier_and_profiles_record() -> None:
    pieces = [tg.tensor(array(n, 3)) for n in range(COUNT)]
    with config.changed(tier="compiled"):
        assert not known(tg.cat(pieces))


def test_wrong_pieces_are_refused_as_few_are() -> None:
    x = tg.ones(2, 3)
    x.numpy()
    wrong: list[Callable[[int], Any]] = [
        lambda n: tg.cat([x] * n + [tg.ones(3, 2)]),
        lambda n: tg.cat([x] * n + [tg.ones(3)]),
        lambda n: tg.cat([x] * n, 2),
        lambda n: tg.cat([x] * n, -3),
        lambda n: tg.stack([x] * n, 3),
        lambda n: tg.stack([x] * n + [x.T]),
        lambda n: tg.cat([tg.tensor(1.0)] * n),
        lambda n: tg.cat([x] * n + [1.0]),  # type: ignore[list-item]
        lambda n: tg.stack([x] * n + [None]),  # type: ignore[list-item]
    ]
    for call in wrong:
        with pytest.raises(TilegradError) as few:
            call(2)
        with pytest.raises(type(few.value)):
            call(COUNT)
    np.testing.assert_array_equal(tg.cat([x] * COUNT + [tg.ones(0)]).numpy(), np.ones((2 * COUNT, 3)))  # as PyTorch
