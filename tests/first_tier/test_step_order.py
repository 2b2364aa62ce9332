"""Steps run early where that releases memory, and never before what they read."""

from __future__ import annotations

import gc
import random
from typing import Any

import numpy as np

import tilegrad as tg
from tilegrad import config
from tilegrad.first_tier.step_order import StepSlots, early_order
from tilegrad.runtime.device import device


def drawn(rng: random.Random, count: int) -> tuple[list[StepSlots], list[int], frozenset[int]]:
    """Steps of which each reads results of earlier ones and of two given slots."""
    steps = []
    for n in range(count):
        sources = dict.fromkeys(rng.randrange(n + 2) for _ in range(rng.randrange(4)))
        steps.append(StepSlots(tuple(sources), (n + 2,)))
    bytes = [rng.choice((0, 4, 64, 1024, 4096)) for _ in range(count + 2)]
    return steps, bytes, frozenset({0, 1, count + 1, *rng.sample(range(2, count + 2), count // 8)})


def peak(steps: list[StepSlots], order: list[int], bytes: list[int], kept: frozenset[int]) -> int:
    left = dict.fromkeys(range(len(bytes)), 0)
    for step in steps:
        for slot in step.sources:
            left[slot] += 1
    live = most = 0
    for number in order:
        live += bytes[steps[number].roots[0]]
        most = max(most, live)
        for slot in (*steps[number].sources, *steps[number].roots):
            left[slot] -= slot in steps[number].sources
            if not left[slot] and slot not in kept:
                live -= bytes[slot]
    return most


def test_each_step_runs_once_after_what_it_reads() -> None:
    rng = random.Random(0)
    early = recorded = 0
    for count in range(1, 60):
        steps, bytes, kept = drawn(rng, count)
        order = early_order(steps, bytes, kept)
        assert sorted(order) == list(range(count))
        at = {number: place for place, number in enumerate(order)}
        assert all(at[s - 2] < at[n] for n, step in enumerate(steps) for s in step.sources if s >= 2)
        early += peak(steps, order, bytes, kept)
        recorded += peak(steps, list(range(count)), bytes, kept)
    assert early < recorded


def test_gradients_do_not_wait_for_one_another() -> None:
    """Each needs an activation and an upstream gradient, which the sum of it releases."""
    layers, count = 8, 1 << 14
    x = tg.ones(count)
    x.numpy()
    scales = [tg.tensor(np.ones(count, np.float32), requires_grad=True) for _ in range(layers)]
    gc.collect()
    place: Any = device("cpu")
    with config.changed(tier="interpreted"):
        place.reset_peaks()
        before = place.statistics.live + place.arena.blocks.bytes
        y = x
        for w in scales:
            y = (y * w.sum()).sin()
        y.sum().backward()
        tg.stack([w.grad.sum() for w in scales if w.grad is not None]).numpy()
    assert place.statistics.peak - before <= (layers + 2) * 4 * count
