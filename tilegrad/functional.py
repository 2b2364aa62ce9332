"""All functions of tensors that stand in `tilegrad.`: what `torch.` has under the same names."""

from __future__ import annotations

from types import FunctionType

from . import random
from .functions import (
    arithmetic,
    arranging,
    comparing,
    constants,
    contractions,
    copies,
    creation,
    elementary,
    joining,
    normalizing,
    reductions,
    selecting,
    special,
    summaries,
    views,
)
from .functions.arithmetic import *  # noqa: F403
from .functions.arranging import *  # noqa: F403
from .functions.comparing import *  # noqa: F403
from .functions.constants import *  # noqa: F403
from .functions.contractions import *  # noqa: F403
from .functions.conversion import clone
from .functions.copies import *  # noqa: F403
from .functions.creation import *  # noqa: F403
from .functions.declared import checking_arguments
from .functions.elementary import *  # noqa: F403
from .functions.into import WITH_OUT, taking_out
from .functions.joining import *  # noqa: F403
from .functions.normalizing import *  # noqa: F403
from .functions.reductions import *  # noqa: F403
from .functions.selecting import *  # noqa: F403
from .functions.special import *  # noqa: F403
from .functions.summaries import *  # noqa: F403
from .functions.views import *  # noqa: F403
from .functions.views import matrix_transposed as adjoint
from .lazy.layout import channels_last, channels_last_3d, contiguous_format, preserve_format
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
__all__ += comparing.__all__
__all__ += constants.__all__
__all__ += contractions.__all__
__all__ += copies.__all__
__all__ += creation.__all__
__all__ += elementary.__all__
__all__ += joining.__all__
__all__ += normalizing.__all__
__all__ += random.__all__
__all__ += reductions.__all__
__all__ += selecting.__all__
__all__ += special.__all__
__all__ += summaries.__all__
__all__ += views.__all__


# --- in place: methods that `torch.` has as functions, too ----------------------------------------

abs_, acos_, acosh_, addmv_, arccos_ = Tensor.abs_, Tensor.acos_, Tensor.acosh_, Tensor.addmv_, Tensor.arccos_
arccosh_, arcsin_, arcsinh_, arctan_ = Tensor.arccosh_, Tensor.arcsin_, Tensor.arcsinh_, Tensor.arctan_
arctanh_, asin_, asinh_, atan_, atanh_ = Tensor.arctanh_, Tensor.asin_, Tensor.asinh_, Tensor.atan_, Tensor.atanh_
ceil_, clamp_, clamp_max_, clamp_min_ = Tensor.ceil_, Tensor.clamp_, Tensor.clamp_max_, Tensor.clamp_min_
clip_, cos_, cosh_, deg2rad_, detach_ = Tensor.clip_, Tensor.cos_, Tensor.cosh_, Tensor.deg2rad_, Tensor.detach_
erf_, erfc_, exp2_, exp_, expm1_ = Tensor.erf_, Tensor.erfc_, Tensor.exp2_, Tensor.exp_, Tensor.expm1_
fill_, fix_, floor_, frac_, gcd_ = Tensor.fill_, Tensor.fix_, Tensor.floor_, Tensor.frac_, Tensor.gcd_
index_put_, lcm_, ldexp_, log10_, log1p_ = Tensor.index_put_, Tensor.lcm_, Tensor.ldexp_, Tensor.log10_, Tensor.log1p_
log2_, log_, logit_, nan_to_num_, neg_ = Tensor.log2_, Tensor.log_, Tensor.logit_, Tensor.nan_to_num_, Tensor.neg_
negative_, rad2deg_, reciprocal_, relu_ = Tensor.negative_, Tensor.rad2deg_, Tensor.reciprocal_, Tensor.relu_
round_, rsqrt_, sigmoid_, sin_, sinc_ = Tensor.round_, Tensor.rsqrt_, Tensor.sigmoid_, Tensor.sin_, Tensor.sinc_
sinh_, sqrt_, square_, tan_, tanh_ = Tensor.sinh_, Tensor.sqrt_, Tensor.square_, Tensor.tan_, Tensor.tanh_
trunc_, xlogy_, zero_ = Tensor.trunc_, Tensor.xlogy_, Tensor.zero_

__all__ += [
    "abs_", "acos_", "acosh_", "addmv_", "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan_", "arctanh_", "asin_",
    "asinh_", "atan_", "atanh_", "ceil_", "clamp_", "clamp_max_", "clamp_min_", "clip_", "cos_", "cosh_", "deg2rad_",
    "detach_", "erf_", "erfc_", "exp2_", "exp_", "expm1_", "fill_", "fix_", "floor_", "frac_", "gcd_", "index_put_",
    "lcm_", "ldexp_", "log10_", "log1p_", "log2_", "log_", "logit_", "nan_to_num_", "neg_", "negative_", "rad2deg_",
    "reciprocal_", "relu_", "round_", "rsqrt_", "sigmoid_", "sin_", "sinc_", "sinh_", "sqrt_", "square_", "tan_",
    "tanh_", "trunc_", "xlogy_", "zero_",
]  # fmt: skip


def is_tensor(obj: object) -> bool:
    """Whether something is a tensor."""
    return isinstance(obj, Tensor)


def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not 0."""
    return input.is_nonzero()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.shape == other.shape


def is_signed(input: Tensor) -> bool:
    """Whether elements can be negative."""
    return input.is_signed()


def is_floating_point(input: Tensor) -> bool:
    """Whether the elements are floating-point numbers."""
    return input.is_floating_point()


for _name in __all__:
    if isinstance(globals()[_name], FunctionType):
        globals()[_name] = checking_arguments(globals()[_name])
for _name in WITH_OUT:
    globals()[_name] = taking_out(globals()[_name], _name)
