"""All functions of tensors that stand in `tilegrad.`: what `torch.` has under the same names."""

from __future__ import annotations

from . import arithmetic, contractions, creation, elementary, joining, random, reductions, selecting, views
from .arithmetic import *  # noqa: F403
from .contractions import *  # noqa: F403
from .conversion import clone
from .creation import *  # noqa: F403
from .elementary import *  # noqa: F403
from .joining import *  # noqa: F403
from .random import *  # noqa: F403
from .reductions import *  # noqa: F403
from .selecting import *  # noqa: F403
from .tensor import Tensor
from .views import *  # noqa: F403

__all__ = ["clone", "is_floating_point", "is_tensor", "numel"]
__all__ += arithmetic.__all__
__all__ += contractions.__all__
__all__ += creation.__all__
__all__ += elementary.__all__
__all__ += joining.__all__
__all__ += random.__all__
__all__ += reductions.__all__
__all__ += selecting.__all__
__all__ += views.__all__


def is_tensor(obj: object) -> bool:
    """Whether something is a tensor."""
    return isinstance(obj, Tensor)


def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


def is_floating_point(input: Tensor) -> bool:
    """Whether the elements are floating-point numbers."""
    return input.is_floating_point()
