"""What a program of a row is given besides the library: data, a clock, and a place for its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Session:
    """One run of one program. `jit` compiles a step, or is the identity; `small` asks for the smallest sizes; a checked
    run gives the parameters and the noise of every library the same values; data and models live on `device`.
    """

    def __init__(
        self, library: Any, jit: Callable[[Any], Any], small: bool, checked: bool, start: float, device: str = "cpu"
    ) -> None:
        self.library, self.jit, self.small, self.checked, self.device = library, jit, small, checked, device
        self.start, self.end, self.units = start, start, 1
        self.is_drawn = False
        """Whether random numbers of the library decide the results of an unchecked run."""
        self.same_noise: Any = None
        self.results: list[float] = []
        self.generator = np.random.default_rng(0)

    def normal(self, *shape: int) -> Any:
        return self._placed(self.generator.standard_normal(shape, dtype=np.float32))

    def integers(self, high: int, *shape: int) -> Any:
        return self._placed(self.generator.integers(0, high, shape))

    def _placed(self, array: np.ndarray[Any, Any]) -> Any:
        made = self.library.from_numpy(array)
        return made if self.device == "cpu" else made.to(self.device)

    def noise(self, like: Any) -> Any:
        """Draw normal numbers as the library does; in a checked run the same for all."""
        self.is_drawn = True
        if not self.checked:
            return self.library.randn_like(like)
        if self.same_noise is None:
            self.same_noise = self.normal(*like.shape)
        return self.same_noise

    def weights(self, model: Any) -> Any:
        """Return a model with its own weights; in a checked run with those of the harness."""
        self.is_drawn = True
        if self.checked:
            parameters = list(model.parameters())
            with self.library.no_grad():
                for p, w in zip(parameters, drawn([tuple(p.shape) for p in parameters]), strict=True):
                    p.copy_(self.library.from_numpy(w))
        return model if self.device == "cpu" else model.to(self.device)

    def begin(self, units: int = 1) -> None:
        """Start the clock anew: what comes before is not counted. The time is given per unit."""
        self.start, self.units = time.perf_counter(), units

    def look(self, result: Any) -> float:
        """Look at a number, as `print` would."""
        found = float(result.item() if hasattr(result, "item") else result)
        self.results.append(found)
        self.end = time.perf_counter()
        return found


def drawn(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray[Any, Any]]:
    """Draw weights: matrices by their number of inputs, vectors near one, so that scales of norms are harmless."""
    rng = np.random.default_rng(1)
    made = []
    for shape in shapes:
        x = rng.standard_normal(shape, dtype=np.float32)
        made.append(x / np.float32(np.sqrt(np.prod(shape[1:]))) if len(shape) > 1 else 1 + np.float32(0.1) * x)
    return made
