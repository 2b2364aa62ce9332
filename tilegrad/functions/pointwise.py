"""Make the functions that apply one op to each element, from the op and the promotion of its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ir.graph import Value
from ..lazy.layout import elementwise
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
        return elementwise(op(promoted(input, name)), input)

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
        return elementwise(op(*promoted(input, other, name)), input, other)

    function.__annotations__ |= dict(zip(("input", "other"), takes.split(), strict=True))
    return named(function, name, doc)


def named(function: Callable[..., Tensor], name: str, doc: str) -> Callable[..., Tensor]:
    """Give a made function its name and docstring; `publish` its module."""
    function.__name__ = function.__qualname__ = name
    function.__doc__, function.__module__ = doc, ""
    return function


def of_special(name: str) -> Callable[..., Value]:
    """Return an op of `ops.special`, which is imported when it is first called."""

    def op(*given: Any) -> Value:
        from ..ops import special

        return getattr(special, name)(*given)  # type: ignore[no-any-return]

    op.__name__ = name
    return op
