"""The elements of signatures, and matching the tensors of a call against them (`signature.py` parses)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from ..errors import ArgumentError, DeviceError, DTypeError, ShapeError
from ..ir.dtype import DType
from ..ir.graph import TensorType
from ..ir.node import Structure
from ..ir.size import Dim, Shape, Size
from ..ops.broadcasting import shown


class DtypeVariable(Structure):
    """A dtype variable."""

    name: str

    def admits(self, dtype: DType) -> bool:
        """Whether it can stand for a dtype."""
        kind = self.name[0]
        return dtype.is_float if kind == "F" else dtype.is_integer if kind == "I" else True

    @property
    def meaning(self) -> str:
        return {"F": "a floating dtype", "I": "an integer dtype"}.get(self.name[0], "any dtype")

    def __str__(self) -> str:
        return self.name


class AxisGroup(Structure):
    """Any number of axes: `*name`."""

    name: str

    def __str__(self) -> str:
        return f"*{self.name}"


class ComputedExtent(Structure):
    """A computed extent."""

    operator: str
    left: Extent
    right: Extent

    def __str__(self) -> str:
        left, right = (f"({x})" if isinstance(x, ComputedExtent) else str(x) for x in (self.left, self.right))
        return f"{left} {self.operator} {right}"


Extent = int | str | ComputedExtent
Axis = AxisGroup | Extent


class TensorPattern(Structure):
    """The type pattern of a tensor parameter or result."""

    dtype: DType | DtypeVariable
    axes: tuple[Axis, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.axes))}]"


class ScalarPattern(Structure):
    """A Python number."""

    dtype: DType

    def __str__(self) -> str:
        return self.dtype.name


class SignatureParameter(Structure):
    """A named parameter or result; numbers may have a default."""

    name: str
    type: TensorPattern | ScalarPattern
    default: float | int | None = None

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.type, TensorPattern)

    def __str__(self) -> str:
        return f"{self.name}: {self.type}" + ("" if self.default is None else f" = {self.default}")


class SignatureMatch(NamedTuple):
    """The bindings of a signature's names in one call."""

    sizes: Mapping[str, Dim]
    groups: Mapping[str, Shape]
    dtypes: Mapping[str, DType]
    device: str
    numbers: tuple[float | int, ...]

    def dtype(self, of: DType | DtypeVariable) -> DType:
        """Return the dtype of a pattern."""
        return of if isinstance(of, DType) else self.dtypes[of.name]


class Signature(Structure):
    """A parsed signature; `results` is empty if it returns nothing or results of its own making (`open`)."""

    name: str
    parameters: tuple[SignatureParameter, ...]
    results: tuple[SignatureParameter, ...]
    open: str = ""
    """`Tensor` or `list`: the function creates its results itself."""
    doc: str = ""

    OPEN: ClassVar[tuple[str, ...]] = ("Tensor", "list")

    @property
    def tensors(self) -> tuple[SignatureParameter, ...]:
        return tuple([p for p in self.parameters if p.is_tensor])

    @property
    def scalar_types(self) -> tuple[DType, ...]:
        """Types of the numbers, in order."""
        return tuple([p.type.dtype for p in self.parameters if isinstance(p.type, ScalarPattern)])

    @property
    def scalars(self) -> tuple[SignatureParameter, ...]:
        return tuple([p for p in self.parameters if not p.is_tensor])

    def __str__(self) -> str:
        taken = ", ".join(map(str, self.parameters))
        if self.open or not self.results:
            given = self.open or "None"
        elif len(self.results) == 1 and self.results[0].name == DEFAULT_RESULT:
            given = str(self.results[0].type)
        else:
            given = f"({', '.join(map(str, self.results))})"
        return f"{self.name}({taken}) -> {given}"

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], tuple[float | int, ...]]:
        """Return the tensors and numbers of a call in parameter order."""
        tensors, numbers = [], []
        for p, value in zip(self.parameters, self.by_name(args, kwargs, str(self)), strict=True):
            if value is None:
                raise ArgumentError(f"{self.name}: `{p.name}` is missing: {self}")
            if isinstance(p.type, TensorPattern):
                tensors.append(value)
            else:
                numbers.append(as_number(value, p.type.dtype, self.name, p.name))
        return tensors, tuple(numbers)

    def by_name(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], text: str, optional: Collection[str] = ()
    ) -> list[Any]:
        """Return the arguments of a call in parameter order, with defaults; None for `optional` ones that are left
        out. Errors show the signature as `text`.
        """
        names = [p.name for p in self.parameters]
        if len(args) > len(names):
            raise ArgumentError(f"{self.name} takes {len(names)} arguments, not {len(args)}: {text}")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                raise ArgumentError(f"{self.name}: `{name}` is given twice: {text}")
            if name not in names:
                raise ArgumentError(f"{self.name} has no argument `{name}`: {text}")
            given[name] = value
        for p in self.parameters:
            if p.name not in given and p.default is None and p.name not in optional:
                raise ArgumentError(f"{self.name}: `{p.name}` is missing: {text}")
        return [given.get(p.name, p.default) for p in self.parameters]

    def match(self, types: Sequence[TensorType], numbers: Sequence[float | int] = ()) -> SignatureMatch:
        """Match tensors and numbers; raises an error that names the argument."""
        tensors = self.tensors
        if len(types) != len(tensors):
            raise ArgumentError(f"{self.name} takes {len(tensors)} tensors, not {len(types)}: {self}")
        found = _Matcher(self.name)
        for p, number in zip(self.scalars, numbers, strict=True):
            if isinstance(number, int):
                found.sizes[p.name] = (number, f"argument `{p.name}`")
        for p, type in zip(tensors, types, strict=True):
            found.tensor(p, type)
        for extent, name, actual, where in found.waiting:
            found.computed(extent, name, actual, where)
        sizes = {name: size for name, (size, _) in found.sizes.items()}
        groups = {name: shape for name, (shape, _) in found.groups.items()}
        dtypes = {name: dtype for name, (dtype, _) in found.dtypes.items()}
        return SignatureMatch(sizes, groups, dtypes, found.device or "cpu", tuple(numbers))

    def outputs(self, match: SignatureMatch) -> tuple[TensorType, ...]:
        """Infer the types of the results."""
        if self.open:
            raise ShapeError(
                f"{self.name} makes its results itself (-> {self.open}), so that their shapes are not known before "
                "it has run: write the shapes in its signature to use it in a graph or under jit"
            )
        made = []
        for p in self.results:
            assert isinstance(p.type, TensorPattern)
            shape: list[Dim] = []
            for axis in p.type.axes:
                if isinstance(axis, AxisGroup):
                    shape.extend(match.groups[axis.name])
                else:
                    shape.append(self._extent(axis, match, p))
            made.append(TensorType(match.dtype(p.type.dtype), tuple(shape), match.device))
        return tuple(made)

    def _extent(self, axis: Extent, match: SignatureMatch, result: SignatureParameter) -> Dim:
        extent = evaluate_extent(axis, match.sizes)
        if isinstance(extent, int) and extent < 0:
            raise ShapeError(f"{self.name}: {axis} is {extent}, which is no extent for `{result.name}`: {self}")
        return extent


DEFAULT_RESULT = "out"
"""Name of a single unnamed result."""


def evaluate_extent(extent: Extent, sizes: Mapping[str, Dim]) -> Dim:
    """Evaluate an extent from the values of its names.

    >>> evaluate_extent(ComputedExtent("//", ComputedExtent("+", "n", 1), 2), {"n": 6})
    3
    """
    if isinstance(extent, int):
        return extent
    if isinstance(extent, str):
        return sizes[extent]
    left, right = evaluate_extent(extent.left, sizes), evaluate_extent(extent.right, sizes)
    match extent.operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    if right == 0:
        raise ShapeError(f"{extent} divides by zero")
    if isinstance(left, int):
        return left // right if isinstance(right, int) else 0 if left == 0 else Size({(): left}) // right
    return left // right


def extent_names(extent: Extent) -> set[str]:
    """Return the names that an extent depends on."""
    if isinstance(extent, ComputedExtent):
        return extent_names(extent.left) | extent_names(extent.right)
    return {extent} if isinstance(extent, str) else set()


class _Matcher:
    """Binds names, one tensor after another."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.sizes: dict[str, tuple[Dim, str]] = {}
        self.groups: dict[str, tuple[Shape, str]] = {}
        self.dtypes: dict[str, tuple[DType, str]] = {}
        self.device = ""
        self.waiting: list[tuple[ComputedExtent, str, Dim, str]] = []

    def tensor(self, p: SignatureParameter, type: TensorType) -> None:
        assert isinstance(p.type, TensorPattern)
        self._dtype(p.name, p.type, type)
        if self.device and type.device != self.device:
            raise DeviceError(
                f"{self.function}: `{p.name}` is on {type.device}, the tensors before it are on {self.device}: move "
                f"it with {p.name}.to({self.device!r})"
            )
        self.device = type.device
        axes, shape = p.type.axes, type.shape
        group = next((n for n, axis in enumerate(axes) if isinstance(axis, AxisGroup)), None)
        fits = len(shape) == len(axes) if group is None else len(shape) >= len(axes) - 1
        where = f"`{p.name}` of shape {shown(shape)}"
        if not fits:
            wanted = f"{len(axes)}" if group is None else f"at least {len(axes) - 1}"
            raise ShapeError(f"{self.function}: {where} has {len(shape)} axes; {p} has {wanted}")
        split = len(shape) - len(axes) + 1
        for n, axis in enumerate(axes):
            if group is not None and n == group:
                self._group(axis, shape[n : n + split], where)
            else:
                place = n if group is None or n < group else n + split - 1
                self._extent(axis, shape[place], p.name, f"axis {place} of {where}")

    def _dtype(self, name: str, pattern: TensorPattern, type: TensorType) -> None:
        wanted = pattern.dtype
        if isinstance(wanted, DType):
            if type.dtype is not wanted:
                raise DTypeError(
                    f"{self.function}: `{name}` is {type.dtype.name} of shape {shown(type.shape)}; the signature "
                    f"says {name}: {pattern}. Convert it with {name}.to(tilegrad.{wanted.name})"
                )
            return
        known = self.dtypes.setdefault(wanted.name, (type.dtype, name))
        if not wanted.admits(type.dtype):
            raise DTypeError(
                f"{self.function}: `{name}` is {type.dtype.name}; {name}: {pattern} takes {wanted.meaning}"
            )
        if known[0] is not type.dtype:
            raise DTypeError(
                f"{self.function}: `{name}` is {type.dtype.name}, and `{known[1]}` is {known[0].name}; both are "
                f"{wanted.name} in the signature: convert one, as in {name}.to(tilegrad.{known[0].name})"
            )

    def _group(self, axis: Any, shape: Shape, where: str) -> None:
        known = self.groups.setdefault(axis.name, (shape, where))
        if known[0] != shape:
            raise ShapeError(
                f"{self.function}: {axis} is {shown(shape)} in {where}, and {shown(known[0])} in {known[1]}"
            )

    def _extent(self, axis: Any, actual: Dim, name: str, where: str) -> None:
        if isinstance(axis, ComputedExtent):
            self.waiting.append((axis, name, actual, where))
        elif isinstance(axis, int):
            if axis != actual:
                raise ShapeError(f"{self.function}: {where} is {actual}; the signature says {axis}")
        else:
            known = self.sizes.setdefault(axis, (actual, where))
            if known[0] != actual:
                raise ShapeError(
                    f"{self.function}: {where} is {axis} = {actual}, but {axis} = {known[0]} by {known[1]}"
                )

    def computed(self, extent: ComputedExtent, name: str, actual: Dim, where: str) -> None:
        """Check a computed extent against the tensor; one that adds a number to a name determines the name."""
        left, right = extent.left, extent.right
        if isinstance(left, str) and left not in self.sizes and isinstance(right, int) and extent.operator in "+-":
            self.sizes[left] = (actual - right if extent.operator == "+" else actual + right, where)
        unknown = extent_names(extent) - set(self.sizes)
        if unknown:
            raise ShapeError(f"{self.function}: {', '.join(sorted(unknown))} in {extent} of `{name}` is given nowhere")
        wanted = evaluate_extent(extent, {n: size for n, (size, _) in self.sizes.items()})
        if wanted != actual:
            raise ShapeError(f"{self.function}: {where} is {actual}; the signature says {extent}, which is {wanted}")


def as_number(value: Any, dtype: DType, function: str, name: str) -> float | int:
    """Convert to a Python number that the dtype can hold."""
    number: Any = value.item() if hasattr(value, "item") and not hasattr(value, "requires_grad") else value
    if isinstance(number, bool | int) and not dtype.is_float:
        if not dtype.min <= int(number) <= dtype.max:
            raise DTypeError(f"{function}: `{name}` = {number} does not fit {dtype.name}: {dtype.min} to {dtype.max}")
        return int(number)
    if isinstance(number, bool | int | float) and dtype.is_float:
        return float(number)
    kind = f"{type(value).__name__} {value!r:.40}"
    raise DTypeError(f"{function}: `{name}` is {kind}; the signature says {name}: {dtype.name}, a Python number")
