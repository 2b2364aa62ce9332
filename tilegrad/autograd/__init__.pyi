# Written by tools/stubs.py from tilegrad/autograd/__init__.py; a test compares it.

from tilegrad.autograd.checking import gradcheck as gradcheck
from tilegrad.autograd.checking import gradgradcheck as gradgradcheck
from tilegrad.autograd.engine import backward as backward
from tilegrad.autograd.engine import grad as grad
from tilegrad.autograd.function import Function as Function
from tilegrad.autograd.function import FunctionCtx as FunctionCtx
from tilegrad.autograd.function import once_differentiable as once_differentiable
from tilegrad.autograd.modes import enable_grad as enable_grad
from tilegrad.autograd.modes import inference_mode as inference_mode
from tilegrad.autograd.modes import is_grad_enabled as is_grad_enabled
from tilegrad.autograd.modes import is_inference_mode_enabled as is_inference_mode_enabled
from tilegrad.autograd.modes import no_grad as no_grad
from tilegrad.autograd.modes import set_grad_enabled as set_grad_enabled

from . import numerical as numerical
from . import symbolic as symbolic

__all__ = [
    "Function",
    "FunctionCtx",
    "backward",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "numerical",
    "once_differentiable",
    "set_grad_enabled",
    "symbolic",
]
