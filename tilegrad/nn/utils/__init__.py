"""Clip gradients, flatten parameters, compute parameters from others, fold batch norms, and pack sequences."""

from . import clip_grad, computed, convert_parameters, fusion, parametrizations, parametrize, rnn, stateless
from .clip_grad import *  # noqa: F403
from .computed import *  # noqa: F403
from .convert_parameters import *  # noqa: F403
from .fusion import *  # noqa: F403

__all__ = ["parametrizations", "parametrize", "rnn", "stateless"]
__all__ += clip_grad.__all__
__all__ += computed.__all__
__all__ += convert_parameters.__all__
__all__ += fusion.__all__


def __dir__() -> list[str]:
    return __all__
