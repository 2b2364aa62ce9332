"""What must be computed in a stretch of code, by which loop nest, and in which order.

A *root* is what a loop nest computes: a store, a tile that is kept in memory, a variable's new value, a reduction, a
scan, a dot. Everything between roots is computed on demand. A root belongs to a domain, the index space that its nest
runs over; roots of one domain that do not wait for one another share a nest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .elements import Slot
from .nodes import TileNode, is_root

Pattern = tuple[int, ...]
"""Which axes of the domain the axes of an expression are."""

FIRST, UNKNOWN = -1, -2
"""An axis that is read at 0; one that is no axis of the domain."""

Visits = set[tuple[TileNode, Pattern]]


class Root:
    """One thing to compute."""

    def __init__(
        self,
        kind: str,
        node: TileNode,
        *,
        pointer: TileNode | None = None,
        mask: TileNode | None = None,
        slot: Slot | None = None,
        target: str = "",
        count: int = 0,
    ) -> None:
        self.kind, self.node, self.pointer, self.mask, self.slot = kind, node, pointer, mask, slot
        self.target, self.count = target, count
        """The memory that it changes, and how often that was changed before."""
        self.axis = node.data[1] if kind in ("reduce", "scan") else -1
        self.domain = self._domain()
        self.needs: dict[Root, Visits] = {}
        """The roots whose results it reads, and how."""
        self.after: set[Root] = set()
        """The roots that must be wholly done before it begins."""
        self.beside: set[Root] = set()
        """The roots that must be done before it, element by element."""
        self.visits: Visits = set()
        self.local = 0
        """How many of the loops around it are around all of its readers too."""

    def _domain(self) -> tuple[int, ...]:
        if self.kind == "store":
            assert self.pointer is not None
            return self.pointer.shape
        if self.kind in ("reduce", "scan"):
            return self.node.args[0].shape
        return () if self.kind == "dot" else self.node.shape

    @property
    def ordered_visits(self) -> list[tuple[TileNode, Pattern]]:
        """The visits in an order that is the same each time a kernel is compiled."""
        return sorted(self.visits, key=lambda visit: (visit[0].number, visit[1]))

    @property
    def operands(self) -> tuple[TileNode, ...]:
        """What is evaluated over the domain."""
        if self.kind in ("reduce", "scan"):
            return self.node.args
        return tuple([x for x in (self.node, self.pointer, self.mask) if x is not None])

    def __repr__(self) -> str:
        return f"{self.kind} {list(self.domain)} {self.node!r}"


def project_pattern(pattern: Pattern, shape: tuple[int, ...], whole: tuple[int, ...]) -> Pattern:
    """The pattern of an operand of fewer axes, or of axes that are repeated."""
    own = pattern[len(pattern) - len(shape) :]
    place = whole[len(whole) - len(shape) :]
    return tuple([FIRST if n == 1 and w != 1 else p for p, n, w in zip(own, shape, place, strict=True)])


def visits(operands: Iterable[tuple[TileNode, Pattern]], results: Mapping[TileNode, Any], own: TileNode | None) -> Visits:
    """Every node that computing the operands goes through, with the axes that it is read along."""
    stack = list(operands)
    seen = set(stack)
    while stack:
        node, pattern = stack.pop()
        if node is not own and (node in results or is_root(node)):
            continue
        for item in _below(node, pattern):
            if item not in seen:
                seen.add(item)
                stack.append(item)
    return seen


def _below(node: TileNode, pattern: Pattern) -> Iterable[tuple[TileNode, Pattern]]:
    """The operands of a node with their patterns."""
    if not node.args:
        return ()
    x = node.args[0]
    match node.kind:
        case "expand":
            return ((x, tuple([p for n, p in enumerate(pattern) if n not in node.data])),)
        case "trans":
            return ((x, tuple([pattern[node.data.index(n)] for n in range(len(pattern))])),)
        case "reshape":
            return ((x, _reshaped(pattern, node.shape, x.shape)),)
        case "reduce" | "scan" | "dot":
            return [(a, (UNKNOWN,) * len(a.shape)) for a in node.args]
    return [(a, project_pattern(pattern, a.shape, node.shape)) for a in node.args]


def _reshaped(pattern: Pattern, shape: tuple[int, ...], inner: tuple[int, ...]) -> Pattern:
    """Axes of extent 1 come and go; otherwise nothing is known."""
    if [n for n in shape if n != 1] != [n for n in inner if n != 1]:
        return (UNKNOWN,) * len(inner)
    kept = iter([p for p, n in zip(pattern, shape, strict=True) if n != 1])
    return tuple([FIRST if n == 1 else next(kept) for n in inner])


def identity_pattern(rank: int) -> Pattern:
    return tuple(range(rank))


class Plan:
    """The roots of a stretch of code, each with what it waits for."""

    def __init__(self, statements: Iterable[Root], results: Mapping[TileNode, Any], live: Iterable[TileNode]) -> None:
        self.results = results
        self.roots: list[Root] = []
        self.made: dict[TileNode, Root] = {}
        """The root that computes a node."""
        self.live = set(live)
        """What later code may read."""
        for root in statements:
            self._add(root)
        for node in self.live:
            self._prepare((node,))
        self._connect()

    def _add(self, root: Root) -> None:
        if root.kind == "update" and root.node.kind == "dot" and self._accumulates_in(root):
            root.kind, root.domain = "dot", ()
        self._prepare(root.node.args if root.kind in ("reduce", "scan", "dot") else root.operands)
        self.roots.append(root)
        if root.kind in ("keep", "reduce", "scan", "dot"):
            self.made[root.node] = root

    def _accumulates_in(self, root: Root) -> bool:
        """Whether a variable's new value is a product added to its old one: it is added in place."""
        args = root.node.args
        return root.node not in self.made and len(args) == 3 and args[2].kind == "slot" and args[2].data[0] is root.slot

    def _prepare(self, operands: Iterable[TileNode]) -> None:
        """Adds the reductions, scans and dots that something reads, before it."""
        seen: set[TileNode] = set()

        def visit(node: TileNode) -> None:
            if node in seen or node in self.results or node in self.made:
                return
            seen.add(node)
            if node.kind in ("reduce", "scan", "dot"):
                self._add(Root(node.kind, node))
                return
            for a in node.args:
                visit(a)

        for node in operands:
            visit(node)

    def _connect(self) -> None:
        known = {**self.results, **self.made}
        last: dict[str, Root] = {}
        changes: dict[tuple[str, int], Root] = {}
        for root in self.roots:
            own = root.node if root.kind != "store" else None
            rank = len(root.domain)
            if root.kind == "dot":
                operands = [(a, (UNKNOWN,) * len(a.shape)) for a in root.node.args]
            elif root.kind in ("reduce", "scan"):
                operands = [(root.node.args[0], identity_pattern(rank))]
            else:
                whole = identity_pattern(rank)
                operands = [(x, project_pattern(whole, x.shape, root.domain)) for x in root.operands]
            root.visits = visits(operands, known, own if root.kind == "keep" else None)
            root.needs, root.after, root.beside = {}, set(), set()
            for node, pattern in root.visits:
                maker = self.made.get(node)
                if maker is not None and maker is not root:
                    root.needs.setdefault(maker, set()).add((node, pattern))
                if node.kind in ("load", "slot") and node.data[1] > 0:
                    change = changes.get((source(node), node.data[1] - 1))
                    if change is not None:
                        root.after.add(change)
            if root.target:
                if root.target in last:
                    root.after.add(last[root.target])
                last[root.target] = changes[root.target, root.count] = root
            self._wait_for_readers(root)

    def _wait_for_readers(self, root: Root) -> None:
        """What reads the memory that a root changes, as it was before, must be done by then."""
        if not root.target:
            return
        for other in self.roots[: self.roots.index(root)]:
            stale = [(n, p) for n, p in other.visits if n.kind in ("load", "slot") and source(n) == root.target]
            if not stale:
                continue
            if all(same_place(n, p, root) for n, p in stale) and other.domain == root.domain:
                root.beside.add(other)
            else:
                root.after.add(other)

    def stale(self) -> list[tuple[TileNode, int]]:
        """Reads of memory that has changed by then, and the place of the root that changes it."""
        found: dict[TileNode, int] = {}
        changes = {(r.target, r.count): n for n, r in enumerate(self.roots) if r.target}
        for n, root in enumerate(self.roots):
            for node, pattern in root.visits:
                if node.kind not in ("load", "slot") or node in self.made:
                    continue
                at = changes.get((source(node), node.data[1]))
                if at is None or at > n or (at == n and same_place(node, pattern, root)):
                    continue
                found[node] = at
        for live in self.live:
            for node, _ in visits([(live, (UNKNOWN,) * len(live.shape))], {**self.results, **self.made}, None):
                if node.kind in ("load", "slot") and node not in self.made:
                    at = changes.get((source(node), node.data[1]))
                    if at is not None:
                        found[node] = at
        return sorted(found.items(), key=lambda item: item[1])

    def keep(self, node: TileNode, before: int | None = None) -> None:
        """Computes a node once, into memory, and lets everything read it from there."""
        root = Root("keep", node)
        at = len(self.roots) if before is None else before
        if before is None:
            at = min(n for n, r in enumerate(self.roots) if any(v is node for v, _ in r.visits))
        self.roots.insert(at, root)
        self.made[node] = root
        self._connect()

    def escapes(self) -> set[Root]:
        """The roots whose results later code reads."""
        known = {**self.results, **self.made}
        reached = visits([(n, (UNKNOWN,) * len(n.shape)) for n in self.live], known, None)
        return {self.made[n] for n, _ in reached if n in self.made}


def source(node: TileNode) -> str:
    """The memory that a load or a variable's node reads."""
    return str(node.data[0] if node.kind == "load" else node.data[2])


def same_place(node: TileNode, pattern: Pattern, root: Root) -> bool:
    """Whether a root that changes memory reads there just the element that it replaces."""
    if pattern != identity_pattern(len(root.domain)):
        return False
    return node.kind == "slot" or node.args[0] is root.pointer
