"""What a program looks at before every call, in straight code.

A network of some layers has a hundred things that might have been replaced since its program was made: layers,
functions, parameters. A loop over them takes as long as a small network itself. As long as all of them are the very
same things, comparing them one after the other in an expression takes a tenth of that; if one is not, `is_current`
decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from ..ir.graph import Value
from ..runtime.buffer import Buffer

if TYPE_CHECKING:
    from .specialised import Specialised

Look = Callable[[], "tuple[Buffer, ...] | None"]
"""Gives the memory of what a program captured, and of numbers, if nothing has changed; None if something may have."""


def look_at(program: Specialised) -> Look | None:
    """The look for a program; None if memory that it writes to is read by something that waits to be computed."""
    if not all(_is_free(program, n) for n in program.updated):
        return None
    names, same = _compared(program)
    if names is None:
        return None
    for n in range(len(program.host)):
        names[f"number{n}"] = program.number_at(n)
    exec(source(same, len(program.captured), len(program.host), program.updated), names)
    if program.updated:
        names |= zip([f"most{n}" for n in program.updated], names.pop("counts")(), strict=True)
    return names.pop("look")  # type: ignore[no-any-return]


def _is_free(program: Specialised, n: int) -> bool:
    value = program.captured[n].current()
    return not others_hold(value)


def _compared(program: Specialised) -> tuple[dict[str, Any] | None, list[str]]:
    """What is compared, and the comparisons. Nobody but the names holds values: references to them are counted."""
    names: dict[str, Any] = {"count": getrefcount}
    same: list[str] = []
    for n, (watched, found) in enumerate(program.outside):
        names |= {f"place{n}": watched.place, f"name{n}": watched.name, f"found{n}": found}
        same.append(watched.test(str(n), found))
    for n, base in enumerate(program.captured):
        if base.current().buffer is None:
            return None, []
        names |= {f"base{n}": base, f"value{n}": base.current(), f"whole{n}": base.storage.value}
        same += [f"base{n}.value is value{n}", f"base{n}.storage.value is whole{n}"]
        same.append(f"base{n}.seen == base{n}.storage.changes")
    for n, (read, value) in enumerate(program.guards):
        names |= {f"read{n}": read, f"before{n}": value}
        same.append(f"read{n}() == before{n}")
    return names, same


def source(same: Sequence[str], values: int, numbers: int = 0, updated: Sequence[int] = ()) -> str:
    """The text of a look; `updated` are values that nobody else may hold more often than when it was made.

    >>> print(source(["place0[name0] is found0", "base0.value is value0"], 1, 1, [0]))
    def counts():
        return (count(value0),)
    def look():
        try:
            if (
                place0[name0] is found0
                and base0.value is value0
                and count(value0) <= most0
            ):
                return (value0.buffer, number0(),)
        except (LookupError, ValueError):
            pass
    """
    counts = "".join([f"count(value{n}), " for n in updated]).rstrip()
    lines = ["def counts():", f"    return ({counts})"] if updated else []
    memory = "".join([f"value{n}.buffer, " for n in range(values)] + [f"number{n}(), " for n in range(numbers)])
    test = "\n            and ".join([*same, *[f"count(value{n}) <= most{n}" for n in updated]] or ["True"])
    lines += ["def look():", "    try:", "        if (", f"            {test}", "        ):"]
    lines += [f"            return ({memory.rstrip()})", "    except (LookupError, ValueError):", "        pass"]
    return "\n".join(lines)


def others_hold(value: Value) -> bool:
    """Whether something recorded, but not computed yet, reads the memory that is about to be overwritten.

    Values made by `Specialised` for it know how many references they have as long as nobody else holds them.
    """
    owned = value.__dict__.get("references")
    return owned is None or getrefcount(value) > owned


def _held_once() -> int:
    """How many references are counted of what one object and one variable hold."""
    place = [object()]
    x = place[0]
    return getrefcount(x)


HELD_ONCE = _held_once()


def kept_gradients(count: int) -> list[str]:
    """The text that finds memory of gradients that were left behind by the last call, if nobody else has it.

    >>> print("\\n".join(kept_gradients(1)))
    t0 = holder0._gradient
    if (
        t0.__class__ is Tensor and held(t0) == once and len(t0.__dict__) == 1
        and (g0 := t0._value).__dict__.get("left") is left and held(g0) == once and held(m0 := g0.buffer) == once
    ):
        made = runner(given, (m0,))
    else:
        t0 = g0 = m0 = None
        program.let_go()
        made = runner(given)
        program.leave(made)
    """
    tests = []
    for n in range(count):
        tests.append(f"t{n}.__class__ is Tensor and held(t{n}) == once and len(t{n}.__dict__) == 1")
        tests.append(
            f'(g{n} := t{n}._value).__dict__.get("left") is left and held(g{n}) == once and '
            f"held(m{n} := g{n}.buffer) == once"
        )
    memory = "".join([f"m{n}, " for n in range(count)]).rstrip()
    names = " = ".join([f"{letter}{n}" for n in range(count) for letter in "tgm"])
    return [
        *[f"t{n} = holder{n}._gradient" for n in range(count)],
        "if (",
        "    " + "\n        and ".join(tests),
        "):",
        f"    made = runner(given, ({memory}))",
        "else:",
        f"    {names} = None",
        "    program.let_go()",
        "    made = runner(given)",
        "    program.leave(made)",
    ]
