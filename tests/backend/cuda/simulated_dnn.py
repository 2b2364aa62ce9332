"""A cuDNN in numpy for the simulated GPU: descriptors, three ways to do it of which two are not to be taken, and what
NVIDIA's reference says that its convolutions compute."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from numpy.lib.stride_tricks import as_strided

from tests.backend.cuda.simulated import SimulatedDriver

TYPES = {0: np.dtype(np.float32), 2: np.dtype(np.float16), 9: np.dtype(bfloat16)}
ATOMICS, GREEDY, GOOD = 0, 1, 2


class SimulatedDnn:
    """Every function of the library is an attribute. `taken` are the algorithms that were asked for."""

    def __init__(self, driver: SimulatedDriver) -> None:
        self.driver, self.stream = driver, 0
        self.things: dict[int, Any] = {}
        self.taken: list[int] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cudnnCreate"):
            return partial(self.create)
        if name.startswith("cudnnDestroy"):
            return partial(self.destroy)
        found = {
            "cudnnSetStream": self.set_stream,
            "cudnnSetTensorNdDescriptor": self.set_tensor,
            "cudnnSetFilterNdDescriptor": self.set_filter,
            "cudnnSetConvolutionNdDescriptor": self.set_convolution,
            "cudnnSetConvolutionMathType": lambda *_: 0,
            "cudnnSetActivationDescriptor": self.set_activation,
            "cudnnGetConvolutionForwardAlgorithm_v7": self.algorithms,
            "cudnnGetConvolutionBackwardFilterAlgorithm_v7": self.algorithms,
            "cudnnConvolutionForward": self.forward,
            "cudnnConvolutionBackwardFilter": self.of_weights,
            "cudnnConvolutionBiasActivationForward": self.with_bias,
            "cudnnActivationForward": self.activate,
        }
        if name not in found:
            raise AttributeError(name)
        return partial(found[name])

    # --- descriptors ---------------------------------------------------------------------------

    def create(self, place: Any) -> int:
        place._obj.value = len(self.things) + 1
        self.things[len(self.things) + 1] = None
        return 0

    def destroy(self, thing: int) -> int:
        self.things[thing] = None
        return 0

    def set_stream(self, handle: int, stream: int) -> int:
        self.stream = stream
        return 0

    def set_tensor(self, thing: int, dtype: int, rank: int, extents: Any, steps: Any) -> int:
        assert rank in (4, 5)
        self.things[thing] = TYPES[dtype], tuple(extents), tuple(steps)
        return 0

    def set_filter(self, thing: int, dtype: int, order: int, rank: int, extents: Any) -> int:
        assert order == 1, "channels last"
        outputs, channels, *taps = extents
        steps = [channels * prod(taps[n + 1 :]) for n in range(len(taps))]
        self.things[thing] = TYPES[dtype], tuple(extents), (channels * prod(taps), 1, *steps)
        return 0

    def set_convolution(self, thing: int, rank: int, *rest: Any) -> int:
        padding, strides, dilation, mode, dtype = rest
        assert (set(padding), set(strides), mode, dtype) == ({0}, {1}, 1, 0)
        self.things[thing] = tuple(dilation)
        return 0

    def set_activation(self, thing: int, kind: int, nans: int, most: float) -> int:
        assert (kind in (1, 5), nans) == (True, 1)
        self.things[thing] = kind == 1
        return 0

    # --- convolutions --------------------------------------------------------------------------

    def algorithms(self, handle: int, a: int, b: int, description: int, c: int, *rest: Any) -> int:
        _, count, found = rest
        if len({self.things[x][0] for x in (a, b, c)}) > 1:
            return 3000  # not supported
        for n, which in enumerate((ATOMICS, GREEDY, GOOD)):
            found[n].which, found[n].deterministic = which, int(which != ATOMICS)
            found[n].workspace = (1 << 40) if which == GREEDY else 1 << 16
        count._obj.value = 3
        return 0

    def view(self, thing: int, address: int) -> np.ndarray:
        dtype, extents, steps = self.things[thing]
        last = sum((n - 1) * step for n, step in zip(extents, steps, strict=True))
        flat = self.driver.at(address, (last + 1) * dtype.itemsize).view(dtype)
        return as_strided(flat, extents, [step * dtype.itemsize for step in steps])

    def windows(self, thing: int, address: int, taps: tuple[int, ...], dilation: tuple[int, ...]) -> np.ndarray:
        """(images, channels, *windows, *taps)."""
        x = self.view(thing, address)
        counts = [e - (t - 1) * d for e, t, d in zip(x.shape[2:], taps, dilation, strict=True)]
        apart = [step * d for step, d in zip(x.strides[2:], dilation, strict=True)]
        return as_strided(x, (*x.shape[:2], *counts, *taps), (*x.strides, *apart)).astype(np.float64)

    def start(self, work: Any) -> int:
        if self.stream:
            self.driver.put(self.stream, work)
        else:
            work()  # as a part of a graph
        return 0

    def sums(self, x: tuple[int, int], w: tuple[int, int], description: int) -> np.ndarray:
        weights = self.view(*w).astype(np.float64)
        rank = weights.ndim - 2
        places, taps = [*range(2, 2 + rank)], [*range(2 + rank, 2 + 2 * rank)]
        windows = self.windows(*x, weights.shape[2:], self.things[description])
        return np.einsum(windows, [0, 1, *places, *taps], weights, [10, 1, *taps], [0, 10, *places], optimize=True)

    def forward(self, handle: int, one: Any, xd: int, x: int, wd: int, w: int, *rest: Any) -> int:
        description, which, _, _, _, yd, y = rest
        self.taken.append(which)

        def work() -> None:
            self.view(yd, y)[...] = self.sums((xd, x), (wd, w), description)

        return self.start(work)

    def with_bias(self, handle: int, one: Any, xd: int, x: int, wd: int, w: int, *rest: Any) -> int:
        description, which, _, _, _, _, _, biasd, bias, activation, yd, y = rest
        self.taken.append(which)

        def work() -> None:
            sums = self.sums((xd, x), (wd, w), description) + self.view(biasd, bias).astype(np.float64)
            self.view(yd, y)[...] = np.maximum(sums, 0) if self.things[activation] else sums

        return self.start(work)

    def activate(self, handle: int, activation: int, one: Any, xd: int, x: int, zero: Any, yd: int, y: int) -> int:
        def work() -> None:
            self.view(yd, y)[...] = np.maximum(self.view(xd, x), 0)

        return self.start(work)

    def of_weights(self, handle: int, one: Any, xd: int, x: int, yd: int, y: int, *rest: Any) -> int:
        description, which, _, _, _, wd, w = rest
        self.taken.append(which)

        def work() -> None:
            made, upstream = self.view(wd, w), self.view(yd, y).astype(np.float64)
            rank = upstream.ndim - 2
            places, taps = [*range(2, 2 + rank)], [*range(2 + rank, 2 + 2 * rank)]
            windows = self.windows(xd, x, made.shape[2:], self.things[description])
            made[...] = np.einsum(
                windows, [0, 1, *places, *taps], upstream, [0, 10, *places], [10, 1, *taps], optimize=True
            )

        return self.start(work)
