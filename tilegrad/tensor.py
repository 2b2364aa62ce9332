"""`Tensor`: its methods and operators, made from the functions of tensors by the table in `functions/registry.py`.

Type checkers read `tensor.pyi`, which `python tools/stubs.py` writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .deferred import part
from .functions import arithmetic, comparing, contractions, conversion, views
from .functions.creation import empty
from .functions.creation import tensor as made
from .functions.inplace import copy_, fill_, in_place, zero_
from .functions.promotion import get_default_dtype
from .functions.registry import defined, modules, names_with
from .lazy.handle import recorders, set_class, state
from .properties import Properties

BINARY_OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}  # fmt: skip
COMMUTATIVE = ("add", "mul", "and", "or", "xor")


class Method:
    """A method that takes its place in the class when it is first looked up: `make` imports the function."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self.make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, instance: object, owner: type) -> Any:
        found = self.make(self.name)
        setattr(self.owner, self.name, found)
        return found.__get__(instance, owner)


def _changing(name: str) -> Any:
    """Return the in-place variant of a function: `exp_`."""
    function = name.removesuffix("_")
    made = views.reshaping if modules()[function] == "functions.views" else in_place
    return made(defined(function))


def _indexing(name: str) -> Any:
    """Return `__getitem__` or `__setitem__`."""
    from .functions import indexing

    return vars(indexing)[name.strip("_")]


def _methods() -> dict[str, Any]:
    """Return the methods that the table of functions asks for, with their in-place variants."""
    methods: dict[str, Any] = {name: Method(defined) for name in names_with("method")}
    methods |= {f"{name}_": Method(_changing) for name in names_with("in_place")}
    methods |= {fn.__name__: fn for fn in (copy_, fill_, zero_)}
    # those that would hide a class of Python's within their module are called as_float, ... there
    methods |= {name.removeprefix("as_"): vars(conversion)[name] for name in conversion.__all__}
    return methods


def _operators() -> dict[str, Any]:
    """Return the binary operators, the reflected ones, and those that assign."""
    operators: dict[str, Any] = {}
    for name, function in BINARY_OPERATORS.items():
        checked = defined(function)
        forward = operators[f"__{name}__"] = getattr(checked, "__wrapped__", checked)  # it checks operands itself
        operators[f"__r{name}__"] = forward if name in COMMUTATIVE else arithmetic.reflected(forward)
        operators[f"__i{name}__"] = _changing(f"{function}_")
    return operators


class Tensor(Properties):
    """An array of elements of one dtype, with any number of dimensions.

    `Tensor(2, 3)` has these sizes and arbitrary elements, `Tensor([1, 2])` has these elements, as float32;
    `tilegrad.tensor`, `tilegrad.zeros` and other functions take dtype, device and `requires_grad` too.

    >>> Tensor([1, 2]) + 1
    tensor([2., 3.])
    """

    locals().update(_methods())
    locals().update(_operators())

    def __init__(self, *data: Any) -> None:
        if len(data) == 1 and not isinstance(data[0], int):
            given = data[0] if isinstance(data[0], Tensor) else made(data[0], dtype=get_default_dtype())
        else:
            given = empty(*data) if data else empty(0)
        self._value = given.value if state.trace is not None else given.own_value()
        if state.trace is not None:
            state.trace.made(self)

    def polygamma(self, n: Any) -> Tensor:
        """Compute the n-th derivative of `digamma`."""
        return defined("polygamma")(n, self)

    def polygamma_(self, n: Any) -> Tensor:
        """Compute the n-th derivative of `digamma`, in place."""
        return self.copy_(defined("polygamma")(n, self))

    __getitem__, __setitem__ = Method(_indexing), Method(_indexing)
    where = arithmetic.where_method
    T = property(views.reversed_axes)
    mT = property(views.matrix_transposed)
    H = mH = mT

    __matmul__, __rmatmul__ = contractions.matmul, contractions.matmul_reversed
    __neg__, __pos__, __abs__, __invert__ = arithmetic.neg, arithmetic.positive, arithmetic.abs, arithmetic.bitwise_not
    __eq__, __ne__ = comparing.compared(comparing.eq), comparing.compared(comparing.ne)  # type: ignore[assignment]
    __lt__, __le__, __gt__, __ge__ = comparing.lt, comparing.le, comparing.gt, comparing.ge
    __hash__ = object.__hash__


set_class(Tensor)


def _load_bounds(*_: object) -> None:
    recorders.remove(_load_bounds)
    part("lazy.bounded_recording", "note_recorded")  # takes its place, in a distribution that has it


recorders.append(_load_bounds)
