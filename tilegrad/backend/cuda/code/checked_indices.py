"""Clamp indices to their axes and report those out of bounds (`runtime/index_faults.py`).

A thread keeps its last out-of-bounds index in registers and reports it at the end of the kernel, so that no branch
separates loads. In kernels with matrix products, whose warps have different roles, it reports at once.
"""

from __future__ import annotations

from collections.abc import Sequence

PLACE = "index_faults_at"
"""Parameter of kernels that check indices: the address of the fault record."""
RECORD = "index_faults"
"""Variable that receives out-of-bounds indices: registers, or the record itself."""

CHECKED_INDICES = """
// report_outside: notes an index that is outside of its axis for the host, if none is noted.
struct OutsideAxis { int64 place, index, extent; };
__device__ void report_outside(OutsideAxis x, int64* noted) {
    if (x.place && atomicCAS((uint64*)noted, uint64(0), uint64(x.place)) == 0) noted[1] = x.index, noted[2] = x.extent;
}

// kept_inside: the nearest position on an axis.
template <class T> __device__ T kept_inside(T x, T end, T place, OutsideAxis& last) {
    bool outside = x < T(0) || x >= end;
    last.place = outside ? int64(place) + 1 : last.place;
    last.index = outside ? int64(x) : last.index;
    last.extent = outside ? int64(end) : last.extent;
    return minimum(maximum(x, T(0)), T(end - T(1)));
}
template <class T> __device__ T kept_inside(T x, T end, T place, int64* noted) {
    if (x < T(0) || x >= end) report_outside({int64(place) + 1, x, end}, noted);
    return minimum(maximum(x, T(0)), T(end - T(1)));
}
"""


def checks_indices(lines: Sequence[str]) -> bool:
    """Return whether the body of a kernel checks indices."""
    return any(f", {RECORD})" in line for line in lines)


def fault_declaration(immediately: bool) -> str:
    """Return the line that declares where out-of-bounds indices go."""
    return f"int64* const {RECORD} = {PLACE};" if immediately else f"OutsideAxis {RECORD} = {{0, 0, 0}};"


def fault_report(immediately: bool) -> list[str]:
    """Return the lines that end a kernel which checks indices."""
    return [] if immediately else [f"    report_outside({RECORD}, {PLACE});"]
