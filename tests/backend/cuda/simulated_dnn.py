"""A simulated cuDNN in numpy: descriptors with attributes, four engines of which one is usable, and the results of
graphs according to NVIDIA's reference.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from numpy.lib.stride_tricks import as_strided

from tests.backend.cuda.simulated import SimulatedDriver

TYPES = {0: np.dtype(np.float32), 2: np.dtype(np.float16), 9: np.dtype(bfloat16)}
UNABLE, ATOMICS, GREEDY, GOOD = 10, 11, 12, 13
"""Engines: unsupported after all; nondeterministic; with too large a workspace; usable."""
NOTES = {UNABLE: (), ATOMICS: (0, 4), GREEDY: (), GOOD: (5,)}
CONFIGURATION, ENGINE, PLAN = 3, 2, 5


class Descriptor(dict[int, list[Any]]):
    """Attributes by name."""

    def __init__(self, kind: int) -> None:
        super().__init__()
        self.kind = kind


class SimulatedDnn:
    """Every function of the library as an attribute; `taken` are the engines that computed."""

    def __init__(self, driver: SimulatedDriver) -> None:
        self.driver, self.stream = driver, 0
        self.things: dict[int, Descriptor] = {}
        self.count = 0
        self.taken: list[int] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cudnn"):
            raise AttributeError(name)
        return partial(getattr(self, name.removeprefix("cudnn").removeprefix("Backend").lower()))

    def create(self, place: Any) -> int:
        place._obj.value = 7
        return 0

    def setstream(self, handle: int, stream: int) -> int:
        self.stream = stream
        return 0

    # --- descriptors ---------------------------------------------------------------------------

    def createdescriptor(self, kind: int, place: Any) -> int:
        self.count += 1
        self.things[self.count] = Descriptor(kind)
        place._obj.value = self.count
        return 0

    def destroydescriptor(self, thing: int) -> int:
        del self.things[thing]
        return 0

    def setattribute(self, thing: int, name: int, type: int, count: int, values: Any) -> int:
        found = self.things[thing]
        found[name] = list(values[:count])
        return 2000 if found.kind == PLAN and name == 401 and self.things[values[0]][0] == [UNABLE] else 0

    def createtensordescriptor(self, place: Any) -> int:
        return self.createdescriptor(0, place)

    def settensornddescriptor(self, thing: int, dtype: int, rank: int, extents: Any, steps: Any) -> int:
        self.things[thing].update({901: [dtype], 902: list(extents), 903: list(steps)})
        return 0

    def destroytensordescriptor(self, thing: int) -> int:
        return self.destroydescriptor(thing)

    def transformtensor(self, handle: int, one: Any, xd: int, x: int, zero: Any, yd: int, y: int) -> int:
        def work() -> None:
            self.view(self.things[yd], y)[...] = self.view(self.things[xd], x)

        return self.start(work)

    def finalize(self, thing: int) -> int:
        """Reject overlapping tensors, like the library."""
        found = self.things[thing]
        if 902 in found:
            image, _, *steps = found[903]
            if any(n * step > outer for outer, step, n in zip([image, *steps], steps, found[902][2:], strict=False)):
                return 2000
        return 3000 if found.get(200) == [3] and self.dilated(thing) else 0

    def dilated(self, thing: int) -> bool:
        """Return whether the best heuristic has no proposal, to exercise the fallback."""
        steps = [self.things[s] for s in self.things[self.things[thing][201][0]][801]]
        return any(set(self.things[s[702][0]][102]) != {1} for s in steps if 702 in s)

    def getattribute(self, thing: int, name: int, type: int, most: int, count: Any, values: Any) -> int:
        found = self.things[thing]
        if name == 202:  # the configurations of an engine each
            answer = [UNABLE, ATOMICS, GREEDY, GOOD][:most]
            for n, engine in enumerate(answer):
                self.things[values[n]].update({0: [engine], 201: found[201]})
        elif name == 300:
            answer = self.things[values[0]][0] = found[0]
        else:
            engine = found[0] if name != 402 else self.things[found[401][0]][0]
            answer = {1303: NOTES[engine[0]], 1301: engine, 402: [(1 << 40) if engine == [GREEDY] else 1 << 16]}[name]  # type: ignore[index]
            for n, value in enumerate(answer):
                values[n] = value
        count._obj.value = len(answer)
        return 0

    # --- graphs --------------------------------------------------------------------------------

    def execute(self, handle: int, plan: int, pack: int) -> int:
        configuration, told = self.things[self.things[plan][401][0]], self.things[pack]
        self.taken += configuration[0]
        places = dict(zip(told[1000], told[1001], strict=True))
        steps = [self.things[s] for s in self.things[configuration[201][0]][801]]

        def work() -> None:
            between: dict[int, np.ndarray] = {}
            for step in steps:
                self.compute(step, places, between)

        return self.start(work)

    def start(self, work: Any) -> int:
        if self.stream:
            self.driver.put(self.stream, work)
        else:
            work()  # as a part of a graph
        return 0

    def view(self, tensor: Descriptor, address: int) -> np.ndarray:
        dtype, extents, steps = TYPES[tensor[901][0]], tensor[902], tensor[903]
        last = sum((n - 1) * s for n, s in zip(extents, steps, strict=True))
        flat = self.driver.at(address, (last + 1) * dtype.itemsize).view(dtype)
        return as_strided(flat, extents, [s * dtype.itemsize for s in steps])

    def compute(self, step: Descriptor, places: dict[int, int], between: dict[int, np.ndarray]) -> None:
        def view(name: int) -> np.ndarray:
            tensor = self.things[step[name][0]]
            (uid,), extents = tensor[906], tensor[902]
            if tensor.get(907) == [True]:
                return between.setdefault(uid, np.zeros(extents))
            return self.view(tensor, places[uid])

        if 750 in step:
            x, function = view(751).astype(np.float64), self.things[step[750][0]]
            view(753)[...] = x + view(752).astype(np.float64) if function[0] == [0] else np.maximum(x, 0)
            return
        of_weights = 715 in step
        x, w, y = (view(name) for name in ((716, 715, 717) if of_weights else (704, 703, 705)))
        description = self.things[step[714 if of_weights else 702][0]]
        windows = _windows(x, w.shape[2:], description[102])
        rank = w.ndim - 2
        places_of, taps = [*range(2, 2 + rank)], [*range(2 + rank, 2 + 2 * rank)]
        of_x, of_w, of_y = [0, 1, *places_of, *taps], [10, 1, *taps], [0, 10, *places_of]
        if of_weights:
            w[...] = np.einsum(windows, of_x, y.astype(np.float64), of_y, of_w, optimize=True)
        else:
            y[...] = np.einsum(windows, of_x, w.astype(np.float64), of_w, of_y, optimize=True)


def _windows(x: np.ndarray, taps: tuple[int, ...], dilation: list[int]) -> np.ndarray:
    """Return windows of shape (images, channels, *windows, *taps)."""
    counts = [e - (t - 1) * d for e, t, d in zip(x.shape[2:], taps, dilation, strict=True)]
    assert prod(counts) > 0
    apart = [step * d for step, d in zip(x.strides[2:], dilation, strict=True)]
    return as_strided(x, (*x.shape[:2], *counts, *taps), (*x.strides, *apart)).astype(np.float64)
