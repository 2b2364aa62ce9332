"""Combine tensors of a few elements at once, without recording: as Python numbers, those in memory (`at_once.py`).

Recording and computing an operation costs more than Python needs for 16 elements. The result is held as numbers, and
gets memory and a value when either is asked for (`handle.DeferredValue`): a chain of operations makes none. Sums,
differences, products and quotients of float32 elements are correctly rounded, as those of recorded work are: Python
computes with more than twice as many digits. Sums over all elements are rounded once. Who observes programs (a profile,
`timing`, `first_nan`, the compiled tier) has everything recorded but arithmetic of single numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from math import fsum
from operator import add, eq, ge, gt, le, lt, mul, ne, sub, truediv
from typing import TYPE_CHECKING, Any

from ..config import settings
from ..ir.dtype import bool_, int64
from ..ir.graph import Value
from ..ops.base import Elementwise
from ..ops.broadcasting import Fill, Reduction, Reshape
from ..runtime import events
from .at_once import IN_PLACE, operand_number, present_numbers, region_of, write
from .elements import MAX_COMBINED_ELEMENTS, MAX_FEW_ELEMENTS, FewElements, few_elements
from .handle import Handle, result_class, state, watching
from .python_functions import COMPUTED, python_function, python_reduction

if TYPE_CHECKING:
    from ..tensor import Tensor

MAX_COMPUTED_ELEMENTS = 36
"""Elements up to which Python computes other recorded ops, those of a small matrix: they are seldom in long chains."""
MAX_NESTED_OPS = 4
"""Recorded ops below one another up to which elements are computed: functions are made of as many."""

_new: Any = object.__new__


def is_observed() -> bool:
    """Whether programs are to run for everything."""
    return bool(
        events.listeners or state.inspect is not None or watching() is not None or settings().tier == "compiled"
    )


PAIRWISE: dict[Any, Callable[..., list[Any]]] = {
    add: lambda a, b: [x + y for x, y in zip(a, b)],  # noqa: B905 - numbers are repeated
    sub: lambda a, b: [x - y for x, y in zip(a, b)],  # noqa: B905 - numbers are repeated
    mul: lambda a, b: [x * y for x, y in zip(a, b)],  # noqa: B905 - numbers are repeated
    truediv: lambda a, b: [x / y for x, y in zip(a, b)],  # noqa: B905 - numbers are repeated
}
COMPARISONS: dict[Any, Callable[..., list[Any]]] = {
    eq: lambda a, b: [x == y for x, y in zip(a, b)],  # noqa: B905 - numbers are repeated
    ne: lambda a, b: [x != y for x, y in zip(a, b)],  # noqa: B905 - numbers are repeated
    lt: lambda a, b: [x < y for x, y in zip(a, b)],  # noqa: B905 - numbers are repeated
    le: lambda a, b: [x <= y for x, y in zip(a, b)],  # noqa: B905 - numbers are repeated
    gt: lambda a, b: [x > y for x, y in zip(a, b)],  # noqa: B905 - numbers are repeated
    ge: lambda a, b: [x >= y for x, y in zip(a, b)],  # noqa: B905 - numbers are repeated
}


def combined(fn: Callable[[Any, Any], Any], x: Any, y: Any) -> Tensor | None:
    """Apply an operator of Python's to the elements of two tensors, or of a tensor and a number; None: it is to be
    recorded.
    """
    if state.trace is not None:
        return None
    kind = kind_of(x) if isinstance(x, Handle) else None
    if (kind is None or not kind[1]) and isinstance(y, Handle):
        kind = kind_of(y)
    if kind is None or (is_observed() if kind[1] else state.inspect is not None):
        return None
    a = numbers_of(x, kind)
    b = None if a is None else numbers_of(y, kind)
    return None if a is None or b is None else _combined(fn, kind, a, b)


def _combined(fn: Any, kind: FewElements, a: Iterable[Any], b: Iterable[Any]) -> Tensor | None:
    """Apply an operator to elements of one type."""
    access, shape, _, _, pack, unpack, _ = kind
    dtype, made = access.dtype, _new(result_class())
    if dtype is bool_ or (fn is truediv and not dtype.is_float):
        return None
    try:
        if fn in COMPARISONS:
            truths = made._kind = few_elements(bool_, shape, access.name)
            made._numbers = tuple(COMPARISONS[fn](a, b))
            return made if truths is not None else None
        made._numbers, made._kind = unpack(pack(*PAIRWISE[fn](a, b))), kind
    except (ArithmeticError, TypeError, struct.error):  # a division by zero; integers that wrap around
        return None
    return made  # type: ignore[no-any-return]


def combine_into(op: str, x: Handle, others: Sequence[Any]) -> bool:
    """Store what `combined` computes in its first operand; False if that is to be recorded."""
    fn = IN_PLACE.get(op)
    made = None if fn is None or len(others) != 1 else combined(fn, x, others[0])
    if made is None or made._kind is not kind_of(x):
        return False
    numbers, region = made._numbers, region_of(x)
    if region is None or not write(x, region, region.part, made, op):
        return False
    if x._numbers is not None:  # a view that has no value
        x._numbers, x._seen = numbers, region.seen(region.base.storage.changes)
    return True


def changed(fn: Callable[[Any], Any], x: Handle) -> Tensor | None:
    """Apply an operator of Python's to the elements of a tensor; None: it is to be recorded."""
    kind = None if state.trace is not None else kind_of(x)
    if kind is None or not kind.shape or kind.access.dtype is bool_ or is_observed():
        return None
    numbers = numbers_of(x, kind)
    if numbers is None:
        return None
    try:
        return _tensor(kind, kind.unpack(kind.pack(*map(fn, numbers))))
    except struct.error:  # integers that wrap around
        return None


def total(x: Any, is_mean: bool = False) -> Tensor | None:
    """Return the sum or the mean of the elements; None: it is to be recorded."""
    if not isinstance(x, Handle) or state.trace is not None:
        return None
    kind = kind_of(x, MAX_FEW_ELEMENTS)
    if kind is None or not kind.shape:
        return None
    access = kind.access
    is_float = access.dtype.is_float
    single = few_elements(access.dtype if is_float else int64, (), access.name)
    if single is None or (is_mean and not is_float) or is_observed():
        return None
    numbers = numbers_of(x, kind)
    if numbers is None:
        return None
    add_up = fsum if is_float else sum
    try:
        found = add_up(numbers) / kind.elements if is_mean else add_up(numbers)
        return _tensor(single, single.unpack(single.pack(found)))
    except (ArithmeticError, ValueError, struct.error):  # infinities of both signs; integers that wrap around
        return None


def _tensor(kind: FewElements, numbers: tuple[Any, ...]) -> Tensor:
    """Return a tensor that has these numbers, of its dtype."""
    made = _new(result_class())
    made._numbers, made._kind = numbers, kind
    return made  # type: ignore[no-any-return]


def computed(value: Value, by: Any = None, operands: Sequence[Any] = ()) -> Tensor | None:
    """Compute an elementwise op or a reduction that has just been recorded; None: it stays recorded.

    `by` is the function that recorded it, and has nothing to record the next time for operands of this type.
    """
    if value.tracked or getattr(value, "fn", None) not in COMPUTED:
        return None
    if state.trace is not None or is_observed():
        return None
    most = MAX_COMPUTED_ELEMENTS if _is_elementwise(value.__class__) else MAX_FEW_ELEMENTS
    found = _elements_of(value, MAX_NESTED_OPS, most)
    if found is None:
        return None
    if by is not None and isinstance(value, Elementwise) and len(operands) == len(value.inputs):
        is_whole = all(isinstance(x, Handle) and x._value is v for x, v in zip(operands, value.inputs, strict=True))
        kinds = [kind_of(x) for x in operands] if is_whole else [None]
        if kinds[0] is not None and all(kind is kinds[0] for kind in kinds):
            kinds[0].functions[by] = found[0], python_function(value)
    return _tensor(*found)


def computed_again(by: Any, x: Any, *others: Any) -> Tensor | None:
    """Compute what a function has computed before, for operands of one type; None: it is to be recorded."""
    kind = kind_of(x) if isinstance(x, Handle) else None
    known = None if kind is None else kind.functions.get(by)
    if kind is None or known is None or state.trace is not None or is_observed():
        return None
    given = [numbers_of(y, kind) for y in (x, *others)]
    if None in given:
        return None
    made, function = known
    try:
        return _tensor(made, made.unpack(made.pack(*function(*given))))
    except (ArithmeticError, ValueError, TypeError, struct.error):  # what Python refuses; integers that wrap around
        return None


def _elements_of(value: Value, nested: int, most: int) -> tuple[FewElements, tuple[Any, ...]] | None:
    """Return the elements of a value that is in memory, or computed from such values by a few ops."""
    type, memory = value.type, value.buffer
    kind = few_elements(type.dtype, type.shape, type.device)
    if kind is None or kind.elements > most or value.provenance.severed or value.tracked:
        return None  # conditions on what is tracked are recorded: a gradient that depends on them has one, of zeros
    if memory is not None:
        start = memory.address // kind.access.size
        return kind, tuple(kind.access.space[start : start + kind.elements].tolist())
    if value.__class__ is Fill:
        return kind, (kind.access.rounded(value.value),) * kind.elements
    function = _function_of(value) if nested else None
    if function is None:
        return None
    operands: list[Any] = []
    for x in value.inputs:
        found = _elements_of(x, nested - 1, most)
        if found is None:
            return None
        numbers = found[1]
        is_repeated = x.type.shape != type.shape and _is_elementwise(value.__class__)
        if is_repeated and len(numbers) > 1:
            return None
        operands.append(repeat(numbers[0]) if is_repeated else numbers)
    try:
        return kind, kind.unpack(kind.pack(*function(*operands)))
    except (ArithmeticError, ValueError, TypeError, struct.error):  # what Python refuses; integers that wrap around
        return None


def _function_of(value: Any) -> Callable[..., Any] | None:
    """Return the function that computes the elements of an op from those of its inputs; None if Python has none."""
    if _is_elementwise(value.__class__):
        return python_function(value)
    if isinstance(value, Reduction):
        given = value.x.type
        kind = few_elements(given.dtype, given.shape, given.device)
        return None if kind is None or kind.elements > MAX_FEW_ELEMENTS else python_reduction(value)
    return list if isinstance(value, Reshape) else None


@cache
def _is_elementwise(op: type[Value]) -> bool:
    """Whether a class is that of an elementwise op: asking an abstract class takes longer."""
    return issubclass(op, Elementwise)


# --- operands ----------------------------------------------------------------------------------


def kind_of(x: Handle, most: int = MAX_COMBINED_ELEMENTS) -> FewElements | None:
    """Return what is known of the type of a tensor; None if it has many elements, or others than Python's."""
    if x._numbers is not None:
        kind: FewElements | None = x._kind
    else:
        type = x._value.type
        kind = few_elements(type.dtype, type.shape, type.device)
    return kind if kind is not None and kind[2] <= most else None


def numbers_of(x: Any, kind: FewElements) -> Iterable[Any] | None:
    """Return the elements of an operand in row-major order; a number is repeated. None if they are not in memory, would
    be promoted or broadcast, or lie in another order.
    """
    if not isinstance(x, Handle):
        number = operand_number(x, kind[0])
        return None if number is None else repeat(number) if kind[1] else (number,)
    numbers = present_numbers(x)
    if numbers is not None:
        own = x._kind
        if own is kind or (own.shape == kind.shape and own.access is kind.access):
            return numbers
        return repeat(numbers[0]) if not own.shape and own.access is kind.access else None
    type, access = x._value.type, kind[0]
    if type.dtype is not access.dtype or type.device != access.name:
        return None
    if not type.shape:
        number = operand_number(x, access)
        return None if number is None else (number,) if not kind.shape else repeat(number)
    if type.shape != kind.shape:
        return None
    return _own_elements(x, kind) if x._base is None else _stored_elements(x, kind)


def _own_elements(x: Handle, kind: FewElements) -> Iterable[Any] | None:
    """Return the elements of a tensor with axes that shares no storage."""
    value, access = x._value, kind.access
    memory = value.buffer
    if value.tracked or x._strides is not None or x.stands_for is not None:
        return None
    if memory is None:
        return repeat(access.rounded(value.value), kind.elements) if value.__class__ is Fill else None
    start = memory.address // access.size
    return access.space[start : start + kind.elements].tolist()


def _stored_elements(x: Handle, kind: FewElements) -> Iterable[Any] | None:
    """Return the elements of a tensor with axes that has a storage."""
    region = region_of(x)
    if region is None or region.base.storage.value.provenance.severed:
        return None  # if a gradient is asked for, the error names the kernel that stored the elements
    memory = region.memory()
    return None if memory is None else kind.read(memory, region.part)
