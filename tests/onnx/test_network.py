"""Networks from ONNX files: they compute what ONNX Runtime computes, and are modules that train, jit and are saved."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.onnx.test_wire import mutated, small_model, value
from tilegrad.errors import DataError
from tilegrad.onnx.messages import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    StringStringEntryProto,
    TensorProto,
)
from tilegrad.onnx.upgrades import NEWEST

X = np.arange(12, dtype=np.float32).reshape(4, 3) - 5


def ints(name: str, *values: int) -> AttributeProto:
    return AttributeProto(name, ints=[*values], type=7)


def weights(name: str, *dims: int, dtype: int = 1) -> TensorProto:
    array = np.random.default_rng(len(name)).standard_normal(dims).astype(np.float32) / 4
    return TensorProto([*dims], dtype, name=name, raw_data=(abs(array) if "var" in name else array).tobytes())


def model(nodes: list[NodeProto], tensors: list[TensorProto], *inputs: Any, version: int = 17) -> ModelProto:
    outputs = [value(nodes[-1].output[0])]
    outputs[0].type = None
    graph = GraphProto(nodes, "net", tensors, input=[*inputs], output=outputs)
    return ModelProto(8, graph=graph, opset_import=[OperatorSetIdProto("", version)])


def digits() -> ModelProto:
    """A small convolutional network: two convolutions, a normalisation, pooling, two dense layers."""
    nodes = [
        NodeProto(["x", "c1.weight", "c1.bias"], ["a"], "c1", "Conv", [ints("pads", 2, 2, 2, 2)]),
        NodeProto(["a"], ["b"], "", "Relu"),
        NodeProto(["b"], ["c"], "", "MaxPool", [ints("kernel_shape", 2, 2), ints("strides", 2, 2)]),
        NodeProto(["c", "c2.weight", "c2.bias"], ["d"], "c2", "Conv"),
        NodeProto(["d", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["e"], "bn", "BatchNormalization"),
        NodeProto(["e"], ["f"], "", "AveragePool", [ints("kernel_shape", 2, 2), ints("strides", 2, 2)]),
        NodeProto(["f"], ["sizes"], "", "Shape"),
        NodeProto(["sizes", "zero"], ["batch"], "", "Gather"),
        NodeProto(["batch", "rest"], ["wanted"], "", "Concat", [AttributeProto("axis", i=0, type=2)]),
        NodeProto(["f", "wanted"], ["g"], "", "Reshape"),
        NodeProto(["g", "fc.weight", "fc.bias"], ["y"], "fc", "Gemm", [AttributeProto("transB", i=1, type=2)]),
    ]
    tensors = [
        *(weights("c1.weight", 6, 1, 5, 5), weights("c1.bias", 6), weights("c2.weight", 8, 6, 5, 5)),
        *(weights("c2.bias", 8), weights("bn.weight", 8), weights("bn.bias", 8), weights("bn.mean", 8)),
        *(weights("bn.var", 8), weights("fc.weight", 10, 200), weights("fc.bias", 10)),
        TensorProto([1], 7, name="zero", int64_data=np.array([0])),
        TensorProto([1], 7, name="rest", int64_data=np.array([-1])),
    ]
    return model(nodes, tensors, value("x", "N", 1, 28, 28))


def images(count: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, 1, 28, 28)).astype(np.float32)


def theirs(made: ModelProto, **inputs: np.ndarray) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(made.encoded()).run(None, inputs)[0]


def test_agrees_with_onnx_runtime() -> None:
    made = digits()
    net = tg.onnx.load(made.encoded())
    for count in (1, 3):
        x = images(count)
        np.testing.assert_allclose(net(tg.tensor(x)).detach().numpy(), theirs(made, x=x), 1e-4, 1e-5)


def test_is_a_module() -> None:
    net = tg.onnx.load(digits().encoded())
    names = {name for name, _ in net.named_parameters()}
    assert names == {f"{layer}.{kind}" for layer in ("c1", "c2", "bn", "fc") for kind in ("weight", "bias")}
    assert {name for name, _ in net.named_buffers()} == {"bn.mean", "bn.var"}
    assert net.input_names == ["x"]
    assert net.output_names == ["y"]
    assert not net.training


def test_trains_and_is_jitted() -> None:
    net = tg.onnx.load(digits().encoded()).train()
    x, labels = tg.tensor(images(8)), tg.arange(8)
    optimizer = tg.optim.SGD(net.parameters(), lr=0.05)
    before = net.state_dict()["bn.mean"].numpy().copy()

    @tg.jit
    def step(x: tg.Tensor, labels: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(x, labels).item() for _ in range(6)]
    assert losses[-1] < losses[0]
    assert not np.array_equal(before, net.state_dict()["bn.mean"].numpy())


def test_jitted_equals_not_jitted() -> None:
    net = tg.onnx.load(digits().encoded())
    fast = tg.jit(net)
    for count in (2, 4, 5):
        x = tg.tensor(images(count))
        assert tg.allclose(fast(x), net(x), 1e-4, 1e-5)


def test_state_is_saved_and_loaded() -> None:
    net, other = (tg.onnx.load(digits().encoded()) for _ in range(2))
    with tg.no_grad():
        other.get_parameter("fc.bias").fill_(0)
    file = io.BytesIO()
    tg.save(net.state_dict(), file)
    file.seek(0)
    other.load_state_dict(tg.load(file))
    x = tg.tensor(images(2))
    assert tg.equal(net(x), other(x))


def test_inputs_are_checked() -> None:
    net = tg.onnx.load(small_model().encoded())
    assert net(X).shape == (2, 4)
    assert tg.equal(net(x=X), net(tg.tensor(X)))
    for wrong, words in [
        (lambda: net(X[:, :2]), r"takes the shape \(N, 3\), not \(4, 2\)"),
        (lambda: net(X.astype(np.int64)), "takes elements of type float32, not int64"),
        (lambda: net(), "inputs are missing: x"),
        (lambda: net(X, X), "has the inputs x; 2 were given"),
        (lambda: net(X, z=X), "no inputs, or given twice: z"),
    ]:
        with pytest.raises(ValueError, match=words):
            wrong()


def test_all_problems_are_listed_at_once() -> None:
    nodes = [
        NodeProto(["x"], ["a"], "first", "Relu", [ints("pads", 1)]),
        NodeProto(["a", "missing"], ["b"], "second", "Add"),
        NodeProto(["b"], ["c"], "third", "Frobnicate", domain="com.example"),
        NodeProto(["c"], ["d"], "fourth", "MaxPool"),
        NodeProto(["c"], ["a"], "fifth", "Gemm"),
        NodeProto(["d"], ["y"], "", "Constant", [AttributeProto("value", t=TensorProto([3], 1), type=4)]),
    ]
    with pytest.raises(tg.onnx.OnnxError) as caught:
        tg.onnx.load(model(nodes, [TensorProto([2], 1, name="w", raw_data=b"\0")], value("x", 3)).encoded())
    text = str(caught.value)
    for words in [
        "node 'first' (Relu): an unknown attribute 'pads'",
        "node 'second' (Add): reads 'missing', which no earlier node makes",
        "node 'third' (com.example.Frobnicate): the operator is not supported",
        "node 'fourth' (MaxPool): the attribute 'kernel_shape' is missing",
        "node 'fifth' (Gemm): makes 'a', which an earlier node has made",
        "node 'fifth' (Gemm): 1 inputs, where 2 to 3 are wanted",
        "the node of 'y' (Constant): 3 elements are wanted",
        "initializer 'w': 2 elements of float32 take 8 bytes",
    ]:
        assert words in text, text


def test_operators_without_a_case_of_their_own() -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 6, 8)).astype(np.float32)
    rois = np.array([[0, 0, 0, 5, 4], [1, 2, 1, 7, 5], [1, 0, 0, 2, 1]], np.float32)
    shape = [ints("pooled_shape", 2, 3), AttributeProto("spatial_scale", f=1.0, type=1)]
    pooled = model(
        [NodeProto(["x", "r"], ["y"], "", "MaxRoiPool", shape)], [], value("x", 2, 3, 6, 8), value("r", 3, 5)
    )
    np.testing.assert_allclose(tg.onnx.load(pooled.encoded())(x, rois).numpy(), theirs(pooled, x=x, r=rois), 1e-5)
    norms = model([NodeProto(["x"], ["y"], "", "GlobalLpPool")], [], value("x", 2, 3, 6, 8))
    np.testing.assert_allclose(tg.onnx.load(norms.encoded())(x).numpy(), theirs(norms, x=x), 1e-5)


@pytest.mark.parametrize("version", [5, NEWEST + 1, 1 << 40, -1])
def test_other_versions_are_refused(version: int) -> None:
    with pytest.raises(tg.onnx.OnnxError, match=f"operators of version {version}"):
        tg.onnx.load(model([NodeProto(["x"], ["y"], "", "Relu")], [], value("x", 3), version=version).encoded())


def test_cycles_are_refused() -> None:
    nodes = [NodeProto(["x", "b"], ["a"], "p", "Add"), NodeProto(["a", "a"], ["b"], "q", "Add")]
    with pytest.raises(tg.onnx.OnnxError, match="node 'p' .* reads 'b', which no earlier node makes"):
        tg.onnx.load(model(nodes, [], value("x", 3)).encoded())


def test_names_that_a_module_has_already() -> None:
    names = ["forward", "a", "a.b", "training", "x.y.z", "x.y", "..", "to"]
    nodes = [NodeProto([*names, "x0"], ["y"], "", "Sum")]
    made = model(nodes, [weights(name, 3) for name in names], value("x0", 3))
    net = tg.onnx.load(made.encoded())
    assert len(list(net.parameters())) == len(names)
    x = np.ones(3, np.float32)
    np.testing.assert_allclose(net(x).detach().numpy(), theirs(made, x0=x), 1e-5)


def test_loads_paths_and_external_data(tmp_path: Path) -> None:
    made = small_model()
    assert made.graph is not None
    x = tg.onnx.load(made.encoded())(X)
    tensor = made.graph.initializer[0]
    (tmp_path / "weights.bin").write_bytes(bytes(tensor.raw_data or b""))
    tensor.raw_data, tensor.data_location = None, 1
    tensor.external_data = [StringStringEntryProto("location", "weights.bin")]
    (tmp_path / "net.onnx").write_bytes(made.encoded())
    assert tg.equal(tg.onnx.load(tmp_path / "net.onnx")(X), x)
    with pytest.raises(tg.onnx.OnnxError, match="load the model by its path"):
        tg.onnx.load(made.encoded())
    with pytest.raises(DataError):
        tg.onnx.load(tmp_path / "nothing.onnx")


@pytest.mark.parametrize("seed", range(2))
def test_mutated_files(seed: int) -> None:
    """A damaged file ends in an error of ours, or in a network; nothing is run."""
    import random

    draw, data = random.Random(seed), digits().encoded()
    for _ in range(150):
        try:
            tg.onnx.load(mutated(data, draw))
        except tg.errors.TilegradError:
            continue
