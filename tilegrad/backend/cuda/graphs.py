"""A program as one CUDA graph: started with one call, its independent kernels at once.

The graph is built from the plan, not captured: its edges are where steps share memory that one of them writes. A run
with other addresses than the run before renews the nodes that use them (about a microsecond each). The other way,
copying inputs to places that stay, would move every input once more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ...runtime import events
from .plan import Plan

if TYPE_CHECKING:
    from .device import CudaDevice


class ProgramGraph:
    """The graph of a plan with the arguments that its calls have now."""

    def __init__(self, device: CudaDevice, plan: Plan, distinct: bool) -> None:
        self.device = device
        self.plan = plan
        self.distinct = distinct
        """Whether it counts on inputs that are different memory."""
        driver = device.driver
        with events.timed("compile", "graph", device.name):
            self.graph = driver.new_graph()
            self.nodes: list[int] = []
            for step, after in zip(plan.steps, plan.after(distinct), strict=True):
                before = [self.nodes[n] for n in after]
                self.nodes.append(driver.add_node(self.graph, step.call, before, device.context))
            self.executable = driver.instantiate(self.graph)

    def renew(self, changed: Collection[int]) -> None:
        """Gives some steps the arguments that their calls have now; what runs already keeps the old ones."""
        device = self.device
        for step in changed:
            call = self.plan.steps[step].call
            device.driver.renew_node(self.executable, self.nodes[step], call, device.context)

    def __del__(self) -> None:
        device = self.device
        if hasattr(self, "executable") and not device.broken:
            device.graphs_ended.append((self.graph, self.executable))
