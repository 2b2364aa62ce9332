"""Strides of results, for inputs that lie in many ways: expressions, and what PyTorch gives for them.

    python -m tests.operators.strides    writes what PyTorch gives to strides.json

A library is `T`, its functions of layers are `F`, the input is `v`, `y` is another tensor of its shape that lies row by
row, and `r(2, 3)` makes further tensors.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "strides.json"

LAYOUTS = {
    "dense": "x(2, 4, 6, 6)",
    "channels_last": "x(2, 4, 6, 6).to(memory_format=T.channels_last)",
    "permuted": "x(6, 4, 2, 6).permute(2, 1, 0, 3)",
    "transposed": "x(2, 4, 6, 6).transpose(2, 3)",
    "reversed": "x(6, 6, 4, 2).permute(3, 2, 1, 0)",
    "sliced": "x(2, 8, 6, 6)[:, 1:5]",
    "stepped": "x(2, 4, 6, 12)[..., ::2]",
    "sliced, reversed": "x(6, 6, 4, 5).permute(3, 2, 1, 0)[1:3]",
    "expanded": "x(2, 1, 6, 6).expand(2, 4, 6, 6)",
    "expanded, transposed": "x(2, 4, 6, 1).expand(2, 4, 6, 6).transpose(1, 2).transpose(1, 3).transpose(1, 2)",
    "offset": "x(3, 4, 6, 6)[1:]",
    "of one channel": "x(2, 6, 6, 1).permute(0, 3, 1, 2)",
}

LAYERS = """
F.conv2d(v, r(6, 4, 3, 3)) | F.conv2d(v, r(6, 4, 3, 3), r(6), 2, 1) | F.conv2d(v, r(6, 4, 1, 1))
F.conv2d(v, r(6, 4, 3, 3).to(memory_format=T.channels_last)) | F.conv2d(v, r(4, 1, 3, 3), groups=4)
F.conv2d(v, r(3, 4, 6, 6)) | F.conv2d(v[0], r(6, 4, 3, 3)) | F.conv_transpose2d(v, r(4, 6, 2, 2)) | F.max_pool2d(v, 2)
F.max_pool2d(v, 2, return_indices=True)[1] | F.avg_pool2d(v, 2) | F.lp_pool2d(v, 2, 2) | F.adaptive_avg_pool2d(v, 3)
F.adaptive_avg_pool2d(v, 1) | F.adaptive_max_pool2d(v, 3) | F.batch_norm(v, r(4), r(4) + 1, r(4), r(4))
F.batch_norm(v, r(4), r(4) + 1, r(4), r(4), True) | F.group_norm(v, 2) | F.layer_norm(v, v.shape[1:])
F.layer_norm(v, (6,), r(6), r(6)) | F.instance_norm(v) | F.rms_norm(v, (6,)) | F.local_response_norm(v, 2)
F.normalize(v) | F.relu(v) | F.gelu(v) | F.gelu(v, approximate="tanh") | F.silu(v) | F.elu(v) | F.celu(v) | F.selu(v)
F.softplus(v) | F.mish(v) | F.hardswish(v) | F.hardsigmoid(v) | F.hardtanh(v) | F.relu6(v) | F.prelu(v, r(4))
F.prelu(v, r(1)) | F.leaky_relu(v) | F.rrelu(v) | F.logsigmoid(v) | F.softsign(v) | F.tanhshrink(v) | F.softshrink(v)
F.hardshrink(v) | F.threshold(v, 0.1, 1.0) | F.glu(v, 1) | F.softmax(v, 1) | F.log_softmax(v, 3) | F.softmin(v, 1)
F.dropout(v, 0.5, True) | F.dropout(v, 0.5, False) | F.dropout2d(v, 0.5, True) | F.alpha_dropout(v, 0.5, True)
F.interpolate(v, scale_factor=2) | F.interpolate(v, scale_factor=2, mode="bilinear")
F.interpolate(v, 3, mode="area") | F.interpolate(v, scale_factor=2, mode="bicubic") | F.pad(v, (1, 1, 1, 1))
F.pad(v, (1, 1), value=2.0) | F.pad(v, (1, 1, 1, 1), mode="reflect") | F.pad(v, (1, 1, 1, 1), mode="replicate")
F.pad(v, (1, 1, 1, 1), mode="circular") | F.pixel_shuffle(v, 2) | F.pixel_unshuffle(v, 2) | F.channel_shuffle(v, 2)
F.unfold(v, 2) | F.linear(v, r(3, 6), r(3)) | F.scaled_dot_product_attention(v, v, v)
F.scaled_dot_product_attention(*[v.transpose(1, 2)] * 3) | F.mse_loss(v, y, reduction="none")
F.l1_loss(v, y, reduction="none") | F.smooth_l1_loss(v, y, reduction="none") | F.cosine_similarity(v, y, 1)
F.bilinear(v, v, r(3, 6, 6)) | F.embedding((v > 0).long(), r(2, 3)) | F.one_hot((v > 0).long(), 2)
F.cross_entropy(v, T.zeros(2, 6, 6, dtype=T.int64), reduction="none")
F.nll_loss(v, T.zeros(2, 6, 6, dtype=T.int64), reduction="none")
"""

POINTWISE = """
v * 2 | 2 - v | -v | v + v | v * y | y * v | v / v | v.exp() | v.abs() | v.clamp(0, 1) | v.clamp(y) | v ** 2 | v ** y
v * r(1, 4, 1, 1) | r(4, 1, 1) * v | v + r(6) | r(2, 1, 1, 6) - v | v * r(2, 4, 6, 6).transpose(1, 2).transpose(1, 3)
v.transpose(1, 2) * 2 | v.transpose(1, 2) + y.transpose(1, 2) | v[:, :2] * 2 | v[0] * 2 | v[..., ::2].exp()
v[:, None] * 2 | v > 0 | v == y | (v > 0) & (y > 0) | ~(v > 0) | v.isnan() | T.isclose(v, y) | T.where(v > 0, v, y)
T.where(v > 0, v, 0.0) | T.where(y > 0, 1.0, v) | T.addcmul(y, v, v) | T.addcmul(v, y, y, value=2)
T.addcdiv(v, y, y) | T.lerp(v, y, 0.5) | T.lerp(y, v, y) | T.maximum(v, y) | T.fmax(v, y) | T.atan2(y, v)
T.heaviside(v, y) | T.copysign(v, y) | T.hypot(v, v) | T.xlogy(v, y) | v.int() + v | v.int() * v.double()
v.int() / v.int() | v.int() + 1.5 | v.long() // 2 | v.int() % 3 | v.nan_to_num() | v.sigmoid() | v.tanh() | v.round()
v.sign() | v.sqrt() | v.logit(0.1) | v.lgamma() | v.erfinv() | v.square() | v.reciprocal() | v.bool() | v.half()
v.double() | v.float() | v.to(T.int32) | v.to(T.float16) | v.type_as(y.double()) | v.clone()
v.to(v.dtype, copy=True) | v.clone(memory_format=T.contiguous_format) | v.clone(memory_format=T.channels_last)
v.contiguous() | v.detach() * 1 | v.contiguous(memory_format=T.channels_last) | v.to(memory_format=T.channels_last)
v.to(T.float64, memory_format=T.contiguous_format) | v.to(memory_format=T.contiguous_format)
v.half(memory_format=T.channels_last) | v.transpose(0, 2).float() | v.T.double() | T.empty_like(v) | T.zeros_like(v)
T.ones_like(v, dtype=T.int64) | T.full_like(v, 2.0) | T.rand_like(v) | T.randn_like(v)
T.zeros_like(v, memory_format=T.contiguous_format) | T.empty_like(v, memory_format=T.channels_last)
T.zeros_like(v[:, :2]) | v.new_zeros(v.shape) | T.randint_like(v, 3) | T.empty_like(v.transpose(0, 1))
v.permute(1, 0, 3, 2).clone() | v[:, ::2].clone() | v[:, :1].clone()
"""

OTHERS = """
v.sum(1) | v.sum(1, keepdim=True) | v.mean((2, 3), keepdim=True) | v.amax(1) | v.max(1)[0] | v.max(1)[1] | v.argmax(2)
v.var(1) | v.std(1, keepdim=True) | v.logsumexp(1, keepdim=True) | v.norm(dim=1) | v.prod(1) | (v > 0).all(2)
v.median(1)[0] | v.nanmean(1) | v.cumsum(1) | v.cumprod(1) | v.cummax(1)[0] | v.logcumsumexp(1) | v.sort(1)[0]
v.argsort(1) | v.topk(2, 1)[0] | v.kthvalue(2, 1)[0] | v @ r(6, 5) | r(5, 6) @ v | v[0] @ r(6, 5)
T.bmm(v[0], r(4, 6, 2)) | v[0, 0] @ v[0, 1] | v[0, 0].mm(v[1, 0].T) | v[0, 0].mv(r(6)) | T.tensordot(v, r(6, 3), 1)
T.outer(v[0, 0, 0], v[0, 0, 1]) | T.addmm(v[0, 0], v[0, 1], v[1, 1]) | v[0, 0].matrix_power(2) | T.cat([v, v], 1)
T.cat([v, v], 0) | T.cat([v, y], 1) | T.cat([y, v], -1) | T.stack([v, v], 1) | T.hstack([v, v]) | v.repeat(1, 2, 1, 1)
v.repeat_interleave(2, 1) | v.flip(2) | v.flip(0, 1) | v.roll(1, 2) | v.rot90(1, (2, 3)) | v.tril() | v.triu(1)
v.diff(dim=1) | v.index_select(1, T.tensor([0, 2])) | v[:, T.tensor([0, 2])] | v[T.tensor([0, 1])]
v[:, :, T.tensor([[0, 1], [2, 3]])] | v[T.tensor([0, 1]), :, T.tensor([0, 1])]
v[:, T.tensor([0, 2]), T.tensor([1, 2])] | v[v > 0.5] | v[T.tensor([[0], [1]]), T.tensor([1, 2])]
v.gather(1, T.zeros(2, 2, 6, 6, dtype=T.int64)) | v.scatter(1, T.zeros(2, 2, 6, 6, dtype=T.int64), 1.0)
v.take_along_dim(v.argsort(1), 1) | v.masked_fill(v > 0, 1.0) | v.masked_scatter(v > 0, y)
v.index_add(1, T.tensor([0]), r(2, 1, 6, 6)) | v.index_fill(1, T.tensor([0]), 1.0)
v.index_copy(1, T.tensor([0]), r(2, 1, 6, 6)) | v.take(T.tensor([0, 5])) | v.masked_select(v > 0.5) | v.nonzero()
v.unique() | v.reshape(2, -1) | v.flatten(1) | v.ravel() | v.reshape(-1) | v.reshape(2, 2, 2, 6, 6)
v.unflatten(1, (2, 2)) | v.unbind(1)[1] | v.transpose(1, 2).reshape(2, 6, -1) | v.squeeze() | v.unsqueeze(2)
v.expand(3, 2, 4, 6, 6) | v.movedim(1, 3) | v.swapaxes(0, 1) | v.mT | v.chunk(2, 1)[1] | v.split(3, 2)[1]
v.narrow(3, 1, 2) | v.select(1, 2) | v.diagonal(0, 2, 3) | v.unfold(2, 2, 1) | v.detach()
T.bucketize(v, T.tensor([0.0, 1.0])) | T.searchsorted(T.tensor([0.0, 1.0]), v) | T.bernoulli(v.sigmoid())
T.isin(v, T.tensor([0.0])) | (v * 2)[:, 1:] | (v * 2).transpose(1, 2) | (v + v)[0].exp() | (v * 2).unsqueeze(1) * 3
(v * 2).expand(3, 2, 4, 6, 6) + 1 | (v * 2).detach().clone() | (v * 1).add_(1) | (v * 1).copy_(y) | (v * 1).zero_()
(v * 1).relu_() | (v * 1).T | (v * 1).t_() if v.dim() < 3 else (v * 1).transpose_(1, 2)
"""

ACCEPTED = """
(v * 2).view(-1) | (v * 2).view(2, -1) | (v * 2).view(2, 4, 36) | (v * 2).view(8, 6, 6)
(v * 2).permute(0, 2, 3, 1).view(-1, v.shape[1]) | (v * 2).transpose(2, 3).view(2, -1, 36) | v.half().view(-1)
v.clone().view(2, 2, 2, 6, 6) | (v + y).view(-1) | (v @ r(6, 5)).view(-1)
v.transpose(1, 2).exp().transpose(1, 2).view(2, -1) | v.sum(1).view(-1) | F.relu(v).view(2, -1)
F.layer_norm(v, (6,)).view(-1)
"""
"""Views, some of which are refused."""


def expressions() -> list[str]:
    """All expressions."""
    lines = "\n".join([LAYERS, POINTWISE, OTHERS, ACCEPTED]).splitlines()
    return [e.strip() for line in lines if line for e in line.split(" | ")]


def tensor_of(library: Any, shape: tuple[int, ...]) -> Any:
    """Numbers between 0 and 2 that are soon others."""
    count = 1
    for extent in shape:
        count *= extent
    return library.tensor([(7 * n % 11) / 8 + 0.1 for n in range(count)], dtype=library.float32).reshape(shape)


def strides(library: Any, functions: Any) -> dict[str, dict[str, list[int] | str]]:
    """The strides along axes of more than one element, or "refused", by layout and expression."""
    found: dict[str, dict[str, list[int] | str]] = {}

    def made(*shape: int) -> Any:
        return tensor_of(library, shape)

    for layout, text in LAYOUTS.items():
        own = found[layout] = {}
        names = {
            "T": library,
            "x": lambda *shape: tensor_of(library, shape),
            "r": lambda *shape: tensor_of(library, shape),
        }
        v = eval(text, names)
        y = tensor_of(library, tuple(v.shape))
        for expression in expressions():
            try:
                result = eval(expression, {"T": library, "F": functions, "v": v, "y": y, "r": made})
            except Exception:
                own[expression] = "refused"
                continue
            own[expression] = [s for s, n in zip(result.stride(), result.shape, strict=True) if n > 1]
    return found


if __name__ == "__main__":
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = strides(torch, torch.nn.functional)
    rows = {e: [own[e] for own in given.values()] for e in expressions()}
    RECORD.write_text("{\n" + ",\n".join(f"{json.dumps(e)}: {json.dumps(row)}" for e, row in rows.items()) + "\n}\n")
