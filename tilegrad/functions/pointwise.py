"""Make the functions that apply one op to each element, from the op and the promotion of its operands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..deferred import part
from ..ir.graph import Value
from ..lazy.handle import Handle, state
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


def combined(fn: Callable[[Any, Any], Any], x: Any, y: Any) -> Tensor | None:
    """Apply an operator of Python's to few elements in memory, two tensors or one and a number; None: it is to be
    recorded.
    """
    tensor = x if isinstance(x, Handle) else y
    if not isinstance(tensor, Handle) or state.trace is not None:
        return None
    shape = tensor._value.type.shape
    if not shape and (not isinstance(y, Handle) or not y._value.type.shape):
        return at_once().combined(fn, x, y)  # type: ignore[no-any-return]
    return few_elements("combined", fn, x, y)


@cache
def at_once() -> ModuleType:
    """Import the access to single elements when it is first needed."""
    return import_module("...lazy.at_once", __name__)


def few_elements(name: str, *given: Any) -> Tensor | None:
    """Call a function of that module, which is imported when it is first needed; None: the work is to be recorded."""
    function = part("lazy.few_elements", name)
    return None if function is None else function(*given)


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
