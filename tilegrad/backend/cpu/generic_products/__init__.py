"""Multiply matrices, batches and convolutions of any sizes and strides by kernels that are compiled once per machine.

    element types x processor ──► one object file: pack, multiply, store         (`code.py` and the `emit_*` modules)
    ProductForm + strides ──► GenericProduct: words that describe one product    (`product.py`)

The generated code reads operands through tables of offsets, which it fills from strides: the axes of a product may be
any number of axes of a tensor, the windows and taps of a convolution, or the phases of its gradient. Nothing is
compiled for a shape.
"""

from .product import GenericProduct as GenericProduct
from .product import StridedOperand as StridedOperand
from .product import generic_product as generic_product
