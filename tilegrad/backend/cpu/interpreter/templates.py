"""Bind pointwise stages to sizes and strides without translating them again.

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
from ....ir.scalar import Expr, Index
from .. import native
from ..costs import MIN_SPLIT_NS
from ..partition import InstanceRange, NativeCall, ParallelSegment
from ..task_table import ArgumentPatch, TableAddress, TaskTable
from .bytecode import BlockStage
from .instance_order import reads_across
from .loading import INSTANCE_NS, STAGE_WORDS, NativeStage, block_lanes, driver, link_opcodes, opcodes_of
from .opcodes import GROUP_LANES
from .stages import MAX_ROW_LANES, MIN_LANES, StridedMemory
from .translate import translate

PROTOTYPE_LANES = 1_000_003
"""Lanes of a prototype: more than a block has, and no stride is a multiple by chance."""
CHUNKS_PER_THREAD = 4
"""Chunks of a thread, so that others can do the work of one that loses its core."""
MAX_SHORT_ROWS = 1 << 15
"""Elements up to which short rows are blocks of their own."""
MEMORY_WORD, FORM_WORD = 6, 7
"""Words of an instruction that moves elements: the number of its memory, and its linear form."""

MergedAxis: TypeAlias = "tuple[int, tuple[int, ...]]"
"""An extent, and the step of each memory along it."""
ElementOf: TypeAlias = "Callable[[Sequence[Index]], Expr]"


def merged_axes(shape: Sequence[int], strides: Sequence[tuple[int, ...]]) -> list[MergedAxis]:
    """Merge neighbouring axes that all memories, and a row-major result, go through in equal steps.

    >>> merged_axes((4, 5, 6), [(30, 6, 1), (0, 6, 1)])
    [(4, (30, 0, 30)), (30, (1, 1, 1))]
    """
    found: list[MergedAxis] = []
    step = 1
    for n in range(len(shape) - 1, -1, -1):
        extent = shape[n]
        if extent == 1:
            continue
        steps = (*[s[n] for s in strides], step)
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
        costs = native_stage.nanoseconds - native_stage.instances * INSTANCE_NS * (1 + len(stage.body))
        self.lane_ns = costs / (prod(stage.outer) * stage.lanes)
        self.instance_ns = INSTANCE_NS * (1 + len(stage.body))
        self.memories = 1 + max(i.memory for i in stage.body)
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
        kernel = driver().addresses["run_blocks"]
        self.bounds = [n + 2 for n in range(self.table_words) if words[n] == kernel]
        self.image = array("q", words)
        self.terms = self._terms(stage, own.view)

    def _terms(self, stage: BlockStage, words: Sequence[int]) -> list[TermPlace]:
        """Find the words that hold steps of memories."""
        code = driver().addresses
        moves = {address for name, address in code.items() if name.startswith(("locate", "place", "put_back", "sto"))}
        moves |= {address for name, address in code.items() if name.startswith(("splat", "strided"))}
        found, at, rank = [], STAGE_WORDS, len(stage.outer)
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

    def nanoseconds(self, axes: Sequence[MergedAxis]) -> float:
        """Estimate the time of a binding on one thread."""
        rows = prod([extent for extent, _ in axes[:-1]])
        return rows * (axes[-1][0] * self.lane_ns + -(-axes[-1][0] // self.lanes) * self.instance_ns)

    def bind(self, axes: Sequence[MergedAxis]) -> Callable[..., None]:
        """Return the function that runs the stage: it takes the addresses of the memories."""
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
        blocks = -(-extent // lanes)
        at = self.table_words
        view[at + 10], view[at + 11], view[at + 13] = extent, lanes, blocks
        rows = 1
        for axis, (count, _) in enumerate(axes[:-1]):
            view[at + 20 + axis] = count
            rows *= count
        if self.across:
            view[at + STAGE_WORDS - 1] = rows
        instances = rows * blocks
        for n, word in enumerate(self.bounds):
            view[word] = instances * n // self.chunks
            view[word + 1] = instances * (n + 1) // self.chunks
        return native.run_function(TableAddress(self.team, memory, looked_at=self.threads > 1))


def _table(stage: NativeStage, memories: int, threads: int, chunks: int) -> TaskTable:
    """Build the table of the prototype: each lane has an equal number of chunks."""
    call = NativeCall("blocks", driver().addresses["run_blocks"], (stage.words.address, *[0] * memories), chunks, 0.0)
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
    known = (kind, *_access_pattern(axes))
    template = _template((known, 1), dtype, element, axes, 1)
    if template is None:
        return None
    threads = native.team().threads
    if threads > 1 and template.nanoseconds(axes) >= 2 * MIN_SPLIT_NS:
        blocks = prod([extent for extent, _ in axes[:-1]]) * -(-axes[-1][0] // template.lanes)
        if blocks >= CHUNKS_PER_THREAD * threads:
            template = _template((known, threads), dtype, element, axes, threads) or template
    return template.bind(axes)


def _has_template(axes: Sequence[MergedAxis]) -> bool:
    """Whether the lanes of blocks are those of the last axis; blocks of several short rows pay for a translation."""
    extents = [extent for extent, _ in axes]
    if len(axes) == 1 or not extents[-1]:
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


def _template(
    known: object, dtype: DType, element: ElementOf, axes: Sequence[MergedAxis], threads: int
) -> StageTemplate | None:
    if known not in _templates:
        if len(_templates) >= MAX_TEMPLATES:
            del _templates[next(iter(_templates))]
        stage = _prototype(dtype, element, axes)
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
    plain = all(i.kind in ("constant", "load", "apply", "store") and not i.guards for i in (*stage.once, *stage.body))
    if not plain or stage.outer != shape[:-1] or stage.lanes != PROTOTYPE_LANES or stage.row_lanes or stage.before:
        return None
    link_opcodes(opcodes_of(stage))
    return stage
