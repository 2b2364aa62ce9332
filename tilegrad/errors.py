"""What users are told. Each kind of mistake has its class; each message has the shapes and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar


def _nowhere() -> object:
    return None


locate: Callable[[], object] = _nowhere
"""Finds the user's line; `ir/location.py` puts in what does."""


class TilegradError(RuntimeError):
    """Anything that tilegrad refuses to do."""

    raised: ClassVar[int] = 0
    """How many there were: whether a traced function caught some."""

    def __init__(self, *message: object) -> None:
        super().__init__(*message)
        TilegradError.raised += 1
        self.location = locate()
        """The user's line that was being worked for."""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} [at {self.location}]" if self.location else text


class ShapeError(TilegradError, ValueError):
    """Shapes that do not fit."""


class DTypeError(TilegradError, TypeError):
    """An element type that the operation does not take."""


class DivisionError(TilegradError, ZeroDivisionError):
    """Integers divided by 0."""


class AxisError(TilegradError, IndexError):
    """An axis that the tensor does not have."""


class IndexRangeError(TilegradError, IndexError):
    """An index outside its axis."""


class DeviceError(TilegradError):
    """A device that does not exist, or tensors on different ones."""


class GradientError(TilegradError):
    """A derivative that cannot be taken."""


class InPlaceError(TilegradError):
    """A change in place of something that must not change."""


class TraceError(TilegradError):
    """Something that a traced function cannot do."""


class KernelError(TilegradError):
    """A tile kernel that is wrong."""


class KernelSourceError(KernelError):
    """A line of a user's kernel that the tile language does not have, or that does not fit."""


class KernelLaunchError(KernelError):
    """A launch that a kernel does not take: its arguments, or its grid."""


class KernelFault(KernelError):
    """What a checked run of a kernel found."""


class CompileError(TilegradError):
    """A kernel that a backend could not compile."""


class SignatureError(TilegradError, ValueError):
    """A signature that cannot be read, or that does not fit the source it is for."""


class OperatorError(TilegradError):
    """An operator of the user's that does not do what it declares."""


class RuntimeFault(TilegradError):
    """A program that failed while it ran."""


class LaunchError(RuntimeFault):
    """A launch that the device cannot do: too many threads, too large a grid, too much shared memory."""


class ForeignError(RuntimeFault):
    """A function in another language that failed: what it said, or what ended it."""


class CallError(ForeignError, TypeError):
    """Arguments that a function in another language does not take."""


class NotThereError(ForeignError, NotImplementedError):
    """What a function in another language has no code for, such as an element type."""


class OutOfMemoryError(RuntimeFault, MemoryError):
    """More memory than a device has left."""


class BudgetError(TilegradError, MemoryError):
    """A program that cannot be made to take as little memory as was allowed."""


class ArgumentError(TilegradError, ValueError):
    """An argument that makes no sense."""


class DataError(TilegradError, ValueError):
    """A data file that is missing or damaged."""


class NaNError(TilegradError, ArithmeticError):
    """A result that is not a number, and somebody asked to be told."""


class CheckpointError(DataError):
    """A file of tensors that is damaged, or of another kind than it should be."""


class UnsafeFileError(CheckpointError):
    """A file that asks for code to be run, which loading never does."""


class MissingFileError(DataError, FileNotFoundError):
    """A file that is not there."""


def check_callable(fn: object, op: str) -> None:
    """Raises unless a function was given."""
    if not callable(fn):
        raise ArgumentError(
            f"{op} takes a function, not {fn!r:.60} ({type(fn).__name__}): give the function itself, not its result"
        )
