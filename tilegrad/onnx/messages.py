"""Declare the messages of an ONNX file, with the names and numbers of the standard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .wire import BYTES, DOUBLE, FLOAT, INT, TEXT, Message, maybe, numbers, one, several


@dataclass(eq=False)
class StringStringEntryProto(Message):
    """A key with a text."""

    key: str = one(1, TEXT)
    value: str = one(2, TEXT)


@dataclass(eq=False)
class OperatorSetIdProto(Message):
    """A version of the operators of a domain."""

    domain: str = one(1, TEXT)
    version: int = one(2, INT)


@dataclass(eq=False)
class TensorProto(Message):
    """A tensor: its elements stand in `raw_data`, in the list for its type, or in another file."""

    dims: list[int] = several(1, INT)
    data_type: int = one(2, INT)
    float_data: np.ndarray | None = numbers(4, FLOAT)
    int32_data: np.ndarray | None = numbers(5, INT)
    string_data: list[bytes] = several(6, BYTES)
    int64_data: np.ndarray | None = numbers(7, INT)
    name: str = one(8, TEXT)
    raw_data: bytes | memoryview | None = maybe(9, BYTES)
    double_data: np.ndarray | None = numbers(10, DOUBLE)
    uint64_data: np.ndarray | None = numbers(11, INT)
    doc_string: str = one(12, TEXT)
    external_data: list[StringStringEntryProto] = several(13, lambda: StringStringEntryProto)
    data_location: int = one(14, INT)
    metadata_props: list[StringStringEntryProto] = several(16, lambda: StringStringEntryProto)


@dataclass(eq=False)
class SparseTensorProto(Message):
    """A sparse tensor: the elements that are not 0, and where they are."""

    values: TensorProto | None = maybe(1, lambda: TensorProto)
    indices: TensorProto | None = maybe(2, lambda: TensorProto)
    dims: list[int] = several(3, INT)


@dataclass(eq=False)
class DimensionProto(Message):
    """A size: a number, or a name of one that varies."""

    dim_value: int | None = maybe(1, INT)
    dim_param: str | None = maybe(2, TEXT)
    denotation: str = one(3, TEXT)


@dataclass(eq=False)
class TensorShapeProto(Message):
    """Sizes."""

    dim: list[DimensionProto] = several(1, lambda: DimensionProto)


@dataclass(eq=False)
class TensorTypeProto(Message):
    """The type of a tensor, dense or sparse."""

    elem_type: int = one(1, INT)
    shape: TensorShapeProto | None = maybe(2, lambda: TensorShapeProto)


@dataclass(eq=False)
class ContainerTypeProto(Message):
    """The type of a sequence, or of an optional value."""

    elem_type: TypeProto | None = maybe(1, lambda: TypeProto)


@dataclass(eq=False)
class MapTypeProto(Message):
    """The type of a map."""

    key_type: int = one(1, INT)
    value_type: TypeProto | None = maybe(2, lambda: TypeProto)


@dataclass(eq=False)
class TypeProto(Message):
    """The type of a value."""

    tensor_type: TensorTypeProto | None = maybe(1, lambda: TensorTypeProto)
    sequence_type: ContainerTypeProto | None = maybe(4, lambda: ContainerTypeProto)
    map_type: MapTypeProto | None = maybe(5, lambda: MapTypeProto)
    denotation: str = one(6, TEXT)
    sparse_tensor_type: TensorTypeProto | None = maybe(8, lambda: TensorTypeProto)
    optional_type: ContainerTypeProto | None = maybe(9, lambda: ContainerTypeProto)


@dataclass(eq=False)
class ValueInfoProto(Message):
    """A value with its type."""

    name: str = one(1, TEXT)
    type: TypeProto | None = maybe(2, lambda: TypeProto)
    doc_string: str = one(3, TEXT)
    metadata_props: list[StringStringEntryProto] = several(4, lambda: StringStringEntryProto)


@dataclass(eq=False)
class AttributeProto(Message):
    """A setting of a node; `type` says which field holds it."""

    name: str = one(1, TEXT)
    f: float = one(2, FLOAT)
    i: int = one(3, INT)
    s: bytes = one(4, BYTES)
    t: TensorProto | None = maybe(5, lambda: TensorProto)
    g: GraphProto | None = maybe(6, lambda: GraphProto)
    floats: list[float] = several(7, FLOAT)
    ints: list[int] = several(8, INT)
    strings: list[bytes] = several(9, BYTES)
    tensors: list[TensorProto] = several(10, lambda: TensorProto)
    graphs: list[GraphProto] = several(11, lambda: GraphProto)
    doc_string: str = one(13, TEXT)
    tp: TypeProto | None = maybe(14, lambda: TypeProto)
    type_protos: list[TypeProto] = several(15, lambda: TypeProto)
    type: int = one(20, INT)
    ref_attr_name: str = one(21, TEXT)
    sparse_tensor: SparseTensorProto | None = maybe(22, lambda: SparseTensorProto)
    sparse_tensors: list[SparseTensorProto] = several(23, lambda: SparseTensorProto)


@dataclass(eq=False)
class NodeProto(Message):
    """An operator, applied to values."""

    input: list[str] = several(1, TEXT)
    output: list[str] = several(2, TEXT)
    name: str = one(3, TEXT)
    op_type: str = one(4, TEXT)
    attribute: list[AttributeProto] = several(5, lambda: AttributeProto)
    doc_string: str = one(6, TEXT)
    domain: str = one(7, TEXT)
    overload: str = one(8, TEXT)
    metadata_props: list[StringStringEntryProto] = several(9, lambda: StringStringEntryProto)

    @property
    def title(self) -> str:
        """What errors call it."""
        own = f"node {self.name!r}" if self.name else f"the node of {next(iter(self.output), '')!r}"
        return f"{own} ({f'{self.domain}.' if self.domain else ''}{self.op_type})"


@dataclass(eq=False)
class TensorAnnotation(Message):
    """The quantisation of a value."""

    tensor_name: str = one(1, TEXT)
    quant_parameter_tensor_names: list[StringStringEntryProto] = several(2, lambda: StringStringEntryProto)


@dataclass(eq=False)
class GraphProto(Message):
    """Nodes in topological order, with what goes in, what comes out, and constants."""

    node: list[NodeProto] = several(1, lambda: NodeProto)
    name: str = one(2, TEXT)
    initializer: list[TensorProto] = several(5, lambda: TensorProto)
    doc_string: str = one(10, TEXT)
    input: list[ValueInfoProto] = several(11, lambda: ValueInfoProto)
    output: list[ValueInfoProto] = several(12, lambda: ValueInfoProto)
    value_info: list[ValueInfoProto] = several(13, lambda: ValueInfoProto)
    quantization_annotation: list[TensorAnnotation] = several(14, lambda: TensorAnnotation)
    sparse_initializer: list[SparseTensorProto] = several(15, lambda: SparseTensorProto)
    metadata_props: list[StringStringEntryProto] = several(16, lambda: StringStringEntryProto)


@dataclass(eq=False)
class FunctionProto(Message):
    """An operator that the file itself defines."""

    name: str = one(1, TEXT)
    input: list[str] = several(4, TEXT)
    output: list[str] = several(5, TEXT)
    attribute: list[str] = several(6, TEXT)
    node: list[NodeProto] = several(7, lambda: NodeProto)
    doc_string: str = one(8, TEXT)
    opset_import: list[OperatorSetIdProto] = several(9, lambda: OperatorSetIdProto)
    domain: str = one(10, TEXT)
    attribute_proto: list[AttributeProto] = several(11, lambda: AttributeProto)
    value_info: list[ValueInfoProto] = several(12, lambda: ValueInfoProto)
    overload: str = one(13, TEXT)
    metadata_props: list[StringStringEntryProto] = several(14, lambda: StringStringEntryProto)


@dataclass(eq=False)
class ModelProto(Message):
    """A file: a graph, and the versions of the operators that it uses."""

    ir_version: int = one(1, INT)
    producer_name: str = one(2, TEXT)
    producer_version: str = one(3, TEXT)
    domain: str = one(4, TEXT)
    model_version: int = one(5, INT)
    doc_string: str = one(6, TEXT)
    graph: GraphProto | None = maybe(7, lambda: GraphProto)
    opset_import: list[OperatorSetIdProto] = several(8, lambda: OperatorSetIdProto)
    metadata_props: list[StringStringEntryProto] = several(14, lambda: StringStringEntryProto)
    functions: list[FunctionProto] = several(25, lambda: FunctionProto)


ATTRIBUTE_FIELDS = dict(
    enumerate(
        "f i s t g floats ints strings tensors graphs sparse_tensor sparse_tensors tp type_protos".split(), start=1
    )
)
"""The fields of attributes by `AttributeProto.type`."""


def attribute_value(attribute: AttributeProto) -> Any:
    """Return the value of an attribute; one without a type holds what is not empty."""
    kind = attribute.type
    if kind in ATTRIBUTE_FIELDS:
        return getattr(attribute, ATTRIBUTE_FIELDS[kind])
    filled = (getattr(attribute, name) for name in ATTRIBUTE_FIELDS.values())
    return next((value for value in filled if value not in (None, [], b"", 0)), 0)
