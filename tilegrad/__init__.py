"""tilegrad: tensors, automatic differentiation, a graph compiler and generated kernels.

Type checkers read `__init__.pyi`, which `python tools/stubs.py` writes.
"""

from importlib import import_module as _import_module

from . import errors, functional
from .autograd.modes import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .config import VERSION as __version__
from .functional import tensor
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
from .runtime.device import owner_tables as _owner_tables
from .tensor import Tensor

dtype, bool, half, float, double = DType, bool_, float16, float32, float64
short, int, long = int16, int32, int64

_LAYERS = (
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "alpha_dropout", "avg_pool1d", "bilinear", "celu", "channel_shuffle",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity",
    "group_norm", "hardshrink", "layer_norm", "max_pool1d", "max_pool2d", "max_pool3d", "pairwise_distance", "pdist",
    "pixel_shuffle", "pixel_unshuffle", "prelu", "rms_norm", "rrelu", "selu", "threshold",
)  # fmt: skip
"""Functions of `nn.functional` that PyTorch has in `torch`, too."""

_LAZY = {
    "jit": "jitted.function",
    "set_printoptions": "printing",
    "synchronize": "lazy.timing",
    "explain": "profile.explanation",
    "progress": "profile.progress",
    "first_nan": "profile.first_nan",
    "autocast": "amp",
    **dict.fromkeys(("get_float32_matmul_precision", "set_float32_matmul_precision"), "functions.autocasting"),
    **dict.fromkeys(("load", "load_safetensors", "save", "save_safetensors"), "serialization"),
    **dict.fromkeys(("cond", "scan", "while_loop"), "control"),
    **dict.fromkeys(("export", "load_program"), "saved.exported"),
    "engine": "engines.create",
    "kernel": "language.kernel",
    "op": "custom.operator",
    **dict.fromkeys(("Config", "autotune", "cdiv", "heuristics", "next_power_of_2"), "language.tuning"),
    **dict.fromkeys(_LAYERS, "nn.functional"),
    **dict.fromkeys(("checkpoint", "grad", "jvp", "value_and_grad", "vjp", "vmap"), "transforms"),
    **dict.fromkeys(("hessian", "jacfwd", "jacobian", "jacrev"), "jacobians"),
}
"""Names that are imported when they are first used, with their modules."""
_WITH_INDICES = {"adaptive_max_pool1d": "adaptive_max_pool1d_with_indices"}
"""Functions that return indices, too, as those of the same names in `torch`."""
_PACKAGES = (
    "amp", "autograd", "backend", "cpp", "cuda", "custom", "data", "engines", "generation", "language", "linalg",
    "logging", "memory", "nn", "onnx", "optim", "profile", "profiler", "runtime", "serialization", "tensorboard",
    "testing", "utils",
)  # fmt: skip
"""Packages that are imported when they are first used."""
_DISTRIBUTIONS = ("simt", "torch")
"""Packages that are installed apart from the core."""


_owner_tables.append(lambda on: _import_module(f"{__name__}.profile.memory").largest_owners(on))


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return _import_module(f"{__name__}.{name}")
    if name in _DISTRIBUTIONS:
        try:
            return _import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as problem:
            if problem.name != f"{__name__}.{name}":
                raise
            message = f"tilegrad.{name} is a distribution of its own: pip install 'tilegrad[{name}]'"
            raise AttributeError(message) from None
    if name in functional.__all__:
        found = globals()[name] = getattr(functional, name)
        return found
    if name in _LAZY:
        found = globals()[name] = getattr(_import_module(f"{__name__}.{_LAZY[name]}"), _WITH_INDICES.get(name, name))
        return found
    raise AttributeError(
        f"module 'tilegrad' has no attribute {name!r}; `import tilegrad.torch as torch` has more of PyTorch's names"
    )


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


_made = [name for name, found in globals().items() if name[0] != "_" and not isinstance(found, type(errors))]
__all__ = [*dict.fromkeys((*_made, *functional.__all__)), "errors", *_PACKAGES, *_LAZY]
