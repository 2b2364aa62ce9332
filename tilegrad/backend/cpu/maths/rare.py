"""Branch to a slow path for rare arguments: a function on one element, called for vectors that need it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..emit import Builder, LlvmValue, Type
from .vector import Vector, any_lane, where

Writer = Callable[..., Vector]
"""Emits the function's value for given elements; it may emit loops."""


def unless(usual: Vector, near: Vector, fn: str, args: Sequence[Vector], write: Writer) -> Vector:
    """`near` where `usual`, the slow function elsewhere; it is called only if some lane needs it."""
    b, x = near.builder, args[0]
    name = f"tg.{fn}.{Type(x.element).short}"
    if name not in b.declarations:
        _define(b, name, len(args), x.element, write)
    every = any_lane(usual ^ True)
    b.open_branch("rare")
    far = where(usual, near, _by_element(name, args))
    rare = b.close_branch()
    b.open_branch("usual")
    common = b.close_branch()
    (value,) = b.close_branches(every.value, rare, common, [(far.value, near.value)])
    return near.of(value)


def _by_element(name: str, args: Sequence[Vector]) -> Vector:
    b, type = args[0].builder, args[0].type
    scalar = Type(type.element)

    def called(elements: Sequence[LlvmValue]) -> LlvmValue:
        shown = ", ".join(f"{scalar} {x}" for x in elements)
        return b.instruction(f"call {scalar} @{name}({shown})", scalar)

    if not type.lanes:
        return args[0].of(called([x.value for x in args]))
    made = LlvmValue("poison", type)
    for lane in range(type.lanes):
        # Not `extract`, which would hoist these out of the branch.
        elements = [b.instruction(f"extractelement {type} {x.value}, i64 {lane}", scalar) for x in args]
        one = called(elements)
        made = b.instruction(f"insertelement {type} {made}, {scalar} {one}, i64 {lane}", type)
    return args[0].of(made)


def _define(user: Builder, name: str, arity: int, element: str, write: Writer) -> None:
    """Define the slow function; `cold` keeps the cost of its calls out of the fast path."""
    b = Builder()
    scalar = Type(element)
    args = [Vector(b, LlvmValue(f"%x{n}", scalar)) for n in range(arity)]
    value = write(*args).value
    parameters = ", ".join(f"{scalar} {x.value}" for x in args)
    head = f"define internal {scalar} @{name}({parameters}) cold noinline {{"
    for other, text in b.declarations.items():
        user.declarations.setdefault(other, text)
    user.declarations[name] = "\n".join([head, "entry:", *b.scopes[0].lines, f"  ret {scalar} {value}", "}"])
