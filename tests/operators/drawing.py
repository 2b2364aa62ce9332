"""Draw tensors of all ranks, types and layouts, and numbers: what operators are called with.

What is drawn is data: each library makes its own tensor of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool")
FLOATS = DTYPES[:4]
EXTENTS = (0, 1, 2, 3, 3, 3, 4, 5)
LAYOUTS = ("dense", "dense", "dense", "permuted", "stepped", "expanded", "offset", "overlapping")
Shape = tuple[int, ...]


@dataclass
class Drawn:
    """A tensor as data: the numbers of its base, and how it is cut from that."""

    numbers: list[float]
    shape: Shape
    dtype: str
    layout: str = "dense"
    tracked: bool = False

    def make(self, library: Any) -> Any:
        """The tensor of a library."""
        dtype = getattr(library, self.dtype)
        shape, rank = self.shape, len(self.shape)
        match self.layout:
            case "permuted":
                base = self._base(library, shape[::-1], dtype)
                made = base.permute(*range(rank - 1, -1, -1))
            case "stepped":
                made = self._base(library, (*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
            case "expanded":
                made = self._base(library, (1, *shape[1:]), dtype).expand(shape)
            case "offset":
                made = self._base(library, (shape[0] + 1, *shape[1:]), dtype)[1:]
            case "overlapping":
                made = self._base(library, (shape[0] + shape[1] - 1,), dtype).unfold(0, shape[1], 1)
            case _:
                made = self._base(library, shape, dtype)
        return made

    def _base(self, library: Any, shape: Shape, dtype: Any) -> Any:
        count = int(np.prod(shape, dtype=np.int64))
        repeated = (self.numbers * (count // max(len(self.numbers), 1) + 1))[:count]
        made = library.tensor(repeated, dtype=dtype).reshape(shape)
        return made.requires_grad_() if self.tracked else made

    def __str__(self) -> str:
        tracked = ", requires_grad=True" if self.tracked else ""
        return f"{self.layout}{list(self.shape)} {self.dtype} of {self.numbers[:8]}{tracked}"


@dataclass
class Scene:
    """The arguments drawn so far for a call: later ones are made to fit."""

    rng: random.Random
    dtype: str
    shape: Shape = ()
    dim: int = 0
    known: dict[str, Any] = field(default_factory=dict)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    def one_in(self, n: int) -> bool:
        return self.rng.randrange(n) == 0

    def draw_shape(self, least: int = 0, most: int = 4, *, empty: bool = True) -> Shape:
        rank = self.rng.randint(least, most)
        if self.one_in(2):  # equal extents are what axes are mistaken for each other by
            return (self.rng.choice((2, 3)),) * rank
        extents = EXTENTS if empty and self.one_in(5) else EXTENTS[1:]
        return tuple(self.rng.choice(extents) for _ in range(rank))

    def numbers(self, dtype: str, count: int, *, distinct: bool = False, positive: bool = False) -> list[float]:
        rng = self.rng
        if distinct:
            found: list[float] = list(range(count))
            rng.shuffle(found)
            return [x / 8 - 1 for x in found] if dtype in FLOATS else found
        if dtype == "bool":
            return [rng.randrange(2) for _ in range(count)]
        if dtype not in FLOATS:
            low, high = (1 if positive else 0 if dtype == "uint8" else -5), 6
            return [rng.randint(low, high) for _ in range(count)]
        found = [rng.randint(1, 15) / 16 if positive else rng.randint(-40, 40) / 16 for _ in range(count)]
        if not positive and count and self.one_in(12):
            found[rng.randrange(count)] = rng.choice((float("nan"), float("inf"), -float("inf"), -0.0, 0.0))
        return found

    def tensor(self, shape: Shape, dtype: str = "", *, distinct: bool = False, positive: bool = False) -> Drawn:
        dtype = dtype or self.dtype
        layout = self.rng.choice(LAYOUTS)
        fits = {
            "permuted": len(shape) > 1,
            "stepped": len(shape) > 0,
            "expanded": len(shape) > 0 and shape[0] > 0,
            "offset": len(shape) > 0,
            "overlapping": len(shape) == 2 and min(shape) > 0,
        }
        if distinct or not fits.get(layout, True):
            layout = "permuted" if layout == "permuted" and len(shape) > 1 else "dense"
        count = max(2 * int(np.prod(shape, dtype=np.int64)) + 8, 8) if not distinct else int(np.prod(shape))
        if distinct and dtype in ("bool", "uint8"):
            count = min(count, 2 if dtype == "bool" else 200)
        tracked = dtype in FLOATS and not self.one_in(4)
        return Drawn(self.numbers(dtype, count, distinct=distinct, positive=positive), shape, dtype, layout, tracked)

    def broadcast(self, shape: Shape) -> Shape:
        """A shape that meets another one."""
        if self.one_in(20):
            return self.draw_shape()
        cut = shape[self.rng.randint(0, len(shape)) :] if self.one_in(3) else shape
        return tuple(1 if self.one_in(4) else n for n in cut)

    def index(self, shape: Shape, extent: int) -> Drawn:
        """Indices within an axis; now and then one that is not."""
        count = max(int(np.prod(shape, dtype=np.int64)), 1)
        high = max(extent - 1, 0) + (1 if self.one_in(25) else 0)
        numbers: list[float] = [self.rng.randint(0, high) for _ in range(count)]
        return Drawn(numbers, shape, "int64", "permuted" if self.one_in(4) and len(shape) > 1 else "dense")

    def number(self) -> float:
        whole = self.rng.choice((0, 1, 2, 3, -1, True))
        return self.rng.choice((whole, 0.5, -1.5, 2.0)) if self.is_float or self.one_in(4) else whole

    def axis(self, rank: int = -1) -> int:
        rank = len(self.shape) if rank < 0 else rank
        if self.one_in(25):
            return self.rng.choice((rank, rank + 1, -rank - 1))
        return self.rng.randint(-max(rank, 1), max(rank, 1) - 1)

    def axes(self) -> Any:
        rank = len(self.shape)
        match self.rng.randrange(4):
            case 0:
                return None
            case 1:
                return self.axis()
            case 2:
                return tuple(self.rng.sample(range(-rank, 0), self.rng.randint(0, rank)))
        return tuple(self.rng.sample(range(rank), self.rng.randint(1, rank))) if rank else ()


def mapped(given: Any, make: Callable[[Any], Any]) -> Any:
    """Arguments with every drawn tensor replaced."""
    if isinstance(given, (list, tuple)):
        return type(given)(mapped(x, make) for x in given)
    if isinstance(given, dict):
        return {name: mapped(x, make) for name, x in given.items()}
    return make(given)
