"""`tilegrad.cpp.inline`: make functions from C++ texts and files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from ..errors import ArgumentError
from ..ir.location import user_location
from . import glue
from .build import BuildOptions
from .function import Contiguous, CppFunction
from .patterns import Signature
from .signature import signatures
from .source import sources

CONTIGUOUS = ("copy", "check", "strided")
NO_UNDEFINED_FLAGS = ("-Wl,-z,defs",) if sys.platform.startswith("linux") else ()
"""Linker flags that report undefined symbols when a library is linked, not when it is called."""


class ForeignModule(ModuleType):
    """Several functions of one source, as attributes."""

    def __repr__(self) -> str:
        return f"<module of {', '.join(x for x in self.__all__)}>"


def read_signatures(given: object) -> list[Signature]:
    """Parse one or several signatures."""
    if isinstance(given, str):
        return signatures(given)
    if isinstance(given, list | tuple) and given and all(isinstance(x, str) for x in given):
        return signatures("\n".join(given))
    raise ArgumentError(
        f'signatures are a text or a list of texts, not {given!r:.60}: as in "square(x: float[*s]) -> float[*s]"'
    )


def texts(given: object, what: str) -> tuple[str, ...]:
    """Return texts or paths as a list."""
    if isinstance(given, str) or not isinstance(given, list | tuple):
        raise ArgumentError(f"{what} is a list of texts, not {given!r:.60}: write {what}=[{given!r}]")
    return tuple([os.fspath(x) for x in given])


def as_module(functions: Sequence[Any], name: str) -> Any:
    """Return the function if there is one, else a module of all."""
    return functions[0] if len(functions) == 1 else module_of(functions, name)


def module_of(functions: Sequence[Any], name: str) -> ForeignModule:
    """Return a module of functions."""
    made = ForeignModule(name, "\n\n".join(f.__doc__ or "" for f in functions))
    made.__all__ = [f.name for f in functions]  # type: ignore[attr-defined]
    for f in functions:
        setattr(made, f.name, f)
    return made


def cpp_inline(
    source: Any,
    signature: str | Sequence[str],
    *,
    flags: Sequence[str] = (),
    include: Sequence[str | os.PathLike[str]] = (),
    link: Sequence[str] = (),
    build_directory: str | os.PathLike[str] | None = None,
    contiguous: Contiguous = "copy",
    verbose: bool = False,
    doc: str | None = None,
) -> Any:
    """Make a function from C++: a body, or functions, as a text, a file, or a list of both.

    >>> import tilegrad as tg
    >>> square = tg.cpp.inline("for (int64_t i = 0; i < x.size(); ++i) out[i] = x[i] * x[i];",
    ...     "square(x: float[*s]) -> float[*s]")  # doctest: +SKIP
    >>> square(tg.tensor([[1.0, 2.0], [3.0, 4.0]]))  # doctest: +SKIP
    tensor([[ 1.,  4.],
            [ 9., 16.]])

    `signature` names the arguments, their dtypes and shapes, and the results; several signatures (a list, or one a
    line) give a module with one function each. Arguments are matched to the function's parameters by name; tensors are
    `tg::View`s, numbers are numbers, and named extents are `int64_t`. `contiguous` selects the treatment of views:
    "copy", "check" (an error), or "strided" (passed as they are: use x(i, j)).
    """
    origin = user_location()
    if contiguous not in CONTIGUOUS:
        raise ArgumentError(f"contiguous is {' or '.join(map(repr, CONTIGUOUS))}, not {contiguous!r}")
    wanted = read_signatures(signature)
    given = sources(source, origin)
    plans = glue.bind_functions(wanted, given)
    for plan in plans:
        if plan.definition is not None and not plan.definition.takes_call:
            glue.arguments(plan.signature, plan.definition)
    directory = os.path.abspath(os.fspath(build_directory)) if build_directory is not None else ""
    choices = BuildOptions(
        texts(flags, "flags"),
        texts(include, "include"),
        (*NO_UNDEFINED_FLAGS, *texts(link, "link")),
        directory,
        verbose,
    )
    made = [CppFunction(plans, plan, given, choices, origin, contiguous, doc or "") for plan in plans]
    for f in made:
        if not f.variables:
            f.library()
    return as_module(made, "module")
