"""Generate a fast path for the calls of one program: straight-line source that checks plain tensor arguments.

Looping over arguments and results takes longer than a small program runs; so for the program used last source is
generated that does what `Signature.sizes` and `Specialised.__call__` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..ir.graph import Input
from ..lazy.handle import mode
from ..lazy.storage import one_writer
from ..tensor import Tensor
from ..tree import LEAF, NOTHING
from .guards import run_on_gradient_memory
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
    values = {n: x for n, x in enumerate(signature.call.numbers) if n not in signature.captured_inputs}
    stateful = bool(program.captured or program.host or program.guards or program.outside)
    names = _bindings(program, values, watched)
    one = _is_simple(program)
    kept = one and _reuses_gradient_memory(program, names["runner"])
    ending = [f"return program.wrap_outputs({_leaves(program)}, made)"]
    if kept or (one and not program.gradients and not program.updated):
        names |= {f"storage{n}": program.captured[n].storage for n in program.updated}
        ending = [f"storage{n}.{count} += 1" for n in program.updated for count in ("version", "changes")]
        ending += _result_lines(program, names)
    found = _variable_lines(program, names)
    if found is None:
        return None
    run = _run_lines(program, names, kept)
    inside = found, len(program.input_variables), not program.updated
    exec(_source(signature.tracked, list(values), stateful, bool(program.constants), [*run, *ending], *inside), names)
    return FastCall(
        len(signature.types) - len(program.input_variables),
        names["call"],
        bool(program.writes or program.gradients),
        bool(program.assigned),
        program,
    )


def _run_lines(program: Specialised, names: dict[str, Any], kept: bool) -> list[str]:
    """Emit the lines that run the program on `given`."""
    run = ["with one_writer: made = runner(given)" if program.common else "made = runner(given)"]
    if kept:
        names |= {f"holder{n}": holder for n, (holder, _) in enumerate(program.gradients)}
        names |= {f"left{n}": left for n, left in enumerate(program.stored_gradients)}
        run = run_on_gradient_memory(len(program.gradients))
    elif program.gradients:
        run = ["program.drop_gradients()", *run]
    if program.hoisted is not None:
        names["kept"] = program.hoisted.buffers
        run = ["given = (*given, *kept(given))", *run]
    if program.compiled.elsewhere:
        run = ["given = program.compiled.brought(given)", *run]
    return run


def _bindings(program: Specialised, values: Mapping[int, Any], watched: Sequence[WatchedVariable]) -> dict[str, Any]:
    """Bind the names that the generated source refers to."""
    signature = program.signature
    names: dict[str, Any] = {
        "MISS": MISS,
        "Input": Input,
        "Tensor": Tensor,
        "new": object.__new__,
        "runner": program.compiled.executable.bound(),
        "program": program,
        "mode": mode,
        "constants": tuple(program.constants),
        "one_writer": one_writer,
        "same_number": same_number,
        "recorded": signature.call.recorded,
        "moves": program.moves,
    }
    names |= {f"T{n}": t for n, t in enumerate(signature.types)}
    names |= {f"watched{n}": watched[n] for n in values} | {f"number{n}": x for n, x in values.items()}
    return names | {f"strides{n}": strides for n, strides in enumerate(signature.strides)}


def _is_simple(program: Specialised) -> bool:
    """Whether the function returns one tensor, or only writes tensors, with static sizes."""
    returned = program.result_structure is LEAF or (program.result_structure is NOTHING and bool(program.assigned))
    made = all(form is not None and not form.varies for n, form in enumerate(program.forms) if n not in program.aliases)
    return returned and made and len(program.results) >= (program.result_structure is LEAF) + len(program.assigned)


def _result_lines(program: Specialised, names: dict[str, Any]) -> list[str]:
    """Emit the lines that wrap the outputs and assign them to variables; the returned one last."""
    lines: list[str] = []
    for n, form in enumerate(program.forms):
        if form is None:
            continue
        names[f"shared{n}"] = form.shared
        lines += ["value = new(Input)", "own = value.__dict__", f"own |= shared{n}"]
        lines += [f"own['buffer'] = made[{sum(form is not None for form in program.forms[:n])}]"]
        lines += [f"result{n} = new(Tensor)", f"result{n}._value = value"]
        if form.strides is not None:  # it does not lie row by row
            names[f"result{n}_strides"] = form.strides
            lines.append(f"result{n}._strides = result{n}_strides")
    for n, alias in program.aliases.items():
        names[f"alias{n}"] = alias
        lines.append(f"result{n} = {alias.text(str(n), _leaves(program))}")
    for watched, n in program.assigned:
        place = next(k for k, w in enumerate(program.input_variables) if w.key() == watched.key())
        lines.append(watched.write_source(str(place), f"result{n}"))
    return [*lines, "return result0" if program.result_structure is LEAF else "return None"]


def _leaves(program: Specialised) -> str:
    """Print the arguments and captured variables as source."""
    return f"({''.join(f'x{n}, ' for n in range(len(program.signature.types)))})"


def _variable_lines(program: Specialised, names: dict[str, Any]) -> list[str] | None:
    """Emit the lines that read variables; None if one tensor is read twice."""
    places, count = program.input_variables, len(program.signature.types)
    first = count - len(places)
    if program.signature.call.variable_leaves() != [*range(first, count)]:
        return None
    lines = []
    for k, watched in enumerate(places):
        names |= {f"place{k}": watched.place, f"name{k}": watched.name}
        lines.append(f"    x{first + k} = {watched.read_source(str(k))}")
    if not places:
        return []
    lines = ["try:", *lines, "except (LookupError, ValueError): return MISS"]
    if count > 1:
        same = f"len({{{', '.join(f'id(x{n})' for n in range(count))}}}) != {count}" if count > 2 else "x0 is x1"
        lines.append(f"if {same}: return MISS")
    if program.required_objects:
        names["elsewhere"] = program.required_objects
        lines += [f"if id(x{n}) in elsewhere: return MISS" for n in range(first, count)]
    return lines


def _reuses_gradient_memory(program: Specialised, runner: Any) -> bool:
    """Whether a run may reuse the memory of the previous run's gradients."""
    forms = program.gradient_forms
    if not forms or program.common or any(form is None or form.varies for form in forms):
        return False
    return bool(getattr(runner, "can_keep", False))


def _source(
    tracked: Sequence[bool],
    watched: Sequence[int],
    stateful: bool,
    constants: bool,
    run: Sequence[str],
    places: Sequence[str] = (),
    inside: int = 0,
    shared: bool = False,
) -> str:
    """Generate the source of the fast path; `run` are the lines that run the program on `given` and wrap its outputs;
    `places` are the lines that read variables whose tensors are further inputs: `inside` is their number, and `shared`
    says for each input whether others may share its memory.

    >>> print(_source([False], [], False, False, ["made = runner(given)", "return made"]))
    def call(x0):
        if mode.enabled is not recorded: return MISS
        if not isinstance(x0, Tensor) or x0._base is not None or x0._strides != strides0: return MISS
        v0 = x0._value
        if (v0.type is not T0 and v0.type != T0) or v0.tracked: return MISS
        b0 = v0.buffer
        if b0 is None: return MISS
        given = (b0,)
        made = runner(given)
        return made
    """
    lines, count = ["if mode.enabled is not recorded: return MISS", *places], len(tracked) - inside
    for n, flag in enumerate(tracked):
        lines += _tensor_checks(n, flag, shared and n >= count)
    for n in watched:
        other = f"now{n}.__class__ is not number{n}.__class__ or not same_number(now{n}, number{n})"
        lines += [f"now{n} = watched{n}.read()", f"if now{n} is not number{n} and ({other}): return MISS"]
    given = [f"b{n}" for n in range(len(tracked))]
    if stateful:
        lines += ["state = program.check_guards()", "if state is None:"]
        lines += [
            "    if not program.is_current() or program.moves != moves: return MISS",
            "    state = program.state()",
        ]
        given.append("*state")
    if constants:
        given.append("*constants")
    lines += [f"given = ({''.join(g + ', ' for g in given).rstrip()})", *run]
    arguments = ", ".join(f"x{n}" for n in range(count))
    return "\n    ".join([f"def call({arguments}):", *lines])


def _tensor_checks(n: int, tracked: bool, shared: bool) -> list[str]:
    """Emit the checks of one tensor and the lookup of its memory, which others may share."""
    shares = f"x{n}._moves" if shared else f"x{n}._base is not None"
    return [
        f"if not isinstance(x{n}, Tensor) or {shares} or x{n}._strides != strides{n}: return MISS",
        f"v{n} = x{n}.value" if shared else f"v{n} = x{n}._value",
        f"if (v{n}.type is not T{n} and v{n}.type != T{n}) or {'not ' if tracked else ''}v{n}.tracked: return MISS",
        f"b{n} = v{n}.buffer",
        f"if b{n} is None: return MISS",
    ]
