"""Programs as CUDA graphs: launched with one call, with independent kernels concurrent.

The graph is built from the plan, not captured: its edges are memory dependences between steps. A run with other
addresses updates the nodes that use them, which is cheaper than copying inputs to fixed places or than keeping a second
graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...runtime import events
from .outside import ForeignCall
from .plan import LaunchPlan

if TYPE_CHECKING:
    from .device import CudaDevice


class ProgramGraph:
    """The graph of a plan; `data` are the addresses in its nodes."""

    def __init__(self, device: CudaDevice, plan: LaunchPlan, distinct: bool, data: Sequence[int]) -> None:
        self.device = device
        self.plan = plan
        self.data = list(data)
        self.distinct = distinct
        """Whether the graph assumes that inputs do not alias."""
        self.node_numbers: dict[int, int] | None = None
        """The launch of each node by the number that profilers know it by; None until one asks."""
        driver = device.driver
        with events.timed("compile", "graph", device.name):
            self.graph = driver.new_graph()
            self.nodes: list[int] = []
            for step, after in zip(plan.steps, plan.dependences(distinct), strict=True):
                assert not isinstance(step.call, ForeignCall), "such a program is started step by step"
                before = [self.nodes[n] for n in after]
                self.nodes.append(driver.add_node(self.graph, step.call, before, device.context))
            self.executable = driver.instantiate(self.graph)

    def renew(self, data: Sequence[int]) -> None:
        """Update the nodes with the current addresses; running launches keep the old ones."""
        device, patches = self.device, self.plan.patches
        others = [n for n, (old, new) in enumerate(zip(self.data, data, strict=True)) if old != new]
        for step in {patch.step for n in others for patch in patches[n]}:
            call = self.plan.steps[step].call
            assert not isinstance(call, ForeignCall)
            device.driver.renew_node(self.executable, self.nodes[step], call, device.context)
        self.data = list(data)

    def __del__(self) -> None:
        device = self.device
        if hasattr(self, "executable") and not device.broken:
            device.graphs_ended.append((self.graph, self.executable))
