"""RecordedStructure values are grouped: views cost nothing, pointwise values go into the one value that reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import tilegrad as tg
from tilegrad.first_tier.node_groups import RecordedStructure, groups, same_memory
from tilegrad.ir.graph import Value
from tilegrad.lazy.realize import structure


def grouped(*tensors: tg.Tensor) -> tuple[list[list[str]], list[bool]]:
    """The ops of each group, and whether it shares the memory of its source."""
    wanted: Sequence[Value] = [x.value for x in tensors]
    key, order, _, _ = structure(wanted)
    recorded = RecordedStructure(key, order)
    found = groups(recorded)
    return [[order[n].op for n in g.members] for g in found], [same_memory(recorded, g) for g in found]


def tensor(*shape: int) -> tg.Tensor:
    return tg.tensor(np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape))


def test_a_chain_of_pointwise_values_is_one_group() -> None:
    assert grouped(((tensor(100) + 1.0) * 2.0).exp().sum()) == ([["add", "mul", "exp", "sum"]], [False])


def test_what_two_values_read_is_stored() -> None:
    y = tensor(4).exp()
    assert grouped(y * (y + 1.0))[0] == [["exp"], ["add", "mul"]]


def test_what_is_repeated_is_stored_before() -> None:
    x = tensor(4, 1)
    assert grouped(x.exp() + tensor(4, 3))[0] == [["exp"], ["add"]]


def test_views_go_into_every_reader() -> None:
    y = tensor(4, 3).exp()
    assert grouped(y.T.sum(), y.T @ y)[0] == [["exp"], ["permute", "sum"], ["permute", "contract"]]


def test_identities_and_reshapes_share_memory() -> None:
    assert grouped(tensor(4, 3).exp().reshape(12)) == ([["exp"], ["reshape"]], [False, True])


def test_long_chains_are_cut() -> None:
    x = tensor(100)
    for _ in range(60):
        x = x + 1.0
    assert [len(g) for g in grouped(x)[0]] == [24, 24, 12]


def test_what_costs_no_more_than_reading_is_computed_by_each_reader() -> None:
    x, mean = tensor(64, 64), tensor(64)
    y = x - mean
    assert grouped(y * y.exp())[0] == [["sub", "exp", "mul"]]
    assert grouped((y * y).sum(), y.exp())[0] == [["sub", "mul", "sum"], ["sub", "exp"]]
    z = x - tensor(64, 64)  # two tensors would be read in the place of one
    assert grouped(z.sum(), z.exp())[0] == [["sub"], ["sum"], ["exp"]]
    assert grouped(y.sum(), y @ y)[0] == [["sub"], ["sum"], ["contract"]]
