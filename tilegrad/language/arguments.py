"""Bind the arguments of a launch: compile-time constants, and the memory behind each parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..errors import DeviceError, KernelLaunchError
from ..ir.dtype import DType, bool_, float32, float64, int32, int64, uint64
from ..ir.program import Tiles
from ..ir.size import Size
from ..ir.tile import TileParameter
from ..jitted.function import Jitted
from ..lazy.handle import Handle
from ..lazy.layout import in_memory_order, layout
from ..tiles.read.scope import TileFunction
from ..tiles.read.values import constexpr
from .flatten_arguments import expands, flatten

IGNORED_OPTIONS = frozenset(
    "num_warps num_stages num_ctas maxnreg enable_fp_fusion launch_cooperative_grid launch_pdl waves_per_eu "
    "matrix_instr_nonkdim debug grf_mode".split()
)
"""Launch options for Triton's compiler; accepted and ignored, because tilegrad chooses these itself."""
MAX_PROGRAMS = 2**31 - 1
"""Largest number of programs along one axis of the grid, and in the whole grid."""


class BoundArguments(NamedTuple):
    """The bound arguments of a launch: `constants` are known at compile time, `given` are passed at run time."""

    constants: dict[str, Any]
    parameters: tuple[TileParameter, ...]
    given: tuple[Any, ...]
    named: dict[str, Any]
    same: dict[str, str]
    """Parameters whose tensor an earlier parameter also has; the kernel uses the earlier one for both."""
    key: tuple[Any, ...]
    several: dict[str, Any]
    """Layouts of arguments that expand into several parameters, by name."""


def bind_arguments(kernel: TileFunction, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> BoundArguments:
    """Bind arguments to parameter names and separate compile-time constants from run-time arguments."""
    names = kernel.signature.parameters
    options = {name: value for name, value in kwargs.items() if name not in IGNORED_OPTIONS or name in names}
    try:
        found = kernel.signature.bind(*args, **options)
    except TypeError as error:
        raise KernelLaunchError(f"kernel {kernel.fn.__name__}: {error}; it takes {kernel.shown_signature}") from None
    found.apply_defaults()
    constants: dict[str, Any] = {}
    parameters: list[TileParameter] = []
    given: list[Any] = []
    several: dict[str, Any] = {}
    single: list[tuple[str, Any]] = []
    for name, value in found.arguments.items():
        if kernel.is_static(name):
            constants[name] = static(kernel, name, python_number(value))
        elif expands(value):
            several[name] = flatten(name, value, single)
        else:
            single.append((name, python_number(value)))
    for name, value in single:
        made = parameter_for(kernel, name, value)
        if made is None:
            constants[name] = value
        else:
            parameters.append(made)
            given.append(in_memory_order(value) if isinstance(value, Handle) else value)
    same = aliases(parameters, given)
    fixed = tuple([(n, type(v), v) for n, v in constants.items()])
    key = (tuple([id(p) for p in parameters]), fixed, tuple(same.items()), tuple(several.items()))
    return BoundArguments(constants, tuple(parameters), tuple(given), dict(found.arguments), same, key, several)


def aliases(parameters: Sequence[TileParameter], given: Sequence[Any]) -> dict[str, str]:
    """Map each parameter to the earlier parameter that has the same tensor."""
    first: dict[tuple[int, Any], str] = {}
    same: dict[str, str] = {}
    for p, x in zip(parameters, given, strict=True):
        if isinstance(x, Handle) and p.pointer:
            place = (id(x), 0) if x._base is None else (id(x._base.storage), layout(x).offset if x._moves else 0)
            if first.setdefault(place, p.name) != p.name:
                same[p.name] = first[place]
    return same


_parameters: dict[tuple[str, str, bool], TileParameter] = {}


def interned_parameter(name: str, dtype: DType, pointer: bool = True) -> TileParameter:
    """Return the parameter of this name and type, interned so that launches compare it by identity."""
    found = _parameters.get((name, dtype.short, pointer))
    if found is None:
        found = _parameters.setdefault((name, dtype.short, pointer), TileParameter(name, dtype, pointer))
    return found


def python_number(value: Any) -> Any:
    """Convert numpy numbers to Python numbers and unwrap `constexpr`."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Jitted):
        return value.tile_kernel
    return value.value if isinstance(value, constexpr) else value


def static(kernel: TileFunction, name: str, value: Any) -> Any:
    if isinstance(value, Handle):
        raise KernelLaunchError(
            f"kernel {kernel.fn.__name__}: `{name}` is a constexpr, and a tensor of {value._value.type} was given: a "
            "constant is a number, a type, a text, None or a tuple of these"
        )
    if isinstance(value, Size):
        raise KernelLaunchError(
            f"kernel {kernel.fn.__name__}: `{name}` is a constexpr, and {value} varies from call to call: there is one "
            "compiled kernel for each value of a constant"
        )
    if isinstance(value, list):
        value = tuple(value)
    try:
        hash(value)
    except TypeError:
        raise KernelLaunchError(
            f"kernel {kernel.fn.__name__}: `{name}` is a constexpr, and {type(value).__name__} is none: a constant is "
            "a number, a type, a text, None or a tuple of these"
        ) from None
    return value


def parameter_for(kernel: TileFunction, name: str, value: Any) -> TileParameter | None:
    """Return the tile kernel's parameter for an argument, or None if the argument becomes a constant."""
    annotation = kernel.signature.parameters[name].annotation if name in kernel.signature.parameters else None
    declared = annotation if isinstance(annotation, DType) else None
    if isinstance(value, Handle) and not is_varying_number(value):
        return interned_parameter(name, value._value.type.dtype)
    if value is None or isinstance(value, str | DType | TileFunction | tuple):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and declared is None and value == 1:
        return None  # a stride of 1 must be known
    if isinstance(value, Handle | Size | bool | int | float):
        dtype = _number_dtype(value, declared)
        if dtype is None:
            raise KernelLaunchError(f"kernel {kernel.fn.__name__}: `{name}` is {value}, which does not fit in 64 bits")
        return interned_parameter(name, dtype, False)
    remedy = "tilegrad.tensor(x), or tilegrad.from_dlpack(x) for what another library holds" if hasattr(
        value, "__array__"
    ) else "a kernel takes tensors and numbers"  # fmt: skip
    raise KernelLaunchError(f"kernel {kernel.fn.__name__}: `{name}` is {type(value).__name__}: {remedy}")


def _number_dtype(value: Any, declared: DType | None) -> DType | None:
    """Return the dtype of a numeric parameter, or None if the number does not fit in 64 bits."""
    if isinstance(value, Handle):
        return declared or (int32 if value._value.dtype.is_integer else float32)
    if isinstance(value, Size):  # a single axis is below 2**31
        return int32 if list(value.terms.items()) == [((*value.names(),), 1)] else int64
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return declared or next((d for d in (int32, int64, uint64) if d.min <= value <= d.max), None)
    return declared if declared in (float32, float64) else float32


def is_varying_number(x: Any) -> bool:
    """Whether a tensor stands for a Python number that varies between calls of a jitted function."""
    return isinstance(x, Handle) and x._value.provenance.is_number


def grid_of(kernel: TileFunction, grid: Any, meta: Mapping[str, Any]) -> tuple[Any, ...]:
    """Evaluate the grid of a launch, up to three axes; `Tiles` if an axis is symbolic while tracing."""
    name = kernel.fn.__name__
    try:
        found = grid(dict(meta)) if callable(grid) else grid
    except KeyError as missing:
        raise KernelLaunchError(f"kernel {name}: its grid asks for {missing}; there are {', '.join(meta)}") from None
    extents = tuple(found) if isinstance(found, tuple | list) else (found,)
    if not 1 <= len(extents) <= 3:
        raise KernelLaunchError(f"kernel {name}: a grid has one to three axes, and this has {len(extents)}: {found!r}")
    numbers: list[Any] = [_grid_extent(name, extent) for extent in extents]
    if all(isinstance(n, int) for n in numbers) and prod(numbers) > MAX_PROGRAMS:
        raise KernelLaunchError(
            f"kernel {name}: a grid of {' x '.join(map(str, numbers))} is {prod(numbers)} programs, and a launch has "
            f"at most {MAX_PROGRAMS}: let each do more, with a loop over tl.num_programs(0)"
        )
    return tuple(numbers)


def _grid_extent(name: str, extent: Any) -> int | Tiles:
    """Return the number of programs along an axis of the grid."""
    if isinstance(extent, Size | Tiles):
        return extent if isinstance(extent, Tiles) else Tiles(extent, 1)
    if isinstance(extent, bool) or not isinstance(extent, int | np.integer):
        raise KernelLaunchError(
            f"kernel {name}: a grid is made of whole numbers, or is a function that gives them, and this has "
            f"{extent!r}; tilegrad.cdiv(n, BLOCK) rounds up"
        )
    if not 0 <= extent <= MAX_PROGRAMS:
        raise KernelLaunchError(
            f"kernel {name}: {extent} programs along an axis of the grid; 0 to {MAX_PROGRAMS} are possible"
        )
    return int(extent)


def device_of(kernel: TileFunction, given: Sequence[Any]) -> str:
    """Return the device that all tensors of the launch are on, or refuse a mix."""
    tensors = [x for x in given if isinstance(x, Handle) and not is_varying_number(x)]
    places = {x._value.type.device: n for n, x in enumerate(tensors)}
    if len(places) > 1:
        raise DeviceError(
            f"kernel {kernel.fn.__name__}: its tensors are on {' and '.join(places)}: bring them to one device with "
            ".to(...)"
        )
    return next(iter(places), "cpu")
