# Written by tools/stubs.py from tilegrad/optim/swa_utils.py; a test compares it.

from tilegrad.optim.averaging import SWALR as SWALR
from tilegrad.optim.averaging import AveragedModel as AveragedModel
from tilegrad.optim.averaging import get_ema_avg_fn as get_ema_avg_fn
from tilegrad.optim.averaging import get_ema_multi_avg_fn as get_ema_multi_avg_fn
from tilegrad.optim.averaging import get_swa_avg_fn as get_swa_avg_fn
from tilegrad.optim.averaging import get_swa_multi_avg_fn as get_swa_multi_avg_fn
from tilegrad.optim.averaging import update_bn as update_bn

__all__ = [
    "AveragedModel",
    "SWALR",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]
