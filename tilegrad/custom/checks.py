"""Checks of an operator or a function of tensors; each raises an error that names the element.

`verify` runs them, and so do the scripts that it prints to reproduce a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import config
from ..autograd.checking import gradcheck, gradgradcheck
from ..autograd.modes import no_grad
from ..errors import DeviceError, OperatorError, TilegradError
from ..functions.creation import full
from ..functions.joining import stack
from ..ir.dtype import from_numpy_dtype
from ..jitted.function import jit
from ..lazy.evaluation import compute
from ..lazy.handle import Handle
from ..transforms import jvp, vjp, vmap
from .meaning import flatten_tensors

if TYPE_CHECKING:
    from .operator import Operator

EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
ULPS = 64.0
"""Tolerance of a kernel against the reference in units in the last place; sums may be added in another order."""
Made = list[Any]


def name_of(fn: Callable[..., Any]) -> str:
    """Return the name of a function for messages."""
    return str(getattr(fn, "name", None) or getattr(fn, "__name__", fn))


def results(fn: Callable[..., Any], arguments: Sequence[Any]) -> Made:
    """Return the results of a call as arrays."""
    made = fn(*arguments)
    tensors = list(made) if isinstance(made, tuple | list) else [made]
    for y in tensors:
        if not isinstance(y, Handle):
            raise OperatorError(f"{name_of(fn)} gives {type(y).__name__}, and not a tensor")
    compute(*tensors)
    return [array(y) for y in tensors]


def array(x: Any) -> Any:
    """Return the elements of a tensor; narrow floats as float32."""
    x = x.detach().cpu()
    return (x.float() if x.dtype.name == "bfloat16" else x).numpy().copy()


def difference(found: Made, expected: Made, names: Sequence[str], ulps: float = 0.0) -> tuple[str, float]:
    """Find where two results differ by more than some units in the last place of the largest element, and their largest
    difference.
    """
    worst = 0.0
    for n, (x, y) in enumerate(zip(found, expected, strict=True)):
        name = names[n] if n < len(names) else f"result {n}"
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"`{name}` is {x.dtype} of shape {list(x.shape)}, and not {y.dtype} of shape {list(y.shape)}", worst
        if not x.size:
            continue
        if x.dtype.name not in EPSILONS:
            wrong, away = x != y, np.zeros(x.shape)
        else:
            a, b = x.astype(np.float64), y.astype(np.float64)
            with np.errstate(all="ignore"):
                finite = np.isfinite(b)
                largest = np.abs(b[finite]).max() if finite.any() else 1.0
                unit = EPSILONS[x.dtype.name] * (largest or 1.0)
                away = np.where(finite & np.isfinite(a), np.abs(a - b) / unit, 0.0)
                same = (a == b) | (np.isnan(a) & np.isnan(b))
                wrong = ~same & ((away > ulps) | ~np.isfinite(a) | ~finite)
        worst = max(worst, float(away.max()))
        if wrong.any():
            at = tuple(map(int, np.unravel_index(np.argmax(wrong), x.shape)))
            many = f" ({int(wrong.sum())} of {x.size} are wrong)" if x.size > 1 else ""
            return f"element {list(at)} of `{name}` is {x[at]!s}, and not {y[at]!s}{many}", worst
    return "", worst


def _compare(fn: Callable[..., Any], what: str, found: Made, expected: Made, ulps: float = 0.0) -> str:
    declaration = getattr(fn, "declaration", None)
    names = [p.name for p in declaration.results] if declaration is not None else ["out"] * (len(expected) == 1)
    if len(found) != len(expected):
        raise OperatorError(f"{name_of(fn)}: {what}: {len(found)} results, and not {len(expected)}")
    problem, worst = difference(found, expected, names, ulps)
    if problem:
        raise OperatorError(f"{name_of(fn)}: {what}: {problem}")
    return f"at most {worst:.3g} ULPs" if worst else "equal"


@contextmanager
def _only(op: Operator, kernels: dict[str, Any]) -> Iterator[None]:
    """Temporarily replace the kernels of an operator."""
    before = op.kernels
    op.kernels = kernels
    op._meanings.clear()
    try:
        yield
    finally:
        op.kernels = before
        op._meanings.clear()


# --- the checks ------------------------------------------------------------------------------------


def kernel(op: Operator, *arguments: Any, device: str = "cpu", ulps: float = ULPS) -> str:
    """Check that the kernel for a device computes the reference's results."""
    given = _on(arguments, device)
    with no_grad():
        with _only(op, {}):
            expected = results(op, given)
        _dirty_freed_memory(expected, device)
        return _compare(op, f"the kernel for {device} against the reference", results(op, given), expected, ulps)


def _dirty_freed_memory(arrays: Made, device: str) -> None:
    """Fill freed memory of these sizes with garbage, which new results are likely to reuse."""
    compute(*[full(x.shape, 77, device=device).to(kind_of_array(x)) for x in arrays])


def kind_of_array(x: Any) -> Any:
    """Return the dtype of an array."""
    return from_numpy_dtype(x.dtype)


def _on(arguments: Sequence[Any], device: str) -> list[Any]:
    return [
        x.to(device) if isinstance(x, Handle) else tuple(_on(x, device)) if isinstance(x, tuple | list) else x  # type: ignore[attr-defined]
        for x in arguments
    ]


def memory(op: Operator, *arguments: Any, device: str = "cpu") -> str:
    """Check that a kernel stays within bounds and writes all results: tile kernels in the interpreter, C++ in a child
    process between guard pages.
    """
    from ..backend.reference.device import ReferenceDevice
    from ..runtime.device import register

    register(ReferenceDevice("interpreter", checked=True))
    fn = op.kernels.get(device) or op.kernels[""]
    with no_grad(), _only(op, {}):
        expected = results(op, arguments)
    try:
        with no_grad(), _only(op, {"interpreter": fn}):
            found = results(op, _on(arguments, "interpreter"))
    except DeviceError:  # there is C++ for the CPU in it
        if not callable(fn):
            raise
        if {p.name for p in op.declaration.results} & set(signature(fn).parameters):
            return "not tried: it is C++ that writes to tensors it is given"
        with no_grad(), config.changed(check="foreign"):
            found = results(fn, arguments)
        return _compare(op, f"the kernel for {device}, in guarded memory", found, expected, ULPS)
    return _compare(op, f"the kernel for {device}, interpreted", found, expected, ULPS)


def strides(fn: Callable[..., Any], *arguments: Any) -> str:
    """Check that views give the same results as contiguous copies."""
    copies = [_copied(x) for x in arguments]
    with no_grad():
        return _compare(fn, "views against copies of them", results(fn, arguments), results(fn, copies), 4.0)


def _copied(x: Any) -> Any:
    if isinstance(x, tuple | list):
        return tuple(map(_copied, x))
    return x.detach().clone().contiguous() if isinstance(x, Handle) else x  # type: ignore[attr-defined]


def separate(fn: Callable[..., Any], *arguments: Any) -> str:
    """Check that arguments stay unchanged and results share no memory with others."""
    tensors = flatten_tensors(arguments)
    before = [array(x) for x in tensors]
    with no_grad():
        made = fn(*arguments)
        outputs = list(made) if isinstance(made, tuple | list) else [made]
        kept = [array(y) for y in outputs]
        for n, y in enumerate(outputs):
            y.fill_(1 if y.dtype.name == "bool" else 77)
            for k, (x, old) in enumerate(zip(tensors, before, strict=True)):
                if difference([array(x)], [old], [f"tensor {k}"])[0]:
                    raise OperatorError(
                        f"{name_of(fn)}: writing to result {n} changes argument {k}: the result is on its memory"
                    )
            for k in range(n + 1, len(outputs)):
                if difference([array(outputs[k])], [kept[k]], [""])[0]:
                    raise OperatorError(f"{name_of(fn)}: writing to result {n} changes result {k}: they share memory")
    return "results are apart"


def same_twice(fn: Callable[..., Any], *arguments: Any) -> str:
    """Check that one tensor passed for several arguments gives the results of copies."""
    tensors, whole = split_tensors(arguments)
    first: dict[Any, Any] = {}
    shared = [first.setdefault((x.dtype, tuple(x.shape)), x) for x in tensors]
    with no_grad():
        found = results(fn, whole(*shared))
        return _compare(fn, "one tensor given twice", found, results(fn, whole(*map(_copied, shared))), 4.0)


def traced(fn: Callable[..., Any], *arguments: Any) -> str:
    """Check that the jitted results equal the plain ones, also when the compiled program runs again."""
    fast = jit(lambda *given: fn(*given))
    with no_grad():
        expected = results(fn, arguments)
        for _ in range(2):
            found = _compare(fn, "jitted against lazy", results(fast, arguments), expected, 4.0)
    return found


def deterministic(fn: Callable[..., Any], *arguments: Any) -> str:
    """Check that repeated calls are bit-identical."""
    with no_grad():
        expected = results(fn, arguments)
        for _ in range(4):
            _compare(fn, "run again", results(fn, arguments), expected)
    return "the same bits"


def split_tensors(arguments: Sequence[Any]) -> tuple[list[Any], Callable[..., list[Any]]]:
    """Return the tensors among arguments, nested ones too, and a function to rebuild the arguments."""
    tensors = flatten_tensors(arguments)

    def whole(*given: Any) -> list[Any]:
        rest = iter(given)

        def put(x: Any) -> Any:
            if isinstance(x, tuple | list):
                return tuple(map(put, x))
            return next(rest) if isinstance(x, Handle) else x

        return list(map(put, arguments))

    return tensors, whole


def mapped(fn: Callable[..., Any], *arguments: Any) -> str:
    """Check that `vmap` equals a loop over entries."""
    tensors, whole = split_tensors(arguments)
    many = [stack([x, x.flip(0) if x.ndim else x]) for x in tensors]
    with no_grad():
        found = results(vmap(lambda *given: fn(*whole(*given))), many)
        entries = [results(fn, whole(*[x[k] for x in many])) for k in range(2)]
        return _compare(fn, "vmap against a loop", found, [np.stack(pair) for pair in zip(*entries, strict=True)], ULPS)


def _is_float(x: Any) -> bool:
    return isinstance(x, Handle) and x.value.dtype.is_float


def _floats(fn: Callable[..., Any], arguments: Sequence[Any]) -> tuple[list[Any], Callable[..., Any]]:
    """Return the tensors with gradients, and the function from them to the differentiable results."""
    tensors, whole = split_tensors(arguments)
    places = [n for n, x in enumerate(tensors) if _is_float(x)]

    def single(*given: Any) -> Any:
        everything = list(tensors)
        for n, x in zip(places, given, strict=True):
            everything[n] = x
        made = fn(*whole(*everything))
        return tuple([y for y in (made if isinstance(made, tuple | list) else (made,)) if _is_float(y)])

    return [tensors[n].detach() for n in places], single


def gradients(fn: Callable[..., Any], *arguments: Any, order: int = 1) -> str:
    """Check gradients by finite differences in float64; with order=2 second derivatives, too."""
    tensors, single = _floats(fn, arguments)
    given = [x.clone().requires_grad_() for x in tensors]
    (gradgradcheck if order == 2 else gradcheck)(single, given)
    return "as finite differences say"


def rule(op: Operator, *arguments: Any) -> str:
    """Check the operator's gradient rule against the gradient of its reference."""

    def of(fn: Callable[..., Any]) -> Made:
        tensors, single = _floats(fn, arguments)
        made, pull = vjp(single, *tensors)
        return results(pull, [tuple([y.cos() for y in made])])

    names = [p.name for p in op.declaration.parameters if p.is_tensor]
    problem, worst = difference(of(op), of(op.reference), names, ULPS * 4)
    if problem:
        raise OperatorError(f"{op.name}: the gradient against that of the reference: {problem}")
    return f"at most {worst:.3g} ULPs" if worst else "equal"


def forward(fn: Callable[..., Any], *arguments: Any) -> str:
    """Check that `jvp` and `vjp` are transposes of one linear map, in float64."""
    primals, single = _floats(fn, arguments)

    def number(*given: Any) -> Any:
        return stack([(y.sin() * 3).sum() for y in single(*given)]).sum()

    moves = [x.cos() + 0.5 for x in primals]
    value, change = jvp(number, tuple(primals), tuple(moves))
    _, pull = vjp(number, *primals)
    there = float(sum((g * v).sum().item() for g, v in zip(pull(value * 0 + 1), moves, strict=True)))
    here = float(change.item())
    if not np.isclose(here, there, rtol=1e-6, atol=1e-9):
        raise OperatorError(f"{name_of(fn)}: jvp says the result changes by {here:g}, vjp by {there:g}")
    return "jvp and vjp agree"


def refuses(fn: Callable[..., Any], arguments: Sequence[Any]) -> str:
    """Return the reason why a call is refused, or an empty text."""
    try:
        with no_grad():
            results(fn, arguments)
    except TilegradError as error:
        return str(error)
    return ""
