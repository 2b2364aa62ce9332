"""Positions that become data: int32 inside a kernel, int64 outside, whatever they are mixed with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.ir.dtype import int8, int32, int64
from tilegrad.ir.graph import Graph, Input, TensorType
from tilegrad.ir.program import Launch
from tilegrad.ir.tile_checker import check
from tilegrad.ops.arithmetic import add
from tilegrad.ops.movement import permute
from tilegrad.ops.scan import Cumsum
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse

FAR = 2**40

CASES: dict[str, Callable[[tg.Tensor, tg.Tensor], tg.Tensor]] = {
    "data choose a number": lambda n, mask: tg.where(mask, 2, n),
    "data choose a position": lambda n, mask: tg.where(mask, n * 2 + 1, 3) // 2,
    "data choose a far number": lambda n, mask: tg.where(mask, FAR, n),
    "positions choose a far number": lambda n, mask: tg.where(n > 2, FAR, n),
    "masked": lambda n, mask: n.masked_fill(mask, -7),
    "chosen and summed": lambda n, mask: tg.where(mask, 2, n * 2**31).sum(),
    "chosen address": lambda n, mask: (n * 10)[tg.where(mask, n, 5)],
    "remainder by a far number": lambda n, mask: n % -FAR,
    "quotient by a far number": lambda n, mask: (n + 1) // -FAR,
    "compared with a far number": lambda n, mask: n < FAR,
    "bounded by a far number": lambda n, mask: n.clamp(-FAR, FAR),
}


@pytest.mark.parametrize("case", CASES)
def test_positions_as_data(case: str) -> None:
    mask = tg.tensor([True, False, True, True, False, True])
    known = tg.tensor([0, 1, 2, 3, 4, 5])
    found, wanted = CASES[case](tg.arange(6), mask), CASES[case](known, mask)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy(), strict=True)


@pytest.mark.parametrize(("extent", "wide"), [(2**31 - 1, False), (2**31 + 16, True), (2**32, True)])
def test_positions_that_int32_does_not_hold(extent: int, wide: bool) -> None:
    x = Input(TensorType(int8, (extent,)))
    (launch,) = assemble(fuse(Graph((x,), (add(x, x),)))).steps
    assert isinstance(launch, Launch)
    assert ("tl.program_id(0).to(tl.int64) *" in str(launch.kernel)) == wide


@pytest.mark.parametrize("target", [TargetModel(), gpu_model(132)], ids=["few", "many"])
@pytest.mark.parametrize(("rows", "wide"), [(2**15 - 1, False), (2**15 + 16, True)])
def test_products_of_positions_that_int32_does_not_hold(rows: int, wide: bool, target: TargetModel) -> None:
    x = Input(TensorType(int8, (rows, 2**16)))
    (launch,) = assemble(fuse(Graph((x,), (permute(add(x, x), (1, 0)),)), target)).steps
    assert isinstance(launch, Launch)
    load, store = str(launch.kernel).split("\n")[-2:]
    for line, step in ((load, "i.to(tl.int64) * 65536"), (store, f"i2.to(tl.int64) * {rows}")):
        assert (step in line) == wide, line
        assert wide or "int64" not in line


@pytest.mark.parametrize(("extent", "wide"), [(2**30, False), (2**31 - 1, True), (2**31 + 16, True)])
def test_loops_whose_end_int32_does_not_hold(extent: int, wide: bool) -> None:
    x = Input(TensorType(int8, (extent,)))
    (launch,) = assemble(fuse(Graph((x,), (Cumsum(x, 0),)))).steps
    assert isinstance(launch, Launch)
    types = check(launch.kernel).variables
    assert {types[name].dtype for name in ("k", "at")} == {int64 if wide else int32}


@pytest.mark.parametrize("shape", [(3, 3), (4, 4), (5, 2), (2, 3, 4), (2, 2, 2), (1, 3), (3, 1), (7,)])
def test_pieces_put_together_again_are_read_in_one_line(shape: tuple[int, ...]) -> None:
    """Both branches of the choice between two pieces become the same read once positions are offsets."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for size in (1, 2, 3):
        pieces = [piece.reshape(-1) for piece in tg.tensor(x).requires_grad_().split(size)]
        assert tg.cat(pieces).tolist() == x.reshape(-1).tolist()
        assert (tg.cat(pieces) * 2 + tg.cat(pieces[::-1])).tolist() == (
            x.reshape(-1) * 2 + np.concatenate([p.detach().numpy() for p in pieces[::-1]])
        ).tolist()
