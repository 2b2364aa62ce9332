"""Provide PyTorch's module names, as scripts for custom operators use them, on top of tilegrad.

`import tilegrad.torch as torch` gives a script these names; `python -m tilegrad.torch SCRIPT` runs one as it is, in a
process in which `import torch` and `import torchvision` mean this package. What is not here is an AttributeError that
names what is near.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .doors import PACKAGE, TABLE, missing

__version__ = "2.0.0+tilegrad"
"""Version that scripts compare with PyTorch's."""

OWN = {
    "accelerator": ".accelerator",
    "autograd": ".autograd",
    "backends": ".backends",
    "cpu": ".cpu",
    "cuda": ".cuda",
    "profiler": ".profiler",
    "transforms": ".transforms",
    "utils": ".utilities",
    "version": ".version",
}
"""Modules that PyTorch or torchvision has and that this package implements itself."""
NAMES = {"compile": ("..jitted.function", "jit")}


def __getattr__(name: str) -> Any:
    if name in OWN:
        return import_module(OWN[name], __name__)
    if name in NAMES:
        module, wanted = NAMES[name]
        return getattr(import_module(module, __name__), wanted)
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return getattr(import_module(PACKAGE), name)
    except AttributeError:
        raise missing("torch", name, dir(import_module(PACKAGE))) from None


__all__ = ["TABLE"]
