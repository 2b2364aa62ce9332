"""Make the functions that apply one op to each element, from the op and the promotion of its operands."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..deferred import part
from ..ir.graph import Value
from ..lazy.handle import wrap
from ..lazy.layout import propagate_strides
from .promotion import Operand

if TYPE_CHECKING:
    from ..tensor import Tensor


def unary(
    op: Callable[..., Value], promoted: Callable[[Any, str], Value], doc: str, name: str = ""
) -> Callable[..., Tensor]:
    """Return a function of one tensor. Its name is that of the op, unless `name` is another.

    >>> import tilegrad as tg
    >>> from tilegrad.functions.promotion import floating
    >>> from tilegrad.ops import exponential
    >>> unary(exponential.exp2, floating, "Compute 2 ** input.")(tg.tensor([1, 2]))
    tensor([2., 4.])
    """
    name = name or op.__name__

    def function(input: Tensor) -> Tensor:
        made = few.computed_again(function, input) if function in computed_before else None
        return elementwise(op(promoted(input, name)), input, by=function) if made is None else made

    return named(function, name, doc)


def binary(
    op: Callable[..., Value],
    promoted: Callable[[Any, Any, str], tuple[Value, Value]],
    doc: str,
    name: str = "",
    takes: str = "Operand Operand",
) -> Callable[..., Tensor]:
    """Return a function of two operands; `takes` has their annotations."""
    name = name or op.__name__

    def function(input: Operand, other: Operand) -> Tensor:
        made = few.computed_again(function, input, other) if function in computed_before else None
        return elementwise(op(*promoted(input, other, name)), input, other, by=function) if made is None else made

    function.__annotations__ |= dict(zip(("input", "other"), takes.split(), strict=True))
    return named(function, name, doc)


class _AtOnce:
    """The functions for few elements, imported when first called; each returns None if the work is to be recorded."""

    def __getattr__(self, name: str) -> Callable[..., Tensor | None]:
        found = part("lazy.few_elements", name) or (lambda *given: None)
        setattr(self, name, found)
        return found


few = _AtOnce()
computed_before: set[Any] = set()
"""Functions of tensors whose results have been computed at once."""


def at_once_or_recorded(value: Value, *operands: Any, by: Any = None) -> Tensor:
    """Make a tensor of a result: of few elements it is computed at once."""
    made = few.computed(value, by, operands)
    if made is None:
        return wrap(value)
    computed_before.add(by)
    return made


def elementwise(value: Value, *operands: Any, by: Any = None) -> Tensor:
    """Make a tensor of an elementwise result, with strides that follow from those of the operands; `by` is the function
    that made it, if the operands decide what it computes.
    """
    is_known = (given := value.inputs) and (given[0].buffer is not None or given[-1].buffer is not None)
    made = at_once_or_recorded(value, *operands, by=by) if is_known else wrap(value)
    return propagate_strides(made, *operands)


def named(function: Callable[..., Tensor], name: str, doc: str) -> Callable[..., Tensor]:
    """Give a made function its name and docstring; `publish` its module."""
    function.__name__ = function.__qualname__ = name
    function.__doc__, function.__module__ = doc, ""
    return function


class Ops:
    """The functions of a module of `ops`, which is imported when one of them is first called.

    >>> erf = Ops("trigonometric").erf
    >>> erf.__name__
    'erf'
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] | None = None

        def op(*given: Any, **options: Any) -> Any:
            nonlocal found
            if found is None:
                found = getattr(import_module(f"...ops.{self._module}", __name__), name)
            return found(*given, **options)

        op.__name__ = name
        return op
