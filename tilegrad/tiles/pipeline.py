"""The passes from tile kernel to tile kernel in their order, each with the target and the kernels for which it runs.

`users` are the kernels that users wrote; those of the compiler need some passes no more. `explain` prints each stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..ir.tile import Kernel
from ..ir.tile_checker import check
from ..ir.tile_types import Types
from .defer_reductions import defer_reductions
from .name_expressions import name_expressions
from .name_operands import name_operands
from .name_reductions import name_reductions
from .sink_tile_loads import sink_tile_loads
from .specialise_borders import specialise_borders
from .split_loop_pointers import split_loop_pointers
from .wrap_lone_product import wrap_lone_product


class TilePass(NamedTuple):
    """A pass; it adds the names that it makes to the types of the kernel."""

    run: Callable[[Kernel, Types], Kernel]
    target: str = ""
    """The kind of device whose backend runs the pass; "" for all, before the device is known."""
    users_only: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__


PASSES = (
    TilePass(split_loop_pointers, users_only=True),
    TilePass(name_reductions, users_only=True),
    TilePass(specialise_borders, "cpu", users_only=True),
    TilePass(name_expressions, "cuda"),
    TilePass(defer_reductions, "cuda"),
    TilePass(name_operands, "cuda"),
    TilePass(wrap_lone_product, "cuda"),
    TilePass(sink_tile_loads, "cuda"),
)


def tile_stages(kernel: Kernel, target: str, users: bool = False, types: Types | None = None) -> Iterator[Kernel]:
    """Yield a kernel after each pass of a target."""
    chosen = passes(target, users)
    known = check(kernel) if types is None and chosen else types
    for step in chosen:
        assert known is not None
        kernel = step.run(kernel, known)
        yield kernel


def show_stages(kernels: Sequence[tuple[Kernel, bool]], target: str) -> dict[str, str]:
    """Print kernels (with whether users wrote them) after each pass of a target; those that a pass leaves are left out.

    >>> from ..ir.tile_parser import parse
    >>> kernel = parse('''
    ... def f(x: "*f32", out: "*f32"):
    ...     tl.store(out, tl.load(x) * 2)
    ... ''')
    >>> print(show_stages([(kernel, False)], "cuda")["name_expressions"])
    @tg.kernel
    def f(x: "*f32", out: "*f32"):
        x_ = tl.load(x)
        tl.store(out, x_ * 2)
    >>> show_stages([(kernel, False)], "cuda")["sink_tile_loads"]
    '(unchanged)'
    """
    found: dict[str, list[str]] = {p.name: [] for p in PASSES if p.target == target}
    for kernel, users in kernels:
        before = kernel
        for step, after in zip(passes(target, users), tile_stages(kernel, target, users), strict=True):
            found[step.name] += [str(after)] if after != before else []
            before = after
    return {name: "\n\n".join(dict.fromkeys(texts)) or "(unchanged)" for name, texts in found.items()}


def passes(target: str, users: bool) -> list[TilePass]:
    """List the passes of a target, for the kernels of users or of the compiler."""
    return [p for p in PASSES if p.target == target and (users or not p.users_only)]


def run_passes(kernel: Kernel, target: str, users: bool = False, types: Types | None = None) -> Kernel:
    """Return a kernel after all passes of a target."""
    return [kernel, *tile_stages(kernel, target, users, types)][-1]
