"""Generate the LLVM module of the generic products of a dtype."""

from __future__ import annotations

from .description import ROW_BLOCKS, block_shape
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


def product_ir(format: ElementFormat) -> str:
    """Generate the LLVM module of an element format."""
    shape = block_shape(format.target, format)
    functions: list[FunctionBuilder] = [offsets_function(), runs_function()]
    functions += [pack_function(format), packed_copies(format), packed_transposed(format), packed_elements(format)]
    functions += [
        block_function(format, shape, rows, vectors)
        for rows in shape.row_variants
        for vectors in range(1, shape.vectors + 1)
    ]
    functions += [dots_function(format, shape, *block) for block in dot_blocks(shape)]
    functions += [rows_function(format, shape, *block, masked) for block in ROW_BLOCKS for masked in row_masks(format)]
    functions += [blocks_function(format, shape), padding_function(format), task_function(format, shape)]
    functions += [packed_function(format, shape), dots_task(format, shape), rows_task(format, shape)]
    functions += [tables_function(format, shape), store_function(format, shape)]
    entries = [prepare_function(format), multiply_function(format), finish_function(format), alone_function()]
    declared: dict[str, str] = {}
    for f in (*functions, *entries):
        declared |= f.declarations
    bits = format.target.vector_bytes * 8
    attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" }}'
    texts = [f.text() for f in functions] + [f.text("dso_local") for f in entries]
    return "\n".join([f"; products of {format.dtype}", *declared.values(), *texts, attributes, ""])
