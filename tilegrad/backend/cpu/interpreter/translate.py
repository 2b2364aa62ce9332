"""Translate the element rule of an op to a block program.

Each reduction and scan becomes a stage of its own, which stores its results for all values of its free indices in a
temporary; the rest reads them from there. So no stage computes an element twice, and each has one shape of loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ....ir.dtype import DType
from ....ir.graph import Value
from ....ir.position import row_major
from ....ir.scalar import Apply, Expr, Index, Position, Read, Reduce, Scan, facts, free, loops_in, substitute
from ....ir.size import is_static
from .bytecode import BlockProgram, BlockStage
from .forms import NotTranslated, static
from .reductions import store_reduction, store_scan
from .registers import fits
from .stages import StageBuilder, StridedMemory

MAX_TEMPORARY_BYTES = 1 << 30
"""Bytes of a temporary beyond which an expression is not translated."""


def translate(
    dtype: DType, shape: Sequence[int], element: Expr, indices: Sequence[Index], memories: Mapping[Any, StridedMemory]
) -> BlockProgram | None:
    """Translate the element of a tensor at some indices; `memories` tells where the sources of its reads are.

    Return None for what the interpreter does not do.

    >>> from ....ir.dtype import float32
    >>> from ....ir.scalar import reduce
    >>> i, k = Index("i", 4), Index("k", 1000)
    >>> x = StridedMemory(0, (4, 1000), (1000, 1))
    >>> print(translate(float32, (4,), reduce("add", k, Read("x", (i, k), float32)) * 2.0, (i,), {"x": x}))
    for 4:
      v1 = 0.0
      for lanes 1000:
        v0 = m0[i0 * 1000 + lane]
        v1 = reduce add(v0)
      v2 = cast(v1)
      m2[i0] = v2
    for lanes 4:
      v1 = 2.0
      v0 = m2[lane]
      v2 = mul(v0, v1)
      m1[lane] = v2
    """
    if not is_static(shape) or facts(element).symbols:
        return None
    try:
        return _Translation(memories).program(dtype, tuple(shape), element, tuple(indices))
    except NotTranslated:
        return None


def translate_value(value: Value) -> BlockProgram | None:
    """Translate an op whose inputs and result are row-major; the program's inputs are the op's, each once."""
    if value.opaque or value.external or value.user_defined or not is_static(value.shape):
        return None
    sources = tuple(dict.fromkeys(value.inputs))
    if not all(is_static(x.shape) for x in sources):
        return None
    memories = {x: StridedMemory(n, x.shape, row_major(x.shape)) for n, x in enumerate(sources)}  # type: ignore[arg-type]
    indices = tuple([Index(f"i{n}", extent) for n, extent in enumerate(value.shape)])
    return translate(value.dtype, value.shape, value.element(indices, _read), indices, memories)  # type: ignore[arg-type]


def _read(x: Value, position: Position) -> Expr:
    return Read(x, position, x.type.dtype)


class Temporary(NamedTuple):
    """The source of reads of what another stage has stored."""

    number: int


class _Translation:
    """Translates one expression; temporaries and stages are added as they are needed."""

    def __init__(self, memories: Mapping[Any, StridedMemory]) -> None:
        self._memories: dict[Any, StridedMemory] = dict(memories)
        self.inputs = 1 + max((m.number for m in memories.values()), default=-1)
        self.temporaries: list[int] = []
        self.stages: list[BlockStage] = []
        self.stored: dict[Expr, Expr] = {}
        """Reductions and scans, and the reads of their results."""

    def program(
        self, dtype: DType, shape: tuple[int, ...], element: Expr, indices: tuple[Index, ...]
    ) -> BlockProgram | None:
        if 0 not in shape:
            out = StridedMemory(self.inputs, shape, row_major(shape))  # type: ignore[arg-type]
            self._store(element, indices, out)
        program = BlockProgram(self.inputs, tuple(self.temporaries), tuple(self.stages))
        return program if all(map(fits, program.stages)) else None

    def memory(self, source: Any) -> StridedMemory:
        return self._memories[source]

    def _store(self, e: Expr, indices: tuple[Index, ...], out: StridedMemory) -> None:
        """Add the stages that store an element for all values of indices."""
        inner = e.args[0] if isinstance(e, Apply) and e.fn == "cast" else e
        if isinstance(inner, Reduce) and (inner is e or free(inner).issuperset([i for i in indices if i.extent != 1])):
            store_reduction(self, inner, indices, out, (inner.dtype, e.dtype))
        elif isinstance(e, Scan) and isinstance(e.at, Index) and e.at in indices and not free(e.body) & {e.at}:
            store_scan(self, e, [e.index if i is e.at else i for i in indices], out)
        else:
            builder = StageBuilder(self, indices)
            self.stages.append(builder.map_stage(builder.value(e), out))

    def temporary(self, dtype: DType, indices: Sequence[Index]) -> tuple[Temporary, StridedMemory]:
        """Make memory for an element of a dtype for all values of indices."""
        shape = tuple([static(i.extent) for i in indices])
        bytes = prod(shape) * dtype.bytes
        if bytes > MAX_TEMPORARY_BYTES:
            raise NotTranslated
        source = Temporary(len(self.temporaries))
        self.temporaries.append(bytes)
        memory = StridedMemory(self.inputs + 1 + source.number, shape, row_major(shape))  # type: ignore[arg-type]
        self._memories[source] = memory
        return source, memory

    def stored_elsewhere(self, e: Reduce | Scan, order: Sequence[Index]) -> Expr:
        """Store a reduction or scan in a temporary, and return the read of it."""
        key = canonical(e)
        found = self.stored.get(key)
        if found is None:
            if isinstance(e, Reduce):
                own = tuple([i for i in order if i in free(e)])
                source, memory = self.temporary(e.dtype, own)
                store_reduction(self, e, own, memory, (e.dtype,))
                found = Read(source, own, e.dtype)
            else:
                outer = tuple([i for i in order if i in free(e.body) and i is not e.index])
                source, memory = self.temporary(e.dtype, (*outer, e.index))
                store_scan(self, e, (*outer, e.index), memory)
                found = Read(source, (*outer, e.at), e.dtype)
            self.stored[key] = found
        return found


def canonical(e: Reduce | Scan) -> Expr:
    """Rename the index of a loop, so that equal ones that were made apart are one expression.

    >>> from ....ir.dtype import float32
    >>> i, j, k = Index("i", 4), Index("j", 8), Index("k", 8)
    >>> first, second = [Reduce("add", n, Read("x", (i, n), float32), float32) for n in (j, k)]
    >>> canonical(first) is canonical(second)
    True
    """
    index = Index(f"loop{len(loops_in(e))}", e.index.extent)
    if index in facts(e).indices:
        return e
    body = substitute(e.body, {e.index: index})
    return Reduce(e.fn, index, body, e.dtype) if isinstance(e, Reduce) else Scan(e.fn, index, body, e.at, e.dtype)
