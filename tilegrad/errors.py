"""Define the errors that users see. Each kind of mistake has its class; each message has the shapes and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar


def _nowhere() -> object:
    return None


locate: Callable[[], object] = _nowhere
"""Finds the user's line; set by `ir/location.py`."""


class TilegradError(RuntimeError):
    """Base class of all errors of tilegrad."""

    raised: ClassVar[int] = 0
    """The number of errors raised so far, by which a trace detects errors that the function caught."""

    def __init__(self, *message: object) -> None:
        super().__init__(*message)
        TilegradError.raised += 1
        self.location = locate()
        """The user's line that raised the error."""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} [at {self.location}]" if self.location else text


class ShapeError(TilegradError, ValueError):
    """Incompatible shapes."""


class DTypeError(TilegradError, TypeError):
    """An element type that the operation does not support."""


class DivisionError(TilegradError, ZeroDivisionError):
    """Division of integers by 0."""


class AxisError(TilegradError, IndexError):
    """An axis that the tensor does not have."""


class IndexRangeError(TilegradError, IndexError):
    """An index out of bounds."""


class DeviceError(TilegradError):
    """A missing device, or tensors on different devices."""


class GradientError(TilegradError):
    """A derivative that cannot be computed."""


class InPlaceError(TilegradError):
    """A forbidden in-place modification."""


class TraceError(TilegradError):
    """An operation that a traced function does not support."""


class KernelError(TilegradError):
    """An invalid tile kernel."""


class KernelSourceError(KernelError):
    """A line of a user's kernel that is not valid in the tile language."""


class KernelLaunchError(KernelError):
    """A launch whose arguments or grid do not match the kernel."""


class KernelFault(KernelError):
    """A fault found in a checked run of a kernel."""


class CompileError(TilegradError):
    """A kernel that a backend could not compile."""


class SignatureError(TilegradError, ValueError):
    """A signature that cannot be parsed, or does not match its source."""


class OperatorError(TilegradError):
    """A user's operator that does not do what it declares."""


class RuntimeFault(TilegradError):
    """A program that failed at run time."""


class LaunchError(RuntimeFault):
    """A launch beyond the limits of the device: threads, grid or shared memory."""


class ForeignError(RuntimeFault):
    """A failed function in another language, with its message or the signal that ended it."""


class CallError(ForeignError, TypeError):
    """Arguments that a function in another language does not accept."""


class NotThereError(ForeignError, NotImplementedError):
    """A case that a function in another language does not implement, such as an element type."""


class OutOfMemoryError(RuntimeFault, MemoryError):
    """An allocation beyond the memory of a device."""


class BudgetError(TilegradError, MemoryError):
    """A program that cannot fit its byte budget."""


class ArgumentError(TilegradError, ValueError):
    """An invalid argument."""


class DataError(TilegradError, ValueError):
    """A missing or damaged data file."""


class NaNError(TilegradError, ArithmeticError):
    """A NaN result, while NaN detection is on."""


class CheckpointError(DataError):
    """A damaged file of tensors, or one of another kind."""


class UnsafeFileError(CheckpointError):
    """A file that would execute code, which loading never does."""


class MissingFileError(DataError, FileNotFoundError):
    """A missing file."""


def check_callable(fn: object, op: str) -> None:
    """Raise an error unless the argument is callable."""
    if not callable(fn):
        raise ArgumentError(
            f"{op} takes a function, not {fn!r:.60} ({type(fn).__name__}): give the function itself, not its result"
        )
