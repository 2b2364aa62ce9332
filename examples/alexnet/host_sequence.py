"""Version 1: a network as a plain sequence of launches from the host, layer by layer, without a graph."""

from collections.abc import Mapping

import tilegrad as tg
from examples.alexnet.launch_queue import launch_queue
from examples.alexnet.network import Network
from tilegrad.nn import functional


def run_on_host(network: Network, weights: Mapping[str, tg.Tensor], image: tg.Tensor) -> tg.Tensor:
    """Launch the layers one after the other, each when the results that it takes are in memory."""
    values = {"image": image, **weights}
    layers = {layer.name: layer for layer in network.layers}
    with tg.no_grad():
        for name in launch_queue({layer.name: layer.inputs for layer in network.layers}, [network.output]):
            if name in layers:
                layer = layers[name]
                launch = getattr(functional, layer.function, None) or getattr(tg, layer.function)
                values[name] = launch(*[values[x] for x in layer.inputs], **dict(layer.settings))
                tg.compute(values[name])
    return values[network.output]
