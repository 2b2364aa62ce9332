"""Text of the multiplication of operands in shared memory: by warps on tensor cores, or by threads."""

from __future__ import annotations

from typing import NamedTuple

from .dot_tiling import Tiling
from .hardware import LINE_BYTES


class LoopIteration(NamedTuple):
    """An iteration of nested loops around a product, as text."""

    loops: list[tuple[str, str, str, str, str]]
    """Type, index, start, stop and step of each loop, outermost first."""
    numbers: list[str]
    """Scalar statements at its beginning."""
    sources: list[str]
    """Addresses of the operands' first elements."""
    indices: list[tuple[str, str]]
    """First values of the indices that the operands' masks compare; "" where there is no mask."""

    def nested(self, lines: list[str]) -> list[str]:
        """Nest lines in the loops."""
        for type, index, start, stop, step in reversed(self.loops):
            head = f"for ({type} {index} = {start}; {index} < {stop}; {index} += {step}) {{"
            lines = [head, *[f"    {line}" for line in lines], "}"]
        return lines


class Pipeline(NamedTuple):
    """A software-pipelined loop: copies of operands and products of those copied before."""

    iteration: LoopIteration
    parts: int
    """Stages of an iteration."""
    stages: int
    places: list[str]
    """Declarations of a stage's memory."""
    copies: list[str]
    products: list[str]

    @property
    def trip_count(self) -> str:
        """The line that declares the number of stages in all."""
        _, _, start, stop, step = self.iteration.loops[-1]
        total = f"(({stop}) - ({start}) + {step} - 1) / ({step})"
        return f"const int iterations = {total}{f' * {self.parts}' if self.parts > 1 else ''};"

    @property
    def lines(self) -> list[str]:
        """The loop."""
        type, index, start, _, step = self.iteration.loops[-1]
        number, ahead = "at" if self.parts == 1 else f"at / {self.parts}", self.stages - 1
        return [
            "auto copy = [&](int at) {",
            f"    const {type} {index} = {start} + {number} * {step};",
            *[f"    {line}" for line in (*self.iteration.numbers, *self.places, *self.copies)],
            "};",
            f"for (int at = 0; at < {ahead}; ++at) {{",
            "    if (at < iterations) copy(at);",
            "    commit_copies();",
            "}",
            "for (int at = 0; at < iterations; ++at) {",
            f"    wait_for_copies<{ahead - 1}>();",
            "    __syncthreads();",
            f"    if (at + {ahead} < iterations) copy(at + {ahead});",
            "    commit_copies();",
            *[f"    {line}" for line in (*self.places, *self.products)],
            "}",
            "wait_for_copies<0>();",
        ]


def part_source(source: str, parts: int, advance: int) -> str:
    """Return the address of the current part of an iteration's operand."""
    return source if parts == 1 else f"{source} + int64(at % {parts}) * {advance}"


class Operand(NamedTuple):
    """An operand in shared memory for tensor cores; `transposed` if its lines do not run along k."""

    address: str
    transposed: bool
    bytes: int
    """Bytes of an element."""
    depth: int
    """Extent along k."""
    extent: int
    """Extent along the other axis."""

    @property
    def line(self) -> int:
        """Elements of a line of 128 bytes."""
        return 128 // self.bytes

    @property
    def size(self) -> int:
        """Size in bytes: whole lines and panels."""
        if self.transposed:
            return -(-self.extent // self.line) * self.depth * 128
        return -(-self.depth // self.line) * self.extent * 128

    def place(self, position: str, k: str) -> tuple[str, str]:
        """Return the line and the 16-byte piece of an element; panels are consecutive."""
        along, across, lines = (position, k, self.depth) if self.transposed else (k, position, self.extent)
        per_piece, one_panel = 16 // self.bytes, (self.extent if self.transposed else self.depth) <= self.line
        if one_panel:
            return across, f"({along}) / {per_piece}"
        return f"({along}) / {self.line} * {lines} + {across}", f"({along}) % {self.line} / {per_piece}"


def warp_products(sums: str, tiling: Tiling, x: Operand, y: Operand) -> list[str]:
    """Return `sums += x @ y` by warps; `sums` is [rows / 16][2][columns / 8][2]."""
    step = 32 // x.bytes
    high, wide = tiling.rows // 16, tiling.columns // 8
    half, quarter = "lane % 16", "lane / 16 * 8 + lane % 8"
    k = f"step * {step}"
    first_row = "row" if high == 1 else "row + 16 * i"
    first_column = "column" if wide == 2 else "column + 16 * j"
    numbers = x.bytes == 4
    if x.transposed:  # pieces run along the rows: ldmatrix transposes blocks of 8 x 8
        x_at = x.place(first_row, k) if numbers else x.place(f"{first_row} + lane / 8 % 2 * 8", f"{k} + {quarter}")
    else:
        x_at = x.place(f"{first_row} + {half}", f"{k} + lane / 16 * {step // 2}")
    if y.transposed:
        at = (first_column, k) if numbers else (f"{first_column} + lane / 16 * 8", f"{k} + lane / 8 % 2 * 8 + lane % 8")
        y_at = y.place(*at)
    else:
        y_at = y.place(f"{first_column} + {quarter}", f"{k} + lane / 8 % 2 * {step // 2}")
    first = "sums[{}]".replace("sums", sums)
    at_i = first.format("i") if high > 1 else sums
    return [
        "#pragma unroll 4",
        f"for (int step = 0; step < {x.depth // step}; ++step) {{",
        f"    uint32 a[{high}][4], b[{wide // 2}][4];",
        *_reads(x, "a[i]", x_at, f"for (int i = 0; i < {high}; ++i)", left=True),
        *_reads(y, "b[j]", y_at, f"for (int j = 0; j < {wide // 2}; ++j)", left=False),
        f"    for (int i = 0; i < {high}; ++i)",
        f"        for (int j = 0; j < {wide}; ++j)",
        f"            multiply({at_i}[0][j], {at_i}[1][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);",
        "}",
    ]


def _reads(operand: Operand, target: str, at: tuple[str, str], loop: str, left: bool) -> list[str]:
    """Read a step of an operand to registers; 32-bit numbers are rounded there."""
    line, piece = at
    if operand.bytes != 4:
        read = "read_transposed_fragments" if operand.transposed else "read_fragments"
        return [f"    {loop}", f"        {read}({target}, piece_address({operand.address}, {line}, {piece}));"]
    text = f"read_fragments({target}, piece_address({operand.address}, {line}, {piece}));"
    if operand.transposed:
        text = f"read_words<{str(left).lower()}>({target}, {operand.address}, {line}, {piece}, lane);"
    return [f"    {loop} {{", f"        {text}", f"        round_to_tf32({target});", "    }"]


def thread_products(sums: str, tiling: Tiling, depth: int, pitches: tuple[int, int], kind: str) -> list[str]:
    """Return `sums += x @ y` by threads, from x_tile [k][rows] and y_tile [k][columns]; `sums` follows the layout."""
    (high, wide), (tall, broad) = tiling.pieces, (tiling.rows // 4, tiling.columns // 8)
    far = (4 * high * tiling.down, 8 * wide * tiling.across)
    reads = []
    for held, tile, pitch, first, near, count, stride in (
        ("a", "x_tile", pitches[0], "row", high, tall // high, far[0]),
        ("b", "y_tile", pitches[1], "column", wide, broad // wide, far[1]),
    ):
        at = f"{tile} + step * {pitch} + {first}"
        reads.append(f"    {kind} {held}[{count}][{near}];")
        reads.append(f"    for (int p = 0; p < {count}; ++p) read({held}[p], {at} + p * {stride});")
    places = [("p", tall // high, high), ("q", broad // wide, wide)]
    element = sums
    for far_name, count, near in places:
        element += (f"[{far_name}]" if count > 1 else "") + (f"[{far_name}{far_name}]" if near > 1 else "")
    product = {"float": "fmaf", "double": "fma"}.get(kind)
    a, b = f"a[p][{'pp' if high > 1 else 0}]", f"b[q][{'qq' if wide > 1 else 0}]"
    new = f"{product}({a}, {b}, {element})" if product else f"plus({element}, times({a}, {b}))"
    loops = []
    for name, count, near in places:
        for index, extent in ((name, count), (name * 2, near)):
            if extent > 1 or index == name:
                loops.append(f"for (int {index} = 0; {index} < {extent}; ++{index})")
    return [
        "#pragma unroll",
        f"for (int step = 0; step < {depth}; ++step) {{",
        *reads,
        *[f"    {'    ' * n}{loop}" for n, loop in enumerate(loops)],
        f"    {'    ' * len(loops)}{element} = {new};",
        "}",
    ]


def copy_lines(name: str, operand: Operand, source: str, element: str, pitch: int, threads: int) -> list[str]:
    """Start asynchronous copies of an operand: each thread copies some pieces of 16 bytes, always at the same place in
    a line.
    """
    per_piece, lines = 16 // operand.bytes, operand.size // LINE_BYTES
    rows = operand.depth if operand.transposed else operand.extent
    lines_per_pass = threads // 8
    text = [f"const {element}* {name}_from = {source} + threadIdx.x % 8 * {per_piece};"]
    to = f"piece_address({operand.address}, {{}}, threadIdx.x % 8)"
    if rows % lines_per_pass == 0:
        panels, each = lines // rows, rows // lines_per_pass
        line = f"threadIdx.x / 8 + n * {lines_per_pass}" if each > 1 else "threadIdx.x / 8"
        target = to.format(f"p * {rows} + {line}" if panels > 1 else line)
        inner = f"copy_16({target}, {name}_from + int64({line}) * {pitch}"
        inner += f" + p * {operand.line});" if panels > 1 else ");"
        loops = [f"for (int p = 0; p < {panels}; ++p)"] if panels > 1 else []
        loops += [f"for (int n = 0; n < {each}; ++n)"] if each > 1 else []
        return [*text, *[f"{'    ' * d}{loop}" for d, loop in enumerate(loops)], "    " * len(loops) + inner]
    return [
        *text,
        f"for (int line = threadIdx.x / 8; line < {lines}; line += {lines_per_pass})",
        f"    copy_16({to.format('line')},",
        f"        {name}_from + int64(line % {rows}) * {pitch} + line / {rows} * {operand.line});",
    ]


def warp_positions(held: Tiling) -> list[str]:
    """Declare the position of a warp's (or thread's) first accumulator in the tile."""
    lines = ["const int lane = thread % 32, warp = thread / 32;"]
    down = f"warp / {held.across}" if held.across > 1 else "warp"
    row, column = f"{down} * {held.rows}", f"warp % {held.across} * {held.columns}" if held.across > 1 else "0"
    if held.kind == "group":
        return []
    if held.kind == "thread":
        high, wide = held.pieces
        row, column = f"{down} * {4 * high} + lane / 8 * {high}", f"lane % 8 * {wide}"
        column = f"warp % {held.across} * {8 * wide} + {column}" if held.across > 1 else column
    return [*lines, f"const int row = {row if held.down > 1 or held.kind == 'thread' else '0'}, column = {column};"]
