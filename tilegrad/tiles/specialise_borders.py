"""Specialise users' kernels at borders: instances whose tiles are in range run a copy without masks.

    m = i < n                      m = i < n
    v = tl.load(x + i, mask=m)     if last < n:                  (`last` is the greatest element of i)
    tl.store(y + i, v, mask=m)         v_inside = tl.load(x + i)
                             ->        tl.store(y + i, v_inside)
                                   else:
                                       v = tl.load(x + i, mask=m)
                                       tl.store(y + i, v, mask=m)

A masked store costs several plain ones, and most instances of a grid have whole tiles. Indices modulo an extent are
specialised likewise: where the remainder is the index itself, addresses are contiguous and loads become vector loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir import tile as ir
from ..ir.dtype import DType
from ..ir.tile_access import count_assignments, names_in, roots, statements, walk
from ..ir.tile_rewrite import fresh_name, rewrite
from ..ir.tile_types import Types

MAX_SPLITS = 4
"""Maximal depth of nested splits."""
MAX_STATEMENTS = 300
"""Most statements of a kernel with its copies for interiors and borders."""


def specialise_borders(kernel: ir.Kernel, types: Types) -> ir.Kernel:
    """Add a copy without masks for instances whose tiles are in range."""
    if not any(_has_mask(s) for s in statements(kernel.body)):
        return kernel
    splitter = _BorderSpecialiser(kernel, types)
    body = splitter.block(kernel.body, MAX_SPLITS)
    return kernel if body is kernel.body else kernel.replaced(body=body)


def _has_mask(statement: ir.Statement) -> bool:
    if isinstance(statement, ir.Store) and statement.mask is not None:
        return True
    return any(isinstance(x, ir.Load) and x.mask is not None for x in walk(*roots(statement)))


class _BorderSpecialiser:
    """Rewrites the blocks of one kernel; `definitions` maps names that are assigned once to their expressions."""

    def __init__(self, kernel: ir.Kernel, types: Types) -> None:
        self.types = types
        self.used_names = set(types.variables)
        self.definitions: dict[str, ir.Tile] = {}
        every = list(statements(kernel.body))
        self.counts = count_assignments(kernel.body)
        """Assignments of each name."""
        for s in every:
            if isinstance(s, ir.Assign) and self.counts[s.name] == 1:
                self.definitions[s.name] = s.value
        self.statement_budget = MAX_STATEMENTS - len(every)

    def block(self, body: tuple[ir.Statement, ...], splits: int) -> tuple[ir.Statement, ...]:
        """Split a block at the first mask that can be decided by one comparison; in the copy without it, split the
        rest.
        """
        for place, statement in enumerate(body):
            for inside in self.conditions(statement) if splits else ():
                if not self.is_visible(inside, body[place:]):
                    continue
                rest = body[place:]
                size = sum(1 for _ in statements(rest))
                if size > self.statement_budget:
                    continue
                self.statement_budget -= size
                plain = self.block(self.without_masks(rest, inside), splits - 1)
                return (*body[:place], ir.If(inside, plain, rest))
            inner = self.one(statement, splits)
            if inner is not statement:
                return self.block((*body[:place], inner, *body[place + 1 :]), splits)
        return body

    def one(self, statement: ir.Statement, splits: int) -> ir.Statement:
        """Specialise the body of a loop, unless it has been already."""
        if isinstance(statement, ir.For | ir.While) and not any(isinstance(s, ir.If) for s in statement.body):
            body = self.block(statement.body, splits)
            if body is not statement.body:
                return statement.replaced(body=body)  # type: ignore[no-any-return]
        return statement

    def is_visible(self, inside: ir.Tile, later: tuple[ir.Statement, ...]) -> bool:
        """Whether a condition uses no name that is assigned in the statements that follow."""
        return not names_in(inside) & set(count_assignments(later))

    # --- when a mask is true everywhere ----------------------------------------------------------

    def all_true(self, mask: ir.Tile) -> ir.Tile | None:
        """Find a scalar condition under which all elements of a mask are true."""
        match mask:
            case ir.Name(name) if self.is_recomputable(name):
                return self.all_true(self.definitions[name])
            case ir.ExpandDims(x) | ir.BroadcastTo(x):
                return self.all_true(x)
            case ir.Apply("bitand", (x, y)):
                first, second = self.all_true(x), self.all_true(y)
                return None if first is None or second is None else ir.Apply("bitand", (first, second))
            case ir.Apply("lt" | "le" as fn, (x, y)):
                last, bound = self.extreme(x, True), self.uniform(y)
                return None if last is None or bound is None else ir.Apply(fn, (last, bound))
        return None

    def conditions(self, statement: ir.Statement) -> list[ir.Tile]:
        """List the scalar conditions under which a mask of a statement is true or a remainder equals its dividend."""
        found = [self.all_true(mask) for mask in _masks_of(statement)]
        found += [self.unwrapped(x) for x in walk(*roots(statement)) if isinstance(x, ir.Apply)]
        return [x for x in found if x is not None]

    def is_recomputable(self, name: str) -> bool:
        """Whether evaluating the definition of a name again gives the same value."""
        definition = self.definitions.get(name)
        if definition is None:
            return False
        return all(self.counts[name] <= 1 for name in names_in(definition))

    def uniform(self, x: ir.Tile) -> ir.Tile | None:
        """Return the expression if all elements have the same value and it loads nothing."""
        if isinstance(x, ir.Literal) or not self.types.of(x).shape:
            return x if not any(isinstance(part, ir.Load) for part in walk(x)) else None
        return None

    def unwrapped(self, x: ir.Tile) -> ir.Tile | None:
        """Find the condition under which indices modulo an extent equal the indices themselves."""
        match x:
            case ir.Apply("fmod" | "mod", (y, z)) if self.types.of(y).shape:
                first, last, bound = self.extreme(y, False), self.extreme(y, True), self.uniform(z)
                if first is not None and last is not None and bound is not None:
                    return ir.Apply("bitand", (ir.Apply("ge", (first, ir.Literal(0))), ir.Apply("lt", (last, bound))))
        return None

    def extreme(self, x: ir.Tile, greatest: bool) -> ir.Tile | None:
        """Find the greatest or least element of an index tile as a scalar expression."""
        if isinstance(x, ir.Literal | ir.ProgramId | ir.NumPrograms) or not self.types.of(x).shape:
            return self.uniform(x)
        match x:
            case ir.Name(name) if self.is_recomputable(name):
                return self.extreme(self.definitions[name], greatest)
            case ir.Arange(start, stop):
                return ir.Literal(stop - 1 if greatest else start)
            case ir.ExpandDims(y) | ir.BroadcastTo(y):
                return self.extreme(y, greatest)
            case ir.Cast(y, dtype):
                return self._extreme_of_cast(y, dtype, greatest)
            case ir.Full(_, value, _):
                return self.uniform(value)
            case ir.Apply("add" | "sub" as fn, (y, z)):
                first = self.extreme(y, greatest)
                second = self.extreme(z, greatest) if fn == "add" else self.uniform(z)
                return _apply_known(fn, first, second)
        return None

    def _extreme_of_cast(self, x: ir.Tile, dtype: DType, greatest: bool) -> ir.Tile | None:
        if not dtype.is_integer or dtype.bits < self.types.of(x).dtype.bits:
            return None
        inner = self.extreme(x, greatest)
        return None if inner is None or isinstance(inner, ir.Literal) else ir.Cast(inner, dtype)

    # --- the copy without masks ------------------------------------------------------------------

    def without_masks(self, body: tuple[ir.Statement, ...], inside: ir.Tile) -> tuple[ir.Statement, ...]:
        """Copy statements under a condition: drop the masks that it implies, and rename what is assigned."""
        masks = {mask for s in statements(body) for mask in _masks_of(s) if self.all_true(mask) == inside}
        true = masks | {self.definitions[m.name] for m in masks if isinstance(m, ir.Name)}

        def change(part: Any) -> Any:
            match part:
                case ir.Load(pointer, m) if m in true:
                    return ir.Load(pointer)
                case ir.Store(pointer, value, m) if m in true:
                    return ir.Store(pointer, value)
                case ir.Apply("where", (condition, x, _)) if condition in true and self.has_type_of_result(part, x):
                    return x
                case ir.Apply("fmod" | "mod", (x, _)) if self.unwrapped(part) == inside:
                    return x
            return None

        return self.renamed(rewrite(body, change))

    def renamed(self, body: tuple[ir.Statement, ...]) -> tuple[ir.Statement, ...]:
        """Rename what is assigned in a copy of statements, unless it is assigned elsewhere too."""
        names: dict[str, str] = {}
        for name, count in sorted(count_assignments(body).items()):
            if count == self.counts[name]:
                names[name] = fresh_name(f"{name}_inside", self.used_names)
                self.used_names.add(names[name])
        renamed: tuple[ir.Statement, ...] = rewrite(body, lambda part: _renamed(part, names))
        for old, new in names.items():
            self.types.variables[new] = self.types.variables[old]
            self.counts[new] = self.counts[old]
        for s in statements(renamed):
            if isinstance(s, ir.Assign) and self.counts[s.name] == 1:
                self.definitions[s.name] = s.value
        return renamed

    def has_type_of_result(self, choice: ir.Tile, x: ir.Tile) -> bool:
        """Whether the operand has the type and shape of the whole selection."""
        return not isinstance(x, ir.Literal) and self.types.of(x) == self.types.of(choice)


def _masks_of(statement: ir.Statement) -> list[ir.Tile]:
    """List the masks of the loads and stores of a statement."""
    found = [x.mask for x in walk(*roots(statement)) if isinstance(x, ir.Load) and x.mask is not None]
    return [*found, statement.mask] if isinstance(statement, ir.Store) and statement.mask is not None else found


def _renamed(part: Any, names: Mapping[str, str]) -> Any:
    match part:
        case ir.Name(name) if name in names:
            return ir.Name(names[name])
        case ir.Assign(name, value) if name in names:
            return ir.Assign(names[name], value)
        case ir.For(index, start, stop, step, body) if index in names:
            return ir.For(names[index], start, stop, step, body)
        case ir.Atomic(name=name) if name in names:
            return part.replaced(name=names[name])
    return None


def _apply_known(fn: str, x: ir.Tile | None, y: ir.Tile | None) -> ir.Tile | None:
    return None if x is None or y is None else ir.Apply(fn, (x, y))
