"""Blocks that stay and take tile after tile: when they do, what is launched, and what the compiler makes of them."""

from collections.abc import Callable

import pytest

from tests.backend.cuda.test_code import own_text
from tests.backend.cuda.test_dot import ORDERS, compiled, product
from tilegrad.backend.cuda.build import built
from tilegrad.backend.cuda.code.dot_stay import TURNS
from tilegrad.backend.cuda.code.lower import lower, most_shared
from tilegrad.backend.cuda.functions import Function
from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_parser import parse

TILES = ((128, 128, 64), (128, 256, 64))


def with_bias(m: int, n: int, k: int, tile: tuple[int, int, int]) -> Kernel:
    """A product to which a number is added for each column."""
    text = str(product(m, n, k, tile, "MK,NK"))
    before, store, after = text.partition("    tl.store(")
    assert store
    bias = "    sums = acc.to(tl.bfloat16) + tl.load(bias + i)[None, :]\n"
    after = after.replace("acc.to(tl.bfloat16)", "sums")
    return parse(before.replace('out: "*bf16"', 'out: "*bf16", bias: "*bf16"') + bias + store + after)


def test_the_source(golden: Callable[[object], None]) -> None:
    golden(own_text(with_bias(16384, 3072, 768, (128, 256, 64))))


@pytest.mark.parametrize("tile", TILES)
def test_blocks_stay_where_tiles_are_short(tile: tuple[int, int, int]) -> None:
    short = lower(product(1024, 1024, 64 * TURNS, tile))
    assert short.resident == (1 if tile[1] == 256 else 2)
    assert "for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)" in short.text
    assert short.resident * (short.shared + 1024) <= most_shared("sm_90a") + 1024
    long = lower(product(1024, 1024, 64 * TURNS + 64, tile))
    assert long.resident == 0
    assert "blockIdx.x % plane" in long.text


def test_only_where_four_warps_multiply_together() -> None:
    kernel = product(1024, 1024, 768, (128, 256, 64))
    for architecture in ("sm_80", "sm_120"):
        assert lower(kernel, architecture).resident == 0
    assert lower(product(1024, 1024, 768, (64, 128, 64))).resident == 0
    assert lower(product(1024, 1024, 768, (256, 128, 64))).resident == 0, "rows are spread as columns"


def test_warps_wait_for_no_others_to_store_what_is_their_own() -> None:
    text = own_text(product(1024, 1024, 768, (128, 256, 64)))
    assert text.count("__syncthreads()") == 1, "when barriers have been made"
    assert "store_run(" in text
    assert "meet_among" not in text


def test_borders_within_pieces_are_left_to_threads() -> None:
    text = own_text(product(1000, 1000, 768, (128, 256, 64), masked=True))
    assert "tile < tiles" in text
    assert "store_run(" not in text, "1000 columns end within every longer piece"
    assert "meet_among(256)" in text
    assert "store_run(" in own_text(product(1000, 1024, 768, (128, 256, 64), masked=True)), "rows may end anywhere"


def test_how_many_are_launched() -> None:
    stays = Function(0, "contract", "", 384, 215088, 168, (), resident=1)
    assert [stays.blocks(instances, 132) for instances in (1, 131, 132, 6144)] == [1, 131, 132, 132]
    assert stays._replace(resident=2).blocks(6144, 132) == 264
    assert stays._replace(resident=0).blocks(6144, 132) == 6144


@compiled
@pytest.mark.parametrize(("tile", "order"), [(TILES[0], ORDERS[0]), (TILES[1], ORDERS[2])])
def test_they_compile_without_spills(tile: tuple[int, int, int], order: str) -> None:
    made = built(product(4096, 4096, 768, tile, order), "sm_90a")
    assert made.spills == 0
    assert made.registers <= (168 if tile[1] == 256 else 112)
    assert made.resident == (1 if tile[1] == 256 else 2)
    assert not made.sass or {"UBLKCP", "UTMALDG", "HGMMA"} <= {w.split(".")[0] for w in made.sass.split()}
