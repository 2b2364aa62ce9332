"""Layouts: the distribution of a tile's elements over the threads of a block.

A position along an axis is a number in mixed radix. Each of its digits is a register index (all its values are in one
thread) or some bits of the thread's number. A tile of [4, 512] over 256 threads:

    axis 1:  4 (register, a vector), 128 (thread % 128)
    axis 0:  2 (thread / 128), 2 (register)

Digits may cover more than the extent; positions beyond it are masked. Threads that differ only in other bits hold
copies; the one with zeros there *owns* the elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ....ir.node import Structure

MIN_COALESCED_THREADS = 8
"""Adjacent threads that at least share the accesses along an axis, where its extent allows."""
MAX_COVERAGE_RATIO = 1.15
"""Largest ratio of the positions covered by threads, idle ones included, to the fewest possible."""


class Digit(Structure):
    """A digit of a position: threads `stride` apart, or a register index if there is no stride."""

    extent: int
    stride: int | None = None


class RegisterLayout(Structure):
    """The digits of each axis, lowest first; `vector` is the axis whose lowest digit is a vector, or -1."""

    shape: tuple[int, ...]
    axes: tuple[tuple[Digit, ...], ...]
    vector: int = -1

    @property
    def width(self) -> int:
        """Elements of a vector."""
        return self.axes[self.vector][0].extent if self.vector >= 0 else 1

    @property
    def vector_axis(self) -> int:
        """Axis along which vectors run, counted from the last; beyond all axes if there is none."""
        return self.vector - len(self.shape)

    def registers(self) -> list[tuple[int, int]]:
        """Return the register digits as (axis, place), in the order of an array's indices: a vector's digit is last."""
        found = [
            (axis, place)
            for axis, digits in enumerate(self.axes)
            for place in reversed(range(len(digits)))
            if digits[place].stride is None
        ]
        return sorted(found, key=lambda digit: digit == (self.vector, 0))

    def extents(self) -> tuple[int, ...]:
        """Return the extents of the array in each thread."""
        return tuple([self.axes[axis][place].extent for axis, place in self.registers()])

    def covered(self, axis: int) -> int:
        """Return the extent that the digits of an axis cover."""
        return math.prod(d.extent for d in self.axes[axis])

    def overhangs(self, axis: int) -> bool:
        """Return whether some positions are beyond the tile."""
        return self.covered(axis) > self.shape[axis]

    def copy_bits(self, threads: int) -> int:
        """Return the bits of a thread's number in which holders of the same elements differ."""
        used = 0
        for digits in self.axes:
            for d in digits:
                used |= 0 if d.stride is None else (d.extent - 1) * d.stride
        return (threads - 1) & ~used

    def without(self, axes: Sequence[int]) -> RegisterLayout:
        """Return the layout without some axes."""
        kept = [n for n in range(len(self.shape)) if n not in axes]
        vector = kept.index(self.vector) if self.vector in kept else -1
        return RegisterLayout(tuple([self.shape[n] for n in kept]), tuple([self.axes[n] for n in kept]), vector)


SCALAR = RegisterLayout((), ())
"""The layout of a scalar: all threads hold it."""


def blocked(
    shape: tuple[int, ...], threads: int, vector: int = 1, order: Sequence[int] = (), adjacent: Mapping[int, int] = {}
) -> RegisterLayout:
    """Distribute adjacent elements over adjacent threads; `order` lists axes from the fastest in memory.

    Along other axes a thread has as many adjacent elements as `adjacent` says for their extent.

    >>> layout = blocked((4, 512), 256, 4)
    >>> [[(d.extent, d.stride) for d in digits] for digits in layout.axes]
    [[(2, 128), (2, None)], [(4, None), (128, 1)]]
    >>> layout.extents(), layout.without([1]).copy_bits(256)
    ((2, 4), 127)
    """
    axes: list[tuple[Digit, ...]] = [()] * len(shape)
    order = order or tuple(reversed(range(len(shape))))
    stride, vectorised = 1, -1
    for n, axis in enumerate(order):
        digits: list[Digit] = []
        wanted = shape[axis]
        if n == 0 and vector > 1 and wanted % vector == 0:
            digits.append(Digit(vector))
            wanted //= vector
            vectorised = axis
        if n > 0 and adjacent.get(shape[axis], 1) <= max(1, wanted * stride // threads):
            digits += [Digit(adjacent[shape[axis]])] if shape[axis] in adjacent else []
            wanted //= adjacent.get(shape[axis], 1)
        across = _threads_along(wanted, threads // stride)
        if across > 1:
            digits.append(Digit(across, stride))
            stride *= across
        if wanted > across:
            digits.append(Digit(-(-wanted // across)))
        axes[axis] = tuple(digits)
    return RegisterLayout(shape, tuple(axes), vectorised)


def _threads_along(extent: int, most: int) -> int:
    """Return the power of two of threads along an axis that leaves few of them idle."""
    choices = [1 << n for n in range(most.bit_length()) if 1 << n < 2 * extent]
    covered = {n: -(-extent // n) * n for n in choices}
    least = min((covered[n] for n in choices if n >= MIN_COALESCED_THREADS), default=extent)
    return max((n for n in choices if covered[n] <= MAX_COVERAGE_RATIO * least), default=max(choices))
