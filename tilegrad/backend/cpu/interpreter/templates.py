"""Bind stages to sizes and strides without translating them again.

The words of a stage, and of the table that runs it, differ between two shapes in few places: extents, steps of linear
forms, bounds of chunks. A template keeps the words of a prototype as an image; a binding copies the image, moves its
pointers, and writes those places.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple, TypeAlias

from ....ir.dtype import DType
from ....ir.scalar import Expr, Index, Read
from .. import native
from ..costs import MIN_SPLIT_NS
from ..partition import InstanceRange, NativeCall, ParallelSegment
from ..task_table import ArgumentPatch, TableAddress, TaskTable
from .bytecode import BlockStage
from .instance_order import reads_across
from .loading import INSTANCE_NS, STAGE_WORDS, NativeStage, block_lanes, link_opcodes, opcodes_of
from .native_functions import linked_functions, native_function
from .opcodes import GROUP_LANES
from .registers import MAX_AXES
from .stages import MAX_ROW_LANES, MIN_LANES, StridedMemory
from .translate import translate

PROTOTYPE_LANES = 1_000_003
"""Lanes of a prototype: more than a block has, and no stride is a multiple by chance."""
CHUNKS_PER_THREAD = 4
"""Chunks of a thread, so that others can do the work of one that loses its core."""
MAX_SHORT_ROWS = 1 << 15
"""Elements up to which short rows are blocks of their own."""
MAX_SHORT_BLOCKS = 1 << 9
"""The same in rows of any length: running so many blocks takes less time than translating the stage."""
PLAIN_KINDS = ("constant", "load", "apply", "store", "reduce", "extreme", "iota")
MEMORY_WORD, FORM_WORD = 6, 7
"""Words of an instruction that moves elements: the number of its memory, and its linear form."""

MergedAxis: TypeAlias = "tuple[int, tuple[int, ...]]"
"""An extent, and the step of each memory along it."""
ElementOf: TypeAlias = "Callable[[Sequence[Index]], Expr]"


def merged_axes(
    shape: Sequence[int], strides: Sequence[tuple[int, ...]], result: Sequence[int] = ()
) -> list[MergedAxis]:
    """Merge neighbouring axes that all memories, and a result with some strides or a row-major one, go through in equal
    steps.

    >>> merged_axes((4, 5, 6), [(30, 6, 1), (0, 6, 1)])
    [(4, (30, 0, 30)), (30, (1, 1, 1))]
    """
    found: list[MergedAxis] = []
    step = 1
    for n in range(len(shape) - 1, -1, -1):
        extent = shape[n]
        if extent == 1:
            continue
        steps = (*[s[n] for s in strides], result[n] if result else step)
        step *= extent
        if found:
            inner, own = found[-1]
            if all(a == b * inner for a, b in zip(steps, own, strict=True)):
                found[-1] = inner * extent, own
                continue
        found.append((extent, steps))
    found.reverse()
    return found or [(1, (1,) * (len(strides) + 1))]


class TermPlace(NamedTuple):
    """A word that holds the step of a memory along an axis, in elements of `item` bytes."""

    word: int
    memory: int
    axis: int
    item: int


class StageTemplate:
    """The image of a stage and its table: for one kind of steps, one number of axes, one or all threads."""

    def __init__(self, stage: BlockStage, threads: int) -> None:
        self.lanes = block_lanes(stage)
        native_stage = NativeStage(stage)
        self.instance_ns = INSTANCE_NS * (1 + len(stage.body))
        steps = prod(stage.inner)
        costs = native_stage.nanoseconds - native_stage.instances * steps * self.instance_ns
        self.lane_ns = costs / (prod(stage.outer) * steps * stage.lanes)
        self.memories = 1 + max(i.memory for i in (*stage.body, *stage.after))
        self.outer, self.lanes_inside = len(stage.outer), stage.lanes_inside
        self.across = reads_across(stage)
        self.chunks = CHUNKS_PER_THREAD * threads if threads > 1 else 1
        table = _table(native_stage, self.memories, threads, self.chunks)
        self.team, self.threads = table.team, threads
        self.table_words = len(table.words.view)
        own = native_stage.words
        words = [*table.words.view, *own.view]
        homes = ((table.words, 0), (own, self.table_words))
        self.pointers = [
            (n, word - memory.address + first * native.WORD_BYTES)
            for n, word in enumerate(words)
            for memory, first in homes
            if memory.address <= word < memory.at(len(memory.view))
        ]
        kernel = native_function("run_blocks")
        self.bounds = [n + 2 for n in range(self.table_words) if words[n] == kernel]
        self.image = array("q", words)
        self.terms = self._terms(stage, own.view)

    def _terms(self, stage: BlockStage, words: Sequence[int]) -> list[TermPlace]:
        """Find the words that hold steps of memories."""
        code = linked_functions()
        moves = {address for name, address in code.items() if name.startswith(("locate", "place", "put_back", "sto"))}
        moves |= {address for name, address in code.items() if name.startswith(("splat", "strided"))}
        found, at, rank = [], STAGE_WORDS, len(stage.outer) + len(stage.inner)
        end = (words[7] - words[0]) // native.WORD_BYTES + STAGE_WORDS
        while at < end:
            if words[at] in moves:
                memory, form, item = words[at + MEMORY_WORD], at + FORM_WORD, words[at + 5]
                found.append(TermPlace(self.table_words + form + 1, memory, rank, item))
                for k in range(words[form + 2]):
                    term = form + 3 + 2 * k
                    found.append(TermPlace(self.table_words + term + 1, memory, words[term], item))
            at += words[at + 1]
        return found

    def instances(self, axes: Sequence[MergedAxis]) -> int:
        """Count the blocks of a binding, each of which one thread computes."""
        blocks = 1 if self.lanes_inside else -(-axes[-1][0] // self.lanes)
        return prod([extent for extent, _ in axes[: self.outer]]) * blocks

    def nanoseconds(self, axes: Sequence[MergedAxis]) -> float:
        """Estimate the time of a binding on one thread."""
        steps = prod([extent for extent, _ in axes[self.outer : -1]])
        elements = prod([extent for extent, _ in axes])
        return elements * self.lane_ns + self.instances(axes) * steps * self.instance_ns

    def bind(self, axes: Sequence[MergedAxis]) -> Callable[..., None]:
        """Return the function that runs the stage: it takes the addresses of the memories.

        The axes are the outer ones, the inner ones, and that of the lanes.
        """
        memory = native.AlignedWords(len(self.image))
        view = memory.view
        view[:] = self.image
        base = memory.address
        for word, offset in self.pointers:
            view[word] = base + offset
        for word, number, axis, item in self.terms:
            view[word] = axes[axis][1][number] * item
        extent = axes[-1][0]
        lanes = self.lanes
        if extent <= lanes:
            lanes = extent if extent < GROUP_LANES else extent // GROUP_LANES * GROUP_LANES
        blocks = 1 if self.lanes_inside else -(-extent // lanes)
        at = self.table_words
        view[at + 10], view[at + 11], view[at + 13] = extent, lanes, blocks
        rows = 1
        for axis, (count, _) in enumerate(axes[: self.outer]):
            view[at + 20 + axis] = count
            rows *= count
        for axis, (count, _) in enumerate(axes[self.outer : -1]):
            view[at + 20 + MAX_AXES + axis] = count
        if self.across:
            view[at + STAGE_WORDS - 1] = rows
        instances = rows * blocks
        for n, word in enumerate(self.bounds):
            view[word] = instances * n // self.chunks
            view[word + 1] = instances * (n + 1) // self.chunks
        return native.run_function(TableAddress(self.team, memory, looked_at=self.threads > 1))


def _table(stage: NativeStage, memories: int, threads: int, chunks: int) -> TaskTable:
    """Build the table of the prototype: each lane has an equal number of chunks."""
    call = NativeCall("blocks", native_function("run_blocks"), (stage.words.address, *[0] * memories), chunks, 0.0)
    ranges = [[InstanceRange(0, n, n + 1)] for n in range(chunks)]
    each = chunks // threads
    lanes = [ranges[n * each : (n + 1) * each] for n in range(threads)]
    patches = [ArgumentPatch(n, 0, 1 + n) for n in range(memories)]
    return TaskTable(native.team(), [call], [ParallelSegment("blocks", lanes)], patches, memories, long=threads > 1)


_templates: dict[object, StageTemplate | None] = {}
MAX_TEMPLATES = 4096
"""Templates kept for later expressions; the oldest is forgotten first."""


def bind_pointwise(
    kind: object, dtype: DType, element: ElementOf, axes: Sequence[MergedAxis]
) -> Callable[..., None] | None:
    """Return a function that computes a pointwise expression of strided memories, the last of which is the result; None
    if its stage has no template.

    `kind` names the expression; `element` makes it for some indices: a read of memory n has the source n.
    """
    if not _has_template(axes):
        return None
    return bind_stage((kind, *_access_pattern(axes)), lambda: _prototype(dtype, element, axes), axes)


def bind_copy(
    dtype: DType, shape: Sequence[int], strides: tuple[int, ...], result: Sequence[int]
) -> Callable[..., None] | None:
    """Return a function that copies strided elements to a slice of a result; None if rows are too short for it."""
    axes = merged_axes(shape, [strides], result)
    if axes[-1][1][1] != 1:
        return None
    return bind_pointwise(("copy", dtype), dtype, lambda indices: Read(0, tuple(indices), dtype), axes)


def bind_stage(
    known: object, prototype: Callable[[], BlockStage | None], axes: Sequence[MergedAxis]
) -> Callable[..., None] | None:
    """Bind the template of a name to axes, on all threads if that pays; the prototype is made once."""
    template = _template((known, 1), prototype, 1)
    if template is None:
        return None
    threads = native.team().threads
    if threads > 1 and template.nanoseconds(axes) >= 2 * MIN_SPLIT_NS:
        if template.instances(axes) >= CHUNKS_PER_THREAD * threads:
            template = _template((known, threads), prototype, threads) or template
    return template.bind(axes)


def _has_template(axes: Sequence[MergedAxis]) -> bool:
    """Whether the lanes of blocks are those of the last axis; blocks of many short rows pay for a translation."""
    extents = [extent for extent, _ in axes]
    if len(axes) == 1 or not extents[-1] or prod(extents[:-1]) <= MAX_SHORT_BLOCKS:
        return extents[-1] > 0
    return extents[-1] >= MIN_LANES and (extents[-1] >= MAX_ROW_LANES or prod(extents) <= MAX_SHORT_ROWS)


def _access_pattern(axes: Sequence[MergedAxis]) -> tuple[object, ...]:
    """Return what stages of one template have in common besides their expression: which steps are 0 or 1, and whether
    columns are read.
    """
    inner, outer = axes[-1][1], axes[-2][1] if len(axes) > 1 else ()
    steps = tuple([step if step in (0, 1) else 2 for step in inner])
    present = tuple([tuple([step != 0 for step in own]) for _, own in axes[:-1]])
    return steps, present, any(abs(s) > 1 and 0 < abs(o) < abs(s) for o, s in zip(outer, inner, strict=False))


def _template(known: object, prototype: Callable[[], BlockStage | None], threads: int) -> StageTemplate | None:
    if known not in _templates:
        if len(_templates) >= MAX_TEMPLATES:
            del _templates[next(iter(_templates))]
        stage = prototype()
        _templates[known] = None if stage is None else StageTemplate(stage, threads)
    return _templates[known]


def _prototype(dtype: DType, element: ElementOf, axes: Sequence[MergedAxis]) -> BlockStage | None:
    """Translate the expression for many lanes; None if its stage has other loops than over blocks of the last axis."""
    shape = (*[extent for extent, _ in axes[:-1]], PROTOTYPE_LANES)
    indices = [Index(f"i{n}", extent) for n, extent in enumerate(shape)]
    count = len(axes[0][1]) - 1
    memories: Mapping[int, StridedMemory] = {
        n: StridedMemory(n, shape, tuple([own[n] for _, own in axes])) for n in range(count)
    }
    program = translate(dtype, shape, element(indices), indices, memories)
    if program is None or len(program.stages) != 1 or program.temporaries or program.inputs != count:
        return None
    stage = program.stages[0]
    if not is_plain(stage) or stage.outer != shape[:-1] or stage.lanes != PROTOTYPE_LANES or stage.before:
        return None
    link_opcodes(opcodes_of(stage))
    return stage


def is_plain(stage: BlockStage) -> bool:
    """Whether all that depends on sizes in a stage are its extents, and the steps of what it reads and stores."""
    return not (stage.row_lanes or stage.pieces) and all(
        i.kind in PLAIN_KINDS and not i.guards
        for part in (stage.once, stage.before, stage.body, stage.after)
        for i in part
    )
