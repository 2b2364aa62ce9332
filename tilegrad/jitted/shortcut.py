"""The shortest way from a call to its program: for tensors as plain arguments, checked and called by written code.

Looping over arguments and results takes longer than a small program runs; so for the program that was used last
a function is written that does with straight code what `Kind.sizes` and `Specialised.__call__` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..ir.graph import Input
from ..lazy.handle import mode
from ..lazy.storage import one_writer
from ..tensor import Tensor
from ..tree import LEAF
from .numbers import same_number
from .places import Watched
from .specialised import Specialised
from .straight import kept_gradients

MISS = object()
"""What the function gives for a call that it is not for."""


class Shortcut(NamedTuple):
    arity: int
    call: Callable[..., Any]
    writes: bool
    """Whether it changes anything that outlives the call."""


def shortcut(program: Specialised, watched: Sequence[Watched]) -> Shortcut | None:
    """The function for a program, if its calls are of the simple kind."""
    kind = program.kind
    special = program.changed or program.differentiable or program.passed or program.aliases or any(kind.tracked)
    if special or any(p is not LEAF for p in kind.call.structure.parts[0].parts):
        return None
    if kind.inputs or kind.call.structure.parts[1].parts or any(t is None for t in kind.types):
        return None
    values = {n: x for n, x in enumerate(kind.call.numbers) if n not in kind.watched}
    stateful = bool(program.captured or program.host or program.guards or program.outside)
    names = _names(program, values, watched)
    one = program.result_structure is LEAF and len(program.forms) == 1 and program.forms[0] is not None
    one = one and not program.forms[0].varies  # type: ignore[union-attr]
    kept = one and _keeps(program, names["runner"])
    ending = ["return program.finished((), made)"]
    if kept or (one and not program.gradients and not program.updated):
        names |= {"shared": program.forms[0].shared} | {  # type: ignore[union-attr]
            f"storage{n}": program.captured[n].storage for n in program.updated
        }
        ending = [f"storage{n}.{count} += 1" for n in program.updated for count in ("version", "changes")]
        ending += ["value = new(Input)", "own = value.__dict__", "own |= shared", "own['buffer'] = made[0]"]
        ending += ["result = new(Tensor)", "result._value = value", *_strides(program, names), "return result"]
    run = ["with one_writer: made = runner(given)" if program.common else "made = runner(given)"]
    if kept:
        names |= {f"holder{n}": holder for n, (holder, _) in enumerate(program.gradients)}
        names |= {f"left{n}": left for n, left in enumerate(program.left)}
        run = kept_gradients(len(program.gradients))
    elif program.gradients:
        run = ["program.let_go()", *run]
    if program.steady is not None:
        names["kept"] = program.steady.buffers
        run = ["given = (*given, *kept(given))", *run]
    if program.compiled.elsewhere:
        run = ["given = program.compiled.brought(given)", *run]
    exec(_source(kind.tracked, list(values), stateful, bool(program.constants), [*run, *ending]), names)
    return Shortcut(len(kind.types), names["call"], bool(program.writes or program.gradients))


def _names(program: Specialised, values: Mapping[int, Any], watched: Sequence[Watched]) -> dict[str, Any]:
    """What the text of the function mentions."""
    kind = program.kind
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
        "recorded": kind.call.recorded,
        "moves": program.moves,
    }
    names |= {f"T{n}": t for n, t in enumerate(kind.types)}
    names |= {f"watched{n}": watched[n] for n in values} | {f"number{n}": x for n, x in values.items()}
    return names | {f"strides{n}": strides for n, strides in enumerate(kind.strides)}


def _strides(program: Specialised, names: dict[str, Any]) -> list[str]:
    """The line that gives a result its strides, if it does not lie row by row."""
    names["strides"] = strides = program.forms[0].strides  # type: ignore[union-attr]
    return ["result._strides = strides"] if strides is not None else []


def _keeps(program: Specialised, runner: Any) -> bool:
    """Whether a run may write its gradients to the memory of those of the run before."""
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
) -> str:
    """The text of the function; `run` is how the program runs on what is given, and what becomes of its results.

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
    lines = ["if mode.enabled is not recorded: return MISS"]
    for n, flag in enumerate(tracked):
        lines += [
            f"if not isinstance(x{n}, Tensor) or x{n}._base is not None or x{n}._strides != strides{n}: return MISS",
            f"v{n} = x{n}._value",
            f"if (v{n}.type is not T{n} and v{n}.type != T{n}) or {'not ' if flag else ''}v{n}.tracked: return MISS",
            f"b{n} = v{n}.buffer",
            f"if b{n} is None: return MISS",
        ]
    for n in watched:
        other = f"now{n}.__class__ is not number{n}.__class__ or not same_number(now{n}, number{n})"
        lines += [f"now{n} = watched{n}.read()", f"if now{n} is not number{n} and ({other}): return MISS"]
    given = [f"b{n}" for n in range(len(tracked))]
    if stateful:
        lines += ["state = program.look()", "if state is None:"]
        lines += [
            "    if not program.is_current() or program.moves != moves: return MISS",
            "    state = program.state()",
        ]
        given.append("*state")
    if constants:
        given.append("*constants")
    lines += [f"given = ({''.join(g + ', ' for g in given).rstrip()})", *run]
    arguments = ", ".join(f"x{n}" for n in range(len(tracked)))
    return "\n    ".join([f"def call({arguments}):", *lines])
