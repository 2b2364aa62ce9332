"""Make the step that computes a group: by ready kernels of the device, or by a program of its own."""

from __future__ import annotations

from collections.abc import Sequence

from ..compiler import compile
from ..runtime.buffer import DeviceBuffer
from ..runtime.cache_pressure import shrinkers
from ..runtime.device import Device
from ..runtime.executable import Runner
from .node_groups import Key, NodeGroup, RecordedStructure, graph_of

MAX_STEPS = 4096
"""Steps kept for later structures."""


class GroupStep:
    """A group that is ready to run: `run` returns new memory for each root."""

    def __init__(self, label: str, road: str, run: Runner) -> None:
        self.label = label
        self.road = road
        """The kernels that it runs on."""
        self.run = run

    def __str__(self) -> str:
        return f"{self.label} ({self.road})"


_steps: dict[Key, GroupStep] = {}


def step_of(recorded: RecordedStructure, group: NodeGroup, key: Key, place: Device) -> GroupStep:
    """Find or make the step of a group."""
    known = _steps.get(key)
    if known is None:
        if len(_steps) >= MAX_STEPS:
            _forget_half()
        known = _steps[key] = _compiled_step(recorded, group)
    return known


def _forget_half() -> None:
    """Evict the older half of the steps."""
    for key in list(_steps)[: (len(_steps) + 1) // 2]:
        del _steps[key]


shrinkers.append(_forget_half)


def _compiled_step(recorded: RecordedStructure, group: NodeGroup) -> GroupStep:
    """Compile a program for a group alone."""
    label = recorded.values[group.roots[-1]].op
    compiled = compile(graph_of(recorded, group), name=label)
    runner = compiled.executable.bound()

    def run(buffers: Sequence[DeviceBuffer]) -> tuple[DeviceBuffer, ...]:
        return runner(compiled.brought(buffers) if compiled.elsewhere else buffers)

    return GroupStep(label, "a program of its own", run)
