"""Kernels whose constants are chosen: by measuring (`autotune`), or by a rule (`heuristics`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import CompileError, KernelError, KernelLaunchError
from ..lazy.evaluation import is_recorded
from ..lazy.handle import Handle
from ..runtime.device import device
from .kernel import KernelFunction, Launchable

RUNS = 5
"""How often each configuration is measured; the best run counts."""


class Config:
    """Values of constants to try, and hints."""

    def __init__(
        self, kwargs: Mapping[str, Any], num_warps: int = 4, num_stages: int = 3, num_ctas: int = 1,
        maxnreg: int | None = None, pre_hook: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        self.kwargs = dict(kwargs)
        self.num_warps, self.num_stages, self.num_ctas, self.maxnreg = num_warps, num_stages, num_ctas, maxnreg
        self.pre_hook = pre_hook

    def all_kwargs(self) -> dict[str, Any]:
        """The constants and the hints."""
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}

    def __repr__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.all_kwargs().items())


class Chosen(Launchable):
    """A kernel, some of whose arguments are filled in when it is launched."""

    def __init__(self, inner: Launchable) -> None:
        self.inner = inner
        self.__name__ = self.kernel.fn.__name__

    @property
    def kernel(self) -> KernelFunction:
        return self.inner.kernel

    def extra(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments that are filled in."""
        raise NotImplementedError

    def launch(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], how: str = "run") -> None:
        self.inner.launch(grid, args, {**kwargs, **self.extra(grid, args, kwargs)}, how)

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that are given, by name."""
        names = list(self.kernel.signature.parameters)
        return {**dict(zip(names, args, strict=False)), **kwargs}


class Heuristics(Chosen):
    """`values` are functions of the arguments by name."""

    def __init__(self, inner: Launchable, values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
        super().__init__(inner)
        self.values = dict(values)

    def extra(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        named = self.named(args, kwargs)
        made: dict[str, Any] = {}
        for name, rule in self.values.items():
            made[name] = rule({**named, **made})
        return made


class Autotuned(Chosen):
    """Measures its configurations for each new `key`, and keeps the best."""

    def __init__(self, inner: Launchable, configs: Sequence[Config], key: Sequence[str]) -> None:
        super().__init__(inner)
        self.configs, self.keys = list(configs), list(key)
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.best_config: Config | None = None
        names = self.kernel.signature.parameters
        for name in [*self.keys, *(n for c in self.configs for n in c.kwargs)]:
            if name not in names:
                raise KernelError(
                    f"autotune: kernel {self.__name__} has no parameter `{name}`; it takes {', '.join(names)}"
                )
        if not self.configs:
            raise KernelError(f"autotune: kernel {self.__name__} has no configurations to choose from")

    def extra(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        named = self.named(args, kwargs)
        twice = sorted({n for c in self.configs for n in c.kwargs} & set(named))
        if twice:
            raise KernelLaunchError(
                f"kernel {self.__name__}: `{twice[0]}` is chosen by autotune, and was given too: leave it out"
            )
        types = tuple([str(x._value.type.dtype) for x in named.values() if isinstance(x, Handle)])
        key = (tuple([named.get(name) for name in self.keys]), types)
        found = self.cache.get(key)
        if found is None and len(self.configs) > 1 and is_recorded(list(named.values())):
            raise KernelLaunchError(
                f"kernel {self.__name__} is tuned by running it, and while a function is traced there is nothing to "
                "run it "
                f"on: launch it once outside, with arguments that have the same {', '.join(self.keys) or 'types'}"
            )
        if found is None:
            found = self.configs[0] if len(self.configs) == 1 else self.best(grid, args, kwargs, named)
            self.cache[key] = found
        self.best_config = found
        if found.pre_hook is not None:
            found.pre_hook({**named, **found.kwargs})
        return found.all_kwargs()

    def best(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], named: Mapping[str, Any]) -> Config:
        """The fastest configuration. What the kernel writes is put back after each run."""
        tensors = [x for x in named.values() if isinstance(x, Handle)]
        kept = [(x, x.clone()) for x in tensors if not x._value.tracked]  # type: ignore[attr-defined]
        times: list[tuple[float, int]] = []
        problem: KernelError | CompileError | None = None
        for n, config in enumerate(self.configs):
            try:
                times.append((self.measured(grid, args, {**kwargs, **config.all_kwargs()}, tensors), n))
            except CompileError as error:  # too large for this machine
                problem = error
            finally:
                for x, old in kept:
                    x.copy_(old)  # type: ignore[attr-defined]
        if not times:
            assert problem is not None
            raise problem
        return self.configs[min(times)[1]]

    def measured(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Sequence[Any]) -> float:
        """Seconds of the best of some runs."""
        self.inner.launch(grid, args, kwargs)
        best = float("inf")
        for _ in range(RUNS):
            start = time.perf_counter()
            self.inner.launch(grid, args, kwargs)
            for place in {x._value.type.device for x in tensors}:
                device(place).synchronize()
            best = min(best, time.perf_counter() - start)
        return best


def autotune(configs: Iterable[Config], key: Sequence[str], **hints: Any) -> Callable[[Any], Autotuned]:
    """Chooses among configurations by measuring them, anew for each value of the arguments in `key`.

    What the kernel writes while it is measured is put back, so there is no need for Triton's `reset_to_zero`.
    """
    return lambda inner: Autotuned(inner, list(configs), list(key))


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Computes constants from the other arguments."""
    return lambda inner: Heuristics(inner, values)


def cdiv(x: int, y: int) -> int:
    """x / y, rounded up: how many blocks of y cover x.

    >>> cdiv(1000, 128)
    8
    """
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below n.

    >>> next_power_of_2(1000), next_power_of_2(1024)
    (1024, 1024)
    """
    return 1 << max(0, n - 1).bit_length()
