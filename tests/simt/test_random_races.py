"""Random kernels of loads, stores, atomics and barriers: a race is reported where one is, and nowhere else.

What a race is, is said here once more, in a few lines: two threads use one element, not both to load or both
atomically, and no barrier of their block comes between; blocks are never in order.
"""

import random
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

import tilegrad as tg
from tests.simt.making import made
from tilegrad.errors import KernelFault

SIZE = 97


class Step(NamedTuple):
    """`use` of element (factor * i + shift) % SIZE by every thread i whose number leaves `rest` modulo `every`."""

    use: str
    array: str
    factor: int
    shift: int
    every: int
    rest: int
    barrier: bool

    def lines(self, n: int) -> list[str]:
        number = "i" if self.array == "out" else "threadIdx.x"
        place = f"{self.array}[({self.factor} * {number} + {self.shift}) % {SIZE}]"
        line = {
            "load": f"v += {place}",
            "store": f"{place} = {n + 1} * 1000.0 + i",
            "atomic": f"atomicAdd({place}, 1.0)",
        }[self.use]
        return [f"if {number} % {self.every} == {self.rest}:", f"    {line}"] + ["syncthreads()"] * self.barrier

    def places(self, blocks: int, threads: int) -> list[tuple[int, int, int]]:
        """Block, thread and element of each thread that takes part."""
        found = []
        for b, t in product(range(blocks), range(threads)):
            number = b * threads + t if self.array == "out" else t
            if number % self.every == self.rest:
                found.append((b, t, (self.factor * number + self.shift) % SIZE))
        return found


def drawn(seed: int) -> tuple[list[Step], int, int]:
    chance = random.Random(seed)
    steps = []
    for _ in range(chance.randrange(2, 5)):
        every = chance.choice([1, 1, 2, 5])
        use, array = chance.choice(["load", "store", "atomic"]), chance.choice(["out", "part", "part"])
        factor, shift = chance.choice([1, 1, 1, 2, 0]), chance.choice([0, 0, 1, 50])
        steps.append(Step(use, array, factor, shift, every, chance.randrange(every), chance.random() < 0.7))
    return steps, chance.choice([1, 1, 2, 3]), chance.choice([8, 33, 64])


def races(steps: list[Step], blocks: int, threads: int) -> bool:
    """Whether two threads get in each other's way."""
    seen: dict[tuple[str, int, int], list[tuple[int, int, int, str]]] = {}
    phase = 0
    for step in steps:
        for b, t, element in step.places(blocks, threads):
            shared = b if step.array == "part" else -1
            users = seen.setdefault((step.array, shared, element), [])
            for other, thread, then, use in users:
                alike = use == step.use and use in ("load", "atomic")
                ordered = other == b and (thread == t or then < phase)
                if not alike and not ordered:
                    return True
            users.append((b, t, phase, step.use))
        phase += step.barrier
    return False


@pytest.mark.parametrize("seed", [*range(60), 413, 609])
def test_random_races(seed: int) -> None:
    steps, blocks, threads = drawn(seed)
    body = ["i = blockIdx.x * blockDim.x + threadIdx.x", f"part = shared(float32, {SIZE})", "v = 0.0"]
    body += [f"for n in range(threadIdx.x, {SIZE}, blockDim.x):", "    part[n] = 0.0", "syncthreads()"]
    body += [line for n, step in enumerate(steps) for line in step.lines(n)]
    body += ["sums[i] = v"]
    k = made("\n".join(body), "out, sums")
    out, sums = (tg.tensor(np.zeros(max(SIZE, blocks * threads), np.float32)) for _ in range(2))
    if races(steps, blocks, threads):
        with pytest.raises(KernelFault, match=r"race: "):
            k[blocks, threads](out, sums)
    else:
        k[blocks, threads](out, sums)
