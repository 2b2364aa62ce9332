"""Describe the inputs and outputs of a network: names, shapes in which sizes may vary, element types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..errors import ArgumentError
from ..ir.dtype import DType, dtype_named, float32
from ..ir.graph import TensorType
from ..ir.size import Size
from ..nn.graph_module import NetworkGraph, input_name
from ..tree import LEAF, Tree

Shape: TypeAlias = "tuple[int | str, ...]"
TYPE_TEXT = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[\w\s,]*)\]", re.ASCII)


class TensorSpec(NamedTuple):
    """An input or an output: its name, its shape with the names of sizes that vary, and its element type.

    >>> print(TensorSpec("image", ("n", 3, 32, 32), float32))
    image: float32[n, 3, 32, 32]
    """

    name: str
    shape: Shape
    dtype: DType

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{', '.join(map(str, self.shape))}]"


def spec_of(name: str, type: TensorType) -> TensorSpec:
    """Describe a tensor of this type."""
    return TensorSpec(name, tuple([str(d) if isinstance(d, Size) else d for d in type.shape]), type.dtype)


def input_specs(network: NetworkGraph) -> list[TensorSpec]:
    """Describe the arguments of a network."""
    return [spec_of(input_name(x), x.type) for x in network.argument_inputs]


def output_specs(network: NetworkGraph, names: Sequence[str] | None = None) -> list[TensorSpec]:
    """Describe the results of a network, named after their places if they have no names."""
    found = list(names or result_names(network.results))
    return [spec_of(name, x.type) for name, x in zip(found, network.graph.outputs, strict=False)]


def result_names(results: Tree) -> list[str]:
    """Name the tensors of a structure after their keys and places.

    >>> from ..tree import flatten
    >>> result_names(flatten({"scores": 1, "boxes": (2, 3)})[1]), result_names(LEAF)
    (['scores', 'boxes_0', 'boxes_1'], ['output'])
    """
    return [name or "output" for name in _names(results, "")]


def _names(tree: Tree, path: str) -> Iterator[str]:
    if tree == LEAF:
        yield path
    for key, part in zip(tree.keys or range(len(tree.parts)), tree.parts, strict=True):
        outer = path or ("" if tree.keys else "output")
        yield from _names(part, f"{outer}_{key}" if outer else str(key))


def declared_type(shape: Any, name: str, dtype: DType = float32) -> tuple[DType, Shape]:
    """Read a declared type: a shape of elements of `dtype`, or a text with the element type.

    >>> [str(TensorSpec("x", *declared_type(s, "x")[::-1])) for s in (("n", 3), "int64[n, 128]")]
    ['x: float32[n, 3]', 'x: int64[n, 128]']
    """
    if isinstance(shape, str):
        found = TYPE_TEXT.fullmatch(shape.strip())
        if found is None:
            raise ArgumentError(f"shapes: a type is written as 'int64[n, 128]', not {shape!r:.60} (input {name!r})")
        words = [word.strip() for word in found["shape"].split(",") if word.strip()]
        return dtype_named(found["dtype"]), tuple([int(w) if w.isdigit() else w for w in words])
    good = isinstance(shape, tuple | list) and all(
        (isinstance(d, int) and not isinstance(d, bool) and d >= 0) or (isinstance(d, str) and d.isidentifier())
        for d in shape
    )
    if not good:
        raise ArgumentError(
            f"shapes: the shape of {name!r} is a tuple of sizes and of names of sizes that vary, as in ('n', 3, 32), "
            f"not {shape!r:.60}"
        )
    return dtype, tuple(shape)
