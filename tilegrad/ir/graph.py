"""The graph language: a value is an operation together with the values it reads.

    value ::= Input(declared, name) | one final subclass of Value per op (package `ops`)
    graph ::= Graph(inputs, outputs)

A `Value` is immutable and equal only to itself. Its class is all that the system knows about an op:
three rules (`infer`, `element`, `gradient`) and a few traits for passes to ask.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any, ClassVar, Literal, Self, TypeAlias, dataclass_transform, final

from ..errors import ArgumentError
from .dtype import DType
from .location import Location, current_location
from .node import Node, Structure, amend, cache_fact, set_fact_once
from .provenance import NOTHING, Provenance
from .scalar import Expr, Position
from .size import Dim, Shape, Size, product

Reader: TypeAlias = "Callable[[Value, Position], Expr]"
"""Returns the element of a value at a position, by loading or by computing it."""

Cost = Literal["free", "cheap", "expensive"]
Store = Literal["if reread", "where recomputing is expensive", "always"]


class TensorType(Structure):
    """The dtype and shape of a tensor."""

    dtype: DType
    shape: Shape
    device: str = "cpu"

    @classmethod
    def init_lines(cls) -> list[str]:
        return ["for extent in shape:", "  if extent.__class__ is not int: check_extent(extent)"]

    @classmethod
    def init_names(cls) -> dict[str, object]:
        return {"check_extent": check_extent}

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def count(self) -> Dim:
        return product(self.shape)

    @property
    def bytes(self) -> Dim:
        return product(self.shape) * self.dtype.bytes

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(self.dtype, shape, self.device)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape, self.device)

    def __str__(self) -> str:
        place = "" if self.device == "cpu" else f" on {self.device}"
        return f"{self.dtype}[{','.join(map(str, self.shape))}]{place}"


def check_extent(extent: object) -> None:
    """Reject an extent that only looks like a size: a tensor, a numpy number or a bool."""
    if not isinstance(extent, Size):
        raise ArgumentError(f"a size is an integer, not {type(extent).__name__}; convert it: int(...)")


@dataclass_transform(frozen_default=True, eq_default=False)
class Value(Node, ABC):
    """One tensor in a graph.

    Fields annotated `Value` or `tuple[Value, ...]` are its inputs, all others are attributes.
    """

    cost: ClassVar[Cost] = "cheap"
    """Cost of recomputing an element, relative to loading it."""
    opaque: ClassVar[bool] = False
    """Whether the op has no element form, but kernels of its own."""
    external: ClassVar[bool] = False
    """Whether a kernel or a function of a user computes it, and all of the op's outputs together."""
    user_defined: ClassVar[bool] = False
    """Whether it is an operator of a user, which is replaced before anything else is done."""
    moves: ClassVar[bool] = False
    """Whether each element is an element of the one input, at another position."""
    contracts: ClassVar[bool] = False
    """Whether each element of an operand is read for many elements of the result, whatever the sizes."""
    packs_rows: ClassVar[bool] = False
    """Whether it is only stored in one row, at the positions of its operand."""
    reads_in_order: ClassVar[bool] = False
    """Whether permuted operands are stored in their new order first, because the op reads along their last axis."""
    store: ClassVar[Store] = "if reread"
    """When elements get memory of their own: if several readers would recompute them at a higher cost than reading
    them; on targets where recomputing is expensive; or always."""
    op: ClassVar[str]
    """The printed name of the op."""
    input_fields: ClassVar[tuple[str, ...]] = ()
    attribute_fields: ClassVar[tuple[str, ...]] = ()

    inputs: ClassVar[tuple[Value, ...]]  # these five are set in __init__, for each value
    attributes: ClassVar[tuple[Any, ...]]
    type: ClassVar[TensorType]
    location: ClassVar[Location | None]
    tracked: ClassVar[bool]
    """Whether a gradient may be requested for a value upstream of this one."""

    buffer: ClassVar[Any] = None
    """The memory that holds the elements, once they have been computed."""
    is_held: ClassVar[bool] = False
    """Whether a tensor has had this value."""
    provenance: ClassVar[Provenance] = NOTHING
    """Facts that tensors keep about the value, for reading; `note` returns those that can be changed."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        reads = ("Value", "tuple[Value, ...]")
        cls.input_fields = tuple(n for n in cls.fields if cls.annotations[n] in reads)
        cls.attribute_fields = tuple(n for n in cls.fields if cls.annotations[n] not in reads)
        cls.op = "".join("_" + c.lower() if c.isupper() and n else c.lower() for n, c in enumerate(cls.__name__))

    @classmethod
    def init_lines(cls) -> list[str]:
        many = [n if cls.annotations[n] == "Value" else f"*{n}" for n in cls.input_fields]
        tracked = " or ".join(
            f"{n}.tracked" if cls.annotations[n] == "Value" else f"any([v.tracked for v in {n}])"
            for n in cls.input_fields
        )
        return [
            f"own['inputs'] = ({''.join(n + ', ' for n in many)})",
            f"own['attributes'] = ({''.join(n + ', ' for n in cls.attribute_fields)})",
            "own['location'] = current_location()",
            "own['type'] = type = self.infer()",
            f"own['tracked'] = ({tracked or False}) and type.dtype.kind == 'float' and self.differentiable",
        ]

    @classmethod
    def init_names(cls) -> dict[str, object]:
        return {"current_location": current_location}

    differentiable: ClassVar[bool] = True
    """Whether the op propagates gradients at all."""

    @abstractmethod
    def infer(self) -> TensorType:
        """Return the type of the value, or raise an error in the user's words if the inputs do not fit."""

    @abstractmethod
    def element(self, position: Position, read: Reader) -> Expr:
        """Define the op: return its element at a position from elements of its inputs."""

    @abstractmethod
    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        """Return, for each input, its share of the upstream gradient (None: no gradient)."""

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def device(self) -> str:
        return self.type.device

    def hold(self, buffer: Any) -> None:
        """Attach the memory that holds the computed elements, so that the value is not computed again."""
        amend(self, buffer=buffer)

    def note(self) -> Provenance:
        """Return the value's own provenance, to be changed."""
        return set_fact_once(self, "provenance", Provenance())  # type: ignore[no-any-return]

    def copied(self) -> Self:
        """Copy the node with its provenance."""
        made = object.__new__(type(self))
        own = self.__dict__.copy()
        if "provenance" in own:
            own["provenance"] = self.provenance.copied()
        amend(made, **own)
        return made

    def with_inputs(self, inputs: Sequence[Value], **changes: Any) -> Value:
        """Return the same op on other inputs and attributes; the same object if they are unchanged."""
        if not changes and all(map(is_, inputs, self.inputs)):
            return self
        remaining = iter(inputs)
        for name in self.input_fields:
            if self.annotations[name] == "Value":
                changes[name] = next(remaining)
            else:
                changes[name] = tuple(next(remaining) for _ in self.__dict__[name])
        return self.replaced(**changes)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        shown = [f"{n}={_shown(self.__dict__[n])}" for n in self.attribute_fields]
        return self.op + (f"[{', '.join(shown)}]" if shown else "")

    def __repr__(self) -> str:
        return f"<{self}: {self.type}>"


def _shown(attribute: object) -> str:
    return f"({', '.join(map(str, attribute))})" if isinstance(attribute, tuple) else str(attribute)


@final
class Input(Value):
    """A tensor that is given: an argument of the graph, or a tensor that has been computed before."""

    cost = "free"
    declared: TensorType
    name: str = ""

    def infer(self) -> TensorType:
        return self.declared

    def element(self, position: Position, read: Reader) -> Expr:
        raise AssertionError("an input has no meaning but its memory")

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return ()

    def __str__(self) -> str:
        return self.name or "input"


def topological(outputs: Sequence[Value], stop: Callable[[Value], bool] | None = None) -> list[Value]:
    """List every value that the outputs depend on once, producers before consumers.

    The inputs of values for which `stop` is true are not visited.
    """
    seen: set[Value] = set()
    order: list[Value] = []
    stack: list[Value] = list(reversed(outputs))
    entered: set[Value] = set()
    while stack:
        value = stack[-1]
        if value in seen:
            stack.pop()
        elif value in entered or (stop is not None and stop(value)) or not value.inputs:
            stack.pop()
            seen.add(value)
            order.append(value)
        else:
            entered.add(value)
            for x in reversed(value.inputs):
                if x not in seen:
                    stack.append(x)
    return order


class Graph(Node):
    """A tensor program: `outputs` computed from `inputs`."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    def values(self) -> list[Value]:
        """List every value once, producers before consumers; the traversal ends at the inputs."""
        found = self.__dict__.get("_values")
        if found is None:
            given = set(self.inputs)
            found = topological(self.outputs, lambda v: v in given)
            cache_fact(self, "_values", found)
        return list(found)

    def names(self) -> dict[Value, str]:
        names = {x: (x.name if isinstance(x, Input) and x.name else f"x{n}") for n, x in enumerate(self.inputs)}
        body = (v for v in self.values() if v not in names)
        return names | {v: f"%{i}" for i, v in enumerate(body)}

    def consumers(self) -> dict[Value, list[Value]]:
        """Map each value to its readers, one entry per use."""
        given = set(self.inputs)
        readers: dict[Value, list[Value]] = {v: [] for v in self.values()}
        for v in list(readers):
            if v not in given:
                for x in v.inputs:
                    readers[x].append(v)
        return readers

    def __str__(self) -> str:
        return self.text()

    def text(self, marks: Mapping[Value, str] = {}) -> str:
        """Print the graph with annotations of values and the user's line at the end of each line."""
        names = self.names()
        given = set(self.inputs)
        lines = []
        for v in self.values():
            if v not in given:
                call = " ".join([str(v), *(names[x] for x in v.inputs)])
                lines.append((f"  {marks.get(v, '')}{names[v]}: {v.type} = {call}", v.location))
        width = min(72, max((len(line) for line, _ in lines), default=0))
        body = [
            f"{line:{width}}  # {'gradient of ' * where.derived}{where}" if where else line for line, where in lines
        ]
        head = f"graph({', '.join(f'{names[x]}: {x.type}' for x in self.inputs)})"
        return "\n".join([head, *body, f"  return {', '.join(names[v] for v in self.outputs)}"])
