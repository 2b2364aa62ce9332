"""CUDA C++: golden sources, and (emulated, where there is a C++ compiler) results."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.backend.cuda.emulated import Emulated, has_compiler
from tests.backend.cuda.functions_kernels import CASES
from tests.backend.cuda.some_kernels import SCHEDULED, runs
from tests.kernels import Case, cases
from tests.known_kernels import KNOWN
from tilegrad.backend.cuda.code.layout import blocked
from tilegrad.backend.cuda.code.lower import lower
from tilegrad.backend.cuda.code.prelude import NAMES
from tilegrad.backend.reference.tile import run
from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_parser import parse

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="there is no g++ to run generated code with")

SHOWN = {make.__name__: make(np.random.default_rng(0)).kernel for make in KNOWN if "matmul" not in make.__name__}


def own_text(kernel: Kernel) -> str:
    """Return the source of a kernel without the prelude."""
    text = lower(kernel).text
    first = kernel.origin.split("\n")[0] or "@tg.kernel"
    return text[text.index(f"// {first}\n") :]


@pytest.mark.parametrize("name", [*SHOWN, *SCHEDULED])
def test_sources(name: str, golden: Callable[[object], None]) -> None:
    golden(own_text((SHOWN | SCHEDULED)[name]))


def test_the_source_begins_with_the_users_line_and_the_kernel() -> None:
    kernel = SCHEDULED["rows"].replaced(origin="model.py:7 softmax")
    text = own_text(kernel)
    assert text.startswith("// model.py:7 softmax\n// @tg.kernel\n// def rows(")
    assert "\nrows_kernel(const float* __restrict__ x, float* __restrict__ out, int grid_0" in text


def test_cpp_keywords_are_renamed() -> None:
    kernel = parse("""
        def main(float_: "*f32", int: "*f32", n: "i32", expf: "f32", v: "f32", maximum: "f32", thread: "i32"):
            template = tl.program_id(0) * 64 + tl.arange(0, 64) + thread
            at = tl.load(int + template, mask=template < n)
            sum = tl.exp(at) * expf + tl.maximum(v, maximum)
            tl.store(float_ + template, sum)
    """)
    text = own_text(kernel)
    assert "main_kernel(float* __restrict__ float_, const float* __restrict__ int_, int n_, float expf_" in text
    assert all(not re.search(rf"(float|int) {name}\b", text) for name in ("int", "expf", "maximum"))
    assert "maximum" in NAMES
    if has_compiler():
        Emulated([kernel])


ROWS_WITH_GAPS = """
def masked(x: "*f32", y: "*f32", upstream: "*f32", out: "*f32"):
    i = tl.program_id(0) * 64 + tl.arange(0, 64)
    row = tl.arange(0, 64)
    k = tl.arange(0, 32)
    left = tl.load(x + (row[:, None] * 32 + k[None, :]))
    right = tl.load(y + (i[None, :] + k[:, None] * 640))
    acc = tl.dot(left, right, tl.zeros([64, 64], tl.float32))
    within = i % 13
    at = row[:, None] * 144 + (i // 13 * 12)[None, :] + within[None, :]
    there = (within < 12)[None, :]
    forward = tl.load(upstream + at, mask=there, other=0.0)
    tl.store(out + at, tl.where(forward > 0.0, acc, 0.0), mask=there)
"""


@pytest.mark.parametrize(("step", "vectors"), [(1, False), (64, True)])
def test_addresses_that_advance_are_as_aligned_as_their_steps(step: int, vectors: bool) -> None:
    text = own_text(
        parse(f"""
        def advance(x: "*f32", out: "*f32"):
            p = x
            i = tl.arange(0, 512)
            for k in range(0, 3):
                tl.store(out + k * 512 + i, tl.load(p + i))
                p += {step}
    """)
    )
    assert ("read(p_" in text) is vectors


def test_loops_with_one_counter_share_only_what_holds_in_all_of_them() -> None:
    text = own_text(
        parse("""
        def halves(out: "*i32"):
            for k in range(-3, 3):
                tl.store(out + k + 3, k // 2)
            for k in range(0, 64, 16):
                tl.store(out + k, k // 2)
    """)
    )
    assert text.count("= floor_divide(k, 2)") == 2


def test_accesses_are_coalesced_across_row_padding() -> None:
    """Padding between the rows of an image is skipped: the typical step along them is 1, across them always 144."""
    text = lower(parse(ROWS_WITH_GAPS), "sm_90a").text
    assert "const int at1 = thread % " in text[text.index("float* all_acc") :]


def test_epilogue_loads_are_batched() -> None:
    """All loads are started before the first one is awaited."""
    text = lower(parse(ROWS_WITH_GAPS), "sm_90a").text
    loads, rest = text[text.index("float forward[8][4];") :].split("force_loads(forward);")
    assert "? &upstream[" in loads
    assert "out[" in rest
    assert "upstream[" not in rest
    if has_compiler():
        kernel = parse(ROWS_WITH_GAPS)
        rng = np.random.default_rng(1)
        x, y, upstream = (rng.standard_normal(n).astype(np.float32) for n in (2048, 64 * 20 + 640 * 32, 9216))
        out = np.full(9216, 7.0, np.float32)
        Emulated([kernel]).run(0, [x, y, upstream, out], (2, 1, 1))
        wanted = out.copy()
        sums = x.reshape(64, 32) @ np.stack([y[640 * k : 640 * k + 128] for k in range(32)])
        for i in range(128):
            if i % 13 < 12:
                at = np.arange(64) * 144 + i // 13 * 12 + i % 13
                wanted[at] = np.where(upstream[at] > 0, sums[:, i], 0)
        np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)


def test_unknown_parameters_are_loaded_under_their_mask() -> None:
    """Masked loads read the first element of a known tensor, but not through a pointer of unknown origin."""
    moving = "    p = upstream\n    for n in range(3):\n        p = p + 64\n    forward = tl.load(p + at"
    text = lower(parse(ROWS_WITH_GAPS.replace("    forward = tl.load(upstream + at", moving)), "sm_90a").text
    (line,) = [line for line in text.splitlines() if re.search(r" p\w*\[", line)]
    assert re.search(r"< 12 \? p\w*\[", line)


@pytest.mark.parametrize("threads", [32, 128, 1024])
@pytest.mark.parametrize("shape", [(7,), (8192,), (3, 500), (240, 9), (2, 3, 5, 64), (1, 1)])
def test_layouts_hold_every_element_once(shape: tuple[int, ...], threads: int) -> None:
    for order in (tuple(range(len(shape))), ()):
        layout = blocked(shape, threads, 4, order)
        held: set[tuple[int, ...]] = set()
        positions = [_positions(layout.axes[axis], threads) for axis in range(len(shape))]
        mine = layout.copy_bits(threads)
        count = 0
        for thread in range(threads):
            if thread & mine:
                continue
            ranges = [[p for p in positions[axis][thread] if p < shape[axis]] for axis in range(len(shape))]
            made = np.stack(np.meshgrid(*ranges, indexing="ij"), -1).reshape(-1, len(shape))
            count += len(made)
            held.update(map(tuple, made.tolist()))
        assert count == len(held) == np.prod(shape)


def _positions(digits: Sequence[Any], threads: int) -> list[list[int]]:
    """Return the positions along an axis that each thread holds."""
    made = [[0] for _ in range(threads)]
    weight = 1
    for digit in digits:
        for thread in range(threads):
            values = range(digit.extent) if digit.stride is None else [thread // digit.stride % digit.extent]
            made[thread] = [p + weight * value for p in made[thread] for value in values]
        weight *= digit.extent
    return made


# --- computed -------------------------------------------------------------------------------------


def agree(kernels: Sequence[tuple[Kernel, list[Any], tuple[int, ...]]]) -> None:
    """Check that an emulated block computes what the interpreter does, in both thread orders."""
    emulated = Emulated([kernel for kernel, _, _ in kernels])
    for number, (kernel, arguments, grid) in enumerate(kernels):
        wanted = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        with np.errstate(all="ignore"):
            run(kernel, wanted, grid)
        for reversed in (False, True):
            got = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
            emulated.run(number, got, grid, reversed)
            for p, x, y in zip(kernel.parameters, got, wanted, strict=True):
                if p.pointer:
                    rough = 2e-2 if p.dtype.bits == 16 and p.dtype.is_float else 2e-5
                    x, y = x.astype(np.float64), y.astype(np.float64)
                    close = 1e-5 * max(1.0, np.abs(y[np.isfinite(y)]).max(initial=0.0) / 8)
                    np.testing.assert_allclose(x, y, rough, close, err_msg=f"{p.name} of {kernel}")


@needs_compiler
def test_known_kernels() -> None:
    known = [make(np.random.default_rng(2)) for make in KNOWN]
    agree([(k.kernel, k.arguments, k.grid) for k in known])


@needs_compiler
def test_scheduled_kernels_atomics_and_aliased_memory() -> None:
    agree([tuple(r) for r in runs()])  # type: ignore[misc]


@needs_compiler
@pytest.mark.parametrize("late", [False, True])
def test_in_place_update_through_aliased_parameters(late: bool) -> None:
    """All threads of a row use what its owner overwrites, so they must have read it before."""
    load = "o = tl.load(old + i)"
    kernel = parse(f"""
        def two_names(x: "*f32", old: "*f32", out: "*f32", new: "*f32"):
            i = tl.program_id(0) * 2 + tl.arange(0, 2)
            k = tl.arange(0, 1024)
            {"" if late else load}
            x_ = tl.load(x + (i * 1024)[:, None] + k[None, :])
            {load if late else ""}
            tl.store(new + i, o * 2.0)
            tl.store(out + (i * 1024)[:, None] + k[None, :], x_ - o[:, None])
    """)
    x, wanted = np.random.default_rng(5).standard_normal((4, 1024)).astype(np.float32), np.arange(4, dtype=np.float32)
    emulated = Emulated([kernel])
    for reversed in (False, True):
        old, out = wanted.copy(), np.zeros_like(x)
        emulated.run(0, [x, old, out, old], (2,), reversed)
        np.testing.assert_array_equal(out, x - wanted[:, None])
        np.testing.assert_array_equal(old, wanted * 2)


@needs_compiler
def test_drawn_kernels() -> None:
    """Compile random kernels together, which is ten times faster."""
    drawn: list[Case] = []

    @seed(11)
    @settings(
        max_examples=40, database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
    @given(cases())
    def draw(case: Case) -> None:
        drawn.append(case)

    draw()
    emulated = Emulated([case.kernel for case in drawn])
    for number, case in enumerate(drawn):
        with np.errstate(all="ignore"):
            wanted = case.run(lambda kernel, arguments, grid: run(kernel, arguments, grid))
        for reversed in (False, True):
            got = case.run(lambda kernel, arguments, grid: emulated.run(number, arguments, grid, reversed))  # noqa: B023
            case.assert_agree(got, wanted)


@needs_compiler
def test_functions_and_conversions() -> None:
    """Try every seventh case; a GPU tries all (tests/gpu/test_gpu_kernels.py)."""
    some = CASES[3::7]
    emulated = Emulated([case.kernel() for case in some])
    for number, case in enumerate(some):
        arrays = [a.copy() for a in case.arrays()]
        emulated.run(number, arrays, (1,))
        case.assert_right(arrays)
