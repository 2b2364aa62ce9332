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
// report_fault: records an out-of-bounds index for the host, unless one is recorded.
struct IndexFault { int64 place, index, extent; };
__device__ void report_fault(IndexFault x, int64* noted) {
    if (x.place && atomicCAS((uint64*)noted, uint64(0), uint64(x.place)) == 0) noted[1] = x.index, noted[2] = x.extent;
}

// clamp_index: clamps an index to its axis, and records it if it is out of bounds.
template <class T> __device__ T clamp_index(T x, T end, T place, IndexFault& last) {
    bool outside = x < T(0) || x >= end;
    last.place = outside ? int64(place) + 1 : last.place;
    last.index = outside ? int64(x) : last.index;
    last.extent = outside ? int64(end) : last.extent;
    return minimum(maximum(x, T(0)), T(end - T(1)));
}
template <class T> __device__ T clamp_index(T x, T end, T place, int64* noted) {
    if (x < T(0) || x >= end) report_fault({int64(place) + 1, x, end}, noted);
    return minimum(maximum(x, T(0)), T(end - T(1)));
}
"""


def checks_indices(lines: Sequence[str]) -> bool:
    """Return whether the body of a kernel checks indices."""
    return any(f", {RECORD})" in line for line in lines)


def fault_declaration(immediately: bool) -> str:
    """Return the line that declares where out-of-bounds indices go."""
    return f"int64* const {RECORD} = {PLACE};" if immediately else f"IndexFault {RECORD} = {{0, 0, 0}};"


def fault_report(immediately: bool) -> list[str]:
    """Return the lines that end a kernel which checks indices."""
    return [] if immediately else [f"    report_fault({RECORD}, {PLACE});"]
