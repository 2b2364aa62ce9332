"""Optimizers, learning-rate schedules, and averages of parameters, under PyTorch's names.

Type checkers read `__init__.pyi`, which `python tools/stubs.py` writes.
"""

from ..deferred import defer as _defer
from ..functions.declared import with_checked_constructor as _checked

_CLASSES = {
    "averaged": "ASGD Adafactor Rprop",
    "lbfgs": "LBFGS",
    "sgd": "SGD",
    "adaptive": "Adadelta Adagrad RMSprop",
    "adam": "Adam AdamW",
    "adam_relatives": "Adamax Lion NAdam RAdam",
    "muon": "Muon",
    "optimizer": "Optimizer",
}
"""The public classes of each module."""

_defer(globals(), _CLASSES, ("lr_scheduler", "swa_utils"), _checked)
