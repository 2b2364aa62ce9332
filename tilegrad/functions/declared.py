"""Check the arguments of public functions against their annotations; convert sizes, axes and counts to integers.

A tensor of one element and a number of numpy have `__index__`, too. Kept in a shape or in a view they would be compared
as tensors ever after: each comparison computes, and each computation compares. So the public functions convert what
they annotate as integers before anything is made of it; bools are refused, as in PyTorch. Flags, dtypes, memory
formats, tensors and numbers are compared with the annotations, too. Where a call fails with an error of Python's, the
argument that does not fit is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial, wraps
from inspect import CO_VARARGS, signature
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, AxisError, DTypeError, TilegradError
from ..ir.dtype import DType
from ..ir.size import Size
from ..lazy.handle import Handle, state, wrap
from ..runtime.device import Device
from .promotion import kind_of


def shape_of(x: Any) -> tuple[Any, ...]:
    """Return the shape of a tensor or an array; () for anything else."""
    return tuple(x.value.shape) if isinstance(x, Handle) else tuple(getattr(x, "shape", ()))


ALIASES = {
    "Operand": "Tensor | float", "Number": "float", "Each": "int | Sequence[int]", "R": "Tensor", "Dim": "int",
    "Sizes": "int | Sequence[int | None] | None", "Dims": "int | Sequence[int] | None", "Params": "Sequence[Any]",
    "DimsOrFlag": "bool | int | Sequence[int] | None", "DeviceLike": "Device | str | int | None", "Handle": "Tensor",
    "Tensors": "Tensor | Sequence[Tensor]", "Shapes": "int | Sequence[int]",
    "Ratio": "float | Sequence[float] | None",
}  # fmt: skip
"""The types that aliases in annotations stand for."""
KINDS: dict[str, Callable[[Any], bool]] = {
    "None": lambda x: x is None,
    "Tensor": lambda x: isinstance(x, Handle),
    "int": lambda x: hasattr(x, "__index__") and not isinstance(x, (bool, type)),
    "float": lambda x: hasattr(x, "__float__") and not isinstance(x, type) and not shape_of(x),
    "bool": lambda x: isinstance(x, (bool, np.bool_)),
    "str": lambda x: isinstance(x, str),
    "DType": lambda x: isinstance(x, DType) or x in (bool, int, float),
    "MemoryFormat": lambda x: type(x).__name__ == "MemoryFormat",
    "Device": lambda x: isinstance(x, Device),
    "Generator": lambda x: hasattr(x, "draw"),
    "Module": callable,
    "Optimizer": lambda x: hasattr(x, "param_groups"),
    "LRScheduler": lambda x: hasattr(x, "last_epoch"),
    "Dataset[Sample]": lambda x: hasattr(x, "__getitem__") and not isinstance(x, type),
    "Sized": lambda x: hasattr(x, "__len__") and not isinstance(x, type),
    "Sampler": lambda x: hasattr(x, "__iter__") and not isinstance(x, type),
}
WORDS = {
    "Tensor": "a tensor", "int": "an integer", "float": "a number", "bool": "a bool", "str": "a string",
    "DType": "a dtype such as tilegrad.float32", "MemoryFormat": "a memory format", "Device": "a device",
    "Generator": "a generator", "Module": "a module", "Optimizer": "an optimizer", "LRScheduler": "a schedule",
    "Dataset[Sample]": "a data set", "Sized": "a data set with a length", "Sampler": "a sampler",
}  # fmt: skip
PLURAL = ("Sequence[", "Iterable[", "tuple[", "list[", "Mapping[")

ALONE = frozenset(("int", "int | None"))
SEVERAL = frozenset((
    "Dims", "Sequence[Dim]", "Sequence[int]", "Sequence[int] | None", "Sizes", "int | Sequence[int]",
    "int | Sequence[int] | None",
))  # fmt: skip
"""Annotations of parameters that hold integers."""
COMPARED = ("Tensor", "DType", "MemoryFormat", "float", "Generator", "Optimizer", "Dataset[Sample]", "Sized", "Sampler")
ALIKE = tuple(frozenset((kind, "None")) for kind in COMPARED)
"""Kinds that are compared with the argument; functions with several kinds check them themselves."""
NO_LIST = (str, dict, set, Handle)
"""Iterable classes that are not lists of integers."""
OUT_OF_USE = ("size_average", "reduce")
"""Deprecated flags of losses, which raise errors of their own."""
LOOSE = frozenset("inplace return_indices hard full swap".split())
"""Flags for which PyTorch takes integers too."""
OFTEN = frozenset(f"tilegrad.functions.{name}" for name in ("arithmetic", "comparing", "elementary"))
"""Modules whose functions check operands themselves and are called too often to be wrapped."""
THEMSELVES = (*OFTEN, "tilegrad.nn.functional")
"""Modules whose functions check their first tensor themselves."""
LARGEST = 2**63
"""Exclusive upper bound of sizes and axes."""


def integer(given: Any, function: str, name: str) -> Any:
    """Convert an argument to an integer, or to a symbolic size.

    >>> import numpy, tilegrad as tg
    >>> integer(numpy.int64(3), "narrow", "length"), integer(tg.tensor(3), "narrow", "length")
    (3, 3)
    """
    if given is None or isinstance(given, Size):
        return given
    if isinstance(given, (bool, type)) or not hasattr(given, "__index__"):
        raise ArgumentError(f"{function}: {name} is an integer, not {kind_of(given)}")
    found = given.__index__()
    if not -LARGEST <= found < LARGEST:
        raise ArgumentError(f"{function}: {name} is {kind_of(found)}, which is too large")
    return found


def integers(given: Any, function: str, name: str, gaps: bool = False) -> Any:
    """Convert an argument to one integer or several; tensors and arrays with an axis count as lists. `gaps` allows
    None.
    """
    if isinstance(given, Handle) and given.value.type.dtype.kind == "float":
        raise ArgumentError(f"{function}: {name} is an integer or several, not {given.value.type.dtype.name} elements")
    if isinstance(given, Handle) or hasattr(given, "__array__"):
        given = given.tolist() if len(given.shape) else given
    if not hasattr(given, "__iter__") or isinstance(given, NO_LIST) or getattr(given, "shape", None) == ():
        return integer(given, function, name)
    if not gaps and any(x is None for x in given):
        raise ArgumentError(f"{function}: {name} is integers, not None among them")
    # PyTorch looks at the first only
    found = [int(x) if n and isinstance(x, bool) else integer(x, function, name) for n, x in enumerate(given)]
    return tuple(found) if isinstance(given, tuple) else found


def flag(given: Any, function: str, name: str) -> Any:
    """Check that a flag is a bool.

    >>> flag(1, "sum", "keepdim")
    Traceback (most recent call last):
    tilegrad.errors.ArgumentError: sum: keepdim is a bool, not 1 (int)
    """
    if isinstance(given, (bool, np.bool_)):
        return given
    raise ArgumentError(f"{function}: {name} is a bool, not {kind_of(given)}")


def loose_flag(given: Any, function: str, name: str) -> Any:
    """Check that a flag is a bool, or a number in its place."""
    if isinstance(given, (bool, int, np.bool_, Handle)):
        return given
    raise ArgumentError(f"{function}: {name} is a bool, not {kind_of(given)}")


def fits(value: Any, annotation: str) -> bool:
    """Test whether a value matches an annotation; unknown kinds match.

    >>> fits(3, "int | Sequence[int]"), fits((3, None), "int | Sequence[int]"), fits(None, "Tensor | None")
    (True, False, True)
    """
    return any(_fits_one(value, kind) for kind in alternatives(annotation))


def _fits_one(value: Any, kind: str) -> bool:
    if kind.startswith(PLURAL):
        if not hasattr(value, "__iter__") or isinstance(value, (str, bytes)):
            return False
        if not isinstance(value, (list, tuple)):
            return not isinstance(value, Handle) or (bool(value.value.shape) and "Tensor" not in kind)
        inside = [part for part in _parts(kind[kind.index("[") + 1 : -1], ", ") if part != "..."]
        return all(any(fits(x, part) for part in inside) for x in value)
    known = KINDS.get(kind)
    try:
        return known is None or known(value)
    except (TypeError, ValueError):  # an array is compared element by element
        return False


@lru_cache(1024)
def alternatives(annotation: str) -> tuple[str, ...]:
    found: list[str] = []
    for part in _parts(annotation, " | "):
        found += alternatives(ALIASES[part]) if part in ALIASES else (part,)
    return tuple(found)


def _parts(text: str, between: str) -> list[str]:
    """Split the text of a type at separators outside brackets."""
    parts = [""]
    for piece in text.split(between):
        whole = parts[-1].count("[") == parts[-1].count("]")
        parts = (
            [*parts, piece]
            if whole and parts[-1]
            else [*parts[:-1], parts[-1] + (between if parts[-1] else "") + piece]
        )
    return parts


def words(annotation: str) -> str:
    """Describe an annotation in words."""
    kinds = [kind for kind in alternatives(annotation) if kind != "None"]
    return " or ".join(dict.fromkeys("several of them" if k.startswith(PLURAL) else WORDS.get(k, k) for k in kinds))


def misfit(called: str, name: str, value: Any, annotation: str) -> ArgumentError | DTypeError:
    """Return the error for an argument that does not match its annotation."""
    if annotation.startswith("DType"):
        return DTypeError(f"{called}: {name} is {value!r} ({type(value).__name__}), not {words(annotation)}")
    remedy = "; wrap it: tilegrad.tensor(...)" if annotation.startswith("Tensor") else ""
    return ArgumentError(f"{called}: {name} is {kind_of(value)}, not {words(annotation)}{remedy}")


class Check(NamedTuple):
    """The check of one parameter."""

    fitting: set[type]
    """Classes whose objects all match; integers are checked for range."""
    convert: Callable[[Any, str, str], Any]
    """Converts or refuses an object of another class."""


@cache
def check_of(annotation: str, is_loose: bool, is_made: bool = False) -> Check | None:
    """Return the check for an annotation; None if there is nothing to check."""
    kinds = alternatives(annotation)
    nothing = {type(None)} if "None" in kinds or annotation == "Sizes" else set()
    if annotation in ALONE:
        return Check({int, *nothing}, integer)
    if annotation in SEVERAL:
        return Check({int, *nothing}, partial(integers, gaps=annotation == "Sizes"))
    if "bool" in kinds and set(kinds) <= {"bool", "None"}:
        return Check({bool, *nothing}, loose_flag if is_loose else flag)
    if not any(set(kinds) <= alike for alike in ALIKE):
        return None
    fitting: set[type] = {*nothing, *((float,) if "float" in kinds else ())}

    def compared(given: Any, function: str, name: str) -> Any:
        # arrays stand beside tensors in some functions; others refuse them themselves
        if not fits(given, annotation) and not (isinstance(given, np.ndarray) and "Tensor" in kinds):
            raise misfit(function, name, given, annotation)
        if isinstance(given, Handle) and "Tensor" in kinds:
            fitting.add(given.__class__)
        if isinstance(given, Handle) and "float" in kinds and state.trace is None and not is_made:
            return wrap(given.value).item()  # a number that is computed with, as PyTorch makes one of it
        return given

    return Check(fitting, compared)


def checking_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that its arguments are checked and converted according to its annotations."""
    inner: Any = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    if not isinstance(inner, FunctionType) or "checks_arguments" in function.__dict__:
        return function
    code = inner.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if inner.__module__ in OFTEN and all(inner.__annotations__.get(name) == "Operand" for name in names[1:]):
        return function
    checks = _checks(inner, names)
    takes_tensors = code.co_flags & CO_VARARGS and inner.__annotations__.get(code.co_varnames[len(names)]) == "Tensor"
    called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2].strip("_")
    return _checked(function, code, names, checks, called, bool(takes_tensors))


def _checked(
    function: Callable[..., Any],
    code: CodeType,
    names: tuple[str, ...],
    checks: dict[str, Check],
    called: str,
    takes_tensors: bool,
) -> Callable[..., Any]:
    """Return the function behind the checks of its parameters, and of its variadic tensors."""
    places = [(n, *checks[name], name) for n, name in enumerate(names[: code.co_argcount]) if name in checks]

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        count = len(args)
        for place, fitting, convert, name in places:
            if place >= count:
                break
            given = args[place]
            kind = given.__class__
            if kind not in fitting or (kind is int and not -LARGEST <= given < LARGEST):
                args = (*args[:place], convert(given, called, name), *args[place + 1 :])
        if takes_tensors:
            _require_tensors(args[code.co_argcount :], called, code.co_varnames[len(names)])
        if kwargs:
            _check_named(kwargs, checks, called)
        try:
            return function(*args, **kwargs)
        except TilegradError:
            raise
        except Exception as error:
            explain(error, called, function, args, kwargs)
            raise

    checked.__dict__["checks_arguments"] = True
    return checked


def _check_named(kwargs: dict[str, Any], checks: dict[str, Check], called: str) -> None:
    """Check and convert the arguments that are given by name, in place."""
    for name, given in kwargs.items():
        if name in checks:
            fitting, convert = checks[name]
            kind = given.__class__
            if kind not in fitting or (kind is int and not -LARGEST <= given < LARGEST):
                kwargs[name] = convert(given, called, name)


def _require_tensors(given: tuple[Any, ...], called: str, name: str) -> None:
    for x in given:
        if not isinstance(x, Handle):
            raise misfit(called, name, x, "Tensor")


def _checks(function: FunctionType, names: tuple[str, ...]) -> dict[str, Check]:
    """Return the checks of the parameters of a function."""
    found: dict[str, Check] = {}
    is_made = function.__name__ == "__init__"
    for n, name in enumerate(names):
        annotation = function.__annotations__.get(name)
        takes_self = n == 0 and annotation == "Tensor" and function.__module__.startswith(THEMSELVES)
        if isinstance(annotation, str) and not takes_self and name not in OUT_OF_USE:
            if check := check_of(annotation, is_made or name in LOOSE, is_made):
                found[name] = check
    return found


def publish(space: dict[str, Any], internal: Sequence[str] = (), others: Sequence[str] = ()) -> None:
    """Set `__all__` of a module to the functions that it defines, and wrap them to check their arguments.

    Call it at the end of a module with its `globals()`. Private names and the `internal` functions, which other modules
    of the package use, are left out; `others` are public objects that are no functions.
    """
    for found in space.values():
        while isinstance(found, FunctionType) and not found.__module__:  # it was made by a function of `pointwise`
            found.__module__ = space["__name__"]
            found = getattr(found, "__wrapped__", None)
    wrapped = {
        name: checking_arguments(found)
        for name, found in space.items()
        if name[0] != "_" and isinstance(found, FunctionType) and found.__module__ == space["__name__"]
    }
    space.update(wrapped)
    space["__all__"] = [*others, *(name for name in wrapped if name not in internal)]
    _show_public(space)


def with_checked_constructor(name: str, found: Any) -> Any:
    """Return a public class, with the constructors of it and of its bases wrapped to check their arguments."""
    made: Any
    for made in found.__mro__ if isinstance(found, type) else ():
        if made.__module__.startswith("tilegrad.") and "__init__" in vars(made):
            made.__init__ = checking_arguments(made.__init__)
    return found


def _show_public(space: dict[str, Any]) -> None:
    space["__dir__"] = lambda: [*space["__all__"], *(name for name in space if name.startswith("__"))]


def explain(error: Exception, called: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> None:
    """Raise an error that names the argument that does not match its annotation, if there is one."""
    declared = signature(function)
    try:
        given = declared.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return
    for name, value in _by_name(declared, given):
        annotation = declared.parameters[name].annotation
        if name == "self" and function.__name__ != "__init__":
            annotation = "Tensor"
        if isinstance(annotation, str) and not fits(value, annotation):
            raise misfit(called, name, value, annotation) from None
        if isinstance(error, (OverflowError, IndexError, ValueError)):
            _refuse_large(called, name, value)
        if isinstance(error, IndexError):
            _refuse_axis(called, name, value, (*args, *kwargs.values()))


def _refuse_large(called: str, name: str, value: Any) -> None:
    large = next((x for x in _elements(value) if isinstance(x, int) and abs(x) >= LARGEST), None)
    if large is not None:
        raise ArgumentError(f"{called}: {name} is {kind_of(large)}, which is too large") from None


def _refuse_axis(called: str, name: str, value: Any, given: Sequence[Any]) -> None:
    if name.startswith(("dim", "axis")) and isinstance(value, int):
        axes = next((len(x.value.shape) for x in given if isinstance(x, Handle)), None)
        if axes is not None and not -axes <= value < axes:
            raise AxisError(f"{called}: {name} is {value}, but the tensor has {axes} axes") from None


def _by_name(declared: Any, given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        kind = declared.parameters[name].kind
        if kind is declared.parameters[name].VAR_POSITIONAL:
            yield from ((name, x) for x in value)
        elif kind is not declared.parameters[name].VAR_KEYWORD:
            yield name, value


def _elements(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)
