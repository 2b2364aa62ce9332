"""Redirect `import torch` of a process to this package."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGE = __package__.rpartition(".")[0]
TABLE = {
    "torch": "torch",
    "torch.nn": "nn",
    "torch.nn.functional": "nn.functional",
    "torch.nn.init": "nn.init",
    "torch.nn.parameter": "nn.parameter",
    "torch.nn.modules": "nn",
    "torch.nn.utils": "nn.utils",
    "torch.optim": "optim",
    "torch.optim.lr_scheduler": "optim.lr_scheduler",
    "torch.linalg": "linalg",
    "torch.amp": "amp",
    "torch.autograd": "torch.autograd",
    "torch.autograd.function": "autograd.function",
    "torch.autograd.profiler": "torch.profiler",
    "torch.autograd.gradcheck": "autograd.checking",
    "torch.profiler": "torch.profiler",
    "torch.accelerator": "torch.accelerator",
    "torch.cpu": "torch.cpu",
    "torch.cuda": "torch.cuda",
    "torch.cuda.amp": "amp",
    "torch.backends": "torch.backends",
    "torch.testing": "testing",
    "torch.utils": "torch.utilities",
    "torch.utils.benchmark": "utils.benchmark",
    "torch.utils.data": "torch.loading",
    "torch.utils.cpp_extension": "torch.cpp_extension",
    "torch.utils.tensorboard": "torch.tensorboard",
    "torchvision": "torch.vision",
    "torchvision.datasets": "torch.datasets",
    "torchvision.transforms": "torch.transforms",
    "torchvision.models": "nn.models",
    "torchvision.utils": "torch.pictures",
}
"""PyTorch's modules, and the modules of this package that implement them."""
TOPS = ("torch", "torchvision")


class Finder(MetaPathFinder, Loader):
    """An import finder that looks in the table first."""

    def __init__(self) -> None:
        self.before: dict[str, ModuleType] = {}
        """Modules of PyTorch that were imported before the redirection."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        top = name.partition(".")[0]
        if top not in TOPS:
            return None
        if name not in TABLE:
            parent, _, last = name.rpartition(".")
            raise ModuleNotFoundError(
                f"{missing(parent or name, last, [x.rpartition('.')[2] for x in TABLE if x.startswith(parent)])}",
                name=name,
            )
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        found = import_module(f"{PACKAGE}.{TABLE[module.__name__]}")
        if not hasattr(found, "__path__") and any(name.startswith(f"{module.__name__}.") for name in TABLE):
            found.__path__ = []  # `import torch.utils.data` asks whether torch.utils is a package
        sys.modules[module.__name__] = found


def opened() -> Finder:
    """Redirect `import torch` in this process until `closed` is called."""
    for finder in sys.meta_path:
        if isinstance(finder, Finder):
            return finder
    finder = Finder()
    finder.before = _taken_out()
    sys.meta_path.insert(0, finder)
    return finder


def closed() -> None:
    """End the redirection: modules of PyTorch that were imported before are restored."""
    for finder in [x for x in sys.meta_path if isinstance(x, Finder)]:
        sys.meta_path.remove(finder)
        _taken_out()
        sys.modules.update(finder.before)


def _taken_out() -> dict[str, ModuleType]:
    """Remove and return the modules under PyTorch's names."""
    names = [name for name in sys.modules if name.partition(".")[0] in TOPS]
    return {name: sys.modules.pop(name) for name in names}


def missing(module: str, name: str, there: Iterable[str]) -> AttributeError:
    """Return the error for a name that this package lacks.

    >>> print(missing("torch", "zero", ["zeros", "ones"]))
    tilegrad.torch has no torch.zero (did you mean torch.zeros?)
    """
    near = get_close_matches(name, [x for x in there if not x.startswith("_")], 3, 0.7)
    guess = (
        f" (did you mean {' or '.join(f'{module}.{x}' for x in near)}?)"
        if near
        else (f": dir({module}) lists what there is, docs/torch.md what is left out")
    )
    return AttributeError(f"tilegrad.torch has no {module}.{name}{guess}")
