"""Operands of large tf32 products are stored with contiguous summed axes if neither has them."""

from __future__ import annotations

import pytest

from tilegrad.ir.dtype import bfloat16, float32
from tilegrad.ir.graph import Graph, Input, TensorType
from tilegrad.ir.precision import Precision
from tilegrad.ir.size import Size
from tilegrad.ops.contraction import Contract
from tilegrad.ops.movement import permute
from tilegrad.runtime.target_model import TargetModel
from tilegrad.transform.contiguous_k import contiguous_axis, contiguous_k, with_contiguous_k
from tilegrad.transform.pipeline import optimise

LARGE, SMALL = (2048, 1024), (64, 128)


def contract(equation: str, shape: tuple[int, int] = LARGE, precision: Precision = "high") -> Contract:
    x, y = (Input(TensorType(float32, shape), name) for name in "xy")
    return Contract(x, y, equation, precision)


def test_the_smaller_operand_is_put_in_order() -> None:
    x, y = Input(TensorType(float32, (2048, 1024)), "x"), Input(TensorType(float32, (2048, 512)), "y")
    made = with_contiguous_k(Contract(x, y, "ki,kj->ij", "high"))
    assert isinstance(made, Contract)
    assert (made.equation, made.y.op, made.x) == ("ki,jk->ij", "materialised", x)
    assert made.type == Contract(x, y, "ki,kj->ij", "high").type


@pytest.mark.parametrize("equation", ["ik,kj->ij", "ki,jk->ij", "ik,jk->ij"])
def test_one_that_lies_along_is_enough(equation: str) -> None:
    x, y = (Input(TensorType(float32, (1024, 1024)), name) for name in "xy")
    assert with_contiguous_k(Contract(x, y, equation, "high")) is None


def test_small_or_exact_products_stay() -> None:
    assert with_contiguous_k(contract("ki,kj->ij", SMALL)) is None
    assert with_contiguous_k(contract("ki,kj->ij", LARGE, "highest")) is None
    x, y = (Input(TensorType(bfloat16, LARGE), name) for name in "xy")
    assert with_contiguous_k(Contract(x, y, "ki,kj->ij", "high")) is None


@pytest.mark.parametrize("axis", range(3))
def test_products_of_sizes_that_vary_stay(axis: int) -> None:
    k, i, j = (Size.named("n") if n == axis else 2048 for n in range(3))
    x, y = Input(TensorType(float32, (k, i)), "x"), Input(TensorType(float32, (k, j)), "y")
    assert with_contiguous_k(Contract(x, y, "ki,kj->ij", "high")) is None


def test_what_is_turned_is_seen_through() -> None:
    x = Input(TensorType(float32, (8, 4, 2)), "x")
    assert contiguous_axis(permute(x, (2, 0, 1)), "abc") == "a"
    made = contract("ki,kj->ij")
    turned = Contract(permute(made.x, (1, 0)), made.y, "ik,kj->ij", "high")
    found = with_contiguous_k(turned)
    assert isinstance(found, Contract)
    assert {found.x.op, found.y.op} == {"permute", "materialised"}


def test_devices_that_compute_operands_as_they_pack_them_are_left_alone() -> None:
    made = contract("ki,kj->ij")
    graph = Graph((made.x, made.y), (made,))  # type: ignore[arg-type]
    assert optimise(graph, TargetModel()) is graph
    assert contiguous_k(graph) is not graph
