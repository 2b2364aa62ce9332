"""Random kernels that are right, with arguments: for the printer and the parser, and to compare backends.

    @given(cases())
    def test_backend(case):
        expected, got = case.run(reference), case.run(mine)
        case.assert_agree(got, expected)

What a case computes is meant to be the same everywhere up to rounding: floats that a comparison, a rounding or an
index depends on are small whole numbers ("exact"), on which no order of summation and no fused multiplication
shows. All others may pass through any function, and are bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tilegrad.ir.dtype import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
)
from tilegrad.ir.tile import (
    Apply,
    Arange,
    Assign,
    Bitcast,
    BroadcastTo,
    Cast,
    Dot,
    ExpandDims,
    For,
    Full,
    If,
    Kernel,
    Literal,
    Load,
    Name,
    ProgramId,
    Reduce,
    Reshape,
    Scan,
    Statement,
    Store,
    Tile,
    TileParameter,
    Trans,
    While,
)
from tilegrad.ir.tile_checker import check

FLOATS = (float32, float32, float64, float16, bfloat16)
INTEGERS = (int32, int64, uint8, int8, int16, uint32, uint64)
EXACT_FLOATS = (float32, float64)

EXACT = {
    "float": ("add", "sub", "mul", "maximum", "minimum", "neg", "abs", "floor", "ceil", "trunc", "round"),
    "int": (
        *("add", "sub", "mul", "maximum", "minimum", "neg", "abs", "floordiv", "mod", "truncdiv", "fmod"),
        *("bitand", "bitor", "bitxor", "invert", "shl", "shr"),
    ),
    "bool": ("bitand", "bitor", "bitxor", "invert"),
}
EXACT["uint"] = tuple(fn for fn in EXACT["int"] if fn not in ("neg", "abs"))
BOUNDED = ("sigmoid", "tanh", "sin", "cos", "erf", "atan", "erfc")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
UNARY = {"neg", "abs", "floor", "ceil", "trunc", "round", "invert"}

TOLERANCE = {float64: 1e-9, float32: 2e-4, float16: 3e-2, bfloat16: 2e-1}

Shape = tuple[int, ...]


class Case(NamedTuple):
    kernel: Kernel
    arguments: list[Any]
    grid: tuple[int, ...]
    outputs: tuple[str, ...]

    def run(self, execute: Callable[[Kernel, list[Any], tuple[int, ...]], object]) -> dict[str, Any]:
        """The outputs, as something that runs kernels leaves them in copies of the arguments."""
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in self.arguments]
        execute(self.kernel, given, self.grid)
        return {p.name: a for p, a in zip(self.kernel.parameters, given, strict=True) if p.name in self.outputs}

    def assert_agree(self, got: dict[str, Any], expected: dict[str, Any]) -> None:
        dtypes = {p.name: p.dtype for p in self.kernel.parameters}
        for name in self.outputs:
            x, y, tolerance = got[name], expected[name], TOLERANCE.get(dtypes[name], 0)
            if tolerance == 0:
                np.testing.assert_array_equal(x, y, f"{name} of\n{self.kernel}")
            else:
                x, y = x.astype(np.float64), y.astype(np.float64)
                scale = max(1.0, float(np.max(np.abs(y[np.isfinite(y)]), initial=0)))
                np.testing.assert_allclose(x, y, tolerance, tolerance * scale, err_msg=f"{name} of\n{self.kernel}")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    return _Maker(draw).case()


def kernels() -> st.SearchStrategy[Kernel]:
    return cases().map(lambda case: case.kernel)


class Variable(NamedTuple):
    name: str
    dtype: DType
    shape: Shape
    exact: bool


class _Maker:
    """Draws a kernel statement by statement."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 999)))
        self.width = draw(st.sampled_from([1, 4, 5, 8, 16]))
        self.height = draw(st.sampled_from([1, 2, 3, 8]))
        self.programs = draw(st.integers(1, 3))
        self.count = draw(st.integers(1, self.programs * self.width))
        self.parameters: list[TileParameter] = []
        self.arguments: list[Any] = []
        self.inputs: list[TileParameter] = []
        self.outputs: list[str] = []
        self.variables: list[Variable] = []
        self.names = 0

    def pick(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(tuple(choices)))

    def flip(self) -> bool:
        return self.draw(st.booleans())

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def case(self) -> Case:
        number = self.pick((int32, int64))
        self.parameter(TileParameter("n", number, pointer=False), self.count)
        for _ in range(self.draw(st.integers(1, 3))):
            dtype = self.pick((*FLOATS, *INTEGERS, bool_))
            p = TileParameter(self.fresh("x"), dtype)
            self.inputs.append(p)
            self.parameter(p, self.elements(dtype, self.programs * self.width))
        body: list[Statement] = [
            Assign("pid", ProgramId(0)),
            Assign("i", Name("pid") * self.width + Arange(0, self.width)),
            Assign("mask", Name("i") < Name("n")),
        ]
        self.variables += [Variable("pid", int32, (), True), Variable("i", int32, (self.width,), True)]
        self.variables.append(Variable("mask", bool_, (self.width,), True))
        body += [self.load(p) for p in self.inputs]
        for _ in range(self.draw(st.integers(1, 6))):
            body += self.statements(2)
        body += self.stores()
        origin = self.pick(("", "model.py:7", "train.py:3 loss\ntrain.py:4"))
        kernel = Kernel("drawn", tuple(self.parameters), tuple(body), origin)
        check(kernel)
        return Case(kernel, self.arguments, (self.programs,), tuple(self.outputs))

    def parameter(self, p: TileParameter, argument: Any) -> None:
        self.parameters.append(p)
        self.arguments.append(argument)

    def elements(self, dtype: DType, count: int) -> Any:
        low, high = (0, 2) if dtype is bool_ else (0, 9) if dtype.kind == "uint" else (-8, 9)
        return self.rng.integers(low, high, count).astype(dtype.numpy)

    def load(self, p: TileParameter) -> Statement:
        name = self.fresh("v")
        other = Literal(True) if p.dtype is bool_ else Literal(1)
        match self.draw(st.integers(0, 2)):
            case 0:  # the memory is as long as all tiles together
                value = Load(Name(p.name) + Name("i"))
            case 1:
                value = Load(Name(p.name) + Name("i"), Name("mask"), other)
            case _:
                value = Load(Name(p.name) + Apply("mod", (self.make(int32, (self.width,), True, 1), Name("n"))))
        self.variables.append(Variable(name, p.dtype, (self.width,), True))
        return Assign(name, value)

    # Statements.

    def statements(self, depth: int) -> list[Statement]:
        kind = self.draw(st.integers(0, 9))
        if depth > 0 and kind == 9:
            return self.loop(depth - 1)
        if depth > 0 and kind == 8:
            return [self.branch(depth - 1)]
        if depth > 0 and kind == 7:
            return self.until()
        return [self.assignment()]

    def assignment(self) -> Statement:
        dtype = self.pick((*FLOATS, *INTEGERS, bool_))
        shape = self.pick(((), (self.width,), (self.width,), (self.height, self.width), (self.width, self.height)))
        exact = self.is_exact(dtype) and self.flip()
        value = self.bounded(self.make(dtype, shape, exact, 3), dtype, exact)
        self.variables.append(Variable(self.fresh("v"), dtype, shape, exact))
        return Assign(self.variables[-1].name, value)

    def is_exact(self, dtype: DType) -> bool:
        return not dtype.is_float or dtype in EXACT_FLOATS

    def bounded(self, value: Tile, dtype: DType, exact: bool) -> Tile:
        """Floats stay small, so that sums and products of a few of them are exact, or at least finite."""
        if not dtype.is_float:
            return value
        near = Apply("minimum", (Apply("maximum", (value, Literal(-8.0))), Literal(8)))
        return Apply("round", (near,)) if exact else near

    def loop(self, depth: int) -> list[Statement]:
        """Something is carried from turn to turn."""
        dtype, shape = self.pick((float32, float64, int32, int64)), self.pick(((), (self.width,)))
        carried = Variable(self.fresh("sum"), dtype, shape, self.flip())
        nought = Literal(0.0) if dtype.is_float else Literal(0)
        start = Assign(carried.name, Full(shape, nought, dtype))
        index, outer = self.fresh("k"), list(self.variables)
        bound = self.pick((Literal(3), Name("n")))
        number = int32 if bound == Literal(3) else self.parameters[0].dtype
        self.variables += [Variable(index, number, (), True), carried]
        body = self.statements(depth)
        more = Apply("add", (Name(carried.name), self.make(dtype, shape, carried.exact, 2)))
        body.append(Assign(carried.name, self.bounded(more, dtype, carried.exact)))
        self.variables = [*outer, carried]
        return [start, For(index, Literal(0), bound, Literal(self.pick((1, 2))), tuple(body))]

    def until(self) -> list[Statement]:
        """Counts in powers of two."""
        name = self.fresh("turn")
        body = (Assign(name, Name(name) * 2),)
        self.variables.append(Variable(name, int32, (), True))
        return [Assign(name, Full((), Literal(1), int32)), While(Name(name) < Name("n"), body)]

    def branch(self, depth: int) -> Statement:
        outer = list(self.variables)
        condition = self.make(bool_, (), True, 2)
        then = self.statements(depth) + self.changes(outer)
        self.variables = list(outer)
        otherwise = self.statements(depth) + self.changes(outer) if self.flip() else []
        self.variables = outer
        return If(condition, tuple(then), tuple(otherwise))

    def changes(self, outer: list[Variable]) -> list[Statement]:
        """Gives another value to a variable from before the block."""
        free = [v for v in outer if v.name[0] == "v"]
        if not free or self.flip():
            return []
        v = self.pick(free)
        return [Assign(v.name, self.bounded(self.make(v.dtype, v.shape, v.exact, 2), v.dtype, v.exact))]

    def stores(self) -> list[Statement]:
        made = [v for v in self.variables if v.name not in ("pid", "mask", "i") and v.dtype is not None]
        chosen = made[-3:]
        return [self.store(v) for v in chosen]

    def store(self, v: Variable) -> Statement:
        p = TileParameter(self.fresh("out"), v.dtype)
        self.outputs.append(p.name)
        count = self.programs * int(np.prod(v.shape, dtype=int))
        self.parameter(p, np.zeros(count, v.dtype.numpy))
        if v.shape == ():
            return Store(Name(p.name) + Name("pid"), Name(v.name))
        if len(v.shape) == 1:
            mask = Name("mask") if self.flip() else None
            return Store(Name(p.name) + Name("i"), Name(v.name), mask)
        rows, columns = (Arange(0, extent) for extent in v.shape)
        offsets = (
            Name("pid") * (count // self.programs) + ExpandDims(rows, (1,)) * v.shape[1] + ExpandDims(columns, (0,))
        )
        mask = (ExpandDims(rows, (1,)) < self.pick((1, v.shape[0]))) if self.flip() else None
        return Store(Name(p.name) + offsets, Name(v.name), mask)

    # Expressions of a wanted type.

    def make(self, dtype: DType, shape: Shape, exact: bool, depth: int) -> Tile:
        known = [v for v in self.variables if v.dtype is dtype and v.shape == shape and (v.exact or not exact)]
        if depth == 0 or self.draw(st.integers(0, 3)) == 0:
            return Name(self.pick(known).name) if known else self.number(dtype, shape)
        ways: list[Callable[..., Tile]] = [self.applied, self.applied, self.applied, self.converted, self.chosen]
        if not exact:
            ways += [self.rough, self.rough]
        if dtype is bool_:
            ways += [self.compared, self.compared]
        if shape:
            ways += [self.spread, self.scanned]
        if len(shape) <= 1:
            ways.append(self.reduced)
        if len(shape) == 2:
            ways += [self.turned, self.product]
        return self.pick(ways)(dtype, shape, exact, depth - 1)

    def number(self, dtype: DType, shape: Shape) -> Tile:
        return Full(shape, self.literal(dtype), dtype)

    def literal(self, dtype: DType) -> Literal:
        if dtype is bool_:
            return Literal(self.flip())
        value = self.draw(st.integers(0 if dtype.kind == "uint" else -4, 4))
        return Literal(float(value)) if dtype.is_float and self.flip() else Literal(value)

    def applied(self, dtype: DType, shape: Shape, exact: bool, depth: int) -> Tile:
        fn = self.pick(EXACT[dtype.kind])
        x = self.make(dtype, shape, exact, depth)
        if fn in UNARY:
            return Apply(fn, (x,))
        narrow = self.pick((shape, (), (1,) * len(shape)))
        y = self.literal(dtype) if self.flip() else self.make(dtype, narrow, exact, depth)
        return Apply(fn, (y, x) if self.flip() else (x, y))

    def rough(self, dtype: DType, shape: Shape, exact: bool, depth: int) -> Tile:
        if not dtype.is_float:
            return self.applied(dtype, shape, exact, depth)
        x = self.make(dtype, shape, False, depth)
        match self.draw(st.integers(0, 5)):
            case 0:
                return Apply("exp", (Apply("minimum", (x, Literal(2))),))
            case 1:
                return Apply("sqrt", (Apply("abs", (x,)),))
            case 2:
                divisor = Apply("abs", (self.make(dtype, shape, False, depth),)) + 1
                return Apply("div", (x, divisor))
            case 3:
                return Apply("log1p", (Apply("abs", (x,)),))
            case _:
                return Apply(self.pick(BOUNDED), (self.bounded(x, dtype, False),))

    def compared(self, dtype: DType, shape: Shape, exact: bool, depth: int) -> Tile:
        inner = self.pick((*EXACT_FLOATS, *INTEGERS))
        x = self.make(inner, shape, True, depth)
        return Apply(
            self.pick(COMPARISONS), (x, self.literal(inner) if self.flip() else self.make(inner, (), True, depth))
        )

    def chosen(self, dtype: DType, shape: Shape, exact: bool, depth: int) -> Tile:
        condition = self.make(bool_, shape, True, depth)
        x, y = self.make(dtype, shape, exact, depth), self.make(dtype, shape, exact, depth)
        return Apply("where", (condition, x, self.literal(dtype) if self.flip() else y))

    def converted(self, dtype: DType, shape: Shape, exact: bool, depth: int) -> Tile:
        """Convert from a type whose values are all defined in the target type."""
        if dtype.is_float:
            source = self.pick((bool_, int8, uint8)) if exact else self.pick((*FLOATS, int32))
        elif dtype in (int32, uint32) and self.draw(st.integers(0, 4)) == 0:
            return Bitcast(self.make(int32 if dtype is uint32 else uint32, shape, True, depth), dtype)
        else:
            source = self.pick((*INTEGERS, bool_)) if dtype.is_integer else self.pick((*INTEGERS, *EXACT_FLOATS))
        return Cast(self.make(source, shape, exact or not dtype.is_float, depth), dtype)

    def spread(self, dtype: DType, shape: Shape, exact: bool, depth: int) -> Tile:
        if self.flip():
            return BroadcastTo(self.make(dtype, (1,) * len(shape), exact, depth), shape)
        axis = self.draw(st.integers(0, len(shape) - 1))
        x = ExpandDims(self.make(dtype, shape[:axis] + shape[axis + 1 :], exact, depth), (axis,))
        return BroadcastTo(x, shape) if shape[axis] != 1 else x

    def reducers(self, dtype: DType) -> tuple[str, ...]:
        if dtype is bool_:
            return ("bitand", "bitor", "maximum", "minimum")
        return ("add", "maximum", "minimum", "bitand", "bitor") if dtype.is_integer else ("add", "maximum", "minimum")

    def reduced(self, dtype: DType, shape: Shape, exact: bool, depth: int) -> Tile:
        axis = self.draw(st.integers(0, len(shape)))
        extent = self.pick((self.width, self.height))
        wide = (*shape[:axis], extent, *shape[axis:])
        if dtype is int32 and self.flip():
            inner = self.pick((float32, int64, uint8, bool_))
            return Reduce(self.pick(("argmax", "argmin")), self.make(inner, wide, True, depth), axis)
        return Reduce(self.pick(self.reducers(dtype)), self.make(dtype, wide, exact, depth), axis)

    def scanned(self, dtype: DType, shape: Shape, exact: bool, depth: int) -> Tile:
        fns = tuple(fn for fn in self.reducers(dtype) if not fn.startswith("bit"))
        axis = self.draw(st.integers(0, len(shape) - 1))
        return Scan(self.pick(fns), self.make(dtype, shape, exact, depth), axis)

    def turned(self, dtype: DType, shape: Shape, exact: bool, depth: int) -> Tile:
        x = self.make(dtype, (shape[1], shape[0]), exact, depth)
        return Trans(x, (1, 0)) if self.flip() else Reshape(x, shape)

    def product(self, dtype: DType, shape: Shape, exact: bool, depth: int) -> Tile:
        sources = {float32: (float32, float16, bfloat16), float64: (float64,), int32: (int8, int32)}.get(dtype)
        if sources is None:
            return self.applied(dtype, shape, exact, depth)
        inner = self.pick(sources)
        fine = exact and inner.is_float and inner.bits == 16
        k = self.pick((1, 4, 8))
        x, y = (
            self.number(inner, s) if fine else self.make(inner, s, exact, depth) for s in ((shape[0], k), (k, shape[1]))
        )
        x, y = self.bounded(x, inner, exact), self.bounded(y, inner, exact)
        return Dot(x, y, self.make(dtype, shape, exact, depth) if self.flip() else None)
