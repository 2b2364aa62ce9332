"""Ops in files: which there are, and that what each is given is checked."""

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

from tilegrad import ops
from tilegrad.errors import ShapeError
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Input, TensorType, Value
from tilegrad.ir.size import Size
from tilegrad.ops.joint import JointOutput, Recompute
from tilegrad.ops.movement import Pad, Permute, Slice
from tilegrad.saved.op_classes import CHECKS, check_value, op_class, op_names

NOT_IN_FILES = (Input, JointOutput, Recompute)
"""Inputs have lines of their own; the others carry rules in Python, or follow from a gradient."""


def _subclasses(cls: type[Value]) -> Iterator[type[Value]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def test_the_table_has_all_ops_with_plain_attributes() -> None:
    for module in pkgutil.iter_modules(ops.__path__, ops.__name__ + "."):
        if not module.ispkg:
            importlib.import_module(module.name)
    wanted = {}
    for cls in _subclasses(Value):
        ours = cls.__module__.startswith(ops.__name__ + ".") and getattr(cls, "__final__", False)
        if ours and cls not in NOT_IN_FILES and all(cls.annotations[a] in CHECKS for a in cls.attribute_fields):
            wanted[cls.op] = cls
    assert sorted(op_names()) == sorted(wanted)
    assert {name: op_class(name) for name in wanted} == wanted
    assert op_class("joint_output") is op_class("external_call") is op_class("__builtins__") is None


X = Input(TensorType(float32, (Size.named("n"), 4)))
N = Size.named("n")


@pytest.mark.parametrize(
    "value",
    [
        Slice(X, (0, 1), (1, 1), (N, 4)),
        Slice(X, (1, 0), (1, 1), (N, 4)),
        Slice(X, (0, 3), (1, -2), (N, 3)),
        Slice(X, (0,), (1, 1), (N, 4)),
        Slice(X, (-1, 0), (1, 1), (N, 4)),
    ],
)
def test_views_outside_their_input_are_refused(value: Slice) -> None:
    with pytest.raises(ShapeError):
        check_value(value)


@pytest.mark.parametrize(
    "value",
    [
        Slice(X, (0, 3), (1, -1), (N, 4)),
        Slice(X, (1, 0), (1, 2), (N + -1, 2)),
        Pad(X, (1, 1), (1, 1), (N + 2, 6), 0.0),
        Permute(X, (1, 0)),
    ],
)
def test_views_of_their_input_are_accepted(value: Slice) -> None:
    check_value(value)
