"""The table of functions of tensors with more forms than one: methods, in-place methods, variants with `out=`.

Every function is public under its own name (`tilegrad.exp`). From this table `tensor.py` makes methods (`x.exp()`)
and in-place methods (`x.exp_()`), `functional.py` in-place functions (`tilegrad.exp_(x)`) and the argument `out=`.
"""

FORMS = {
    "method": """
        adjoint allclose argsort argwhere bincount broadcast_to chunk corrcoef count_nonzero cov diag_embed diagflat
        diagonal diagonal_scatter dist dsplit equal expand expand_as flatten flip fliplr flipud hsplit isclose
        isfinite isinf isnan isreal moveaxis movedim permute positive ravel repeat repeat_interleave reshape
        reshape_as roll rot90 rsub select select_scatter split split_with_sizes sum_to_size tensor_split tile trace
        unbind unflatten unfold unique unique_consecutive view view_as vsplit
    """,
    "method in_place": """
        index_fill masked_fill masked_scatter put squeeze swapaxes swapdims t transpose unsqueeze
    """,
    "method in_place function_in_place": """
        index_put relu
    """,
    "method out": """
        all any diff fmax fmin ger inner kron logaddexp logaddexp2 logsumexp max maximum mean min minimum nanmean
        nansum narrow outer prod std sum var
    """,
    "method out exact": """
        amax amin aminmax argmax argmin bmm cross cummax cummin diag dot gather histc histogram index_select
        isneginf isposinf kthvalue log_softmax logcumsumexp masked_select matmul matrix_power median mm mode msort
        multinomial mv nanmedian nanquantile nonzero norm quantile signbit slice_scatter softmax sort take
        take_along_dim topk vdot
    """,
    "method in_place out": """
        add addcdiv addcmul addr arctan2 atan2 bernoulli bitwise_and bitwise_left_shift bitwise_or
        bitwise_right_shift bitwise_xor copysign cumprod cumsum digamma div divide eq erfinv floor_divide fmod ge
        greater greater_equal gt hypot le lerp less less_equal lgamma logical_and logical_not logical_or logical_xor
        lt mul multiply mvlgamma ne nextafter not_equal pow remainder sub subtract true_divide
    """,
    "method in_place out exact": """
        absolute addbmm addmm baddbmm bitwise_not float_power heaviside index_add index_copy index_reduce renorm
        scatter scatter_add scatter_reduce sgn sign tril triu
    """,
    "method in_place function_in_place out": """
        acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh clamp clamp_max clamp_min clip
        cos cosh deg2rad erf erfc exp exp2 expm1 gcd lcm ldexp log log10 log1p log2 logit rad2deg reciprocal rsqrt
        sigmoid sin sinc sinh sqrt square tan tanh xlogy
    """,
    "method in_place function_in_place out exact": """
        abs addmv ceil fix floor frac nan_to_num neg negative round trunc
    """,
    "out": """
        angle cat column_stack concat concatenate dstack hstack i0 native_batch_norm normal polygamma row_stack
        stack vstack
    """,
    "out exact": """
        alias_copy bucketize chain_matmul detach_copy diagonal_copy expand_copy isin narrow_copy permute_copy
        searchsorted select_copy slice_copy split_copy split_with_sizes_copy squeeze_copy t_copy tensordot
        transpose_copy unbind_copy unfold_copy unsqueeze_copy view_copy where
    """,
    "creation out": """
        arange empty eye full linspace logspace ones rand randint randn randperm zeros
    """,
}
"""Forms, and the functions that have them. `exact`: `out` must have the dtype of the result; others convert to any
dtype of no lower category. `creation`: without `dtype=` the result takes the dtype of `out`."""


def names_with(form: str) -> tuple[str, ...]:
    """Return the functions that have a form.

    >>> names_with("creation")[:3]
    ('arange', 'empty', 'eye')
    """
    return tuple(name for forms, names in FORMS.items() if form in forms.split() for name in names.split())
