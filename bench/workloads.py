"""Workloads: the computation, its inputs, its sizes, and its goal.

bench/contenders/ has what each library does for a workload, under the workload's name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np

from bench import networks

Inputs = dict[str, np.ndarray]
Size = tuple[int, ...]


@dataclass(frozen=True)
class Workload:
    """A computation that is repeated in one process."""

    name: str
    title: str
    sizes: tuple[Size, ...]
    """The first size has the goal; others are its neighbours, or have goals of their own (`goals`)."""
    inputs: Callable[[Size], Inputs]
    bytes: Callable[[Size], float] = lambda size: 0.0
    """Bytes that must be read and written, at least."""
    flops: Callable[[Size], float] = lambda size: 0.0
    goal: float | None = None
    """The ratio to reach: the best peer's time over ours."""
    goals: Mapping[Size, float] = field(default_factory=dict)
    """Goals of other sizes."""
    mean: float | None = None
    """The goal of the geometric mean over several sizes (`mean_of`), on a machine without a matrix unit."""
    mean_with_unit: float | None = None
    """The same on a machine with one."""
    mean_of: tuple[Size, ...] = ()
    goal_tuned: float | None = None
    """The goal against PyTorch with a tuned malloc."""
    tolerance: float = 1e-4
    operations: int = 1
    """The divisor of times that are given per operation."""
    against: tuple[str, ...] = ("torch", "jax", "numpy")
    rival: str | None = None
    """The one contender that the goal refers to, where it is not the best peer."""
    gives_gradients: bool = False
    """Whether its results hold gradients, which are compared with float64. Training steps report theirs separately."""
    while_busy: bool = False
    """Whether the figure is our slowdown while another process keeps a core busy."""
    kind: Literal["calls", "processes", "bytes"] = field(default="calls")
    """The kind of measurement: calls in one process, whole processes, or bytes on disk."""

    def label(self, size: Size) -> str:
        return "x".join(map(str, size)) if size else ""


def _normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _chain(size: Size) -> Inputs:
    return {name: _normal(n, *size) for n, name in enumerate("xabc")}


def _matrix(size: Size) -> Inputs:
    return {"x": _normal(0, *size)}


def _layer_norm(size: Size) -> Inputs:
    weight, bias = 1 + 0.1 * _normal(1, size[1]), 0.1 * _normal(2, size[1])
    return {"x": _normal(0, *size), "weight": weight, "bias": bias, "upstream": _normal(3, *size)}


def _mlp(size: Size) -> Inputs:
    """batch, inputs, hidden, classes."""
    batch, features, hidden, classes = size
    w1, w2 = _normal(1, hidden, features) / np.sqrt(features), _normal(2, classes, hidden) / np.sqrt(hidden)
    labels = np.random.default_rng(3).integers(0, classes, batch)
    parameters = {"w1": w1, "b1": 0.1 * _normal(4, hidden), "w2": w2, "b2": 0.1 * _normal(5, classes)}
    return {"x": _normal(0, batch, features), "labels": labels, **parameters}


def _mlp_flops(size: Size) -> float:
    """Operations of the forward pass and of the gradients of both weights and of the hidden layer."""
    batch, features, hidden, classes = size
    return 2.0 * batch * (2 * features * hidden + 3 * hidden * classes)


def _pair(size: Size) -> Inputs:
    return {"x": _normal(0, *size), "y": _normal(1, *size)}


def _nothing(size: Size) -> float:
    return 0.0


def _norm(size: Size) -> Inputs:
    return {name: x for name, x in _layer_norm(size).items() if name != "upstream"}


def _square_product(size: Size) -> Inputs:
    return {"x": _normal(0, size[0], size[0]), "y": _normal(1, size[0], size[0])}


def _heads(size: Size) -> Inputs:
    return {name: _normal(n, *size) for n, name in enumerate("qkv")}


def _attention_flops(size: Size) -> float:
    heads, length, width = size
    return 4.0 * heads * length * length * width


WEIGHTS = {"alexnet_inference": 4 * 46_764_746.0, "alexnet_inference_bf16": 2 * 46_764_746.0}
"""Bytes of the weights of networks whose inference for one sample is bound by reading them."""


def _weights(name: str, size: Size) -> float:
    """Bytes that an inference of one sample must read."""
    return WEIGHTS.get(name, 0.0) if size == (1,) else 0.0


def _product(size: Size) -> Inputs:
    """m, k, n."""
    m, k, n = size
    return {"x": _normal(0, m, k), "y": _normal(1, k, n)}


def _integer_product(size: Size) -> Inputs:
    random = np.random.default_rng(0)
    return {name: random.integers(-128, 128, shape, np.int8) for name, shape in (("x", size[:2]), ("y", size[1:]))}


def _product_flops(size: Size) -> float:
    return 2.0 * float(np.prod(size))


ALEXNET = ((96, 26, 256, 5, 1, 2), (1, 224, 96, 11, 4, 0), (256, 12, 384, 3, 1, 1), (384, 12, 384, 3, 1, 1))
ALEXNET += ((384, 12, 256, 3, 1, 1),)
"""Channels, side, filters, side of a filter, stride and padding of its convolutions; the second one has the images."""
LAYERS = tuple((batch, *layer) for batch in (16, 1) for layer in ALEXNET)
THIN = ((64, 784, 128), (128, 6400, 4096), (32, 4096, 4096), (1, 4096, 4096))


def _squares(*sides: int) -> tuple[Size, ...]:
    return tuple((n, n, n) for n in sides)


def _convolution(size: Size) -> Inputs:
    batch, channels, side, filters, kernel, stride, padding = size
    out = (side + 2 * padding - kernel) // stride + 1
    weight = _normal(1, filters, channels, kernel, kernel) / np.sqrt(channels * kernel * kernel)
    operands = {"x": _normal(0, batch, channels, side, side), "w": weight.astype(np.float32), "b": _normal(2, filters)}
    return {**operands, "upstream": _normal(3, batch, filters, out, out), "geometry": np.array([stride, padding])}


def _convolution_flops(size: Size) -> float:
    """Operations of the forward pass and of the gradients of the input and of the weights."""
    batch, channels, side, filters, kernel, stride, padding = size
    out = (side + 2 * padding - kernel) // stride + 1
    return 6.0 * batch * filters * out * out * channels * kernel * kernel


def _elements(arrays: int) -> Callable[[Size], float]:
    return lambda size: 4.0 * arrays * float(np.prod(size))


ALL = [
    Workload(
        "chain",
        "`relu(x*a+b)*sigmoid(x) + tanh(c)`",
        ((4096, 4096), (1001, 1003), (37, 211)),
        _chain,
        bytes=_elements(5),
        goal=1.5,
        goal_tuned=1.5,
    ),
    Workload(
        "softmax",
        "softmax over the last axis",
        ((4096, 4096), (4095, 4097), (64, 50257), (1000, 100)),
        _matrix,
        bytes=_elements(2),
        goal=2.5,
        goal_tuned=1.1,
    ),
    Workload(
        "layer_norm",
        "layer norm, forward",
        ((4096, 1024), (4095, 1023), (512, 768)),
        _layer_norm,
        bytes=_elements(2),
        goal=1.1,
        goal_tuned=1.0,
    ),
    Workload(
        "layer_norm_training",
        "layer norm, forward and backward",
        ((4096, 1024), (4095, 1023), (512, 768)),
        _layer_norm,
        bytes=_elements(4),
        goal=1.5,
        tolerance=1e-3,
        against=("torch", "jax"),
        gives_gradients=True,
    ),
    Workload(
        "sum0",
        "sum over axis 0",
        ((4096, 4096), (4097, 4095), (1000, 1000)),
        _matrix,
        bytes=_elements(1),
        goal=1.0,
        goal_tuned=1.0,
        tolerance=1e-3,
    ),
    Workload(
        "sum1",
        "sum over axis 1",
        ((4096, 4096), (4097, 4095), (1000, 1000)),
        _matrix,
        bytes=_elements(1),
        goal=1.0,
        goal_tuned=1.0,
        tolerance=1e-3,
    ),
    Workload(
        "mlp",
        "MLP, whole SGD step",
        ((64, 784, 128, 10), (63, 783, 127, 11), (1, 784, 128, 10)),
        _mlp,
        flops=_mlp_flops,
        goal=1.5,
        tolerance=1e-3,
    ),
    Workload(
        "mlp512",
        "MLP, whole SGD step",
        ((512, 784, 128, 10), (511, 783, 127, 11), (500, 784, 256, 10)),
        _mlp,
        flops=_mlp_flops,
        goal=1.2,
        tolerance=1e-3,
    ),
    Workload(
        "matmul",
        "float32 matrix product",
        (
            *_squares(1024, 256, 512, 2048, 4096, 255, 509, 1000, 1023, 1025, 2047),
            *THIN,
            *((61, 781, 127), (127, 6401, 4095), (31, 4099, 4093), (3, 4096, 4096), (4096, 4096, 1)),
        ),
        _product,
        flops=_product_flops,
        goal=1.0,
        goals=dict.fromkeys([*_squares(256, 512, 2048, 4096), *THIN], 1.0),
        mean_with_unit=1.25,
        mean_of=_squares(512, 1024, 2048),
    ),
    Workload(
        "matmul_high",
        "float32 matrix product at `high`, against float32",
        (*_squares(1024, 2048, 4096, 1000), (128, 6400, 4096), (32, 4096, 4096)),
        _product,
        flops=_product_flops,
        goal=1.7,
        goals=dict.fromkeys(_squares(2048, 4096), 1.7),
        mean_with_unit=2.0,
        mean_of=_squares(1024, 2048, 4096),
        against=("torch",),
    ),
    Workload(
        "matmul_bf16",
        "bfloat16 matrix product",
        (*_squares(1024, 512, 2048, 4096, 509, 1023), (64, 784, 128), (1, 4096, 4096)),
        _product,
        flops=_product_flops,
        goal=1.3,
        goals={(512, 512, 512): 1.3, (2048, 2048, 2048): 1.0, (4096, 4096, 4096): 1.0},
        tolerance=2e-2,
        against=("torch", "jax"),
    ),
    Workload(
        "matmul_int8",
        "product of 8-bit integers, summed in int32",
        (*_squares(1024, 512, 2048, 1000), (128, 6400, 4096)),
        _integer_product,
        tolerance=0.0,
        against=("torch",),
    ),
    *(
        Workload(
            name,
            f"convolution{how}, forward and all gradients: batch, channels, side, filters, kernel, stride, padding",
            LAYERS,
            _convolution,
            flops=flops,
            goal=0.8,
            goals=dict.fromkeys(LAYERS, 0.8),
            mean=mean,
            mean_with_unit=with_unit,
            mean_of=LAYERS,
            tolerance=off,
            against=("torch",),
            gives_gradients=True,
        )
        for name, how, flops, mean, with_unit, off in (
            ("convolution", "", _convolution_flops, 1.0, 1.3, 2e-3),
            ("convolution_high", " at `high`, against float32", _nothing, 1.0, 2.2, 2e-3),
            ("convolution_bf16", " in bfloat16", _nothing, 1.2, 1.2, 5e-2),
        )
    ),
    *(
        Workload(
            name,
            title,
            tuple(goals),
            partial(networks.batch, name.split("_")[0]),
            bytes=partial(_weights, name),
            goal=next(iter(goals.values())),
            goals={size: goal for size, goal in [*goals.items()][1:] if goal},
            tolerance=off,
            against=by,
        )
        for name, title, goals, off, by in (
            ("lenet", "LeNet, whole SGD step", {(64,): 3.0, (61,): None}, 1e-2, ("torch",)),
            ("lenet_inference", "LeNet, inference", {(1,): 1.3, (3,): None}, 1e-3, ("torch", "onnxruntime")),
            ("alexnet", "AlexNet, whole SGD step", {(16,): 1.4, (64,): 1.4}, 1e-2, ("torch",)),
            (
                "alexnet_high",
                "AlexNet, whole SGD step at `high`, against float32",
                {(16,): 2.0, (64,): 2.0},
                1e-2,
                ("torch",),
            ),
            ("alexnet_bf16", "AlexNet, whole SGD step, bfloat16 autocast", {(16,): 1.5}, 5e-2, ("torch",)),
            ("alexnet_inference", "AlexNet, inference", {(1,): 1.0, (32,): 1.4}, 1e-3, ("torch", "onnxruntime")),
            ("alexnet_inference_bf16", "AlexNet, inference in bfloat16", {(1,): 1.0, (32,): 1.3}, 5e-2, ("torch",)),
            ("wide", "MLP 784-1024-1024-10, whole SGD step", {(64,): 1.2, (512,): 1.2}, 1e-2, ("torch",)),
            ("gpt", "GPT (4 layers, width 128), whole AdamW step", {(16, 128): 1.5}, 1e-2, ("torch",)),
            ("lstm", "LSTM (2 layers of 256), whole AdamW step", {(32, 64): 1.2}, 1e-2, ("torch",)),
        )
    ),
    Workload(
        "attention",
        "causal attention, forward and backward",
        ((8, 8, 512, 64), (1, 8, 2048, 64), (2, 3, 509, 61)),
        lambda size: {name: _normal(n, *size) for n, name in enumerate("qkvu")},
        goal=1.2,
        goals={(1, 8, 2048, 64): 1.2},
        tolerance=1e-3,
        against=("torch",),
        gives_gradients=True,
    ),
    *(
        Workload(
            f"kernel_{name}",
            f"{title}, a kernel of the gallery, against PyTorch's operator",
            sizes,
            inputs,
            bytes=bytes,
            flops=flops,
            goal=goal,
            tolerance=1e-3,
            rival="torch",
            against=("torch", "tilegrad-checked"),
        )
        for name, title, sizes, inputs, bytes, flops, goal in (
            ("add", "vector add", ((1 << 24,), (1 << 18,)), _pair, _elements(3), _nothing, 1.0),
            ("softmax", "softmax", ((4096, 1024), (512, 512)), _matrix, _elements(2), _nothing, 1.2),
            ("layer_norm", "layer norm", ((4096, 1024), (512, 768)), _norm, _elements(2), _nothing, 1.0),
            ("matmul", "matmul", ((1024,), (512,)), _square_product, _nothing, lambda size: 2.0 * size[0] ** 3, 0.9),
            ("attention", "attention", ((8, 512, 64),), _heads, _nothing, _attention_flops, 1.0),
        )
    ),
    Workload("add", "`jit`ted add, per call", ((16,), (17,)), _pair, goal=3.0, rival="jax"),
    Workload(
        "tiny",
        "chain of 100 tiny operations, forward and backward, without `jit`, per operation",
        ((16,),),
        _pair,
        goal=0.5,
        rival="torch",
        operations=100,
        against=("torch",),
        tolerance=1e-3,
        gives_gradients=True,
    ),
    Workload(
        "mlp_busy",
        "MLP step while another process keeps one core busy: slowdown",
        ((512, 784, 128, 10),),
        _mlp,
        goal=2.5,
        tolerance=1e-3,
        while_busy=True,
        against=("torch", "jax"),
    ),
    Workload(
        "cold",
        "fresh process: import, build the MLP, one `jit`ted step, warm disk cache",
        ((64, 784, 128, 10),),
        _mlp,
        goal=3.0,
        rival="jax",
        against=("torch", "jax"),
        kind="processes",
    ),
    Workload("import", "`import`, against `import numpy`", ((),), lambda size: {}, goal=1.3, kind="processes"),
    Workload(
        "alexnet_memory",
        "AlexNet, memory of an SGD step, against PyTorch's",
        ((64,),),
        lambda size: {},
        goal=0.7,
        kind="bytes",
        against=("torch",),
    ),
    Workload("installed", "bytes on disk, dependencies included", ((),), lambda size: {}, goal=300e6, kind="bytes"),
]
WORKLOADS = {workload.name: workload for workload in ALL}


def expanded(names: Sequence[str]) -> list[str]:
    """Expand names of workloads; `kernels` stands for those of the gallery.

    >>> expanded(["mlp", "kernels"])[:3]
    ['mlp', 'kernel_add', 'kernel_softmax']
    """
    family = [name for name in WORKLOADS if name.startswith("kernel_")]
    return [found for name in names for found in (family if name == "kernels" else [name])]


def find(name: str) -> tuple[Workload, tuple[Size, ...]]:
    """Find a workload by name: `softmax` (with its neighbours), or `softmax:4096x4096`.

    >>> find("add:16")[1]
    ((16,),)
    """
    word, _, size = name.partition(":")
    if word not in WORKLOADS:
        raise SystemExit(f"no workload {word!r}; there are {', '.join(WORKLOADS)}")
    workload = WORKLOADS[word]
    return workload, (tuple(int(n) for n in size.split("x")),) if size else workload.sizes
