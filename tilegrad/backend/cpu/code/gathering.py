"""Vectors of elements that lie apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..emit import Type, Value, constant

if TYPE_CHECKING:
    from .elements import Elements


def gather(e: Elements, address: Value, type: Type, mask: Value, default: Value, bytes: int) -> Value:
    """Only vectors of 512 bits are gathered at once: for others LLVM would make a branch for every lane."""
    b = e.b
    address = b.splat(address, type.lanes)
    if bytes < 4 or type.lanes * bytes < 64:
        return _pick(e, address, type, mask, default, bytes)
    name = f"llvm.masked.gather.{type.short}.{address.type.short}"
    b.declarations.setdefault(name, f"declare {type} @{name}({address.type}, i32, {mask.type}, {type})")
    text = f"call {type} @{name}({address.type} {address}, i32 {bytes}, {mask.type} {mask}, {type} {default})"
    return b.instruction(text, type)


def _pick(e: Elements, address: Value, type: Type, mask: Value, default: Value, bytes: int) -> Value:
    """Elements are read one by one; lanes that are not wanted read what is ours."""
    b = e.b
    every = mask.text == constant(True, mask.type).text
    if not every:
        e.nowhere = e.nowhere or b.allocate(64, "nowhere")
        address = b.select(mask, address, b.splat(e.nowhere, type.lanes))
    made = Value("poison", type)
    for n in range(type.lanes):
        x = b.instruction(f"load {type.element}, ptr {b.extract(address, n)}, align {bytes}", Type(type.element))
        made = b.pure(f"insertelement {type} {made}, {x.type} {x}, i64 {n}", type, (made, x))
    return made if every else b.select(mask, made, default)
