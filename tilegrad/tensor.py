"""`Tensor`: its methods and operators, made from the functions of tensors by the table in `functions/registry.py`.

Type checkers read `tensor.pyi`, which `python tools/stubs.py` writes.
"""

from __future__ import annotations

from typing import Any

from . import linalg, random
from .functions import (
    arithmetic,
    arranging,
    comparing,
    contractions,
    conversion,
    elementary,
    joining,
    reductions,
    selecting,
    special,
    summaries,
    views,
)
from .functions.creation import empty
from .functions.creation import tensor as made
from .functions.inplace import copy_, fill_, in_place, zero_
from .functions.promotion import get_default_dtype
from .functions.registry import names_with
from .lazy.handle import set_class, state
from .properties import Properties

MODULES = (arithmetic, arranging, comparing, contractions, elementary, joining, random, reductions, selecting, special)
MODULES += (summaries, views)

BINARY_OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}  # fmt: skip
COMMUTATIVE = ("add", "mul", "and", "or", "xor")


def _methods() -> dict[str, Any]:
    """Return the methods that the table of functions asks for, with their in-place variants."""
    found = {name: vars(module)[name] for module in MODULES for name in module.__all__}
    found |= {name: vars(linalg)[name] for name in ("addbmm", "matrix_power", "vdot")}
    found |= {"adjoint": views.matrix_transposed, "cross": linalg.first_cross, "sum_to_size": reductions.sum_to_size}
    methods = {name: found[name] for name in names_with("method")}
    for name in names_with("in_place"):
        changing = views.reshaping if name in views.__all__ else in_place
        methods[f"{name}_"] = changing(found[name])
    methods |= {name: fn for name, fn in found.items() if name[-1] == "_"}  # uniform_, fill_diagonal_, ...
    methods |= {fn.__name__: fn for fn in (copy_, fill_, zero_)}
    # those that would hide a class of Python's within their module are called as_float, ... there
    methods |= {name.removeprefix("as_"): vars(conversion)[name] for name in conversion.__all__}
    return methods


def _operators(methods: dict[str, Any]) -> dict[str, Any]:
    """Return the binary operators, the reflected ones, and those that assign."""
    operators = {}
    for name, function in BINARY_OPERATORS.items():
        forward = operators[f"__{name}__"] = methods[function]
        operators[f"__r{name}__"] = forward if name in COMMUTATIVE else arithmetic.reflected(forward)
        operators[f"__i{name}__"] = methods[f"{function}_"]
    return operators


class Tensor(Properties):
    """An array of elements of one dtype, with any number of dimensions.

    `Tensor(2, 3)` has these sizes and arbitrary elements, `Tensor([1, 2])` has these elements, as float32;
    `tilegrad.tensor`, `tilegrad.zeros` and other functions take dtype, device and `requires_grad` too.

    >>> Tensor([1, 2]) + 1
    tensor([2., 3.])
    """

    locals().update(_methods())
    locals().update(_operators(locals()))

    def __init__(self, *data: Any) -> None:
        if len(data) == 1 and not isinstance(data[0], int):
            given = data[0] if isinstance(data[0], Tensor) else made(data[0], dtype=get_default_dtype())
        else:
            given = empty(*data) if data else empty(0)
        self._value = given.value
        if state.trace is not None:
            state.trace.made(self)

    def polygamma(self, n: Any) -> Tensor:
        """Compute the n-th derivative of `digamma`."""
        return special.polygamma(n, self)

    def polygamma_(self, n: Any) -> Tensor:
        """Compute the n-th derivative of `digamma`, in place."""
        return self.copy_(special.polygamma(n, self))

    where = arithmetic.where_method
    T = property(views.reversed_axes)
    mT = property(views.matrix_transposed)
    H = mH = mT

    __rsub__ = arithmetic.rsub
    __matmul__, __rmatmul__ = contractions.matmul, contractions.matmul_reversed
    __neg__, __pos__, __abs__, __invert__ = arithmetic.neg, arithmetic.positive, arithmetic.abs, arithmetic.bitwise_not
    __eq__, __ne__ = comparing.compared(comparing.eq), comparing.compared(comparing.ne)  # type: ignore[assignment]
    __lt__, __le__, __gt__, __ge__ = comparing.lt, comparing.le, comparing.gt, comparing.ge
    __hash__ = object.__hash__


set_class(Tensor)
