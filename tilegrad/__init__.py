"""tilegrad: tensors, automatic differentiation, a graph compiler, generated kernels: readable from top to bottom."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import errors, functional
from .autograd.modes import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .config import VERSION as __version__  # noqa: F401
from .functional import *  # noqa: F403
from .functions.promotion import can_cast, get_default_dtype, promote_types, result_type, set_default_dtype
from .ir.dtype import (
    DType,
    bfloat16,
    bool_,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .lazy.evaluation import compute, live_bytes
from .runtime.device import Device, device, devices
from .tensor import Tensor

if TYPE_CHECKING:
    from . import amp, autograd, cpp, cuda, custom, data, language, linalg, nn, optim, serialization, simt
    from .amp import autocast
    from .control import cond, scan, while_loop
    from .custom.operator import op
    from .functions.autocasting import get_float32_matmul_precision, set_float32_matmul_precision
    from .jacobians import hessian, jacfwd, jacobian, jacrev
    from .jitted.function import jit
    from .language.kernel import kernel
    from .language.tuning import Config, autotune, cdiv, heuristics, next_power_of_2
    from .lazy.timing import synchronize
    from .printing import set_printoptions
    from .profile.explanation import explain
    from .profile.first_nan import first_nan
    from .serialization import load, load_safetensors, save, save_safetensors
    from .transforms import checkpoint, grad, jvp, value_and_grad, vjp, vmap

dtype, bool, half, float, double = DType, bool_, float16, float32, float64
short, int, long = int16, int32, int64

OF_LAYERS = (
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "alpha_dropout", "avg_pool1d", "bilinear", "celu", "channel_shuffle",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity",
    "group_norm", "hardshrink", "layer_norm", "max_pool1d", "max_pool2d", "max_pool3d", "pairwise_distance", "pdist",
    "pixel_shuffle", "pixel_unshuffle", "prelu", "rms_norm", "rrelu", "selu", "threshold",
)  # fmt: skip
"""Functions of `nn.functional` that PyTorch has in `torch`, too."""

LATER = {
    "jit": "jitted.function",
    "set_printoptions": "printing",
    "synchronize": "lazy.timing",
    "explain": "profile.explanation",
    "first_nan": "profile.first_nan",
    "autocast": "amp",
    **dict.fromkeys(("get_float32_matmul_precision", "set_float32_matmul_precision"), "functions.autocasting"),
    **dict.fromkeys(("load", "load_safetensors", "save", "save_safetensors"), "serialization"),
    **dict.fromkeys(("cond", "scan", "while_loop"), "control"),
    "kernel": "language.kernel",
    "op": "custom.operator",
    **dict.fromkeys(("Config", "autotune", "cdiv", "heuristics", "next_power_of_2"), "language.tuning"),
    **dict.fromkeys(OF_LAYERS, "nn.functional"),
    **dict.fromkeys(("checkpoint", "grad", "jvp", "value_and_grad", "vjp", "vmap"), "transforms"),
    **dict.fromkeys(("hessian", "jacfwd", "jacobian", "jacrev"), "jacobians"),
}
"""What is imported when it is first used, and from where."""
WITH_INDICES = {"adaptive_max_pool1d": "adaptive_max_pool1d_with_indices"}
"""Functions that give indices, too, where they stand in `torch`."""
ROOMS = (
    "amp", "autograd", "backend", "cpp", "cuda", "custom", "data", "language", "linalg", "memory", "nn", "optim",
    "profile", "profiler", "serialization", "tensorboard",
)  # fmt: skip
"""Packages that are imported when they are first used."""
DISTRIBUTIONS = ("simt", "torch")
"""Packages that are installed apart from the core."""


def __getattr__(name: str) -> Any:
    if name in ROOMS:
        return import_module(f"{__name__}.{name}")
    if name in DISTRIBUTIONS:
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as problem:
            if problem.name != f"{__name__}.{name}":
                raise
            message = f"tilegrad.{name} is a distribution of its own: pip install 'tilegrad[{name}]'"
            raise AttributeError(message) from None
    if name in LATER:
        found = globals()[name] = getattr(import_module(f"{__name__}.{LATER[name]}"), WITH_INDICES.get(name, name))
        return found
    raise AttributeError(
        f"module 'tilegrad' has no attribute {name!r}; `import tilegrad.torch as torch` has more of PyTorch's names"
    )


__all__ = [
    "amp", "autocast", "autograd", "autotune", "bfloat16", "bool", "bool_", "can_cast", "cdiv", "checkpoint",
    "compute", "cond", "Config", "cpp", "cuda", "custom", "data", "device", "Device", "devices", "double", "DType",
    "dtype",
    "enable_grad", "errors", "explain", "first_nan", "float", "float16", "float32", "float64",
    "float8_e4m3fn", "float8_e5m2", "get_default_dtype",
    "get_float32_matmul_precision", "grad", "half", "hessian", "heuristics", "inference_mode", "int", "int16",
    "int32", "int64", "int8", "is_grad_enabled", "jacfwd", "jacobian", "jacrev", "jit", "jvp", "kernel", "language",
    "linalg", "live_bytes", "load", "load_safetensors", "long", "next_power_of_2", "nn", "no_grad", "op", "optim",
    "promote_types", "result_type", "save", "save_safetensors", "scan", "serialization", "set_default_dtype",
    "set_float32_matmul_precision", "set_grad_enabled", "set_printoptions", "short", "simt", "synchronize", "Tensor",
    "uint16", "uint32", "uint64", "uint8", "value_and_grad", "vjp", "vmap", "while_loop",
]  # fmt: skip
__all__ += functional.__all__
