"""The table of functions of tensors: the module that defines each, and the forms that it has besides.

Every function is public under its own name (`tilegrad.exp`). From this table `tensor.py` makes methods (`x.exp()`)
and in-place methods (`x.exp_()`), `functional.py` in-place functions (`tilegrad.exp_(x)`) and the argument `out=`.
Modules are imported when one of their functions is first used.
"""

from functools import cache
from importlib import import_module
from typing import Any

FUNCTIONS: dict[str, dict[str, str]] = {
    "functions.arithmetic": {
        "method": "positive rsub",
        "method in_place function_in_place out": "clamp clamp_max clamp_min clip reciprocal square",
        "method in_place function_in_place out exact": "abs ceil fix floor frac nan_to_num neg negative round trunc",
        "method in_place out": """
            add addcdiv addcmul bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign div
            divide floor_divide fmod hypot lerp logical_and logical_not logical_or logical_xor mul multiply pow
            remainder sub subtract true_divide
        """,
        "method in_place out exact": "absolute bitwise_not heaviside sign",
        "method out": "maximum minimum",
        "method out exact": "signbit",
        "out exact": "where",
    },
    "functions.arranging": {
        "": """
            atleast_1d atleast_2d atleast_3d bartlett_window blackman_window block_diag broadcast_shapes
            cartesian_prod combinations hamming_window hann_window unravel_index vander
        """,
        "method only": "fill_diagonal_",
        "method": "diagflat diagonal_scatter dsplit hsplit select_scatter split_with_sizes vsplit",
        "method out exact": "slice_scatter",
        "out": "column_stack dstack",
    },
    "functions.comparing": {
        "method": "allclose equal isclose isfinite isinf isnan",
        "method in_place out": "eq ge greater greater_equal gt le less less_equal lt ne not_equal",
    },
    "functions.constants": {
        "": "BoolTensor ByteTensor DoubleTensor FloatTensor IntTensor LongTensor Size e finfo iinfo inf nan newaxis pi",
    },
    "functions.contractions": {
        "": "einsum",
        "method in_place function_in_place out exact": "addmv",
        "method in_place out": "addr",
        "method in_place out exact": "addmm baddbmm",
        "method out": "ger inner kron outer",
        "method out exact": "bmm dot matmul mm mv",
        "out exact": "tensordot",
    },
    "functions.creation": {
        "": """
            as_tensor asarray empty_like from_dlpack from_numpy full_like ones_like scalar_tensor tensor tril_indices
            triu_indices zeros_like
        """,
        "creation out": "arange empty eye full linspace logspace ones zeros",
    },
    "functions.elementary": {
        "method in_place function_in_place": "relu",
        "method in_place function_in_place out": """
            acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh cos cosh deg2rad erf erfc
            exp exp2 expm1 log log10 log1p log2 logit rad2deg rsqrt sigmoid sin sinc sinh sqrt tan tanh xlogy
        """,
        "method in_place out": "arctan2 atan2",
        "method out": "logaddexp logaddexp2",
        "method out exact": "log_softmax softmax",
    },
    "functions.joining": {
        "": "broadcast_tensors constant_pad_nd meshgrid pad",
        "method": "diag_embed flip fliplr flipud repeat repeat_interleave roll rot90 tile trace",
        "method in_place out exact": "tril triu",
        "method out exact": "diag",
        "out": "cat concat concatenate hstack row_stack stack vstack",
    },
    "functions.normalizing": {
        "": "native_group_norm native_layer_norm",
        "out": "native_batch_norm",
    },
    "random": {
        "": """
            Generator default_generator dropout get_rng_state initial_seed manual_seed rand_like randint_like
            randn_like seed set_rng_state
        """,
        "method only": "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_",
        "creation out": "rand randint randn randperm",
        "method out": "bernoulli",
        "method out exact": "multinomial",
        "out": "normal",
    },
    "functions.reductions": {
        "": "gradient std_mean var_mean",
        "method": "count_nonzero",
        "method only": "sum_to_size",
        "method in_place out": "cumprod cumsum",
        "method out": "all any diff logsumexp max mean min nansum prod std sum var",
        "method out exact": "amax amin aminmax argmax argmin cummax cummin logcumsumexp norm",
    },
    "functions.selecting": {
        "": "embedding one_hot",
        "method": "argsort argwhere bincount",
        "method in_place": "index_fill masked_fill masked_scatter put",
        "method in_place function_in_place": "index_put",
        "method in_place out exact": "index_add index_copy index_reduce scatter scatter_add scatter_reduce",
        "method out exact": "gather index_select kthvalue masked_select median nonzero sort take take_along_dim topk",
        "out exact": "bucketize searchsorted",
    },
    "functions.special": {
        "": "real",
        "method": "isreal",
        "method in_place function_in_place out": "gcd lcm ldexp",
        "method in_place out": "digamma erfinv lgamma mvlgamma nextafter",
        "method in_place out exact": "float_power sgn",
        "method out": "fmax fmin",
        "method out exact": "isneginf isposinf",
        "out": "angle i0 polygamma",
    },
    "functions.summaries": {
        "": "cdist cumulative_trapezoid trapezoid trapz",
        "method": "corrcoef cov dist unique unique_consecutive",
        "method in_place out exact": "renorm",
        "method out": "nanmean",
        "method out exact": "histc histogram mode msort nanmedian nanquantile quantile",
        "out exact": "isin",
    },
    "functions.views": {
        "": "unsafe_chunk unsafe_split unsafe_split_with_sizes",
        "method": """
            adjoint broadcast_to chunk diagonal expand expand_as flatten moveaxis movedim permute ravel reshape
            reshape_as select split tensor_split unbind unflatten unfold view view_as
        """,
        "method in_place": "squeeze swapaxes swapdims t transpose unsqueeze",
        "method out": "narrow",
        "out exact": """
            alias_copy detach_copy diagonal_copy expand_copy narrow_copy permute_copy select_copy slice_copy
            split_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy
            view_copy
        """,
    },
    "linalg": {
        "method in_place out exact": "addbmm",
        "method out exact": "cross matrix_power vdot",
        "out exact": "chain_matmul",
    },
    "functions.conversion": {
        "": "clone",
    },
}
"""The functions of each module by their forms. `exact`: `out` must have the dtype of the result; others convert to any
dtype of no lower category. `creation`: without `dtype=` the result takes the dtype of `out`. `only`: no function."""
DEFINED_AS = {"adjoint": "matrix_transposed", "cross": "first_cross"}
"""Functions that have another name in their module."""


@cache
def names_with(form: str) -> tuple[str, ...]:
    """Return the functions that have a form.

    >>> names_with("creation")[:3]
    ('arange', 'empty', 'eye')
    """
    tables = [item for table in FUNCTIONS.values() for item in table.items()]
    return tuple(name for forms, names in tables if form in forms.split() for name in names.split())


@cache
def modules() -> dict[str, str]:
    """Return the module of each function."""
    return {name: module for module, table in FUNCTIONS.items() for names in table.values() for name in names.split()}


def defined(name: str) -> Any:
    """Return a function, or a constant, from the module that defines it.

    >>> defined("adjoint").__name__
    'matrix_transposed'
    """
    return vars(import_module(f"...{modules()[name]}", __name__))[DEFINED_AS.get(name, name)]
