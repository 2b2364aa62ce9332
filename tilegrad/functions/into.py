"""Functions that put their result into a tensor that is given: `tilegrad.add(x, y, out=z)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, DeviceError, DTypeError, GradientError
from ..ir.dtype import uint8
from ..lazy.handle import Handle, mode, resize
from ..ops.broadcasting import shown
from ..ops.cast import cast
from .promotion import can_cast, kind_of

if TYPE_CHECKING:
    from ..tensor import Tensor

WITH_OUT = """
abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr alias_copy all amax amin aminmax angle any arange
arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin asin asinh atan atan2 atanh baddbmm bernoulli
bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm bucketize cat ceil
chain_matmul clamp clamp_max clamp_min clip column_stack concat concatenate copysign cos cosh cross cummax cummin
cumprod cumsum deg2rad detach_copy diag diagonal_copy diff digamma div divide dot dstack empty eq erf erfc erfinv exp
exp2 expand_copy expm1 eye fix float_power floor floor_divide fmax fmin fmod frac full gather gcd ge ger greater
greater_equal gt heaviside histc histogram hstack hypot i0 index_add index_copy index_reduce index_select inner isin
isneginf isposinf kron kthvalue lcm ldexp le lerp less less_equal lgamma linspace log log10 log1p log2 log_softmax
logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logspace logsumexp lt
masked_select matmul matrix_power max maximum mean median min minimum mm mode msort mul multinomial multiply mv mvlgamma
nan_to_num nanmean nanmedian nanquantile nansum narrow narrow_copy native_batch_norm ne neg negative nextafter nonzero
norm normal not_equal ones outer permute_copy polygamma pow prod quantile rad2deg rand randint randn randperm reciprocal
remainder renorm round row_stack rsqrt scatter scatter_add scatter_reduce searchsorted select_copy sgn sigmoid sign
signbit sin sinc sinh slice_copy slice_scatter softmax sort split_copy split_with_sizes_copy sqrt square squeeze_copy
stack std sub subtract sum t_copy take take_along_dim tan tanh tensordot topk transpose_copy tril triu true_divide trunc
unbind_copy unfold_copy unsqueeze_copy var vdot view_copy vstack where xlogy zeros
""".split()
"""Functions that take `out=`, as in PyTorch."""
EXACT = frozenset(
    """
abs absolute addbmm addmm addmv alias_copy amax amin aminmax argmax argmin baddbmm bitwise_not bmm bucketize ceil
chain_matmul cross cummax cummin detach_copy diag diagonal_copy dot expand_copy fix float_power floor frac gather
heaviside histc histogram index_add index_copy index_reduce index_select isin isneginf isposinf kthvalue log_softmax
logcumsumexp masked_select matmul matrix_power median mm mode msort multinomial mv nan_to_num nanmedian nanquantile
narrow_copy neg negative nonzero norm permute_copy quantile renorm round scatter scatter_add scatter_reduce
searchsorted select_copy sgn sign signbit slice_copy slice_scatter softmax sort split_copy split_with_sizes_copy
squeeze_copy t_copy take take_along_dim tensordot topk transpose_copy tril triu trunc unbind_copy unfold_copy
unsqueeze_copy vdot view_copy where
""".split()
)
"""Functions whose `out` has the type of the result; others convert to any type of no lower category."""
MADE = frozenset("arange empty eye full linspace logspace ones rand randint randn randperm zeros".split())
"""Functions that make a tensor from numbers: without `dtype=` it takes the type of `out`."""


def taking_out(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function of that name, which puts its result where `out` says, if it is given."""

    @wraps(function)
    def into(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is None:
            return function(*args, **kwargs)
        if name == "nonzero" and isinstance(out, (tuple, list)):
            raise ArgumentError("nonzero: out is a tensor, which takes the places as rows, not vectors")
        places = list(out) if isinstance(out, (tuple, list)) else [out]
        for place in places:
            if not isinstance(place, Handle):
                raise ArgumentError(f"{name}: out is a tensor, not {kind_of(place)}")
        _refuse_history(name, [*args, *kwargs.values(), *places])
        if name in MADE and "dtype" not in kwargs and len(places) == 1:
            kwargs["dtype"] = places[0].dtype
        result = function(*args, **kwargs)
        exact = name in EXACT or name in MADE or (name in ("max", "min") and isinstance(result, tuple))
        results = list(result) if isinstance(result, tuple) else [result]
        if len(results) != len(places) or isinstance(result, tuple) != isinstance(out, (tuple, list)):
            raise ArgumentError(f"{name}: {len(results)} results, but {len(places)} tensors for them")
        for found, place in zip(results, places, strict=True):
            truth = name in ("all", "any") and place.dtype is not uint8
            _put(found, place, name, exact or truth)
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


def _put(found: Tensor, place: Tensor, op: str, exact: bool) -> None:
    """Store the result in a tensor, which takes its shape."""
    made, own = found.value, place.value
    if made.device != own.device:
        raise DeviceError(f"{op}: the result is on {made.device}, `out` on {own.device}")
    if made.dtype is not own.dtype and (exact or not can_cast(made.dtype, own.dtype)):
        raise DTypeError(
            f"{op}: the result is {made.dtype.name} and cannot be put into an `out` of {own.dtype.name}, shape "
            f"{shown(own.shape)}"
        )
    converted = cast(made, own.dtype)
    if made.shape == own.shape:
        place.write(converted, op)
    else:
        resize(place, converted, op)
