"""Learning-rate schedules, under PyTorch's names.

Type checkers read `lr_scheduler.pyi`, which `python tools/stubs.py` writes.
"""

from ..deferred import defer as _defer
from ..functions.declared import with_checked_constructor as _checked

_CLASSES = {
    "averaging": "SWALR",
    "combined": "ChainedScheduler ReduceLROnPlateau SequentialLR",
    "cycles": "CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR OneCycleLR",
    "factors": "ConstantLR ExponentialLR LambdaLR LinearLR MultiStepLR MultiplicativeLR PolynomialLR StepLR",
    "schedule": "LRScheduler",
}
"""The public classes of each module."""

_defer(globals(), _CLASSES, publish=_checked)
