"""Examples of recurrent layers."""

from __future__ import annotations

from typing import Any

from tests.ops.registry import example, floats
from tilegrad.ir.graph import Value
from tilegrad.ops.arithmetic import add
from tilegrad.ops.broadcasting import reduce_sum
from tilegrad.ops.recurrence import CellKind, Recurrence, RecurrenceGradient, recurrence
from tilegrad.ops.recurrence_sizes import FACTORS, GATES, TangentKind
from tilegrad.ops.recurrence_tangent import RecurrenceTangent
from tilegrad.transform.autodiff import gradients

UNITS = 3


def torch_steps(kind: CellKind, reverse: bool) -> Any:
    """The same with PyTorch, step by step."""

    def run(t: Any, x: Any, weight: Any, hidden: Any, more: Any = None) -> Any:
        outputs = [None] * len(x)
        for n in range(len(x))[:: -1 if reverse else 1]:
            added = weight @ hidden
            if kind == "lstm":
                i, f, g, o = (x[n] + added).chunk(4)
                more = f.sigmoid() * more + i.sigmoid() * g.tanh()
                hidden = o.sigmoid() * more.tanh()
            elif kind == "gru":
                (xr, xz, xn), (hr, hz, hn) = x[n].chunk(3), added.chunk(3)
                new = (xn + (xr + hr).sigmoid() * (hn + more[:, None])).tanh()
                hidden = new + (xz + hz).sigmoid() * (hidden - new)
            else:
                hidden = getattr(t, kind)(x[n] + added)
            outputs[n] = hidden
        return (t.stack(outputs), more) if kind == "lstm" else t.stack(outputs)

    return run


def steps(kind: CellKind, reverse: bool) -> Any:
    def run(x: Value, weight: Value, hidden: Value, more: Value | None = None) -> Any:
        states, cell = recurrence(x, weight, hidden, more, kind, reverse)
        return states if cell is None else (states, cell)

    return run


def gradient_of_weight(kind: CellKind) -> Any:
    def run(*given: Value) -> Value:
        made = steps(kind, False)(*given)
        total = add(reduce_sum(made[0]), reduce_sum(made[1])) if isinstance(made, tuple) else reduce_sum(made)
        (share,) = gradients([total], [reduce_sum(given[2])], [given[1]])
        assert share is not None
        return share

    return run


def arrays(kind: CellKind, batch: int) -> list[Any]:
    rows = {"lstm": 4, "gru": 3}.get(kind, 1) * UNITS
    more = {"lstm": [floats(UNITS, batch, seed=3)], "gru": [floats(UNITS, seed=3)]}.get(kind, [])
    return [floats(4, rows, batch), floats(rows, UNITS, seed=1), floats(UNITS, batch, seed=2), *more]


def forth(kind: TangentKind, reverse: bool) -> Any:
    def run(x: Value, factors: Value, hidden: Value, *rest: Value) -> Value:
        weight, more = (rest[:1], rest[1:]) if kind != "scan" else ((), ())
        return RecurrenceTangent(x, factors, hidden, weight, more, kind, reverse, "highest")

    return run


def arrays_forth(kind: TangentKind, units: int, batch: int) -> list[Any]:
    rows = 4 if kind == "gru" else GATES[kind]
    made = [
        floats(2, rows * units, batch),
        floats(2, FACTORS[kind] * units, batch, seed=1),
        floats(units, batch, seed=2),
    ]
    made += [floats(GATES[kind] * units, units, seed=3)] if kind != "scan" else []
    return made + ([floats(units, batch, seed=4)] if kind == "lstm" else [])


KINDS: tuple[CellKind, ...] = ("tanh", "relu", "lstm", "gru")
for kind in KINDS:
    for reverse in (False, True):
        torch = torch_steps(kind, reverse)
        given = arrays(kind, 5 if reverse else 18)
        example(Recurrence, steps(kind, reverse), *given, torch=torch, gradient="torch")
    example(RecurrenceGradient, gradient_of_weight(kind), *arrays(kind, 8), gradient=False)

example(RecurrenceTangent, forth("scan", True), *arrays_forth("scan", 2, 3))
for kind in KINDS:
    example(RecurrenceTangent, forth(kind, kind == "tanh"), *arrays_forth(kind, 2, 3))
