"""Run programs: devices, memory, the executor, caches on disk. Knows no operators and no compiler.

Public are the parts that are of use by themselves: `Engine`, which runs functions concurrently in the order of what
they read and mutate, and `plan_memory`. Type checkers read `__init__.pyi`, which `python tools/stubs.py` writes.
"""

from ..deferred import defer as _defer

_NAMES = {
    "dependency_engine": "Engine EngineVariable",
    "memory_plan": "SlotPlan Operation plan_memory",
    "arena": "Lifetime plan_arena",
}
"""The public names of each module."""

_defer(globals(), _NAMES)
