"""Matrix products by cuBLASLt, through ctypes.

The library is column-major: a row-major matrix is its transpose there. So out = x @ y is computed as out.T = y.T @ x.T,
and a bias per column becomes one per row, which the library can add.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, ClassVar

from ...ir.dtype import bfloat16, float16, float32
from .driver import Driver, LibraryCall, LibraryProblem, OpenLibrary
from .products import Matrix, ProductProblem

WORKSPACE_BYTES = 32 << 20
"""Bytes of workspace for split-K sums."""
ALIGNMENT = 16
"""Alignment of matrices, in bytes."""

_CODES = {float32: 0, float16: 2, bfloat16: 14}
"""`cudaDataType_t`."""
_COMPUTE = {"highest": 68, "high": 77, "medium": 75}
"""`cublasComputeType_t`: float32, tf32, bfloat16."""
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS_POINTER, _BIAS_TYPE = 3, 4, 7, 8, 26
_RELU, _BIAS = 2, 4
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_MAX_WORKSPACE, _REDUCTIONS, _FIRST_ALIGNMENT = 1, 3, 5
_IN_ORDER = 2
"""Reduction scheme that is deterministic and accumulates in float32; the other deterministic one (4) rounds each part
to the result type.
"""

handle, out = c_void_p, POINTER(c_void_p)
TABLE: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (out,),
    "cublasLtMatmulDescCreate": (out, c_int, c_int),
    "cublasLtMatmulDescDestroy": (handle,),
    "cublasLtMatmulDescSetAttribute": (handle, c_int, c_void_p, c_size_t),
    "cublasLtMatrixLayoutCreate": (out, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutDestroy": (handle,),
    "cublasLtMatrixLayoutSetAttribute": (handle, c_int, c_void_p, c_size_t),
    "cublasLtMatmulPreferenceCreate": (out,),
    "cublasLtMatmulPreferenceDestroy": (handle,),
    "cublasLtMatmulPreferenceSetAttribute": (handle, c_int, c_void_p, c_size_t),
    "cublasLtMatmulAlgoGetHeuristic": (*[handle] * 7, c_int, c_void_p, POINTER(c_int)),
    "cublasLtMatmul": (
        *[handle] * 2,
        *[c_void_p, c_void_p, handle, c_void_p, handle],  # alpha, A, B
        *[c_void_p, c_void_p, handle, c_void_p, handle],  # beta, C, D
        *[c_void_p, c_void_p, c_size_t, handle],  # the algorithm, the workspace, the stream
    ),
}
"""Argument types of each library function; all return a `cublasStatus_t`."""


class Algorithm(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`: an algorithm of 64 bytes and its requirements."""

    _fields_: ClassVar[Any] = (
        ("how", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


class CublasLt(OpenLibrary):
    """The library in one CUDA context."""

    name, workspace, table = "cuBLASLt", WORKSPACE_BYTES, TABLE

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        self.handle = self.made("cublasLtCreate")

    def made(self, name: str, *arguments: Any) -> int:
        place = c_void_p()
        self.call(name, byref(place), *arguments)
        return place.value or 0

    def problem(self, task: ProductProblem) -> CublasLtProblem:
        return CublasLtProblem(self, task)


class CublasLtProblem(LibraryProblem):
    """A matrix product described to the library."""

    def __init__(self, lt: CublasLt, product: ProductProblem) -> None:
        self.lt, self.product = lt, product
        self.layouts: list[int] = []
        self.description = lt.made("cublasLtMatmulDescCreate", _COMPUTE[product.precision], _CODES[float32])
        a, transposed_a = self._operand(product.y, product.n, product.k, product.y.column == 1)
        b, transposed_b = self._operand(product.x, product.k, product.m, product.x.column == 1)
        c, transposed_c = self._operand(product.out, product.n, product.m, True)
        assert not transposed_c
        self.a, self.b, self.c = a, b, c
        self._set(_TRANSPOSE_A, c_int32(transposed_a))
        self._set(_TRANSPOSE_B, c_int32(transposed_b))
        epilogue = (_RELU if product.relu else 0) | (_BIAS if product.bias >= 0 else 0)
        self._set(_EPILOGUE, c_int32(epilogue or 1))
        if product.bias >= 0:
            self._set(_BIAS_TYPE, c_int32(_CODES[product.out.dtype]))

    def _operand(self, matrix: Matrix, rows: int, columns: int, plain: bool) -> tuple[int, int]:
        """Return the layout of an operand of rows x columns, and whether it is transposed."""
        pitch = matrix.line if plain else matrix.column
        shape = (rows, columns) if plain else (columns, rows)
        made = self.lt.made("cublasLtMatrixLayoutCreate", _CODES[matrix.dtype], *shape, pitch)
        self.layouts.append(made)
        if self.product.batch > 1:
            for what, value in (
                (_BATCH_COUNT, c_int32(self.product.batch)),
                (_BATCH_STRIDE, c_int64(matrix.batch_stride)),
            ):
                size = ctypes.sizeof(value)
                self.lt.call("cublasLtMatrixLayoutSetAttribute", made, what, byref(value), size)
        return made, int(not plain)

    def _set(self, what: int, value: Any) -> None:
        size = ctypes.sizeof(value)
        self.lt.call("cublasLtMatmulDescSetAttribute", self.description, what, byref(value), size)

    def set_bias(self, address: int) -> None:
        self._set(_BIAS_POINTER, c_uint64(address))

    def algorithms(self, most: int) -> list[bytes]:
        """Return the library's proposed algorithms, best first."""
        lt, count = self.lt, c_int()
        preference = lt.made("cublasLtMatmulPreferenceCreate")
        wishes: list[tuple[int, Any]] = [
            (_MAX_WORKSPACE, c_uint64(WORKSPACE_BYTES)),
            (_REDUCTIONS, c_uint32(_IN_ORDER)),
        ]
        wishes += [(_FIRST_ALIGNMENT + n, c_uint32(ALIGNMENT)) for n in range(4)]
        for what, value in wishes:
            size = ctypes.sizeof(value)
            lt.call("cublasLtMatmulPreferenceSetAttribute", preference, what, byref(value), size)
        found = (Algorithm * most)()
        sides = (self.a, self.b, self.c, self.c)
        status = lt.library.cublasLtMatmulAlgoGetHeuristic(
            lt.handle, self.description, *sides, preference, most, found, byref(count)
        )
        lt.call("cublasLtMatmulPreferenceDestroy", preference)
        usable = [a for a in found[: count.value] if not a.state] if not status else []
        return [bytes(a.how) for a in usable]

    def call(self, name: str, algorithm: bytes, arguments: int) -> ProductCall:
        return ProductCall(name, self, algorithm, arguments)

    def __del__(self) -> None:
        for layout in getattr(self, "layouts", ()):
            self.lt.library.cublasLtMatrixLayoutDestroy(layout)
        if hasattr(self, "description"):
            self.lt.library.cublasLtMatmulDescDestroy(self.description)


class ProductCall(LibraryCall):
    """A library product in place of a kernel; `slots` are addresses of the kernel's arguments and the workspace."""

    workspace = WORKSPACE_BYTES

    def __init__(self, name: str, problem: CublasLtProblem, algorithm: bytes, arguments: int) -> None:
        self.name = f"{name} by cuBLASLt"
        self.problem = problem
        self.algorithm = (c_uint64 * 8).from_buffer_copy(algorithm)
        self.slots = memoryview(bytearray(8 * (arguments + 1))).cast("Q")
        self.bias = 0
        """Bias address that was set last."""
        product = problem.product
        self.arguments = product.x.argument, product.y.argument, product.out.argument, product.bias
        self.one, self.zero, self.how = byref(c_float(1.0)), byref(c_float(0.0)), byref(self.algorithm)

    def start(self, driver: Driver, stream: int) -> None:
        problem, slots = self.problem, self.slots
        x, y, made, bias = self.arguments
        if bias >= 0 and slots[bias] != self.bias:
            self.bias = slots[bias]
            problem.set_bias(self.bias)
        out = slots[made]
        a, b, c, lt = problem.a, problem.b, problem.c, problem.lt
        left, right = (self.one, slots[y], a, slots[x], b), (self.zero, out, c, out, c)
        lt.call(
            "cublasLtMatmul",
            lt.handle,
            problem.description,
            *left,
            *right,
            self.how,
            slots[-1],
            WORKSPACE_BYTES,
            stream,
        )
