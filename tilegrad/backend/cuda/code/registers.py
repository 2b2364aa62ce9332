"""Write loops over the registers of a layout, and compute the positions they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager

from .elements import AxisPosition, View
from .functions import ATOM, PRODUCT, SUM, Text, binary
from .layout import Digit, RegisterLayout
from .writing import Lines

NO_DIGITS: frozenset[tuple[int, int]] = frozenset()


class Registers:
    """Writes loops over the registers of a block of `threads` threads."""

    out: Lines
    threads: int

    def variable(self, layout: RegisterLayout, axis: int, place: int) -> str:
        """Return the index variable of a register digit."""
        if axis == layout.vector and place == 0:
            return "v"
        registers = [p for a, p in layout.registers() if a == axis and not (a == layout.vector and p == 0)]
        stem = "c" if len(layout.shape) == 1 else f"c{axis}"
        return stem if len(registers) == 1 else f"{stem}_{place}"

    def indices(self, layout: RegisterLayout) -> str:
        return "".join(f"[{self.variable(layout, axis, place)}]" for axis, place in layout.registers())

    @contextmanager
    def over(
        self,
        layout: RegisterLayout,
        *,
        without: Set[tuple[int, int]] = NO_DIGITS,
        start: dict[tuple[int, int], int] = {},
        scope: bool = False,
    ) -> Iterator[str]:
        """Loop over the registers of a thread; yields the indices."""
        with _nested(self.out, self.loops(layout, without, start), scope):
            yield self.indices(layout)

    def loops(
        self,
        layout: RegisterLayout,
        without: Set[tuple[int, int]] = NO_DIGITS,
        start: dict[tuple[int, int], int] = {},
    ) -> list[str]:
        heads = []
        for axis, place in layout.registers():
            if (axis, place) not in without:
                name, first = self.variable(layout, axis, place), start.get((axis, place), 0)
                heads.append(f"for (int {name} = {first}; {name} < {layout.axes[axis][place].extent}; ++{name})")
        return heads

    def flat(self, layout: RegisterLayout, times: int, without: Set[tuple[int, int]] = NO_DIGITS) -> str:
        """Return the number of the current register, times a factor."""
        made = Text("0")
        for axis, place in layout.registers():
            if (axis, place) not in without:
                index = Text(self.variable(layout, axis, place))
                extent = layout.axes[axis][place].extent
                made = (
                    index
                    if made.text == "0"
                    else binary("+", SUM, binary("*", PRODUCT, made, Text(str(extent))), index)
                )
        return (
            "0" if made.text == "0" else str(binary("*", PRODUCT, made, Text(str(times)))) if times != 1 else str(made)
        )

    def positions(self, layout: RegisterLayout, named: bool = False) -> tuple[View, list[str]]:
        """Return the view of a layout at the start of its vectors, and the conditions for being inside the tile.

        With `named`, positions are declared as variables first.
        """
        view, conditions = [], []
        for axis, digits in enumerate(layout.axes):
            at = self.position(layout, axis)
            if named and at.text not in ("0", "thread"):
                name = "at" if len(layout.shape) == 1 else f"at{axis}"
                self.out.add(f"const int {name} = {at};")
                at = Text(name)
            if layout.overhangs(axis):
                conditions.append(f"{at.within(8)} < {layout.shape[axis]}")
            of_registers = [
                (d, self.variable(layout, axis, place) if d.stride is None else "") for place, d in enumerate(digits)
            ]
            view.append(AxisPosition(at, tuple(of_registers)))
        return tuple(view), conditions

    def position(self, layout: RegisterLayout, axis: int, first: bool = False) -> Text:
        """Return the position of a vector's start along an axis; `first`: that of the thread's first vector."""
        terms, weight = [], 1
        for place, digit in enumerate(layout.axes[axis]):
            if digit.stride is not None:
                value: Text | None = self.thread_digit(digit)
            elif first or (axis == layout.vector and place == 0):
                value = None
            else:
                value = Text(self.variable(layout, axis, place))
            if value is not None:
                terms.append(value if weight == 1 else binary("*", PRODUCT, value, Text(str(weight))))
            weight *= digit.extent
        made = terms.pop() if terms else Text("0")
        while terms:
            made = binary("+", SUM, made, terms.pop())
        return made

    def thread_digit(self, digit: Digit) -> Text:
        """Return the value of a digit in the thread's number."""
        assert digit.stride is not None
        text = "thread" if digit.stride == 1 else f"thread / {digit.stride}"
        if digit.stride * digit.extent < self.threads:
            text += f" % {digit.extent}"
        return Text(text, PRODUCT if text != "thread" else ATOM)

    def owners(self, layout: RegisterLayout) -> list[str]:
        """Return the condition that a thread is the first of those that hold copies."""
        bits = layout.copy_bits(self.threads)
        if not bits:
            return []
        if bits & (bits + 1) == 0:
            return ["thread == 0" if bits == self.threads - 1 else f"thread % {bits + 1} == 0"]
        if bits + (bits & -bits) == self.threads:
            return [f"thread < {bits & -bits}"]
        return [f"(thread & {bits}) == 0"]


@contextmanager
def _nested(out: Lines, heads: Sequence[str], scope: bool) -> Iterator[None]:
    if not heads:
        if scope:
            with out.block(""):
                yield
        else:
            yield
        return
    with out.block(heads[0], unrolled=True), _nested(out, heads[1:], False):
        yield
