"""Record the last launch of a kernel for reports and measurements."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import ref

from ..errors import KernelError
from ..ir.graph import TensorType
from ..ir.tile import TileParameter
from ..lazy.handle import Handle
from .flatten_arguments import as_passed


class PastLaunch(NamedTuple):
    """A past launch; it does not keep its tensors alive."""

    grid: tuple[int, ...]
    constants: dict[str, Any]
    parameters: tuple[TileParameter, ...]
    given: tuple[Any, ...]
    several: dict[str, Any]

    def by_name(self) -> dict[str, Any]:
        """Return the argument of each parameter: a number, or the record of a tensor."""
        return {p.name: x for p, x in zip(self.parameters, self.given, strict=True)}

    def named(self) -> dict[str, Any]:
        """All arguments by name."""
        given = {name: x.tensor() if isinstance(x, TensorRecord) else x for name, x in self.by_name().items()}
        if any(x is None for x in given.values()):
            raise KernelError("the tensors of the last launch are gone: measure it while they are there")
        whole = {**self.constants, **given}
        for name, form in self.several.items():
            whole[name] = as_passed(form, whole.pop)
        return whole


class TensorRecord(NamedTuple):
    """The record of a tensor argument."""

    tensor: ref[Any]
    type: TensorType


_new = tuple.__new__  # faster than the class: called for each tensor of a launch


def record_argument(x: Any) -> Any:
    """Record an argument."""
    return _new(TensorRecord, (ref(x), x._value.type)) if isinstance(x, Handle) else x
