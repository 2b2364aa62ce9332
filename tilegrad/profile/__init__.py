"""What programs do and why: every stage explained, times beside limits. Reads the events that the runtime emits."""

from .explanation import Explanation, explain

__all__ = ["Explanation", "explain"]
