"""ONNX Runtime: inference of networks, as graphs of ONNX operators."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from bench import networks
from bench.workloads import Inputs

Call = Callable[[], Any]
OPSET = 17


def outputs(result: Any) -> list[np.ndarray]:
    return list(result)


class Layers:
    """A stand-in for a library's `nn`: a layer is its ONNX operator, its attributes, and the shapes of its weights."""

    def Sequential(self, *layers: Any) -> list[Any]:
        return list(layers)

    def Conv2d(self, channels: int, filters: int, kernel: int, stride: int = 1, padding: int = 0) -> Any:
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [padding] * 4}
        return "Conv", attributes, [(filters, channels, kernel, kernel), (filters,)]

    def MaxPool2d(self, kernel: int, stride: int | None = None) -> Any:
        return "MaxPool", {"kernel_shape": [kernel] * 2, "strides": [stride or kernel] * 2}, []

    def Linear(self, features: int, out: int) -> Any:
        return "Gemm", {"transB": 1}, [(out, features), (out,)]

    def ReLU(self) -> Any:
        return "Relu", {}, []

    def Flatten(self) -> Any:
        return "Flatten", {}, []


def _inference(name: str) -> Callable[[Inputs, str], Call]:
    return lambda inputs, variant: _session(networks.BUILD[name](Layers()), inputs["x"])


def _session(layers: list[Any], x: np.ndarray) -> Call:
    weights = iter(networks.drawn([shape for _, _, shapes in layers for shape in shapes]))
    nodes, constants, last = [], [], "x"
    for n, (operator, attributes, shapes) in enumerate(layers):
        names = [f"w{n}_{k}" for k in range(len(shapes))]
        constants += [numpy_helper.from_array(next(weights), w) for w in names]
        nodes.append(helper.make_node(operator, [last, *names], [f"x{n}"], **attributes))
        last = f"x{n}"
    ends = [helper.make_tensor_value_info(v, TensorProto.FLOAT, s) for v, s in (("x", x.shape), (last, None))]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})


lenet_inference, alexnet_inference = _inference("lenet"), _inference("alexnet")
