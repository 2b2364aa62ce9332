"""A small function to explain. (Golden files have the numbers of its lines.)"""

import tilegrad as tg


def attention_weights(scores: tg.Tensor, scale: tg.Tensor) -> tg.Tensor:
    scaled = scores * scale
    weights = (scaled - scaled.amax(1, keepdim=True)).exp()
    return weights / weights.sum(1, keepdim=True)


def two_layers(x: tg.Tensor, first: tg.Tensor, second: tg.Tensor) -> tg.Tensor:
    hidden = (x @ first).relu()
    return hidden @ second
