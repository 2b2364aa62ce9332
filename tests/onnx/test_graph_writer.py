"""Export: ONNX Runtime computes from the file what the network computes, for other sizes, too; what cannot be written
is named before anything is.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.onnx.test_network import digits, images
from tilegrad.onnx.messages import ModelProto

nn = tg.nn


class Several(nn.Module):
    """Two arguments and three results, by functions."""

    def forward(self, x: tg.Tensor, y: tg.Tensor) -> Any:
        both = tg.cat([x, y[:, 1:]], 1)
        chosen = tg.where(both > 0, both, both.abs() * 0.5)
        return chosen.cumsum(1), (x > 0).any(), both.argmax(1)


class Shapes(nn.Module):
    """Slices, flips, padding, indexing, products of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(tg.arange(12.0).reshape(4, 3))

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        rows = self.table[tg.tensor([3, 0, 2])]
        y = nn.functional.pad(x.flip(1)[:, ::2], (1, 2), value=0.5)
        z = tg.einsum("nij,kj->nki", x.unsqueeze(1) * tg.ones(1, 2, 1), rows)
        return y.sum(1, keepdim=True) + z.mean((1, 2)).unsqueeze(1) + x.gather(1, tg.tensor([[0]] * 4)[: x.shape[0]])


ACTIVATIONS = [nn.ELU(), nn.Hardswish(), nn.Mish(), nn.Softplus(), nn.Tanh(), nn.LogSoftmax(1), nn.SELU()]
ACTIVATIONS += [nn.Hardsigmoid(), nn.LeakyReLU(), nn.CELU(), nn.GELU("tanh"), nn.Softsign(), nn.PReLU(), nn.ReLU6()]
CONVOLUTIONS = [nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2)]
HEAD = [nn.Flatten(), nn.Linear(54, 10), nn.LayerNorm(10), nn.GELU(), nn.Softmax(-1)]
GROUPS = [nn.Conv2d(4, 8, 3, 2, 1, groups=4), nn.SiLU(), nn.Conv2d(8, 6, 3, dilation=2), nn.AdaptiveAvgPool2d(1)]
NORMS = [nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.PixelShuffle(2), nn.Upsample(scale_factor=2)]
NORMS += [nn.ZeroPad2d(1), nn.ReflectionPad2d(1)]

CASES: dict[str, tuple[nn.Module, tuple[tuple[int, ...], ...], Mapping[str, Any] | None]] = {
    "convolutions": (nn.Sequential(*CONVOLUTIONS, *HEAD), ((2, 1, 14, 14),), {"input": {0: "n"}}),
    "groups": (nn.Sequential(*GROUPS), ((2, 4, 11, 11),), {"input": {0: "n"}}),
    "one_axis": (nn.Sequential(nn.Conv1d(3, 4, 3), nn.MaxPool1d(2), nn.Sigmoid()), ((2, 3, 9),), None),
    "activations": (nn.Sequential(*ACTIVATIONS), ((3, 4),), {"input": {0: "n"}}),
    "norms": (nn.Sequential(*NORMS), ((2, 4, 6, 6),), None),
    "bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), ((2, 4, 5, 5),), None),
    "transformer": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), ((2, 5, 8),), {"src": {0: "n"}}),
    "several": (Several(), ((2, 3), (2, 4)), None),
    "shapes": (Shapes(), ((4, 3),), None),
}


def arrays(shapes: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
    draw = np.random.default_rng(1)
    return [draw.standard_normal(shape).astype(np.float32) for shape in shapes]


def check(net: nn.Module, made: ModelProto, inputs: list[np.ndarray]) -> None:
    """Compare ONNX Runtime's results with those of the network."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(made.encoded())
    found = session.run(None, {value.name: x for value, x in zip(session.get_inputs(), inputs)})
    wanted = net(*map(tg.tensor, inputs))
    for x, y in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        expected = y.detach().numpy()
        assert x.dtype == expected.dtype
        np.testing.assert_allclose(x, expected, 1e-4, 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnx_runtime(name: str) -> None:
    net, shapes, axes = CASES[name]
    inputs = arrays(shapes)
    made = tg.onnx.export(net.eval(), tuple(map(tg.tensor, inputs)), dynamic_axes=axes)
    onnx = pytest.importorskip("onnx")
    onnx.checker.check_model(onnx.load_from_string(made.encoded()), full_check=True)
    check(net, made, inputs)
    if axes:
        check(net, made, arrays(tuple((5, *shape[1:]) for shape in shapes)))


def test_a_file_is_loaded_trained_and_exported_again(tmp_path: Path) -> None:
    net = tg.onnx.load(digits().encoded())
    made = tg.onnx.export(net, tg.tensor(images(2)), tmp_path / "net.onnx", input_names=["image"], output_names=["y"])
    again = tg.onnx.load(tmp_path / "net.onnx")
    assert again.input_names == ["image"]
    assert again.output_names == ["y"]
    assert {name for name, _ in net.named_parameters()} <= {x.name for x in made.graph.initializer}
    x = tg.tensor(images(2))
    np.testing.assert_allclose(again(x).detach().numpy(), net(x).detach().numpy(), 1e-4, 1e-5)


def test_external_data(tmp_path: Path) -> None:
    net = nn.Linear(8, 4)
    made = tg.onnx.export(net, tg.ones(1, 8), tmp_path / "net.onnx", external_data=True)
    assert (tmp_path / "net.onnx.data").stat().st_size >= 4 * 36
    assert len((tmp_path / "net.onnx").read_bytes()) < len(made.encoded()) + 400
    x = tg.randn(1, 8)
    assert tg.allclose(tg.onnx.load(tmp_path / "net.onnx")(x), net(x), 1e-5, 1e-6)


def test_layers_are_nodes() -> None:
    """A convolution has its bias, and the statistics of a normalisation are buffers again."""
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    made = tg.onnx.export(net, tg.ones(1, 2, 5, 5))
    assert made.graph is not None
    assert [node.op_type for node in made.graph.node] == ["Conv", "BatchNormalization", "Relu", "Identity"]
    loaded = tg.onnx.load(made.encoded())
    assert {name for name, _ in loaded.named_buffers()} == {"1.running_mean", "1.running_var"}


class Unwritable(nn.Module):
    """Ops that have no counterpart."""

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        return x.sort(1)[0] + tg.lgamma(x)


def test_what_cannot_be_written_is_named_before(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"old")
    with pytest.raises(tg.onnx.OnnxError, match=r"(?s)the network has \d problems.*Lgamma.*no ONNX operator") as caught:
        tg.onnx.export(Unwritable(), tg.ones(2, 3), path)
    assert "SortKey" in str(caught.value)
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    "options, words",
    [
        ({"opset_version": 9}, "versions 20 to"),
        ({"input_names": ["a", "b"]}, "has 1 inputs"),
        ({"output_names": ["a", "a"]}, "has 1 outputs"),
        ({"dynamic_shapes": {"z": {0: "n"}}}, "dynamic names 'z'"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tg.onnx.export(nn.Linear(3, 2), tg.ones(1, 3), **options)


def test_only_modules_are_exported() -> None:
    with pytest.raises(ValueError, match="takes a module, not function"):
        tg.onnx.export(lambda x: x, tg.ones(1, 3))


def test_a_wrong_file_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is run beside the network: a wrong rule is found."""
    from tilegrad.onnx import written_ops
    from tilegrad.ops.activation import Relu

    monkeypatch.setitem(written_ops.WRITINGS, Relu, lambda value, writer: writer.node("Abs", writer.name(value.x)))
    with pytest.raises(tg.onnx.OnnxError, match="result 0 of the file differs"):
        tg.onnx.export(nn.ReLU(), tg.tensor([-1.0, 2.0]), tmp_path / "net.onnx")
    assert not (tmp_path / "net.onnx").exists()
