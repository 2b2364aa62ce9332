"""Define operations with user-written gradients: `Function`, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, GradientError, InPlaceError, ShapeError
from ..functions.promotion import kind_of
from ..ir.graph import Value
from ..lazy.handle import Handle, mode, state, wrap
from ..lazy.storage import detached, kept_separate
from ..ops.broadcasting import fill, shown, sum_to
from ..ops.cast import cast
from ..ops.joint import Joint, joint_output
from .engine import walk
from .modes import no_grad

if TYPE_CHECKING:
    from ..tensor import Tensor


class FunctionCtx:
    """The context that forward fills for backward. Any attribute may be set on it."""

    needs_input_grad: tuple[bool, ...] = ()

    def __init__(self) -> None:
        self._saved: list[Tensor | None] = []
        self._versions: list[int] = []
        self._released = False
        self._materialize = True
        self._no_gradient: set[int] = set()
        self._dirty: set[int] = set()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save tensors for backward, which reads them from `saved_tensors`."""
        for x in tensors:
            if x is not None and not isinstance(x, Handle):
                raise ArgumentError(
                    f"save_for_backward takes tensors, not {kind_of(x)}; set an attribute instead: ctx.n = n"
                )
        self._saved = list(tensors)
        self._versions = [0 if x is None else x._version for x in tensors]

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]:
        """The saved tensors; an error if they were modified since."""
        name = type(self).__name__
        if self._released:
            raise GradientError(
                f"{name} was differentiated before, and what it saved was released. Call backward(retain_graph=True) "
                "the first time if you need a second"
            )
        for n, (x, version) in enumerate(zip(self._saved, self._versions, strict=True)):
            if x is not None and x._version != version:
                change = x.base().storage.change
                where = f" by {change.op} at {change.location}" if change else ""
                raise InPlaceError(
                    f"{name}: saved tensor {n}, of shape {shown(x.shape)}, was changed in place{where} after it was "
                    f"saved (version {x._version}, expected {version}). Change a clone() instead"
                )
        return tuple(self._saved)  # type: ignore[arg-type]

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Mark results as non-differentiable."""
        self._no_gradient.update(map(id, tensors))

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Mark arguments as modified in place."""
        self._dirty.update(map(id, tensors))

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether missing upstream gradients are zeros (True) or None."""
        self._materialize = value


class Function(FunctionCtx):
    """An operation defined by two static methods.

    >>> import tilegrad as tg
    >>> class Cube(tg.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...
    ...     @staticmethod
    ...     def backward(ctx, upstream):
    ...         (x,) = ctx.saved_tensors
    ...         return upstream * 3 * x * x
    >>> x = tg.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor(12.)
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("forward", "backward", "setup_context"):
            written = cls.__dict__.get(name)
            if written is not None and not isinstance(written, (staticmethod, classmethod)):
                raise ArgumentError(
                    f"{cls.__name__}.{name} must be static: write @staticmethod above `def {name}(ctx, ...)`; what it "
                    "needs to remember goes to ctx"
                )

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the result; overridden by the subclass."""
        raise NotImplementedError("a Function needs a static method `forward(ctx, ...)`")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Compute the gradient of each argument of forward; overridden by the subclass."""
        raise NotImplementedError("a Function that is differentiated needs a static method `backward(ctx, ...)`")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward and record backward as its gradient."""
        ctx = cls()
        ctx.needs_input_grad = tuple([isinstance(x, Handle) and x.value.tracked and mode.enabled for x in args])
        with no_grad():
            if "setup_context" in cls.__dict__:
                made = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, made)  # type: ignore[attr-defined]
            else:
                made = cls.forward(ctx, *args, **kwargs)
        if not any(ctx.needs_input_grad):
            return made
        results = list(made) if isinstance(made, (tuple, list)) else [made]
        recorded = _recorded(cls, ctx, args, results)
        ctx._saved = [
            next((new for old, new in zip(results, recorded, strict=True) if old is x), x) for x in ctx._saved
        ]
        ctx._versions = [0 if x is None else x._version for x in ctx._saved]
        return tuple(recorded) if isinstance(made, (tuple, list)) else recorded[0]


def _recorded(cls: type[Function], ctx: Function, args: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Wrap the results with the user-written gradient."""
    places = [n for n, x in enumerate(args) if isinstance(x, Handle)]
    types = [args[n].value.type for n in places]
    traced = state.trace is not None

    def rule(upstreams: Sequence[Value | None]) -> list[Value | None]:
        known = [upstreams[n] if n < len(upstreams) else None for n in range(len(results))]
        given = [_upstream(ctx, u, x) for u, x in zip(known, results, strict=True)]
        shares = cls.backward(ctx, *given)
        if not walk.retain and traced is (state.trace is not None):  # what was traced serves every call
            ctx._released = bool(ctx._saved)
        return _checked(cls, shares, len(args), places, types)

    joint = Joint([args[n].value for n in places], rule)
    recorded = []
    for n, x in enumerate(results):
        if not isinstance(x, Handle) or id(x) in ctx._no_gradient or not x.value.dtype.is_float:
            recorded.append(x)
        elif id(x) in ctx._dirty:
            x.write(joint_output(detached(x.value), joint, n), cls.__name__)
            recorded.append(x)
        else:
            same = any(x is a for a in args)
            recorded.append(wrap(joint_output(detached(kept_separate(x.value) if same else x.value), joint, n)))
    return recorded


def _upstream(ctx: Function, upstream: Value | None, result: Any) -> Tensor | None:
    if upstream is not None:
        return wrap(upstream)
    if not isinstance(result, Handle) or not ctx._materialize:
        return None
    value = result.value
    dtype = value.dtype
    return wrap(fill(0.0 if dtype.is_float else 0, value.shape, dtype, value.device))


def _checked(
    cls: type[Function], shares: Any, count: int, places: Sequence[int], types: Sequence[Any]
) -> list[Value | None]:
    """Check the gradients that backward returned: one for each tensor argument."""
    given = list(shares) if isinstance(shares, (tuple, list)) else [shares]
    while len(given) > count and given[-1] is None:
        given.pop()
    if len(given) != count:
        raise GradientError(
            f"{cls.__name__}.backward returned {len(given)} gradients, but forward takes {count} arguments; return one "
            "for each, None for those that have none"
        )
    found: list[Value | None] = []
    for n, type in zip(places, types, strict=True):
        g = given[n]
        if g is None:
            found.append(None)
            continue
        if not isinstance(g, Handle):
            raise GradientError(
                f"{cls.__name__}.backward returned {kind_of(g)} as gradient {n}; a tensor or None is needed"
            )
        value = cast(g.value, type.dtype)
        if value.shape != type.shape:
            try:
                value = sum_to(value, type.shape)
            except (ShapeError, IndexError):
                pass
            if value.shape != type.shape:
                raise GradientError(
                    f"{cls.__name__}.backward returned gradient {n} of shape {shown(g.value.shape)} for an argument of "
                    f"shape {shown(type.shape)}; they must be equal"
                )
        found.append(value)
    return found


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a backward whose result is not differentiable again."""

    @wraps(fn)
    def once(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            return fn(ctx, *grads)

    return once
