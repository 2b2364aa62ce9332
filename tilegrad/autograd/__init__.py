"""Differentiate user code: gradients, modes, user-written gradients, checks, and two teaching tools.

Type checkers read `__init__.pyi`, which `python tools/stubs.py` writes.
"""

from ..deferred import defer as _defer

_NAMES = {
    "engine": "backward grad",
    "function": "Function FunctionCtx once_differentiable",
    "checking": "gradcheck gradgradcheck",
    "modes": ("enable_grad inference_mode is_grad_enabled is_inference_mode_enabled no_grad set_grad_enabled"),
}
"""The public names of each module."""

_defer(globals(), _NAMES, ("numerical", "symbolic"))
