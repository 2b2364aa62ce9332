"""The functions in `tilegrad.` that change their argument in place: methods of tensors, under `torch.`'s names."""

from __future__ import annotations

from .tensor import Tensor

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

__all__ = [
    "abs_",
    "acos_",
    "acosh_",
    "addmv_",
    "arccos_",
    "arccosh_",
    "arcsin_",
    "arcsinh_",
    "arctan_",
    "arctanh_",
    "asin_",
    "asinh_",
    "atan_",
    "atanh_",
    "ceil_",
    "clamp_",
    "clamp_max_",
    "clamp_min_",
    "clip_",
    "cos_",
    "cosh_",
    "deg2rad_",
    "detach_",
    "erf_",
    "erfc_",
    "exp2_",
    "exp_",
    "expm1_",
    "fill_",
    "fix_",
    "floor_",
    "frac_",
    "gcd_",
    "index_put_",
    "lcm_",
    "ldexp_",
    "log10_",
    "log1p_",
    "log2_",
    "log_",
    "logit_",
    "nan_to_num_",
    "neg_",
    "negative_",
    "rad2deg_",
    "reciprocal_",
    "relu_",
    "round_",
    "rsqrt_",
    "sigmoid_",
    "sin_",
    "sinc_",
    "sinh_",
    "sqrt_",
    "square_",
    "tan_",
    "tanh_",
    "trunc_",
    "xlogy_",
    "zero_",
]
