"""Bind the arguments of a launch: types and constants that the kernel is read for, tensors and numbers to pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DeviceError, KernelLaunchError
from ..ir.dtype import DType, dtype_named
from ..ir.tile import TileParameter
from ..language.arguments import interned_parameter
from ..lazy.handle import Handle
from ..tiles.read.scope import TileFunction
from ..tiles.read.values import constexpr
from .kinds import UnsupportedCode, element_type, number_kind
from .lanes import LaunchShape, Triple
from .thread_ir import Array

LAUNCH_REMEDIES = {"int": "int32", "float": "float32", "bool": "bool"}


class SimtFunction(TileFunction):
    """A function of the thread language; `simt_role` is `kernel` or `device`."""

    simt_role = ""

    def declared(self, name: str) -> DType | None:
        """Return the type that a parameter is annotated with."""
        said = self.signature.parameters[name].annotation
        if isinstance(said, DType):
            return said
        word = said.split(".")[-1] if isinstance(said, str) else getattr(said, "__name__", "")
        try:
            return dtype_named(LAUNCH_REMEDIES.get(word, word))
        except KeyError:
            return None

    @property
    def shown_signature(self) -> str:
        return str(self.signature).replace(constexpr.__module__, "simt")


class BoundCall(NamedTuple):
    """Arguments by name: `described` are the types and constants the kernel is read for, `given` the tensors and
    numbers.
    """

    described: dict[str, Any]
    given: dict[str, Any]
    key: tuple[Any, ...]

    @property
    def tensors(self) -> dict[str, Handle]:
        return {n: x for n, x in self.given.items() if isinstance(x, Handle)}

    @property
    def numbers(self) -> dict[str, Any]:
        """The numeric arguments, converted to the parameter types."""
        return {
            n: self.described[n].numpy.type(x) for n, x in self.given.items() if isinstance(self.described[n], DType)
        }

    @property
    def parameters(self) -> tuple[TileParameter, ...]:
        return tuple([interned_parameter(n, x._value.type.dtype) for n, x in self.tensors.items()])


def bind_call(function: SimtFunction, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> BoundCall:
    name = function.fn.__name__
    try:
        found = function.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise KernelLaunchError(f"kernel {name}: {error}; it takes {function.shown_signature}") from None
    found.apply_defaults()
    described: dict[str, Any] = {}
    given: dict[str, Any] = {}
    for parameter_name, value in found.arguments.items():
        value = value.item() if isinstance(value, np.generic) else value
        value = value.value if isinstance(value, constexpr) else value
        try:
            described[parameter_name] = describe(function, parameter_name, value)
        except UnsupportedCode as refused:
            raise KernelLaunchError(f"kernel {name}: {refused.reason}") from None
        if not function.is_static(parameter_name):
            given[parameter_name] = value
    key = tuple([(x.dtype if isinstance(x, Array) else x, type(x)) for x in described.values()])
    return BoundCall(described, given, key)


def _check_fits(name: str, value: float, declared: DType) -> None:
    """Refuse a number that the declared dtype of a parameter does not hold."""
    if declared.is_float:
        return
    if isinstance(value, float):
        raise UnsupportedCode(f"`{name}` is {declared.name}, and {value} is given")
    if not declared.min <= value <= declared.max:
        raise UnsupportedCode(f"`{name}` is {declared.name}, in which {value} does not fit")


def describe(function: SimtFunction, name: str, value: Any) -> Any:
    """Describe an argument for reading: an array type, a dtype, or a constant."""
    if function.is_static(name):
        if isinstance(value, list):
            value = tuple(value)
        if not isinstance(value, int | float | DType | tuple | SimtFunction):
            raise UnsupportedCode(
                f"`{name}` is a constexpr, and {type(value).__name__} is none: a number, a type or a device function is"
            )
        return value
    declared = function.declared(name)
    match value:
        case Handle():
            return tensor_described(name, value)
        case bool() | int() | float():
            kind = number_kind(value)
            if declared is None:
                return kind.dtype
            _check_fits(name, value, declared)
            return declared
        case _:
            remedy = (
                "tilegrad.tensor(x), or tilegrad.from_dlpack(x) for what another library holds"
                if hasattr(value, "__array__")
                else "a kernel takes tensors and numbers"
            )
            raise UnsupportedCode(f"`{name}` is {type(value).__name__}: {remedy}")


def tensor_described(name: str, x: Any) -> Array:
    dtype = element_type(x._value.type.dtype, f"`{name}`")
    if not x.is_contiguous():
        raise UnsupportedCode(
            f"`{name}` is a view of shape {tuple(x.shape)} with strides {tuple(x.stride())}: a kernel sees elements "
            f"in a "
            "row; give it .contiguous()"
        )
    return Array(name, dtype, "global")


def launch_shape(function: SimtFunction, configuration: Any) -> LaunchShape:
    """Parse a launch configuration: `[grid, block]` or `[grid, block, shared bytes]`."""
    name = function.fn.__name__
    parts = configuration if isinstance(configuration, tuple) else (configuration,)
    if not 2 <= len(parts) <= 3:
        raise KernelLaunchError(
            f"kernel {name}: a launch has blocks and threads, and perhaps bytes of shared memory, {name}[grid, "
            f"block] or "
            f"{name}[grid, block, bytes]; {len(parts)} {'is' if len(parts) == 1 else 'are'} given"
        )
    shared = parts[2] if len(parts) == 3 else 0
    if not isinstance(shared, int | np.integer) or isinstance(shared, bool):
        raise KernelLaunchError(f"kernel {name}: the bytes of shared memory are a whole number, and not {shared!r}")
    return LaunchShape(extents(name, parts[0], "grid"), extents(name, parts[1], "block"), int(shared))


def extents(name: str, given: Any, what: str) -> Triple:
    parts: Sequence[Any] = given if isinstance(given, tuple | list) else (given,)
    if not 1 <= len(parts) <= 3:
        raise KernelLaunchError(f"kernel {name}: a {what} has one to three axes, and this has {len(parts)}: {given!r}")
    for n in parts:
        if isinstance(n, bool) or not isinstance(n, int | np.integer):
            raise KernelLaunchError(
                f"kernel {name}: a {what} is made of whole numbers, and this has {n!r}; tilegrad.cdiv(n, threads) "
                f"rounds up"
            )
    x, y, z = [int(n) for n in (*parts, 1, 1)][:3]
    return x, y, z


def device_of(function: SimtFunction, call: BoundCall) -> str:
    """Return the device that all tensors are on, or refuse a mix."""
    places = list(dict.fromkeys(x._value.type.device for x in call.tensors.values()))
    if len(places) > 1:
        raise DeviceError(
            f"kernel {function.fn.__name__}: its tensors are on {' and '.join(places)}: bring them to one device "
            f"with .to(...)"
        )
    return places[0] if places else "cpu"
