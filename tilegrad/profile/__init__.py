"""What programs do and why: every stage explained, times and limits measured. Reads the events that the runtime emits."""

from .explanation import Explanation, explain

__all__ = ["Explanation", "explain"]
