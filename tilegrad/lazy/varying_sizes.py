"""Replace sizes that vary between graphs of one structure by symbols, so that new lengths are not new programs.

Graphs that differ in nothing but extents and offsets belong to one family. From a few of its members follows a graph
with symbols: extents that have varied become symbols or polynomials over them. The guess need not be right: a later
graph runs the symbolic program only if every extent, every offset and every type of it is what the symbols say, so that
it is the same graph. Extents of 0 and 1 have no symbol: broadcasting treats them differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..compiler import Compiled, compile
from ..ir.graph import Graph, Input, TensorType, Value
from ..ir.node import Structure, amend
from ..ir.size import Dim, Shape, Size, comparisons, known, product

if TYPE_CHECKING:
    from .realize import Key, Numbers

Extents: TypeAlias = tuple[int, ...]
Column: TypeAlias = Extents
"""One extent in each known graph of a family."""

MIN_SYMBOLIC_EXTENT, MAX_SYMBOLIC_EXTENT = 2, 2**31
MAX_FAMILIES = 4096
MAX_SYMBOLIC_PROGRAMS = 4
"""Number of symbolic programs that are tried for one family."""
MAX_SAMPLES = 3
"""Number of other graphs of a family from which a symbolic program is made."""
MAX_FAMILY_VALUES = 10_000
"""Values of a graph up to which it is compared with its family: larger ones are hardly met often enough to compile."""
MAX_COMPARED_DIMS = 24
"""Number of known sizes from which sums and differences are built."""


def without_sizes(key: Key) -> tuple[Key, Extents] | None:
    """Split the key of a graph into that of its family and its extents; None if it has symbols already."""
    extents: list[Any] = []
    family = [_without("", entry, extents) if isinstance(entry, TensorType) else _op(entry, extents) for entry in key]
    if any(extent.__class__ is not int for extent in extents):
        return None
    return tuple(family), tuple(extents)


def _op(entry: Key, extents: list[Any]) -> Key:
    if not entry or not isinstance(entry[0], type) or isinstance(entry[1], TensorType) or not entry[1]:
        return entry  # the outputs, a number that may vary, or an op without attributes
    cls, attributes, *inputs = entry
    kinds = [cls.annotations[name] for name in cls.attribute_fields]
    found = [_without(kind, x, extents) for kind, x in zip(kinds, attributes, strict=True)]
    return cls, tuple(found), *inputs


def _without(kind: str, x: Any, extents: list[Any]) -> Any:
    """Return an attribute without its sizes, which are added to the extents."""
    if kind == "Dim":
        extents.append(x)
        return None
    if kind == "Shape":
        extents.extend(x)
        return len(x)
    if isinstance(x, TensorType):
        extents.extend(x.shape)
        return x.dtype, len(x.shape), x.device
    if isinstance(x, Structure):
        return type(x), *[_without(x.annotations[name], getattr(x, name), extents) for name in x.fields]
    if isinstance(x, tuple) and any(isinstance(part, Structure) for part in x):
        return tuple([_without("", part, extents) for part in x])
    return x


def _with(kind: str, x: Any, sizes: Callable[[bool], Dim], is_offset: bool = False) -> Any:
    """Return an attribute with other sizes, in the order of `_without`."""
    if kind == "Dim":
        return sizes(is_offset)
    if kind == "Shape":
        return tuple([sizes(is_offset) for _ in x])
    if isinstance(x, Structure):
        return x.replaced(**{name: _with(x.annotations[name], getattr(x, name), sizes) for name in x.fields})
    if isinstance(x, tuple) and any(isinstance(part, Structure) for part in x):
        return tuple([_with("", part, sizes) for part in x])
    return x


class SizeSymbol(NamedTuple):
    """A size that varies, and the extent of a graph that is its value."""

    name: str
    slot: int
    shift: int
    """The symbol is the extent plus this: an offset may be 0, a symbol is at least 2."""


class SizeTable:
    """The sizes of a family as polynomials over symbols, found extent by extent."""

    def __init__(self, samples: Sequence[Extents]) -> None:
        self.columns: list[Column] = list(zip(*samples, strict=True))
        self.samples: list[dict[str, int]] = [{} for _ in samples]
        """The values of the symbols in each known graph."""
        self.symbols: list[SizeSymbol] = []
        self.known: dict[Column, Dim] = {}
        self.found: list[Dim] = []
        """The size at each extent, as far as the graph has been made."""

    def following(self, shapes: Sequence[Shape]) -> Callable[[bool], Dim]:
        """Return a function that finds the next size of an op on operands of these shapes."""

        def size(is_offset: bool) -> Dim:
            slot = len(self.found)
            made = self._size(self.columns[slot], shapes)
            if made is None:
                made = self._symbol(slot, is_offset)
            self.found.append(made)
            return made

        return size

    def note(self, shape: Shape) -> None:
        """Note the sizes of a value, for those that follow from them."""
        for extent in shape:
            if isinstance(extent, Size):
                self.known.setdefault(self.column(extent), extent)

    def column(self, size: Dim) -> Column:
        return tuple([known(size, values) for values in self.samples])

    def _size(self, column: Column, shapes: Sequence[Shape]) -> Dim | None:
        """Express a size by those that are known."""
        if all(extent == column[0] for extent in column):
            return column[0]
        if column in self.known:
            return self.known[column]
        products = [product(shape[a:b]) for shape in shapes for b in range(len(shape) + 1) for a in range(b - 1)]
        few = list(self.known.items())[-MAX_COMPARED_DIMS:]
        for have, dim in [*[(self.column(x), x) for x in products if isinstance(x, Size)], *few]:
            made = _from_one(column, have, dim)
            if made is not None:
                return made
        for n, (have, dim) in enumerate(few):
            for other, more in few[n:]:
                made = _from_one(column, tuple([a + b for a, b in zip(have, other, strict=True)]), dim + more)
                if made is not None:
                    return made
        return None

    def _symbol(self, slot: int, is_offset: bool) -> Dim:
        """Make a symbol for a size, or for its factors where these vary, too."""
        column, factor = self.columns[slot], 1
        if is_offset:
            return self._named(slot, MIN_SYMBOLIC_EXTENT)
        if min(column) < MIN_SYMBOLIC_EXTENT:
            raise NoSymbol
        others = {x: n for n, x in enumerate(self.columns) if x != column and len({*x}) > 1}
        varying = {x: n for x, n in others.items() if min(x) >= MIN_SYMBOLIC_EXTENT}
        for other, n in varying.items():
            times = column[0] // other[0]
            if times > factor and all(x == times * y for x, y in zip(column, other, strict=True)):
                slot, factor = n, times
        few = list(varying)[:MAX_COMPARED_DIMS] if factor == 1 else []
        for n, first in enumerate(few):
            for other in few[n:]:
                if all(x == y * z for x, y, z in zip(column, first, other, strict=True)):
                    return self._size_of(varying[first]) * self._size_of(varying[other])
        return self._named(slot, 0) * factor

    def _size_of(self, slot: int) -> Dim:
        column = self.columns[slot]
        return self.known[column] if column in self.known else self._named(slot, 0)

    def _named(self, slot: int, shift: int) -> Dim:
        """Make a symbol for an extent plus a number."""
        symbol = SizeSymbol("nmpq"[len(self.symbols) % 4] * (1 + len(self.symbols) // 4), slot, shift)
        self.symbols.append(symbol)
        for values, extent in zip(self.samples, self.columns[slot], strict=True):
            values[symbol.name] = extent + shift
        made = Size.named(symbol.name) - shift
        self.known.setdefault(self.columns[slot], made)
        return made


class NoSymbol(Exception):
    """Raised for an extent that is 0 or 1 in some graphs only."""


def _from_one(column: Column, have: Column, dim: Dim) -> Dim | None:
    """Express a size as another one, times or divided by a number or plus a number."""
    if column == have:
        return dim
    differences = {a - b for a, b in zip(column, have, strict=True)}
    if len(differences) == 1:
        return dim + differences.pop()
    if 0 in have or 0 in column:
        return None
    factors = {(a // b, b // a, a % b and b % a) for a, b in zip(column, have, strict=True)}
    if len(factors) != 1:
        return None
    ((times, part, rest),) = factors
    if rest or not isinstance(dim, Size):
        return None
    return dim * times if times else dim.divided(part)


class SymbolicGraph:
    """A graph with symbols, and which graphs of its family are the same but for the values of these."""

    def __init__(
        self, graph: Graph, table: SizeTable, shapes: Sequence[Shape], different: Sequence[tuple[Size, Dim]]
    ) -> None:
        self.graph = graph
        self.table = table
        self.different = different
        """Sizes that were taken for unequal."""
        extents = {extent.terms_of_all(): extent for shape in shapes for extent in shape if isinstance(extent, Size)}
        least = [f"{extent} >= {MIN_SYMBOLIC_EXTENT}" for extent in extents.values()]
        least += [f"{s.name} < {MAX_SYMBOLIC_EXTENT}" for s in table.symbols]
        given = ", ".join([f"{s.name} := given[{s.slot}] + {s.shift}" for s in table.symbols])
        wanted = ", ".join([*map(str, table.found), *[str(extent) for shape in shapes for extent in shape]])
        values = ", ".join([f"{s.name!r}: {s.name}" for s in table.symbols])
        conditions = " and ".join([f"({given},)", *least, f"given == ({wanted},)"])
        self._match: Callable[[Extents], dict[str, int] | None] = eval(
            f"lambda given: {{{values}}} if {conditions} else None"
        )

    def sizes(self, extents: Extents, order: Sequence[Value]) -> dict[str, int] | None:
        """Return the values of the symbols for a graph of the family; None if it is not the same graph."""
        given = (*extents, *[extent for value in order for extent in value.type.shape])
        found = self._match(given)  # type: ignore[arg-type]
        if found is None or any(a.value(found) == known(b, found) for a, b in self.different):
            return None
        return found


def symbolic_graph(
    key: Key, order: Sequence[Value], given: Sequence[Value], samples: Sequence[Extents]
) -> SymbolicGraph | None:
    """Make a graph for all members of a family from the extents of some; the last one is that of the key and values.

    `given`: the numbers that are inputs. Returns None if some extent follows from no symbol.
    """
    table = SizeTable(samples)
    made: list[Value] = []
    leaves: list[Input] = []
    count = sum([isinstance(entry, TensorType) for entry in key])
    numbers: dict[Value, Value] = {v: Input(v.type, f"x{count + n}") for n, v in enumerate(given)}
    with comparisons() as found, suppress(NoSymbol):
        for value, entry in zip(order, key, strict=False):
            if isinstance(entry, TensorType):
                leaves.append(Input(_with("", entry, table.following(())), f"x{len(leaves)}"))
                made.append(leaves[-1])
            else:
                made.append(numbers.get(value) or _made(value, entry, [made[n] for n in entry[2:]], table))
            table.note(made[-1].shape)
    if len(made) < len(order):
        return None
    different = [*found.values()]
    graph = Graph((*leaves, *numbers.values()), tuple([made[n] for n in key[-1]]))
    symbolic = SymbolicGraph(graph, table, [v.shape for v in made], different)
    return symbolic if table.symbols and symbolic.sizes(samples[-1], order) is not None else None


def _made(value: Value, entry: Key, inputs: Sequence[Value], table: SizeTable) -> Value:
    """Apply the op of a value to symbolic operands."""
    sizes = table.following([x.shape for x in inputs])
    changes: dict[str, Any] = {}
    if not isinstance(entry[1], TensorType):
        for name, x in zip(value.attribute_fields, value.attributes, strict=True):
            kind = value.annotations[name]
            changed = _with(kind, x, sizes, name == "starts")
            if changed is not x:
                changes[name] = changed
    made: Any = value.with_inputs(inputs, **changes) if inputs or changes else value.replaced()
    amend(made, location=value.location)
    return made  # type: ignore[no-any-return]


class SymbolicProgram(NamedTuple):
    """A symbolic program for a graph, the values of its symbols, and the numbers that are inputs of it."""

    compiled: Compiled
    sizes: dict[str, int]
    numbers: Numbers


class Member(NamedTuple):
    """A graph of a family."""

    key: Key
    order: Sequence[Value]
    numbers: Sequence[Value]
    exactly: Numbers
    """What these numbers are."""
    extents: Extents


class SizeFamily:
    """Graphs that differ in nothing but sizes and numbers, and their symbolic programs."""

    def __init__(self, first: Member) -> None:
        self.meetings = 0
        self.samples: list[Extents] = []
        """The extents of some graphs that were met, by which a program for others is made."""
        self.numbers = first.exactly
        self.programs: list[tuple[SymbolicGraph, Numbers, Compiled]] = []
        self.remaining = MAX_SYMBOLIC_PROGRAMS

    def program(self, member: Member, meetings: int) -> SymbolicProgram | None:
        """Find the symbolic program for a graph, or compile one after so many meetings; None if it is to have a program
        for its own sizes.
        """
        for symbolic, fixed, compiled in self.programs:
            if fixed.compared(member.exactly.first).varied == fixed.varied:
                sizes = symbolic.sizes(member.extents, member.order)
                if sizes is not None:
                    return SymbolicProgram(compiled, sizes, fixed)
        self.meetings += 1
        self.numbers = self.numbers.compared(member.exactly.first)
        others = [extents for extents in self.samples if extents != member.extents]
        self.samples = [*others[-MAX_SAMPLES:], member.extents]
        if not others or self.meetings < meetings or not self.remaining:
            return None
        try:
            return self._compile(member)
        except Exception:  # whatever an op raises that needs its size as a number: each size has a program then
            self.remaining = 0
            return None

    def _compile(self, member: Member) -> SymbolicProgram | None:
        varied = self.numbers.varied
        given = [v for n, v in enumerate(member.numbers) if n in varied]
        key, order, samples = member.key, member.order, self.samples
        symbolic = symbolic_graph(key, order, given, samples) or symbolic_graph(key, order, given, samples[-2:])
        sizes = None if symbolic is None else symbolic.sizes(member.extents, member.order)
        if symbolic is None or sizes is None:
            return None
        self.remaining -= 1
        found = SymbolicProgram(compile(symbolic.graph), sizes, member.exactly._replace(varied=varied))
        found.compiled.executable.bound(sizes)
        self.programs.insert(0, (symbolic, found.numbers, found.compiled))
        return found


_families: dict[Key, SizeFamily] = {}


def symbolic_program(
    key: Key, order: Sequence[Value], numbers: Sequence[Value], exactly: Numbers, meetings: int = 0
) -> SymbolicProgram | None:
    """Find or compile a program for all sizes, if graphs of the family with other sizes were met before."""
    split = without_sizes(key) if len(key) <= MAX_FAMILY_VALUES else None
    if split is None:
        return None
    member = Member(key, order, numbers, exactly, split[1])
    family = _families.get(split[0])
    if family is None:
        while len(_families) >= MAX_FAMILIES:
            del _families[next(iter(_families))]
        family = _families[split[0]] = SizeFamily(member)
    return family.program(member, meetings)
