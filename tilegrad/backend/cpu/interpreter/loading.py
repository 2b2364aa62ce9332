"""Load block programs: lay out their words in memory, and link the native code of their instructions.

The code of an instruction is compiled when a program of this machine first needs it, and kept in the cache of kernels;
a later process only links it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from math import prod
from typing import TYPE_CHECKING

from ....ir.dtype import DType, bool_, float32, float64
from ....ir.functions import FUNCTIONS
from ....runtime import events
from ....runtime.cache import key, shared, sources
from ....runtime.singletons import lock
from .. import native, objects
from ..build import index_faults
from ..costs import MIN_SPLIT_NS, RELEASE_LOCK_NS
from ..partition import NativeCall, partition
from ..target import target
from ..task_table import ArgumentPatch, TaskTable
from .bytecode import BlockInstruction, BlockProgram, BlockStage, LinearForm
from .instance_order import common_rows, reads_across, row_segments
from .native_functions import is_move, native_function
from .opcodes import GROUP_LANES, Opcode
from .registers import MAX_AXES, MIN_BLOCK_LANES, allocate_registers

if TYPE_CHECKING:
    from ..device import CpuDevice

MAX_BLOCK_LANES = 2048
"""Lanes beyond which a block saves no time: the calls for its instructions cost little already."""
MAX_REGISTER_BYTES = 24 << 10
"""Bytes of a block's registers: with what is read in place they stay in the first cache."""
STAGE_WORDS = 21 + 2 * MAX_AXES
MAX_STRIDED_LANES = 256
"""Lanes of a block that is read across rows: the lines of memory that it needs stay in the caches."""
CHEAP_LANE_NS, EXPENSIVE_LANE_NS, INSTANCE_NS = 0.1, 0.8, 20.0
"""Assumed nanoseconds of an instruction per lane, and of an instance."""
MAX_LISTED_STAGES = 3
"""Stages of a program that are listed behind the words of its first stage."""


_addresses: dict[Opcode, int] = {}
_linked: list[objects.LinkedCode] = []
"""Code of instructions, which stays mapped as long as the process."""
_lock = lock()


def link_opcodes(wanted: Iterable[Opcode]) -> dict[Opcode, int]:
    """Return the addresses of instructions; those that are not linked yet are linked together."""
    missing = [opcode for opcode in dict.fromkeys(wanted) if opcode not in _addresses]
    if missing:
        with _lock:
            missing = [opcode for opcode in missing if opcode not in _addresses]
            if missing:
                code = objects.link([_object(opcode) for opcode in missing], [opcode.name for opcode in missing])
                _linked.append(code)
                _addresses.update({opcode: code.addresses[opcode.name] for opcode in missing})
    return _addresses


def _object(opcode: Opcode) -> bytes:
    """Compile an instruction to an object file, or read it from the disk cache."""
    store, host = shared("kernels"), objects.host()
    made_from = sources("backend/cpu", "ir", "runtime/target_model.py")
    name = key("block instruction", made_from, *host, *target(), objects.version(), opcode.name)
    found = store.read(name)
    if found is None:
        with events.timed("compile", opcode.name, "cpu"):
            from .opcode_code import opcode_ir  # loads the emitters of kernels

            found = objects.compile_object(opcode.name, opcode_ir(opcode, target()), host)
        store.write(name, found)
    return found


class LoadedBlocks:
    """A block program in native memory."""

    def __init__(self, program: BlockProgram, device: CpuDevice) -> None:
        self.program = program
        self._allocate = device.allocate
        link_opcodes(opcode for stage in program.stages for opcode in opcodes_of(stage))
        self._stages = [NativeStage(stage) for stage in program.stages]
        self._memories = program.inputs + 1 + len(program.temporaries)
        is_short = all(stage.nanoseconds < MIN_SPLIT_NS for stage in self._stages)
        table = self._listed() if is_short and self._stages else self._partitioned()
        table.__self__.stages = self._stages  # type: ignore[attr-defined] # as long as there is the function
        self._table = table
        self._checks = any(i.kind == "clamp" for stage in program.stages for i in stage.body)
        self.run = self._run if program.temporaries or self._checks else table
        """Run with the addresses of the inputs and of the output."""

    def _listed(self) -> Callable[..., None]:
        """Return the function that runs all stages on the caller's thread, one after the other."""
        stages = [word for stage in self._stages for word in (stage.words.address, stage.instances)]
        first = self._stages[0]
        at = len(first.words.view) - first.spare
        words = array("q", [len(self._stages), *stages])
        if len(words) <= first.spare:
            place = first.words
        else:
            place, at = native.AlignedWords(len(words)), 0
            first.more = place
        place.view[at : at + len(words)] = words
        return _prototype(self._memories).with_argument(0, place.at(at))

    def _partitioned(self) -> Callable[..., None]:
        """Return the function that runs the stages with all threads."""
        program, memories = self.program, self._memories
        kernel = native_function("run_blocks")
        calls, patches = [], []
        for n, stage in enumerate(self._stages):
            slots = (stage.words.address, *[0] * memories)
            calls.append(NativeCall(f"blocks {n}", kernel, slots, stage.instances, stage.nanoseconds))
            patches += [ArgumentPatch(memory, n, 1 + memory) for memory in stage.memories]
        team = native.team()
        long = sum(call.nanoseconds for call in calls) > RELEASE_LOCK_NS
        rows = common_rows(program)
        segments = row_segments(program, calls, rows, team.threads) if rows else None
        if segments is None:
            segments = partition(calls, team.threads)
        return TaskTable(team, calls, segments, patches, memories, long=long).run

    def _run(self, *addresses: int) -> None:
        memory = [self._allocate(bytes) for bytes in self.program.temporaries]
        self._table(*addresses, *[buffer.address for buffer in memory])
        if self._checks:
            index_faults.look()


@cache
def _prototype(memories: int) -> TaskTable:
    """Return the table of a program of one thread, whose stages are given by its first argument."""
    call = NativeCall("blocks", native_function("run_program"), (0,) * (1 + memories), 1, 0.0)
    patches = [ArgumentPatch(memory, 0, 1 + memory) for memory in range(memories)]
    team = native.team()
    return TaskTable(team, [call], partition([call], 1), patches, memories)


def load(program: BlockProgram, device: CpuDevice) -> Callable[..., None]:
    """Return a function that runs a program: it takes the addresses of the inputs and of the output."""
    return LoadedBlocks(program, device).run


def opcodes_of(stage: BlockStage) -> list[Opcode]:
    found = []
    for i in (*stage.before, *stage.body, *stage.after):
        if i.kind in ("apply", "reduce", "extreme", "scan"):
            found.append(_opcode(i, stage))
    return found


def _opcode(i: BlockInstruction, stage: BlockStage) -> Opcode:
    assert i.source is not None
    return Opcode(i.kind, i.fn, i.source, stage.dtypes[i.result])


def block_lanes(stage: BlockStage) -> int:
    """Choose the lanes of a block: as many as keep the registers in the first cache, and whole groups if possible."""
    in_place = {i.result for i in stage.body if i.kind == "load" and i.form is not None and i.form.steps[-1] == 1}
    size = sum(dtype.bytes for n, dtype in enumerate(stage.dtypes) if n not in in_place)
    lanes = MAX_BLOCK_LANES
    while lanes > MIN_BLOCK_LANES and lanes * size > MAX_REGISTER_BYTES:
        lanes //= 2
    if reads_across(stage):
        lanes = min(lanes, MAX_STRIDED_LANES)
    if stage.lanes > lanes:
        return lanes
    return stage.lanes if stage.lanes < GROUP_LANES else stage.lanes // GROUP_LANES * GROUP_LANES


def narrow_values(stage: BlockStage) -> frozenset[int]:
    """List values of the body of which only the first lane is used."""
    narrow: set[int] = set()
    if any(i.kind == "offset" for i in stage.body):
        wide = {n for i in (*stage.once, *stage.before, *stage.after) for n in (i.result, *i.args)}
        for i in reversed(stage.body):
            if i.kind == "store" or i.result in wide:
                wide.update(() if i.kind == "offset" else i.args)
            else:
                narrow.add(i.result)
    return frozenset(narrow)


class NativeStage:
    """The words of a stage, and what its launch needs."""

    def __init__(self, stage: BlockStage) -> None:
        self.stage = stage
        self.lanes = block_lanes(stage)
        self.registers = allocate_registers(stage, self.lanes)
        self.narrow = narrow_values(stage)
        parts = (stage.once, stage.before, stage.body, stage.after)
        words = [0] * STAGE_WORDS
        bounds = []
        for part in parts:
            start, runs = len(words), list[int]()
            for n, i in enumerate(part):
                runs.append(runs[-1] if n and i.result == part[n - 1].result and i.kind != "store" else len(words))
                in_place = part is stage.body and n > 0 and self._writes_in_place(part[n - 1], i)
                self._append(words, i, runs[n - 1] if in_place else -1)
            bounds.append((start, len(words)))
        table = len(words)
        words += self.registers.offsets
        blocks = 1 if stage.lanes_inside else -(-stage.lanes // self.lanes)
        pieces = stage.pieces or (-1, 0, 0)
        words[8:19] = [len(stage.outer), len(stage.inner), stage.lanes, self.lanes, int(stage.lanes_inside), blocks] + [
            len(stage.dtypes),
            self.registers.bytes,
            *pieces,
        ]
        words[20 : 20 + len(stage.outer)] = stage.outer
        words[20 + MAX_AXES : 20 + MAX_AXES + len(stage.inner)] = stage.inner
        words[STAGE_WORDS - 1] = prod(stage.outer) if reads_across(stage) else 0
        self.spare = 1 + 2 * MAX_LISTED_STAGES
        """Words at the end for a list of the stages of a program."""
        self.more: native.AlignedWords | None = None
        words += [0] * self.spare
        self.words = native.AlignedWords(len(words))
        for n, (begin, end) in enumerate(bounds):
            words[2 * n], words[2 * n + 1] = self.words.at(begin), self.words.at(end)
        words[19] = self.words.at(table)
        self.words.view[:] = array("q", words)
        self.instances = prod(stage.outer) * blocks
        self.nanoseconds = self._estimated()

    @property
    def memories(self) -> list[int]:
        """Numbers of the memories that it reads and writes."""
        stage = self.stage
        return sorted({i.memory for part in (stage.body, stage.after) for i in part if i.memory >= 0})

    def _estimated(self) -> float:
        stage = self.stage
        lanes = prod(stage.outer) * prod(stage.inner) * stage.lanes
        costs = [EXPENSIVE_LANE_NS if _is_expensive(i) else CHEAP_LANE_NS for i in stage.body]
        return lanes * sum(costs) + self.instances * INSTANCE_NS * (1 + len(costs)) * prod(stage.inner)

    def _append(self, words: list[int], i: BlockInstruction, run: int) -> None:
        """Append the words of an instruction; those from `run` on compute what it stores, and can do so in place."""
        if not self._is_flat(i):
            made = self._by_rows(i)
        elif i.kind == "store":
            made = self._storing(words, i, run)
        else:
            made = ENCODERS.get(i.kind, NativeStage._applying)(self, i)
            words += [native_function("first_group"), 2 + len(made)] if i.result in self.narrow else []
        made[1] = len(made)
        words += made

    def _item(self, i: BlockInstruction) -> int:
        """Return the bytes of the elements that an instruction makes or stores."""
        return self.stage.dtypes[i.args[0] if i.kind == "store" else i.result].bytes

    def _constant(self, i: BlockInstruction) -> list[int]:
        function = native_function("constant", 8 * self._item(i))
        return [function, 0, i.result, _bits(i.numbers[0], self.stage.dtypes[i.result])]

    def _check(self, i: BlockInstruction) -> list[int]:
        return [native_function("check"), 0, i.result, i.args[0], 0, _mask(i), int(i.numbers[0])]

    def _clamp(self, i: BlockInstruction) -> list[int]:
        return [native_function("clamp"), 0, i.result, i.args[0], 0, int(i.numbers[0]), int(i.numbers[1])]

    def _applying(self, i: BlockInstruction) -> list[int]:
        return [_addresses[_opcode(i, self.stage)], 0, i.result, *i.args]

    def _is_flat(self, i: BlockInstruction) -> bool:
        """Whether the forms of an instruction step evenly through lanes of two axes."""
        length = self.stage.row_lanes
        forms = [form for form in (i.form, *[guard.form for guard in i.guards]) if form is not None]
        return not length or all(form.steps[-2] == form.steps[-1] * length for form in forms)

    def _by_rows(self, i: BlockInstruction) -> list[int]:
        """Return the words of an instruction that is run for each row of the lanes."""
        assert i.form is not None
        axis = len(i.form.steps) - 2
        if i.kind == "store":
            made = self._moving("store_strided", i, i.args[0])
        else:
            made = ENCODERS[i.kind](self, i, rows=True)
        forms = [i.form, *[guard.form for guard in i.guards]]
        equal = i.kind in ("load", "iota", "offset") and all(form.steps[axis] == 0 for form in forms)
        return [native_function("by_rows"), 0, made[2], self._item(i), axis, self.stage.row_lanes, int(equal), *made]

    def _iota(self, i: BlockInstruction, rows: bool = False) -> list[int]:
        assert i.form is not None
        return [native_function("iota"), 0, i.result, 0, 0, 0, 0, *self._form_words(i.form, 1, rows)]

    def _load(self, i: BlockInstruction, rows: bool = False) -> list[int]:
        assert i.form is not None
        if i.guards:
            return self._guarded(i, rows)
        strided = "strided" if i.form.steps[-1] else "splat"
        return self._moving("locate" if self._is_located(i, rows) else strided, i, i.result, rows)

    def _guarded(self, i: BlockInstruction, rows: bool = False) -> list[int]:
        """Return the words of a read of the lanes that are inside of the guards."""
        made = self._moving("merge" if i.kind == "merge" else "guarded", i, i.result, rows)
        made.append(len(i.guards))
        for form, extent in i.guards:
            own = self._form_words(form, 1, rows)
            made += [2 + len(own), extent, *own]
        return made

    def _offset(self, i: BlockInstruction, rows: bool = False) -> list[int]:
        made = self._moving("locate_offset" if self._is_located(i, rows) else "offset", i, i.result, rows)
        return [*made[:3], i.args[0], _mask(i), *made[5:], made[4]]

    def _gather(self, i: BlockInstruction) -> list[int]:
        made = self._moving("gather", i, i.result, rows=False)
        return [*made[:3], i.args[0], _mask(i), *made[5:]]

    def _is_located(self, i: BlockInstruction, rows: bool) -> bool:
        """Whether an instruction reads lanes that are adjacent in memory: they are used where they are."""
        assert i.form is not None
        return not rows and (i.form.steps[-1] == 1 or (self.stage.lanes == 1 and not self.stage.pieces))

    def _moving(self, name: str, i: BlockInstruction, slot: int, rows: bool = True) -> list[int]:
        """Return the words of an instruction that moves elements between a memory and the register of a value."""
        assert i.form is not None
        item = self._item(i)
        function = native_function(name, 8 * item if is_move(name) else 0)
        words = self._form_words(i.form, item, rows)
        return [function, 0, slot, 0, self.registers.offsets[slot], item, i.memory, *words]

    def _form_words(self, form: LinearForm, item: int, rows: bool) -> list[int]:
        """Return the words of a form; without the step of rows if the lanes step through them."""
        steps = form.steps[:-2] if self.stage.row_lanes and not rows else form.steps[:-1]
        terms = [(axis, step * item) for axis, step in enumerate(steps) if step]
        return [form.start * item, form.steps[-1] * item, len(terms), *[word for term in terms for word in term]]

    def _storing(self, words: list[int], i: BlockInstruction, run: int) -> list[int]:
        """Return the words of a store; instructions from `run` on write to memory themselves, if it is not negative."""
        assert i.form is not None
        (slot,) = i.args
        if i.form.steps[-1] not in (0, 1) and self.stage.lanes > 1:
            return self._moving("store_strided", i, slot, rows=False)
        if run < 0:
            return self._moving("store", i, slot, rows=False)
        place = self._moving("place", i, slot, rows=False)
        place[1] = len(place)
        words[run:run] = place
        return self._moving("put_back", i, slot, rows=False)

    def _writes_in_place(self, before: BlockInstruction, i: BlockInstruction) -> bool:
        """Whether the instruction before a store may write what is stored to memory itself."""
        if i.kind != "store" or before.result != i.args[0] or self.stage.lanes_inside or self._is_kept(before.result):
            return False
        if before.kind in ("load", "offset"):  # one that locates memory has no lanes of its own
            return before.form is not None and (bool(before.guards) or before.form.steps[-1] not in (0, 1))
        return before.kind in ("apply", "merge", "gather")

    def _is_kept(self, value: int) -> bool:
        """Whether a value is used by other lists of instructions than the body, or is an operand of its own."""
        stage = self.stage
        others = (*stage.once, *stage.before, *stage.after)
        return any(value in (i.result, *i.args) for i in others)


ENCODERS: Mapping[str, Callable[..., list[int]]] = {
    "constant": NativeStage._constant,
    "iota": NativeStage._iota,
    "load": NativeStage._load,
    "merge": NativeStage._guarded,
    "offset": NativeStage._offset,
    "gather": NativeStage._gather,
    "check": NativeStage._check,
    "clamp": NativeStage._clamp,
}
"""Words of an instruction by its kind; other kinds have native functions of their own."""


def _mask(i: BlockInstruction) -> int:
    """Return the value that says which lanes are read; -1 for all."""
    return i.args[1] if len(i.args) > 1 else -1


def _is_expensive(i: BlockInstruction) -> bool:
    return i.kind in ("gather", "scan") or (i.kind == "apply" and FUNCTIONS[i.fn].expensive)


_FORMATS = {float32: ("<f", "<I"), float64: ("<d", "<q")}


def _bits(value: float, dtype: DType) -> int:
    """Return a number as it is in memory, as a signed word."""
    if dtype in _FORMATS:
        number, word = _FORMATS[dtype]
        try:
            return int(struct.unpack(word, struct.pack(number, value))[0])
        except OverflowError:  # beyond float32
            value = float("inf") if value > 0 else float("-inf")
            return int(struct.unpack(word, struct.pack(number, value))[0])
    if dtype is bool_:
        return int(bool(value))
    if not dtype.is_float:
        return int(value) - (1 << 64) if int(value) >> 63 == 1 else int(value)
    from ....ir.functions import convert

    return int.from_bytes(convert(value, dtype).tobytes(), "little")
