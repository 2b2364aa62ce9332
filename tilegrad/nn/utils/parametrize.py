"""Compute parameters from others each time they are read, under PyTorch's names of their state.

>>> import tilegrad as tg
>>> class Symmetric(tg.nn.Module):
...     def forward(self, x):
...         return x.triu() + x.triu(1).t()
>>> layer = register_parametrization(tg.nn.Linear(2, 2, bias=False), "weight", Symmetric())
>>> bool((layer.weight == layer.weight.t()).all()), list(layer.state_dict())
(True, ['parametrizations.weight.original'])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...autograd.modes import no_grad
from ...errors import ArgumentError, ShapeError
from ...tensor import Tensor
from ..lists import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations"]

_kept: dict[tuple[int, str], Any] = {}
_depth = 0


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor once within the block."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            _kept.clear()


class ParametrizationList(ModuleList):
    """The chain of parametrizations of a parameter, and what it is computed from (`original`, or several)."""

    def __init__(self, modules: Sequence[Module], original: Tensor | Parameter) -> None:
        super().__init__(modules)
        self.names: tuple[str, ...] = ("original",)
        parts = self._inverse(original.detach())
        if not isinstance(parts, Tensor):
            self.names = tuple(f"original{n}" for n in range(len(parts)))
        for name, part in zip(self.names, [parts] if isinstance(parts, Tensor) else parts, strict=True):
            if isinstance(original, Parameter):
                self.register_parameter(name, Parameter(part, original.requires_grad))
            else:
                self.register_buffer(name, part)

    def _inverse(self, value: Tensor) -> Any:
        """Return the originals from which a value would be computed."""
        found: Any = value
        for module in reversed(list(self)):
            if hasattr(module, "right_inverse"):
                with no_grad():
                    found = module.right_inverse(found)
        return found

    def assign(self, value: Tensor) -> None:
        """Set the parameter to a value, as closely as the parametrizations can represent it."""
        parts = self._inverse(value.detach())
        with no_grad():
            for name, part in zip(self.names, [parts] if isinstance(parts, Tensor) else parts, strict=True):
                getattr(self, name).copy_(part)

    def forward(self) -> Tensor:
        value: Any = None
        for n, module in enumerate(self):
            value = module(*(getattr(self, name) for name in self.names)) if n == 0 else module(value)
        return value  # type: ignore[no-any-return]


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Replace a parameter or buffer of a module by `parametrization(original)`.

    A `right_inverse` of the parametrization says from what the present value is computed; without it, it is the
    original.
    """
    if is_parametrized(module, tensor_name):
        row = module.parametrizations[tensor_name]
        _check(module, tensor_name, parametrization(row()), row(), unsafe)
        row.append(parametrization)
        return module
    original = module._parameters.get(tensor_name, module._buffers.get(tensor_name))
    if original is None:
        names = ", ".join([*module._parameters, *module._buffers]) or "none"
        raise ArgumentError(
            f"register_parametrization: {type(module).__name__} has no parameter {tensor_name!r}; there are {names}"
        )
    row = ParametrizationList([parametrization], original)
    _check(module, tensor_name, row(), original, unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        kind = type(module)
        module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), {"_unparametrized": kind})
        module.add_module("parametrizations", ModuleDict())
    module.parametrizations[tensor_name] = row
    setattr(type(module), tensor_name, _computed(tensor_name))
    return module


def _check(module: Module, name: str, made: Tensor, original: Tensor, unsafe: bool) -> None:
    if not unsafe and tuple(made.shape) != tuple(original.shape):
        raise ShapeError(
            f"register_parametrization: {type(module).__name__}.{name} has the shape {tuple(original.shape)}, but is "
            f"made {tuple(made.shape)}; give unsafe=True if the module can work with that"
        )


def _computed(name: str) -> property:
    def read(module: Module) -> Tensor:
        if not _depth:
            return module.parametrizations[name]()  # type: ignore[no-any-return]
        key = id(module), name
        if key not in _kept:
            _kept[key] = module.parametrizations[name]()
        return _kept[key]  # type: ignore[no-any-return]

    def write(module: Module, value: Tensor) -> None:
        module.parametrizations[name].assign(value)

    return property(read, write)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Test whether a module, or one tensor of it, is parametrized."""
    rows = module._modules.get("parametrizations")
    if not isinstance(rows, ModuleDict):
        return False
    return len(rows) > 0 if tensor_name is None else tensor_name in rows


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a tensor an ordinary parameter again: with the computed value, or (False) with the original."""
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"remove_parametrizations: {type(module).__name__}.{tensor_name} is not parametrized")
    row = module.parametrizations[tensor_name]
    if not leave_parametrized and row.names != ("original",):
        raise ArgumentError(
            f"remove_parametrizations: {tensor_name} is computed from {len(row.names)} tensors: none of them can take "
            "its place; use leave_parametrized=True"
        )
    first = getattr(row, row.names[0])
    value = (row() if leave_parametrized else first).detach().clone()
    kind: Any = type(module)
    delattr(kind, tensor_name)
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = kind._unparametrized
    if isinstance(first, Parameter):
        module.register_parameter(tensor_name, Parameter(value, first.requires_grad))
    else:
        module.register_buffer(tensor_name, value)
    return module
