"""AlexNet as a list of layers, and as the text of a network that `tg.load_program` reads.

A layer is a function of `tg.nn.functional`, the values and tensors that it takes, and settings.
"""

from typing import Any, NamedTuple

WIDTHS = (96, 256, 384, 384, 256, 4096, 4096)
"""Filters of the convolutions, and units of the hidden layers."""


class Layer(NamedTuple):
    name: str
    function: str
    inputs: tuple[str, ...]
    settings: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        words = [*self.inputs, *[f"{name}={value}" for name, value in self.settings]]
        return f"{self.name} = {self.function}({', '.join(words)})"


class Network(NamedTuple):
    """A directed graph of layers without cycles, and the shapes of its weights."""

    layers: tuple[Layer, ...]
    weights: dict[str, tuple[int, ...]]
    image: tuple[int, int, int]
    output: str

    @property
    def text(self) -> str:
        """The network as the text of a file."""
        declared = [f"  {name}: parameter float32[{', '.join(map(str, s))}]" for name, s in self.weights.items()]
        sizes = ", ".join(map(str, self.image))
        head = f"evaluate(image: float32[n, {sizes}]) -> tensor:"
        body = [f"  {layer}" for layer in self.layers]
        return "\n".join(["tilegrad network 1", "tensors:", *declared, head, *body, f"  return {self.output}", ""])


def alexnet(widths: tuple[int, ...] = WIDTHS, side: int = 224, classes: int = 10) -> Network:
    """AlexNet for images of one channel.

    >>> print(alexnet().layers[0])
    conv1 = conv2d(image, conv1.weight, conv1.bias, stride=4, padding=0)
    """
    layers: list[Layer] = []
    weights: dict[str, tuple[int, ...]] = {}
    last, channels, extent = "image", 1, side
    kernels = ((11, 4, 0, True), (5, 1, 2, True), (3, 1, 1, False), (3, 1, 1, False), (3, 1, 1, True))
    for n, (kernel, stride, padding, pooled) in enumerate(kernels, 1):
        weights |= {f"conv{n}.weight": (widths[n - 1], channels, kernel, kernel), f"conv{n}.bias": (widths[n - 1],)}
        given = (last, f"conv{n}.weight", f"conv{n}.bias")
        layers.append(Layer(f"conv{n}", "conv2d", given, (("stride", stride), ("padding", padding))))
        layers.append(Layer(f"relu{n}", "relu", (f"conv{n}",)))
        last, channels, extent = f"relu{n}", widths[n - 1], (extent + 2 * padding - kernel) // stride + 1
        if pooled:
            layers.append(Layer(f"pool{n}", "max_pool2d", (last,), (("kernel_size", 3), ("stride", 2))))
            last, extent = f"pool{n}", (extent - 3) // 2 + 1
    layers.append(Layer("features", "flatten", (last,), (("start_dim", 1),)))
    last, units = "features", channels * extent * extent
    for n, width in enumerate((*widths[5:], classes), 6):
        weights |= {f"fc{n}.weight": (width, units), f"fc{n}.bias": (width,)}
        layers.append(Layer(f"fc{n}", "linear", (last, f"fc{n}.weight", f"fc{n}.bias")))
        last, units = f"fc{n}", width
        if n < 8:
            layers.append(Layer(f"relu{n}", "relu", (last,)))
            last = f"relu{n}"
    return Network(tuple(layers), weights, (1, side, side), last)
