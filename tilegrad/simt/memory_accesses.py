"""Simulate memory accesses: bounds and race checks, and counts of transactions in lockstep."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import KernelFault
from .atomics import apply_atomic, modified_elements
from .counters import Counters
from .faults import fault_error, race_error
from .happens_before import FollowedShadow, RestartLaunch
from .instructions import AtomicInstruction, InstructionList, LoadInstruction, StoreInstruction
from .lanes import Chunk, LaneGroup, LaunchShape
from .memory import ArrayStorage
from .races import DataRace, GroupAccess, differs_from
from .thread_ir import Array


class MemorySimulator:
    """The memory part of the machine; `changes` counts the instructions that modified memory."""

    code: InstructionList
    shape: LaunchShape
    counters: Counters | None
    chunk: Chunk
    storages: dict[int, ArrayStorage]
    changes: int

    def storage(self, array: Array) -> ArrayStorage:
        return self.storages[id(array)]

    def access(self, lanes: LaneGroup) -> GroupAccess:
        chunk = self.chunk
        return GroupAccess(lanes.of(chunk.unique), lanes.of(chunk.time), lanes.pc, self.shape.threads)

    def fail(self, lanes: LaneGroup, instruction: Any, mask: Any, reason: str) -> KernelFault:
        """Raise a fault for the first thread of the group in a mask."""
        lane = int(np.argmax(mask)) if np.ndim(mask) else 0
        return self.fail_at(lanes, instruction, lane, reason)

    def fail_at(self, lanes: LaneGroup, instruction: Any, lane: int, reason: str) -> KernelFault:
        return fault_error(self.code.routine.name, instruction.place, self.chunk, int(lanes.numbers()[lane]), reason)

    def race_fault(self, race: DataRace, lanes: LaneGroup, instruction: Any, storage: ArrayStorage) -> KernelFault:
        if self.code.acquires and storage.shadow is not None and not storage.shadow.follows:
            raise RestartLaunch(
                [storage.array, *[x.array for x in self.code.instructions if isinstance(x, AtomicInstruction)]]
            )
        unique = int(lanes.of(self.chunk.unique)[race.lane])
        other = self.code.instructions[race.other_pc].place
        return self.fail_at(lanes, instruction, race.lane, race_error(race, storage, self.shape, unique, other))

    def places(
        self,
        lanes: LaneGroup,
        instruction: LoadInstruction | StoreInstruction | AtomicInstruction,
        storage: ArrayStorage,
    ) -> Any:
        """Check bounds, and return the positions of the elements."""
        index = [f(lanes) for f in instruction.where]
        wrong = storage.outside(index)
        if wrong is not None:
            axis, mask = wrong
            value = int(index[axis][np.argmax(mask)]) if np.ndim(mask) else int(index[axis])
            along = f" along axis {axis}" if len(index) > 1 else ""
            raise self.fail(lanes, instruction, mask, f"index {value}{along} is outside of {storage}")
        return storage.positions(lanes, index)

    def count(self, lanes: LaneGroup, instruction: Any, storage: ArrayStorage, linear: Any, how: str) -> None:
        if self.counters is None or storage.space == "local":
            return
        line = self.counters.line(instruction.place, storage.name, storage.space, how)
        bytes = lanes.wide(linear) * np.int64(storage.itemsize) + storage.first_byte
        count = self.counters.global_access if storage.space == "global" else self.counters.shared_access
        count(line, lanes.rows(bytes), lanes.count, storage.itemsize)

    # --- instructions ----------------------------------------------------------------------------

    def load(self, lanes: LaneGroup, one: LoadInstruction) -> None:
        storage = self.storage(one.array)
        linear = self.places(lanes, one, storage)
        self.count(lanes, one, storage, linear, "load")
        if storage.space == "global" and storage.shadow is None:
            lanes.assign(one.name, storage.data[linear], storage.data.dtype)
            return
        places = storage.located(lanes, linear)
        shadow = storage.shadow
        if shadow is not None:
            never = shadow.never_written(places)
            if never.any():
                raise self.unwritten(lanes, one, storage, places, never, "reads")
            race = shadow.load(places, self.access(lanes))
            if race is not None:
                raise self.race_fault(race, lanes, one, storage)
        elif storage.filled is not None and not storage.filled[places].all():
            raise self.unwritten(lanes, one, storage, places, ~storage.filled[places], "reads")
        lanes.assign(one.name, storage.data[places], storage.data.dtype)

    def unwritten(
        self, lanes: LaneGroup, one: Any, storage: ArrayStorage, places: np.ndarray, never: np.ndarray, does: str
    ) -> KernelFault:
        element = storage.element(int(places[np.argmax(never)]))
        where = {"shared": "shared memory", "local": "a local array", "global": "memory from `empty`"}[storage.space]
        return self.fail(
            lanes, one, never, f"{does} {element}, which no thread has written yet: {where} begins with any contents"
        )

    def save(self, lanes: LaneGroup, one: StoreInstruction) -> None:
        storage = self.storage(one.array)
        linear = self.places(lanes, one, storage)
        self.count(lanes, one, storage, linear, "store")
        places, values = storage.located(lanes, linear), lanes.wide(one.value(lanes))
        shadow = storage.shadow
        if shadow is None:
            storage.data[places] = values
            if storage.filled is not None:
                storage.filled[places] = True
            return
        access = self.access(lanes)
        differs = differs_from(storage.data[places], values) | shadow.never_written(places)
        race = shadow.store(places, access, differs)
        if race is not None:
            raise self.race_fault(race, lanes, one, storage)
        storage.data[places] = values
        self.changes += bool(differs.any())
        race = shadow.collided(places, access, values, storage.data[places])
        if race is not None:
            raise self.race_fault(race, lanes, one, storage)

    def change(self, lanes: LaneGroup, one: AtomicInstruction) -> None:
        storage = self.storage(one.array)
        linear = self.places(lanes, one, storage)
        self.count(lanes, one, storage, linear, "atomic")
        places = storage.located(lanes, linear)
        shadow = storage.shadow
        followed = shadow if isinstance(shadow, FollowedShadow) else None
        if shadow is not None:
            never = shadow.never_written(places)
            if never.any():
                raise self.unwritten(lanes, one, storage, places, never, "changes")
            race = None if followed else shadow.change(places, self.access(lanes))
            if race is not None:
                raise self.race_fault(race, lanes, one, storage)
        operands = [lanes.wide(f(lanes)) for f in one.operands]
        before = storage.data[places]
        old = apply_atomic(one.how, storage.data, places, operands, bool(one.name) or followed is not None)
        self.changes += bool(differs_from(before, storage.data[places]).any())
        if followed is not None:
            race = followed.changed(
                places, self.access(lanes), bool(one.name), modified_elements(one.how, old, operands)
            )
            if race is not None:
                raise self.race_fault(race, lanes, one, storage)
        if one.name:
            lanes.assign(one.name, old, storage.data.dtype)
