"""Define lists and dictionaries of modules and of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from .container import ModuleSequence
from .module import Module
from .parameter import Parameter


class ModuleList(ModuleSequence):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        """Return the printed form, in which equal neighbours are shown once with their number."""
        runs: list[tuple[int, int, str]] = []
        for n, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], n, text)
            else:
                runs.append((n, n, text))
        if not runs:
            return f"{self._get_name()}()"
        lines = [
            f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}"
            for first, last, text in runs
        ]
        return "\n  ".join([f"{self._get_name()}(", *(line.replace("\n", "\n  ") for line in lines)]) + "\n)"


class ModuleDict(Module):
    """A dictionary of modules."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def __getitem__(self, key: str) -> Any:
        if key not in self._modules:
            raise KeyError(f"no module {key!r}; there are {', '.join(self._modules) or 'none'}")
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        return self._modules.items()

    def pop(self, key: str) -> Any:
        module = self[key]
        del self[key]
        return module

    def clear(self) -> None:
        self._modules.clear()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        for key, module in modules.items() if isinstance(modules, Mapping) else modules:
            self[key] = module


def _parameter(value: Any) -> Parameter:
    return value if isinstance(value, Parameter) else Parameter(value)


class _Parameters(Module):
    """The base of containers of parameters."""

    def extra_repr(self) -> str:
        return "\n".join(f"  ({name}): {_shown(x)}" for name, x in self._parameters.items())

    def __len__(self) -> int:
        return len(self._parameters)


def _shown(parameter: Parameter | None) -> str:
    if parameter is None:
        return "None"
    sizes = "x".join(map(str, parameter.shape))
    return f"Parameter containing: [{parameter.dtype!r} of size {sizes}]"


class ParameterList(_Parameters):
    """A list of parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(values or ())

    def append(self, value: Any) -> Self:
        self.register_parameter(str(len(self)), _parameter(value))
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        for value in list(values):
            self.append(value)
        return self

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return ParameterList(list(self)[index])
        return self._parameters[self._name(index)]

    def __setitem__(self, index: int, value: Any) -> None:
        self.register_parameter(self._name(index), _parameter(value))

    def _name(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} in a ParameterList of {len(self)} parameters")
        return str(index % len(self))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())


class ParameterDict(_Parameters):
    """A dictionary of parameters."""

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        self.update(parameters or {})

    def __getitem__(self, key: str) -> Any:
        if key not in self._parameters:
            raise KeyError(f"no parameter {key!r}; there are {', '.join(self._parameters) or 'none'}")
        return self._parameters[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.register_parameter(key, _parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._parameters[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, key: str) -> bool:
        return key in self._parameters

    def keys(self) -> Iterable[str]:
        return self._parameters.keys()

    def values(self) -> Iterable[Any]:
        return self._parameters.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        return self._parameters.items()

    def pop(self, key: str) -> Any:
        parameter = self[key]
        del self[key]
        return parameter

    def update(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        for key, value in parameters.items() if isinstance(parameters, Mapping) else parameters:
            self[key] = value
