"""Random graphs: a list of numbers makes one, so that it can be shrunk, printed, and made again in another process.

What is drawn is such that two right ways to compute it agree: values remember whether their elements are exact
(sums of few multiples of 1/4), and what jumps (comparisons, rounding, places of extremes) is applied to those only.
A graph has few distinct extents, most often one or two: what takes one axis for another is wrong without an error then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tilegrad.errors import TilegradError
from tilegrad.ir.dtype import DType, bfloat16, bool_, float16, float32, float64, int32, int64, uint8
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.size import Dim, Size, known, product
from tilegrad.ops.cast import cast
from tilegrad.ops.trigonometric import tanh

EXTENTS = (2, 3, 5, 1, 4, 7, 8, 0, 13, 17, 33, 64, 97, 130)
DTYPES = (float64, float32, float64, int64, float32, int32, bool_, float16, uint8, bfloat16)
DIGITS = {float64: 50, float32: 22, float16: 10, bfloat16: 7}
"""The bits in which sums and products of a type are exact."""
TOLERANCE = {float64: 1e-7, float32: 2e-3, float16: 5e-2, bfloat16: 3e-1}
MAX_ELEMENTS = 8000
WILD = 5
"""The logarithm from which on inexact numbers are too large to go on with."""


class Span(NamedTuple):
    """The bits that the elements of a value need (more than its type has: they are inexact), and the logarithm of the
    largest.
    """

    bits: int
    largest: float


class Drawn(NamedTuple):
    graph: Graph
    arrays: list[np.ndarray]
    sizes: dict[str, int]
    exact: tuple[bool, ...]
    """One flag per output."""

    def __str__(self) -> str:
        sizes = "".join(f"{name} = {n}\n" for name, n in self.sizes.items())
        return f"{sizes}{self.graph}"


class Unfit(Exception):
    """A drawn move does not fit; another one is drawn."""


class Drawing:
    """A graph while it grows."""

    def __init__(self, choices: Sequence[int], smooth: bool) -> None:
        self.choices: Iterator[int] = iter(choices)
        self.smooth = smooth
        self.sizes: dict[str, int] = {}
        self.spans: dict[Value, Span] = {}
        self.inputs: list[Input] = []
        self.arrays: list[np.ndarray] = []

    def below(self, n: int) -> int:
        return next(self.choices, 0) % n

    def of(self, options: Sequence[object]) -> object:
        return options[self.below(len(options))]

    def extent(self, x: Dim) -> int:
        return known(x, self.sizes)

    # --- what is there ---

    def add(self, value: Value, bits: int = 99, largest: float = 0.0) -> Value:
        if self.extent(product(value.shape)) > MAX_ELEMENTS or value.type.rank > 5:
            raise Unfit
        self.spans.setdefault(value, Span(bits, largest))
        return value

    def like(self, value: Value, *sources: Value, more: float = 0) -> Value:
        """Adds a value that has elements of others, or sums of 2 ** more of them."""
        wider = math.ceil(more)
        spans = [self.spans[x] for x in sources]
        return self.add(value, max(s.bits for s in spans) + wider, max(s.largest for s in spans) + wider)

    def exact(self, x: Value) -> bool:
        return not x.dtype.is_float or self.spans[x].bits <= DIGITS[x.dtype]

    def pick(self, fits: Callable[[Value], bool] = lambda x: True) -> Value:
        """One of the values, recent ones first."""
        found = [x for x in reversed(self.spans) if fits(x)]
        if not found:
            raise Unfit
        x = found[self.below(len(found))]
        if x.dtype.is_float and not self.exact(x) and self.spans[x].largest > WILD:
            return self.add(tanh(x))
        return x

    def real(self, rank: int = 0) -> Value:
        """Draw a value with floating-point elements and a least number of axes."""
        return self.pick(lambda x: x.dtype.is_float and x.type.rank >= rank)

    def jumpable(self, rank: int = 0, kinds: Sequence[str] = ("float", "int", "uint", "bool")) -> Value:
        """Something whose elements any two ways of computing give alike."""
        if self.smooth:
            raise Unfit
        return self.pick(lambda x: self.exact(x) and x.type.rank >= rank and x.dtype.kind in kinds)

    def partner(self, x: Value) -> Value:
        """Something that meets x in broadcasting, with its element type."""
        y = self.pick(lambda y: meets(x, y) and (y.dtype is x.dtype or (x.dtype.is_float and y.dtype.is_float)))
        if y.dtype is x.dtype:
            return y
        return self.like(cast(y, x.dtype), y) if self.spans[y].bits <= DIGITS[x.dtype] else self.add(cast(y, x.dtype))

    # --- inputs ---

    def given(self, shape: tuple[Dim, ...], dtype: DType) -> Input:
        made = Input(TensorType(dtype, shape), f"x{len(self.inputs)}")
        made.__dict__["tracked"] = dtype.is_float
        rng = np.random.default_rng(len(self.inputs))
        settled = [self.extent(n) for n in shape]
        if dtype.is_float:
            array = rng.integers(-8, 9, settled) / 4.0
        else:
            array = rng.integers(0, 2, settled) if dtype is bool_ else rng.integers(0, 9, settled)
        self.inputs.append(made)
        self.arrays.append(np.asarray(array).astype(dtype.numpy))
        self.add(made, 5, 3)
        return made

    def start(self) -> None:
        few = [int(self.of(EXTENTS)) for _ in range(1 + self.below(4) // 2)]  # type: ignore[call-overload]
        base: list[Dim] = [few[self.below(len(few))] for _ in range(self.below(4))]
        while math.prod(max(1, self.extent(n)) for n in base) > MAX_ELEMENTS // 8:
            base.pop()
        for n, name in enumerate("nm"[: self.below(4) // 2]):
            if n < len(base) and int(base[n]) >= 2:  # type: ignore[arg-type]
                self.sizes[name] = int(base[n])  # type: ignore[arg-type]
                base = [Size.named(name) if extent == base[n] else extent for extent in base]
        for _ in range(1 + self.below(3)):
            shape = tuple(1 if self.below(5) == 4 else extent for extent in base[self.below(len(base) + 1) :])
            self.given(shape, self.of(DTYPES[:3] if self.smooth else DTYPES))  # type: ignore[arg-type]
        self.given(tuple(base), float64)


def meets(x: Value, y: Value) -> bool:
    pairs = zip(reversed(x.shape), reversed(y.shape))
    return all(a == b or a == 1 or b == 1 for a, b in pairs)


def drawn(choices: Sequence[int], smooth: bool = False, most: int = 12) -> Drawn:
    """The graph that a list of numbers makes; with `smooth` one whose gradients may be compared."""
    from tests.fuzz.moves import MOVES

    d = Drawing(choices, smooth)
    d.start()
    for _ in range(2 + d.below(most)):
        try:
            MOVES[d.below(len(MOVES))](d)
        except (Unfit, TilegradError, NotImplementedError):
            continue
    made = [x for x in d.spans if not isinstance(x, Input)] or list(d.spans)
    outputs = {made[-1]: None}
    for _ in range(d.below(3)):
        outputs[made[d.below(len(made))]] = None
    return Drawn(Graph(tuple(d.inputs), tuple(outputs)), d.arrays, d.sizes, tuple(d.exact(x) for x in outputs))


def tolerance(graph: Graph) -> float:
    """The tolerance of results: that of the coarsest floating-point type on the way."""
    return max((TOLERANCE[v.dtype] for v in graph.values() if v.dtype in TOLERANCE), default=0.0)


def compare(got: np.ndarray, want: np.ndarray, exact: bool, near: float, what: object = "") -> None:
    """Elements are equal, or near where they are inexact."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape, what
    if exact:
        np.testing.assert_array_equal(got, want, err_msg=str(what))
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    scale = 1.0 + (finite.max() if finite.size else 0.0)
    np.testing.assert_allclose(a, b, rtol=near, atol=near * scale, err_msg=str(what))
