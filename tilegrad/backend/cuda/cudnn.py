"""Convolutions by cuDNN, called through ctypes.

Tensors may lie anyhow there, and inputs may overlap, as rows of ours do. Weights are filters with their channels last.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from ctypes import POINTER, byref, c_double, c_float, c_int, c_size_t, c_void_p
from threading import Lock
from typing import Any, ClassVar

from ...errors import RuntimeFault
from ...ir.dtype import bfloat16, float16, float32
from .convolutions import Convolution, Lying
from .driver import Driver, LibraryCall, LibraryProblem, OpenLibrary

WORKSPACE = 128 << 20
"""Bytes at most, for operands in another order and parts of sums."""
LEAST_AXES = 2
"""Which the library wants."""

_CODES = {float32: 0, float16: 2, bfloat16: 9}
"""`cudnnDataType_t`."""
_CHANNELS_LAST, _CROSS_CORRELATION = 1, 1
_TENSOR_CORES, _MULTIPLY_ADD = 1, 3
"""`cudnnMathType_t`."""
_RELU, _IDENTITY, _KEEP_NAN = 1, 5, 1
_IMPLICIT_PRECOMPUTED = 1
"""The one way to add a bias that is not followed by a ReLU."""
_DETERMINISTIC = 1

handle, out, numbers = c_void_p, POINTER(c_void_p), POINTER(c_int)
_ASK = (*[handle] * 5, c_int, numbers, c_void_p)
_GO = (
    *[handle, c_void_p],
    *[handle, c_void_p] * 2,  # both operands
    *[handle, c_int, c_void_p, c_size_t],  # the convolution, the algorithm, the workspace
)
TABLE: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (out,),
    "cudnnSetStream": (handle, handle),
    "cudnnCreateTensorDescriptor": (out,),
    "cudnnSetTensorNdDescriptor": (handle, c_int, c_int, numbers, numbers),
    "cudnnDestroyTensorDescriptor": (handle,),
    "cudnnCreateFilterDescriptor": (out,),
    "cudnnSetFilterNdDescriptor": (handle, c_int, c_int, c_int, numbers),
    "cudnnDestroyFilterDescriptor": (handle,),
    "cudnnCreateConvolutionDescriptor": (out,),
    "cudnnSetConvolutionNdDescriptor": (handle, c_int, *[numbers] * 3, c_int, c_int),
    "cudnnSetConvolutionMathType": (handle, c_int),
    "cudnnDestroyConvolutionDescriptor": (handle,),
    "cudnnCreateActivationDescriptor": (out,),
    "cudnnSetActivationDescriptor": (handle, c_int, c_int, c_double),
    "cudnnDestroyActivationDescriptor": (handle,),
    "cudnnGetConvolutionForwardAlgorithm_v7": _ASK,
    "cudnnGetConvolutionBackwardFilterAlgorithm_v7": _ASK,
    "cudnnConvolutionForward": (*_GO, c_void_p, handle, c_void_p),
    "cudnnConvolutionBackwardFilter": (*_GO, c_void_p, handle, c_void_p),
    "cudnnConvolutionBiasActivationForward": (*_GO, c_void_p, *[handle, c_void_p] * 2, *[handle] * 2, c_void_p),
    "cudnnActivationForward": (handle, handle, *[c_void_p, handle, c_void_p] * 2),
}
"""Every function that is used, and what it takes. All return a `cudnnStatus_t`."""


class Algorithm(ctypes.Structure):
    """`cudnnConvolutionFwdAlgoPerf_t`, and the like for weights."""

    _fields_: ClassVar[Any] = (
        ("which", c_int),
        ("status", c_int),
        ("time", c_float),
        ("workspace", c_size_t),
        ("deterministic", c_int),
        ("mathematics", c_int),
        ("reserved", c_int * 3),
    )


class CuDnn(OpenLibrary):
    """The library, for the context in which this is made."""

    workspace = WORKSPACE

    def __init__(self, library: Any) -> None:
        self.library = library
        for name, arguments in TABLE.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, c_int
        self.handle = self.made("cudnnCreate")
        self.lock = Lock()
        """The stream belongs to the handle: one call at a time."""

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeFault(f"cuDNN: {name} answers {status}: TILEGRAD_LIBRARIES=off does without the library")

    def made(self, name: str) -> int:
        place = c_void_p()
        self.call(name, byref(place))
        return place.value or 0

    def problem(self, task: Convolution) -> Problem:
        return Problem(self, task)


class Problem(LibraryProblem):
    """A convolution as the library knows it."""

    def __init__(self, dnn: CuDnn, convolution: Convolution) -> None:
        self.dnn, self.convolution, c = dnn, convolution, convolution
        self.things: list[tuple[str, int]] = []
        more = max(0, LEAST_AXES - len(c.windows))
        ones = (1,) * more
        self.x = self._tensor(c.x, (c.images, c.channels, *ones, *c.extents))
        self.y = self._tensor(c.y, (c.images, c.outputs, *ones, *c.windows))
        self.w = self._made("Filter")
        shape = (c.outputs, c.channels, *ones, *c.taps)
        self._set("Filter", self.w, _CODES[c.w.dtype], _CHANNELS_LAST, len(shape), _array(shape))
        self.description = self._made("Convolution")
        rank = more + len(c.windows)
        steps = [_array(n) for n in ((0,) * rank, (1,) * rank, (*ones, *c.dilation))]
        self._set("Convolution", self.description, rank, *steps, _CROSS_CORRELATION, _CODES[float32])
        exact = c.x.dtype is float32 and c.precision == "highest"
        dnn.call("cudnnSetConvolutionMathType", self.description, _MULTIPLY_ADD if exact else _TENSOR_CORES)
        if c.bias >= 0:
            self.bias = self._made("Tensor")
            extents = (1, c.outputs, *(1,) * rank)
            strides = (c.outputs, *(1,) * (rank + 1))
            self._set("Tensor", self.bias, _CODES[c.y.dtype], len(extents), _array(extents), _array(strides))
        if c.bias >= 0 or c.relu:
            self.activation = self._made("Activation")
            kind = _RELU if c.relu else _IDENTITY
            dnn.call("cudnnSetActivationDescriptor", self.activation, kind, _KEEP_NAN, 0.0)

    def _made(self, kind: str) -> int:
        made = self.dnn.made(f"cudnnCreate{kind}Descriptor")
        self.things.append((kind, made))
        return made

    def _set(self, kind: str, made: int, *what: Any) -> None:
        self.dnn.call(f"cudnnSet{kind}NdDescriptor", made, *what)

    def _tensor(self, lying: Lying, extents: Sequence[int]) -> int:
        made = self._made("Tensor")
        image, channel, *axes = lying.steps
        more = len(extents) - len(lying.steps)
        strides = (image, channel, *[extents[-len(axes)] * axes[0]] * more, *axes)
        self._set("Tensor", made, _CODES[lying.dtype], len(extents), _array(extents), _array(strides))
        return made

    def algorithms(self, most: int) -> list[bytes]:
        """What the library would try first of what gives the same in each run."""
        dnn, c, found, count = self.dnn, self.convolution, (Algorithm * 16)(), c_int()
        sides = (self.x, self.y, self.description, self.w) if c.of_weights else self._forward()
        kind = "BackwardFilter" if c.of_weights else "Forward"
        ask = getattr(dnn.library, f"cudnnGetConvolution{kind}Algorithm_v7")
        if ask(dnn.handle, *sides, len(found), byref(count), found):
            return []
        usable = [
            (a.which, a.workspace)
            for a in found[: count.value]
            if not a.status and a.deterministic == _DETERMINISTIC and a.workspace <= WORKSPACE
        ]
        if c.bias >= 0 and not c.relu:
            usable = [way for way in usable if way[0] == _IMPLICIT_PRECOMPUTED]
        return [struct.pack("<qq", *way) for way in usable[:most]]

    def _forward(self) -> tuple[int, int, int, int]:
        return self.x, self.w, self.description, self.y

    def call(self, name: str, algorithm: bytes, arguments: int) -> ConvolutionCall:
        return ConvolutionCall(name, self, algorithm, arguments)

    def __del__(self) -> None:
        for kind, made in getattr(self, "things", ()):
            getattr(self.dnn.library, f"cudnnDestroy{kind}Descriptor")(made)


class ConvolutionCall(LibraryCall):
    """A convolution by the library in place of a kernel; `slots` are the addresses of the kernel's arguments, and then
    of the workspace."""

    def __init__(self, name: str, problem: Problem, algorithm: bytes, arguments: int) -> None:
        self.name = f"{name} by cuDNN"
        self.problem = problem
        self.how, self.workspace = struct.unpack("<qq", algorithm)
        self.slots = memoryview(bytearray(8 * (arguments + 1))).cast("Q")
        self.one, self.zero = byref(c_float(1.0)), byref(c_float(0.0))

    def start(self, driver: Driver, stream: int) -> None:
        dnn, c = self.problem.dnn, self.problem.convolution
        with dnn.lock:
            dnn.call("cudnnSetStream", dnn.handle, stream)
            for part in range(c.parts):
                self._part(*[self._address(lying, part) for lying in (c.x, c.w, c.y)])

    def _address(self, lying: Lying, part: int) -> int:
        return self.slots[lying.argument] + (lying.first + part * lying.apart) * lying.dtype.bytes

    def _part(self, x: int, w: int, y: int) -> None:
        problem, dnn, slots = self.problem, self.problem.dnn, self.slots
        c = problem.convolution
        how = (problem.description, self.how, slots[-1], self.workspace)
        if c.of_weights:
            given = (problem.x, x, problem.y, y, *how)
            dnn.call("cudnnConvolutionBackwardFilter", dnn.handle, self.one, *given, self.zero, problem.w, w)
            return
        given, made = (problem.x, x, problem.w, w, *how), (problem.y, y)
        if c.bias >= 0:
            more = (self.zero, *made, problem.bias, slots[c.bias], problem.activation, *made)
            dnn.call("cudnnConvolutionBiasActivationForward", dnn.handle, self.one, *given, *more)
            return
        dnn.call("cudnnConvolutionForward", dnn.handle, self.one, *given, self.zero, *made)
        if c.relu:
            dnn.call("cudnnActivationForward", dnn.handle, problem.activation, self.one, *made, self.zero, *made)


def _array(values: Sequence[int]) -> Any:
    return (c_int * len(values))(*values)
