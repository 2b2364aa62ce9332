"""Recurrent layers in float64: a loop over steps, and the same loop backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.geometries.windows import Array

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


class Recurrent(NamedTuple):
    """A recurrent layer over (batch, steps, inputs) from a state of zeros: all of its states."""

    kind: str
    batch: int
    steps: int
    inputs: int
    width: int

    exact = False

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        rows = GATES[self.kind] * self.width
        return (self.batch, self.steps, self.inputs), (rows, self.inputs), (rows, self.width), (rows,), (rows,)

    def ours(self, tg: Any) -> Callable[..., Any]:
        layer = getattr(tg.nn, self.kind)(self.inputs, self.width, batch_first=True)
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        call = tg.nn.utils.stateless.functional_call
        return lambda x, *weights: call(layer, dict(zip(names, weights, strict=True)), (x,))[0]

    def forward(self, x: Array, *weights: Array) -> tuple[Array, Any]:
        w, u, b, c = weights
        h = cell = np.zeros((self.batch, self.width))
        kept, states = [], []
        for t in range(self.steps):
            a, r = x[:, t] @ w.T + b, h @ u.T + c
            before = h, cell
            match self.kind:
                case "RNN":
                    h = np.tanh(a + r)
                    parts: tuple[Array, ...] = (h,)
                case "GRU":
                    reset, update = (_sigmoid(g) for g in np.split((a + r)[:, : 2 * self.width], 2, 1))
                    inner = r[:, 2 * self.width :]
                    new = np.tanh(a[:, 2 * self.width :] + reset * inner)
                    h = (1 - update) * new + update * h
                    parts = (reset, update, new, inner)
                case _:
                    i, f, g, o = np.split(a + r, 4, 1)
                    i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
                    cell = f * cell + i * g
                    h = o * np.tanh(cell)
                    parts = (i, f, g, o, cell)
            kept.append((before, parts))
            states.append(h)
        return np.stack(states, 1), (x, w, u, kept)

    def backward(self, kept: Any, upstream: Array) -> tuple[Array, ...]:
        x, w, u, steps = kept
        to_x, to_w, to_u = np.zeros_like(x), np.zeros_like(w), np.zeros_like(u)
        to_b, to_c = np.zeros(len(w)), np.zeros(len(w))
        to_h = to_cell = np.zeros((self.batch, self.width))
        for t in range(self.steps - 1, -1, -1):
            (h, cell), parts = steps[t]
            d = upstream[:, t] + to_h
            through: Array | float = 0.0
            match self.kind:
                case "RNN":
                    to_a = to_r = d * (1 - parts[0] ** 2)
                case "GRU":
                    reset, update, new, inner = parts
                    to_new = d * (1 - update) * (1 - new**2)
                    to_reset = to_new * inner * reset * (1 - reset)
                    to_update = d * (h - new) * update * (1 - update)
                    to_a = np.concatenate([to_reset, to_update, to_new], 1)
                    to_r = np.concatenate([to_reset, to_update, to_new * reset], 1)
                    through = d * update
                case _:
                    i, f, g, o, now = parts
                    to_now = to_cell + d * o * (1 - np.tanh(now) ** 2)
                    gates = (to_now * g * i * (1 - i), to_now * cell * f * (1 - f), to_now * i * (1 - g**2))
                    to_a = to_r = np.concatenate([*gates, d * np.tanh(now) * o * (1 - o)], 1)
                    to_cell = to_now * f
            to_x[:, t] = to_a @ w
            to_w += to_a.T @ x[:, t]
            to_u += to_r.T @ h
            to_b, to_c = to_b + to_a.sum(0), to_c + to_r.sum(0)
            to_h = to_r @ u + through
        return to_x, to_w, to_u, to_b, to_c

    @property
    def work(self) -> float:
        return float(self.batch * self.steps * GATES[self.kind] * self.width * (self.inputs + self.width))

    @property
    def terms(self) -> int:
        return max(self.steps * self.batch, 4 * self.width)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))
