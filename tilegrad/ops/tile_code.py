"""Kernels of opaque ops, written as templates in the tile language and parsed when first compiled.

Parameters of a kernel, in order: the inputs, the output (`out`), and symbolic sizes (int64, `size_n` for n). A kernel
that needs scratch memory enlarges its output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..ir.dtype import int64
from ..ir.graph import TensorType
from ..ir.precision import Precision
from ..ir.program import Tiles as Tiles
from ..ir.size import Dim, Shape, Size
from ..ir.tile import Assign, Cast, Dot, Kernel, Literal, Name, ProgramId, Tile, TileParameter
from ..ir.tile_parser import parse
from ..ir.tile_rewrite import rewrite, strings_in


class TileCode(NamedTuple):
    """A kernel with its grid and the sizes passed behind the tensors."""

    kernel: Kernel
    grid: tuple[Tiles, ...]
    sizes: tuple[Dim, ...] = ()


def tile_code(text: str, inputs: Mapping[str, TensorType], output: TensorType, grid: tuple[Tiles, ...]) -> TileCode:
    """Parse a kernel from its text, with the parameters in place of `PARAMETERS`."""
    names = size_names([d for t in inputs.values() for d in t.shape])
    pointers = [f'{n}: "*{t.dtype}"' for n, t in {**inputs, "out": output}.items()]
    sizes = [f'{size_parameter(n)}: "i64"' for n in names]
    kernel = parse(text.replace("PARAMETERS", ", ".join([*pointers, *sizes])))
    return TileCode(kernel, grid, tuple(map(Size.named, names)))


def with_precision(code: TileCode, precision: Precision) -> TileCode:
    """Return a kernel with the precision of its dots raised to a minimum."""
    if precision == "highest":
        return code

    def at(part: Any) -> Any:
        return part.replaced(precision=precision) if isinstance(part, Dot) else None

    return code._replace(kernel=code.kernel.replaced(body=rewrite(code.kernel.body, at)))


def fill_template(text: str, blocks: Mapping[str, str], words: Mapping[str, object]) -> str:
    r"""Replace placeholders in a template: lines by indented blocks, and words by text.

    >>> print(fill_template("for k in range(0, N):\n    BODY", {"BODY": "x += 1\ny += 2"}, {"N": 8}))
    for k in range(0, 8):
        x += 1
        y += 2
    <BLANKLINE>
    """
    lines: list[str] = []
    for line in text.splitlines():
        block = blocks.get(line.strip())
        indent = line[: len(line) - len(line.lstrip())]
        lines += [line] if block is None else [indent + inner for inner in block.splitlines() if inner]
    made = "\n".join(lines) + "\n"
    for word in sorted(words, key=len, reverse=True):
        made = made.replace(word, str(words[word]))
    return made


def show_size(size: Dim) -> str:
    """Format a size in tile code.

    >>> show_size(3), show_size(Size.named("n") * 2 + 1)
    ('3', '(2*size_n + 1)')
    """
    if not isinstance(size, Size):
        return str(size)
    return f"({Size({tuple(map(size_parameter, names)): c for names, c in size.terms.items()})})"


def size_parameter(size: str) -> str:
    """Return the parameter name of a symbolic size, which cannot clash with variables."""
    return f"size_{size}"


def unravel(flat: str, shape: Shape) -> list[str]:
    """Return tile code of the position in a shape from a row-major number.

    >>> unravel("i", (2, 3, 4))
    ['i // 4 // 3', 'i // 4 % 3', 'i % 4']
    """
    position: list[str] = []
    for size in reversed(shape[1:]):
        position.append(f"{flat} % {show_size(size)}")
        flat = f"{flat} // {show_size(size)}"
    return [flat, *reversed(position)] if shape else []


def flat_offset(position: Sequence[str], strides: Sequence[Dim], zero: str = "0") -> str:
    """Return tile code of an offset, the sum of positions times strides.

    >>> flat_offset(["i // 4", "i % 4"], [8, 1]), flat_offset(["i"], [0], "i * 0")
    ('(i // 4) * 8 + (i % 4)', 'i * 0')
    """
    terms = [
        f"({p})" if stride == 1 else f"({p}) * {show_size(stride)}"
        for p, stride in zip(position, strides, strict=True)
        if stride != 0
    ]
    return " + ".join(terms) or zero


# --- batched kernels ------------------------------


def repeat_kernel(code: TileCode, types: Sequence[TensorType], mapped: Sequence[bool], entries: Dim) -> TileCode:
    """Batch a kernel over a leading axis.

    `types` are those of its tensors for one entry; `mapped` says which of them have the axis. The entry is the last
    axis of the grid.
    """
    kernel, grid, sizes = code
    taken = strings_in(kernel)
    entry = next(n for k in range(99) if (n := f"entry{k or ''}") not in taken)
    moved: dict[Tile, Tile] = {
        Name(p.name): Name(p.name) + Name(entry) * size_expression(t.count)
        for p, t, has_axis in zip(kernel.parameters, types, mapped, strict=False)
        if has_axis
    }
    body = rewrite(kernel.body, lambda part: moved.get(part) if isinstance(part, Tile) else None)
    names = size_names([entries, *sizes, *(d for t in types for d in t.shape)])
    pointers = [p for p in kernel.parameters if p.pointer]
    made = Kernel(
        f"{kernel.name}_each",
        (*pointers, *(TileParameter(size_parameter(n), int64, pointer=False) for n in names)),
        (Assign(entry, Cast(ProgramId(len(grid)), int64)), *body),
        kernel.origin,
    )
    return TileCode(made, (*grid, Tiles(entries, 1)), tuple(map(Size.named, names)))


def size_names(dims: Sequence[Dim]) -> list[str]:
    return sorted({name for d in dims if isinstance(d, Size) for name in d.names()})


def size_expression(size: Dim) -> Tile:
    """Return a size as an expression of the tile language."""
    if not isinstance(size, Size):
        return Literal(size)
    total: Tile = Literal(0)
    for names, coefficient in size.terms.items():
        term: Tile = Literal(coefficient)
        for name in names:
            term = term * Name(size_parameter(name))
        total = term if total == Literal(0) else total + term
    return total
