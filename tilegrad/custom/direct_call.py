"""Call an operator directly if its kernel is a single C++ call and its tensors are in memory.

Recording it would gain nothing, because foreign calls do not fuse. The first compilation for some types discovers that
the kernel is such a call; later calls build no graph and look up no program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..ir.graph import Graph
from ..lazy.handle import Handle
from ..ops.external_call import ExternalCall

if TYPE_CHECKING:
    from ..foreign.function import CppFunction


class DirectCall:
    """A direct C++ call. `order` gives for each argument of the function its index among the operator's tensors,
    `numbers` the scalar arguments.
    """

    def __init__(self, function: CppFunction, order: Sequence[int | None], numbers: Sequence[Any], code: Graph) -> None:
        self.function = function
        self.order = tuple(order)
        self.numbers = tuple(numbers)
        self.plain = self.order == tuple(range(len(code.inputs)))
        types = [code.inputs[n].type for n in self.order if n is not None]
        self.ready = function.readied(types, self.numbers)

    def __call__(self, tensors: Sequence[Handle]) -> Any:
        """Return the results without gradients, or None if something must be computed or recorded first."""
        if self.plain:
            return self.function.direct(tuple(tensors), self.ready, True)
        numbers = iter(self.numbers)
        given = [next(numbers) if n is None else tensors[n] for n in self.order]
        return self.function.direct(tuple(given), self.ready, True)


def find_direct_call(code: Graph) -> DirectCall | None:
    """Return the direct call if a kernel consists of one, else None."""
    first = code.outputs[0]
    if not isinstance(first, ExternalCall) or not hasattr(first.work, "function"):
        return None
    siblings = [v for v in code.outputs if isinstance(v, ExternalCall) and v.call == first.call]
    if [v.place for v in siblings] != list(range(len(first.results))) or len(siblings) != len(code.outputs):
        return None
    if any(v not in code.inputs for v in first.arguments) or any(start is not None for start in first.starts):
        return None
    function, numbers = first.work.function, first.work.numbers
    if function.makes_tensors or function.device != "cpu" or first.type.device != "cpu":
        return None
    places = iter([code.inputs.index(v) for v in first.arguments])
    order = [next(places) if p.is_tensor else None for p in function.signature.parameters]
    return DirectCall(function, order, numbers, code)
