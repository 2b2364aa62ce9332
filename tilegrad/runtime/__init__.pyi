# Written by tools/stubs.py from tilegrad/runtime/__init__.py; a test compares it.

from tilegrad.runtime.arena import Lifetime as Lifetime
from tilegrad.runtime.arena import plan_arena as plan_arena
from tilegrad.runtime.dependency_engine import Engine as Engine
from tilegrad.runtime.dependency_engine import EngineVariable as EngineVariable
from tilegrad.runtime.memory_plan import Operation as Operation
from tilegrad.runtime.memory_plan import SlotPlan as SlotPlan
from tilegrad.runtime.memory_plan import plan_memory as plan_memory

__all__ = [
    "Engine",
    "EngineVariable",
    "Lifetime",
    "Operation",
    "SlotPlan",
    "plan_arena",
    "plan_memory",
]
