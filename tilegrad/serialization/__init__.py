"""Save and load tensors: PyTorch's `.pt` and safetensors. Nothing in a file is executed; output is deterministic."""

from . import safetensors
from .checkpoint import load, save
from .safetensors import load_file as load_safetensors
from .safetensors import safe_open
from .safetensors import save_file as save_safetensors

__all__ = ["load", "load_safetensors", "safe_open", "safetensors", "save", "save_safetensors"]


def __dir__() -> list[str]:
    return __all__
