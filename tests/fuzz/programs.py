"""Random programs in the notation of users: the same source text runs with PyTorch and with tilegrad.

A program is drawn from one whole number. It is grown line by line while PyTorch runs it, so that shapes and types of
everything are known, and a line that PyTorch refuses is left out. Two right ways to compute a program agree: what
jumps (comparisons, rounding, places of extremes) is applied to exact numbers only, which are few multiples of 1/256.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

EXTENTS = (3, 2, 4, 5, 3, 2, 8, 7, 1, 0, 4, 16, 17, 32, 6, 33)
FLOATS = ("float32", "float32", "float32", "float64", "float32", "float16", "bfloat16")
OTHERS = ("int64", "int64", "int32", "bool", "uint8", "int8", "int16")
MODES = ("plain", "looks", "jit", "gradient", "jit gradient", "threads")
WEIGHTS = (8, 4, 10, 3, 3, 1)
"""Weights of the kinds of lines."""
MAX_ELEMENTS = 4000
GRID = {"float64": (256, 256), "float32": (256, 256), "float16": (16, 32), "bfloat16": (4, 16)}
"""The parts of one, and the largest magnitude, of numbers that count as exact in a type."""
LARGEST = {"float64": 1e4, "float32": 1e4, "float16": 200.0, "bfloat16": 200.0}


STATE_VIEWS = (
    "S[0]",
    "S.transpose(0, -1)",
    "S.view(-1)",
    "S[..., ::2]",
    "S.detach()",
    "S[1:]",
    "S.data",
    "S[..., -1]",
    "S",
)
"""Views of the state that a program may keep."""
REFUSALS = (RuntimeError, IndexError, TypeError, ValueError, ZeroDivisionError, NameError, AttributeError)
"""Exceptions of PyTorch for a line that does not fit."""


VIEWS_OR_COPIES = re.compile(r"\.(reshape|reshape_as|flatten|view|view_as|contiguous|ravel)\(")
"""Methods that share memory, copy or refuse, by the strides of their operand."""


class Unfit(Exception):
    """A drawn line does not fit; another one is drawn."""


class Argument(NamedTuple):
    """A tensor that a program is called with."""

    number: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Call:
    """The arguments of one call of a program, and what its globals are then."""

    tensors: dict[str, Argument]
    numbers: dict[str, Any]
    globals: dict[str, Any]


@dataclass(frozen=True)
class Program:
    """Lines between tensors, numbers and flags that come in, and results."""

    seed: int
    mode: str
    calls: tuple[Call, ...]
    state: dict[str, Argument]
    """Tensors that are globals of the program: it may write to them."""
    lines: tuple[str, ...]
    results: tuple[str, ...]
    inexact: tuple[str, ...] = ()
    """Names whose elements depend on rounding."""
    views: Mapping[str, str] = field(default_factory=dict)
    """Globals that are parts of the state, each by an expression."""

    @property
    def source(self) -> str:
        names = ", ".join([*self.calls[0].tensors, *self.calls[0].numbers])
        body = [f"    {line}" for line in self.lines]
        if self.state:
            body.insert(0, f"    global {', '.join([*self.state, *self.views])}")
        return "\n".join([f"def program({names}):", *body, f"    return [{', '.join(self.results)}]", ""])

    def __str__(self) -> str:
        calls = "\n".join(f"    {c}" for c in self.calls)
        state = f"{self.state}, {self.views}" if self.views else str(self.state)
        return f"# seed {self.seed}, {self.mode}\n# state {state}\n{self.source}{calls}"

    def with_changes(self, **changes: Any) -> Program:
        return replace(self, **changes)


def to_plain(program: Program) -> dict[str, Any]:
    """A program as lists and dicts."""
    return asdict(program)


def from_plain(p: Mapping[str, Any]) -> Program:
    """The program that `to_plain` was given."""
    argument = lambda a: Argument(a[0], tuple(a[1]), a[2])  # noqa: E731
    calls = [Call({k: argument(a) for k, a in c["tensors"].items()}, c["numbers"], c["globals"]) for c in p["calls"]]
    state = {k: argument(a) for k, a in p["state"].items()}
    lines, results, inexact = (tuple(p[k]) for k in ("lines", "results", "inexact"))
    return Program(p["seed"], p["mode"], tuple(calls), state, lines, results, inexact, p.get("views", {}))


def given(number: int, shape: Iterable[int], dtype: str) -> np.ndarray:
    """The elements of an argument: quarters from -4.5 to 4.5, small whole numbers, or truth values; no extent that is
    drawn divides their periods, so that rows differ.
    """
    shape = tuple(shape)
    n = np.arange(int(np.prod(shape, dtype=np.int64))) * 7 + number * 5
    if dtype.endswith(("float16", "float32", "float64")):
        return ((n % 37 - 18) / 4.0).reshape(shape)
    if dtype == "bool":
        return (n % 11 < 5).reshape(shape)
    return (n % 19 - (0 if dtype == "uint8" else 9)).reshape(shape)


SHARING = 1
"""The argument that is part of a larger tensor, as a leaf too."""


def tensor(T: Any, a: Argument, tracked: bool = False, wide: bool = False) -> Any:
    """An argument as a tensor of PyTorch or tilegrad."""
    dtype = "float64" if wide and a.dtype in GRID else a.dtype
    elements = given(*a).reshape(-1)
    if a.number == SHARING:  # detached: PyTorch takes a view that is no leaf's for one whose history can change
        elements = np.concatenate([np.zeros(2, elements.dtype), elements, np.zeros(1, elements.dtype)])
        made = T.tensor(elements.tolist(), dtype=getattr(T, dtype))[2:-1].reshape(a.shape).detach()
    else:
        made = T.tensor(elements.tolist(), dtype=getattr(T, dtype)).reshape(a.shape).clone()
    return made.requires_grad_() if tracked and a.dtype in GRID else made


class Drawing:
    """A program while it grows: names, and what they are in PyTorch."""

    def __init__(self, seed: int, mode: str) -> None:
        import torch

        self.torch = torch
        self.seed, self.mode = seed, mode
        self.random = random.Random(seed)
        self.smooth = "gradient" in mode
        self.lines: list[str] = []
        self.inexact: set[int] = set()
        """Storages whose elements depend on rounding."""
        self.strict = False
        """Whether the move being drawn takes exact numbers only."""
        self.used: list[str] = []
        self.done: list[tuple[str, bool, str, list[str]]] = []
        """The lines, whether they write in place, the kinds of their moves, and the tensors in them."""
        self.start()

    def start(self) -> None:
        r = self.random
        main = r.choice(EXTENTS)
        self.extents = [main] if r.random() < 0.7 else [main, r.choice(EXTENTS), r.choice(EXTENTS)]
        tensors: dict[str, Argument] = {}
        for n in range(r.randint(1, 3)):
            rank = r.choice((2, 2, 2, 3, 1, 1, 0)) if n else r.choice((2, 2, 2, 3, 1))
            shape = [1 if r.random() < 0.06 else r.choice(self.extents) for _ in range(rank)]
            while np.prod([max(1, e) for e in shape]) > 1200:
                shape.pop()
            dtype = r.choice(FLOATS[:4] if self.smooth else FLOATS) if n == 0 or r.random() < 0.6 else r.choice(OTHERS)
            tensors[f"x{n}"] = Argument(n, tuple(shape), dtype)
        numbers: dict[str, Any] = {}
        if r.random() < 0.5:
            numbers["k"] = r.choice((2, 3, 1, -1, 0))
        if r.random() < 0.4:
            numbers["f"] = r.choice((0.5, 2.0, -1.5, 1.0, 0.25))
        if r.random() < 0.3:
            numbers["flag"] = r.random() < 0.5
        globals = {"G": r.choice((2, 1, 0.5))} if r.random() < 0.4 else {}
        self.call = Call(tensors, numbers, globals)
        self.state: dict[str, Argument] = {}
        if r.random() < 0.3 and not self.smooth:
            self.state["S"] = Argument(7, tensors["x0"].shape, tensors["x0"].dtype)
        self.views: dict[str, str] = {}
        if self.state and r.random() < 0.5:
            view = r.choice(STATE_VIEWS)
            if len(tensors["x0"].shape) >= view.count(":") and min(tensors["x0"].shape, default=0) > 1:
                self.views["R"] = view
        self.reset()

    # --- running -------------------------------------------------------------------------------

    def reset(self) -> None:
        """Runs the program from its beginning."""
        self.space = space_of(self.torch, self.state, self.call.globals, self.views)
        self.names: dict[str, Any] = {k: tensor(self.torch, a, self.smooth) for k, a in self.call.tensors.items()} | {
            k: self.space[k] for k in (*self.state, *self.views)
        }
        self.space |= self.names | self.call.numbers
        self.inexact.clear()
        for move in self.done:
            self.execute(*move)

    def execute(self, line: str, writes: bool, kind: str, used: list[str]) -> None:
        """Runs a line, and notes what of its results is exact."""
        exact = kind != "smooth" and all(self.exact(n) for n in used)
        if VIEWS_OR_COPIES.search(line) and any(self.lies_otherwise(n) for n in used):
            raise Unfit
        exec(line, self.space)
        for name, value in self.space.items():
            if name[0] in "vw" and isinstance(value, self.torch.Tensor) and self.names.get(name) is not value:
                self.names[name] = value
                self.note(value, exact)
        if writes and used:
            self.note(self.names[used[0]], exact)

    def note(self, x: Any, exact: bool) -> None:
        if x.numel() > MAX_ELEMENTS or x.dim() > 5:
            raise Unfit
        kind = str(x.dtype).removeprefix("torch.")
        if kind not in GRID:
            if kind not in (*OTHERS, "bool") or (x.numel() and kind in ("int64", "int32") and x.abs().max() > 10**6):
                raise Unfit
            return
        values = x.detach().double()
        if values.numel() and not (values.isfinite().all() and values.abs().max() <= LARGEST[kind]):
            raise Unfit
        parts, largest = GRID[kind]
        on_grid = exact and bool(((values * parts).frac() == 0).all() and (values.abs() <= largest).all())
        if not on_grid:
            self.inexact.add(x.untyped_storage()._cdata)

    def lies_otherwise(self, name: str) -> bool:
        """Whether PyTorch keeps the order of axes in memory from an operand: tilegrad has results row by row."""
        x = self.names[name]
        return not (x._base if x._is_view() else x).is_contiguous()

    def exact(self, name: str) -> bool:
        return self.names[name].untyped_storage()._cdata not in self.inexact or not self.is_float(name)

    # --- what moves ask for --------------------------------------------------------------------

    def is_float(self, name: str) -> bool:
        return bool(self.names[name].is_floating_point())

    def dtype(self, name: str) -> str:
        return str(self.names[name].dtype).removeprefix("torch.")

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.names[name].shape)

    def pick(self, fits: Callable[[Any], bool] = lambda x: True, kind: str = "any") -> str:
        """One of the names, recent ones more likely."""
        found = [n for n, x in self.names.items() if self.of_kind(x, kind) and fits(x)]
        if self.strict:
            found = [n for n in found if self.exact(n)]
        if not found:
            raise Unfit
        name = found[-1 - min(int(self.random.expovariate(0.35)), len(found) - 1)]
        self.used.append(name)
        return name

    @staticmethod
    def of_kind(x: Any, kind: str) -> bool:
        match kind:
            case "float":
                return bool(x.is_floating_point())
            case "int":
                return not x.is_floating_point() and str(x.dtype) != "torch.bool"
            case "bool":
                return str(x.dtype) == "torch.bool"
            case "number":
                return str(x.dtype) != "torch.bool"
        return True

    def partner(self, name: str, kind: str = "any") -> str:
        """Something that meets it in broadcasting."""
        x = self.names[name]

        def meets(y: Any) -> bool:
            return all(a == b or 1 in (a, b) for a, b in zip(reversed(x.shape), reversed(y.shape), strict=False))

        return self.pick(meets, kind)

    def number(self, whole: bool = False) -> str:
        """A number, as a literal or by name."""
        options = [k for k in ("k", "G", "f") if k in self.call.numbers or k in self.call.globals]
        options = [k for k in options if not (whole and isinstance((self.call.numbers | self.call.globals)[k], float))]
        if options and self.random.random() < 0.5:
            return self.random.choice(options)
        return self.random.choice(("2", "3", "1", "-1", "0") if whole else ("2", "0.5", "-1.5", "3", "1.0", "0.25"))

    def axis(self, name: str) -> int:
        rank = len(self.shape(name))
        if rank == 0:
            raise Unfit
        axis = self.random.randrange(rank)
        return axis - rank if self.random.random() < 0.4 else axis

    # --- growing -------------------------------------------------------------------------------

    def grow(self, moves: list[Any], count: int) -> None:
        for _ in range(count * 4):
            if len(self.done) >= count:
                return
            make, kind = self.random.choice(moves)
            self.used, self.strict = [], kind == "jump" or (kind == "kink" and self.smooth)
            try:
                line = make(self)
                writes = line.startswith("!")
                line = line[1:] if writes else f"v{len(self.done)} = {line}"
                self.execute(line, writes, kind, self.used)
            except (Unfit, *REFUSALS):
                self.reset()
            else:
                self.done.append((line, writes, kind, self.used))


def space_of(
    T: Any, state: Mapping[str, Argument], globals: Mapping[str, Any], views: Mapping[str, str], wide: bool = False
) -> dict[str, Any]:
    """The globals of a program."""
    tensors = {k: tensor(T, a, wide=wide) for k, a in state.items()}
    parts = {k: eval(view, dict(tensors)) for k, view in views.items()}
    return {"T": T, "F": T.nn.functional, "seen": [], **tensors, **parts, **globals}


def drawn(seed: int, mode: str | None = None, most: int = 40) -> Program:
    """The program of a number."""
    from tests.fuzz.program_moves import moves_for

    r = random.Random(-seed - 1)
    mode = mode or r.choices(MODES, WEIGHTS)[0]
    d = Drawing(seed, mode)
    count = min(most, 5 + int(r.expovariate(0.18)))
    d.grow(moves_for(mode), count)
    if not d.done:
        raise Unfit
    made = [n for n in d.names if n[0] == "v"] or list(d.names)
    if d.smooth:
        tracked = [n for n in made if d.is_float(n) and d.names[n].requires_grad]
        if not tracked:
            raise Unfit
        made = tracked
    text = "\n".join(line.partition(" = ")[2] or line for line, *_ in d.done)
    last = [n for n in made if not re.search(rf"\b{n}\b", text)] or made
    results = [made[-1]] + [r.choice(r.choice((last, last, made))) for _ in range(r.randrange(4))]
    calls = (d.call, *others(d, r)) if mode.startswith("jit") else (d.call,)
    inexact = tuple(n for n in d.names if not d.exact(n))
    lines = tuple(line for line, *_ in d.done)
    return Program(seed, mode, calls, d.state, lines, tuple(dict.fromkeys(results)), inexact, d.views)


def others(d: Drawing, r: random.Random) -> list[Call]:
    """Three more calls of a program: other elements; other numbers, shapes or types; the first one again."""

    def renewed(c: Call, change: Callable[[Argument], Argument] = lambda a: a, numbers: bool = True) -> Call:
        tensors = {k: change(a)._replace(number=a.number + 11) for k, a in c.tensors.items()}
        changed = {
            k: r.choice((v + 1, v * 0.5, -v)) if not isinstance(v, bool) else not v for k, v in c.numbers.items()
        }
        globals = {k: r.choice((v + 1, v * 0.5)) for k, v in c.globals.items()}
        return Call(tensors, changed if numbers else c.numbers, globals if numbers else c.globals)

    extent, new = r.choice(d.extents), r.choice((2, 3, 5, 1, 4, 8))
    kind = r.randrange(4)
    if kind == 0 and not d.state:
        sized = lambda a: a._replace(shape=tuple(new if e == extent else e for e in a.shape))  # noqa: E731
        third = renewed(d.call, sized)
    elif kind == 1 and not d.state:
        types = {"float32": "float64", "float64": "float32", "int64": "int32", "int32": "int64"}
        third = renewed(d.call, lambda a: a._replace(dtype=types.get(a.dtype, a.dtype)))
    else:
        third = renewed(d.call)
    return [renewed(d.call, numbers=False), third, d.call]
