"""Values with a common gradient rule given by a function (`autograd.Function`, checkpointing)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias, final

from ..ir.graph import Cost, Reader, TensorType, Value
from ..ir.scalar import Expr, Position

GradientRule: TypeAlias = "Callable[[Sequence[Value | None]], Sequence[Value | None]]"
"""Maps upstream gradients of all outputs (None: no gradient flows) to gradients of all arguments."""


def identity_rule(upstreams: Sequence[Value | None]) -> Sequence[Value | None]:
    """Pass gradients on: the outputs are copies of the arguments."""
    return upstreams


class Joint:
    """The arguments and the gradient rule that sibling outputs share."""

    def __init__(self, arguments: Sequence[Value], rule: GradientRule) -> None:
        self.arguments = tuple(arguments)
        self.rule = rule
        self.outputs: list[Value | None] = []


@final
class JointOutput(Value):
    """A value with the gradient rule of its `joint`."""

    cost: ClassVar[Cost] = "free"
    x: Value
    arguments: tuple[Value, ...]

    def infer(self) -> TensorType:
        return self.x.type

    def element(self, position: Position, read: Reader) -> Expr:
        return read(self.x, position)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        raise AssertionError("the gradients of joint outputs are taken together")

    @property
    def joint(self) -> Joint:
        return self.provenance.joint  # type: ignore[no-any-return]


@final
class Recompute(Value):
    """A copy of a value from which everything is computed again.

    It also reads `after`, so that the recomputation waits for that value.
    """

    cost: ClassVar[Cost] = "free"
    x: Value
    after: Value

    def infer(self) -> TensorType:
        return self.x.type

    def element(self, position: Position, read: Reader) -> Expr:
        return read(self.x, position)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return upstream, None


def joint_output(x: Value, joint: Joint, place: int) -> Value:
    """Make output number `place` of a joint."""
    made = JointOutput(x, joint.arguments)
    made.note().joint = joint
    joint.outputs.extend([None] * (place + 1 - len(joint.outputs)))
    joint.outputs[place] = made
    return made


def joint_outputs(results: Sequence[Value], arguments: Sequence[Value], rule: GradientRule) -> list[Value]:
    """Attach a gradient rule to results computed from arguments.

    The results themselves should not be tracked, so that no gradient flows through their computation.
    """
    joint = Joint(arguments, rule)
    return [joint_output(x, joint, place) for place, x in enumerate(results)]
