"""Examples of external calls and of declared operators."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilegrad as tg
from tests.ops.registry import SMALL, example, floats
from tilegrad.ir.program import Tiles
from tilegrad.ir.tile_parser import parse
from tilegrad.ops.declared import Declared
from tilegrad.ops.external_call import ExternalCall, TileWork, external_call
from tilegrad.runtime.external_work import ArrayWork

KERNEL = parse("""
@tg.kernel
def shifted(x: "*f64", out: "*f64"):
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    tl.store(out + i, tl.load(x + i) + 1.0)
""")
SHIFTED = TileWork(KERNEL, (Tiles(3, 1),), (0, 1))
HALF = TileWork(KERNEL, (Tiles(1, 1),), (1, 1))
BOTH = ArrayWork("both", lambda x: (x * 2, x + 1))

example(
    ExternalCall,
    lambda x: external_call(SHIFTED, [x], [x.type])[0],
    floats(3, 4),
    numpy=lambda x: x + 1,
    gradient=False,
)
example(
    ExternalCall,
    lambda x: external_call(HALF, [x], [x.type], [0])[0],
    floats(3, 4),
    numpy=lambda x: np.concatenate([x[:1] + 1, x[1:]]),
    gradient=False,
)
example(
    ExternalCall,
    lambda x: tuple(external_call(BOTH, [x], [x.type] * 2)),
    SMALL,
    numpy=lambda x: (x * 2, x + 1),
    gradient=False,
)


@tg.op("tests::example(x: F[*s, n], w: F[n]) -> (product: F[*s, n], total: F[*s])")
def declared(x: Any, w: Any) -> Any:
    return x * w, (x * w).sin().sum(-1)


example(
    Declared,
    lambda x, w: tuple(y.value for y in declared(tg.lazy.handle.wrap(x), tg.lazy.handle.wrap(w))),
    SMALL,
    floats(4),
    numpy=lambda x, w: (x * w, np.sin(x * w).sum(-1)),
)
