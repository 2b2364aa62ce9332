"""Say how each operator is called: for a name, its arguments in a small notation.

    add sub mul: X Y ?alpha=num          ?: given or not; alpha=: by name

Each word is a way to draw an argument (`WORDS`); what is in quotes stands for itself, separated by `|`: one of these.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .drawing import Scene
from .words import WORDS

RECIPES = """
abs absolute acos arccos acosh arccosh asin arcsin asinh arcsinh atan arctan atanh arctanh ceil cos cosh deg2rad erf
erfc exp exp2 expm1 fix floor frac isfinite isinf isnan isneginf isposinf isreal log log10 log1p log2 logical_not
neg negative positive rad2deg angle i0 real reciprocal relu rsqrt sigmoid sgn sign signbit sin sinc sinh sqrt square tan tanh trunc
bitwise_not digamma lgamma is_nonzero is_floating_point is_signed numel fliplr flipud ravel t adjoint trace msort
atleast_1d atleast_2d atleast_3d argwhere corrcoef alias_copy detach_copy t_copy unbind_copy: X
round: X ?decimals=small
erfinv: U
mvlgamma: P '1|2'
polygamma: order P
polygamma: '1|2|3|4' X
logit: U ?eps='0.1|0.3'
nan_to_num: X ?nan=num ?posinf=num ?neginf=num
add sub subtract: X Y ?alpha=num
mul multiply div divide true_divide floor_divide remainder fmod eq ne lt le gt ge greater greater_equal less less_equal
not_equal atan2 arctan2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift copysign
logical_and logical_or logical_xor xlogy float_power: X Y
rsub: X Y
pow: P E
fmax fmin maximum minimum hypot logaddexp logaddexp2 heaviside gcd lcm ldexp isclose allclose equal is_same_size: X Z
nextafter: X C
lerp: X C weight
addcmul addcdiv: X C C ?value=num
clamp clip: X ?min=num ?max=num
clamp_min clamp_max: X Y
where: mask Y Y
can_cast promote_types: dtype dtype
result_type: X Y
sum nansum: X ?dim=dims ?keepdim=flag ?dtype=dtype
prod: X ?dtype=dtype
prod: X dim ?keepdim=flag
mean nanmean: X ?dim=dims ?keepdim=flag
cumsum cumprod: X dim ?dtype=dtype
cummax cummin logcumsumexp: X dim
amax amin all any: X ?dim=dims ?keepdim=flag
aminmax: X ?dim=dim ?keepdim=flag
argmax argmin: D ?dim=dim ?keepdim=flag
max min: D ?dim=dim ?keepdim=flag
logsumexp: X dims ?keepdim=flag
std var std_mean var_mean: X ?dim=dims ?unbiased=flag ?keepdim=flag
std var: X ?dim=dims ?correction='0|1|2'
var std: X flag
norm: X ?p='1|2|0.5|3|float("inf")|0' ?dim=dims ?keepdim=flag
count_nonzero: X ?dim=dims
median nanmedian: D ?dim=dim ?keepdim=flag
mode: D ?dim=dim ?keepdim=flag
kthvalue: D1 k ?dim=dim ?keepdim=flag
topk: D1 k ?dim=dim ?largest=flag
sort: D ?dim=dim ?descending=flag
argsort: D ?dim=dim ?descending=flag
quantile nanquantile: X '0.0|0.3|0.5|1.0' ?dim=dim ?keepdim=flag
diff: X ?n='0|1|2' ?dim=dim
dist: X C ?p='1|2|0'
cov: X ?correction='0|1'
histc: X ?bins='3|5' ?min='-1|1' ?max='2|1'
bincount: V(positive) ?minlength=k
renorm: X1 '1|2' dim '0.5|2.0'
cdist: B Bcd
trapezoid trapz: X1
cumulative_trapezoid: X1
unique unique_consecutive: X ?dim=dim ?return_inverse=flag ?return_counts=flag
gradient: X2 ?spacing='1.0|2|0.5' ?dim=dim ?edge_order='1|2'
histogram: F '3|5' ?range='(0.0,0.0)|(1.0,1.0)|(-1.0,1.0)|None' ?density=flag
unique: X sorted='True' return_inverse='True' return_counts='True'
reshape view view_copy: X shape
slice_copy: X1 ?dim='0' ?start='0|1|-1' ?end='1|2|-1' ?step='1|2'
constant_pad_nd: X1 pads ?value=num
flatten: X ?start_dim=dim ?end_dim=dim
unflatten: X1 dim sizes
squeeze squeeze_copy: X ?dim=dim
unsqueeze unsqueeze_copy: X dim
expand expand_copy: X wide
expand_as view_as reshape_as type_as: X Z
broadcast_to: X wide
permute permute_copy: X perm
transpose swapaxes swapdims transpose_copy: X dim dim
movedim moveaxis: X dim dim
narrow narrow_copy: X1 dim '0|1' '0|1|2'
select select_copy: X1 dim '0|1|-1'
split split_copy unsafe_split: X1 '1|2|3' ?dim=dim
split_with_sizes split_with_sizes_copy unsafe_split_with_sizes: X1 sizes ?dim=dim
chunk unsafe_chunk: X1 '1|2|3|4' ?dim=dim
tensor_split: X1 '1|2|3|[1]|[1,2]|[0,-1]' ?dim=dim
unbind: X1 ?dim=dim
diagonal diagonal_copy diag_embed: X1 ?offset='0|1|-1|2' ?dim1='0|-2' ?dim2='1|-1'
diag diagflat: X ?diagonal='0|1|-1'
tril triu: X ?diagonal='0|1|-1|3'
unfold unfold_copy: X dim '0|1|2' '1|2'
repeat: X repeats
tile: X repeats
repeat_interleave: X '0|1|2|3' ?dim=dim
flip: X axes
rot90: X2 ?k='0|1|2|3|-1' ?dims='(0,1)|(1,0)|(-1,0)'
roll: X '0|1|-2|5' ?dims=dim
cat concat concatenate: list ?dim=dim
stack: alike ?dim=dim
hstack vstack dstack column_stack row_stack: list
block_diag: list*
broadcast_tensors: X C
meshgrid: vectors indexing='"ij"|"xy"'
cartesian_prod: vectors*
combinations: V ?r='1|2|3' ?with_replacement=flag
hsplit vsplit dsplit: X1 '1|2|3|[1]'
mm: A AB
matmul: A AB
matmul: B Bm
mv: A Av
dot vdot inner: V V2
inner: A Ai
outer ger: V V
bmm: B Bm
addmm: A(out) X_ AB ?beta=num ?alpha=num
addmv: Av(out) X_ Av ?beta=num ?alpha=num
baddbmm: B(out) X_ Bm ?beta=num ?alpha=num
addbmm: Bsum(out) X_ Bm ?beta=num ?alpha=num
addr: A V3 V4 ?beta=num ?alpha=num
kron: X Z
tensordot: A AB '1'
einsum: '"ij,jk->ik"|"ij,jk->k"|"ij,jk->kij"' A AB
cross: X3 Z3
matrix_power: S '0|1|2|3'
chain_matmul: A AB
gather: X1 dim index
take_along_dim: X1 index1
take: X1 flatindex
index_select: X1 dim list_index
masked_select masked_fill_: X mask
masked_fill: X mask num
masked_scatter: X mask big
nonzero: X
scatter: X1 dim index S_
scatter: X1 dim index num
scatter_add: X1 dim index S_
scatter_reduce: X1 dim index S_ '"sum"|"prod"|"mean"|"amax"|"amin"' ?include_self=flag
index_add: X1 dim list_index slices ?alpha=num
index_copy: X1 dim unique_index slices
index_fill: X1 dim list_index num
index_reduce: X1 dim list_index slices '"prod"|"mean"|"amax"|"amin"' ?include_self=flag
put: X1 flatindex1 S1 ?accumulate=flag
index_put: V [index1] S_ ?accumulate=flag
select_scatter: X2 row '0' '0|1'
slice_scatter: X1 X_ ?dim='0'
diagonal_scatter: X2 diagonal
bucketize: X edges ?right=flag ?out_int32=flag
searchsorted: edges X ?right=flag ?out_int32=flag
isin: X Z ?invert=flag
vander: V ?N='1|3' ?increasing=flag
softmax log_softmax: X dim ?dtype=dtype
zeros_like ones_like: X ?dtype=dtype
full_like: X num ?dtype=dtype
clone: X
to: X dtype
zeros ones: size ?dtype=dtype
full: size num ?dtype=dtype
scalar_tensor: num ?dtype=dtype
eye: '0|1|3' ?m='2|3' ?dtype=dtype
arange: '0|1|0.5' '3|2.5|7' ?step='1|2|0.5' ?dtype=dtype
linspace logspace: '0|1.5|-2' '1|2.5|-1' '0|1|2|5' ?dtype=dtype
tril_indices triu_indices: '0|2|3' '3|2' ?offset='0|1|-1'
bartlett_window blackman_window hamming_window hann_window: '0|1|2|5' ?periodic=flag
unravel_index: flatindex0 '(2,3)|(4,)|(2,2,2)'
float double half bfloat16 long int short byte bool char: X
sum_to_size: X narrow
new_zeros new_ones: X size ?dtype=dtype
fill_: X num
zero_: X
rand_like randn_like empty_like: F ?dtype=dtype
bernoulli: U
normal: P P
normal: '0.0|1.5' P
normal: '0|1.0' '1|2.0' size ?dtype=floats
multinomial: P1 '1|2' ?replacement=flag
randint_like: X '1|5' ?dtype=dtype
randperm: '0|1|5'
rand randn: size ?dtype=floats
randint: '1|5' size ?dtype=dtype
linalg.norm linalg.vector_norm: F ?dim=dims ?keepdim=flag
linalg.matrix_norm: A ?ord='"fro"|1|float("inf")'
linalg.cross: X3 Z3
linalg.diagonal: X2 ?offset='0|1|-1'
linalg.matmul: A AB
linalg.matrix_power: S '0|1|2'
linalg.vecdot: X Z ?dim='-1|0'
nn.functional.relu nn.functional.relu6 nn.functional.elu nn.functional.selu nn.functional.celu nn.functional.silu
nn.functional.mish nn.functional.hardswish nn.functional.hardsigmoid nn.functional.hardtanh nn.functional.logsigmoid
nn.functional.sigmoid nn.functional.tanh nn.functional.softsign nn.functional.tanhshrink: X
nn.functional.gelu: X ?approximate='"tanh"|"none"'
nn.functional.leaky_relu: X ?negative_slope='0.1|0.0|-0.5'
nn.functional.threshold: X '0.5' '-1.0'
nn.functional.hardtanh: X '-1.0' '0.5|2.0'
nn.functional.softplus: X ?beta='1|2.0' ?threshold='20|1'
nn.functional.hardshrink nn.functional.softshrink: X '0.25|0.5'
nn.functional.glu: X1 ?dim=dim
nn.functional.prelu: X2 weight1
nn.functional.softmax nn.functional.log_softmax nn.functional.softmin: X dim ?dtype=floats
nn.functional.mse_loss nn.functional.l1_loss nn.functional.smooth_l1_loss nn.functional.huber_loss
nn.functional.soft_margin_loss nn.functional.kl_div nn.functional.hinge_embedding_loss: X same ?reduction=reduction
nn.functional.poisson_nll_loss: X same ?log_input=flag ?full=flag ?reduction=reduction
nn.functional.binary_cross_entropy: U same_u ?reduction=reduction
nn.functional.binary_cross_entropy_with_logits: X same_u ?reduction=reduction
nn.functional.gaussian_nll_loss: X same same_p ?full=flag ?reduction=reduction
nn.functional.margin_ranking_loss: X same same ?margin='0.0|0.5' ?reduction=reduction
nn.functional.cosine_embedding_loss: A Asame signs ?margin='0.0|0.3' ?reduction=reduction
nn.functional.triplet_margin_loss: A Asame Asame ?p='1.0|2.0' ?swap=flag ?reduction=reduction
nn.functional.cross_entropy: A classes ?label_smoothing='0.0|0.2' ?ignore_index='-100|0' ?reduction=reduction
nn.functional.nll_loss nn.functional.multi_margin_loss: A classes ?reduction=reduction
nn.functional.multilabel_soft_margin_loss: A Abits ?reduction=reduction
nn.functional.cosine_similarity: X Z ?dim='0|-1|1'
nn.functional.pairwise_distance: A Asame ?p='1.0|2.0' ?keepdim=flag
nn.functional.pdist: A ?p='1.0|2.0|0.0'
nn.functional.normalize: X ?p='1.0|2.0' ?dim='0|-1|1'
nn.functional.linear: A weight2 ?bias=bias2
nn.functional.bilinear: A Asame weight3
nn.functional.embedding: flatindex0 table
nn.functional.one_hot: flatindex0 ?num_classes='6|-1|3'
nn.functional.layer_norm nn.functional.rms_norm: X1 last
nn.functional.group_norm: I1 '1|2'
nn.functional.instance_norm: I1
nn.functional.batch_norm: I1 mean_c var_c ?training=flag
nn.functional.local_response_norm: I1 '1|2|3'
nn.functional.pad: X1 pads ?mode='"constant"' ?value=num
nn.functional.pad: I1 pad1 mode='"reflect"|"replicate"|"circular"'
nn.functional.avg_pool1d nn.functional.max_pool1d: I1 win ?stride=win ?padding='0|1' ?ceil_mode=flag
nn.functional.avg_pool2d nn.functional.max_pool2d: I2 win ?stride=win ?padding='0|1' ?ceil_mode=flag
nn.functional.avg_pool3d nn.functional.max_pool3d: I3 '1|2' ?stride='1|2' ?padding='0|1' ?ceil_mode=flag
nn.functional.max_pool2d: I2 win ?dilation='1|2' return_indices='True'
nn.functional.lp_pool1d: I1 '1.0|2.0' win ?stride=win ?ceil_mode=flag
nn.functional.lp_pool2d: I2 '1.0|2.0' win ?stride=win ?ceil_mode=flag
nn.functional.adaptive_avg_pool1d nn.functional.adaptive_max_pool1d: I1 '1|2|3'
nn.functional.adaptive_avg_pool2d nn.functional.adaptive_max_pool2d: I2 '1|2|(2,3)|(None,2)'
nn.functional.conv1d: I1 filter1 ?bias=bias_o ?stride='1|2' ?padding='0|1|"same"|"valid"' ?dilation='1|2'
nn.functional.conv2d: I2 filter2 ?bias=bias_o ?stride='1|2|(2,1)' ?padding='0|1|(1,0)|"same"' ?dilation='1|2'
nn.functional.conv3d: I3 filter3 ?bias=bias_o ?stride='1|2' ?padding='0|1'
nn.functional.conv_transpose1d: I1 turned1 ?bias=bias_o ?stride='1|2' ?padding='0|1' ?output_padding='0|1'
nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool3d: I3 '1|2|(1,2,1)'
nn.functional.max_pool1d_with_indices: I1 win ?stride=win
nn.functional.max_pool2d_with_indices: I2 win ?stride=win
nn.functional.max_pool3d_with_indices: I3 '1|2' ?stride='1|2'
nn.functional.adaptive_max_pool1d_with_indices: I1 '1|2|3'
nn.functional.adaptive_max_pool2d_with_indices: I2 '1|2|(2,3)'
nn.functional.adaptive_max_pool3d_with_indices: I3 '1|2'
nn.functional.lp_pool3d: I3 '1.0|2.0' '1|2'
nn.functional.rrelu: X ?lower='0.1|0.2'
nn.functional.upsample: I2 ?size='(2,3)|5' ?mode='"nearest"|"bilinear"'
nn.functional.upsample_nearest nn.functional.upsample_bilinear: I2 scale_factor='2'
nn.functional.conv_transpose3d: I3 turned3 ?bias=bias_o ?stride='1|2' ?padding='0|1'
nn.functional.conv_transpose2d: I2 turned2 ?bias=bias_o ?stride='1|2' ?padding='0|1' ?output_padding='0|1'
nn.functional.interpolate: I1 ?size='3|(2,)' ?scale_factor='2.0|0.5|1.5' ?mode='"nearest"|"linear"|"nearest-exact"|"area"'
nn.functional.interpolate: I2 ?size='(2,3)|5' ?scale_factor='2.0|0.6' ?mode='"nearest"|"bilinear"|"bicubic"' ?align_corners=flag
nn.functional.unfold: I2 '1|2|(2,1)' ?dilation='1|2' ?padding='0|1' ?stride='1|2'
nn.functional.pixel_shuffle nn.functional.pixel_unshuffle nn.functional.channel_shuffle: I2 '1|2'
nn.functional.grid_sample: I2 grid ?mode='"bilinear"|"nearest"|"bicubic"' ?padding_mode='"zeros"|"border"|"reflection"' align_corners=flag
nn.functional.affine_grid: theta '(1,1,2,3)' align_corners=flag
nn.functional.scaled_dot_product_attention: B Bsame Bsame ?is_causal=flag
native_layer_norm: X1 last 'None' 'None' '1e-5'
nn.functional.embedding_bag: bags table ?mode='"sum"|"mean"|"max"' ?padding_idx='0|-1'
nn.functional.fold: columns '(4,4)' '2'
nn.functional.linear_cross_entropy: A weight2 rows_out ?reduction=reduction ?label_smoothing='0.2'
nn.functional.multilabel_margin_loss: A labels ?reduction=reduction
nn.functional.dropout nn.functional.alpha_dropout nn.functional.feature_alpha_dropout nn.functional.dropout1d
nn.functional.dropout2d nn.functional.dropout3d: X ?p='0.0|0.3|1.0' ?training=flag
"""  # noqa: E501

RANDOM = frozenset(
    (
        "rand_like randn_like empty_like bernoulli randperm rand randn randint normal multinomial randint_like "
        "nn.functional.dropout nn.functional.alpha_dropout nn.functional.feature_alpha_dropout nn.functional.dropout1d "
        "nn.functional.dropout2d nn.functional.dropout3d"
    ).split()
)
TIED = frozenset("argmax argmin argsort max min median nanmedian mode kthvalue topk sort cummax cummin aminmax".split())
"""Functions whose indices PyTorch does not determine where elements are equal."""


TWICE = frozenset(
    (
        "adaptive_avg_pool1d adaptive_max_pool1d avg_pool1d bilinear celu channel_shuffle conv1d conv2d conv3d "
        "conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity group_norm hardshrink layer_norm "
        "max_pool1d max_pool2d max_pool3d pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu rms_norm rrelu "
        "selu threshold"
    ).split()
)
"""Names of `nn.functional` that `torch.` has, too."""


class Word(NamedTuple):
    """One argument of a recipe."""

    draw: str
    keyword: str
    optional: bool
    unpacked: bool = False


def words_of(line: str) -> list[Word]:
    """The arguments of a recipe.

    >>> words_of("X ?dim='0|1'")
    [Word(draw='X', keyword='', optional=False, unpacked=False), Word(draw="'0|1'", keyword='dim', optional=True, ...)]
    """
    found = []
    for text in line.split():
        optional, text = text.startswith("?"), text.lstrip("?")
        keyword, equal, draw = text.partition("=") if not text.startswith("'") else ("", "", text)
        draw, keyword = (draw, keyword) if equal else (text, "")
        found.append(Word(draw.rstrip("*"), keyword, optional, draw.endswith("*")))
    return found


def recipes() -> list[tuple[str, list[Word]]]:
    """Every name with each of its recipes."""
    found, names = [], ""
    for line in RECIPES.strip().splitlines():
        names += " " + line
        head, colon, tail = names.rpartition(": ") if ": " in names else (names, "", "")
        if colon:
            found += [(name, words_of(tail)) for name in head.split()]
            names = ""
    only_there = [words for _, words in found if any(word.keyword == "return_indices" for word in words)]
    short = [(name.rpartition(".")[2], words) for name, words in found if words not in only_there]
    return found + [(name, words) for name, words in short if name in TWICE]


def draw(word: Word, s: Scene) -> Any:
    """One argument."""
    if word.draw.startswith("'"):
        return eval(s.rng.choice(word.draw.strip("'").split("|")))
    return WORDS[word.draw](s)
