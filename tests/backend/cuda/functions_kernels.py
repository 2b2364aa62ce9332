"""A kernel for every function and dtype, on special and ordinary values, with the interpreter's results."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilegrad.backend.reference.tile import run
from tilegrad.ir.dtype import DTYPES, FLOAT8, DType, bfloat16, bool_, float16, float32, float64, int8, int32
from tilegrad.ir.functions import FUNCTIONS
from tilegrad.ir.tile import Apply, Arange, Assign, Cast, Kernel, Load, Name, Store, Tile, TileParameter

KIND = {"bool": "b", "int": "i", "uint": "i", "float": "f"}
COUNT = 256
ULP = {float32: 4.0, float64: 4.0, float16: 1.0, bfloat16: 1.0, **dict.fromkeys(FLOAT8, 0.0)}
"""Allowed error of library functions, in units in the last place."""


class FunctionCase(NamedTuple):
    """`fn` on arguments of a dtype; for casts `target` is the dtype of the result."""

    fn: str
    dtype: DType
    target: DType | None = None

    @property
    def name(self) -> str:
        return f"{self.fn}-{self.dtype}" + (f"-{self.target}" if self.target else "")

    def kernel(self) -> Kernel:
        arity = 1 if self.target else FUNCTIONS[self.fn].arity
        dtypes = [bool_ if self.fn == "where" and n == 0 else self.dtype for n in range(arity)]
        result = self.target or (bool_ if FUNCTIONS[self.fn].result == "bool" else self.dtype)
        parameters = [TileParameter(f"x{n}", d) for n, d in enumerate(dtypes)] + [TileParameter("out", result)]
        args = tuple(Name(f"v{n}") for n in range(arity))
        value: Tile = Cast(args[0], self.target) if self.target else Apply(self.fn, args)
        body = [Assign("i", Arange(0, COUNT))]
        loads = [Assign(f"v{n}", Load(Name(f"x{n}") + Name("i"))) for n in range(arity)]
        return Kernel(f"one_{self.fn}", tuple(parameters), (*body, *loads, Store(Name("out") + Name("i"), value)))

    def arrays(self) -> list[Any]:
        rng = np.random.default_rng(sum(map(ord, self.name)))
        found = []
        for p in self.kernel().parameters:
            found.append(np.zeros(COUNT, p.dtype.numpy) if p.name == "out" else _values(p.dtype, rng))
        if self.fn in ("shl", "shr", "pow") and self.dtype.is_integer:
            found[1] = rng.integers(0, 5, COUNT).astype(self.dtype.numpy)
        return found

    def assert_right(self, got: list[Any]) -> None:
        """Compare results with the interpreter, up to some units in the last place."""
        made = self.arrays()
        with np.errstate(all="ignore"):
            run(self.kernel(), made, (1,))
        x, y = got[-1], made[-1]
        dtype = self.kernel().parameters[-1].dtype
        if self.target is not None and self.dtype.is_float and dtype.is_integer:  # beyond the range: unspecified
            source = made[0].astype(np.float64)
            with np.errstate(all="ignore"):
                inside = (source > max(dtype.min, -(2**31))) & (source < min(dtype.max, 2**31 - 1))
            x, y = x[inside], y[inside]
        if not dtype.is_float:
            np.testing.assert_array_equal(x, y, self.name)
            return
        wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
        spacing = np.abs(np.spacing(np.abs(y).astype(np.float32 if dtype.bits <= 32 else np.float64))).astype(
            np.float64
        )
        spacing *= {float16: 2.0**13, bfloat16: 2.0**16}.get(dtype, 1.0)
        # a result near zero of a sum (fma) is as exact as its parts
        allowed = ULP[dtype] * np.maximum(
            spacing, 2.0 ** -(24 if dtype is float16 else 133 if dtype is bfloat16 else 149)
        )
        with np.errstate(invalid="ignore"):
            near = (wide_x == wide_y) | (np.abs(wide_x - wide_y) <= allowed)
        exact = np.where(np.isnan(wide_y), np.isnan(wide_x), near)
        wrong = np.flatnonzero(~exact.astype(bool))
        shown = [(*(a[n] for a in made[:-1]), x[n], y[n]) for n in wrong[:5]]
        assert not len(wrong), f"{self.name}: {len(wrong)} wrong, (arguments, got, wanted): {shown}"


def _values(dtype: DType, rng: np.random.Generator) -> Any:
    if dtype is bool_:
        return rng.integers(0, 2, COUNT).astype(np.bool_)
    if dtype.is_integer:
        low, high = int(dtype.min), int(dtype.max)
        ends = np.array([0, 1, 2, 3, high, high - 1, low, low + 1, 5, 7], dtype.numpy)
        near = rng.integers(max(low, -20), 20, COUNT).astype(dtype.numpy)
        far = rng.integers(low, high, COUNT, dtype=dtype.numpy)
        values = np.where(rng.random(COUNT) < 0.5, near, far)
        values[rng.permutation(COUNT)[: len(ends) * 4]] = np.tile(ends, 4)
        return values.astype(dtype.numpy)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-40, 3e38, 1e-5, 88.0, -104.0])
    values = np.where(rng.random(COUNT) < 0.5, rng.uniform(-4, 4, COUNT), rng.standard_normal(COUNT) * 30)
    values[rng.permutation(COUNT)[: len(special) * 5]] = np.tile(special, 5)
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


CASES = [
    FunctionCase(f.name, dtype)
    for f in FUNCTIONS.values()
    if f.result != "given" and f.in_kernels and f.name != "inside"  # see tests/test_index_faults.py
    for dtype in DTYPES
    if KIND[dtype.kind] in f.domain and (f.name != "mulhi" or dtype.name == "uint32")
] + [FunctionCase("cast", source, target) for source in DTYPES for target in DTYPES if source is not target]
CASES += [
    FunctionCase("cast", *pair)
    for short in FLOAT8
    for other in (float64, float32, float16, bfloat16, int32, int8, bool_, *FLOAT8)
    for pair in ((short, other), (other, short))
    if other is not short
]
"""Every function on every dtype that it takes, and every conversion."""
