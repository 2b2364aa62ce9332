"""Operators: a name, a signature, a reference in tensor operations, kernels for devices, and a gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import OperatorError
from ..functions.autocasting import get_float32_matmul_precision, lowered, widened
from ..ir.graph import Value
from ..ir.node import amend
from ..lazy.handle import mode, wrap
from ..ops.declared import Declared
from .gradient import check_rule, requestable_names, requested_names, with_gradient
from .meaning import OnArrays, OperatorMeaning
from .registry import register
from .signature import Declaration

if TYPE_CHECKING:
    from .verifying import VerificationReport

F = TypeVar("F", bound=Callable[..., Any])
MAX_MEANINGS = 4096
AUTOCAST = (None, "low", "float32")


class Operator:
    """The result of `@tilegrad.op(signature)`; call it with tensors and numbers."""

    def __init__(
        self, declaration: Declaration, fn: Callable[..., Any], autocast: str | None = None, arrays: bool = False
    ) -> None:
        update_wrapper(self, fn)
        self.declaration = declaration
        self.name = declaration.name
        self.namespace = declaration.namespace or fn.__module__
        self.fn = fn
        self.kernels: dict[str, Callable[..., Any] | OnArrays] = {}
        """Kernels by kind of device; "" applies to all."""
        self.rule: Callable[..., Any] | None = None
        self.asked: tuple[str, ...] = ()
        """Parameter names of the gradient rule."""
        self.autocast = autocast
        self.arrays = arrays
        """Whether the reference is a function on arrays."""
        self.__doc__ = fn.__doc__ or declaration.whole.doc or None
        self._meanings: dict[tuple[Any, ...], OperatorMeaning] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors, form = self.declaration.bind(args, kwargs)
        arguments = [x.value for x in tensors]
        if self.autocast is not None:
            arguments = self._cast(arguments)
        types = tuple([(v.type.dtype, v.type.shape, v.type.device) for v in arguments])
        meaning = self._meanings.get((form, types, get_float32_matmul_precision()))
        if meaning is None:
            meaning = self._meaning(form, types, arguments)
        if meaning.direct is not None:
            made = meaning.direct(tensors)
            if made is not None:
                return _with_rule(meaning, made, arguments)
        results: list[Value] = []
        for place in range(len(meaning.results)):
            results.append(made := Declared(tuple(arguments), meaning, place))
            amend(made, tracked=False)
        if mode.enabled and any(x.tracked for x in arguments):
            results = with_gradient(meaning, results, arguments)
        return wrap(results[0]) if len(results) == 1 else tuple(map(wrap, results))

    def _cast(self, arguments: list[Value]) -> list[Value]:
        """Convert the arguments to the types that autocast selects."""
        return lowered(arguments) if self.autocast == "low" else list(map(widened, arguments))

    def _meaning(self, form: Any, types: Any, arguments: list[Value]) -> OperatorMeaning:
        """Specialise for the types of a call; the reference is traced at once, so that errors surface at the call."""
        if len(self._meanings) >= MAX_MEANINGS:
            self._meanings.clear()
        made = OperatorMeaning(self, form, [v.type for v in arguments])
        made.reference()
        self._meanings[form, types, get_float32_matmul_precision()] = made
        return made

    def kernel(
        self, device: str | Callable[..., Any] = "", fn: Callable[..., Any] | None = None, *, arrays: bool = False
    ) -> Any:
        """Register a kernel: `@op.kernel` for all devices, `@op.kernel("cuda")` for one kind.

        The function gets the operator's arguments. It returns the results, or takes output tensors under their names
        (`out` for a single one) and launches kernels that write to them. With `arrays` it gets and returns numpy
        arrays.
        """
        if not isinstance(device, str):
            return self.kernel("", device, arrays=arrays)
        if device.partition(":")[2]:
            raise OperatorError(
                f"{self.name}: a kernel is for a kind of device, not for one of them: {device.partition(':')[0]!r}"
            )
        if fn is None:
            return lambda given: self.kernel(device, given, arrays=arrays)
        if not callable(fn):
            raise OperatorError(f"{self.name}: a kernel is a function that launches kernels, not {type(fn).__name__}")
        self.kernels[device] = OnArrays(fn) if arrays else fn
        self._meanings.clear()
        return fn

    def gradient(self, rule: F) -> F:
        """Register the gradient: `@op.gradient`.

        The function names what it needs as parameters: arguments, results, and `upstream` (`upstream_NAME` for each of
        several results). It returns a gradient for each tensor argument, or a dict by name.
        """
        if not callable(rule):
            raise OperatorError(f"{self.name}: a gradient is a function, not {type(rule).__name__}")
        names = [p.name for p in self.declaration.parameters]
        check_rule(self.name, rule, requestable_names(names, [p.name for p in self.declaration.results]))
        self.rule, self.asked = rule, requested_names(rule)
        return rule

    def reference(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result by the reference, without any of the operator's kernels."""
        if not self.arrays:
            return self.fn(*args, **kwargs)
        tensors, form = self.declaration.bind(args, kwargs)
        meaning = OperatorMeaning(self, form, [x.value.type for x in tensors])
        made = meaning.on_arrays(self.fn)(*tensors)
        return made[0] if len(made) == 1 else tuple(made)

    def verify(self, *examples: Any, ulps: float = 64.0) -> VerificationReport:
        """Verify the operator: shapes, dtypes, strides, aliasing, kernels against the reference (within so many units
        in the last place), gradients by finite differences, jit, `vmap`. By default arguments are generated from the
        signature.
        """
        return import_module(f"{__package__}.verifying").verify(self, *examples, ulps=ulps)  # type: ignore[no-any-return]

    def as_torch(self) -> Callable[..., Any]:
        """Return the operator as a function of PyTorch tensors, sharing their memory."""
        from .borrowed import for_torch

        return for_torch(self)

    def __repr__(self) -> str:
        kernels = ", ".join(sorted(k or "all devices" for k in self.kernels)) or "none"
        return f"<operator {self.namespace}::{self.declaration.text.partition('#')[0].strip()}; kernels: {kernels}>"


def _with_rule(meaning: OperatorMeaning, made: Any, arguments: Sequence[Value]) -> Any:
    """Attach the gradient rule to computed results if a gradient may be needed."""
    if not mode.enabled or not any(x.tracked for x in arguments):
        return made
    known = [x.value for x in (made if isinstance(made, tuple) else (made,))]
    results = with_gradient(meaning, known, arguments)
    for result, value in zip(results, known, strict=True):
        result.hold(value.buffer)
    return wrap(results[0]) if len(results) == 1 else tuple(map(wrap, results))


def op(
    signature: str, *, autocast: str | None = None, arrays: bool = False
) -> Callable[[Callable[..., Any]], Operator]:
    """Declare an operator; the decorated function is its reference, in tensor operations. With `arrays` it is a
    function on numpy arrays instead, which is slow and has no gradient unless one is given.

    >>> import tilegrad as tg
    >>> @tg.op("halved(x: F[*s]) -> F[*s]")
    ... def halved(x):
    ...     return x / 2
    >>> halved(tg.tensor([1.0, 3.0]))
    tensor([0.5000, 1.5000])
    """
    declaration = Declaration(signature)
    if autocast not in AUTOCAST:
        raise OperatorError(f"{declaration.name}: autocast is None, 'low' or 'float32', not {autocast!r}")

    def declared(fn: Callable[..., Any]) -> Operator:
        if not callable(fn):
            raise OperatorError(f"{declaration.name}: @op stands before a function, not before {type(fn).__name__}")
        return register(Operator(declaration, fn, autocast, arrays))

    return declared
