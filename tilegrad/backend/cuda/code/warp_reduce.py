"""Communicate between threads: reductions, scans, and copies of tiles to shared memory.

Lanes combine by shuffles, warps through shared memory, in an order that depends on the shape alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....ir.dtype import DType, bfloat16, float16
from ....ir.functions import accumulation_dtype, identity
from .elements import SharedTile, element_view
from .functions import TYPES, Text, literal, narrowed
from .hardware import WARP_LANES
from .layout import Digit, RegisterLayout

if TYPE_CHECKING:
    from .lower import CudaLowering

MIN_WARPS_FOR_LANES = 4
"""Warps from which on lanes combine the warps' partial results, instead of every thread combining all of them."""
COMBINE = {
    "add": "Add",
    "mul": "Multiply",
    "maximum": "Maximum",
    "minimum": "Minimum",
    "bitand": "And",
    "bitor": "Or",
    "argmax": "Greatest",
    "argmin": "Least",
}
"""Names in the prelude of the functions of REDUCERS."""


def initial_value(fn: str, dtype: DType) -> Text:
    """Return the initial value of a reduction."""
    return literal(identity({"argmax": "maximum", "argmin": "minimum"}.get(fn, fn), dtype), dtype)


def split_digit(digit: Digit) -> tuple[int, int]:
    """Return how many values of a digit are in one warp, and over how many warps the rest is spread."""
    assert digit.stride is not None
    lanes = min(digit.extent, max(1, WARP_LANES // digit.stride))
    return lanes, digit.extent // lanes


def reduce_threads(
    low: CudaLowering, fn: str, type: str, name: str, axis: Sequence[Digit], rest: RegisterLayout
) -> None:
    """Reduce an axis across threads; `name` is an array over the registers of the other axes."""
    combine = COMBINE[fn]
    lane_bits = 0
    for digit in axis:
        if digit.stride is None:
            continue
        lanes, warps = split_digit(digit)
        if lanes > 1:
            lane_bits |= (lanes - 1) * digit.stride
            with low.over(rest) as at:
                low.out.add(f"{name}{at} = over_lanes<{combine}, {digit.stride}, {lanes}>({name}{at});")
        if warps > 1:
            _reduce_warps(
                low, combine, type, name, warps, max(digit.stride, WARP_LANES), rest, lane_bits == WARP_LANES - 1
            )


def _reduce_warps(
    low: CudaLowering, combine: str, type: str, name: str, warps: int, stride: int, rest: RegisterLayout, same: bool
) -> None:
    """Reduce across warps; `same`: all lanes of a warp hold the same value."""
    unit = WARP_LANES if same else 1
    each, who = low.threads // unit, "thread / 32" if same else "thread"
    count = math.prod(rest.extents())
    parts = low.shared_array(type, count * each * low.bytes_of(type))
    step, whole = stride // unit, warps * stride == low.threads
    mask = (warps - 1) * step
    first = f"({who} & ~{mask})" if not (whole and step == 1) else ""
    if whole and not same and stride == WARP_LANES:
        first = "thread % 32"
    with low.over(rest) as at:
        place = _join_terms(low.flat(rest, each), who)
        low.out.add(f"{'if (thread % 32 == 0) ' if same else ''}{parts}[{place}] = {name}{at};")
    low.barrier()
    with low.over(rest) as at:
        if same and warps >= MIN_WARPS_FOR_LANES:
            lane = f"thread % {warps}" if step == 1 else f"thread % {warps} * {step}"
            place = _join_terms(low.flat(rest, each), first, lane)
            low.out.add(f"{name}{at} = over_lanes<{combine}, 1, {warps}>({parts}[{place}]);")
        else:
            place = _join_terms(parts, low.flat(rest, each), first)
            low.out.add(f"{name}{at} = over_warps<{combine}, {step}, {warps}>({place});")


def _join_terms(*terms: str) -> str:
    """Join the nonzero terms of a sum."""
    return " + ".join(term for term in terms if term not in ("", "0")) or "0"


def scan_threads(low: CudaLowering, fn: str, dtype: DType, name: str, axis: int, layout: RegisterLayout) -> None:
    """Replace each element of an array by the scan up to it."""
    type, combine = TYPES[dtype.name], COMBINE[fn]
    digits = layout.axes[axis]
    registers = [n for n, d in enumerate(digits) if d.stride is None]
    thread = next((d for d in digits if d.stride is not None), None)
    low_digit = 0 if registers and registers[0] == 0 and (thread is not None or len(digits) == 1) else None
    chunk_digit = registers[-1] if registers and registers[-1] != low_digit else None
    assert len(digits) <= 3, "a blocked axis"
    assert thread is None or len(digits) == 1 + len(registers), "a blocked axis"
    inner, chunks = (1 if n is None else digits[n].extent for n in (low_digit, chunk_digit))
    scan = ScanWriter(low, type, combine, name, axis, layout, low_digit, chunk_digit)
    scan.vectors(inner)
    start = literal(identity(fn, accumulation_dtype(dtype)), accumulation_dtype(dtype))
    parts, warps, _ = scan.lanes(thread, inner) if thread is not None else ("", 1, "")
    if thread is not None or chunks > 1:
        scan.chunks(start, parts, warps, thread, inner, chunks)
    if dtype in (float16, bfloat16):
        with low.over(layout) as at:
            low.out.add(f"{name}{at} = {narrowed(Text(f'{name}{at}'), dtype)};")


class ScanWriter:
    """Writes a scan whose axis is a vector, threads, and chunks of these."""

    def __init__(
        self,
        low: CudaLowering,
        type: str,
        combine: str,
        name: str,
        axis: int,
        layout: RegisterLayout,
        inner: int | None,
        chunk: int | None,
    ) -> None:
        self.low, self.type, self.combine, self.name, self.axis = low, type, combine, name, axis
        self.layout, self.inner, self.chunk = layout, inner, chunk

    def vectors(self, inner: int) -> None:
        """Scan within the vectors of a thread."""
        if self.inner is None or inner == 1:
            return
        with self.low.over(self.layout, start={(self.axis, self.inner): 1}) as at:
            before = self.shifted(at)
            self.low.out.add(f"{self.name}{at} = {self.combine}::of({self.name}{before}, {self.name}{at});")

    def shifted(self, at: str) -> str:
        """Return the indices of the preceding element of a vector."""
        assert self.inner is not None
        variable = self.low.variable(self.layout, self.axis, self.inner)
        return at.replace(f"[{variable}]", f"[{variable} - 1]")

    def last(self, at: str, inner: int) -> str:
        """Return the indices of a vector's last element."""
        return (
            at
            if self.inner is None
            else at.replace(f"[{self.low.variable(self.layout, self.axis, self.inner)}]", f"[{inner - 1}]")
        )

    def lanes(self, thread: Digit, inner: int) -> tuple[str, int, str]:
        """Scan across lanes; the total of each warp goes to shared memory."""
        low = self.low
        assert thread.stride is not None
        lanes, warps = split_digit(thread)
        chunk_count = math.prod(self.layout.extents()) // inner
        parts = low.shared_array(self.type, chunk_count * low.threads * low.bytes_of(self.type)) if warps > 1 else ""
        with low.over(self.layout, without=self._vector(), scope=True) as at:
            out = low.out
            last = self.last(at, inner)
            upto = "upto"
            out.add(f"{self.type} {upto} = {self.name}{last};")
            if lanes > 1:
                out.add(f"{upto} = scan_lanes<{self.combine}, {thread.stride}, {lanes}>({upto}, thread);")
                out.add(f"{self.type} below = from_lane({upto}, thread - {thread.stride});")
                with out.block(f"if (thread / {thread.stride} % {lanes} > 0)"):
                    self._apply_prefix(inner, at, "below")
            if warps > 1:
                lane = f"thread | {(lanes - 1) * thread.stride}" if lanes > 1 else "thread"
                total = f"from_lane({upto}, {lane})" if lanes > 1 else upto
                out.add(f"{parts}[{_join_terms(self._chunk_flat(), 'thread')}] = {total};")
        if warps > 1:
            low.barrier()
        return parts, warps, "thread"

    def _chunk_flat(self) -> str:
        return self.low.flat(self.layout, self.low.threads, self._vector())

    def _vector(self) -> set[tuple[int, int]]:
        return {(self.axis, self.inner)} if self.inner is not None else set()

    def _apply_prefix(self, inner: int, at: str, before: str) -> None:
        """Combine a prefix with all elements of a vector."""
        out = self.low.out
        if self.inner is None:
            out.add(f"{self.name}{at} = {self.combine}::of({before}, {self.name}{at});")
            return
        variable = self.low.variable(self.layout, self.axis, self.inner)
        with out.block(f"for (int {variable} = 0; {variable} < {inner}; ++{variable})", unrolled=True):
            out.add(f"{self.name}{at} = {self.combine}::of({before}, {self.name}{at});")

    def chunks(self, start: Text, parts: str, warps: int, thread: Digit | None, inner: int, chunks: int) -> None:
        """Carry prefixes from warp to warp and from chunk to chunk."""
        low, out = self.low, self.low.out
        if warps == 1 and chunks == 1:
            return
        own = {(self.axis, place) for place in range(len(self.layout.axes[self.axis]))}
        with low.over(self.layout, without=own, scope=True) as at:
            out.add(f"{self.type} before = {start};")
            chunk = low.variable(self.layout, self.axis, self.chunk) if self.chunk is not None else ""
            head = f"for (int {chunk} = 0; {chunk} < {chunks}; ++{chunk})" if chunk else ""
            with out.block(head, unrolled=bool(chunk)):
                if warps > 1:
                    self._carry_over_warps(parts, warps, thread, inner, at)
                else:
                    self._carry_over_chunk(thread, inner, at)

    def _carry_over_warps(self, parts: str, warps: int, thread: Digit | None, inner: int, at: str) -> None:
        assert thread is not None
        assert thread.stride is not None
        out, stride = self.low.out, max(thread.stride, WARP_LANES)
        mask = (warps - 1) * stride
        first = _join_terms(parts, self._chunk_flat(), f"(thread & ~{mask})")
        call = f"scan_warps<{self.combine}, {stride}, {warps}>"
        done = f"thread / {stride}" if warps * stride == self.low.threads else f"thread / {stride} % {warps}"
        out.add(f"{self.type} here = {call}(before, {first}, {done});")
        self._apply_prefix(inner, at, "here")
        out.add(f"before = {call}(before, {first}, {warps});")

    def _carry_over_chunk(self, thread: Digit | None, inner: int, at: str) -> None:
        out = self.low.out
        self._apply_prefix(inner, at, "before")
        last = f"{self.name}{self.last(at, inner)}"
        if thread is None:
            out.add(f"before = {last};")
            return
        assert thread.stride is not None
        out.add(f"before = from_lane({last}, thread | {(thread.extent - 1) * thread.stride});")


def copy_tiles(low: CudaLowering, names: Sequence[str]) -> dict[str, SharedTile]:
    """Copy tiles from registers to shared memory, where every thread can read every element."""
    sizes, copies = [], {}
    for name in names:
        t = low.types.variables[name]
        inner = t.shape[-1]
        padding = 4 if low.plan.updates_in_place and inner % 4 == 0 else 1 if inner % 2 == 0 else 0
        pitch = inner + (
            padding if len(t.shape) > 1 else 0
        )  # avoids bank conflicts along columns, keeps vectors aligned
        type = low.register_type(t, name)
        bytes = math.prod(t.shape[:-1]) * pitch * low.bytes_of(type)
        sizes.append((name, type, pitch, -(-bytes // 16) * 16))
    place, offset = low.take_shared(sum(bytes for *_, bytes in sizes)), 0
    for name, type, pitch, bytes in sizes:
        text = low.names.fresh(f"all_{low.names.of(name).strip('_')}")
        low.out.add(f"{type}* {text} = reinterpret_cast<{type}*>({place}{f' + {offset}' if offset else ''});")
        copies[name] = SharedTile(text, low.types.variables[name].shape, pitch)
        offset += bytes
    for name, *_ in sizes:
        _fill_copy(low, name, copies[name])
    low.barrier()
    return copies


def _fill_copy(low: CudaLowering, name: str, copy: SharedTile) -> None:
    """Let the owner of each element store it."""
    kept = low.elements.register_tiles[name]
    layout = kept.layout
    with low.over(layout) as at:
        view, conditions = low.positions(layout)
        place = low.elements.place(element_view(view, layout), copy.shape, copy.pitch)
        conditions = [*low.owners(layout), *conditions]
        guard = f"if ({' && '.join(conditions)}) " if conditions else ""
        low.out.add(f"{guard}{copy.text}[{place}] = {kept.text}{at};")
