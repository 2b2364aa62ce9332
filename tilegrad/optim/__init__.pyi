# Written by tools/stubs.py from tilegrad/optim/__init__.py; a test compares it.

from tilegrad.optim.adam import Adam as Adam
from tilegrad.optim.adam import AdamW as AdamW
from tilegrad.optim.adam_relatives import Adamax as Adamax
from tilegrad.optim.adam_relatives import Lion as Lion
from tilegrad.optim.adam_relatives import NAdam as NAdam
from tilegrad.optim.adam_relatives import RAdam as RAdam
from tilegrad.optim.adaptive import Adadelta as Adadelta
from tilegrad.optim.adaptive import Adagrad as Adagrad
from tilegrad.optim.adaptive import RMSprop as RMSprop
from tilegrad.optim.averaged import ASGD as ASGD
from tilegrad.optim.averaged import Adafactor as Adafactor
from tilegrad.optim.averaged import Rprop as Rprop
from tilegrad.optim.lbfgs import LBFGS as LBFGS
from tilegrad.optim.muon import Muon as Muon
from tilegrad.optim.optimizer import Optimizer as Optimizer
from tilegrad.optim.sgd import SGD as SGD

from . import lr_scheduler as lr_scheduler
from . import swa_utils as swa_utils

__all__ = [
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "LBFGS",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "lr_scheduler",
    "swa_utils",
]
