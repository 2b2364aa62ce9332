"""The passes from graph to graph in their order, each with the condition on the target under which it runs.

`tg.explain(fn, *args)["simplify"]` is the graph after a pass, by its name, or says that nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable

from ..deferred import part
from ..ir.graph import Graph
from ..ir.node import Node
from ..runtime.target_model import TargetModel


def multiplies_before_lookup(target: TargetModel) -> bool:
    return target.matmul_before_lookup


def sorts_in_parallel(target: TargetModel) -> bool:
    return target.parallel_sort


def copies_operands(target: TargetModel) -> bool:
    """Whether operands of products reach the unit by copies of memory, without computation on the way."""
    return bool(target.matmul.async_copy_bytes)


def computes_operands(target: TargetModel) -> bool:
    """Whether operands of products are computed while they are packed."""
    return not target.matmul.async_copy_bytes


def has_winograd_costs(target: TargetModel) -> bool:
    return bool(target.matmul.winograd_min_channels) and computes_operands(target)


class Pass(Node):
    """A pass by its name, which is that of its module, too, with its condition on the target (`when`); `costs` says
    whether it also reads the target model. Its module is imported when it first runs.
    """

    name: str
    when: Callable[[TargetModel], bool] | None = None
    costs: bool = False

    @property
    def run(self) -> Callable[..., Graph] | None:
        """The pass; None in a distribution without it."""
        found: Callable[..., Graph] | None = part(f"transform.{self.name}", self.name)
        return found

    def applies(self, target: TargetModel) -> bool:
        return (self.when is None or self.when(target)) and self.run is not None

    def __call__(self, graph: Graph, target: TargetModel = TargetModel()) -> Graph:
        """Run the pass, or return the graph itself where the pass is not for the target."""
        if (self.when is not None and not self.when(target)) or (run := self.run) is None:
            return graph
        return run(graph, target) if self.costs else run(graph)


PASSES: tuple[Pass, ...] = (
    Pass("fold_movement"),
    Pass("simplify"),
    Pass("embedding_matmul", when=multiplies_before_lookup),
    Pass(
        "embedding_gradient",
        when=lambda target: multiplies_before_lookup(target) or copies_operands(target),
        costs=True,
    ),
    Pass("col2im_gradient", when=computes_operands),
    Pass("implicit_gemm", when=copies_operands, costs=True),
    Pass("contiguous_k", when=copies_operands),
    Pass("winograd", when=has_winograd_costs, costs=True),
    Pass("share"),
    Pass("pool_gradient"),
    Pass("move_casts"),
    Pass("column_sums", costs=True),
    Pass("sorted_scatter", when=sorts_in_parallel, costs=True),
    Pass("radix_sorts", when=sorts_in_parallel, costs=True),
    Pass("split_scans", when=sorts_in_parallel, costs=True),
    Pass("split_reductions", costs=True),
)


def optimise(graph: Graph, target: TargetModel = TargetModel()) -> Graph:
    """Run all passes."""
    for step in PASSES:
        graph = step(graph, target)
    return graph
