"""Work from outside as values: kernels of users, functions in C, functions in Python on arrays.

A call has an output or several; each is a value, and those of one call are siblings: the same work, the same arguments,
another `place`. `starts` names for an output the argument from which it starts, if the work only changes a part
of it; the work then finds both in the same memory, and may write there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

from ..errors import KernelLaunchError
from ..ir.graph import TensorType, Value
from ..ir.node import Structure
from ..ir.program import Tiles
from ..ir.size import Dim
from ..ir.tile import Kernel
from ..runtime.external_work import Each
from .broadcasting import expand
from .opaque import Opaque
from .tile_code import TileCode, repeat_kernel


class TileWork(Structure):
    """A tile kernel with its grid. `places` has, for each pointer, which of the arguments and then of the outputs it
    points to."""

    kernel: Kernel
    grid: tuple[Tiles, ...]
    places: tuple[int, ...]
    sizes: tuple[Dim, ...] = ()
    label: str = ""

    @property
    def name(self) -> str:
        return self.label or self.kernel.name

    @property
    def mark(self) -> str:
        """What tells it from other work, the same in all processes."""
        rest = [str(x) for x in (self.grid, self.places, self.sizes, self.label, self.kernel.origin)]
        return " ".join([self.kernel.digest(), *rest])

    def __str__(self) -> str:
        return self.name

    def each(self, batched_call: Sequence[bool], types: Sequence[TensorType], entries: Dim) -> TileWork:
        """The same for each entry of a leading axis of those tensors that are mapped; `types` are those for one
        entry."""
        if len(self.grid) > 2:
            raise KernelLaunchError(
                f"kernel {self.name}: vmap gives its grid one more axis, and it has three already: launch it with a "
                "grid "
                "of two"
            )
        code = TileCode(self.kernel, self.grid, self.sizes)
        made = repeat_kernel(code, [types[n] for n in self.places], [batched_call[n] for n in self.places], entries)
        return TileWork(made.kernel, made.grid, self.places, made.sizes, self.label)


@final
class ExternalCall(Opaque):
    """One output of a call."""

    differentiable: ClassVar[bool] = False
    arguments: tuple[Value, ...]
    work: Any
    results: tuple[TensorType, ...]
    starts: tuple[int | None, ...]
    place: int = 0

    def infer(self) -> TensorType:
        self.__dict__["op"] = self.work.name
        return self.results[self.place]

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,) * len(self.arguments)

    def reference(self, *arrays: Any) -> Any:
        raise AssertionError(f"{self.op} is given by its code alone")

    def kernel(self) -> TileCode:
        raise AssertionError(f"{self.op} is one of several outputs: see schedule/external_calls.py")

    def sibling(self, place: int) -> ExternalCall:
        """Another output of the same call."""
        return self if place == self.place else self.replaced(place=place)

    @property
    def call(self) -> tuple[Any, ...]:
        """What siblings have in common."""
        return (self.work, self.arguments, self.results, self.starts)

    def overwrites(self, old: Value) -> bool:
        """Whether it may be written where one of its arguments is: it starts from that, and so does no other."""
        start = self.starts[self.place]
        return start is not None and self.arguments[start] is old and self.arguments.count(old) == 1

    def __str__(self) -> str:
        return self.op if len(self.results) == 1 else f"{self.op}[{self.place}]"


def external_call(
    work: Any, inputs: Sequence[Value], outputs: Sequence[TensorType], starts: Sequence[int | None] = ()
) -> list[Value]:
    """The outputs of a call of foreign work. `starts` says from which input an output starts, if from any."""
    begins = tuple(starts) or (None,) * len(outputs)
    return [ExternalCall(tuple(inputs), work, tuple(outputs), begins, place) for place in range(len(outputs))]


def batched_call(value: ExternalCall, inputs: Sequence[Value], flags: Sequence[bool]) -> Value:
    """An output of the call done for each entry of the leading axis of those inputs that have it."""
    entries = next(x.shape[0] for x, flag in zip(inputs, flags, strict=True) if flag)
    given, having = list(inputs), list(flags)
    for n in {start for start in value.starts if start is not None and not flags[start]}:
        given[n], having[n] = expand(inputs[n], (entries, *inputs[n].shape)), True
    having += [True] * len(value.results)
    results = [t.with_shape((entries, *t.shape)) for t in value.results]
    if isinstance(value.work, TileWork):
        work: Any = value.work.each(having, [*(x.type for x in value.arguments), *value.results], entries)
    else:
        work = Each(value.work, tuple(having))
    return external_call(work, given, results, value.starts)[value.place]
