"""Read loops and branches; decide those on constants, and turn names that the others assign into variables.

A name that a loop assigns needs a value of the same type before the loop; a name first assigned inside is out of scope
after it. After a branch a name has the value assigned on the path taken.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...ir.tile import Apply, Assign, BroadcastTo, For, Full, If, Literal, Name, Statement, Tile, While
from ...ir.tile_access import roots, statements, walk
from ...ir.tile_checker import loop_dtype
from ...ir.tile_types import Refused, TileType
from .arithmetic import binary, common_dtype
from .expressions import TileExpressionReader
from .loops import LoopRange
from .values import (
    Operand,
    SymbolicTile,
    Unbound,
    describe,
    is_number,
    map_leaves,
    number_dtype,
    same_structure,
    value_leaves,
)
from .writer import TileWriter, in_dtype

ABSENT = object()
MAX_UNROLLED_ITERATIONS = 4096


class FlowReader(TileExpressionReader):
    """Reads control flow; the subclass reads all other statements in `statement`."""

    def statement(self, node: ast.stmt) -> bool | None:
        raise NotImplementedError

    def block_of(self, body: Sequence[ast.stmt]) -> bool:
        """Read statements; return whether they end the function."""
        for n, node in enumerate(body):
            if isinstance(node, ast.Return):
                self.finish(node)
                return True
            if isinstance(node, ast.If):
                if self.branch(node, body[n + 1 :]):
                    return True
            elif self.statement(node):
                return True
        return False

    def finish(self, node: ast.Return) -> None:
        if self.frame.loops:
            raise self.error_at(
                node, "there is no return inside a loop: keep the result in a variable, and return it after it"
            )
        value = None if node.value is None else self.value(node.value)
        self.at = self.frame.source.place(node)
        self.frame.names["return"] = map_leaves(value, lambda x: self.held(x, "result"))

    # --- names -----------------------------------------------------------------------------------

    def assign_name(self, name: str, value: Any) -> None:
        """Bind a name of the function to a value."""
        if not value_leaves(value) or is_number(value):
            self.frame.names[name] = value
            return
        before = self.frame.names.get(name)
        if self.is_variable(name, before) and same_structure(before, value) and _types(before) == _types(value):
            if not isinstance(value, SymbolicTile):
                value = map_leaves(value, lambda x: self.named(x, name))
            for old, new in zip(value_leaves(before), value_leaves(value), strict=True):
                self.assign(_variable(old), new)
            return
        self.frame.names[name] = map_leaves(value, lambda x: self.store_leaf(name, x))

    def store_leaf(self, name: str, x: Operand) -> Operand:
        """Store one leaf of a name's value in a variable of the tile program; numbers stay constants."""
        if not isinstance(x, SymbolicTile):
            return x
        made = self.named(x, name)
        assert isinstance(made.tile, Name)
        self.frame.mine.setdefault(name, set()).add(made.tile.name)
        return made

    def is_variable(self, name: str, value: Any) -> bool:
        """Whether a value is held in variables created outside the current block."""
        mine = self.frame.mine.get(name, set())
        parts = value_leaves(value)
        return bool(parts) and all(
            isinstance(x, SymbolicTile)
            and isinstance(x.tile, Name)
            and x.tile.name in mine
            and self.home[x.tile.name] != self.here
            for x in parts
        )

    def carry_variables(self, names: frozenset[str]) -> dict[str, Any]:
        """Store the names that a loop assigns in variables before it starts."""
        carried: dict[str, Any] = {}
        for name in sorted(names & self.frame.names.keys()):
            value = self.frame.names[name]
            if value_leaves(value) and not isinstance(value, Unbound):
                carried[name] = self.frame.names[name] = map_leaves(value, partial(self.variable, name))
        return carried

    def variable(self, name: str, x: Operand) -> SymbolicTile:
        mine = self.frame.mine.setdefault(name, set())
        if isinstance(x, SymbolicTile) and isinstance(x.tile, Name) and x.tile.name in mine:
            return x
        made = self.named(x, name)
        assert isinstance(made.tile, Name)
        mine.add(made.tile.name)
        return made

    def end_iteration(self, carried: dict[str, Any], node: ast.stmt) -> dict[str, Any]:
        """Assign loop-carried variables at the end of an iteration, and bind the names after the loop."""
        after: dict[str, Any] = {}
        for name, entry in carried.items():
            now = self.frame.names.get(name, ABSENT)
            if (
                now is ABSENT
                or isinstance(now, Unbound)
                or not same_structure(entry, now)
                or not self.has_types_of(entry, now)
            ):
                after[name] = self.changed_type(name, entry, now, node)
                continue
            for old, new in zip(value_leaves(entry), value_leaves(now), strict=True):
                name_of = _variable(old)
                if not isinstance(new, SymbolicTile) or new.tile != Name(name_of):
                    self.assign(name_of, new)
            after[name] = entry
        return after

    def has_types_of(self, entry: Any, now: Any) -> bool:
        """Whether new values have the types of the variables that carry them."""
        for old, new in zip(value_leaves(entry), value_leaves(now), strict=True):
            assert isinstance(old, SymbolicTile)
            if isinstance(new, SymbolicTile) and new.type != old.type:
                return False
            if not isinstance(new, SymbolicTile):
                try:
                    in_dtype(new, old.type.dtype)
                except Refused:
                    return False
                if old.shape or old.type.pointer or (isinstance(new, float) and not old.type.dtype.is_float):
                    return False
        return True

    def changed_type(self, name: str, entry: Any, now: Any, node: ast.stmt) -> Unbound:
        """Return the value of a name whose type changes in the loop: an error if the loop reads the old one."""
        variables = {
            x.tile.name for x in value_leaves(entry) if isinstance(x, SymbolicTile) and isinstance(x.tile, Name)
        }
        read = any(
            isinstance(x, Name) and x.name in variables
            for s in statements(tuple(self.open[-1]))
            for root in roots(s)
            for x in walk(root)
        )
        what = "nothing" if now is ABSENT or isinstance(now, Unbound) else describe(now)
        if read:
            raise self.error_at(
                node,
                f"`{name}` is {describe(entry)} before the loop, and {what} at its end: a variable keeps its type and "
                "shape; convert it with .to(...), or begin with the type that it will have (tl.zeros, tl.full)",
            )
        return Unbound(f"is {describe(entry)} before the loop above, and {what} in it: take two names")

    # --- loops -----------------------------------------------------------------------------------

    def loop(self, node: ast.For) -> bool | None:
        if node.orelse:
            raise self.error_at(node.orelse[0], "a loop has no else: put it behind the loop")
        if isinstance(node.iter, ast.Call):
            fn = self.value(node.iter.func)
            if fn is builtins.range or isinstance(fn, LoopRange):
                return self.counted_loop(node, node.iter, isinstance(fn, LoopRange) and fn.unrolled)
        whole = self.value(node.iter)
        if not isinstance(whole, tuple):
            raise self.error_at(
                node.iter, f"a loop runs over range(...) or tl.static_range(...), and not over {describe(whole)}"
            )
        return self.unrolled(node, whole)

    def range_bounds(self, call: ast.Call) -> tuple[Any, Any, Any]:
        """Evaluate the start, the end and the step of a range."""
        bounds = list(self.positional_arguments(call.args))
        for keyword in call.keywords:  # num_stages, loop_unroll_factor, ...: hints
            self.value(keyword.value)
        if not 1 <= len(bounds) <= 3:
            raise self.error_at(call, f"range takes one to three bounds, and not {len(bounds)}")
        for x, part in zip(bounds, call.args, strict=False):
            if not (is_number(x) or isinstance(x, SymbolicTile)) or isinstance(x, float):
                raise self.error_at(part, f"the bounds of a loop are integers, and not {describe(x)}")
        start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if not isinstance(step, SymbolicTile) and step == 0:
            raise self.error_at(call, "the step of a loop is not 0")
        return start, stop, step

    def counted_loop(self, node: ast.For, call: ast.Call, unroll: bool) -> bool | None:
        if not isinstance(node.target, ast.Name):
            raise self.error_at(node.target, "a loop over range has one name")
        start, stop, step = self.range_bounds(call)
        if not unroll:
            self.dynamic(node, node.target.id, start, stop, step)
            return None
        if any(isinstance(x, SymbolicTile) for x in (start, stop, step)):
            raise self.error_at(
                call, "the bounds of tl.static_range must be known when the kernel is compiled: use range"
            )
        numbers = range(start, stop, step)
        if len(numbers) > MAX_UNROLLED_ITERATIONS:
            raise self.error_at(call, f"a loop of {len(numbers)} turns is too long to be written out: use range")
        return self.unrolled(node, tuple(numbers))

    def unrolled(self, node: ast.For, values: tuple[Any, ...]) -> bool | None:
        for value in values:
            self.at = self.frame.source.place(node.target)
            self.bind(node.target, value)
            if self.block_of(node.body):
                return True
        return None

    def bind(self, target: ast.expr, value: Any) -> None:
        raise NotImplementedError

    def dynamic(self, node: ast.For, target: str, start: Operand, stop: Operand, step: Operand) -> None:
        backwards = not isinstance(step, SymbolicTile) and step < 0
        first, last, width = (0, self.trip_count(start, stop, step), 1) if backwards else (start, stop, step)
        dtype = common_dtype(tuple([x for x in (first, last, width) if isinstance(x, SymbolicTile)] or [0]))
        bounds = [self.operand(x, dtype) for x in (first, last, width)]
        names = set(self.frame.names)
        carried = self.carry_variables(self.frame.source.assigned_names(node.body) - {target})
        probe = For("_", bounds[0], bounds[1], bounds[2], ())
        index = self.fresh(target, TileType(loop_dtype(self.types, probe)))
        self.home[index] = -1
        counter = SymbolicTile(Name(index), self.types.variables[index])
        before = dict(self.frame.names)
        self.frame.loops += 1
        with self.block() as body:
            self.frame.names[target] = counter
            if backwards:
                distance = self.make(
                    Apply(
                        "mul",
                        (counter.tile, Literal(in_dtype(step, dtype) if not isinstance(step, SymbolicTile) else 0)),
                    )
                )
                self.assign_name(target, self.make(Apply("add", (distance.tile, self.operand(start, dtype)))))
            self.block_of(node.body)
            self.at = self.frame.source.place(node)
            after = self.end_iteration(carried, node)
        self.frame.loops -= 1
        self.at = self.frame.source.place(node)
        self.emit(For(index, bounds[0], bounds[1], bounds[2], tuple(body)))
        self.leave_loop(before, after, names, "the loop")

    def trip_count(self, start: Operand, stop: Operand, step: Any) -> Operand:
        """Return the trip count of a loop that runs backwards."""
        if not isinstance(start, SymbolicTile) and not isinstance(stop, SymbolicTile):
            return len(range(start, stop, step))  # type: ignore[arg-type]
        distance = binary(self, "sub", start, stop)
        count = binary(self, "floordiv", binary(self, "add", distance, -step - 1), -step)
        return self.held(count, "turns")  # type: ignore[no-any-return]

    def leave_loop(self, before: dict[str, Any], after: dict[str, Any], known: set[str], what: str) -> None:
        """Bind the names after a loop."""
        inside = set(self.frame.names) - known
        unbound = Unbound(f"is assigned only inside {what} above: give it a value before that")
        self.frame.names = {**before, **after, **dict.fromkeys(inside - {"return"}, unbound)}

    def repeat(self, node: ast.While) -> None:
        if node.orelse:
            raise self.error_at(node.orelse[0], "a loop has no else: put it behind the loop")
        names = set(self.frame.names)
        carried = self.carry_variables(self.frame.source.assigned_names(node.body))
        with self.block() as probe:
            condition = self.condition(node.test)
        if not isinstance(condition, SymbolicTile):
            if condition:
                raise self.error_at(node.test, "this loop never ends: its condition is always true")
            return
        self.at = self.frame.source.place(node)
        go = self.named(self.condition(node.test), "go") if probe else condition
        before = dict(self.frame.names)
        self.frame.loops += 1
        with self.block() as body:
            self.block_of(node.body)
            self.at = self.frame.source.place(node)
            after = self.end_iteration(carried, node)
            if probe:
                self.frame.names.update(after)
                assert isinstance(go.tile, Name)
                self.assign(go.tile.name, self.condition(node.test))
        self.frame.loops -= 1
        self.at = self.frame.source.place(node)
        self.emit(While(go.tile, tuple(body)))
        self.leave_loop(before, after, names, "the loop")

    # --- branches --------------------------------------------------------------------------------

    def branch(self, node: ast.If, rest: Sequence[ast.stmt]) -> bool:
        """Read a branch; if one arm returns, the statements after the branch belong to the other arm."""
        condition = self.condition(node.test)
        if not isinstance(condition, SymbolicTile):
            return self.block_of(node.body if condition else node.orelse)
        returns = [x for x in ast.walk(node) if isinstance(x, ast.Return)]
        if returns and self.frame.loops:
            self.finish(returns[0])
        self.at = self.frame.source.place(node.test)
        before = dict(self.frame.names)
        branches: list[tuple[dict[str, Any], list[Statement]]] = []
        for body in (node.body, node.orelse):
            self.frame.names = dict(before)
            with self.block() as written:
                self.block_of([*body, *rest] if returns else body)
            branches.append((self.frame.names, written))
        self.at = self.frame.source.place(node)
        self.frame.names = self.join_branches(branches[0], branches[1])
        then, other = (tuple(written) for _, written in branches)
        if not then and other:
            self.emit(If(_negated(condition, self), other))
        else:
            self.emit(If(condition.tile, then, other))
        return bool(returns)

    def join_branches(
        self, first: tuple[dict[str, Any], list[Statement]], second: tuple[dict[str, Any], list[Statement]]
    ) -> dict[str, Any]:
        """Bind the names after a branch."""
        names: dict[str, Any] = {}
        for name in [*first[0], *(n for n in second[0] if n not in first[0])]:
            nothing = None if name == "return" else ABSENT
            x, y = first[0].get(name, nothing), second[0].get(name, nothing)
            if x is y or (not value_leaves(x) and same_structure(x, y)):
                names[name] = x
            elif x is ABSENT or y is ABSENT:
                names[name] = Unbound("is assigned only on one way of the `if` above: give it a value before that")
            elif isinstance(x, Unbound) or isinstance(y, Unbound):
                names[name] = x if isinstance(x, Unbound) else y
            else:
                names[name] = self.merge_values(name, x, y, first[1], second[1])
        return names

    def merge_values(self, name: str, x: Any, y: Any, first: list[Statement], second: list[Statement]) -> Any:
        """Merge the values that a name has after the two arms."""
        different = Unbound(
            f"is {describe(x)} after one way of the `if` above and {describe(y)} after the other: take two names"
        )
        if not same_structure(x, y):
            return different
        pairs = list(zip(value_leaves(x), value_leaves(y), strict=True))
        types = [_common_type(a, b) for a, b in pairs]
        if any(t is None for t in types):
            return different
        made = iter([self.phi(name, a, b, t, first, second) for (a, b), t in zip(pairs, types, strict=True) if t])
        return map_leaves(x, lambda _: next(made))

    def phi(
        self, name: str, x: Operand, y: Operand, type: TileType, first: list[Statement], second: list[Statement]
    ) -> Operand:
        """Create a variable that takes the value of the arm that runs."""
        if _same(x, y):
            return x
        variable = self.fresh(name, type)
        self.frame.mine.setdefault(name, set()).add(variable)
        early = next((z for z in (y, x) if self.is_known(z)), None)
        self.emit(Assign(variable, self.placeholder(type) if early is None else self.operand_of(early, type)))
        for z, statements_ in ((x, first), (y, second)):
            if z is not early:
                self.open.append(statements_)
                self.emit(Assign(variable, self.operand_of(z, type)))
                self.open.pop()
        return SymbolicTile(Name(variable), type)

    def operand_of(self, x: Operand, type: TileType) -> Tile:
        return x.tile if isinstance(x, SymbolicTile) and type.pointer else self.operand(x, type.dtype)

    def is_known(self, x: Operand) -> bool:
        """Whether a value is available before the branch."""
        if not isinstance(x, SymbolicTile):
            return True
        return isinstance(x.tile, Name) and self.home[x.tile.name] in {-1, *self.numbers}

    def placeholder(self, type: TileType) -> Tile:
        """Return a placeholder initial value, which is always overwritten before it is read."""
        if not type.pointer:
            return Full(type.shape, Literal(in_dtype(0, type.dtype)), type.dtype)
        known = [
            n for n, t in self.types.variables.items() if self.home[n] == -1 and t == TileType(type.dtype, (), True)
        ]
        if not known:
            raise Refused("a pointer that two ways of an `if` give differs: choose between offsets instead")
        return BroadcastTo(Name(known[0]), type.shape) if type.shape else Name(known[0])


OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


def _negated(condition: SymbolicTile, w: TileWriter) -> Tile:
    """Negate a condition: an integer comparison becomes its opposite (not a float's: all are false for NaN)."""
    match condition.tile:
        case Apply(fn, (x, y)) if fn in OPPOSITE and not w.types.arguments(condition.tile).is_float:
            return Apply(OPPOSITE[fn], (x, y))
    return Apply("invert", (condition.tile,))


def _variable(x: Operand) -> str:
    """Return the name of a variable of the tile program."""
    assert isinstance(x, SymbolicTile)
    assert isinstance(x.tile, Name)
    return x.tile.name


def _types(value: Any) -> list[Any]:
    return [x.type if isinstance(x, SymbolicTile) else number_dtype(x) for x in value_leaves(value)]


def _same(x: Operand, y: Operand) -> bool:
    if isinstance(x, SymbolicTile) and isinstance(y, SymbolicTile):
        return x.tile == y.tile
    return not isinstance(x, SymbolicTile) and not isinstance(y, SymbolicTile) and x == y and type(x) is type(y)


def _common_type(x: Operand, y: Operand) -> TileType | None:
    """Return the common type of two values; a number adopts that of a scalar tile."""
    if isinstance(x, SymbolicTile) and isinstance(y, SymbolicTile):
        return x.type if x.type == y.type else None
    if not isinstance(x, SymbolicTile) and not isinstance(y, SymbolicTile):
        return TileType(common_dtype((x, y)))
    tile, number = (x, y) if isinstance(x, SymbolicTile) else (y, x)
    assert isinstance(tile, SymbolicTile)
    assert not isinstance(number, SymbolicTile)
    if tile.shape or tile.type.pointer:
        return None
    try:
        in_dtype(number, tile.type.dtype)
    except Refused:
        return None
    return tile.type
