"""Layers, losses and containers, under PyTorch's names.

Type checkers read `__init__.pyi`, which `python tools/stubs.py` writes.
"""

from ..functions.declared import publish_classes as _publish_classes
from ..tensor import Tensor as _Tensor
from . import (
    activation,
    attention,
    cells,
    container,
    conv,
    dropout,
    embedding,
    functional,
    init,
    layers,
    lazy,
    loss,
    models,
    module,
    norm,
    padding,
    parameter,
    pool,
    recurrent,
    transformer,
    upsample,
    utils,
    vocabulary,
)

_MODULES = (
    activation,
    attention,
    cells,
    container,
    conv,
    dropout,
    embedding,
    layers,
    lazy,
    loss,
    module,
    norm,
    padding,
)
_MODULES += (parameter, pool, recurrent, transformer, upsample, vocabulary)
_classes = {
    name: found
    for source in _MODULES
    for name, found in vars(source).items()
    if isinstance(found, type) and found.__module__ == source.__name__ and name[0] != "_"
    if issubclass(found, (module.Module, _Tensor))
}
globals().update(_classes)
__all__ = ["functional", "init", "models", "utils", *_classes]
_publish_classes(globals())
