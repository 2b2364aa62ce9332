"""Layers, losses and containers, under PyTorch's names."""

from ..functions.declared import publish_classes
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
    margin,
    models,
    norm,
    padding,
    pool,
    recurrent,
    transformer,
    upsample,
    utils,
)
from .activation import *  # noqa: F403
from .attention import *  # noqa: F403
from .cells import *  # noqa: F403
from .container import *  # noqa: F403
from .conv import *  # noqa: F403
from .dropout import *  # noqa: F403
from .embedding import *  # noqa: F403
from .layers import *  # noqa: F403
from .lazy import *  # noqa: F403
from .loss import *  # noqa: F403
from .margin import *  # noqa: F403
from .module import Module
from .norm import *  # noqa: F403
from .padding import *  # noqa: F403
from .parameter import Buffer, Parameter
from .pool import *  # noqa: F403
from .recurrent import *  # noqa: F403
from .transformer import *  # noqa: F403
from .upsample import *  # noqa: F403
from .vocabulary import AdaptiveLogSoftmaxWithLoss, LinearCrossEntropyLoss

__all__ = ["AdaptiveLogSoftmaxWithLoss", "Buffer", "LinearCrossEntropyLoss", "Module", "Parameter"]
__all__ += ["functional", "init", "models", "utils"]
__all__ += activation.__all__
__all__ += attention.__all__
__all__ += cells.__all__
__all__ += container.__all__
__all__ += conv.__all__
__all__ += dropout.__all__
__all__ += embedding.__all__
__all__ += layers.__all__
__all__ += lazy.__all__
__all__ += loss.__all__
__all__ += margin.__all__
__all__ += norm.__all__
__all__ += padding.__all__
__all__ += pool.__all__
__all__ += recurrent.__all__
__all__ += transformer.__all__
__all__ += upsample.__all__

publish_classes(globals())
