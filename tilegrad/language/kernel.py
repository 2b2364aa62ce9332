"""Functions marked `@tilegrad.kernel`: specialise them for argument types, compile and launch them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..config import settings
from ..errors import KernelError
from ..ir.tile import Kernel, Name, TileParameter
from ..ir.tile_access import Accesses, accesses
from ..ir.tile_types import TileType
from ..jitted.function import kernels
from ..lazy.bounded_recording import is_recorded
from ..lazy.handle import Handle, mode
from ..runtime.bounds import limit
from ..runtime.device import device
from ..runtime.executable import CompiledKernel
from ..runtime.singletons import lock
from ..tiles.pipeline import run_passes
from ..tiles.pointers import Unsupported
from ..tiles.read.reader import ReadKernel, read_kernel
from ..tiles.read.scope import TileFunction
from ..tiles.read.values import SymbolicTile
from .arguments import BoundArguments, bind_arguments, device_of, grid_of
from .checking import check as run_checked
from .checking import race as run_in_orders
from .dlpack import DlpackKernel
from .flatten_arguments import in_kernel
from .generated_code import assembly, source
from .instrument import CheckOptions, InstrumentedKernel, instrument
from .launch_cache import CallForm, call_form, is_simple
from .measuring import seconds_of
from .past_launch import PastLaunch, TensorRecord, record_argument
from .recording import not_in_a_launch, record
from .report import KernelReport, report
from .tensors import (
    TensorMemory,
    all_memory,
    memory_of,
    refuse_addresses,
    refuse_overlap,
    stops_gradients,
    unwritten,
    writing,
)

_reading = lock()


class SpecialisedKernel:
    """A kernel specialised for certain types and constants."""

    def __init__(self, made: ReadKernel, parameters: tuple[TileParameter, ...], owner: KernelFunction) -> None:
        self.read = made
        self.ir: Kernel = made.kernel
        """The tile kernel; print it to see its text."""
        self.parameters = parameters
        self.accesses: Accesses = accesses(made.kernel, made.types)
        self.compiled: dict[str, CompiledKernel] = {}
        self.watched: dict[CheckOptions, tuple[InstrumentedKernel, CompiledKernel] | None] = {}
        self.last: PastLaunch | None = None
        self.owner = owner
        self._fast: Kernel | None = None

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """Launch the compiled kernel: `compiled[grid](...)`."""
        return self.owner[grid]

    @property
    def fast(self) -> Kernel:
        """The tile kernel as backends compile it: loop-carried pointers are split, reductions have names."""
        if self._fast is None:
            self._fast = run_passes(self.ir, "", users=True, types=self.read.types)
        return self._fast

    def checked(self, watch: CheckOptions) -> tuple[InstrumentedKernel, CompiledKernel] | None:
        """Return the instrumented kernel compiled for the CPU, or None if only the interpreter can check it."""
        if watch not in self.watched:
            try:
                made = instrument(self.ir, self.read.types, watch)
            except Unsupported:
                self.watched[watch] = None
            else:
                self.watched[watch] = (made, device("cpu").compile(made.kernel))
        return self.watched[watch]

    def on(self, place: str) -> CompiledKernel:
        """Compile the kernel for a device."""
        found = self.compiled.get(place)
        if found is None:
            found = self.compiled[place] = device(place).compile(self.fast)
        return found

    def source(self, kind: str = "tile") -> str:
        """Return the kernel as `tile` text or as a backend's source (`llvm`, `cuda`); no GPU is needed."""
        return source(self.ir, self.fast, kind)

    def asm(self, kind: str = "cpu") -> str:
        """Return the assembly: `llvm`, `x86`, `ptx`, `sass`, or that of a device."""
        return assembly(self.fast, kind)

    def report(self, seconds: float | None = None) -> KernelReport:
        """Report the last launch: bytes, operations, the roofline bound on this machine, and occupancy on a GPU."""
        if self.last is None:
            raise KernelError(f"kernel {self.ir.name} has not been launched: what it does depends on the grid")
        given = self.last.by_name()
        types: dict[str, Any] = {name: x.type for name, x in given.items() if isinstance(x, TensorRecord)}
        counted = report(self.ir, self.read.types, self.last.grid, given)
        sizes = {p.name: 0 for p in self.ir.parameters} | {name: int(t.bytes) for name, t in types.items()}
        found = self.accesses
        loaded, stored = (sum(sizes[n] for n in names) for names in (found.loaded, found.stored))
        moved = min(counted.loaded, loaded) + min(counted.stored, stored)
        place = next((t.device for t in types.values()), "cpu")
        least = limit(moved, counted.operations, device(place).limits)
        return counted._replace(least=least, compiled=self.fast, seconds=seconds)

    def is_current(self) -> bool:
        """Whether the constants captured from outside are unchanged."""
        for (_, name), (frame, value) in self.read.captured.items():
            found = frame.outside(name)
            now = getattr(found[0], "value", found[0]) if found is not None else None
            if type(now) is not type(value) or now != value:
                return False
        return True


class RunMode:
    """A mode in which to run a kernel: `k.check[grid](...)`."""

    def __init__(self, target: Launchable, how: str) -> None:
        self.target, self.how = target, how

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: self.target.launch(grid, args, kwargs, self.how)


class Launchable:
    """Base of everything that `[grid](...)` launches."""

    @property
    def kernel(self) -> KernelFunction:
        """The kernel function that is finally launched."""
        raise NotImplementedError

    def launch(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], how: str = "run") -> None:
        raise NotImplementedError

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """Choose the grid: a number, a tuple of up to three, or a function of the arguments by name."""
        return lambda *args, **kwargs: self.launch(grid, args, kwargs)

    @property
    def check(self) -> RunMode:
        """Run with every memory access checked: `k.check[grid](...)`."""
        return RunMode(self, "check")

    @property
    def race(self) -> RunMode:
        """Run the programs in many orders to find data races: `k.race[grid](...)`."""
        return RunMode(self, "race")

    def as_torch(self) -> DlpackKernel:
        """Wrap the kernel for PyTorch or numpy tensors, which it uses in place: `k.as_torch()[grid](x, y, n)`."""
        return DlpackKernel(self.launch)

    @property
    def ir(self) -> Kernel:
        """The tile kernel of the last launch; print it to see its text."""
        return self.kernel.latest().ir

    def source(self, kind: str = "tile") -> str:
        """Return the source of the last launch: `tile`, `llvm` or `cuda`."""
        return self.kernel.latest().source(kind)

    def asm(self, kind: str = "cpu") -> str:
        """Return the assembly of the last launch: `llvm`, `x86`, `ptx`, `sass`, or that of a device."""
        return self.kernel.latest().asm(kind)

    def report(self, measure: bool = False) -> KernelReport:
        """Report the last launch; `measure` times it by more runs and restores the tensors it writes."""
        latest = self.kernel.latest()
        return latest.report(self._seconds(latest) if measure and latest.last is not None else None)

    def _seconds(self, latest: SpecialisedKernel) -> float:
        assert latest.last is not None
        given, grid = latest.last.named(), latest.last.grid
        return seconds_of(lambda: self.kernel.launch(grid, (), given), list(given.values()))


class KernelFunction(TileFunction, Launchable):
    """A function of the tile language: `k[grid](x, y, n, BLOCK=128)` runs it on tensors."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        self.known: dict[tuple[Any, ...], SpecialisedKernel] = {}
        self.forms: dict[tuple[Any, ...], CallForm] = {}
        self.last: SpecialisedKernel | None = None

    @property
    def kernel(self) -> KernelFunction:
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        name = self.fn.__name__
        raise KernelError(
            f"kernel {name} is launched with a grid: {name}[(programs,)](...), or called by other kernels"
        )

    def launch(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], how: str = "run") -> None:
        """Run all programs of a grid."""
        form, values = call_form(self, args, kwargs), (*args, *kwargs.values())
        key = form.key(values) if how == "run" and is_simple() else None
        if key is None or not form.again(self, key, grid, values):
            made = self.launch_anew(grid, args, kwargs, how)
            if key is not None and made is not None:
                form.learn(key, *made)

    def launch_anew(
        self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], how: str
    ) -> tuple[SpecialisedKernel, BoundArguments, CompiledKernel] | None:
        """Launch with arguments that are not in the launch cache; return what a cache entry needs, if the launch simply
        ran.
        """
        call = bind_arguments(self, args, kwargs)
        extents = grid_of(self, grid, call.named)
        place = device_of(self, call.given)
        found = self.specialised(call)
        severs = mode.enabled and stops_gradients(self.fn.__name__, call, found.accesses)
        if is_recorded(call.given):
            refuse_addresses(self.fn.__name__, found.read.hidden, "within jit, vmap and operators")
            self.record(found, call, extents, how)
            return None
        if how != "run":
            refuse_addresses(self.fn.__name__, found.read.hidden, f"in `{how}`")
        elif settings().check and not found.read.hidden:
            how = "race" if "race" in settings().check else "check" if "kernels" in settings().check else how
        found.last = PastLaunch(
            extents, call.constants, call.parameters, tuple(map(record_argument, call.given)), call.several
        )
        if 0 in extents:
            return None
        fresh = unwritten(call)
        stored = self.stored(found, call)
        with writing(self.fn.__name__, call.parameters, call.given, stored, found.accesses.loaded, severs):
            memories = self.arguments(found, call, stored)
            if how == "run":
                buffers = [m.window() if isinstance(m, TensorMemory) else m for m in memories]
                found.on(place)(buffers, extents)
            elif how == "check":
                run_checked(found, memories, extents, fresh)
            else:
                run_in_orders(found, memories, extents)
        return (found, call, found.on(place)) if how == "run" else None

    def record(self, found: SpecialisedKernel, call: BoundArguments, extents: tuple[int, ...], how: str) -> None:
        """Record the launch in a graph."""
        if how != "run":
            raise not_in_a_launch(self.fn.__name__, how)
        if 0 not in extents:
            record(self.fn.__name__, found, call, extents, self.stored(found, call))

    def arguments(self, found: SpecialisedKernel, call: BoundArguments, stored: frozenset[str]) -> list[Any]:
        """Return memory and numbers in the order of the tile kernel's parameters."""
        memories = [
            (p.name, memory_of(x)) for p, x in zip(call.parameters, call.given, strict=True) if isinstance(x, Handle)
        ]
        refuse_overlap(self.fn.__name__, memories, stored)
        by_name: dict[str, TensorMemory] = dict(memories)
        for alias, name in call.same.items():
            by_name[name] = by_name[name].joined(by_name[alias])
        by_name |= {p.name: TensorMemory(all_memory(device_of(self, call.given)), 0, 0, 1) for p in found.read.hidden}
        numbers = {p.name: x for p, x in zip(call.parameters, call.given, strict=True) if not isinstance(x, Handle)}
        return [by_name[p.name] if p.pointer else numbers[p.name] for p in found.ir.parameters]

    def stored(self, found: SpecialisedKernel, call: BoundArguments) -> frozenset[str]:
        """Return the parameters whose tensors the kernel writes."""
        names = found.accesses.stored
        return names if not call.same else names | {alias for alias, name in call.same.items() if name in names}

    def specialised(self, call: BoundArguments) -> SpecialisedKernel:
        """Return the kernel specialised for these arguments; read it again if a captured constant has changed."""
        same = call.same
        with _reading:
            found = self.known.get(call.key)
            if found is None or not found.is_current():
                parameters = tuple([p for p in call.parameters if p.name not in same])
                names = {**call.constants}
                for alias, name in same.items():
                    dtype = next(p.dtype for p in parameters if p.name == name)
                    names[alias] = SymbolicTile(Name(name), TileType(dtype, (), True))
                kinds = {p.name: TileType(p.dtype, (), p.pointer) for p in parameters}
                part = lambda n: names[n] if n in names else SymbolicTile(Name(n), kinds[n])  # noqa: E731
                names |= {name: in_kernel(form, part) for name, form in call.several.items()}
                found = self.known[call.key] = SpecialisedKernel(read_kernel(self, names, parameters), parameters, self)
            self.last = found
        return found

    def compiled(self, *args: Any, grid: Any = None, **kwargs: Any) -> SpecialisedKernel:
        """Compile for some arguments without running; `grid` is accepted, as by Triton's `warmup`."""
        if "grid" in self.signature.parameters:
            kwargs["grid"] = grid
        return self.specialised(bind_arguments(self, args, kwargs))

    warmup = compiled

    def latest(self) -> SpecialisedKernel:
        """Return the specialised kernel launched last."""
        if self.last is None:
            name = self.fn.__name__
            raise KernelError(
                f"kernel {name} has not been read yet, as it depends on the types of its arguments: launch it, or say "
                f"{name}.compiled(...) with the arguments of a launch"
            )
        return self.last

    def __repr__(self) -> str:
        return f"<kernel {self.fn.__name__}{self.shown_signature}>"


kernels.append(KernelFunction)


def kernel(fn: Callable[..., Any] | None = None, **hints: Any) -> Any:
    """Mark a function as a kernel of the tile language.

    >>> import tilegrad as tg
    >>> import tilegrad.language as tl
    """
    if fn is None:
        return kernel
    return KernelFunction(fn)
