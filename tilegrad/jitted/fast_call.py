"""Generate a fast path for the calls of one program with plain tensor arguments.

It does what `CallSignature.sizes` and `Specialised.__call__` do, without loops over arguments and results; only for the
program used last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..lazy.handle import mode
from ..lazy.storage import one_writer
from ..runtime.guarded import GuardedCall, packed
from ..tensor import Tensor
from ..tree import LEAF, NOTHING
from .numbers import same_number
from .specialised import Specialised
from .variables import WatchedVariable

MISS = object()
"""Returned by the fast path for a call that it does not handle."""


class FastCall(NamedTuple):
    arity: int
    call: Callable[..., Any]
    writes: bool
    """Whether a call has effects that outlive it."""
    assigns: bool
    """Whether it assigns tensors to variables, which no other function may be tracing meanwhile."""
    program: Specialised


def fast_call(program: Specialised, watched: Sequence[WatchedVariable]) -> FastCall | None:
    """Generate the fast path of a program, if its signature is simple enough."""
    signature = program.signature
    special = program.changed or program.differentiable or program.returned_arguments or any(signature.tracked)
    if special or any(p is not LEAF for p in signature.call.structure.parts[0].parts):
        return None
    if signature.number_inputs or signature.call.structure.parts[1].parts or any(t is None for t in signature.types):
        return None
    count = len(signature.types)
    arity = count - len(program.input_variables)
    if program.input_variables and signature.call.variable_leaves() != [*range(arity, count)]:
        return None  # one tensor is read twice
    leaves = [f"x{n}" for n in range(count)]
    call = GuardedCall("call", leaves[:arity], MISS, mode=mode, program=program, one_writer=one_writer, Tensor=Tensor)
    call.guard(f"mode.enabled is {signature.call.recorded}")
    _read_variables(call, program, leaves)
    memory = [_tensor_memory(call, program, n, n >= arity and not program.updated) for n in range(count)]
    _check_numbers(call, program, watched)
    if program.captured or program.host or program.guards or program.outside:
        memory.append(f"*{_state(call, program)}")
    if program.constants:
        memory.append(f"*{call.bind('constants', tuple(program.constants))}")
    call.add(f"given = {packed(memory)}")
    _run_and_wrap(call, program, leaves)
    return FastCall(arity, call.made(), bool(program.writes or program.gradients), bool(program.assigned), program)


def _read_variables(call: GuardedCall, program: Specialised, leaves: Sequence[str]) -> None:
    """Read the variables whose tensors are further inputs; miss if one tensor is an input twice."""
    places = program.input_variables
    if not places:
        return
    variables = leaves[len(leaves) - len(places) :]
    with call.missing("LookupError", "ValueError"):
        call.add(*[f"{x} = {w.read_source(call)}" for x, w in zip(variables, places, strict=True)])
    if len(leaves) > 1:
        call.guard(
            f"len({{{', '.join(f'id({x})' for x in leaves)}}}) == {len(leaves)}" if leaves[2:] else "x0 is not x1"
        )
    if program.required_objects:
        call.guard(*[f"id({x}) not in {call.bind('required', program.required_objects)}" for x in variables])


def _tensor_memory(call: GuardedCall, program: Specialised, n: int, shared: bool) -> str:
    """Check one tensor, and look up its memory, which others may share."""
    x, strides = f"x{n}", program.signature.strides[n]
    alone = f"not {x}._moves" if shared else f"{x}._base is None"
    same_strides = "is None" if strides is None else f"== {call.bind('strides', strides)}"
    call.guard(f"isinstance({x}, Tensor)", alone, f"{x}._strides {same_strides}")
    value = call.let("v", f"{x}.value" if shared else f"{x}._value")
    type = call.bind("T", program.signature.types[n])
    call.guard(f"({value}.type is {type} or {value}.type == {type})", f"not {value}.tracked")
    memory = call.let("b", f"{value}.buffer")
    call.guard(f"{memory} is not None")
    return memory


def _check_numbers(call: GuardedCall, program: Specialised, watched: Sequence[WatchedVariable]) -> None:
    """Compare captured numbers that are constants of the program."""
    signature = program.signature
    for n, number in enumerate(signature.call.numbers):
        if n not in signature.captured_inputs:
            before, now = call.bind("number", number), call.let("now", f"{call.bind('watched', watched[n])}.read()")
            same = f"({now}.__class__ is {before}.__class__ and {call.bind('same', same_number)}({now}, {before}))"
            call.guard(f"({now} is {before} or {same})")


def _state(call: GuardedCall, program: Specialised) -> str:
    """Check the guards of captured state, and collect its memory."""
    state = call.let("state", "program.check_guards()")
    with call.block(f"if {state} is None"):
        call.guard("program.is_current()", f"program.moves == {program.moves}")
        call.add(f"{state} = program.state()")
    return state


def _run_and_wrap(call: GuardedCall, program: Specialised, leaves: Sequence[str]) -> None:
    """Run the program on `given`, and wrap its results."""
    runner = program.compiled.executable.bound()
    call.objects["runner"] = runner
    if program.compiled.elsewhere:
        call.add("given = program.compiled.brought(given)")
    if program.hoisted is not None:
        call.add(f"given = (*given, *{call.bind('hoisted', program.hoisted.buffers)}(given))")
    simple = _is_simple(program)
    if simple and _reuses_gradient_memory(program, runner):
        _run_on_gradient_memory(call, program)
    else:
        simple = simple and not program.gradients and not program.updated
        if program.gradients:
            call.add("program.drop_gradients()")
        call.add("with one_writer: made = runner(given)" if program.common else "made = runner(given)")
    if simple:
        _wrap_results(call, program, leaves)
    else:
        call.add(f"return program.wrap_outputs({packed(leaves)}, made)")


def _is_simple(program: Specialised) -> bool:
    """Whether the function returns one tensor, or only writes tensors, with static sizes."""
    returned = program.result_structure is LEAF or (program.result_structure is NOTHING and bool(program.assigned))
    made = all(form is not None and not form.varies for n, form in enumerate(program.forms) if n not in program.aliases)
    return returned and made and len(program.results) >= (program.result_structure is LEAF) + len(program.assigned)


def _reuses_gradient_memory(program: Specialised, runner: Any) -> bool:
    """Whether a run may reuse the memory of the previous run's gradients."""
    forms = program.gradient_forms
    if not forms or program.common or any(form is None or form.varies for form in forms):
        return False
    return bool(getattr(runner, "can_keep", False))


def _run_on_gradient_memory(call: GuardedCall, program: Specialised) -> None:
    """Run on the memory of the previous call's gradients if nothing reads them."""
    stored = [call.bind("stored", gradient) for gradient in program.stored_gradients]
    holders = [call.bind("holder", holder) for holder, _ in program.gradients]
    call.add(*[f"{holder}._gradient = None" for holder in holders])
    memory = [call.let("m", f"{gradient}.free()") for gradient in stored]
    with call.block(f"if {' and '.join(f'{m} is not None' for m in memory)}"):
        call.add(f"made = runner(given, {packed(memory)})")
    with call.block("else"):
        call.add("program.drop_gradients()", "made = runner(given)", "program.store_gradients(made)")
    call.add(*[f"{h}._gradient = {g}" for h, g in zip(holders, stored, strict=True)])


def _wrap_results(call: GuardedCall, program: Specialised, leaves: Sequence[str]) -> None:
    """Wrap the outputs and assign them to variables; the returned one comes first."""
    storages = [call.bind("storage", program.captured[n].storage) for n in program.updated]
    call.add(*[f"{storage}.{count} += 1" for storage in storages for count in ("version", "changes")])
    results: dict[int, str] = {}
    for n, form in enumerate(program.forms):
        if form is not None:
            results[n] = form.source(call, f"made[{len(results)}]")
    for n, alias in program.aliases.items():
        results[n] = call.let("z", alias.source(call, leaves, results))
    for watched, n in program.assigned:
        call.add(watched.write_source(call, results[n]))
    call.add(f"return {results[0] if program.result_structure is LEAF else None}")
