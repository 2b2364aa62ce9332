"""All functions of tensors that stand in `tilegrad.`: what `torch.` has under the same names."""

from __future__ import annotations

from . import changing, random
from .changing import *  # noqa: F403
from .functions import (
    arithmetic,
    arranging,
    constants,
    contractions,
    creation,
    elementary,
    joining,
    reductions,
    selecting,
    special,
    summaries,
    views,
)
from .functions.arithmetic import *  # noqa: F403
from .functions.arranging import *  # noqa: F403
from .functions.constants import *  # noqa: F403
from .functions.contractions import *  # noqa: F403
from .functions.conversion import channels_last, channels_last_3d, clone, contiguous_format, preserve_format
from .functions.creation import *  # noqa: F403
from .functions.elementary import *  # noqa: F403
from .functions.joining import *  # noqa: F403
from .functions.reductions import *  # noqa: F403
from .functions.selecting import *  # noqa: F403
from .functions.special import *  # noqa: F403
from .functions.summaries import *  # noqa: F403
from .functions.views import *  # noqa: F403
from .functions.views import matrix_transposed as adjoint
from .linalg import addbmm, chain_matmul, matrix_power, vdot
from .linalg import first_cross as cross
from .random import *  # noqa: F403
from .tensor import Tensor

__all__ = ["addbmm", "adjoint", "chain_matmul", "clone", "cross", "is_floating_point", "is_nonzero", "is_same_size"]
__all__ += [
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "preserve_format",
    "is_signed",
    "is_tensor",
    "matrix_power",
    "numel",
    "vdot",
]
__all__ += arithmetic.__all__
__all__ += arranging.__all__
__all__ += changing.__all__
__all__ += constants.__all__
__all__ += contractions.__all__
__all__ += creation.__all__
__all__ += elementary.__all__
__all__ += joining.__all__
__all__ += random.__all__
__all__ += reductions.__all__
__all__ += selecting.__all__
__all__ += special.__all__
__all__ += summaries.__all__
__all__ += views.__all__


def is_tensor(obj: object) -> bool:
    """Whether something is a tensor."""
    return isinstance(obj, Tensor)


def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not 0."""
    return bool(input)


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.shape == other.shape


def is_signed(input: Tensor) -> bool:
    """Whether elements can be negative."""
    return input.is_signed()


def is_floating_point(input: Tensor) -> bool:
    """Whether the elements are floating-point numbers."""
    return input.is_floating_point()
