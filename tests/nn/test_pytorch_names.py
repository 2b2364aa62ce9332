"""Things of PyTorch that are seldom used: against PyTorch's own."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad.errors import ArgumentError, ShapeError

torch = pytorch()
F = tg.nn.functional


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def both(array: np.ndarray) -> tuple[Any, Any]:
    return tg.tensor(array), torch.tensor(array)


@pytest.mark.parametrize("name, arguments", [
    ("max_pool1d", (2,)), ("max_pool2d", (2, 1, 1)), ("max_pool3d", (2,)),
    ("adaptive_max_pool1d", (2,)), ("adaptive_max_pool2d", (3,)), ("adaptive_max_pool3d", (2,)),
])  # fmt: skip
def test_poolings_with_indices(name: str, arguments: tuple[int, ...]) -> None:
    rank = int(name[-2])
    ours, theirs = both(numbers(2, 3, *[6] * rank))
    found = getattr(F, f"{name}_with_indices")(ours, *arguments)
    wanted = getattr(torch.nn.functional, f"{name}_with_indices")(theirs, *arguments)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(x.numpy(), y.numpy())


def test_fractional_pooling_with_indices() -> None:
    ours, theirs = both(numbers(1, 2, 8, 9))
    samples = np.full((1, 2, 2), 0.3, np.float32)
    found = F.fractional_max_pool2d_with_indices(ours, 2, (4, 5), _random_samples=tg.tensor(samples))
    wanted = torch.nn.functional.fractional_max_pool2d_with_indices(
        theirs, 2, (4, 5), _random_samples=torch.tensor(samples)
    )
    np.testing.assert_array_equal(found[1].numpy(), wanted[1].numpy())


def attention_arguments(separate: bool, extras: bool) -> list[Any]:
    """Arguments of multi_head_attention_forward as arrays, up to `training`."""
    x, y = numbers(5, 2, 8), numbers(7, 2, 8, seed=1)
    together = None if separate else numbers(24, 8, seed=2)
    biases = (numbers(1, 1, 8, seed=3), numbers(1, 1, 8, seed=4)) if extras else (None, None)
    out = numbers(8, 8, seed=6), numbers(8, seed=7)
    return [x, y, y, 8, 2, together, numbers(24, seed=5), *biases, extras, 0.0, *out]


@pytest.mark.parametrize("separate, extras, static", [(False, True, False), (True, False, False), (False, True, True)])
def test_multi_head_attention_forward(separate: bool, extras: bool, static: bool) -> None:
    arguments = attention_arguments(separate, extras)
    more: dict[str, Any] = {}
    if separate:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        more = {n: numbers(8, 8, seed=9 + k) for k, n in enumerate(names)} | {"use_separate_proj_weight": True}
    if static:
        # PyTorch adds a key to masks for bias_k even where keys are given: no mask here
        arguments[7] = arguments[8] = None
        more |= {"static_k": numbers(4, 6, 4, seed=20), "static_v": numbers(4, 6, 4, seed=21)}
    else:
        more |= {"attn_mask": numbers(5, 7, seed=8), "average_attn_weights": False}

    def given(convert: Any) -> Any:
        made = [convert(x) if isinstance(x, np.ndarray) else x for x in arguments]
        return made, {k: convert(v) if isinstance(v, np.ndarray) else v for k, v in more.items()}

    values, options = given(tg.tensor)
    found = F.multi_head_attention_forward(*values, **options)
    values, options = given(torch.tensor)
    wanted = torch.nn.functional.multi_head_attention_forward(*values, **options)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=2e-5, atol=2e-5)


def test_multi_head_attention_forward_says_what_is_missing() -> None:
    x, w, b = tg.ones(3, 1, 4), tg.ones(4, 4), tg.ones(4)
    with pytest.raises(ArgumentError, match="use_separate_proj_weight=False needs in_proj_weight"):
        F.multi_head_attention_forward(x, x, x, 4, 2, None, None, None, None, False, 0.0, w, b)
    with pytest.raises(ShapeError, match="embed_dim_to_check=6"):
        F.multi_head_attention_forward(x, x, x, 6, 2, None, None, None, None, False, 0.0, w, b)


@pytest.mark.parametrize("transpose", [False, True])
def test_fuse_conv_bn(transpose: bool) -> None:
    kind = "ConvTranspose2d" if transpose else "Conv2d"
    theirs, norm = getattr(torch.nn, kind)(3, 4, 3).eval(), torch.nn.BatchNorm2d(4).eval()
    ours, own_norm = getattr(tg.nn, kind)(3, 4, 3).eval(), tg.nn.BatchNorm2d(4).eval()
    for n, (mine, other) in enumerate([(ours, theirs), (own_norm, norm)]):
        for k, (name, x) in enumerate(other.state_dict().items()):
            if x.dtype.is_floating_point:
                x.copy_(torch.tensor(np.abs(numbers(*x.shape, seed=10 * n + k)) + 0.1))
            mine.load_state_dict({name: tg.tensor(x.numpy())}, strict=False)
    found = tg.nn.utils.fuse_conv_bn_eval(ours, own_norm, transpose)
    wanted = torch.nn.utils.fuse_conv_bn_eval(theirs, norm, transpose)
    np.testing.assert_allclose(found.weight.detach().numpy(), wanted.weight.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(found.bias.detach().numpy(), wanted.bias.detach().numpy(), rtol=1e-5)
    x = tg.tensor(numbers(1, 3, 5, 5))
    np.testing.assert_allclose(found(x).detach().numpy(), own_norm(ours(x)).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_fuse_linear_bn() -> None:
    linear, norm = tg.nn.Linear(3, 4, bias=False).eval(), tg.nn.BatchNorm1d(4).eval()
    norm.running_mean.copy_(tg.tensor(numbers(4)))
    x = tg.tensor(numbers(2, 3))
    fused = tg.nn.utils.fuse_linear_bn_eval(linear, norm)
    np.testing.assert_allclose(fused(x).detach().numpy(), norm(linear(x)).detach().numpy(), rtol=1e-5, atol=1e-5)
    with pytest.raises(ArgumentError, match="call eval"):
        tg.nn.utils.fuse_linear_bn_eval(linear.train(), norm)
    with pytest.raises(ShapeError, match="5 features stands behind 4"):
        tg.nn.utils.fuse_linear_bn_eval(linear.eval(), tg.nn.BatchNorm1d(5).eval())


def test_hooks_that_are_always_called() -> None:
    """After an error hooks see None for the output; those that were called before it are not called again."""
    layer, seen = tg.nn.Linear(2, 3), []
    layer.register_forward_hook(lambda m, x, y: seen.append(("first", y is None)), always_call=True)
    layer.register_forward_hook(lambda m, x, y: seen.append(("usual", y is None)))
    layer.register_forward_hook(lambda m, x, y: seen.append(("last", y is None)), always_call=True)
    layer(tg.ones(1, 2))
    with pytest.raises(ShapeError):
        layer(tg.ones(1, 5))
    assert seen == [(name, False) for name in ("first", "usual", "last")] + [("first", True), ("last", True)]

    def fails(*given: Any) -> None:
        raise ValueError("no")

    other = tg.nn.Linear(2, 3)
    other.register_forward_hook(fails, always_call=True)
    with pytest.warns(UserWarning, match="always_call"), pytest.raises(ShapeError):
        other(tg.ones(1, 5))
    with pytest.raises(ValueError, match="no"):
        other(tg.ones(1, 2))


def test_uninitialized_buffer() -> None:
    class Net(tg.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = tg.nn.UninitializedBuffer()

    net = Net()
    buffer = net.total
    assert repr(buffer) == "<UninitializedBuffer>"
    assert list(dict(net.named_buffers())) == ["total"]
    buffer.materialize((2, 3))
    assert type(buffer) is tg.nn.Buffer
    assert net.total is buffer
    assert tuple(buffer.shape) == (2, 3)
    parameter = tg.nn.UninitializedParameter()
    parameter.materialize((4,), dtype=tg.float64)
    assert type(parameter) is tg.nn.Parameter
    assert parameter.dtype is tg.float64
    assert parameter.requires_grad
