"""Optimizers, learning-rate schedules, and averages of parameters, under PyTorch's names."""

from ..functions.declared import publish_classes
from . import lr_scheduler, swa_utils
from .adam import Adam, AdamW
from .adam_relatives import Adamax, Lion, NAdam, RAdam
from .adaptive import Adadelta, Adagrad, RMSprop
from .averaged import ASGD, Adafactor, Rprop
from .lbfgs import LBFGS
from .muon import Muon
from .optimizer import Optimizer
from .sgd import SGD

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "lr_scheduler",
    "swa_utils",
]

publish_classes(globals())
