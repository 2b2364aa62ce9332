"""Provide the settings of a group to the update of a parameter: numbers as tensors, switches as guards.

A number (learning rate, momentum, ...) becomes a tensor that is read anew at every call of a compiled step, so that
schedules cost no recompilation. What decides *what* is computed (switches, and whether a number is 0) is a guard.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import Parameter
from typing import Any, TypedDict

from ..errors import ArgumentError
from ..jitted.function import host_scalar
from ..lazy.handle import state
from ..tensor import Tensor

Group = dict[str, Any]


class Hints(TypedDict, total=False):
    """PyTorch's choices of an implementation: accepted without effect, as the compiler fuses the whole step."""

    foreach: bool | None
    fused: bool | None
    capturable: bool
    differentiable: bool


HINTS = tuple(Hints.__annotations__)


DEFAULTS = {
    "lr": 1e-3,
    "betas": (0.9, 0.999),
    "eps": 1e-8,
    "weight_decay": 0.0,
    "momentum": 0.0,
    **dict.fromkeys(("amsgrad", "centered", "decoupled_weight_decay", "maximize", "nesterov"), False),
}
"""Defaults of the settings that several optimizers have."""


def _annotation(name: str, default: Any) -> str:
    if isinstance(default, tuple):
        return f"tuple[{', '.join('float | None' if x is None else 'float' for x in default)}]"
    return "float | Tensor" if name == "lr" else "str | None" if default is None else type(default).__name__


def declared_parameters(names: str, defaults: Group) -> list[Parameter]:
    """Return the parameters of an optimizer's constructor: its settings, behind `*` by name and with PyTorch's hints.

    >>> [(p.name, p.annotation) for p in declared_parameters("lr momentum *", {"momentum": 0.9})]
    [('params', 'Params'), ('lr', 'float | Tensor'), ('momentum', 'float'), ('hints', 'Unpack[Hints]')]
    """
    kind: Any = Parameter.POSITIONAL_OR_KEYWORD
    found = [Parameter("params", kind, annotation="Params")]
    for name in names.split():
        if name == "*":
            kind = Parameter.KEYWORD_ONLY
            continue
        default = defaults[name] if name in defaults else DEFAULTS[name]
        found.append(Parameter(name, kind, default=default, annotation=_annotation(name, default)))
    if kind is Parameter.KEYWORD_ONLY:
        found.append(Parameter("hints", Parameter.VAR_KEYWORD, annotation="Unpack[Hints]"))
    return found


def check_hints(optimizer: str, given: Hints) -> None:
    """Raise for unknown arguments, and for unsupported ones."""
    unknown = sorted(set(given) - set(HINTS))
    if unknown:
        raise ArgumentError(f"{optimizer} has no argument {', '.join(unknown)}")
    if given.get("differentiable"):
        raise ArgumentError(
            f"{optimizer}: differentiable=True: steps change parameters in place, without gradients. To differentiate "
            "through an update write it as a function: p - lr * g, with gradients from tilegrad.grad"
        )


class Settings:
    """The settings of one group during one step."""

    def __init__(self, group: Group, names: Iterable[str]) -> None:
        self.group = group
        self.names = tuple(n for n in names if n != "params")
        self.others = tuple(n for n in self.names if n != "lr")
        self.tensors: dict[tuple[str, int], Tensor] = {}
        if state.trace is not None:
            state.trace.guards.append((self.form, self.form()))

    def form(self) -> tuple[Any, ...]:
        """Return the settings that decide which operations the update has."""
        group = self.group
        names = self.names if isinstance(group["lr"], Tensor) else self.others
        return tuple([_form(x) if (x := group.get(n)).__class__ is not bool else x for n in names])

    def uses(self, name: str) -> bool:
        """Test whether a switch is on, or a number differs from 0."""
        return bool(self.group.get(name))

    def __getitem__(self, name: str) -> Any:
        """Return a number as a tensor without axes (several as several); anything else as it is."""
        value = self.group[name]
        if isinstance(value, Tensor):
            return value.reshape(())
        if isinstance(value, (tuple, list)):
            return tuple(self._number(name, n) for n in range(len(value)))
        return self._number(name, -1) if _is_number(value) else value

    def part(self, name: str, n: int) -> Tensor:
        """Return one of several numbers, some of which may be None."""
        return self._number(name, n)

    def _number(self, name: str, part: int) -> Tensor:
        known = self.tensors.get((name, part))
        if known is None:
            group = self.group
            known = host_scalar((lambda: group[name]) if part < 0 else (lambda: group[name][part]))
            self.tensors[name, part] = known
        return known


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _form(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return len(value)
    if isinstance(value, Tensor):
        return id(value)
    return value != 0 if _is_number(value) else value
