"""Explain and measure programs: every compiler stage, profiles, traces, memory, TensorBoard's files, benchmarks.

Reads the events that the runtime emits.
"""

from .explanation import Explanation, explain

__all__ = ["Explanation", "explain"]
