"""Choose a kernel's constants by measurement (`autotune`) or by a rule (`heuristics`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ..errors import CompileError, KernelError, KernelLaunchError
from ..ir.program import Tiles
from ..ir.size import Size
from ..jitted.function import Jitted
from ..lazy.bounded_recording import is_recorded
from ..lazy.handle import Handle
from .flatten_arguments import map_tensors, tensors_in
from .kernel import KernelFunction, Launchable
from .measuring import can_stand_in, seconds_of, stand_in, untraced

PRUNINGS = ("early_config_prune", "perf_model", "top_k")
DEFAULT_TOP_K = 10
"""Default number of configurations that a performance model leaves to be measured."""


class Config:
    """Values of constants to try, and compiler hints."""

    def __init__(
        self, kwargs: Mapping[str, Any], num_warps: int = 4, num_stages: int = 3, num_ctas: int = 1,
        maxnreg: int | None = None, pre_hook: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        self.kwargs = dict(kwargs)
        self.num_warps, self.num_stages, self.num_ctas, self.maxnreg = num_warps, num_stages, num_ctas, maxnreg
        self.pre_hook = pre_hook

    def all_kwargs(self) -> dict[str, Any]:
        """Return the constants and the hints together."""
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}

    def __repr__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.all_kwargs().items())


class TunedKernel(Launchable):
    """A kernel some of whose arguments are filled in at launch."""

    def __init__(self, inner: Launchable) -> None:
        self.inner = inner
        self.__name__ = self.kernel.fn.__name__

    @property
    def kernel(self) -> KernelFunction:
        return self.inner.kernel

    def extra(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments to fill in."""
        raise NotImplementedError

    def launch(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], how: str = "run") -> None:
        self.inner.launch(grid, args, {**kwargs, **self.extra(grid, args, kwargs)}, how)

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the passed arguments by name."""
        names = list(self.kernel.signature.parameters)
        return {**dict(zip(names, args, strict=False)), **kwargs}


class Heuristics(TunedKernel):
    """A kernel with constants computed by `values`, functions of the arguments by name."""

    def __init__(self, inner: Launchable, values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
        super().__init__(inner)
        self.values = dict(values)

    def extra(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        named = self.named(args, kwargs)
        made: dict[str, Any] = {}
        for name, rule in self.values.items():
            made[name] = rule({**named, **made})
        return made


class Autotuned(TunedKernel):
    """A kernel that measures its configurations for each new `key` and keeps the best."""

    def __init__(
        self,
        inner: Launchable,
        configs: Sequence[Config],
        key: Sequence[str],
        pruning: Mapping[str, Any] = {},
        measure: Callable[[Callable[[], None], Sequence[Any]], float] = seconds_of,
    ) -> None:
        super().__init__(inner)
        self.pruning, self.measure = dict(pruning), measure
        self.configs, self.keys = list(configs), list(key)
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.best_config: Config | None = None
        names = self.kernel.signature.parameters
        wrong = next((c for c in self.configs if not isinstance(c, Config)), None)
        if wrong is not None:
            raise KernelError(
                f"autotune: kernel {self.__name__}: a configuration is tilegrad.Config({{...}}), not {wrong!r}"
            )
        for name in [*self.keys, *(n for c in self.configs for n in c.kwargs)]:
            if name not in names:
                raise KernelError(
                    f"autotune: kernel {self.__name__} has no parameter `{name}`; it takes {', '.join(names)}"
                )
        unknown = [name for name in self.pruning if name not in PRUNINGS]
        if unknown:
            raise KernelError(
                f"autotune: prune_configs_by of kernel {self.__name__} has {unknown[0]!r}, and takes "
                f"{', '.join(PRUNINGS)}"
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
        types = tuple([str(x._value.type.dtype) for x in tensors_in(named.values())])
        key = (tuple([named.get(name) for name in self.keys]), types)
        found = self.cache.get(key)
        if found is None:
            found = self.cache[key] = self._found(grid, args, kwargs, named)
        self.best_config = found
        if found.pre_hook is not None:
            found.pre_hook({**named, **found.kwargs})
        return found.all_kwargs()

    def _found(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], named: Mapping[str, Any]) -> Config:
        """Find the fastest configuration; while tracing, on stand-in tensors of the same types."""
        if len(self.configs) == 1:
            return self.configs[0]
        if not is_recorded(tensors_in(named.values())):
            return self.best(grid, args, kwargs, named)
        if any(not can_stand_in(x) for x in tensors_in(named.values())):
            raise KernelLaunchError(
                f"kernel {self.__name__} is tuned by running it, and while this function is traced it is not known how "
                f"large its tensors, or what its numbers are: launch it once outside, with arguments that have the "
                f"same {', '.join(self.keys) or 'types'}"
            )
        with untraced():
            put = lambda x: stand_in(x) if isinstance(x, Handle) else x  # noqa: E731
            other = {name: map_tensors(x, put) for name, x in named.items()}
            return self.best(grid, (), other, other)

    def best(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], named: Mapping[str, Any]) -> Config:
        """Measure all configurations and return the fastest; tensors that the kernel writes are restored after each
        run.
        """
        given = tensors_in(named.values())
        times: list[tuple[float, int]] = []
        problem: KernelError | CompileError | None = None
        chosen = self.pruned(named)
        if len(chosen) == 1:
            return chosen[0]
        for n, config in enumerate(chosen):
            options = {**kwargs, **config.all_kwargs()}
            try:
                times.append((self.measure(partial(self.inner.launch, grid, args, options), given), n))
            except CompileError as error:  # too large for this machine
                problem = error
        if not times:
            assert problem is not None
            raise problem
        return chosen[min(times)[1]]

    def pruned(self, named: Mapping[str, Any]) -> list[Config]:
        """Return the configurations worth measuring."""
        found = self.configs
        early, model = self.pruning.get("early_config_prune"), self.pruning.get("perf_model")
        if early is not None:
            found = list(early(found, dict(named)))
            if not found:
                raise KernelError(f"autotune: kernel {self.__name__} has no configuration left for these arguments")
        if model is not None:
            most = self.pruning.get("top_k", DEFAULT_TOP_K)
            most = max(1, int(len(self.configs) * most)) if isinstance(most, float) and most <= 1 else int(most)
            found = sorted(found, key=lambda c: model(**{**named, **c.all_kwargs()}))[:most]
        return found


def autotune(
    configs: Iterable[Config], key: Sequence[str], prune_configs_by: Mapping[str, Any] | None = None, **hints: Any
) -> Callable[[Any], Autotuned]:
    """Choose the fastest configuration by measurement, once for each value of the arguments in `key`.

    `prune_configs_by` may have `early_config_prune`, a function of the configurations and the arguments by name that
    returns the valid ones, and `perf_model`, a function of all arguments that estimates the time; the `top_k` best
    estimates (a count or a fraction) are measured. Tensors that the kernel writes are restored after each measurement,
    so Triton's `reset_to_zero` is not needed.
    """
    return lambda inner: Autotuned(_launchable(inner), list(configs), list(key), prune_configs_by or {})


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Compute constants from the other arguments."""
    return lambda inner: Heuristics(_launchable(inner), values)


def _launchable(inner: Any) -> Any:
    return inner.tile_kernel if isinstance(inner, Jitted) else inner


def cdiv(x: Any, y: int) -> Any:
    """Divide, rounded up: the number of blocks of y that cover x. A symbolic axis in `jit` gives a symbolic grid
    extent.

    >>> cdiv(1000, 128)
    8
    """
    return Tiles(x, y) if isinstance(x, Size) else -(-x // y)


def next_power_of_2(n: int) -> int:
    """Return the smallest power of two that is at least n.

    >>> next_power_of_2(1000), next_power_of_2(1024)
    (1024, 1024)
    """
    return 1 << max(0, n - 1).bit_length()
