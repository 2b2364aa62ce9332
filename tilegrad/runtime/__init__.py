"""Run programs: devices, memory, the executor, caches on disk. Knows no operators and no compiler.

Public: what is of use by itself. Type checkers read `__init__.pyi`, which `python tools/stubs.py` writes.
"""

from ..deferred import defer as _defer

_NAMES = {"dependency_engine": "Engine EngineVariable", "memory_plan": "Operation SlotPlan plan_memory"}

_defer(globals(), {**_NAMES, "arena": "Lifetime plan_arena"})
