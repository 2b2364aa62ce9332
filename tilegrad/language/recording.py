"""Record launches in a graph instead of running them: within `jit` and `vmap`, and in the kernels of operators.

A kernel writes in place. In a graph, each tensor that it writes gets a *new* value, as with in-place operators: an
output of the launch that starts from the previous elements (`ops/external_call.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InPlaceError, KernelLaunchError
from ..ir.dtype import bool_, float32, int32, int64
from ..ir.graph import Value
from ..ir.program import Tiles
from ..ir.size import Size, known
from ..ir.tile import Assign, Atomic, Cast, For, Kernel, Literal, Load, Name, Tile, TileParameter
from ..ir.tile_access import statements
from ..ir.tile_rewrite import substitute
from ..lazy import storage as sharing
from ..lazy.handle import Handle, current, mode, state
from ..lazy.layout import layout
from ..lazy.storage import Storage
from ..ops.external_call import TileWork, external_call
from ..ops.tile_code import size_expression
from ..ops.tile_code import size_parameter as size_name
from .arguments import BoundArguments
from .tensors import TensorMemory, refuse_overlap

if TYPE_CHECKING:
    from .kernel import SpecialisedKernel


class PointerTarget(NamedTuple):
    """The target of a pointer argument: the elements of a storage from an offset on."""

    tensor: Any
    storage: Storage
    whole: Value
    offset: int


def record(
    name: str, found: SpecialisedKernel, call: BoundArguments, grid: tuple[Any, ...], stored: frozenset[str]
) -> None:
    """Give the tensors that a launch writes their new values in the graph."""
    given = {p.name: x for p, x in zip(call.parameters, call.given, strict=True)}
    pointed = {p.name: _pointer_target(given[p.name]) for p in found.ir.parameters if p.pointer}
    _check_overlaps(name, pointed, stored)
    written = {p.storage: p for n, p in pointed.items() if n in stored}
    for n, p in pointed.items():
        if n in stored:
            _check_write(name, n, p)
    arguments: list[Value] = []
    place_of: dict[Storage, int] = {}
    for p in pointed.values():
        if p.storage not in place_of and not (p.storage in written and p.whole.provenance.is_uninitialised):
            place_of[p.storage] = len(arguments)
            arguments.append(p.whole)
    starts = [place_of.get(storage) for storage in written]
    numbers = {p.name: given[p.name] for p in found.ir.parameters if not p.pointer}
    kernel, loaded = with_numbers(found.fast, {n: x for n, x in numbers.items() if not isinstance(x, Size)})
    kernel, sizes = with_sizes(kernel, {n: x for n, x in numbers.items() if isinstance(x, Size)})
    names = [p.name for p in kernel.parameters if p.pointer]
    kernel = with_offsets(kernel, {n: p.offset for n, p in pointed.items() if p.offset})
    given_numbers = {f"{n}_at": len(arguments) + place for place, n in enumerate(loaded)}
    arguments += [given[n].value for n in loaded]
    output = {storage: len(arguments) + n for n, storage in enumerate(written)}
    places: list[int] = []
    for n in names:
        storage = pointed[n].storage if n in pointed else None
        places.append(given_numbers[n] if storage is None else output.get(storage, place_of.get(storage, -1)))
    extents = tuple([x if isinstance(x, Tiles) else Tiles(x, 1) for x in grid])
    work = TileWork(kernel, extents, tuple(places), sizes)
    made = external_call(work, arguments, [p.whole.type for p in written.values()], starts)
    for p, value in zip(written.values(), made, strict=True):
        _write(name, p, value)


def _pointer_target(x: Any) -> PointerTarget:
    base = x.base()
    return PointerTarget(x, base.storage, current(base), known(layout(x).offset, {}) if x._moves else 0)


def _check_overlaps(name: str, pointed: dict[str, PointerTarget], stored: frozenset[str]) -> None:
    memories = []
    for parameter, p in pointed.items():
        type = p.tensor._value.type
        span = 1 + sum((n - 1) * s for n, s in zip(type.shape, layout(p.tensor).strides, strict=True))
        memories.append((parameter, TensorMemory(p.storage, p.offset, span if type.count else 0, type.dtype.bytes)))  # type: ignore[arg-type]
    refuse_overlap(name, memories, stored)


def _check_write(name: str, parameter: str, p: PointerTarget) -> None:
    if mode.enabled and not p.tensor.base().hidden and p.whole.tracked:
        raise InPlaceError(
            f"kernel {name} writes to `{parameter}`, which gradients flow through: a kernel has no derivative. Launch "
            "it within `with tilegrad.no_grad():`, on x.detach(), or give it one: tilegrad.op"
        )


def _write(name: str, p: PointerTarget, value: Value) -> None:
    """Replace the value of a tensor; notify views and saved values."""
    base = p.tensor.base()
    if state.trace is not None:
        state.trace.writing(p.tensor, base)
    base.write(sharing.replaced(p.whole, value) if p.whole.tracked else value, name, value)
    if p.tensor.stands_for is not None:
        p.tensor.stands_for.write(p.tensor.value, name)


def with_numbers(kernel: Kernel, numbers: dict[str, Any]) -> tuple[Kernel, list[str]]:
    """Replace numeric parameters of a kernel by constants, or by loads from tensors of one element (named in the
    result).
    """
    loaded = [n for n, x in numbers.items() if isinstance(x, Handle)]
    values: dict[str, Tile] = {}
    parameters: list[TileParameter] = []
    for p in kernel.parameters:
        if p.name in loaded:
            parameters.append(TileParameter(f"{p.name}_at", numbers[p.name]._value.dtype, True))
            values[p.name] = Cast(Load(Name(f"{p.name}_at")), p.dtype)
        elif p.name in numbers:
            literal = Literal(numbers[p.name])
            values[p.name] = literal if p.dtype in (int32, float32, bool_) else Cast(literal, p.dtype)
        else:
            parameters.append(p)
    first = {n: v for n, v in values.items() if n in loaded or n in _assigned(kernel)}
    body = substitute(kernel.body, {n: v for n, v in values.items() if n not in first})
    head = tuple([Assign(n, v) for n, v in first.items()])
    return Kernel(kernel.name, tuple(parameters), (*head, *body), kernel.origin), loaded


def with_sizes(kernel: Kernel, numbers: dict[str, Size]) -> tuple[Kernel, tuple[Size, ...]]:
    """Compute a kernel's numbers from symbolic sizes, which become its last parameters."""
    if not numbers:
        return kernel, ()
    symbols = sorted({symbol for x in numbers.values() for symbol in x.names()})
    taken = {p.name for p in kernel.parameters} | _assigned(kernel)
    if taken & set(map(size_name, symbols)):
        raise KernelLaunchError(f"kernel {kernel.name} has a variable named like a size: {' '.join(sorted(taken))}")
    kinds = {p.name: p.dtype for p in kernel.parameters}
    head = tuple([Assign(n, Cast(size_expression(x), kinds[n])) for n, x in numbers.items()])
    kept = tuple([p for p in kernel.parameters if p.name not in numbers])
    parameters = (*kept, *[TileParameter(size_name(symbol), int64, False) for symbol in symbols])
    made = Kernel(kernel.name, parameters, (*head, *kernel.body), kernel.origin)
    return made, tuple(map(Size.named, symbols))


def with_offsets(kernel: Kernel, offsets: dict[str, int]) -> Kernel:
    """Offset a kernel's pointers, and copy parameters that it assigns."""
    assigned = _assigned(kernel)
    names = {p.name: f"{p.name}_given" if p.name in assigned else p.name for p in kernel.parameters}
    starts = {p.name: Name(names[p.name]) + offset if (offset := offsets.get(p.name)) else Name(names[p.name])
              for p in kernel.parameters}  # fmt: skip
    head = tuple([Assign(n, starts[n]) for n in names if n in assigned])
    body = substitute(kernel.body, {n: starts[n] for n in offsets if n not in assigned})
    parameters = tuple([TileParameter(names[p.name], p.dtype, p.pointer) for p in kernel.parameters])
    return Kernel(kernel.name, parameters, (*head, *body), kernel.origin)


def _assigned(kernel: Kernel) -> set[str]:
    """Return the variables that a kernel assigns."""
    every = list(statements(kernel.body))
    return {s.name for s in every if isinstance(s, Assign | Atomic)} | {s.index for s in every if isinstance(s, For)}


def not_in_a_launch(name: str, how: str) -> KernelLaunchError:
    """Return the error for `k.check` and `k.race` while launches are recorded."""
    return KernelLaunchError(
        f"kernel {name}: `{how}` runs now, on elements, and within jit, vmap and operators there are none yet: call it "
        "outside of them"
    )
