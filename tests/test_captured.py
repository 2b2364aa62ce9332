"""Writes within `vmap` to tensors that all entries share."""

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import InPlaceError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_what_differs_from_entry_to_entry_is_not_written_to_what_they_share() -> None:
    total = tg.zeros(3)
    view = total[1:]

    def added(row: tg.Tensor) -> tg.Tensor:
        return total.add_(row)

    with pytest.raises(InPlaceError, match=r"add_ at test_captured.py:17 writes to a tensor of shape \(3,\)"):
        tg.vmap(added)(tg.tensor(X))
    with pytest.raises(InPlaceError, match="copy_"):
        tg.vmap(lambda row: view.copy_(row[1:]))(tg.tensor(X))
    with pytest.raises(InPlaceError, match="add_"):
        tg.vmap(tg.vmap(total.add_))(tg.tensor(X))
    assert total.tolist() == [0, 0, 0]
    assert view.tolist() == [0, 0]


def test_history_survives_what_was_refused() -> None:
    w = tg.ones(3, requires_grad=True)
    y = w * w
    with pytest.raises(InPlaceError, match="mul_"):
        tg.vmap(lambda row: y.mul_(row))(tg.tensor(X))
    y.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2, 2, 2]


def test_what_is_the_same_for_all_is_written() -> None:
    count = tg.zeros(3)

    def scaled(row: tg.Tensor) -> tg.Tensor:
        count.add_(1)
        return count * row

    assert tg.vmap(scaled)(tg.tensor(X)).tolist() == X.tolist()
    assert count.tolist() == [1, 1, 1]


def test_what_the_function_made_itself_is_written() -> None:
    def made(row: tg.Tensor) -> tuple[tg.Tensor, tg.Tensor]:
        y = row.clone()
        y *= 2
        z = tg.zeros(3)
        z += row
        z[0] = 5
        return y, z

    y, z = tg.vmap(made)(tg.tensor(X))
    assert y.tolist() == (2 * X).tolist()
    assert z.tolist() == np.concatenate([np.full((2, 1), 5), X[:, 1:]], 1).tolist()
