"""Values whose gradients a function gives, for all of them together (`autograd.Function`, checkpointing)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias, final

from ..ir.graph import Cost, Reader, TensorType, Value
from ..ir.scalar import Expr, Position

GradientRule: TypeAlias = "Callable[[Sequence[Value | None]], Sequence[Value | None]]"
"""From the upstream gradients of all outputs (None: nothing flows) the gradients of all arguments."""


class Joint:
    """What sibling values share: what they are made from, and the rule for their gradients."""

    def __init__(self, arguments: Sequence[Value], rule: GradientRule) -> None:
        self.arguments = tuple(arguments)
        self.rule = rule
        self.outputs: list[Value | None] = []


@final
class JointOutput(Value):
    """A value as it is, but with a gradient that was given: see its `joint`."""

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
        return self.__dict__["joint"]  # type: ignore[no-any-return]


@final
class Recompute(Value):
    """A value as it is, but not the same value: what is computed from it is computed anew.

    It also reads `after`, so that the computation waits until that is there.
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
    """One of the siblings: `place` is its number among them."""
    made = JointOutput(x, joint.arguments)
    made.__dict__["joint"] = joint
    joint.outputs.extend([None] * (place + 1 - len(joint.outputs)))
    joint.outputs[place] = made
    return made


def joint_outputs(results: Sequence[Value], arguments: Sequence[Value], rule: GradientRule) -> list[Value]:
    """Results that were computed from arguments, with a rule for their gradients.

    The results themselves should not be tracked: no gradient flows through what they were computed by.
    """
    joint = Joint(arguments, rule)
    return [joint_output(x, joint, place) for place, x in enumerate(results)]
