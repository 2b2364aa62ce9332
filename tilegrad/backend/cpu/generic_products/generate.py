"""Generate the LLVM module of the generic products of a dtype."""

from __future__ import annotations

from .description import DOTS, METHODS, ROW_BLOCKS, ROWS, BlockShape, block_shape
from .element_format import ElementFormat
from .emit_blocks import (
    block_function,
    blocks_function,
    dot_blocks,
    dots_function,
    row_masks,
    rows_function,
)
from .emit_packing import pack_function, packed_copies, packed_elements, packed_transposed, padding_function
from .emit_tables import offsets_function, runs_function
from .emit_tasks import (
    alone_function,
    dots_task,
    finish_function,
    multiply_function,
    packed_function,
    prepare_function,
    rows_task,
    store_function,
    tables_function,
    task_function,
)
from .function_builder import FunctionBuilder


def _functions_of(method: int, format: ElementFormat, shape: BlockShape) -> list[FunctionBuilder]:
    """Emit the functions that one method needs."""
    if method == DOTS:
        return [*[dots_function(format, shape, *block) for block in dot_blocks(shape)], dots_task(format, shape)]
    if method == ROWS:
        blocks = [(*block, masked) for block in ROW_BLOCKS for masked in row_masks(format)]
        return [*[rows_function(format, shape, *block) for block in blocks], rows_task(format, shape)]
    sizes = [(rows, vectors) for rows in shape.row_variants for vectors in range(1, shape.vectors + 1)]
    return [
        *[pack_function(format), packed_copies(format), packed_transposed(format), packed_elements(format)],
        *[block_function(format, shape, *size) for size in sizes],
        *[blocks_function(format, shape), packed_function(format, shape)],
    ]


def product_ir(format: ElementFormat, method: int) -> str:
    """Generate the LLVM module of an element format and a method."""
    shape = block_shape(format.target, format)
    functions: list[FunctionBuilder] = [offsets_function(), runs_function(), padding_function(format)]
    functions += _functions_of(method, format, shape)
    functions += [task_function(format, shape, method), tables_function(format, shape), store_function(format, shape)]
    entries = [prepare_function(format), multiply_function(format), finish_function(format), alone_function()]
    declared: dict[str, str] = {}
    for f in (*functions, *entries):
        declared |= f.declarations
    bits = format.target.vector_bytes * 8
    attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" }}'
    texts = [f.text() for f in functions] + [f.text("dso_local") for f in entries]
    return "\n".join(
        [f"; products of {format.dtype}, by {METHODS[method]}", *declared.values(), *texts, attributes, ""]
    )
