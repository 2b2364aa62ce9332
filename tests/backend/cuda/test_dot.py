"""Matrix products on GPUs: scheme selection, compilation, and (emulated) results."""

import re

import numpy as np
import pytest

from tests.backend.cuda import emulated
from tests.backend.cuda.some_kernels import together
from tilegrad.backend.cuda.build import ARCHITECTURES, build_kernel, kernel_source
from tilegrad.backend.cuda.code.dot import DotLowering
from tilegrad.backend.cuda.code.dot_loop import AsyncCopyLoop
from tilegrad.backend.cuda.code.dot_operands import OperandAnalysis
from tilegrad.backend.cuda.code.dot_prefetch import PrefetchedProduct
from tilegrad.backend.cuda.code.dot_thread import ThreadLoop
from tilegrad.backend.cuda.code.dot_tiling import choose_tiling
from tilegrad.backend.cuda.code.dot_warpgroup import WarpgroupLoop
from tilegrad.backend.cuda.code.lower import CudaLowering
from tilegrad.backend.cuda.nvrtc import compile, disassemble, version
from tilegrad.backend.reference.tile import run
from tilegrad.errors import DeviceError
from tilegrad.ir.tile import Kernel, Name
from tilegrad.ir.tile_checker import check
from tilegrad.ir.tile_parser import parse

ORDERS = ("MK,KN", "KM,KN", "MK,NK", "KM,NK")
"""Memory order of the axes of both operands."""


def product(
    m: int,
    n: int,
    k: int,
    tile: tuple[int, int, int],
    order: str = "MK,KN",
    dtype: str = "bf16",
    precision: str = "highest",
    masked: bool = False,
    before: str = "{}",
) -> Kernel:
    """Return a product as the scheduler writes it."""
    rows, columns, depth = tile
    x = f"(i2 * {k})[:, None] + ks[None, :]" if order[:2] == "MK" else f"(ks * {m})[None, :] + i2[:, None]"
    y = f"(ks * {n})[:, None] + i[None, :]" if order[3:] == "KN" else f"(i * {k})[None, :] + ks[:, None]"
    x_mask = f", mask=(i2 < {m})[:, None] & (ks < {k})[None, :], other=0.0" if masked else ""
    y_mask = f", mask=(i < {n})[None, :] & (ks < {k})[:, None], other=0.0" if masked else ""
    mask = f", mask=(i < {n})[None, :] & (i2 < {m})[:, None]" if masked else ""
    sums = {"f64": "float64", "i8": "int32", "u8": "int32", "i32": "int32"}.get(dtype, "float32")
    result = f".to(tl.{ {'bf16': 'bfloat16', 'f16': 'float16'}[dtype] })" if dtype in ("bf16", "f16") else ""
    out = {"i8": "i32", "u8": "i32", "f8e4m3": "f32", "f8e5m2": "f32"}.get(dtype, dtype)
    return parse(f'''
def contract(x: "*{dtype}", y: "*{dtype}", out: "*{out}"):
    i = tl.program_id(0) * {columns} + tl.arange(0, {columns})
    i2 = tl.program_id(1) * {rows} + tl.arange(0, {rows})
    acc = tl.zeros([{rows}, {columns}], tl.{sums})
    for k in range(0, {k}, {depth}):
        ks = k + tl.arange(0, {depth})
        x_ = tl.load(x + ({x}){x_mask})
        y_ = tl.load(y + ({y}){y_mask})
        acc = tl.dot({before.format("x_")}, y_, acc, input_precision="{precision}")
    tl.store(out + ((i2 * {n})[:, None] + i[None, :]), acc{result}{mask})
''')


def way(kernel: Kernel, architecture: str) -> object:
    """Return the plan of a kernel's loop."""
    products: DotLowering = CudaLowering(kernel, architecture).products
    (found,) = products.loops.values()
    return found


@pytest.mark.parametrize("order", ORDERS)
def test_scheme_selection(order: str) -> None:
    half = product(512, 512, 512, (128, 256, 64), order)
    assert isinstance(way(half, "sm_90a"), WarpgroupLoop)
    assert isinstance(way(half, "sm_80"), AsyncCopyLoop)
    assert isinstance(way(half, "sm_120"), AsyncCopyLoop)
    tf32 = product(512, 512, 512, (128, 128, 32), order, "f32", "high")
    assert isinstance(way(tf32, "sm_90a"), AsyncCopyLoop if order == "KM,KN" else WarpgroupLoop)
    assert isinstance(way(tf32, "sm_80"), AsyncCopyLoop)
    assert isinstance(way(product(512, 512, 512, (128, 128, 32), order, "f32"), "sm_90a"), ThreadLoop)
    assert isinstance(way(product(512, 512, 512, (128, 128, 32), order, "f32", "medium"), "sm_90a"), PrefetchedProduct)
    assert isinstance(
        way(product(512, 512, 512, (128, 128, 64), order, before="{} * 2.0"), "sm_90a"), PrefetchedProduct
    )
    along = order == "MK,NK"
    for dtype, precision in (("i8", "highest"), ("u8", "highest"), ("f8e4m3", "medium"), ("f8e5m2", "high")):
        short = product(512, 512, 512, (128, 128, 128), order, dtype, precision)
        assert isinstance(way(short, "sm_90a"), WarpgroupLoop if along else PrefetchedProduct)
        assert isinstance(way(short, "sm_120"), AsyncCopyLoop if along else PrefetchedProduct)
        assert isinstance(
            way(short, "sm_80"), AsyncCopyLoop if along and not dtype.startswith("f") else PrefetchedProduct
        )
    exact = product(512, 512, 512, (128, 128, 128), order, "f8e4m3")
    assert isinstance(way(exact, "sm_90a"), AsyncCopyLoop if along else PrefetchedProduct)


def test_border_masks_become_tensor_map_bounds() -> None:
    found = way(product(1000, 1000, 1000, (128, 256, 64), masked=True), "sm_90a")
    assert isinstance(found, WarpgroupLoop)
    assert [(map.columns, map.lines) for map in (found.x.map, found.y.map)] == [(1000, 1000), (1000, 1000)]
    odd = way(product(1001, 1001, 1001, (128, 256, 64), masked=True), "sm_90a")
    assert isinstance(odd, PrefetchedProduct)  # its lines begin anywhere


def test_other_masks_are_not_borders() -> None:
    kernel = product(1000, 1000, 1000, (128, 256, 64), masked=True)
    text = str(kernel).replace("(ks < 1000)[None, :]", "(ks * 2 < 1000)[None, :]")
    assert isinstance(way(parse(text), "sm_90a"), PrefetchedProduct)
    text = str(kernel).replace("(i2 < 1000)[:, None] & (ks", "(i2 + 1 < 1000)[:, None] & (ks")
    assert isinstance(
        way(parse(text), "sm_90a"), PrefetchedProduct
    )  # this matrix would begin a line before its parameter
    text = str(kernel).replace("(i2 < 1000)[:, None] & (ks", "(i2 - 1 < 1000)[:, None] & (ks")
    assert isinstance(
        way(parse(text), "sm_90a"), PrefetchedProduct
    )  # the first of its lines would have a negative number
    text = str(kernel).replace("x + ((i2 * 1000)", "x + (((i2 + 1) * 1000)")
    found = way(parse(text), "sm_90a")
    assert isinstance(found, WarpgroupLoop)  # this one begins a line behind its parameter
    assert found.x.map.anywhere
    assert (found.x.map.columns, found.x.map.lines) == (1000, 1000)


def test_masks_may_compare_with_parameters() -> None:
    """Programs for all sizes have masks whose extents are parameters."""
    text = str(product(1000, 1000, 1000, (128, 256, 64), masked=True)).replace('out: "*bf16"', 'out: "*bf16", n: "i32"')
    for given in (
        "(i2 < n)[:, None] & (ks",
        "((i2 < 1000) & (n < 3))[:, None] & (ks",
        "((n < 3) & (i2 < 1000))[:, None] & (ks",
    ):
        assert isinstance(way(parse(text.replace("(i2 < 1000)[:, None] & (ks", given)), "sm_90a"), PrefetchedProduct)


def test_boxes_of_overlapping_lines() -> None:
    """A matrix whose lines are as long as a box may begin at any 16 bytes."""
    inside = product(512, 512, 512, (128, 128, 64))
    ways = {}
    for by in (0, 4, 8):
        text = str(inside).replace("ks = k + tl.arange(0, 64)", f"ks = k + {by} + tl.arange(0, 64)")
        ways[by] = way(parse(text), "sm_90a")
    assert isinstance(ways[0], WarpgroupLoop)
    assert not ways[0].x.map.anywhere
    assert isinstance(ways[8], WarpgroupLoop)
    assert (ways[8].x.map.anywhere, ways[8].x.map.columns) == (True, 64)
    assert isinstance(ways[4], PrefetchedProduct)  # it begins at 8 bytes


def test_small_tiles_are_not_read_past_their_end() -> None:
    """Four adjacent warps cover more than 16 columns; computed operands have room for them."""
    for dtype, depth in (("f32", 32), ("bf16", 64)):
        small = product(64, 64, 512, (16, 16, depth), "MK,NK", dtype, "high" if dtype == "f32" else "highest")
        assert isinstance(way(small, "sm_80"), PrefetchedProduct)


def test_overwritten_operands_are_not_copied_asynchronously() -> None:
    text = str(product(512, 512, 512, (128, 256, 64))).replace("tl.store(out", "tl.store(x")
    assert isinstance(way(parse(text), "sm_90a"), PrefetchedProduct)
    assert isinstance(way(parse(text), "sm_80"), PrefetchedProduct)


def test_lone_product_becomes_a_loop_of_one_iteration() -> None:
    text = str(product(512, 512, 64, (128, 256, 64))).split("\n")
    start = next(n for n, line in enumerate(text) if "for k in" in line)
    lone = [line.removeprefix("    ") for line in text[start + 1 : start + 5]]
    kernel = parse("\n".join([*text[:start], *lone, *text[start + 5 :]]).replace("k + tl.arange", "tl.arange"))
    assert isinstance(way(kernel, "sm_90a"), WarpgroupLoop)


def test_strides_and_divisors() -> None:
    kernel = product(512, 384, 256, (128, 128, 64), "KM,KN")
    analysis = OperandAnalysis(kernel, check(kernel))
    x, y = analysis.strided(Name("x_")), analysis.strided(Name("y_"))
    assert x is not None
    assert y is not None
    assert (x.parameter, x.steps, x.along, x.pitch) == ("x", (1, 512), 0, 512)
    assert (y.parameter, y.steps, y.along, y.pitch) == ("y", (384, 1), 1, 384)
    assert analysis.divisor(x.pointer) == 128
    assert analysis.divisor_within(y.pointer, 384) == 128
    assert analysis.strided(Name("acc")) is None


@pytest.mark.parametrize(
    ("kind", "m", "n"), [("warp", 128, 128), ("warp", 40, 200), ("thread", 128, 128), ("thread", 7, 5)]
)
def test_every_accumulator_has_one_owner(kind: str, m: int, n: int) -> None:
    found = choose_tiling(kind, m, n, 8)
    layout = found.layout
    held = [1, 1]
    for axis, digits in enumerate(layout.axes):
        for d in digits:
            held[axis] *= d.extent
    assert held == [found.down * found.rows, found.across * found.columns]
    used = [(d.stride, d.extent) for digits in layout.axes for d in digits if d.stride is not None]
    assert sorted(stride * (extent - 1) for stride, extent in used)[-1] < found.threads
    assert sum(stride * (extent - 1) for stride, extent in used) == found.threads - 1


@pytest.mark.parametrize("k", [16, 64, 128, 144, 208, 240, 336])
def test_warpgroups_cover_the_tile(k: int) -> None:
    """Steps beyond the end of the sum are skipped only where the loop is unrolled."""
    kernel = product(128, 128, k, (128, 128, min(64, k)), masked=k % 64 != 0)
    if k == 64:  # what is no loop becomes one of one turn
        lines = str(kernel).split("\n")
        at = next(n for n, line in enumerate(lines) if "for k in" in line)
        lines[at : at + 5] = [line[4:].replace("k + tl", "tl") for line in lines[at + 1 : at + 5]]
        kernel = parse("\n".join(lines))
    text = kernel_source(kernel, "sm_90a")
    if "fence_products" not in text:
        assert k < 64
        return
    loop = re.findall(r"for \(int (\w+) = 0; \w+ < (\d+); \w+ \+= (\d+)\)", text.split("fence_registers(acc);")[1])[0]
    index, stop, step = loop[0], int(loop[1]), int(loop[2])
    guard = re.search(r"if \((.*)\) multiply\(", text)
    made = [
        (at, n)
        for at in range(0, stop, step)
        for n in range(4)
        if guard is None or eval(guard[1], {index: at, "step": n})
    ]
    assert len(made) == (-(-k // 16) if k < 4 * 64 and k % 64 else -(-k // 64) * 4)


# --- compiled ------------------------------------------------------------------------------------


def has_compiler() -> bool:
    try:
        return version() > (12, 0)
    except DeviceError:
        return False


compiled = pytest.mark.skipif(not has_compiler(), reason="no NVRTC")


@compiled
@pytest.mark.parametrize(("architecture", "order"), list(zip(ARCHITECTURES, ORDERS, strict=False)))
def test_products_compile_without_spills(architecture: str, order: str) -> None:
    made = build_kernel(product(4096, 4096, 4096, (128, 256, 64), order), architecture)
    assert made.spills == 0
    assert (made.threads, len(made.maps)) == ((384, 2) if architecture == "sm_90a" else (256, 0))
    single = build_kernel(product(512, 512, 512, (128, 128, 32), order, "f32"), architecture)
    assert single.threads == 256
    assert single.spills == 0


def units(sass: str) -> set[str]:
    """Return the instructions of machine code that multiply and copy."""
    return set(re.findall(r"\b(HGMMA|IGMMA|QGMMA|UTMALDG|HMMA|QMMA|IMMA|DFMA|FFMA|LDGSTS|LDSM|LDL)\b", sass))


def instructions(kernels: dict[str, Kernel], architecture: str) -> dict[str, set[str]]:
    """Compile and disassemble kernels together: the disassembler is slow to start."""
    source = together([kernel_source(kernel, architecture) for kernel in kernels.values()])
    text = disassemble(compile(source, architecture).image)
    if not text:
        pytest.skip("no disassembler")
    sections = re.split(r"\.section\s+\.text\._ZN8kernel_(\d)", text)[1:]
    made = {int(n): units(text) for n, text in zip(sections[::2], sections[1::2], strict=True)}
    assert len(made) == len(kernels)
    return {name: made[n] for n, name in enumerate(kernels)}


KERNEL = product(512, 512, 512, (128, 256, 64))
HIGH = product(256, 256, 256, (64, 64, 32), "MK,NK", dtype="f32", precision="high")
SHORT = {t: product(256, 256, 256, (128, 128, 128), "MK,NK", t, "medium") for t in ("i8", "f8e4m3", "f8e5m2")}


@compiled
def test_hopper_tensor_cores_are_used() -> None:
    exact = product(256, 256, 256, (128, 128, 128), "MK,NK", "f8e4m3")
    plain = product(256, 256, 256, (32, 32, 16), dtype="f32")
    found = instructions({"bf16": KERNEL, "high": HIGH, **SHORT, "exact": exact, "plain": plain}, "sm_90a")
    assert {"HGMMA", "UTMALDG"} <= found["bf16"]
    assert "LDL" not in found["bf16"]
    assert {"HGMMA", "UTMALDG"} <= found["high"]
    assert {"IGMMA", "UTMALDG"} <= found["i8"]
    assert {"QGMMA", "UTMALDG"} <= found["f8e4m3"] & found["f8e5m2"]
    assert "HMMA" in found["exact"], "as float16, with sums in float32"
    assert "HMMA" not in found["plain"]


@compiled
def test_tensor_cores_are_used() -> None:
    medium = product(256, 256, 256, (32, 32, 32), dtype="f32", precision="medium")
    whole = product(256, 256, 256, (32, 32, 128), "MK,NK", "i8")
    ampere = instructions({"bf16": KERNEL, "high": HIGH, "medium": medium, "whole": whole}, "sm_80")
    assert {"HMMA", "LDGSTS", "LDSM"} <= ampere["bf16"] & ampere["high"]
    assert {"HMMA", "LDSM"} <= ampere["medium"]
    assert {"IMMA", "LDGSTS"} <= ampere["whole"]
    blackwell = instructions(SHORT, "sm_120")
    assert {"IMMA", "LDGSTS"} <= blackwell["i8"]
    assert {"QMMA", "LDGSTS"} <= blackwell["f8e4m3"] & blackwell["f8e5m2"]


# --- emulated ------------------------------------------------------------------------------------


def case(
    m: int, n: int, k: int, tile: tuple[int, int, int], *more: str, **options: object
) -> tuple[Kernel, tuple[int, int]]:
    """Return a kernel and its grid."""
    return product(m, n, k, tile, *more, **options), (-(-n // tile[1]), -(-m // tile[0]))  # type: ignore[arg-type]


def looked_up() -> Kernel:
    """Return a product plus rows of a table, as after an embedding; threads share the positions."""
    plain = str(product(64, 64, 96, (32, 64, 32), "MK,NK", "f32", "high"))
    before, _, _ = plain.partition("    tl.store")
    place = "(tl.minimum(tl.maximum(tl.load(places + i2), 0), 255) * 64)[:, None] + i[None, :]"
    return parse(
        before.replace('out: "*f32"', 'out: "*f32", places: "*i64", table: "*f32"')
        + f"    place = {place}\n    out_ = acc + tl.load(table + place)\n"
        + "    tl.store(out + ((i2 * 64)[:, None] + i[None, :]), out_)\n"
    )


CASES = {
    **{f"pieces {order}": case(128, 128, 192, (64, 64, 64), order) for order in ORDERS},
    **{f"numbers {order}": case(32, 48, 40, (32, 48, 8), order, "f32") for order in ORDERS},
    **{f"float64 {order}": case(16, 16, 24, (16, 16, 8), order, "f64") for order in ORDERS[:2]},
    **{f"ahead {order}": case(40, 56, 72, (32, 32, 32), order, "f16", masked=True) for order in ORDERS},
    **{f"computed {order}": case(32, 64, 64, (32, 32, 32), order, before="{} * 2.0") for order in ORDERS[:2]},
    **{f"tf32 {order}": case(64, 96, 96, (64, 32, 32), order, "f32", "high") for order in ORDERS},
    **{f"tf32 ahead {order}": case(40, 56, 72, (32, 32, 32), order, "f32", "high", masked=True) for order in ORDERS},
    "integers": case(64, 32, 256, (32, 32, 128), "MK,NK", "i8"),
    "integers turned": case(64, 32, 128, (32, 32, 64), "KM,KN", "i8"),
    "floats of 8 bits": case(64, 32, 256, (32, 32, 128), "MK,NK", "f8e4m3"),
    "floats of 8 bits turned": case(40, 56, 72, (32, 32, 32), "KM,KN", "f8e5m2", masked=True),
    "medium": case(32, 32, 64, (32, 32, 32), dtype="f32", precision="medium"),
    "tf32 looked up": (looked_up(), (1, 2)),
    **{f"group {order}": case(128, 256, 192, (64, 128, 64), order) for order in ORDERS},
    **{f"swapped {order}": case(192, 128, 128, (192, 64, 64), order) for order in ORDERS},
    **{f"group masked {order}": case(104, 200, 136, (64, 256, 64), order, "f16", masked=True) for order in ORDERS},
    **{f"tf32 group {order}": case(128, 96, 96, (64, 96, 32), order, "f32", "high") for order in ORDERS},
    **{f"tf32 wide {order}": case(80, 128, 48, (80, 128, 32), order, "f32", "high", masked=True) for order in ORDERS},
    "stays": case(256, 512, 192, (128, 256, 64)),
    "stays masked": case(392, 328, 136, (128, 256, 64), "KM,NK", "f16", masked=True),
    "group of integers": case(128, 128, 256, (64, 128, 128), "MK,NK", "i8"),
    "group of naturals": case(192, 64, 128, (192, 64, 128), "MK,NK", "u8"),
    "group of floats of 8 bits": case(128, 64, 256, (128, 32, 128), "MK,NK", "f8e5m2", "medium"),
    "group of other floats of 8 bits": case(64, 64, 128, (64, 64, 128), "MK,NK", "f8e4m3", "high"),
    "odd": case(10, 14, 21, (5, 7, 7), dtype="f32"),
    "odd half": case(10, 14, 21, (5, 7, 7), dtype="f16"),
}


def as_tf32(x: np.ndarray) -> np.ndarray:
    """Round to 11 bits."""
    return ((x.view(np.uint32) + np.uint32(0x1000)) & ~np.uint32(0x1FFF)).view(np.float32)


EMULATED = ("sm_80", "sm_90a")


@pytest.fixture(scope="module", params=EMULATED)
def emulation(request: pytest.FixtureRequest) -> emulated.Emulated:
    if not emulated.has_compiler():
        pytest.skip("no C++ compiler")
    return emulated.Emulated([kernel for kernel, _ in CASES.values()], request.param)


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_interpreter(name: str, emulation: emulated.Emulated) -> None:
    kernel, grid = CASES[name]
    random = np.random.default_rng(len(name))
    arrays = []
    for p in kernel.parameters:
        if p.name == "out":
            arrays.append(np.full(1 << 18, 77, p.dtype.numpy))
        elif p.dtype.is_float:
            arrays.append(random.standard_normal(1 << 18).astype(p.dtype.numpy))
            if name.startswith("tf32"):
                arrays[-1] = as_tf32(arrays[-1])
        else:
            arrays.append(random.integers(0 if "uint" in p.dtype.name else -50, 50, 1 << 18).astype(p.dtype.numpy))
    wanted = [a.copy() for a in arrays]
    run(kernel, wanted, grid)
    for reversed in (False, True):
        got = [a.copy() for a in arrays]
        emulation.run(list(CASES).index(name), got, grid, reversed)
        np.testing.assert_allclose(got[2].astype(np.float64), wanted[2].astype(np.float64), rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("order", ["MK,KN", "KM,KN"])
def test_tf32_rounds_to_nearest(order: str, emulation: emulated.Emulated) -> None:
    name = f"tf32 {order}"
    x = np.random.default_rng(0).standard_normal((96, 96)).astype(np.float32)
    x[0, :4] = np.inf, -np.inf, 3.0, 1e-30
    given = np.ascontiguousarray(x[:64] if order == "MK,KN" else x[:, :64])
    out = np.zeros((64, 96), np.float32)
    emulation.run(
        list(CASES).index(name), [given.ravel(), np.eye(96, dtype=np.float32).ravel(), out.ravel()], CASES[name][1]
    )
    wanted = as_tf32(given if order == "MK,KN" else np.ascontiguousarray(given.T))
    usual = ~np.isinf(wanted).any(1)  # an infinity times 0 is NaN
    np.testing.assert_array_equal(out[usual], wanted[usual])
    assert np.max(np.abs(wanted[usual] / (given if order == "MK,KN" else given.T)[usual] - 1)) <= 2.0**-11


@pytest.mark.parametrize("architecture", EMULATED)
def test_values_of_several_stores_are_loaded_once(architecture: str) -> None:
    """A tile loaded in batches is available to a store in another element order too."""
    if not emulated.has_compiler():
        pytest.skip("no C++ compiler")
    text, after = str(product(16, 64, 128, (16, 64, 32), "MK,NK", "f32", "high")).split("    tl.store(")
    lines = [
        "x3_ = tl.load(third + ((i2 * 729)[:, None] + i[None, :]), mask=(i < 60)[None, :])",
        "tl.store(out + ((i2 * 729)[:, None] + i[None, :]), tl.maximum(acc, 0.0), mask=(i < 60)[None, :])",
        *[f"tl.store({name} + ({at}), tl.where(acc <= 0.0, 0.0, x3_), mask=(i < 60)[None, :])"
          for name, at in (("one", "(i2 * 729)[:, None] + i[None, :]"), ("two", "(i * 16)[None, :] + i2[:, None]"))],
    ]  # fmt: skip
    assert after
    head = text.replace('out: "*f32"', 'third: "*f32", out: "*f32", one: "*f32", two: "*f32"')
    kernel = parse(head + "".join(f"    {line}\n" for line in lines))
    emulation = emulated.Emulated([kernel], architecture)
    given = [np.random.default_rng(n).integers(-4, 5, 1 << 14).astype(np.float32) for n in range(6)]
    wanted, got = [a.copy() for a in given], [a.copy() for a in given]
    run(kernel, wanted, (1, 1))
    emulation.run(0, got, (1, 1), architecture == "sm_80")
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
