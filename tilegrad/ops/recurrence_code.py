"""Tile kernels of recurrent layers: an instance runs some sequences of the batch, as lanes, through all steps.

The gradient kernel reads weights in groups of neighbouring rows, (rows // group, columns, group): a product reads a few
rows at a time, which are contiguous then; rows with a stride of some thousand bytes would compete for the same cache
sets.
"""

from __future__ import annotations

from math import gcd
from typing import Literal, NamedTuple

from ..ir.dtype import float64
from ..ir.graph import TensorType
from .tile_code import TileCode, Tiles, fill_template, tile_code

CellKind = Literal["tanh", "relu", "lstm", "gru"]
TangentKind = CellKind | Literal["scan"]
GATES: dict[str, int] = {"tanh": 1, "relu": 1, "lstm": 4, "gru": 3, "scan": 1}
SAVED_PER_UNIT: dict[str, int] = {"tanh": 0, "relu": 0, "lstm": 5, "gru": 4}
"""Numbers that a unit stores at each step for the gradient: gates, and the cells of an LSTM or m of a GRU."""
MAX_GROUP_ROWS = 16
"""Rows of weights in a group: one cache line."""


def group_rows(units: int) -> int:
    """Return the number of rows in a group of weights.

    >>> group_rows(256), group_rows(200), group_rows(3)
    (16, 8, 1)
    """
    return gcd(units, MAX_GROUP_ROWS)


class RecurrenceSizes(NamedTuple):
    length: int
    units: int
    batch: int


class RecurrenceKernel(NamedTuple):
    """The parameters that a kernel is generated from."""

    kind: TangentKind
    sizes: RecurrenceSizes
    reverse: bool
    given: dict[str, TensorType]
    """Tensor arguments of the kernel, by name."""
    output: TensorType


FORWARD = """
@tg.kernel
def recurrence_KIND(PARAMETERS):
    n = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    j = tl.arange(0, UNITS)
    k = tl.arange(0, UNITS)
    place = j[:, None] * BATCH + n[None, :]
    state = tl.zeros((UNITS, LANES), DTYPE)
    state = tl.load(hidden + placeREAD)
    FIRST
    for step in range((0).to(tl.int64), LENGTH):
        t = TIME
        GATES
        STEP
        tl.store(out + (t * SIZE + place), stateWRITE)
    LAST
"""

GATE = """
given@ = tl.load(x + (t * (COUNT * SIZE) + (j + @ * UNITS)[:, None] * BATCH + n[None, :])READ)
gate@ = tl.zeros((UNITS, LANES), DTYPE)
gate@ = tl.dot(tl.load(weight + ((j + @ * UNITS)[:, None] * UNITS + k[None, :])), state, gate@)
"""
"""Contributions of inputs, loaded where they are added, so that the product does not begin with a copy."""

LEVELS: dict[str, tuple[str, ...]] = {"lstm": ("sigmoid", "sigmoid", "tanh", "sigmoid"), "gru": ("sigmoid", "sigmoid")}
"""Activations of the gates, applied to each block of the product while it is in the first-level cache."""
LEVEL = "gate@ = tl.FN(given@ + gate@)\n"

M = """
m = tl.zeros((UNITS, LANES), DTYPE) + tl.load(more0 + j)[:, None]
m = tl.dot(tl.load(weight + ((j + 2 * UNITS)[:, None] * UNITS + k[None, :])), state, m)
"""

STEPS = {
    "tanh": "state = tl.tanh(given0 + gate0)",
    "relu": "state = tl.maximum(given0 + gate0, 0.0)",
    "lstm": """
cell = gate1 * cell + gate0 * gate2
state = gate3 * tl.tanh(cell)
""",
    "gru": """
gate2 = tl.tanh(tl.load(x + (t * (COUNT * SIZE) + (j + 2 * UNITS)[:, None] * BATCH + n[None, :])READ) + gate0 * m)
state = gate2 + gate1 * (state - gate2)
""",
}

KEEP = "tl.store(out + (KEPT + t * (MANY * SIZE) + @ * SIZE + place), NAMEWRITE)\n"

BACKWARD = """
@tg.kernel
def recurrence_gradient_KIND(PARAMETERS):
    n = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    j = tl.arange(0, UNITS)
    k = tl.arange(0, UNITS)
    place = j[:, None] * BATCH + n[None, :]
    place_of_row = j // GROUP * (COUNT * UNITS * GROUP) + j % GROUP
    flow = tl.zeros((UNITS, LANES), DTYPE)
    before = tl.zeros((UNITS, LANES), DTYPE)
    FIRST
    for step in range((0).to(tl.int64), LENGTH):
        t = TIME
        earlier = EARLIER
        flow = flow + tl.load(upstream + (t * SIZE + place)READ)
        STEP
    tl.store(out + (BEHIND + place), flowWRITE)
    LAST
"""

BACK = {
    "tanh": """
after = tl.load(made + (t * SIZE + place)READ)
slope0 = tl.zeros((UNITS, LANES), DTYPE)
slope0 = flow * (1.0 - after * after)
""",
    "relu": """
after = tl.load(made + (t * SIZE + place)READ)
slope0 = tl.zeros((UNITS, LANES), DTYPE)
slope0 = tl.where(after > 0.0, flow, 0.0)
""",
    "lstm": """
before = tl.load(more0 + placeREAD)
if (earlier >= 0) & (earlier < LENGTH):
    before = tl.load(made + (KEPT + earlier * (5 * SIZE) + 4 * SIZE + place)READ)
gate0 = tl.load(made + (KEPT + t * (5 * SIZE) + place)READ)
gate1 = tl.load(made + (KEPT + t * (5 * SIZE) + SIZE + place)READ)
gate2 = tl.load(made + (KEPT + t * (5 * SIZE) + 2 * SIZE + place)READ)
gate3 = tl.load(made + (KEPT + t * (5 * SIZE) + 3 * SIZE + place)READ)
high = tl.tanh(tl.load(made + (KEPT + t * (5 * SIZE) + 4 * SIZE + place)READ))
cell = cell + flow * gate3 * (1.0 - high * high)
slope0 = cell * gate2 * gate0 * (1.0 - gate0)
slope1 = cell * before * gate1 * (1.0 - gate1)
slope2 = cell * gate0 * (1.0 - gate2 * gate2)
slope3 = flow * high * gate3 * (1.0 - gate3)
cell = cell * gate1
""",
    "gru": """
before = tl.load(hidden + placeREAD)
if (earlier >= 0) & (earlier < LENGTH):
    before = tl.load(made + (earlier * SIZE + place)READ)
slope0 = tl.load(made + (KEPT + t * (4 * SIZE) + place)READ)
slope1 = tl.load(made + (KEPT + t * (4 * SIZE) + SIZE + place)READ)
slope2 = tl.load(made + (KEPT + t * (4 * SIZE) + 2 * SIZE + place)READ)
slope3 = tl.load(made + (KEPT + t * (4 * SIZE) + 3 * SIZE + place)READ)
carry = flow * slope1
before = flow * (before - slope2) * slope1 * (1.0 - slope1)
slope2 = flow * (1.0 - slope1) * (1.0 - slope2 * slope2)
slope1 = before
before = slope2 * slope0
slope0 = slope2 * slope3 * slope0 * (1.0 - slope0)
slope3 = before
tl.store(out + (t * (3 * SIZE) + 2 * SIZE + place), slope2WRITE)
tl.store(out + (BEHIND + SIZE + t * SIZE + place), slope3WRITE)
slope2 = slope3
flow = carry
""",
}

SLOPE = "tl.store(out + (t * (COUNT * SIZE) + @ * SIZE + place), slope@WRITE)\n"
CARRY = "flow = tl.dot(tl.load(weight + (place_of_row[:, None] + ((k + @ * UNITS) * GROUP)[None, :])), slope@, flow)\n"


FACTOR = "factor@ = tl.load(factors + (t * (MANY * SIZE) + @ * SIZE + place)READ)\n"
GIVEN = "given@ = tl.load(x + (t * (ROWS * SIZE) + (j + @ * UNITS)[:, None] * BATCH + n[None, :])READ)\n"
FACTORS: dict[str, int] = {"tanh": 1, "relu": 1, "lstm": 6, "gru": 5, "scan": 1}
TANGENTS = {
    "scan": "state = factor0 * state + given0",
    "tanh": "state = factor0 * (given0 + gate0)",
    "lstm": """
cell = cell * factor5 + (given0 + gate0) * factor0 + (given1 + gate1) * factor1 + (given2 + gate2) * factor2
state = cell * factor4 + (given3 + gate3) * factor3
tl.store(out + (LENGTH * SIZE + t * SIZE + place), cellWRITE)
""",
    "gru": """
gate2 = (given3 + gate2) * factor3 + (given0 + gate0) * factor0 + given2
state = gate2 * factor2 + (given1 + gate1) * factor1 + state * factor4
""",
}
TANGENTS["relu"] = TANGENTS["tanh"]


def tangent(op: RecurrenceKernel) -> TileCode:
    """Generate the kernel of a recurrence that is linear in the gates, see `recurrence_tangent.py`."""
    rows, count = 4 if op.kind == "gru" else GATES[op.kind], 0 if op.kind == "scan" else GATES[op.kind]
    dots = "".join(line for line in GATE.splitlines(True) if not line.startswith("given"))
    gates = "".join(GIVEN.replace("@", str(n)) for n in range(rows))
    gates += "".join(dots.replace("@", str(n)) for n in range(count))
    gates += "".join(FACTOR.replace("@", str(n)) for n in range(FACTORS[op.kind]))
    first = "cell = tl.zeros((UNITS, LANES), DTYPE)\ncell = tl.load(more0 + placeREAD)" if op.kind == "lstm" else ""
    blocks = {"GATES": gates, "STEP": TANGENTS[op.kind], "FIRST": first, "LAST": ""}
    words = _words(op) | {"MANY": FACTORS[op.kind], "ROWS": rows, "KIND": f"tangent_{op.kind}"}
    words["TIME"] = f"{op.sizes.length - 1} - step" if op.reverse else "step"
    return _code(FORWARD, op, blocks, words)


def forward(op: RecurrenceKernel, keeps: bool) -> TileCode:
    length, units, batch = op.sizes
    count = GATES[op.kind]
    many: dict[str, list[str]] = {
        "lstm": ["gate0", "gate1", "gate2", "gate3", "cell"],
        "gru": ["gate0", "gate1", "gate2", "m"],
    }
    kept = [
        KEEP.replace("@", str(n)).replace("NAME", name) for n, name in enumerate(many.get(op.kind, []) if keeps else [])
    ]
    levels = LEVELS.get(op.kind, ())
    gates = ""
    for n in range(2 if op.kind == "gru" else count):
        gates += GATE.replace("@", str(n))
        if levels:
            gates += LEVEL.replace("@", str(n)).replace("FN", levels[n]) + "".join(kept[n : n + 1])
    gates += M if op.kind == "gru" else ""
    blocks = {"GATES": gates, "STEP": STEPS[op.kind] + "\n" + "".join(kept[len(levels) :]), "FIRST": "", "LAST": ""}
    if op.kind == "lstm":
        blocks["FIRST"] = "cell = tl.zeros((UNITS, LANES), DTYPE)\ncell = tl.load(more0 + placeREAD)"
        blocks["LAST"] = "tl.store(out + (LENGTH * SIZE + place), cellWRITE)"
    words = _words(op) | {"MANY": len(kept)}
    words["TIME"] = f"{length - 1} - step" if op.reverse else "step"
    return _code(FORWARD, op, blocks, words)


def backward(op: RecurrenceKernel) -> TileCode:
    length, units, batch = op.sizes
    count = GATES[op.kind]
    step = BACK[op.kind] + "".join(SLOPE.replace("@", str(n)) for n in range(2 if op.kind == "gru" else count))
    if op.kind != "gru":
        step += "flow = tl.zeros((UNITS, LANES), DTYPE)\n"
    step += "".join(CARRY.replace("@", str(n)) for n in range(count))
    blocks = {"STEP": step, "FIRST": "", "LAST": ""}
    if op.kind == "lstm":
        blocks["FIRST"] = "cell = tl.zeros((UNITS, LANES), DTYPE)\ncell = tl.load(more1 + placeREAD)"
        blocks["LAST"] = "tl.store(out + (BEHIND + SIZE + place), cellWRITE)"
    words = _words(op) | {"BEHIND": length * count * units * batch}
    words["TIME"] = "step" if op.reverse else f"{length - 1} - step"
    words["EARLIER"] = "t + 1" if op.reverse else "t - 1"
    return _code(BACKWARD, op, blocks, words)


def _lanes(batch: int) -> int:
    """Choose the lanes of an instance: two vectors of sequences if there are enough, so that both use each scalar of
    the weights.
    """
    return 16 if batch > 8 else 8


def _words(op: RecurrenceKernel) -> dict[str, object]:
    length, units, batch = op.sizes
    partial = batch % _lanes(batch) != 0
    return {
        "KIND": op.kind,
        "LENGTH": length,
        "UNITS": units,
        "BATCH": batch,
        "SIZE": units * batch,
        "COUNT": GATES[op.kind],
        "KEPT": (length + (op.kind == "lstm")) * units * batch,
        "GROUP": group_rows(units),
        "LANES": _lanes(batch),
        "DTYPE": "tl.float64" if op.output.dtype is float64 else "tl.float32",
        "READ": f", mask=(n < {batch})[None, :], other=0.0" if partial else "",
        "WRITE": f", mask=(n < {batch})[None, :]" if partial else "",
    }


def _code(text: str, op: RecurrenceKernel, blocks: dict[str, str], words: dict[str, object]) -> TileCode:
    grid = (Tiles(op.sizes.batch, _lanes(op.sizes.batch)),)
    return tile_code(fill_template(text, blocks, words), op.given, op.output, grid)
