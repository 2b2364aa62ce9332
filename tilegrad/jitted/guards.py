"""Generate the guards of a program: straight-line source that compares captured state before every call.

A network of some layers depends on hundreds of objects that might be replaced: layers, functions, parameters. A loop
over them takes as long as a small network itself; one generated expression of identity comparisons takes a tenth of
that. If a comparison fails, `is_current` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from ..runtime.buffer import DeviceBuffer

if TYPE_CHECKING:
    from .specialised import Specialised

Guards = Callable[[], "tuple[DeviceBuffer, ...] | None"]
"""Returns the buffers of captured storages and numbers if all guards hold; None otherwise."""


def make_guards(program: Specialised) -> Guards | None:
    """Generate the guards of a program; None if a storage that it updates does not own its memory yet."""
    if not all(program.captured[n].storage.owned is not None for n in program.updated):
        return None
    if any(n >= len(program.captured) or program.captured[n].storage.owned is None for n in program.lent):
        return None
    names, same = _guard_conditions(program)
    if names is None:
        return None
    for n in range(len(program.host)):
        names[f"number{n}"] = program.number_at(n)
    owned = [n for n, base in enumerate(program.captured) if base.storage.owned is not None]
    exec(source(same, len(program.captured), len(program.host), owned, program.updated, program.lent), names)
    return names.pop("check")  # type: ignore[no-any-return]


def _guard_conditions(program: Specialised) -> tuple[dict[str, Any] | None, list[str]]:
    """Collect the guards as source, and the names that it refers to."""
    names: dict[str, Any] = {}
    same: list[str] = []
    for n, (watched, found) in enumerate(program.outside):
        names |= {f"place{n}": watched.place, f"name{n}": watched.name, f"found{n}": found}
        same.append(watched.guard_source(str(n), found))
    for n, base in enumerate(program.captured):
        value = base.standing()
        if base.storage.owned is None and value.buffer is None:
            return None, []
        names |= {f"base{n}": base, f"value{n}": value, f"storage{n}": base.storage, f"whole{n}": base.storage.value}
        same += [f"base{n}.value is value{n}", f"storage{n}.value is whole{n}"]
        if base.storage.owned is None:
            same.append(f"base{n}.seen == storage{n}.changes")
    for n, (read, value) in enumerate(program.guards):
        names |= {f"read{n}": read, f"before{n}": value}
        same.append(f"read{n}() == before{n}")
    return names, same


def source(
    same: Sequence[str],
    values: int,
    numbers: int = 0,
    owned: Collection[int] = (),
    updated: Collection[int] = (),
    lent: Collection[int] = (),
) -> str:
    """Generate the source of guards. `owned` storages own their memory; of these, the `updated` must have no readers,
    and the memory of `lent` ones is shared with results.

    >>> print(source(["place0[name0] is found0", "base0.value is value0"], 3, 1, [0, 1], [0]))
    def check():
        try:
            if (
                place0[name0] is found0
                and base0.value is value0
                and ((lent0 := storage0.lent) is None or lent0() is None)
            ):
                return (storage0.owned, storage1.owned, value2.buffer, number0(),)
        except (LookupError, ValueError):
            pass
    """
    memory = [f"storage{n}.owned" if n in owned else f"value{n}.buffer" for n in range(values)]
    for n in {*lent} & {*owned}:
        memory[n] = f"storage{n}.loan()"
    memory += [f"number{n}()" for n in range(numbers)]
    free = [f"((lent{n} := storage{n}.lent) is None or lent{n}() is None)" for n in updated]
    condition = "\n            and ".join([*same, *free] or ["True"])
    lines = ["def check():", "    try:", "        if (", f"            {condition}", "        ):"]
    lines += [f"            return ({''.join(f'{m}, ' for m in memory).rstrip()})"]
    return "\n".join([*lines, "    except (LookupError, ValueError):", "        pass"])


def run_on_gradient_memory(count: int) -> list[str]:
    r"""Emit the lines that run a program on the memory of the previous call's gradients if nothing reads them.

    >>> print("\n".join(run_on_gradient_memory(1)))
    holder0._gradient = None
    m0 = left0.free()
    if m0 is not None:
        made = runner(given, (m0,))
    else:
        program.drop_gradients()
        made = runner(given)
        program.store_gradients(made)
    holder0._gradient = left0
    """
    memory = "".join([f"m{n}, " for n in range(count)]).rstrip()
    return [
        *[f"holder{n}._gradient = None" for n in range(count)],
        *[f"m{n} = left{n}.free()" for n in range(count)],
        f"if {' and '.join(f'm{n} is not None' for n in range(count))}:",
        f"    made = runner(given, ({memory}))",
        "else:",
        "    program.drop_gradients()",
        "    made = runner(given)",
        "    program.store_gradients(made)",
        *[f"holder{n}._gradient = left{n}" for n in range(count)],
    ]
