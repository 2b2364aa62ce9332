"""Define `Sequential`, the chain of modules, and the base of sequences of modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, overload

from ..errors import ArgumentError, check_callable
from .module import Module


class ModuleSequence(Module):
    """A sequence of modules named "0", "1", ...: the base of `Sequential` and `ModuleList`."""

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
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, key: int | slice) -> Any:
        found = self[key]
        del self[key]
        return found

    def __iadd__(self, other: Iterable[Module]) -> Self:
        return self.extend(other)


class Sequential(ModuleSequence):
    """A chain of modules: each runs on the output of the one before."""

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

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *other)

    def __mul__(self, other: int) -> Sequential:
        if not isinstance(other, int) or other <= 0:
            raise ArgumentError(f"a Sequential times {other!r}: give how many times, a whole number from 1")
        return Sequential(*list(self) * other)

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Self:
        return self.extend(list(self * other)[len(self) :])
