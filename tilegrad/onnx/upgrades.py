"""Rewrite nodes of older versions of the operators into nodes of newer ones, from version 6 on.

Clip(x) {min: 0, max: 6}        (version 6)   ->   lo = Constant 0; hi = Constant 6; Clip(x, lo, hi)
Upsample(x, scales)             (version 9)   ->   Resize(x, "", scales) {coordinate_transformation_mode: asymmetric}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .messages import ATTRIBUTE_FIELDS, AttributeProto, NodeProto

OLDEST, NEWEST = 6, 28
"""Versions of the operators that are read."""
Rewriting = Callable[[NodeProto], list[NodeProto]]
TYPES = {field: number for number, field in ATTRIBUTE_FIELDS.items()}


@dataclass(frozen=True)
class Moved:
    """Attributes that became inputs."""

    attributes: tuple[str, ...]
    first: int = 1
    """Place of the first of the inputs."""

    def __call__(self, node: NodeProto) -> list[NodeProto]:
        given = {a.name: a for a in node.attribute}
        if not given.keys() & set(self.attributes):
            return [node]
        constants, inputs = [], [*node.input, *[""] * (self.first - len(node.input))][: self.first]
        for name in self.attributes:
            attribute = given.get(name)
            if attribute is None:
                inputs.append("")
                continue
            field = ATTRIBUTE_FIELDS.get(attribute.type, "ints")
            made = f"{node.output[0]}/{name}"
            kind = {"f": "value_float", "i": "value_int", "ints": "value_ints", "floats": "value_floats"}[field]
            value = setting(kind, getattr(attribute, field), field)
            constants.append(NodeProto([], [made], made, "Constant", [value]))
            inputs.append(made)
        rest = [a for a in node.attribute if a.name not in self.attributes]
        return [*constants, changed(node, inputs, rest)]


def setting(name: str, value: object, field: str) -> AttributeProto:
    """Make an attribute."""
    made = AttributeProto(name, type=TYPES[field])
    setattr(made, field, value)
    return made


def changed(
    node: NodeProto, inputs: list[str], attributes: list[AttributeProto], op_type: str | None = None
) -> NodeProto:
    return NodeProto(inputs, node.output, node.name, op_type or node.op_type, attributes, domain=node.domain)


def _without(*names: str) -> Rewriting:
    """Leave out attributes that mean nothing any more."""
    return lambda node: [changed(node, node.input, [a for a in node.attribute if a.name not in names])]


def _renamed(op_type: str) -> Rewriting:
    return lambda node: [changed(node, node.input, node.attribute, op_type)]


def _upsample(node: NodeProto) -> list[NodeProto]:
    *constants, last = Moved(("scales",))(node)
    mode = setting("coordinate_transformation_mode", b"asymmetric", "s")
    nearest = setting("nearest_mode", b"floor", "s")
    return [*constants, changed(last, [last.input[0], "", *last.input[1:]], [*last.attribute, mode, nearest], "Resize")]


def _roi_align(node: NodeProto) -> list[NodeProto]:
    mode = setting("coordinate_transformation_mode", b"output_half_pixel", "s")
    return [changed(node, node.input, [*node.attribute, mode])]


def _grid_sample(node: NodeProto) -> list[NodeProto]:
    names = {b"bilinear": b"linear", b"bicubic": b"cubic"}
    made = [setting("mode", names.get(bytes(a.s), bytes(a.s)), "s") if a.name == "mode" else a for a in node.attribute]
    return [changed(node, node.input, made)]


def _broadcasting(node: NodeProto) -> list[NodeProto]:
    """Leave out that operands are broadcast, which they always are now; align the second one if there is an axis."""
    axis = [a for a in node.attribute if a.name == "axis"]
    (plain,) = _without("broadcast", "consumed_inputs", "axis")(node)
    if not axis:
        return [plain]
    aligned = f"{node.output[0]}/aligned"
    first, second = node.input
    return [
        NodeProto([first, second], [aligned], aligned, "AlignAxis", axis),
        changed(plain, [first, aligned], plain.attribute),
    ]


AXES = Moved(("axes",))
BROADCASTING = "Add And Div Equal Gemm Greater Less Mul Or Pow PRelu Sub Xor"
REDUCTIONS = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSumSquare"

UPGRADES: dict[str, Sequence[tuple[int, Rewriting]]] = {
    "BatchNormalization": [(7, _without("is_test", "consumed_inputs")), (9, _without("spatial"))],
    "Clip": [(11, Moved(("min", "max")))],
    "DFT": [(20, Moved(("axis",), first=2))],
    "Dropout": [(7, _without("is_test", "consumed_inputs")), (12, Moved(("ratio",)))],
    "GridSample": [(20, _grid_sample)],
    "Pad": [(11, Moved(("pads", "value")))],
    "ReduceSum": [(13, AXES)],
    "Resize": [(11, _upsample)],
    "RoiAlign": [(16, _roi_align)],
    "Scatter": [(99, _renamed("ScatterElements"))],
    "Slice": [(10, Moved(("starts", "ends", "axes")))],
    "Split": [(13, Moved(("split",)))],
    "Squeeze": [(13, AXES)],
    "TopK": [(10, Moved(("k",)))],
    "Unsqueeze": [(13, AXES)],
    "Upsample": [(99, _upsample)],
    **{name: [(18, AXES)] for name in REDUCTIONS.split()},
    **{name: [(7, _broadcasting)] for name in BROADCASTING.split()},
}
"""Rewritings by operators: each is for versions before a number."""


def upgraded(node: NodeProto, version: int) -> list[NodeProto]:
    """Return nodes of the newest version that do what a node of an older version does."""
    if node.domain:
        return [node]
    made = [node]
    for before, rewrite in UPGRADES.get(node.op_type, ()):
        if version < before:
            made = [*made[:-1], *rewrite(made[-1])]
    return made
