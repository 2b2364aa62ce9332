"""Kernels that are right but for one line: drawn at random, with what a check must say of them.

A kernel adds two tensors in some roundabout way: over grids of one to three axes, tiles of one or two, behind loops,
branches and pointers that are moved, between accesses that are right. A *defect* replaces one of its lines. What must
be reported (the line, the program, the lane, the index, the tensor, its extent) is computed here in plain Python.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import tilegrad as tg
from tests.language.kernel_texts import made

Lane = tuple[int, ...]


class Planted(NamedTuple):
    """A kernel with its arguments; `line` and the texts of `told` must be in what is reported."""

    body: str
    arguments: list[tg.Tensor]
    n: int
    grid: tuple[int, ...]
    line: str
    told: tuple[str, ...]
    expected: Any

    def launch(self, how: str) -> tg.Tensor:
        k = made(self.body, "x, y, out, n")
        getattr(k, how)[self.grid](*self.arguments, self.n)
        return self.arguments[2]


class Draw:
    """The shape of a kernel, and where its elements are: `at` has the index of each lane of each program."""

    def __init__(self, seed: int, large: bool = False) -> None:
        self.chance = random.Random(seed)
        pick = self.chance.choice
        self.tile: tuple[int, ...] = pick([(4,), (8,), (16,), (2, 8), (4, 4), (8, 1)])
        self.grid: tuple[int, ...] = pick([(1,), (3,), (7,), (70,), (2, 3), (3, 1, 2)])
        self.width = int(np.prod(self.tile))
        self.programs = int(np.prod(self.grid))
        self.n = self.programs * self.width - self.chance.randrange(1, min(self.width, 4))
        self.dtype = pick([tg.float32, tg.float32, tg.float64, tg.float16, tg.int32, tg.int64])

    @property
    def start(self) -> list[str]:
        """The first element of a program."""
        rank = len(self.grid)
        pid = ["tl.program_id(0)", "tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)"][min(rank - 1, 1)]
        if rank == 3:
            pid = f"tl.program_id(2) * tl.num_programs(0) * tl.num_programs(1) + {pid}"
        if len(self.tile) == 1:
            i = f"tl.arange(0, {self.width})"
        else:
            i = f"tl.arange(0, {self.tile[0]})[:, None] * {self.tile[1]} + tl.arange(0, {self.tile[1]})[None, :]"
        return [f"pid = {pid}", f"i = pid * {self.width} + {i}", "m = i < n"]

    def lanes(self) -> Iterator[tuple[int, int, Lane]]:
        """Every program and lane in order, with the element that it is for."""
        for program in range(self.programs):
            for flat, lane in enumerate(product(*map(range, self.tile))):
                yield program * self.width + flat, program, lane

    def first(self, wrong: Callable[[int], bool]) -> tuple[int, str]:
        """The first element of which something is true, and where it is worked on."""
        for i, program, lane in self.lanes():
            if wrong(i):
                return i, self.where(program, lane)
        raise AssertionError("no element is wrong")

    def where(self, program: int, lane: Lane) -> str:
        p, q, _ = (*self.grid, 1, 1)[:3]
        place = (program % p, program // p % q, program // p // q)
        return f"program {place}, lane ({', '.join(map(str, lane))}): "

    def wrapped(self, line: str) -> list[str]:
        """A statement as it is, or in a block."""
        ways = [[line], ["for turn in range(1):", f"    {line}"], ["if pid >= 0:", f"    {line}"]]
        ways.append(["left = 1", "while left > 0:", "    left -= 1", f"    {line}"])
        return self.chance.choice(ways)

    def noise(self) -> list[str]:
        """Statements that are right, and change nothing."""
        name = f"w{self.chance.randrange(10**6)}"
        choices = [
            [],
            [f"{name} = tl.load(y + n - 1 - i, mask=m, other=0)"],
            [f"{name} = x + i", "for turn in range(2):", f"    {name} += 0"],
            [f"{name} = tl.sum(tl.load(x + (i % n)))", f"if {name} == 12345:", f"    {name} = {name} * 2"],
            [f"{name} = tl.load(y + tl.minimum(i, n - 1))"],
        ]
        return self.chance.choice(choices)

    def kernel(self, lines: dict[str, str]) -> str:
        """The body, with lines in place of the right ones."""
        right = {
            "a": "a = tl.load(x + i, mask=m, other=0)",
            "b": "b = tl.load(y + i, mask=m, other=0)",
            "c": "c = a + b",
            "out": "tl.store(out + i, c, mask=m)",
        }
        body = self.start + self.noise()
        for place, line in (right | lines).items():
            inside = place == "out" or (place not in lines and place not in right)
            body += (self.wrapped(line) if inside else [line]) + self.noise()
        return "\n".join(body)

    def tensors(self) -> list[tg.Tensor]:
        x, y = (tg.tensor(np.arange(self.n) % 7 + 1 + k).to(self.dtype) for k in (0, 1))
        return [x, y, tg.empty(self.n, dtype=self.dtype)]

    def planted(self, lines: dict[str, str], *told: str, line: str = "", arguments: Any = None) -> Planted:
        given = arguments or self.tensors()
        expected = (np.arange(self.n) % 7 + 1) * 2 + 1
        told_line = line or next(iter(lines.values()), "")
        return Planted(self.kernel(lines), given, self.n, self.grid, told_line, told, expected)


def outside(access: str, name: str, shift: int) -> Callable[[Draw], Planted]:
    """An access that is some elements too far to the left or right."""

    def plant(d: Draw) -> Planted:
        move = shift * d.chance.randrange(1, 4)
        i, where = d.first(lambda i: i < d.n and not 0 <= i + move < d.n)
        line = access.replace("i", f"i {'+' if move > 0 else '-'} {abs(move)}", 1)
        text = {"x": "a = tl.load(x + {}, mask=m, other=0)", "y": "b = tl.load(y + {}, mask=m, other=0)"}
        whole = text.get(name, "tl.store(out + {}, c, mask=m)").format(line)
        place = {"x": "a", "y": "b", "out": "out"}[name]
        return d.planted({place: whole}, f"{where}index {i + move} is outside {name}, which has {d.n} elements")

    return plant


def mask_too_wide(d: Draw) -> Planted:
    i, where = d.first(lambda i: i == d.n)
    place, line = d.chance.choice(
        [("a", "a = tl.load(x + i, mask={}, other=0)"), ("out", "tl.store(out + i, c, mask={})")]
    )
    line = line.format(d.chance.choice(["i <= n", "m | (i == n)", "i - 1 < n"]))
    return d.planted({place: line}, f"{where}index {i} is outside {'x' if place == 'a' else 'out'}, which has {d.n} el")


def no_mask(d: Draw) -> Planted:
    i, where = d.first(lambda i: i >= d.n)
    return d.planted({"b": "b = tl.load(y + i)"}, f"{where}index {i} is outside y, which has {d.n} elements")


def mask_too_narrow(d: Draw) -> Planted:
    gap = d.chance.randrange(1, min(4, d.n))
    told = f"{gap} of the {d.n} elements of out were never written, the first is out[{d.n - gap}]"
    return d.planted({"out": f"tl.store(out + i, c, mask=i < n - {gap})"}, told, line="-")


def a_hole_in_the_mask(d: Draw) -> Planted:
    hole = d.chance.randrange(0, d.n)
    told = f"1 of the {d.n} elements of out were never written, the first is out[{hole}]"
    return d.planted({"out": f"tl.store(out + i, c, mask=m & (i != {hole}))"}, told, line="-")


def uninitialised_result(d: Draw) -> Planted:
    line = "c = tl.load(out + i, mask=m, other=0) + a + b"
    return d.planted({"c": line}, f"{d.where(0, (0,) * len(d.tile))}reads out[0], which nobody has written")


def uninitialised_input(d: Draw) -> Planted:
    x, _, out = d.tensors()
    y = tg.empty(d.n, dtype=d.dtype)
    d.noise = list  # type: ignore[method-assign] # which reads y too
    line = "b = tl.load(y + i, mask=m, other=0)"
    told = f"{d.where(0, (0,) * len(d.tile))}reads y[0], which nobody has written"
    return d.planted({"b": line}, told, arguments=[x, y, out])


def uninitialised_accumulator(d: Draw) -> Planted:
    told = f"{d.where(0, (0,) * len(d.tile))}reads out[0], which nobody has written"
    return d.planted({"out": "tl.atomic_add(out + i, c, mask=m)"}, told)


def overflow(d: Draw) -> Planted:
    large = d.chance.choice([1 << 29, 1000000007, (1 << 31) - 1])
    _i, where = d.first(lambda i: (i + 2) * large > 2**31 - 1)
    line = f"a = tl.load(x + (((i + 2) * {large}) // {large} - 2), mask=m, other=0)"
    return d.planted({"a": line}, f"{where}`(i + 2) * {large}` overflows int32")


def nan_born(d: Draw) -> Planted:
    d.dtype = d.chance.choice([tg.float32, tg.float64])
    bad = d.chance.randrange(d.n)
    _, where = d.first(lambda i: i == bad)
    line = f"c = a + b + tl.sqrt(tl.where(i == {bad}, -1.0, 0.0))"
    return d.planted({"c": line}, where, "a NaN is born in `tl.sqrt(", f"and stored in out[{bad}]")


def nan_born_beside_another(d: Draw) -> Planted:
    """The first program has a NaN in its input, which is nobody's fault; the last makes one."""
    d.dtype, d.grid, d.programs = tg.float32, (7,), 7
    d.n = d.programs * d.width - 1
    planted = nan_born(d)
    bad = d.n - 1
    _, where = d.first(lambda i: i == bad)
    d.noise = list  # type: ignore[method-assign] # which reads across programs
    line = f"c = a + b + tl.sqrt(tl.where(i == {bad}, -1.0, 0.0))"
    x = planted.arguments[0].numpy().copy()
    x[0] = np.nan
    given = [tg.tensor(x), *d.tensors()[1:]]
    given = [given[0].to(d.dtype), given[1], given[2]]
    return d.planted({"c": line}, where, f"stored in out[{bad}]", arguments=given)


def never_loaded(d: Draw) -> Planted:
    d.dtype = d.chance.choice([tg.float32, tg.float64])
    skipped = d.chance.randrange(d.n)
    _, where = d.first(lambda i: i == skipped)
    lines = {"a": f"a = tl.load(x + i, mask=m & (i != {skipped}))"}
    told = f"{where}an element that was never loaded gets into out[{skipped}]"
    return d.planted(lines, told, line="tl.store(out + i, c, mask=m)")


def two_lanes(d: Draw) -> Planted:
    """Lanes of one program store different values in one place."""
    line = "tl.store(out + (i // 2) * 2, i.to(c.dtype), mask=m & (i > 1))"
    i, where = d.first(lambda i: 1 < i < d.n - 1 and i % 2 == 0)
    return d.planted({"out": line}, f"{where}stores out[{i}], where another lane stores another value")


def gathered_too_far(d: Draw) -> Planted:
    d.tile, d.width = (8,), 8
    d.n = d.programs * 8 - 1
    line = "c = tl.gather(a, tl.arange(0, 8) + pid * 0 + (i == 3).to(tl.int32) * 8, 0) + b"
    return d.planted({"c": line}, f"{d.where(0, (3,))}gather takes element 11 of an axis of 8")


def an_assertion(d: Draw) -> Planted:
    bad = d.chance.randrange(d.n)
    _, where = d.first(lambda i: i == bad)
    line = f"tl.device_assert(i != {bad}, 'not this one')"
    return d.planted({"zz": line}, f"{where}the assertion failed: not this one")


def between_elements_of_a_view(d: Draw) -> Planted:
    """The kernel takes a view for a dense tensor."""
    _, y, out = d.tensors()
    x = tg.ones(d.n, 3, dtype=d.dtype)[:, d.chance.randrange(3)]
    _, where = d.first(lambda i: i == 1)
    told = f"{where}index 1 lies between the elements of x, a view of shape [{d.n}] with strides (3,)"
    d.noise = list  # type: ignore[method-assign] # which reads x too
    return d.planted({"a": "a = tl.load(x + i, mask=m, other=0)"}, told, arguments=[x, y, out])


def between_rows_of_a_view(d: Draw) -> Planted:
    """A store past a row of a view, into another tensor."""
    x, y, _ = d.tensors()
    d.noise = list  # type: ignore[method-assign]
    wide = d.chance.randrange(1, d.n)
    out = tg.zeros(d.n, wide + 2, dtype=d.dtype)[:, :wide]
    _, where = d.first(lambda i: i == wide)
    told = f"{where}index {wide} lies between the elements of out, a view of shape [{d.n}, {wide}]"
    return d.planted({"out": "tl.store(out + i, c, mask=m)"}, told, arguments=[x, y, out])


def a_broadcast_view_is_written(d: Draw) -> Planted:
    x, y, _ = d.tensors()
    out = tg.zeros(1, dtype=d.dtype).expand(d.n)
    told = f"stores in out, a view of shape [{d.n}] with strides (0,): several of its {d.n} elements are one place"
    return d.planted({"out": "tl.store(out + 0 * i, c, mask=m)"}, told, line="-", arguments=[x, y, out])


DEFECTS: dict[str, Callable[[Draw], Planted]] = {
    "a load too far right": outside("i", "x", 1),
    "a load too far left": outside("i", "y", -1),
    "a store too far right": outside("i", "out", 1),
    "a store too far left": outside("i", "out", -1),
    **{
        plant.__name__.replace("_", " "): plant
        for plant in (
            *(mask_too_wide, no_mask, mask_too_narrow, a_hole_in_the_mask, uninitialised_result, uninitialised_input),
            *(uninitialised_accumulator, overflow, nan_born, nan_born_beside_another, never_loaded, two_lanes),
            *(gathered_too_far, an_assertion, between_elements_of_a_view, between_rows_of_a_view),
            a_broadcast_view_is_written,
        )
    },
}


def nothing(d: Draw) -> Planted:
    """A kernel that is right, on tensors, on views with strides, or backwards."""
    x, y, out = d.tensors()
    way = d.chance.randrange(4)
    lines: dict[str, str] = {}
    if way == 1:
        wide = tg.zeros(d.n, 3, dtype=d.dtype)
        wide[:, 1] = x
        x, lines["a"] = wide[:, 1], "a = tl.load(x + i * 3, mask=m, other=0)"
        d.noise = list  # type: ignore[method-assign]
    elif way == 2:
        lines["a"] = "a = tl.load(x + (n - 1) - (n - 1 - i), mask=m, other=0)"
    elif way == 3:
        x, lines["a"] = tg.ones(1, dtype=d.dtype).expand(d.n), "a = tl.load(x + i * 0, mask=m, other=0)"
        d.noise = list  # type: ignore[method-assign]
    planted = d.planted(lines, arguments=[x, y, out])
    return planted._replace(expected=(x.numpy() + y.numpy()))


def several(d: Draw) -> Draw:
    """Draw a grid of more than one program."""
    d.grid = d.chance.choice([(3,), (7,), (2, 3), (3, 1, 2)])
    d.programs = int(np.prod(d.grid))
    d.n = d.programs * d.width - d.chance.randrange(1, min(d.width, 4))
    return d


def stores_in_one_place(d: Draw) -> Planted:
    few = several(d).chance.randrange(d.width, d.n)
    i, where = d.first(lambda i: i >= few and i // d.width != (i - few) // d.width)
    told = f"{where}stores out[{i % few}], where another instance stores (number {(i % few) // d.width})"
    return d.planted({"out": f"tl.store(out + i % {few}, c, mask=m & (i < {2 * few}))"}, told)


def reads_what_others_store(d: Draw) -> Planted:
    """Program 0 has read what program 1 stores."""
    width = several(d).width
    _, where = d.first(lambda i: i == width)
    x, y, _ = d.tensors()
    out = tg.zeros(d.n, dtype=d.dtype)
    line = f"c = a + tl.load(out + (i + {width}) % n, mask=m, other=0)"
    told = f"{where}stores out[{width}], which another instance of the kernel reads (number 0)"
    return d.planted({"c": line}, told, line="tl.store(out + i, c, mask=m)", arguments=[x, y, out])


def adds_without_atomics(d: Draw) -> Planted:
    x, y, _ = several(d).tensors()
    out = tg.zeros(d.n, dtype=d.dtype)
    line = "tl.store(out, tl.load(out) + tl.sum(c))"
    told = "program (1, 0, 0): reads out[0], which another instance of the kernel stores (number 0)"
    return d.planted({"c": "c = (a + b).to(out.dtype.element_ty)", "zz": line}, told, line=line, arguments=[x, y, out])


def tickets(d: Draw) -> Planted:
    d = several(d)
    d.dtype = tg.int32
    x, y, _ = d.tensors()
    out = tg.zeros(d.n, dtype=d.dtype)
    lines = {"c": "c = tl.atomic_add(out, 1)", "out": "tl.store(out + 1 + pid, c)"}
    return d.planted(lines, "out[1] depends on the order of the programs", line="-", arguments=[x, y, out])


RACES: dict[str, Callable[[Draw], Planted]] = {
    plant.__name__.replace("_", " "): plant
    for plant in (stores_in_one_place, reads_what_others_store, adds_without_atomics, tickets)
}
