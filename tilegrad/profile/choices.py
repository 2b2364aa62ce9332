"""Print the strategy of each kernel, and its source: the cost model, or a line of `kernels.lock`."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.program import Foreign, Launch, name_of
from ..runtime.choice import Lock
from ..runtime.target_model import TargetModel
from ..schedule.group import Group
from ..schedule.options import kernel_choice


def show_choices(launches: Sequence[Launch | Foreign], groups: Sequence[Group], target: TargetModel, lock: Lock) -> str:
    """Print a line for each kernel.

    >>> import tilegrad as tg
    >>> print(tg.explain(lambda x: x.exp(), tg.ones(4, 1000, device="reference"))["choices"])
    0 exp  along width=2048 (cost model)
    """
    rows = []
    for n, (launch, group) in enumerate(zip(launches, groups, strict=True)):
        found = kernel_choice(group, target, lock)
        rows.append((f"{n} {name_of(launch)}", "as its op brings it" if found is None else str(found)))
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:{width}}  {choice}" for name, choice in rows)
