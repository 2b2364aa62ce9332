"""Modules that hold other modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, overload

from ..errors import ArgumentError, check_callable
from .module import Module
from .parameter import Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterList", "Sequential"]


class _Row(Module):
    """Modules with the names "0", "1", ...: what `Sequential` and `ModuleList` share."""

    def _index(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} in a {self._get_name()} of {len(self)} modules")
        return list(self._modules)[index]

    def _renumber(self, modules: Iterable[Any]) -> None:
        self._modules.clear()
        self._modules.update((str(n), module) for n, module in enumerate(modules))

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, int):
            return self._modules[self._index(index)]
        part = type(self)()
        part._renumber(list(self._modules.values())[index])
        return part

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(self._index(index), module)

    def __delitem__(self, index: int | slice) -> None:
        kept = list(self._modules.values())
        del kept[index]
        self._renumber(kept)

    def append(self, module: Module) -> Self:
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        for module in modules:
            self.append(module)
        return self


class Sequential(_Row):
    """Modules that run one after the other, each on what the one before gave."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        match modules:
            case [Mapping() as named]:
                for name, module in named.items():
                    self.add_module(name, module)
            case _:
                self.extend(modules)
        for name, module in self._modules.items():
            check_callable(module, f"Sequential, at {name},")

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input


class ModuleList(_Row):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])


class ModuleDict(Module):
    """Modules by name."""

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

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        for key, module in modules.items() if isinstance(modules, Mapping) else modules:
            self[key] = module


class ParameterList(Module):
    """A list of parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        for value in values or ():
            self.append(value)

    def append(self, value: Any) -> Self:
        parameter = value if isinstance(value, Parameter) else Parameter(value)
        self.register_parameter(str(len(self)), parameter)
        return self

    def __getitem__(self, index: int) -> Parameter:
        found = list(self._parameters.values())[index]
        if found is None:
            raise ArgumentError(f"parameter {index} of the list is None")
        return found

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())
