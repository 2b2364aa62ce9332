"""Simulate a kernel: execute instructions for groups of threads that are at the same one.

In lockstep the group furthest behind runs as a whole, so that warps reconverge after branches and numpy computes for
all blocks of a chunk at once. In a random order a random part of a random group runs for a few instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..ir.node import cache_fact
from . import instructions
from .builtin import WARP
from .counters import Counters
from .deadlock import blocked_error
from .evaluate import EvaluationFault
from .happens_before import RaceTracker
from .lanes import WARP_BARRIER_BITS, Chunk, LaneGroup, LaunchShape
from .limits import Gpu, check_launch
from .memory import ArrayStorage, resident_storage, shared_layout
from .memory_accesses import MemorySimulator
from .thread_ir import Array, Routine
from .warp_functions import warp_result

LOCKSTEP_CHUNK_THREADS = 1 << 16
"""Threads resident at a time in lockstep; their values fit in the cache."""
RANDOM_CHUNK_THREADS = 1 << 12
"""Threads resident at a time in random orders."""
MAX_PENDING_LAUNCHES = 2048
"""Largest number of pending launches by threads, as on a GPU."""
MAX_LAUNCH_DEPTH = 24


class ChildLaunch(NamedTuple):
    """A pending launch by a thread."""

    start: instructions.LaunchInstruction
    shape: LaunchShape
    storages: dict[int, ArrayStorage]
    numbers: dict[str, Any]
    watch: RaceTracker


class BarrierArrivals:
    """Threads waiting at a barrier until all of their block or warp have arrived."""

    def __init__(self, units: int) -> None:
        self.counts = np.zeros(units, np.int64)
        self.index: list[np.ndarray] = []


class ThreadSimulator(MemorySimulator):
    """The simulation of one launch; `order` is None for lockstep."""

    def __init__(
        self,
        routine: Routine,
        shape: LaunchShape,
        storages: dict[int, ArrayStorage],
        numbers: dict[str, Any],
        gpu: Gpu,
        order: np.random.Generator | None = None,
        counters: Counters | None = None,
        depth: int = 0,
        watch: RaceTracker | None = None,
    ) -> None:
        self.code = code_of(routine)
        self.watch = watch or RaceTracker(shape)
        self.shape, self.given, self.numbers, self.gpu, self.order = shape, storages, numbers, gpu, order
        self.counters, self.depth = counters, depth
        self.changes = 0
        self.children: list[ChildLaunch] = []
        _layout, static = shared_layout(self.code.arrays, shape.shared)
        check_launch(gpu, routine.name, shape, static, str(routine.place))
        self.does: dict[type, Callable[[LaneGroup, Any], LaneGroup | None]] = {
            instructions.SetInstruction: self.set,
            instructions.BranchInstruction: self.branch,
            instructions.JumpInstruction: self.jump,
            instructions.LoopBackInstruction: self.loop_back,
            instructions.BarrierInstruction: self.wait,
            instructions.ExchangeInstruction: self.exchange,
            instructions.LaunchInstruction: self.start,
            instructions.AssertInstruction: self.check,
            instructions.EndInstruction: self.end,
            instructions.LoadInstruction: self.continuing(self.load),
            instructions.StoreInstruction: self.continuing(self.save),
            instructions.AtomicInstruction: self.continuing(self.change),
        }

    # --- the launch ------------------------------------------------------------------------------

    def run(self) -> None:
        blocks = np.arange(self.shape.blocks)
        if self.order is not None:
            self.order.shuffle(blocks)
        if self.counters is not None:
            self.counters.blocks += len(blocks)
            self.counters.threads += len(blocks) * self.shape.threads
            self.counters.warps += len(blocks) * -(-self.shape.threads // WARP)
        at = 0
        with np.errstate(all="ignore"):
            while at < len(blocks):
                count = self.resident_blocks()
                self.run_chunk(Chunk(self.shape, blocks[at : at + count]))
                at += count
            self.run_children()

    def resident_blocks(self) -> int:
        """Return how many blocks start together; blocks that wait for others need those resident, as on a GPU."""
        if self.code.waits:
            return self.gpu.resident(self.shape.threads, self.shape.shared + shared_layout(self.code.arrays, 0)[1])
        if self.order is None:
            return max(1, LOCKSTEP_CHUNK_THREADS // self.shape.threads)
        return int(self.order.integers(1, max(1, RANDOM_CHUNK_THREADS // self.shape.threads) + 1))

    def run_chunk(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.storages = self.given | resident_storage(self.code.arrays, chunk, self.watch)
        chunk.values.update(self.numbers)
        self.groups: dict[int, list[np.ndarray | None]] = {0: [None]}
        self.arrivals: dict[int, BarrierArrivals] = {}
        self.parked: list[tuple[LaneGroup, int]] = []
        self.snapshots: dict[int, tuple[np.ndarray, dict[str, np.ndarray]]] = {}
        self.ended = np.full(chunk.count, -1, np.int32)
        while True:
            while self.groups:
                if self.order is None:
                    self.furthest_behind()
                else:
                    self.run_random_group(self.order)
            if not self.resume_waiting():
                break

    def resume_waiting(self) -> bool:
        """Resume threads that wait for a memory change if there was one, or raise a deadlock."""
        ready = [lanes for lanes, seen in self.parked if seen < self.changes]
        if ready:
            self.parked = [(lanes, seen) for lanes, seen in self.parked if seen >= self.changes]
            for lanes in ready:
                self.park(lanes)
            return True
        if self.parked or any(a.counts.any() for a in self.arrivals.values()):
            raise blocked_error(self.code, self.chunk, self.parked, self.arrivals, self.ended, self.shape)
        return False

    # --- scheduling ------------------------------------------------------------------------------

    def park(self, lanes: LaneGroup) -> None:
        if lanes.count:
            self.groups.setdefault(lanes.pc, []).append(lanes.index)

    def resume(self, pc: int) -> LaneGroup:
        """Take all threads at an instruction, sorted."""
        parts = self.groups.pop(pc)
        if len(parts) == 1:
            return LaneGroup(self.chunk, parts[0], pc)
        together = np.sort(np.concatenate([p for p in parts if p is not None]))
        return LaneGroup(self.chunk, None if len(together) == self.chunk.count else together, pc)

    def furthest_behind(self) -> None:
        lanes: LaneGroup | None = self.resume(min(self.groups))
        while lanes is not None:
            lanes = self.step(lanes)
            if lanes is not None and self.groups and lanes.pc >= min(self.groups):
                self.park(lanes)
                return

    def run_random_group(self, order: np.random.Generator) -> None:
        """Run a random part of a random group for a few instructions."""
        waiting = list(self.groups)
        whole = self.resume(waiting[int(order.integers(len(waiting)))])
        index = whole.numbers()
        match int(order.integers(4)):
            case 0:
                chosen = np.zeros(len(index), bool)
                chosen[order.integers(len(index))] = True
            case 1:
                warp = self.chunk.warp[index]
                chosen = warp == warp[order.integers(len(index))]
            case 2:
                chosen = order.random(len(index)) < 0.5
            case _:
                chosen = np.ones(len(index), bool)
        self.park(LaneGroup(self.chunk, index[~chosen], whole.pc))
        some = index[chosen]
        order.shuffle(some)
        lanes: LaneGroup | None = LaneGroup(self.chunk, some, whole.pc)
        for _ in range(int(order.integers(1, 12))):
            if lanes is None or not lanes.count:
                return
            lanes = self.step(lanes)
        if lanes is not None:
            self.park(lanes)

    def step(self, lanes: LaneGroup) -> LaneGroup | None:
        """Execute one instruction; return the threads that continue if they are one group."""
        instruction = self.code.instructions[lanes.pc]
        if self.counters is not None:
            self.counters.instructions += lanes.warps()
        try:
            return self.does[type(instruction)](lanes, instruction)
        except EvaluationFault as trouble:
            raise self.fail(lanes, trouble, trouble.mask, trouble.reason) from None

    def continuing(self, run: Callable[[LaneGroup, Any], None]) -> Callable[[LaneGroup, Any], LaneGroup | None]:
        def done(lanes: LaneGroup, instruction: Any) -> LaneGroup:
            run(lanes, instruction)
            lanes.pc += 1
            return lanes

        return done

    # --- instructions ----------------------------------------------------------------------------

    def set(self, lanes: LaneGroup, one: instructions.SetInstruction) -> LaneGroup:
        lanes.assign(one.name, one.value(lanes), one.dtype)
        lanes.pc += 1
        return lanes

    def branch(self, lanes: LaneGroup, one: instructions.BranchInstruction) -> LaneGroup | None:
        holds = one.condition(lanes)
        if self.counters is not None:
            self.counters.branches += lanes.warps()
        count = lanes.count * bool(holds) if np.ndim(holds) == 0 else int(np.count_nonzero(holds))
        if count == lanes.count:
            lanes.pc += 1
            return lanes
        if count == 0:
            lanes.pc = one.target
            return lanes
        if self.counters is not None:
            rows = lanes.rows(holds.astype(np.int8))
            self.counters.divergent += int(((rows == 1).any(1) & (rows == 0).any(1)).sum())
        self.park(lanes.part(~holds, one.target))
        return lanes.part(holds, lanes.pc + 1)

    def jump(self, lanes: LaneGroup, one: instructions.JumpInstruction) -> LaneGroup:
        lanes.pc = one.target
        return lanes

    def loop_back(self, lanes: LaneGroup, one: instructions.LoopBackInstruction) -> LaneGroup | None:
        """Suspend threads that begin an iteration with unchanged values and memory."""
        found = self.snapshots.get(lanes.pc)
        values = self.chunk.values
        names = [n for n in one.names if n in values]
        if found is None:
            found = self.snapshots[lanes.pc] = (np.full(self.chunk.count, -1, np.int64), {})
        seen, kept = found
        same = lanes.of(seen) == self.changes
        for name in names:
            value = lanes.wide(lanes.variable(name))
            if name not in kept:
                kept[name] = np.zeros(self.chunk.count, value.dtype)
                same = np.zeros(lanes.count, bool)
            before = lanes.of(kept[name])
            same = same & ((before == value) | ((before != before) & (value != value)))
            kept[name][lanes.numbers()] = value
        seen[lanes.numbers()] = self.changes
        if same.any():
            self.parked.append((lanes.part(same, one.target), self.changes))
            lanes = lanes.part(~same)
        lanes.pc = one.target
        return lanes if lanes.count else None

    def wait(self, lanes: LaneGroup, one: instructions.BarrierInstruction) -> LaneGroup | None:
        chunk = self.chunk
        if one.kind == "syncthreads":
            released = self.complete_groups(lanes, chunk.block, np.full(len(chunk.blocks), chunk.threads))
        else:
            released = self.complete_groups(lanes, chunk.warp, chunk.expected())
        if released is None:
            return None
        index = slice(None) if released.index is None else released.index
        self.join_clocks(released, one.kind == "syncthreads")
        if one.kind == "syncthreads":
            chunk.time[index] = ((chunk.time[index] >> WARP_BARRIER_BITS) + 1) << WARP_BARRIER_BITS
            if self.counters is not None:
                self.counters.barriers += released.count // chunk.threads
        else:
            chunk.time[index] += 1
        released.pc += 1
        return released

    def join_clocks(self, lanes: LaneGroup, whole: bool) -> None:
        """Join the happens-before clocks of threads that meet at a barrier."""
        order = self.watch.order
        if not any(order.fresh.values()):
            return
        unit = lanes.of(self.chunk.block if whole else self.chunk.warp)
        threads = lanes.of(self.chunk.unique)
        for one in np.unique(unit):
            some = threads[unit == one].tolist()
            order.met(some, some[0] // self.shape.threads, whole)

    def complete_groups(self, lanes: LaneGroup, unit: np.ndarray, expected: np.ndarray) -> LaneGroup | None:
        """Return the threads whose block or warp is now complete at this instruction."""
        if lanes.index is None:
            return lanes
        arrivals = self.arrivals.setdefault(lanes.pc, BarrierArrivals(len(expected)))
        arrivals.counts += np.bincount(unit[lanes.index], minlength=len(expected))
        arrivals.index.append(lanes.index)
        full = (arrivals.counts >= expected) & (arrivals.counts > 0)
        if not full.any():
            return None
        index = np.concatenate(arrivals.index)
        out = full[unit[index]]
        arrivals.index = [index[~out]]
        arrivals.counts[full] = 0
        released = np.sort(index[out])
        return LaneGroup(self.chunk, None if len(released) == self.chunk.count else released, lanes.pc)

    def exchange(self, lanes: LaneGroup, one: instructions.ExchangeInstruction) -> LaneGroup | None:
        named = ((one.mask >> lanes.of(self.chunk.lane)) & 1).astype(bool)
        if not named.all():
            raise EvaluationFault(
                one.place, ~named, f"{one.how} is reached by a lane that its mask {one.mask:#x} does not name"
            )
        released = self.complete_groups(lanes, self.chunk.warp, self.chunk.expected(one.mask))
        if released is None:
            return None
        released.assign(one.name, warp_result(one, released), one.dtype)
        released.pc += 1
        return released

    def check(self, lanes: LaneGroup, one: instructions.AssertInstruction) -> LaneGroup:
        holds = one.condition(lanes)
        if not np.all(holds):
            raise EvaluationFault(
                one.place, np.logical_not(holds), f"the assertion does not hold: {one.message}".rstrip(": ")
            )
        lanes.pc += 1
        return lanes

    def end(self, lanes: LaneGroup, one: instructions.EndInstruction) -> None:
        self.ended[lanes.numbers()] = lanes.pc

    # --- launches by threads ---------------------------------------------------------------------

    def start(self, lanes: LaneGroup, one: instructions.LaunchInstruction) -> LaneGroup:
        def axes(given: Any) -> list[np.ndarray]:
            return [lanes.wide(f(lanes)) for f in given] + [np.broadcast_to(1, lanes.count)] * (3 - len(given))

        grid, block, shared = axes(one.grid), axes(one.block), lanes.wide(one.shared(lanes))
        if self.depth + 1 >= MAX_LAUNCH_DEPTH:
            raise EvaluationFault(one.place, True, f"launches go {MAX_LAUNCH_DEPTH} deep at most")
        if len(self.children) + lanes.count > MAX_PENDING_LAUNCHES and self.order is None:
            raise EvaluationFault(one.place, True, f"more than {MAX_PENDING_LAUNCHES} launches of threads are pending")
        given = [(p, x) for p, x in zip(one.routine.parameters, one.arguments, strict=True)]
        numbers = {p.name: lanes.wide(x(lanes)) for p, x in given if not isinstance(x, Array)}
        for n in range(lanes.count):
            shape = LaunchShape(
                (int(grid[0][n]), int(grid[1][n]), int(grid[2][n])),
                (int(block[0][n]), int(block[1][n]), int(block[2][n])),
                int(shared[n]),
            )
            storages: dict[int, ArrayStorage] = {}
            watch = self.watch.of(shape)
            for p, x in given:
                if isinstance(p, Array) and isinstance(x, Array):
                    storages[id(p)] = global_storage(self.storage(x), p, one.routine, watch)
            child = ChildLaunch(one, shape, storages, {name: x[n] for name, x in numbers.items()}, watch)
            if self.order is not None and self.order.random() < 0.5:
                self.run_child(child)
            else:
                self.children.append(child)
        self.changes += 1
        lanes.pc += 1
        return lanes

    def run_children(self) -> None:
        if self.order is not None:
            self.order.shuffle(self.children)
        for child in self.children:
            self.run_child(child)
        self.children = []

    def run_child(self, child: ChildLaunch) -> None:
        counters = Counters() if self.counters is not None else None
        made = ThreadSimulator(
            child.start.routine,
            child.shape,
            child.storages,
            child.numbers,
            self.gpu,
            self.order,
            counters,
            self.depth + 1,
            child.watch,
        )
        made.run()
        if self.counters is not None and counters is not None:
            self.counters.add(counters)


def code_of(routine: Routine) -> instructions.InstructionList:
    """Lower a kernel to instructions, once."""
    code: instructions.InstructionList | None = routine.__dict__.get("_code")
    if code is None:
        code = instructions.lower_to_instructions(routine)
        cache_fact(routine, "_code", code)
    return code


def acquires(routine: Routine) -> bool:
    """Whether threads of a kernel or its child launches may synchronise through atomic operations."""
    found, seen = [routine], set[int]()
    while found:
        one = found.pop()
        if code_of(one).acquires:
            return True
        seen.add(id(one))
        launched = [x.routine for x in code_of(one).instructions if isinstance(x, instructions.LaunchInstruction)]
        found += [other for other in launched if id(other) not in seen]
    return False


def global_storage(storage: ArrayStorage, array: Array, routine: Routine, watch: RaceTracker) -> ArrayStorage:
    """Return a global array for a child launch, which sees all earlier stores."""
    made = ArrayStorage(array, storage.data, storage.size, storage.name, storage.first_byte)
    if routine.accessed.get(array.name, frozenset()) & {"store", "atomic"}:
        made.shadow = watch.shadow((array,), len(storage.data), False)
    return made
