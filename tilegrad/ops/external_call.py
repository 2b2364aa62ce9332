"""Calls of external work as values: kernels of users, functions in C, functions in Python on arrays.

Each output of a call is a value; outputs of one call are siblings with the same work and arguments and another `place`.
`starts` names for an output the argument that the work updates in place: both share memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

from ..errors import KernelLaunchError
from ..ir.graph import TensorType, Value
from ..ir.node import Structure, amend
from ..ir.program import Tiles
from ..ir.size import Dim
from ..ir.tile import Kernel
from ..runtime.external_work import Each
from .broadcasting import expand
from .opaque import Opaque
from .tile_code import TileCode, repeat_kernel


class TileWork(Structure):
    """A tile kernel with its grid. `places` maps each pointer to an argument or, behind these, to an output."""

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
        """Key of the work, the same in all processes."""
        rest = [str(x) for x in (self.grid, self.places, self.sizes, self.label, self.kernel.origin)]
        return " ".join([self.kernel.digest(), *rest])

    def __str__(self) -> str:
        return self.name

    def each(self, batched_call: Sequence[bool], types: Sequence[TensorType], entries: Dim) -> TileWork:
        """Apply the work to each entry of the leading axis of mapped tensors; `types` are those of one entry."""
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
    """One output of an external call."""

    external: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False
    arguments: tuple[Value, ...]
    work: Any
    results: tuple[TensorType, ...]
    starts: tuple[int | None, ...]
    place: int = 0

    def infer(self) -> TensorType:
        amend(self, op=self.work.name)
        return self.results[self.place]

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,) * len(self.arguments)

    def reference(self, *arrays: Any) -> Any:
        raise AssertionError(f"{self.op} is given by its code alone")

    def kernel(self) -> TileCode:
        raise AssertionError(f"{self.op} is one of several outputs: see schedule/external_calls.py")

    def sibling(self, place: int) -> ExternalCall:
        """Return another output of the same call."""
        return self if place == self.place else self.replaced(place=place)

    @property
    def call(self) -> tuple[Any, ...]:
        """Key of the call that siblings share."""
        return (self.work, self.arguments, self.results, self.starts)

    def overwrites(self, old: Value) -> bool:
        """Return whether the output may reuse the memory of an argument: it updates that argument, and no other output
        does.
        """
        start = self.starts[self.place]
        return start is not None and self.arguments[start] is old and self.arguments.count(old) == 1

    def __str__(self) -> str:
        return self.op if len(self.results) == 1 else f"{self.op}[{self.place}]"


def external_call(
    work: Any, inputs: Sequence[Value], outputs: Sequence[TensorType], starts: Sequence[int | None] = ()
) -> list[Value]:
    """Return the outputs of a call of external work. `starts` gives the input that an output updates, if any."""
    begins = tuple(starts) or (None,) * len(outputs)
    return [ExternalCall(tuple(inputs), work, tuple(outputs), begins, place) for place in range(len(outputs))]


def batched_call(value: ExternalCall, inputs: Sequence[Value], flags: Sequence[bool]) -> Value:
    """Apply the call to each entry of the leading axis of mapped inputs."""
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
