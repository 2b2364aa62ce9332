"""Run and export networks from the command line: `tilegrad run`, `tilegrad export`."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..autograd.modes import no_grad
from ..errors import ArgumentError, DataError, MissingFileError
from ..ir.dtype import from_numpy_dtype
from ..nn.module import Module
from ..tree import flatten
from .exported import ExportedProgram, export, load_program

DYNAMIC = re.compile(r"(?P<argument>\w+):(?P<axis>-?\d{1,3})=(?P<size>\w+)", re.ASCII)


def run_program(program: Path, inputs: Sequence[Path], output: Path | None, trust_code: bool = False) -> int:
    """Call a saved program with arrays from `.npy` files; print or write its results."""
    net = load_program(program, trust_code=trust_code)
    given = [array_in(path) for path in inputs]
    with no_grad():
        results = [x.numpy() for x in flatten(net(*given))[0]]
    for n, x in enumerate(results):
        if output is not None:
            path = output if len(results) == 1 else output.with_stem(f"{output.stem}_{n}")
            with open(path, "wb") as file:
                np.save(file, x)
            print(f"{path}: {x.dtype} {list(x.shape)}")
        else:
            print(f"{x.dtype} {list(x.shape)}\n{x}")
    return 0


def array_in(path: Path) -> np.ndarray[Any, Any]:
    """Read an array from a `.npy` file; objects, which would be executed, are refused."""
    try:
        found = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise MissingFileError(f"there is no file {path}") from None
    except (OSError, ValueError, EOFError) as why:
        raise DataError(f"{path} holds no array: {why}") from None
    if not isinstance(found, np.ndarray) or from_numpy_dtype(found.dtype) is None:
        raise DataError(f"{path} holds no array of numbers that tensors have")
    return found


def export_program(
    source: str,
    output: Path,
    inputs: Sequence[Path],
    dynamic: Sequence[str] = (),
    code: bool = False,
    c: bool = False,
) -> int:
    """Write the network of a Python file as a saved program, or a program in the other form.

    `source` is `file.py:name` or `module:name`, a module or a function that returns one; or a saved program, or a text.
    An output whose name ends in `.txt` gets the text form. With `code` the file gets machine code for arrays like the
    inputs; with `c` it is a shared object for C, for such arrays.
    """
    _check_options(output, inputs, code, c)
    arrays = tuple(map(array_in, inputs))
    path, _, name = source.rpartition(":")
    if path and name.isidentifier():
        program = export(_model(path, name), arrays, dynamic=_dynamic(dynamic)).eval()
    elif dynamic or (inputs and not code and not c):
        raise ArgumentError(f"{source} is a network already: it takes no inputs and no --dynamic")
    else:
        program = load_program(source)
    if c:
        print(f"{output}, {program.save_c(output, arrays)}")
        return 0
    _write(program, output, [arrays] if code else [])
    print(f"{output}: {len(program.graph.graph.values())} values, {len(program.tensor_names)} tensors")
    return 0


def _check_options(output: Path, inputs: Sequence[Path], code: bool, c: bool) -> None:
    if c and (code or not inputs):
        raise ArgumentError("--c writes a function in C for arrays like the inputs: name some, and no --code")
    if code and (output.suffix == ".txt" or not inputs):
        raise ArgumentError("--code stores machine code in a saved program, for arrays like the inputs: name some")


def _write(program: ExportedProgram, output: Path, code_for: Sequence[Any]) -> None:
    if output.suffix != ".txt":
        program.save(output, code_for)
        return
    from ..serialization.files import replacing

    with replacing(output) as file:
        file.write(str(program).encode())


def _model(path: str, name: str) -> Module:
    """Import a Python file or module, and return the network of this name in it."""
    if path.endswith(".py"):
        if not Path(path).is_file():
            raise MissingFileError(f"there is no file {path}")
        sys.path.insert(0, str(Path(path).resolve().parent))
        path = Path(path).stem
    else:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(path), name, None)
    except ModuleNotFoundError as why:
        raise MissingFileError(f"the module {path} cannot be imported: {why}") from None
    made = found() if callable(found) and not isinstance(found, Module) else found
    if not isinstance(made, Module):
        raise ArgumentError(f"{name} in {path} is {type(made).__name__}, not a module or a function that returns one")
    return made


def _dynamic(settings: Sequence[str]) -> dict[str, dict[int, str]]:
    """Read `argument:axis=size`.

    >>> _dynamic(["x:0=n", "x:1=length"])
    {'x': {0: 'n', 1: 'length'}}
    """
    found: dict[str, dict[int, str]] = {}
    for text in settings:
        parts = DYNAMIC.fullmatch(text)
        if parts is None:
            raise ArgumentError(f"--dynamic is argument:axis=size, as in input:0=n, not {text!r:.60}")
        found.setdefault(parts["argument"], {})[int(parts["axis"])] = parts["size"]
    return found
