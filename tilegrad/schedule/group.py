"""A group: a fused set of values that one kernel computes, in the scalar language.

    group ::= Group(rows, columns, members)  for all rows: for all columns: store value[position] = expr
    member ::= GroupMember(value, position, expr)

All element expressions share their indices: `rows` are independent of each other, a reduction or a scan runs over
`columns`. A reduction binds the very index objects in `columns`, so that what it reads and what its readers compute
from the same element is one expression, computed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from ..ir.graph import Value
from ..ir.node import Node, cache_fact
from ..ir.scalar import (
    Apply,
    Expr,
    Index,
    Read,
    Reduce,
    Scan,
    facts,
    fresh_index,
    parts,
    rebuild,
    show,
    substituted,
    walk,
)
from ..runtime.target_model import TargetModel

MIN_LET_CHARACTERS = 60
"""Printed length from which on a shared expression becomes a `let`, in characters."""
ROW_LETTERS = "ijlmnopq"
Kind = Literal["map", "rows", "contraction", "opaque"]


class GroupMember(Node):
    value: Value
    position: tuple[Expr, ...]
    expr: Expr


class Group(Node):
    kind: Kind
    rows: tuple[Index, ...]
    columns: tuple[Index, ...]
    members: tuple[GroupMember, ...]
    """Values that the group computes, producers first; a member reads another at that one's own position only."""
    stored: tuple[Value, ...]
    """Members that other groups or the caller need: they get memory."""
    after: tuple[Value, ...] = ()
    """Values that must exist before, besides what is read: ordering edges of recomputation."""

    @property
    def stores(self) -> tuple[GroupMember, ...]:
        """Return the stored members, each as one expression of what the group reads from memory."""
        if "_stores" in self.__dict__:
            return self.__dict__["_stores"]  # type: ignore[no-any-return]
        known: dict[Value, Expr] = {}

        def inside(e: Expr) -> Expr | None:
            return known.get(e.source) if isinstance(e, Read) else None

        for member in self.members:
            reads = facts(member.expr).reads
            inner = any(e.source in known for e in reads)
            known[member.value] = rebuild((member.expr,), inside)[0] if inner else member.expr
        made = tuple(GroupMember(m.value, m.position, known[m.value]) for m in self.members if m.value in self.stored)
        cache_fact(self, "_stores", made)
        return made

    def values(self) -> list[Value]:
        """Return the values of the members."""
        return [m.value for m in self.members]

    def reads(self) -> set[Value]:
        """Return the values that it reads from other groups or inputs."""
        own = {m.value for m in self.members}
        return {e.source for m in self.members for e in facts(m.expr).reads} - own

    def needs(self) -> set[Value]:
        """Return the values that its kernel takes as arguments."""
        return set(self.stored[0].inputs) if self.kind == "opaque" else self.reads()

    def text(self, names: dict[Value, str]) -> str:
        """Print the group: shared expressions as lets, then the stores."""
        renamed = _letters(self.rows, self.columns)
        shown: dict[Expr, str] = dict(renamed)
        lines: list[str] = []
        stores = self.stores
        used = Counter(p for e in walk(*(s.expr for s in stores)) for p in parts(e))
        for e in walk(*(s.expr for s in stores)):
            match e:
                case Read(source, position):
                    shown[e] = f"{names.get(source, source)}[{', '.join(show(p, shown) for p in position)}]"
                case Reduce() | Scan():
                    name = f"t{len(lines)}"
                    lines.append(f"  let {name} = {show(e, shown)}")
                    shown[e] = name
                case Apply() if used[e] > 1 and len(text := show(e, shown)) > MIN_LET_CHARACTERS:
                    shown[e] = f"t{len(lines)}"
                    lines.append(f"  let {shown[e]} = {text}")
        for s in stores:
            place = f"{names.get(s.value, '?')}[{', '.join(show(p, shown) for p in s.position)}]"
            lines.append(f"  store {place} = {show(s.expr, shown)}")
        return "\n".join([self._head(renamed), *lines])

    def steps(self, names: dict[Value, str]) -> list[str]:
        """Print the group with a line for each function: short, however deep the expressions are."""
        shown: dict[Expr, str] = _letters(self.rows, self.columns)
        lines = [self._head(shown)]
        for e in walk(*(x for s in self.stores for x in (*s.position, s.expr))):
            if e in shown:
                continue
            match e:
                case Read(source, position):
                    lines.append(f"{names.get(source, source)} {[shown[p] for p in position]}")
                case _:
                    lines.append(show(e, shown))
            shown[e] = f"v{len(lines)}"
        stored = [f"{names.get(s.value, '?')} {[shown[p] for p in s.position]} {shown[s.expr]}" for s in self.stores]
        return lines + stored

    def _head(self, letters: dict[Expr, str]) -> str:
        rows = ", ".join(f"{letters[i]} in {i.extent}" for i in self.rows)
        columns = ", ".join(f"{letters[i]} in {i.extent}" for i in self.columns)
        return f"{self.kind} over {rows or 'one'}" + (f"; along {columns}" if columns else "")


def scanned_bytes(exprs: Iterable[Expr]) -> int:
    """Return the bytes that all scans produce for an element; a scan of positions scans the elements first."""
    scans = [e for e in exprs if isinstance(e, Scan)]
    return sum(e.dtype.bytes + (e.body.dtype.bytes if e.dtype is not e.body.dtype else 0) for e in scans)


def _letters(rows: tuple[Index, ...], columns: tuple[Index, ...]) -> dict[Expr, str]:
    names: dict[Expr, str] = {i: (ROW_LETTERS[n] if n < len(ROW_LETTERS) else f"i{n}") for n, i in enumerate(rows)}
    names |= {i: ("k" if len(columns) == 1 else f"k{n}") for n, i in enumerate(columns)}
    return names


Mapping = dict[Index, Index]
"""Indices of a group, by the indices of another that coincide with them."""


def taken_over(a: Group, b: Group, mapping: Mapping) -> tuple[Index, ...]:
    """Return the columns of the first group as columns of both, and add them to the mapping; the second has no columns.

    Groups number their axes independently: a column of the first that has the name of an index of the second gets a new
    one.

    >>> from ..ir.scalar import Index
    >>> i, j = Index("i0", 3), Index("i1", 3)
    >>> a, b = Group("rows", (j,), (i,), (), ()), Group("map", (i,), (), (), ())
    >>> mapping = {j: i}
    >>> taken_over(a, b, mapping) == (i,), len(set(mapping.values()))
    (False, 2)
    """
    taken = {*b.rows, *mapping.values()}
    for own in a.columns:
        if own not in mapping:
            mapping[own] = fresh_index(own.extent) if own in taken else own
    return tuple([mapping[own] for own in a.columns])


def merged(
    a: Group, b: Group, mapping: Mapping, kind: Kind, rows: tuple[Index, ...], columns: tuple[Index, ...]
) -> Group:
    """Merge the members of two groups, those of the first with the indices of the second."""
    own = {*a.rows, *a.columns}
    assert own <= mapping.keys(), "an index of one group has no place in the other"
    assert len({mapping[i] for i in own}) == len(own), "two indices of one group are one in the other"
    members = a.members
    if any(own is not other for own, other in mapping.items()):
        moved = iter(substituted([e for m in members for e in (*m.position, m.expr)], dict(mapping.items())))
        members = tuple([GroupMember(m.value, tuple([next(moved) for _ in m.position]), next(moved)) for m in members])
    return Group(kind, rows, columns, members + b.members, a.stored + b.stored)


class Schedule(Node):
    """The groups of a graph in an order in which they can run, and the reasons why neighbours were not fused."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    groups: tuple[Group, ...]
    unfused: tuple[tuple[Value, Value, str], ...]
    """(producer, consumer, reason) for each pair that was not fused."""
    overwritten: tuple[tuple[Value, Value], ...] = ()
    """(new, old) for each value that is written in the memory of an input."""
    target: TargetModel = TargetModel()
    """The model of the device for which the groups were made."""

    def names(self) -> dict[Value, str]:
        names = {x: getattr(x, "name", "") or f"x{n}" for n, x in enumerate(self.inputs)}
        for group in self.groups:
            for value in group.stored:
                names[value] = f"{value.op}_{len(names)}"
        return names

    def __str__(self) -> str:
        names = self.names()
        parts = [f"group {n}: {g.text(names)}" for n, g in enumerate(self.groups)]
        reasons = [
            f"apart: {names.get(p, p)} and {names.get(c, c)}: {reason}" for p, c, reason in self.unfused if p in names
        ]
        places = [f"in place: {names[new]} over {names[old]}" for new, old in self.overwritten]
        return "\n".join(parts + places + reasons)
