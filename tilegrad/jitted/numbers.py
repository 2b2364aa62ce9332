"""Trace Python numbers that vary from call to call: placeholders that compute like numbers.

A placeholder is not a number, and a function may observe that: it may ask for the type, use it as a key, or compute
with more digits than a tensor has. So the graph recorded with placeholders is compared with the one recorded with the
numbers themselves (`graph_key`): if they differ, control flow depends on the number, and each value of it
gets a program of its own.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any, Never, TypeAlias

from ..ir.dtype import DType, float64, int64
from ..ir.graph import TensorType, Value
from ..lazy.handle import state, wrap
from ..ops.broadcasting import Fill, number_key
from ..ops.cast import cast
from ..tensor import Tensor

MAX_INTEGER = 2**31
"""Magnitude from which integers are not inputs: Python's are unbounded, and a product of two of these would overflow
int64.
"""


def may_vary(x: Any) -> bool:
    """Whether a number can be an input of a program."""
    return x.__class__ is float or (x.__class__ is int and -MAX_INTEGER < x < MAX_INTEGER)


def same_number(x: Any, y: Any) -> bool:
    """Whether numbers of one class are identical: 0.0 differs from -0.0, and NaN equals itself."""
    return x == y if x.__class__ is not float else number_key(x) == number_key(y)


def number_type(x: float) -> TensorType:
    """Return the type of a number's placeholder, which has all digits of Python's."""
    return TensorType(float64 if isinstance(x, float) else int64, ())


class NumberPlaceholder(Tensor):
    """A placeholder of a number: with numbers it computes as Python does, with tensors it counts as a number."""

    _number: float
    """The plain number, for other threads that meet the placeholder during a trace."""
    _reckoned: Reckoned
    """The step that computes it from input numbers; None if unknown."""

    @property
    def value(self) -> Value:
        """The placeholder; for threads that do not trace, the number."""
        if state.trace is not None or "_number" not in self.__dict__:
            return super().value
        known = Fill(self._number, self._value.type)
        known.note().is_weak = True
        return known

    def item(self) -> Any:
        """Return the number, for threads that do not trace."""
        return self._number if state.trace is None and "_number" in self.__dict__ else super().item()

    def __hash__(self) -> Never:
        raise TypeError("a number that varies is no key while a function is traced")


def number_placeholder(
    value: Value, number: float | None = None, reckoned: Reckoned | None = None
) -> NumberPlaceholder:
    """Make a number on a placeholder value."""
    made: Any = wrap(value)
    made.__class__ = NumberPlaceholder
    made._value.note().is_weak = True
    if number is not None:
        made._number = number
    if reckoned is not None:
        made._reckoned = reckoned
    return made  # type: ignore[no-any-return]


Reckoned: TypeAlias = Callable[[list[Any]], Any]
"""Computes a number from those before it in the same call."""


class ArithmeticReplay:
    """Replays Python arithmetic on varying numbers, so that a call raises what Python raises.

    A program divides by 0 silently. So divisions and powers of numbers are first computed in Python at each call.
    """

    def __init__(self) -> None:
        self.steps: list[Reckoned] = []
        self.may_fail = False

    def step(self, compute: Callable[..., Any], *operands: Any) -> Reckoned | None:
        """Record a step; None if the origin of an operand is unknown."""
        found = [x.__dict__.get("_reckoned") if isinstance(x, NumberPlaceholder) else _constant(x) for x in operands]
        given: list[Reckoned] = [g for g in found if g is not None]
        if len(given) < len(found):
            return None
        one, other = given[0], given[-1]
        if len(given) == 1:
            self.steps.append(lambda made: compute(one(made)))
        else:
            self.steps.append(lambda made: compute(one(made), other(made)))
        place = len(self.steps) - 1
        return lambda made: made[place]

    def holds(self) -> bool:
        """Replay all steps for the numbers of a call, raising what they raise; return whether all results are plain
        numbers.
        """
        made: list[Any] = []
        for step in self.steps:
            made.append(step(made))
        return all(x.__class__ is float or (x.__class__ is int and -(2**63) <= x < 2**63) for x in made)


class _PresentCall(threading.local):
    """Per thread: the arguments of the call that is being looked up."""

    leaves: Sequence[Any] = ()


present = _PresentCall()


def _constant(number: Any) -> Reckoned:
    return lambda made: number


def from_argument(n: int) -> Reckoned:
    return lambda made: present.leaves[n]


def from_outside(read: Callable[[], Any]) -> Reckoned:
    return lambda made: read()


def _record_step(compute: Callable[..., Any], name: str, *operands: Any) -> Reckoned | None:
    """Record a step of the function that is being traced."""
    if state.trace is None:
        return None
    replay: ArithmeticReplay | None = getattr(state.trace, "replay", None)
    if replay is None:
        replay = ArithmeticReplay()
        setattr(state.trace, "replay", replay)  # noqa: B010 - only traces of `jit` have one
    if not replay.may_fail and any(part in name for part in ("truediv", "floordiv", "mod", "pow")):
        replay.may_fail = True
        state.trace.guards.append((replay.holds, True))
    return replay.step(compute, *operands)


def _value(x: Any, floating: bool) -> Tensor:
    """Convert a number or placeholder as Python would before it computes."""
    value = x.value if isinstance(x, NumberPlaceholder) else Fill(x, number_type(x))
    return wrap(cast(value, float64) if floating else value)


def _type(x: Any) -> DType:
    return x.dtype if isinstance(x, NumberPlaceholder) else number_type(x).dtype


def _operator(name: str, mirrored: str) -> Callable[[NumberPlaceholder, Any], Any]:
    of_tensors: Callable[[Any, Any], Any] = getattr(Tensor, name)
    unjitted_reason: Any = getattr(operator, name, None) or (lambda x, y: getattr(operator, mirrored)(y, x))
    from_behind: Callable[[Any, Any], Any] = getattr(Tensor, mirrored)

    def between(self: NumberPlaceholder, other: Any) -> Any:
        if isinstance(other, Tensor) and not isinstance(other, NumberPlaceholder):
            return from_behind(other, self)  # as a number would leave it to the tensor
        if not isinstance(other, NumberPlaceholder) and (
            not isinstance(other, (int, float)) or isinstance(other, bool)
        ):
            return of_tensors(self, other)
        floating = "truediv" in name or any(_type(x) is float64 for x in (self, other))
        if "pow" in name and not floating:
            raise TypeError("powers of integers have no end: each exponent gets a program of its own")
        made = of_tensors(_value(self, floating), _value(other, floating))
        if made is NotImplemented or made.dtype not in (float64, int64):
            return made
        return number_placeholder(made.value, reckoned=_record_step(unjitted_reason, name, self, other))

    return between


def _unary(name: str) -> Callable[[NumberPlaceholder], NumberPlaceholder]:
    of_tensor, unjitted_reason = getattr(Tensor, name), getattr(operator, name)
    return lambda self: number_placeholder(of_tensor(self).value, reckoned=_record_step(unjitted_reason, name, self))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(NumberPlaceholder, f"__{_name}__", _operator(f"__{_name}__", f"__r{_name}__"))
    setattr(NumberPlaceholder, f"__r{_name}__", _operator(f"__r{_name}__", f"__{_name}__"))
for _name, _mirrored in {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}.items():
    setattr(NumberPlaceholder, f"__{_name}__", _operator(f"__{_name}__", f"__{_mirrored}__"))
for _name in ("neg", "pos", "abs"):
    setattr(NumberPlaceholder, f"__{_name}__", _unary(f"__{_name}__"))
