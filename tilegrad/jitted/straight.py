"""What a program looks at before every call, in straight code.

A network of some layers has a hundred things that might have been replaced since its program was made: layers,
functions, parameters. A loop over them takes as long as a small network itself. As long as all of them are the very
same things, comparing them one after the other in an expression takes a tenth of that; if one is not, `is_current`
decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CellType
from typing import TYPE_CHECKING, Any

from ..runtime.buffer import Buffer
from .watched import Length

if TYPE_CHECKING:
    from .specialised import Specialised

Look = Callable[[], "tuple[Buffer, ...] | None"]
"""Gives the memory of what a program captured if nothing has changed, and None if something may have."""


def look_at(program: Specialised) -> Look | None:
    """The look for a program that changes nothing outside."""
    if program.writes or program.host or program.gradients:
        return None
    values = [base.current() for base in program.captured]
    if any(value.buffer is None for value in values):
        return None
    names: dict[str, Any] = {f"value{n}": value for n, value in enumerate(values)}
    same: list[str] = []
    for n, (watched, found) in enumerate(program.outside):
        names |= {f"place{n}": watched.place, f"name{n}": watched.name, f"found{n}": found}
        if isinstance(watched, Length):
            same.append(f"len(place{n}) == found{n}" if found else f"not place{n}")
        elif watched.place.__class__ is CellType:
            same.append(f"place{n}.cell_contents is found{n}")
        else:
            same.append(f"place{n}[name{n}] is found{n}")
    for n, base in enumerate(program.captured):
        names |= {f"base{n}": base, f"whole{n}": base.storage.value}
        same += [f"base{n}.value is value{n}", f"base{n}.storage.value is whole{n}"]
        same.append(f"base{n}.seen == base{n}.storage.changes")
    for n, (read, value) in enumerate(program.guards):
        names |= {f"read{n}": read, f"before{n}": value}
        same.append(f"read{n}() == before{n}")
    exec(source(same, len(values)), names)
    return names["look"]  # type: ignore[no-any-return]


def source(same: Sequence[str], values: int) -> str:
    """The text of a look.

    >>> print(source(["place0[name0] is found0", "base0.value is value0"], 1))
    def look():
        try:
            if (
                place0[name0] is found0
                and base0.value is value0
            ):
                return (value0.buffer,)
        except (LookupError, ValueError):
            pass
    """
    memory = "".join([f"value{n}.buffer, " for n in range(values)]).rstrip()
    test = "\n            and ".join(same or ["True"])
    lines = ["def look():", "    try:", "        if (", f"            {test}", "        ):"]
    lines += [f"            return ({memory})", "    except (LookupError, ValueError):", "        pass"]
    return "\n".join(lines)
