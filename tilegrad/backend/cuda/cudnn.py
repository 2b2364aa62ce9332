"""Convolutions by cuDNN's graph API, through ctypes; its older API requires dense tensors.

A graph consists of descriptors: strided tensors, the convolution, and pointwise operations. The library proposes
engines for it; a plan is an engine ready to run.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_bool, c_float, c_int, c_int64, c_void_p
from threading import Lock
from typing import Any

from ...errors import RuntimeFault
from ...ir.dtype import bfloat16, float16, float32
from .convolutions import ConvolutionProblem, StridedTensor
from .driver import Driver, LibraryCall, LibraryProblem, OpenLibrary

MAX_WORKSPACE_BYTES = 128 << 20
"""Largest workspace, in bytes, for reordered operands and partial sums."""
ALIGNMENT = 16
"""Alignment of tensors, in bytes."""
WORKSPACE_ALIGNMENT = 256
"""Alignment of the workspace, in bytes."""
MIN_SPATIAL_AXES = 2
"""Fewest spatial axes that the library supports."""
X, W, Y, BIAS = 1, 2, 3, 4
"""Unique ids of tensors in a graph."""

_CODES = {float32: 0, float16: 2, bfloat16: 9}
"""`cudnnDataType_t`."""
_POINTWISE, _CONVOLUTION, _ENGINE, _CONFIGURATION, _HEURISTIC, _PLAN = 0, 1, 2, 3, 4, 5
_FORWARD, _OF_WEIGHTS, _ELEMENTWISE, _GRAPH, _PACK, _TENSOR = 10, 11, 13, 15, 16, 17
"""Types of descriptors (`cudnnBackendDescriptorType_t`)."""
_HANDLE, _TYPE, _BOOLEAN, _LONG, _FLOAT, _ADDRESS, _MODE, _HEURISTIC_MODE = 0, 1, 2, 3, 4, 6, 7, 8
_NAN, _NUMERICAL_NOTE, _FUNCTION, _DESCRIPTOR = 10, 11, 14, 15
"""Types of attributes (`cudnnBackendAttributeType_t`)."""
_STORED: dict[int, Any] = {_LONG: c_int64, _FLOAT: c_float, _BOOLEAN: c_bool}
_STORED |= dict.fromkeys((_HANDLE, _ADDRESS, _DESCRIPTOR), c_void_p)
_CROSS_CORRELATION, _KEEP_NAN, _ADD, _RELU = 1, 1, 0, 100
_HEURISTIC_MODES = (3, 2)
"""Heuristic modes to query, best first, then the fallback."""
_TENSOR_CORES, _ROUNDS_INPUTS, _ROUNDS_SUMS, _ANY_ORDER = 0, 1, 2, 4
"""Numerical notes of engines."""

handle, out = c_void_p, POINTER(c_void_p)
TABLE: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (out,),
    "cudnnSetStream": (handle, handle),
    "cudnnBackendCreateDescriptor": (c_int, out),
    "cudnnBackendDestroyDescriptor": (handle,),
    "cudnnBackendSetAttribute": (handle, c_int, c_int, c_int64, c_void_p),
    "cudnnBackendGetAttribute": (handle, c_int, c_int, c_int64, POINTER(c_int64), c_void_p),
    "cudnnBackendFinalize": (handle,),
    "cudnnBackendExecute": (handle, handle, handle),
    "cudnnCreateTensorDescriptor": (out,),
    "cudnnSetTensorNdDescriptor": (handle, c_int, c_int, c_void_p, c_void_p),
    "cudnnDestroyTensorDescriptor": (handle,),
    "cudnnTransformTensor": (handle, *[c_void_p, handle, c_void_p] * 2),
}
"""Argument types of each library function; all return a `cudnnStatus_t`."""
Attribute = tuple[int, int, Sequence[Any]]
"""An attribute: (name, type, values)."""


class CuDnn(OpenLibrary):
    """The library in one CUDA context."""

    name, workspace, table = "cuDNN", MAX_WORKSPACE_BYTES, TABLE

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        place = c_void_p()
        self.call("cudnnCreate", byref(place))
        self.handle = place.value or 0
        self.lock = Lock()
        """Serialises calls: the stream belongs to the handle."""

    def problem(self, task: ConvolutionProblem) -> CudnnProblem:
        return CudnnProblem(self, task)


class GraphDescriptor:
    """A backend descriptor."""

    def __init__(self, dnn: CuDnn, kind: int, *attributes: Attribute) -> None:
        self.dnn, self.handle = dnn, 0
        self.dependencies = [x for _, _, values in attributes for x in values if isinstance(x, GraphDescriptor)]
        place = c_void_p()
        dnn.call("cudnnBackendCreateDescriptor", kind, byref(place))
        self.handle = place.value or 0
        for name, type, values in attributes:
            array = _array(type, [x.handle if isinstance(x, GraphDescriptor) else x for x in values])
            dnn.call("cudnnBackendSetAttribute", self.handle, name, type, len(values), array)
        if attributes:
            dnn.call("cudnnBackendFinalize", self.handle)

    def get(self, name: int, type: int, most: int) -> list[Any]:
        """Return an attribute with several values."""
        count, found = c_int64(), _array(type, [0] * most)
        self.dnn.call("cudnnBackendGetAttribute", self.handle, name, type, most, byref(count), found)
        return list(found[: min(most, count.value)])

    def parts(self, name: int, kind: int, most: int) -> list[GraphDescriptor]:
        """Return an attribute that consists of descriptors."""
        made = [GraphDescriptor(self.dnn, kind) for _ in range(most)]
        count, found = c_int64(), _array(_DESCRIPTOR, [x.handle for x in made])
        self.dnn.call("cudnnBackendGetAttribute", self.handle, name, _DESCRIPTOR, most, byref(count), found)
        return made[: count.value]

    def __del__(self) -> None:
        if self.handle:
            self.dnn.library.cudnnBackendDestroyDescriptor(self.handle)


class LegacyTensor:
    """A legacy tensor descriptor, for functions that require one."""

    def __init__(self, dnn: CuDnn, type: int, extents: Sequence[int], steps: Sequence[int]) -> None:
        self.dnn, self.handle, place = dnn, 0, c_void_p()
        dnn.call("cudnnCreateTensorDescriptor", byref(place))
        self.handle = place.value or 0
        sizes = [_array(_TYPE, values) for values in (extents, steps)]
        dnn.call("cudnnSetTensorNdDescriptor", self.handle, type, len(extents), *sizes)

    def __del__(self) -> None:
        if self.handle:
            self.dnn.library.cudnnDestroyTensorDescriptor(self.handle)


class CudnnProblem(LibraryProblem):
    """A convolution described to the library."""

    def __init__(self, dnn: CuDnn, convolution: ConvolutionProblem) -> None:
        self.dnn, self.convolution = dnn, convolution
        c = _first_row_problem(convolution) if convolution.of_weights else convolution
        more = (1,) * (MIN_SPATIAL_AXES - len(c.windows))
        self.rank = len(more) + len(c.windows)
        extents, taps, windows = (*more, *c.extents), (*more, *c.taps), (*more, *c.windows)
        steps = [c.channels * math.prod(taps[n:]) for n in range(self.rank + 1)]
        x = self._tensor(X, c.x, (c.images, c.channels, *extents), _steps(c.x, c.images, extents))
        w = self._tensor(W, c.w, (c.outputs, c.channels, *taps), (steps[0], 1, *steps[1:]))
        self.row = c.outputs * steps[0]
        """Elements of the weights, or of a row of them."""
        each = self.row * c.w.dtype.bytes
        self.gathered_bytes = (
            -(-each * len(convolution.rows) // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
            if len(convolution.rows) > 1
            else 0
        )
        """Bytes that collect the rows of a weight gradient."""
        if self.gathered_bytes:
            shape = (len(convolution.rows), c.outputs, 1, steps[0])
            lines = (self.row, steps[0], steps[0], 1), (steps[0], steps[0] * shape[0], steps[0], 1)
            self.part_stride, self.together = (LegacyTensor(dnn, _CODES[c.w.dtype], shape, at) for at in lines)
        self.shape = (c.images, c.outputs, *windows), _steps(c.y, c.images, windows)
        y = self._tensor(Y, c.y, *self.shape)
        even, zeros = (1,) * self.rank, (0,) * self.rank
        how = ((102, (*more, *c.dilation)), (103, even), (104, zeros), (105, zeros), (106, (self.rank,)))
        kind = (100, _TYPE, (_CODES[float32],)), (101, _MODE, (_CROSS_CORRELATION,))
        description = GraphDescriptor(dnn, _CONVOLUTION, *kind, *[(name, _LONG, values) for name, values in how])
        following = [] if c.of_weights else [*[_ADD] * (c.bias >= 0), *[_RELU] * c.relu]
        made = [*[self._virtual_tensor(n) for n in range(len(following))], y]
        kind_of, first = (_OF_WEIGHTS, 712) if c.of_weights else (_FORWARD, 700)
        sides = (w, x, y) if c.of_weights else (w, x, made[0])
        factors = (first, _FLOAT, (1.0,)), (first + 1, _FLOAT, (0.0,)), (first + 2, _DESCRIPTOR, (description,))
        work = GraphDescriptor(
            dnn, kind_of, *factors, *[(first + 3 + n, _DESCRIPTOR, (side,)) for n, side in enumerate(sides)]
        )
        pairs = zip(following, made, made[1:], strict=False)
        steps_of_graph = [work, *[self._pointwise(*pair) for pair in pairs]]
        self.graph = GraphDescriptor(dnn, _GRAPH, (800, _HANDLE, (dnn.handle,)), (801, _DESCRIPTOR, steps_of_graph))

    def _pointwise(self, function: int, x: GraphDescriptor, y: GraphDescriptor) -> GraphDescriptor:
        """Return a pointwise operation on the sums."""
        c = self.convolution
        nans = [(2, _NAN, (_KEEP_NAN,))] if function == _RELU else []
        kind = GraphDescriptor(self.dnn, _POINTWISE, (0, _FUNCTION, (function,)), (1, _TYPE, (_CODES[float32],)), *nans)
        sides = [(750, _DESCRIPTOR, (kind,)), (751, _DESCRIPTOR, (x,)), (753, _DESCRIPTOR, (y,))]
        if function == _ADD:
            ones = (1,) * self.rank
            bias = self._tensor(BIAS, c.y._replace(first=0), (1, c.outputs, *ones), (c.outputs, 1, *ones))
            sides.append((752, _DESCRIPTOR, (bias,)))
        return GraphDescriptor(self.dnn, _ELEMENTWISE, *sides)

    def _tensor(self, name: int, lying: StridedTensor, extents: Sequence[int], steps: Sequence[int]) -> GraphDescriptor:
        evenly = math.gcd(ALIGNMENT, lying.first * lying.dtype.bytes, lying.part_stride * lying.dtype.bytes)
        numbers = ((902, _LONG, extents), (903, _LONG, steps), (906, _LONG, (name,)), (900, _LONG, (evenly,)))
        return GraphDescriptor(self.dnn, _TENSOR, (901, _TYPE, (_CODES[lying.dtype],)), *numbers)

    def _virtual_tensor(self, number: int) -> GraphDescriptor:
        """Return a virtual tensor, which is never in memory."""
        numbers = ((902, _LONG, self.shape[0]), (903, _LONG, self.shape[1]), (906, _LONG, (BIAS + 1 + number,)))
        more = (900, _LONG, (ALIGNMENT,)), (907, _BOOLEAN, (True,))
        return GraphDescriptor(self.dnn, _TENSOR, (901, _TYPE, (_CODES[float32],)), *numbers, *more)

    def _configurations(self, most: int) -> Iterator[tuple[int, int, GraphDescriptor]]:
        """Yield the proposed engine configurations with their heuristic mode and rank."""
        for mode in _HEURISTIC_MODES:
            try:
                proposer = GraphDescriptor(
                    self.dnn, _HEURISTIC, (200, _HEURISTIC_MODE, (mode,)), (201, _DESCRIPTOR, (self.graph,))
                )
                found = proposer.parts(202, _CONFIGURATION, most)
            except RuntimeFault:  # this heuristic has no proposal
                continue
            for n, configuration in enumerate(found):
                yield mode, n, configuration

    def _plan(self, configuration: GraphDescriptor) -> GraphDescriptor:
        return GraphDescriptor(
            self.dnn, _PLAN, (400, _HANDLE, (self.dnn.handle,)), (401, _DESCRIPTOR, (configuration,))
        )

    def algorithms(self, most: int) -> list[bytes]:
        """Return the library's proposed deterministic algorithms with the requested arithmetic, best first."""
        found: list[bytes] = []
        for mode, n, configuration in self._configurations(most):
            try:
                (engine,) = configuration.parts(300, _ENGINE, 1)
                notes, (which,) = set(engine.get(1303, _NUMERICAL_NOTE, 32)), engine.get(1301, _LONG, 1)
                if notes & self._excluded_notes() or len(found) == most:
                    continue
                (workspace,) = self._plan(configuration).get(402, _LONG, 1)
            except RuntimeFault:  # the engine does not support the problem
                continue
            if workspace + self.gathered_bytes <= MAX_WORKSPACE_BYTES:
                found.append(struct.pack("<5q", mode, most, n, which, workspace))
        return found

    def _excluded_notes(self) -> set[int]:
        c = self.convolution
        exact = c.x.dtype is float32 and c.precision == "highest"
        return {_ROUNDS_INPUTS, _ROUNDS_SUMS, _ANY_ORDER} | ({_TENSOR_CORES} if exact else set())

    def call(self, name: str, algorithm: bytes, arguments: int) -> ConvolutionCall:
        mode, most, number, which, workspace = struct.unpack("<5q", algorithm)
        for found, n, configuration in self._configurations(most):
            if (found, n) == (mode, number):
                (engine,) = configuration.parts(300, _ENGINE, 1)
                if engine.get(1301, _LONG, 1) == [which]:
                    return ConvolutionCall(name, self, self._plan(configuration), workspace, arguments)
        raise RuntimeFault("cuDNN: other engines than before: TILEGRAD_LIBRARIES=off does without the library")


class ConvolutionCall(LibraryCall):
    """A library convolution in place of a kernel; `slots` are the addresses of the kernel's arguments and of the
    workspace.
    """

    def __init__(self, name: str, problem: CudnnProblem, plan: GraphDescriptor, workspace: int, arguments: int) -> None:
        self.name = f"{name} by cuDNN"
        self.problem, self.plan, self.workspace = problem, plan, workspace + problem.gathered_bytes
        self.one, self.zero = byref(c_float(1.0)), byref(c_float(0.0))
        self.slots = memoryview(bytearray(8 * (arguments + 1))).cast("Q")
        self.packs: list[tuple[tuple[int, ...], GraphDescriptor]] = []
        """Variant packs with the addresses they were made for, one per execution."""

    def start(self, driver: Driver, stream: int) -> None:
        problem, dnn, c = self.problem, self.problem.dnn, self.problem.convolution
        rows = len(c.rows)
        with dnn.lock:
            dnn.call("cudnnSetStream", dnn.handle, stream)
            for n, pack in enumerate(self._variant_packs(c.rows)):
                dnn.call("cudnnBackendExecute", dnn.handle, self.plan.handle, pack.handle)
                if problem.gathered_bytes and n % rows == rows - 1:
                    given, made = (problem.part_stride.handle, self.slots[-1]), self._at(c.w, n // rows)
                    to = (problem.together.handle, made)
                    dnn.call("cudnnTransformTensor", dnn.handle, self.one, *given, self.zero, *to)

    def _at(self, lying: StridedTensor, part: int, more: int = 0) -> int:
        return self.slots[lying.argument] + (lying.first + part * lying.part_stride + more) * lying.dtype.bytes

    def _variant_packs(self, rows: Sequence[int]) -> Iterator[GraphDescriptor]:
        """Yield the variant pack of each row of weights of each part."""
        c, slots, gathered = self.problem.convolution, self.slots, self.problem.gathered_bytes
        bias = (slots[c.bias],) if c.bias >= 0 else ()
        names, each = (X, W, Y, BIAS)[: 3 + len(bias)], self.problem.row * c.w.dtype.bytes
        for n, (part, row) in enumerate((part, row) for part in range(c.parts) for row in range(len(rows))):
            w = slots[-1] + row * each if gathered else self._at(c.w, part)
            places = (self._at(c.x, part, rows[row]), w, self._at(c.y, part), *bias, slots[-1] + gathered)
            if len(self.packs) == n:
                self.packs.append(((), self.plan))
            if self.packs[n][0] != places:
                settings = (1000, _LONG, names), (1001, _ADDRESS, places[:-1]), (1003, _ADDRESS, places[-1:])
                self.packs[n] = places, GraphDescriptor(self.problem.dnn, _PACK, *settings)
            yield self.packs[n][1]


def _first_row_problem(c: ConvolutionProblem) -> ConvolutionProblem:
    """Return the problem of the first row of weights, which must be dense: then no rows overlap."""
    x, y = (t._replace(steps=(*t.steps[:2], t.steps[-1])) for t in (c.x, c.y))
    x = x._replace(part_stride=math.gcd(x.part_stride, *c.rows))  # common alignment of all rows
    if len(c.rows) > 1:
        c = c._replace(w=c.w._replace(first=0, part_stride=c.outputs * c.channels * c.taps[-1]))
    return c._replace(windows=c.windows[-1:], taps=c.taps[-1:], dilation=c.dilation[-1:], x=x, y=y)


def _steps(lying: StridedTensor, images: int, extents: Sequence[int]) -> tuple[int, ...]:
    """Return strides per image, channel and axis; missing leading axes have one element."""
    image, channel, *axes = lying.steps
    whole = extents[-len(axes)] * axes[0]
    return (image if images > 1 else whole, channel, *[whole] * (len(extents) - len(axes)), *axes)


def _array(type: int, values: Sequence[Any]) -> Any:
    return (_STORED.get(type, c_int) * len(values))(*values)
