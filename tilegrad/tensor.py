"""`Tensor`: the table of its methods and operators.

What a method does stands in the module it comes from; most are functions in `tilegrad.` as well.
"""

from __future__ import annotations

from typing import Any

from . import linalg, random
from .functions import (
    arithmetic,
    arranging,
    comparing,
    contractions,
    conversion,
    elementary,
    joining,
    reductions,
    selecting,
    special,
    summaries,
    views,
)
from .functions.creation import empty
from .functions.creation import tensor as made
from .functions.inplace import copy_, fill_, in_place, zero_
from .functions.promotion import get_default_dtype
from .lazy.handle import set_class, state
from .properties import Properties


class Tensor(Properties):
    """Numbers of one type in a grid of any number of dimensions.

    `Tensor(2, 3)` is a tensor of these sizes whose elements do not matter, `Tensor([1, 2])` one of float32
    numbers; more is said with `tilegrad.tensor`, `tilegrad.zeros` and the like.
    """

    def __init__(self, *data: Any) -> None:
        if len(data) == 1 and not isinstance(data[0], int):
            given = data[0] if isinstance(data[0], Tensor) else made(data[0], dtype=get_default_dtype())
        else:
            given = empty(*data) if data else empty(0)
        self._value = given.value
        if state.trace is not None:
            state.trace.made(self)

    # --- operators -------------------------------------------------------------------------------

    __add__ = __radd__ = arithmetic.add
    __sub__, __rsub__ = arithmetic.sub, arithmetic.rsub
    __mul__ = __rmul__ = arithmetic.mul
    __truediv__, __rtruediv__ = arithmetic.div, arithmetic.reflected(arithmetic.div)
    __floordiv__, __rfloordiv__ = arithmetic.floor_divide, arithmetic.reflected(arithmetic.floor_divide)
    __mod__, __rmod__ = arithmetic.remainder, arithmetic.reflected(arithmetic.remainder)
    __pow__, __rpow__ = arithmetic.pow, arithmetic.reflected(arithmetic.pow)
    __matmul__ = contractions.matmul
    __rmatmul__ = contractions.matmul_reversed
    __neg__, __pos__, __abs__, __invert__ = arithmetic.neg, arithmetic.positive, arithmetic.abs, arithmetic.bitwise_not
    __and__ = __rand__ = arithmetic.bitwise_and
    __or__ = __ror__ = arithmetic.bitwise_or
    __xor__ = __rxor__ = arithmetic.bitwise_xor
    __lshift__, __rlshift__ = arithmetic.bitwise_left_shift, arithmetic.reflected(arithmetic.bitwise_left_shift)
    __rshift__, __rrshift__ = arithmetic.bitwise_right_shift, arithmetic.reflected(arithmetic.bitwise_right_shift)
    __eq__, __ne__ = comparing.compared(comparing.eq), comparing.compared(comparing.ne)  # type: ignore[assignment]
    __lt__, __le__, __gt__, __ge__ = comparing.lt, comparing.le, comparing.gt, comparing.ge
    __hash__ = object.__hash__

    __iadd__, __isub__, __imul__ = in_place(arithmetic.add), in_place(arithmetic.sub), in_place(arithmetic.mul)
    __itruediv__, __ifloordiv__ = in_place(arithmetic.div), in_place(arithmetic.floor_divide)
    __imod__, __ipow__ = in_place(arithmetic.remainder), in_place(arithmetic.pow)
    __iand__, __ior__ = in_place(arithmetic.bitwise_and), in_place(arithmetic.bitwise_or)
    __ixor__ = in_place(arithmetic.bitwise_xor)

    # --- types, devices, memory ------------------------------------------------------------------

    to, cpu, cuda, type, type_as = (
        conversion.to,
        conversion.cpu,
        conversion.cuda,
        conversion.as_type,
        conversion.type_as,
    )
    float, double, half, bfloat16 = conversion.as_float, conversion.double, conversion.half, conversion.as_bfloat16
    long, int, short, char = conversion.long, conversion.as_int, conversion.short, conversion.char
    byte, bool = conversion.byte, conversion.as_bool
    contiguous, clone, item, tolist, numpy = (
        conversion.contiguous,
        conversion.clone,
        conversion.item,
        conversion.tolist,
        conversion.numpy,
    )
    stride, storage_offset = conversion.stride, conversion.storage_offset
    is_contiguous, data_ptr = conversion.is_contiguous, conversion.data_ptr
    copy_, fill_, zero_ = copy_, fill_, zero_

    # --- element by element ----------------------------------------------------------------------

    add = arithmetic.add
    sub = arithmetic.sub
    rsub = arithmetic.rsub
    mul = arithmetic.mul
    div = arithmetic.div
    floor_divide = arithmetic.floor_divide
    remainder = arithmetic.remainder
    fmod = arithmetic.fmod
    pow = arithmetic.pow
    neg = arithmetic.neg
    positive = arithmetic.positive
    abs = arithmetic.abs
    sign = arithmetic.sign
    signbit = arithmetic.signbit
    reciprocal = arithmetic.reciprocal
    square = arithmetic.square
    hypot = arithmetic.hypot
    copysign = arithmetic.copysign
    lerp = arithmetic.lerp
    addcmul = arithmetic.addcmul
    addcdiv = arithmetic.addcdiv
    maximum = arithmetic.maximum
    minimum = arithmetic.minimum
    clamp = arithmetic.clamp
    clamp_min = arithmetic.clamp_min
    clamp_max = arithmetic.clamp_max
    clip = arithmetic.clip
    heaviside = arithmetic.heaviside
    eq = comparing.eq
    ne = comparing.ne
    lt = comparing.lt
    le = comparing.le
    gt = comparing.gt
    ge = comparing.ge
    isnan = comparing.isnan
    isinf = comparing.isinf
    isfinite = comparing.isfinite
    isclose = comparing.isclose
    allclose = comparing.allclose
    equal = comparing.equal
    logical_and = arithmetic.logical_and
    logical_or = arithmetic.logical_or
    logical_xor = arithmetic.logical_xor
    logical_not = arithmetic.logical_not
    bitwise_and = arithmetic.bitwise_and
    bitwise_or = arithmetic.bitwise_or
    bitwise_xor = arithmetic.bitwise_xor
    bitwise_not = arithmetic.bitwise_not
    bitwise_left_shift = arithmetic.bitwise_left_shift
    bitwise_right_shift = arithmetic.bitwise_right_shift
    floor = arithmetic.floor
    ceil = arithmetic.ceil
    trunc = arithmetic.trunc
    fix = arithmetic.fix
    round = arithmetic.round
    frac = arithmetic.frac
    nan_to_num = arithmetic.nan_to_num
    subtract = arithmetic.subtract
    multiply = arithmetic.multiply
    divide = arithmetic.divide
    true_divide = arithmetic.true_divide
    negative = arithmetic.negative
    absolute = arithmetic.absolute
    greater = comparing.greater
    greater_equal = comparing.greater_equal
    less = comparing.less
    less_equal = comparing.less_equal
    not_equal = comparing.not_equal
    where = arithmetic.where_method
    exp = elementary.exp
    exp2 = elementary.exp2
    expm1 = elementary.expm1
    log = elementary.log
    log2 = elementary.log2
    log10 = elementary.log10
    log1p = elementary.log1p
    sqrt = elementary.sqrt
    rsqrt = elementary.rsqrt
    sin = elementary.sin
    cos = elementary.cos
    tan = elementary.tan
    asin = elementary.asin
    acos = elementary.acos
    atan = elementary.atan
    sinh = elementary.sinh
    cosh = elementary.cosh
    tanh = elementary.tanh
    asinh = elementary.asinh
    acosh = elementary.acosh
    atanh = elementary.atanh
    arcsin = elementary.arcsin
    arccos = elementary.arccos
    arctan = elementary.arctan
    arcsinh = elementary.arcsinh
    arccosh = elementary.arccosh
    arctanh = elementary.arctanh
    erf = elementary.erf
    erfc = elementary.erfc
    sinc = elementary.sinc
    deg2rad = elementary.deg2rad
    rad2deg = elementary.rad2deg
    sigmoid = elementary.sigmoid
    relu = elementary.relu
    softmax = elementary.softmax
    log_softmax = elementary.log_softmax
    atan2 = elementary.atan2
    arctan2 = elementary.arctan2
    logaddexp = elementary.logaddexp
    logaddexp2 = elementary.logaddexp2
    xlogy = elementary.xlogy
    logit = elementary.logit
    lgamma, digamma, erfinv, mvlgamma = special.lgamma, special.digamma, special.erfinv, special.mvlgamma
    fmax, fmin, nextafter, sgn = special.fmax, special.fmin, special.nextafter, special.sgn
    gcd, lcm, ldexp, float_power = special.gcd, special.lcm, special.ldexp, special.float_power
    isposinf, isneginf, isreal = special.isposinf, special.isneginf, special.isreal

    def polygamma(self, n: Any) -> Tensor:
        """The n-th derivative of `digamma`."""
        return special.polygamma(n, self)

    def polygamma_(self, n: Any) -> Tensor:
        """In place: the n-th derivative of `digamma`."""
        return self.copy_(special.polygamma(n, self))

    # --- many made one -----------------------------------------------------------------------------

    sum = reductions.sum
    sum_to_size, nansum = reductions.sum_to_size, reductions.nansum
    prod = reductions.prod
    mean = reductions.mean
    var = reductions.var
    std = reductions.std
    norm = reductions.norm
    logsumexp = reductions.logsumexp
    amax = reductions.amax
    amin = reductions.amin
    aminmax = reductions.aminmax
    max = reductions.max
    min = reductions.min
    argmax = reductions.argmax
    argmin = reductions.argmin
    all = reductions.all
    any = reductions.any
    count_nonzero = reductions.count_nonzero
    cumsum = reductions.cumsum
    cumprod = reductions.cumprod
    cummax = reductions.cummax
    cummin = reductions.cummin
    logcumsumexp = reductions.logcumsumexp
    diff = reductions.diff
    quantile, nanquantile = summaries.quantile, summaries.nanquantile
    nanmean, nanmedian, mode = summaries.nanmean, summaries.nanmedian, summaries.mode
    histc, histogram = summaries.histc, summaries.histogram
    cov, corrcoef, dist = summaries.cov, summaries.corrcoef, summaries.dist

    # --- views -------------------------------------------------------------------------------------

    view = views.view
    reshape = views.reshape
    view_as = views.view_as
    reshape_as = views.reshape_as
    flatten = views.flatten
    ravel = views.ravel
    unflatten = views.unflatten
    squeeze = views.squeeze
    unsqueeze = views.unsqueeze
    expand = views.expand
    expand_as = views.expand_as
    broadcast_to = views.broadcast_to
    permute = views.permute
    transpose = views.transpose
    t = views.t
    movedim = views.movedim
    moveaxis = views.moveaxis
    swapaxes = views.swapaxes
    swapdims = views.swapdims
    narrow = views.narrow
    select = views.select
    split = views.split
    chunk = views.chunk
    tensor_split = views.tensor_split
    unbind = views.unbind
    diagonal = views.diagonal
    unfold = views.unfold

    T = property(views.reversed_axes)
    mT = property(views.matrix_transposed)
    H = mH = property(views.matrix_transposed)
    adjoint = views.matrix_transposed

    # --- moved about, multiplied, picked ---------------------------------------------------------

    repeat = joining.repeat
    tile = joining.tile
    repeat_interleave = joining.repeat_interleave
    flip = joining.flip
    fliplr = joining.fliplr
    flipud = joining.flipud
    rot90 = joining.rot90
    roll = joining.roll
    diag = joining.diag
    diag_embed = joining.diag_embed
    trace = joining.trace
    tril = joining.tril
    triu = joining.triu
    hsplit, vsplit, dsplit = arranging.hsplit, arranging.vsplit, arranging.dsplit
    split_with_sizes, diagflat = arranging.split_with_sizes, arranging.diagflat
    select_scatter, slice_scatter = arranging.select_scatter, arranging.slice_scatter
    diagonal_scatter, fill_diagonal_ = arranging.diagonal_scatter, arranging.fill_diagonal_

    matmul = contractions.matmul
    mm = contractions.mm
    mv = contractions.mv
    dot = contractions.dot
    inner = contractions.inner
    outer = contractions.outer
    ger = contractions.ger
    bmm = contractions.bmm
    addmm = contractions.addmm
    addmv = contractions.addmv
    baddbmm = contractions.baddbmm
    addr = contractions.addr
    kron = contractions.kron
    cross, vdot, matrix_power, addbmm = linalg.first_cross, linalg.vdot, linalg.matrix_power, linalg.addbmm

    gather = selecting.gather
    take_along_dim = selecting.take_along_dim
    take = selecting.take
    index_select = selecting.index_select
    masked_select = selecting.masked_select
    nonzero = selecting.nonzero
    argwhere = selecting.argwhere
    masked_fill = selecting.masked_fill
    masked_scatter = selecting.masked_scatter
    scatter = selecting.scatter
    scatter_add = selecting.scatter_add
    scatter_reduce = selecting.scatter_reduce
    index_add = selecting.index_add
    index_copy = selecting.index_copy
    index_fill = selecting.index_fill
    index_put, index_reduce, put = selecting.index_put, selecting.index_reduce, selecting.put
    renorm = summaries.renorm
    sort = selecting.sort
    argsort = selecting.argsort
    topk = selecting.topk
    kthvalue = selecting.kthvalue
    median = selecting.median
    bincount = selecting.bincount
    msort, unique, unique_consecutive = summaries.msort, summaries.unique, summaries.unique_consecutive

    # --- in place --------------------------------------------------------------------------------

    add_ = in_place(arithmetic.add)
    sub_ = in_place(arithmetic.sub)
    mul_ = in_place(arithmetic.mul)
    div_ = in_place(arithmetic.div)
    floor_divide_ = in_place(arithmetic.floor_divide)
    remainder_ = in_place(arithmetic.remainder)
    fmod_ = in_place(arithmetic.fmod)
    pow_ = in_place(arithmetic.pow)
    neg_ = in_place(arithmetic.neg)
    abs_ = in_place(arithmetic.abs)
    sign_ = in_place(arithmetic.sign)
    reciprocal_ = in_place(arithmetic.reciprocal)
    square_ = in_place(arithmetic.square)
    hypot_ = in_place(arithmetic.hypot)
    copysign_ = in_place(arithmetic.copysign)
    lerp_ = in_place(arithmetic.lerp)
    addcmul_ = in_place(arithmetic.addcmul)
    addcdiv_ = in_place(arithmetic.addcdiv)
    clamp_ = in_place(arithmetic.clamp)
    clamp_min_ = in_place(arithmetic.clamp_min)
    clamp_max_ = in_place(arithmetic.clamp_max)
    clip_ = in_place(arithmetic.clip)
    eq_ = in_place(comparing.eq)
    ne_ = in_place(comparing.ne)
    lt_ = in_place(comparing.lt)
    le_ = in_place(comparing.le)
    gt_ = in_place(comparing.gt)
    ge_ = in_place(comparing.ge)
    logical_and_ = in_place(arithmetic.logical_and)
    logical_or_ = in_place(arithmetic.logical_or)
    logical_xor_ = in_place(arithmetic.logical_xor)
    logical_not_ = in_place(arithmetic.logical_not)
    bitwise_and_ = in_place(arithmetic.bitwise_and)
    bitwise_or_ = in_place(arithmetic.bitwise_or)
    bitwise_xor_ = in_place(arithmetic.bitwise_xor)
    bitwise_not_ = in_place(arithmetic.bitwise_not)
    floor_ = in_place(arithmetic.floor)
    ceil_ = in_place(arithmetic.ceil)
    trunc_ = in_place(arithmetic.trunc)
    round_ = in_place(arithmetic.round)
    frac_ = in_place(arithmetic.frac)
    nan_to_num_ = in_place(arithmetic.nan_to_num)
    subtract_, multiply_, divide_, negative_ = sub_, mul_, div_, neg_
    absolute_, true_divide_, heaviside_ = abs_, div_, in_place(arithmetic.heaviside)
    sinc_, logit_, xlogy_ = in_place(elementary.sinc), in_place(elementary.logit), in_place(elementary.xlogy)
    deg2rad_, rad2deg_ = in_place(elementary.deg2rad), in_place(elementary.rad2deg)
    lgamma_, digamma_, erfinv_ = in_place(special.lgamma), in_place(special.digamma), in_place(special.erfinv)
    mvlgamma_, nextafter_, sgn_ = in_place(special.mvlgamma), in_place(special.nextafter), in_place(special.sgn)
    gcd_, lcm_, ldexp_ = in_place(special.gcd), in_place(special.lcm), in_place(special.ldexp)
    float_power_, fix_ = in_place(special.float_power), in_place(arithmetic.fix)
    bitwise_left_shift_ = in_place(arithmetic.bitwise_left_shift)
    bitwise_right_shift_ = in_place(arithmetic.bitwise_right_shift)
    __ilshift__, __irshift__ = bitwise_left_shift_, bitwise_right_shift_
    greater_, greater_equal_, less_, less_equal_, not_equal_ = gt_, ge_, lt_, le_, ne_
    exp_ = in_place(elementary.exp)
    exp2_ = in_place(elementary.exp2)
    expm1_ = in_place(elementary.expm1)
    log_ = in_place(elementary.log)
    log2_ = in_place(elementary.log2)
    log10_ = in_place(elementary.log10)
    log1p_ = in_place(elementary.log1p)
    sqrt_ = in_place(elementary.sqrt)
    rsqrt_ = in_place(elementary.rsqrt)
    sin_ = in_place(elementary.sin)
    cos_ = in_place(elementary.cos)
    tan_ = in_place(elementary.tan)
    asin_ = in_place(elementary.asin)
    acos_ = in_place(elementary.acos)
    atan_ = in_place(elementary.atan)
    sinh_ = in_place(elementary.sinh)
    cosh_ = in_place(elementary.cosh)
    tanh_ = in_place(elementary.tanh)
    asinh_ = in_place(elementary.asinh)
    acosh_ = in_place(elementary.acosh)
    atanh_ = in_place(elementary.atanh)
    erf_ = in_place(elementary.erf)
    erfc_ = in_place(elementary.erfc)
    sigmoid_ = in_place(elementary.sigmoid)
    relu_ = in_place(elementary.relu)
    atan2_ = in_place(elementary.atan2)
    cumsum_ = in_place(reductions.cumsum)
    cumprod_ = in_place(reductions.cumprod)
    arccos_, arcsin_, arctan_, arctan2_ = acos_, asin_, atan_, atan2_
    arccosh_, arcsinh_, arctanh_ = acosh_, asinh_, atanh_
    tril_ = in_place(joining.tril)
    triu_ = in_place(joining.triu)
    addmm_ = in_place(contractions.addmm)
    addmv_ = in_place(contractions.addmv)
    baddbmm_ = in_place(contractions.baddbmm)
    addr_, addbmm_ = in_place(contractions.addr), in_place(linalg.addbmm)
    masked_fill_ = in_place(selecting.masked_fill)
    masked_scatter_ = in_place(selecting.masked_scatter)
    scatter_ = in_place(selecting.scatter)
    scatter_add_ = in_place(selecting.scatter_add)
    scatter_reduce_ = in_place(selecting.scatter_reduce)
    index_add_ = in_place(selecting.index_add)
    index_copy_ = in_place(selecting.index_copy)
    index_fill_ = in_place(selecting.index_fill)
    index_put_, index_reduce_ = in_place(selecting.index_put), in_place(selecting.index_reduce)
    put_, renorm_ = in_place(selecting.put), in_place(summaries.renorm)
    t_, transpose_, swapaxes_ = (
        views.reshaping(views.t),
        views.reshaping(views.transpose),
        views.reshaping(views.swapaxes),
    )
    swapdims_, squeeze_, unsqueeze_ = transpose_, views.reshaping(views.squeeze), views.reshaping(views.unsqueeze)
    uniform_, normal_, bernoulli_ = random.uniform_, random.normal_, random.bernoulli_
    random_, exponential_, geometric_ = random.random_, random.exponential_, random.geometric_
    cauchy_, log_normal_ = random.cauchy_, random.log_normal_
    bernoulli, multinomial = random.bernoulli, random.multinomial


set_class(Tensor)
