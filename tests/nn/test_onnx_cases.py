"""The cases by which ONNX accepts a backend, through direct calls: convolutions, pooling, recurrent layers, attention.

A function for each kind of node says how its attributes are ours; what PyTorch's layers cannot express stands in
`LEFT_OUT`, with the reason. The package `onnx` (`make test PEERS=1` installs it) computes the expected results.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilegrad as tg

onnx = pytest.importorskip("onnx")
functional = tg.nn.functional

MODULES = """conv convtranspose maxpool averagepool lppool globalaveragepool globalmaxpool maxunpool rnn lstm gru
attention""".split()

LEFT_OUT = {
    "test_lstm_with_peepholes": "LSTMs of PyTorch have no peepholes",
    "test_gru_seq_length": "the reset gate stands before the product; in PyTorch it stands behind",
    "test_lppool_2d_dilations": "average pooling has no dilation in PyTorch",
    "test_averagepool_2d_dilations": "average pooling has no dilation in PyTorch",
    "test_averagepool_3d_dilations": "average pooling has no dilation in PyTorch",
}
"""The beginnings of names, and why."""

ATTENTION = {"softcap", "softmax_precision", "left_window_size", "right_window_size"}
"""Features that PyTorch's attention does not have."""

Inputs = Sequence[Any]
Attributes = dict[str, Any]


class Export(NamedTuple):
    """A function of the package that makes cases. It computes what is expected, which for some takes seconds."""

    name: str
    make: Callable[[], None]


def exports() -> list[Export]:
    """The cases of all kinds that have a function here. The package would run them at once; here each has a test."""
    found: list[Export] = []

    def listed(made: type, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> None:
        functions = {key: x.__func__ for key, x in members.items() if key.startswith("export")}
        found.extend(Export(f"{name}{key.removeprefix('export')}", function) for key, function in functions.items())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("onnx.backend.test.case.base")._Exporter, "__init__", listed)
        for module in MODULES:
            import_module(f"onnx.backend.test.case.node.{module}")
    return found


def cases(export: Export) -> list[Any]:
    """The single nodes that it makes."""
    node = import_module("onnx.backend.test.case.node")
    node.function_testcase_helper = lambda *args, **options: ([], [])  # type: ignore[attr-defined]  # none of the same cases made of smaller nodes
    known = len(node._NodeTestCases)
    np.random.seed(0)
    export.make()
    return [c for c in node._NodeTestCases[known:] if c.model is not None and len(c.model.graph.node) == 1]


# --- geometry --------------------------------------------------------------------------------------


def geometry(x: Any, taps: Sequence[int], a: Attributes) -> tuple[list[int], list[int], list[int], list[int]]:
    """Strides, dilations, and what is put before and behind each axis."""
    rank = len(taps)
    strides, dilations = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
    pads = a.get("pads", [0] * 2 * rank)
    before, behind = list(pads[:rank]), list(pads[rank:])
    if a.get("auto_pad", "NOTSET").startswith("SAME"):
        for n, (extent, k, s, d) in enumerate(zip(x.shape[2:], taps, strides, dilations, strict=True)):
            total = max((-(-extent // s) - 1) * s + (k - 1) * d + 1 - extent, 0)
            small, large = total // 2, total - total // 2
            before[n], behind[n] = (small, large) if a["auto_pad"] == "SAME_UPPER" else (large, small)
    return strides, dilations, before, behind


def widened(x: Any, before: Sequence[int], behind: Sequence[int], value: float) -> Any:
    pairs = [n for pair in zip(before[::-1], behind[::-1], strict=True) for n in pair]
    return functional.pad(x, pairs, value=value) if any(pairs) else x


def of_rank(name: str, taps: Sequence[int]) -> Callable[..., Any]:
    return getattr(functional, name.replace("#", str(len(taps))))  # type: ignore[no-any-return]


def conv(inputs: Inputs, a: Attributes) -> Any:
    x, w, *bias = inputs
    strides, dilations, before, behind = geometry(x, w.shape[2:], a)
    x = widened(x, before, behind, 0.0)
    return of_rank("conv#d", w.shape[2:])(x, w, *(bias or [None]), strides, 0, dilations, a.get("group", 1))


def conv_transpose(inputs: Inputs, a: Attributes) -> Any:
    """The whole result, from which the padding is cut."""
    x, w, *bias = inputs
    taps = w.shape[2:]
    strides, dilations, before, behind = geometry(x, taps, {k: v for k, v in a.items() if k != "auto_pad"})
    more = a.get("output_padding", [0] * len(taps))
    y = of_rank("conv_transpose#d", taps)(x, w, *(bias or [None]), strides, 0, more, a.get("group", 1), dilations)
    if "output_shape" in a or "auto_pad" in a:
        wanted = a.get("output_shape", [n * s for n, s in zip(x.shape[2:], strides, strict=True)])
        totals = [have - want for have, want in zip(y.shape[2:], wanted, strict=True)]
        before = [t // 2 if a.get("auto_pad") == "SAME_UPPER" else t - t // 2 for t in totals]
        behind = [t - b for t, b in zip(totals, before, strict=True)]
    return widened(y, [-n for n in before], [-n for n in behind], 0.0)


# --- pooling ---------------------------------------------------------------------------------------


def max_pool(inputs: Inputs, a: Attributes) -> Any:
    (x,) = inputs
    taps, integer = a["kernel_shape"], not x.is_floating_point()
    strides, dilations, before, behind = geometry(x, taps, a)
    given = x.float() if integer else x
    y, places = of_rank("max_pool#d", taps)(
        widened(given, before, behind, -inf), taps, strides, 0, dilations, bool(a.get("ceil_mode", 0)), True
    )
    extents, sizes = x.shape[2:], [n + b + e for n, b, e in zip(x.shape[2:], before, behind, strict=True)]
    at = [p - b for p, b in zip(tg.unravel_index(places, sizes), before, strict=True)]
    if a.get("storage_order"):
        at, extents = at[::-1], extents[::-1]
    flat: Any = 0
    for p, extent in zip(at, extents, strict=True):
        flat = flat * extent + p
    planes = tg.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(taps))
    return (y.to(x.dtype) if integer else y), flat + planes * prod(extents)


def average_pool(inputs: Inputs, a: Attributes) -> Any:
    (x,) = inputs
    taps, ceil, whole = a["kernel_shape"], bool(a.get("ceil_mode", 0)), bool(a.get("count_include_pad", 0))
    strides, _, before, behind = geometry(x, taps, a)
    pool = of_rank("avg_pool#d", taps)
    if before == behind and all(2 * n <= k for n, k in zip(before, taps, strict=True)):
        return pool(x, taps, strides, before, ceil, whole)
    sums = pool(widened(x, before, behind, 0.0), taps, strides, 0, ceil)
    return sums if whole else sums / pool(widened(tg.ones_like(x), before, behind, 0.0), taps, strides, 0, ceil)


def lp_pool(inputs: Inputs, a: Attributes) -> Any:
    (x,) = inputs
    taps = a["kernel_shape"]
    strides, _, before, behind = geometry(x, taps, a)
    return of_rank("lp_pool#d", taps)(widened(x.abs(), before, behind, 0.0), float(a.get("p", 2)), taps, strides)


def max_unpool(inputs: Inputs, a: Attributes) -> Any:
    x, places, *size = inputs
    taps = a["kernel_shape"]
    strides, _, before, _ = geometry(x, taps, a)
    small = of_rank("max_unpool#d", taps)(x, places, taps, strides, before)
    if not size:
        return small
    # the places are those in the smaller result; the larger one is filled up by zeros
    rest = [wanted - n for wanted, n in zip(size[0].tolist()[2:], small.shape[2:], strict=True)]
    return widened(small, [0] * len(rest), rest, 0.0)


# --- recurrent layers ------------------------------------------------------------------------------

ORDERS = {"RNN": [0], "LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2]}
"""The places of PyTorch's gates in ONNX's weights."""


def recurrent(kind: str) -> Callable[[Inputs, Attributes], Any]:
    def call(inputs: Inputs, a: Attributes) -> Any:
        x, w, r, b, lengths, first, first_cell, *_ = [*inputs, *[None] * 7][:8]
        units, directions, batch_first = a["hidden_size"], w.shape[0], bool(a.get("layout", 0))
        layer = getattr(tg.nn, kind)(x.shape[2], units, batch_first=batch_first, bidirectional=directions == 2)
        halves = (None, None) if b is None else b.chunk(2, 1)
        values = {"weight_ih": w, "weight_hh": r, "bias_ih": halves[0], "bias_hh": halves[1]}
        for name, value in values.items():
            for n in range(directions):
                own = getattr(layer, f"{name}_l0{'_reverse' * n}")
                given = tg.zeros_like(own) if value is None else value[n]
                gates = given.reshape(len(ORDERS[kind]), units, -1)[ORDERS[kind]]
                own.data = gates.reshape(own.shape)
        reverse = a.get("direction") == "reverse"
        time = 1 if batch_first else 0
        given = x.flip(time) if reverse else x
        states = [s.transpose(0, 1) if batch_first else s for s in (first, first_cell) if s is not None]
        start = (states[0] if kind != "LSTM" else tuple(states)) if states else None
        if lengths is not None and lengths.tolist() != [x.shape[time]] * x.shape[1 - time]:
            rnn = tg.nn.utils.rnn
            packed = rnn.pack_padded_sequence(given, lengths, batch_first, enforce_sorted=False)
            output, last = layer(packed, start)
            output, _ = rnn.pad_packed_sequence(output, batch_first, total_length=x.shape[time])
        else:
            output, last = layer(given, start)
        output = output.flip(time) if reverse else output
        output = output.reshape(*output.shape[:2], directions, units)
        lasts = list(last) if kind == "LSTM" else [last]
        if batch_first:
            return output, *(s.transpose(0, 1) for s in lasts)
        return output.transpose(1, 2), *lasts

    return call


# --- attention -------------------------------------------------------------------------------------


def attention(inputs: Inputs, a: Attributes) -> Any:
    q, k, v, *mask = inputs
    flat = q.dim() == 3
    if flat:
        q, k, v = (
            x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)
            for x, heads in ((q, a["q_num_heads"]), (k, a["kv_num_heads"]), (v, a["kv_num_heads"]))
        )
    given = mask[0] if mask else None
    causal = bool(a.get("is_causal", 0))
    if given is not None and given.shape[-1] < k.shape[2]:
        rest = k.shape[2] - given.shape[-1]
        given = functional.pad(given.float(), (0, rest), value=0.0).bool() if given.dtype is tg.bool else given
        given = given if given.dtype is tg.bool else functional.pad(given, (0, rest), value=-inf)
    if given is not None and causal:
        triangle = tg.ones(q.shape[2], k.shape[2]).tril().bool()
        given = given & triangle if given.dtype is tg.bool else given.masked_fill(~triangle, -inf)
        causal = False
    y = functional.scaled_dot_product_attention(q, k, v, given, 0.0, causal, a.get("scale"), q.shape[1] != k.shape[1])
    return y.transpose(1, 2).reshape(*y.transpose(1, 2).shape[:2], -1) if flat else y


CALLS: dict[str, Callable[[Inputs, Attributes], Any]] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "LpPool": lp_pool,
    "GlobalAveragePool": lambda inputs, a: inputs[0].mean(tuple(range(2, inputs[0].dim())), keepdim=True),
    "GlobalMaxPool": lambda inputs, a: of_rank("adaptive_max_pool#d", inputs[0].shape[2:])(inputs[0], 1),
    "MaxUnpool": max_unpool,
    "RNN": recurrent("RNN"),
    "LSTM": recurrent("LSTM"),
    "GRU": recurrent("GRU"),
    "Attention": attention,
}


def reason(case: Any) -> str:
    """Why a case is left out, if it is."""
    (node,) = case.model.graph.node
    for beginning, words in LEFT_OUT.items():
        if case.name.startswith(beginning):
            return words
    if node.op_type == "Attention":
        names = {x.name for x in node.attribute}
        if any(node.input[4:]) or len(node.output) > 1 or names & ATTENTION:
            return "past keys, soft caps, sliding windows, scores as results: not in PyTorch's function"
    return ""


@pytest.mark.parametrize("export", exports(), ids=lambda export: export.name)
def test_onnx(export: Export) -> None:
    made = cases(export)
    reasons = [reason(case) for case in made]
    for case, words in zip(made, reasons):
        if not words:
            check(case)
    if all(reasons):
        pytest.skip(reasons[0])


def check(case: Any) -> None:
    (node,) = case.model.graph.node
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
    for arrays, expected in case.data_sets:
        given = iter(arrays)
        inputs = [tg.tensor(next(given)) if name else None for name in node.input]
        results = CALLS[node.op_type](inputs, attributes)
        named = [
            y
            for y, name in zip(results if isinstance(results, tuple) else (results,), node.output, strict=False)
            if name
        ]
        assert len(named) >= len(expected) > 0
        for y, wanted in zip(named, expected, strict=False):
            array = y.detach().numpy()
            assert array.shape == wanted.shape
            half = wanted.dtype.itemsize == 2
            closeness = (2e-2, 1e-2) if half else (case.rtol, 1e-5)
            np.testing.assert_allclose(array.astype(np.float64), wanted.astype(np.float64), *closeness)
