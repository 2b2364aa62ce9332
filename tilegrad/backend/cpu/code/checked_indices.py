"""Keep indices inside of their axes, and report one that is not (`runtime/index_faults.py`)."""

from __future__ import annotations

from ....ir.dtype import DType
from ....runtime.index_faults import SYMBOL
from ..emit import I64, Builder, LlvmValue, Type, constant

REPORT = """\
@RECORD = external global [4 x i64]
define internal void @report_outside(i64 %number, i64 %index, i64 %extent) cold noinline nounwind {
  %code = add i64 %number, 1
  %met = cmpxchg ptr @RECORD, i64 0, i64 %code monotonic monotonic
  %first = extractvalue { i64, i1 } %met, 1
  br i1 %first, label %note, label %done
note:
  %index.at = getelementptr i64, ptr @RECORD, i64 1
  store i64 %index, ptr %index.at, align 8
  %extent.at = getelementptr i64, ptr @RECORD, i64 2
  store i64 %extent, ptr %extent.at, align 8
  br label %done
done:
  ret void
}""".replace("RECORD", SYMBOL)


def clamped_index(b: Builder, dtype: DType, args: tuple[LlvmValue, ...], existing: LlvmValue | None) -> LlvmValue:
    """Clamp indices to an axis; the check is hoisted as far as the index is known. `existing`: lanes that are not
    padding.
    """
    lanes = max(a.type.lanes for a in args)
    index, end, _number = (b.splat(a, lanes) for a in args)
    signed = dtype.kind == "int"
    outside = b.compare("uge", index, end, "outside")
    if existing is not None and lanes:
        outside = b.op("and", outside, existing)
    _report_outside(b, index, outside, args[1:], signed)
    if signed:
        index = b.intrinsic("smax", index, constant(0, index.type))
    return b.intrinsic("smin" if signed else "umin", index, b.op("sub", end, constant(1, end.type)))


def _report_outside(
    b: Builder, index: LlvmValue, outside: LlvmValue, rest: tuple[LlvmValue, ...], signed: bool
) -> None:
    level = max(x.level for x in (index, outside, *rest))
    check = f"reported {outside}"
    if any(check in scope.known for scope in b.scopes[level:]):
        return
    b.declarations.setdefault(SYMBOL, REPORT)
    inner = b.scopes[level + 1 :]
    del b.scopes[level + 1 :]
    b.scopes[level].known[check] = outside
    lanes = index.type.lanes
    some = outside
    if lanes:
        bits = b.pure(f"bitcast {outside.type} {outside} to i{lanes}", Type(f"i{lanes}"), (outside,))
        some = b.compare("ne", bits, constant(0, bits.type))
    b.open_branch("report")
    if lanes:
        scalar, name = Type(index.type.element), f"llvm.vector.reduce.umax.{index.type.short}"
        b.declare(name, scalar, (index,))
        wrong = b.instruction(
            f"select {outside.type} {outside}, {index.type} {index}, {index.type} zeroinitializer", index.type
        )
        index = b.instruction(f"call {scalar} @{name}({index.type} {wrong})", scalar)
    end, number = (_scalar(b, x) for x in rest)
    shown = ", ".join(f"i64 {_wide(b, x, signed)}" for x in (number, index, end))
    b.effect(f"call void @report_outside({shown})")
    report = b.close_branch()
    b.open_branch("inside")
    b.close_branches(some, report, b.close_branch())
    b.scopes += inner


def _scalar(b: Builder, x: LlvmValue) -> LlvmValue:
    if not x.type.lanes:
        return x
    type = Type(x.type.element)
    return b.instruction(f"extractelement {x.type} {x}, i64 0", type)


def _wide(b: Builder, x: LlvmValue, signed: bool) -> LlvmValue:
    if x.type == I64:
        return x
    if x.type.bits > I64.bits:
        return b.instruction(f"trunc {x.type} {x} to i64", I64)
    return b.instruction(f"{'sext' if signed else 'zext'} {x.type} {x} to i64", I64)
