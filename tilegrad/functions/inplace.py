"""Make the variants of functions that store their result: in place (`x.add_(y)`), and in `out=`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ..deferred import part
from ..errors import ArgumentError, DeviceError, DTypeError, GradientError, ShapeError
from ..ir.dtype import DType, bool_, float64, uint8
from ..ir.graph import Value
from ..lazy.handle import Handle, mode, resize, state
from ..lazy.storage import kept_separate
from ..ops.broadcasting import broadcast_shapes, expand, fill, shown
from ..ops.cast import cast
from ..ops.control import where
from .promotion import can_cast, constant, kind_of, refused, value_of
from .registry import names_with

if TYPE_CHECKING:
    from ..tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R", bound="Tensor")


def in_place(fn: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[R, P], R]:
    """Return the variant of a function that stores its result in its first argument."""
    name = f"{fn.__name__}_"

    def changed(self: R, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not kwargs and _is_done(name, self, args):
            return self
        before = value_of(self, name)
        wanted = float64 if name == "float_power_" else kwargs.get("dtype")
        if wanted is not None and wanted is not before.dtype:
            raise DTypeError(
                f"{name}: the result is {wanted!r} and cannot be stored in place in a tensor of {before.dtype.name}; "
                "use the one without underscore"
            )
        result = fn(self, *args, **kwargs).value
        if before.tracked and not result.tracked and mode.enabled:
            # zeros flow back through what has no derivative: the tensor stays one that requires gradients
            result = where(fill(False, (), bool_, before.device), before, cast(result, before.dtype))
        store(self, result, name)
        return self

    update_wrapper(changed, fn)
    changed.__name__ = changed.__qualname__ = name
    changed.__doc__ = f"In place: {fn.__doc__}"
    return changed


def _is_done(name: str, x: Tensor, others: Sequence[Any]) -> bool:
    """Whether an operation on few elements has been done at once."""
    if state.trace is not None or not isinstance(x, Handle):
        return False
    combine = part("lazy.few_elements", "combine_into")
    return combine is not None and combine(name, x, others)


def store(x: Tensor, result: Value, op: str) -> None:
    """Write a result to a tensor, converted to its dtype and broadcast to its shape."""
    own = x._value.type
    if result.type.dtype is not own.dtype:
        if not can_cast(result.dtype, own.dtype):
            raise DTypeError(
                f"{op}: the result is {result.dtype.name} and cannot be stored in place in a tensor of "
                f"{own.dtype.name}; use the one without underscore, or convert first: x = x.to({result.dtype!r})"
            )
        result = cast(result, own.dtype)
    if result.type.shape != own.shape:
        if broadcast_shapes(result.shape, own.shape, op=op) != own.shape:
            raise ShapeError(
                f"{op}: the result has shape {shown(result.shape)}, which does not fit into the tensor of shape "
                f"{shown(own.shape)} that it is stored in; use the one without underscore"
            )
        result = expand(result, own.shape)
    x.write(result, op)


def copy_(self: R, src: Any, non_blocking: bool = False) -> R:
    """Copy the elements of another tensor, converted and broadcast."""
    own = self.value
    if isinstance(src, Handle):
        given = src.to(own.device).value if src.value.device != own.device else src.value  # type: ignore[attr-defined]
        given = cast(given, own.dtype)
        if given is src.value:
            given = kept_separate(given)  # what is written to one of the two from now on is not for the other
    elif isinstance(src, (bool, int, float)):
        given = constant(src, own.dtype, own.device)
    else:
        raise refused("copy_", src)
    store(self, expand(given, own.shape) if len(given.shape) < len(own.shape) else given, "copy_")
    return self


def fill_(self: R, value: Any) -> R:
    """Fill with one number."""
    own = self.value
    if isinstance(value, Handle):
        if value.value.shape:
            raise ShapeError(f"fill_ takes one number, not a tensor of shape {shown(value.value.shape)}; use copy_")
        number = cast(value.value, own.dtype)
    elif isinstance(value, (bool, int, float)):
        number = constant(int(value) if own.dtype.is_integer else value, own.dtype, own.device)
    else:
        raise DTypeError(f"fill_ takes a number, not {kind_of(value)}")
    return _filled(self, number, "fill_")


def zero_(self: R) -> R:
    """Fill with zeros."""
    own = self.value
    return _filled(self, constant(0, own.dtype, own.device), "zero_")


def _filled(x: R, number: Value, op: str) -> R:
    x.write(expand(number, x.value.shape), op)
    return x


# --- out= ----------------------------------------------------------------------------------------

EXACT = frozenset((*names_with("exact"), *names_with("creation")))
CREATION = frozenset(names_with("creation"))


def _targets(name: str, out: Any) -> list[Any]:
    if not isinstance(out, (tuple, list)):
        out = [out]
    elif name == "nonzero":
        raise ArgumentError("nonzero: out is a tensor, which takes the places as rows, not vectors")
    for x in out:
        if not isinstance(x, Handle):
            raise ArgumentError(f"{name}: out is a tensor, not {kind_of(x)}")
    return list(out)


def _keeps_type(name: str, several: bool, dtype: DType) -> bool:
    """Whether a function writes only to tensors of its own result type."""
    truth = name in ("all", "any") and dtype is not uint8
    return truth or name in EXACT or (name in ("max", "min") and several)


def taking_out(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return the variant of a function that writes its result to `out`, if it is given."""

    @wraps(function)
    def into(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is None:
            return function(*args, **kwargs)
        targets = _targets(name, out)
        _refuse_history(name, [*args, *kwargs.values(), *targets])
        if name in CREATION and "dtype" not in kwargs and len(targets) == 1:
            kwargs["dtype"] = targets[0].dtype
        result = function(*args, **kwargs)
        several = isinstance(result, tuple)
        results = list(result) if several else [result]
        if len(results) != len(targets) or several != isinstance(out, (tuple, list)):
            raise ArgumentError(f"{name}: {len(results)} results, but {len(targets)} tensors for them")
        for found, target in zip(results, targets, strict=True):
            _put(found, target, name, _keeps_type(name, several, target.dtype))
        return type(result)(*targets) if hasattr(result, "_fields") else out

    return into


def _refuse_history(op: str, given: list[Any]) -> None:
    if not mode.enabled:
        return
    parts = [y for x in given for y in (x if isinstance(x, (list, tuple)) else [x])]
    if any(isinstance(x, Handle) and x.value.tracked for x in parts):
        raise GradientError(
            f"{op}: what is put into `out` has no gradient, but an argument requires one; leave `out` away, or call it "
            "within `with tilegrad.no_grad():`"
        )


def _put(found: Tensor, place: Tensor, op: str, exact: bool) -> None:
    """Write a result to a tensor, which takes its shape."""
    made, own = found.value, place.value
    if made.device != own.device:
        raise DeviceError(f"{op}: the result is on {made.device}, `out` on {own.device}")
    if made.dtype is not own.dtype and (exact or not can_cast(made.dtype, own.dtype)):
        raise DTypeError(
            f"{op}: the result is {made.dtype.name} and cannot be put into an `out` of {own.dtype.name}, shape "
            f"{shown(own.shape)}"
        )
    converted = cast(made, own.dtype)
    if made.shape == own.shape:
        place.write(converted, op)
    else:
        resize(place, converted, op)
