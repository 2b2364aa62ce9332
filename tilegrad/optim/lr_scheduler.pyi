# Written by tools/stubs.py from tilegrad/optim/lr_scheduler.py; a test compares it.

from tilegrad.optim.averaging import SWALR as SWALR
from tilegrad.optim.combined import ChainedScheduler as ChainedScheduler
from tilegrad.optim.combined import ReduceLROnPlateau as ReduceLROnPlateau
from tilegrad.optim.combined import SequentialLR as SequentialLR
from tilegrad.optim.cycles import CosineAnnealingLR as CosineAnnealingLR
from tilegrad.optim.cycles import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from tilegrad.optim.cycles import CyclicLR as CyclicLR
from tilegrad.optim.cycles import OneCycleLR as OneCycleLR
from tilegrad.optim.factors import ConstantLR as ConstantLR
from tilegrad.optim.factors import ExponentialLR as ExponentialLR
from tilegrad.optim.factors import LambdaLR as LambdaLR
from tilegrad.optim.factors import LinearLR as LinearLR
from tilegrad.optim.factors import MultiplicativeLR as MultiplicativeLR
from tilegrad.optim.factors import MultiStepLR as MultiStepLR
from tilegrad.optim.factors import PolynomialLR as PolynomialLR
from tilegrad.optim.factors import StepLR as StepLR
from tilegrad.optim.schedule import LRScheduler as LRScheduler

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SWALR",
    "SequentialLR",
    "StepLR",
]
