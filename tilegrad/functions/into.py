"""Functions that put their result into a tensor that is given: `tilegrad.add(x, y, out=z)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, DeviceError, DTypeError, GradientError
from ..lazy.handle import Handle, mode, resize
from ..ops.broadcasting import shown
from ..ops.cast import cast
from .promotion import can_cast, kind_of

if TYPE_CHECKING:
    from ..tensor import Tensor

WITH_OUT = """
abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr all amax amin aminmax any arange arccos arccosh
arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort asin asinh atan atan2 atanh baddbmm bernoulli bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm bucketize cat ceil chain_matmul clamp
clamp_max clamp_min clip column_stack concat concatenate copysign cos cosh cross cummax cummin cumprod cumsum deg2rad
diag diff digamma div divide dot dstack empty eq erf erfc erfinv exp exp2 expm1 eye fix float_power floor floor_divide
fmax fmin fmod frac full gather gcd ge ger greater greater_equal gt heaviside histc hstack hypot index_add index_copy
index_reduce index_select inner isin isneginf isposinf kron kthvalue lcm ldexp le lerp less less_equal lgamma linspace
log log10 log1p log2 logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logspace
logsumexp lt masked_select matmul matrix_power max maximum mean median min minimum mm mode msort mul multinomial
multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow ne neg negative nextafter nonzero norm
normal not_equal ones outer polygamma pow prod quantile rad2deg rand randint randn randperm reciprocal remainder
renorm round row_stack rsqrt scatter scatter_add scatter_reduce searchsorted sgn sigmoid sign signbit sin sinc sinh
softmax sort sqrt square stack std sub subtract sum take take_along_dim tan tanh tensordot topk tril triu true_divide
trunc var vdot vstack where xlogy zeros
""".split()
"""Functions that take `out=`, as in PyTorch."""


def taking_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which puts its result where `out` says, if it is given."""

    @wraps(function)
    def into(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is None:
            return function(*args, **kwargs)
        places = list(out) if isinstance(out, (tuple, list)) else [out]
        for place in places:
            if not isinstance(place, Handle):
                raise ArgumentError(f"{function.__name__}: out is a tensor, not {kind_of(place)}")
        _refuse_history(function.__name__, [*args, *kwargs.values(), *places])
        result = function(*args, **kwargs)
        results = list(result) if isinstance(result, tuple) else [result]
        if len(results) != len(places) or isinstance(result, tuple) != isinstance(out, (tuple, list)):
            raise ArgumentError(f"{function.__name__}: {len(results)} results, but {len(places)} tensors for them")
        for found, place in zip(results, places, strict=True):
            _put(found, place, function.__name__)
        return type(result)(*places) if hasattr(result, "_fields") else out

    return into


def _refuse_history(op: str, given: list[Any]) -> None:
    if not mode.enabled:
        return
    parts = [y for x in given for y in (x if isinstance(x, (list, tuple)) else [x])]
    if any(isinstance(x, Handle) and x.value.tracked for x in parts):
        raise GradientError(
            f"{op}: what is put into `out` has no gradient, but an argument requires one; leave `out` away, or call it "
            "within `with tilegrad.no_grad():`"
        )


def _put(found: Tensor, place: Tensor, op: str) -> None:
    """The result in a tensor, which takes its shape."""
    made, own = found.value, place.value
    if made.device != own.device:
        raise DeviceError(f"{op}: the result is on {made.device}, `out` on {own.device}")
    if not can_cast(made.dtype, own.dtype):
        raise DTypeError(
            f"{op}: the result is {made.dtype.name} and cannot be put into an `out` of {own.dtype.name}, shape "
            f"{shown(own.shape)}"
        )
    converted = cast(made, own.dtype)
    if made.shape == own.shape:
        place.write(converted, op)
    else:
        resize(place, converted, op)
