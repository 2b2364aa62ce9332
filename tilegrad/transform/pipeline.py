"""The passes from graph to graph in their order, each with the condition on the target under which it runs."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.graph import Graph
from ..ir.node import Node
from ..runtime.target_model import TargetModel
from .col2im_gradient import col2im_gradient
from .column_sums import column_sums
from .contiguous_k import contiguous_k
from .embedding_gradient import embedding_gradient
from .embedding_matmul import embedding_matmul
from .fold_movement import fold_movement
from .implicit_gemm import implicit_gemm
from .move_casts import move_casts
from .pool_gradient import pool_gradient
from .radix_sorts import radix_sorts
from .share import share
from .simplify import simplify
from .sorted_scatter import sorted_scatter
from .split_reductions import split_reductions
from .split_scans import split_scans
from .winograd import winograd


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
    """A pass with its condition on the target (`when`); `costs` says whether it also reads the target model."""

    run: Callable[..., Graph]
    when: Callable[[TargetModel], bool] | None = None
    costs: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__

    def applies(self, target: TargetModel) -> bool:
        return self.when is None or self.when(target)

    def __call__(self, graph: Graph, target: TargetModel = TargetModel()) -> Graph:
        """Run the pass, or return the graph itself where the pass is not for the target."""
        if not self.applies(target):
            return graph
        return self.run(graph, target) if self.costs else self.run(graph)


PASSES: tuple[Pass, ...] = (
    Pass(fold_movement),
    Pass(simplify),
    Pass(embedding_matmul, when=multiplies_before_lookup),
    Pass(
        embedding_gradient, when=lambda target: multiplies_before_lookup(target) or copies_operands(target), costs=True
    ),
    Pass(col2im_gradient, when=computes_operands),
    Pass(implicit_gemm, when=copies_operands, costs=True),
    Pass(contiguous_k, when=copies_operands),
    Pass(winograd, when=has_winograd_costs, costs=True),
    Pass(share),
    Pass(pool_gradient),
    Pass(move_casts),
    Pass(column_sums, costs=True),
    Pass(sorted_scatter, when=sorts_in_parallel, costs=True),
    Pass(radix_sorts, when=sorts_in_parallel, costs=True),
    Pass(split_scans, when=sorts_in_parallel, costs=True),
    Pass(split_reductions, costs=True),
)


def optimise(graph: Graph, target: TargetModel = TargetModel()) -> Graph:
    """Run all passes."""
    for step in PASSES:
        graph = step(graph, target)
    return graph
