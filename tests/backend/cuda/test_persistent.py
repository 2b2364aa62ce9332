"""Persistent blocks: when they are used, launched grids, and compiled code."""

from collections.abc import Callable

import pytest

from tests.backend.cuda.test_code import own_text
from tests.backend.cuda.test_dot import ORDERS, compiled, product
from tilegrad.backend.cuda.build import CudaBinary, build_kernel
from tilegrad.backend.cuda.code.lower import lower
from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_parser import parse


def with_bias(m: int, n: int, k: int, tile: tuple[int, int, int]) -> Kernel:
    """Return a product plus a bias for each column."""
    text = str(product(m, n, k, tile, "MK,NK"))
    before, store, after = text.partition("    tl.store(")
    assert store
    bias = "    sums = acc.to(tl.bfloat16) + tl.load(bias + i)[None, :]\n"
    after = after.replace("acc.to(tl.bfloat16)", "sums")
    return parse(before.replace('out: "*bf16"', 'out: "*bf16", bias: "*bf16"') + bias + store + after)


def test_the_source(golden: Callable[[object], None]) -> None:
    golden(own_text(with_bias(16384, 3072, 768, (128, 256, 64))))


def test_only_large_tiles_are_persistent() -> None:
    large = lower(product(1024, 1024, 768, (128, 256, 64)))
    assert large.resident == 1
    assert "for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)" in large.text
    for tile in ((128, 128, 64), (64, 256, 64), (256, 128, 64)):
        small = lower(product(1024, 1024, 768, tile))
        assert small.resident == 0
        assert "blockIdx.x % plane" in small.text
    for architecture in ("sm_80", "sm_120"):
        assert lower(product(1024, 1024, 768, (128, 256, 64)), architecture).resident == 0


def test_persistent_blocks_have_no_barrier() -> None:
    for kernel in (product(1024, 1024, 768, (128, 256, 64)), with_bias(1000, 1024, 768, (128, 256, 64))):
        assert own_text(kernel).count("__syncthreads()") == 1, "when barriers have been made"


def test_kernels_with_barriers_are_not_persistent() -> None:
    plain = str(product(1024, 1024, 768, (128, 256, 64)))
    before, store, after = plain.partition("    tl.store(")
    sums = "    tl.store(total + i, tl.sum(acc, axis=0))\n"
    text = lower(parse(before.replace('out: "*bf16"', 'out: "*bf16", total: "*f32"') + sums + store + after))
    assert text.resident == 0
    assert "tile < tiles" not in text.text
    odd = lower(product(1000, 1004, 768, (128, 256, 64), masked=True))
    assert odd.resident == 0, "rows of 1004 do not begin at multiples of 16 bytes"


def test_lanes_exchange_pairs_to_16_byte_pieces() -> None:
    for kernel in (product(1000, 1000, 768, (128, 256, 64), masked=True), product(1024, 1024, 768, (64, 128, 64))):
        text = own_text(kernel)
        assert "exchange_lanes(words[c0])" in text
        assert "staged" not in text
    assert "exchange_lanes(" not in own_text(product(1024, 1024, 768, (128, 256, 64), "MK,NK", "f32", "high"))
    assert "exchange_lanes(" not in lower(product(1024, 1024, 768, (128, 256, 64)), "sm_80").text


def test_persistent_grid_size() -> None:
    stays = CudaBinary("contract", "", b"", 384, 215088, 168, 0, "sm_90a", resident=1)
    assert [stays.blocks(instances, 132) for instances in (1, 131, 132, 6144)] == [1, 131, 132, 132]
    assert stays.replaced(resident=2).blocks(6144, 132) == 264
    assert stays.replaced(resident=0).blocks(6144, 132) == 6144


@compiled
@pytest.mark.parametrize("order", [ORDERS[0], ORDERS[2]])
def test_persistent_kernels_compile_without_spills(order: str) -> None:
    made = build_kernel(product(4096, 4096, 768, (128, 256, 64), order), "sm_90a")
    assert (made.spills, made.registers, made.resident) == (0, 168, 1)
    assert not made.sass or {"STG", "SHFL", "UTMALDG", "HGMMA"} <= {w.split(".")[0] for w in made.sass.split()}
