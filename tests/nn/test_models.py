"""Networks: their sizes, and that they compute and learn what PyTorch's do from the same weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.nn.functional as F
from tests.checklist import checklist
from tests.recorded import pytorch
from tilegrad.errors import ArgumentError, ShapeError
from tilegrad.nn import models
from tilegrad.nn.models.resnet import ResidualBlock

SIZES: dict[str, tuple[Callable[[], Any], int, tuple[int, ...]]] = {
    "logistic": (models.LogisticRegression, 7_850, (1, 28, 28)),
    "mlp": (models.MLP, 109_386, (1, 28, 28)),
    "lenet": (models.LeNet, 440_812, (1, 28, 28)),
    "cnn": (models.CNN, 1_199_882, (1, 28, 28)),
    "alexnet": (models.AlexNet, 46_764_746, (1, 224, 224)),
    "resnet18": (lambda: models.ResNet18(1000, 3), 11_689_512, (3, 224, 224)),
}


@pytest.mark.parametrize(("make", "count", "image"), SIZES.values(), ids=SIZES)
def test_parameters_and_scores(make: Callable[[], Any], count: int, image: tuple[int, ...]) -> None:
    model = make()
    assert sum(p.numel() for p in model.parameters()) == count
    assert model(tg.zeros(2, *image)).shape == (2, 1000 if count == 11_689_512 else 10)


@checklist(52)
def test_alexnet_is_that_of_the_book() -> None:
    x = tg.zeros(1, 1, 224, 224)
    heights = [
        x.shape[2] for layer in models.AlexNet().conv if (x := layer(x)) is not None and "ReLU" not in str(layer)
    ]
    assert heights == [54, 26, 26, 12, 12, 12, 12, 5]
    assert x.shape == (1, 256, 5, 5)


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def weights(model: Any, torch: Any) -> dict[str, Any]:
    """The weights of a model here, for PyTorch."""
    found = {k: torch.tensor(v.detach().numpy().copy()) for k, v in model.state_dict().items()}
    return {k: v.requires_grad_() if v.is_floating_point() else v for k, v in found.items()}


@checklist(52)
def test_alexnet_scores_as_in_pytorch() -> None:
    torch = pytorch()
    torch_f = torch.nn.functional
    model = models.AlexNet().eval()
    w = weights(model, torch)
    image = random(1, 1, 224, 224)
    with tg.no_grad(), torch.no_grad():
        ours = model(tg.tensor(image)).numpy()
        x = torch.tensor(image)
        for place, stride, padding, pooled in (0, 4, 0, 1), (3, 1, 2, 1), (6, 1, 1, 0), (8, 1, 1, 0), (10, 1, 1, 1):
            x = torch_f.conv2d(x, w[f"conv.{place}.weight"], w[f"conv.{place}.bias"], stride, padding).relu()
            x = torch_f.max_pool2d(x, 3, 2) if pooled else x
        x = x.flatten(1)
        for place in 0, 3, 6:
            x = torch_f.linear(x, w[f"fc.{place}.weight"], w[f"fc.{place}.bias"])
            x = x if place == 6 else x.relu()
    np.testing.assert_allclose(ours, x.numpy(), atol=1e-4)


def lenet(torch: Any, w: dict[str, Any], images: Any) -> Any:
    f = torch.nn.functional
    x = f.max_pool2d(f.conv2d(images, w["conv1.weight"], w["conv1.bias"]).relu(), 2)
    x = f.max_pool2d(f.conv2d(x, w["conv2.weight"], w["conv2.bias"]).relu(), 2)
    return f.linear(f.linear(x.flatten(1), w["fc1.weight"], w["fc1.bias"]).relu(), w["fc2.weight"], w["fc2.bias"])


def gpt(torch: Any, w: dict[str, Any], tokens: Any) -> Any:
    f = torch.nn.functional

    def dense(x: Any, name: str) -> Any:
        return f.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x: Any, name: str) -> Any:
        return f.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])

    batch, length = tokens.shape
    x = w["wte.weight"][tokens] + w["wpe.weight"][:length]
    for n in range(2):
        parts = dense(norm(x, f"h.{n}.ln_1"), f"h.{n}.attn.c_attn").chunk(3, -1)
        q, k, v = (part.view(batch, length, 2, -1).transpose(1, 2) for part in parts)
        seen = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + dense(seen, f"h.{n}.attn.c_proj")
        x = x + dense(f.gelu(dense(norm(x, f"h.{n}.ln_2"), f"h.{n}.c_fc")), f"h.{n}.c_proj")
    return f.linear(norm(x, "ln_f"), w["wte.weight"])


def language(torch: Any, w: dict[str, Any], tokens: Any) -> Any:
    lstm = torch.nn.LSTM(8, 8, 2, batch_first=True)
    own = {k.removeprefix("rnn."): v for k, v in w.items() if k.startswith("rnn.")}
    hidden, _ = torch.func.functional_call(lstm, own, w["encoder.weight"][tokens])
    return torch.nn.functional.linear(hidden, w["decoder.weight"], w["decoder.bias"])


def tokens_of(vocabulary: int, *shape: int) -> Any:
    return np.random.default_rng(0).integers(0, vocabulary, shape)


PAIRS: dict[str, tuple[Callable[[], Any], Callable[..., Any], Any, Any]] = {
    "LeNet": (models.LeNet, lenet, random(8, 1, 28, 28), tokens_of(10, 8)),
    "GPT": (lambda: models.GPT(11, 12, 8, 2, 2), gpt, tokens_of(11, 3, 12), tokens_of(11, 3, 12)[::-1].copy()),
    "LSTM": (
        lambda: models.LSTMLanguageModel(11, 8, 2),
        language,
        tokens_of(11, 3, 7),
        tokens_of(11, 3, 7)[::-1].copy(),
    ),
}


@pytest.mark.parametrize(("make", "theirs", "inputs", "wanted"), PAIRS.values(), ids=PAIRS)
def test_it_learns_as_in_pytorch(make: Callable[[], Any], theirs: Any, inputs: Any, wanted: Any) -> None:
    """Two jitted steps: the losses, and what has become of the weights."""
    torch = pytest.importorskip("torch")
    tg.manual_seed(3)
    model = make()
    w = weights(model, torch)
    ours, other = (
        library.optim.SGD(p, lr=0.1, momentum=0.9) for library, p in ((tg, model.parameters()), (torch, w.values()))
    )

    @tg.jit
    def step(x: Any, y: Any) -> Any:
        ours.zero_grad()
        made = model(x)
        scores = made[0] if isinstance(made, tuple) else made
        loss = F.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
        loss.backward()
        ours.step()
        return loss.detach()

    for _ in range(2):
        other.zero_grad()
        scores = theirs(torch, w, torch.tensor(inputs))
        loss = torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), torch.tensor(wanted).reshape(-1))
        loss.backward()
        other.step()
        np.testing.assert_allclose(step(tg.tensor(inputs), tg.tensor(wanted)).item(), loss.item(), rtol=1e-5)
    for name, found in model.state_dict().items():
        np.testing.assert_allclose(found.detach().numpy(), w[name].detach().numpy(), atol=2e-5, err_msg=name)


def test_a_block_of_resnet_is_that_of_pytorch() -> None:
    torch = pytorch()
    f = torch.nn.functional
    block = ResidualBlock(3, 4, 2)
    w = weights(block, torch)

    def norm(x: Any, name: str) -> Any:
        mean, deviation = w[f"{name}.running_mean"].detach(), w[f"{name}.running_var"].detach()
        return f.batch_norm(x, mean, deviation, w[f"{name}.weight"], w[f"{name}.bias"], training=True)

    image = random(2, 3, 6, 6)
    x = torch.tensor(image)
    made = norm(f.conv2d(x, w["conv1.weight"], None, 2, 1), "bn1").relu()
    made = norm(f.conv2d(made, w["conv2.weight"], None, 1, 1), "bn2")
    made = (made + norm(f.conv2d(x, w["downsample.0.weight"], None, 2), "downsample.1")).relu()
    made.square().sum().backward()
    ours = block(tg.tensor(image))
    ours.square().sum().backward()
    np.testing.assert_allclose(ours.detach().numpy(), made.detach().numpy(), atol=1e-5)
    for name, parameter in block.named_parameters():
        np.testing.assert_allclose(parameter.grad.numpy(), w[name].grad.numpy(), atol=1e-3, rtol=1e-4, err_msg=name)


def test_resnet_has_the_names_of_torchvision() -> None:
    names = set(models.ResNet18().state_dict())
    assert len(names) == 122
    assert {
        "conv1.weight",
        "bn1.running_var",
        "layer2.0.downsample.1.bias",
        "layer4.1.bn2.num_batches_tracked",
    } <= names
    assert models.ResNet18(4, stem="small")(tg.zeros(4, 1, 8, 8)).shape == (4, 4)


def test_gpt_sees_only_what_came_before() -> None:
    model = models.GPT(11, 12, 8, 2, 2).eval()
    tokens = tokens_of(11, 1, 12)
    changed = tokens.copy()
    changed[0, 7] = (changed[0, 7] + 1) % 11
    one, other = (model(tg.tensor(t)).detach().numpy() for t in (tokens, changed))
    np.testing.assert_array_equal(one[:, :7], other[:, :7])
    assert np.abs(one[:, 7:] - other[:, 7:]).max() > 1e-4


def test_gpt_writes() -> None:
    tg.manual_seed(1)
    model = models.GPT(11, 4, 8, 1, 2).eval()
    made = model.generate(tg.zeros(2, 1, dtype=tg.int64), 6)
    assert made.shape == (2, 7)
    assert 0 <= int(made.min().item()) <= int(made.max().item()) < 11
    sure = model.generate(tg.zeros(1, 1, dtype=tg.int64), 5, temperature=1e-6).numpy()
    for n in 4, 5:
        seen = tg.tensor(sure[:, n - 4 : n])
        assert int(model(seen)[0, -1].argmax().item()) == sure[0, n]


def test_the_table_can_be_tied() -> None:
    model = models.LSTMLanguageModel(11, 8, 1, dropout=0.5, tied=True)
    assert model.decoder.weight is model.encoder.weight
    assert len(list(model.parameters())) == 6


def test_what_cannot_be() -> None:
    with pytest.raises(ArgumentError, match="3 heads do not divide a width of 8"):
        models.GPT(11, 4, 8, 1, 3)
    with pytest.raises(ShapeError, match="5 tokens, but the context is 4"):
        models.GPT(11, 4, 8, 1, 2)(tg.zeros(1, 5, dtype=tg.int64))
    with pytest.raises(ShapeError, match="shape"):
        models.GPT(11, 4, 8, 1, 2)(tg.zeros(5, dtype=tg.int64))
    with pytest.raises(ArgumentError, match="shape"):
        models.LSTMLanguageModel(11, 8)(tg.zeros(5, dtype=tg.int64))
    with pytest.raises(ArgumentError, match="'large'"):
        models.ResNet18(stem="tiny")
    with pytest.raises(ArgumentError, match="widths|width"):
        models.MLP(784)
