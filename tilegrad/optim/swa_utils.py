"""Averages of networks, under PyTorch's names.

Type checkers read `swa_utils.pyi`, which `python tools/stubs.py` writes.
"""

from ..deferred import defer as _defer
from ..functions.declared import with_checked_constructor as _checked

_NAMES = "SWALR AveragedModel get_ema_avg_fn get_ema_multi_avg_fn get_swa_avg_fn get_swa_multi_avg_fn update_bn"

_defer(globals(), {"averaging": _NAMES}, publish=_checked)
