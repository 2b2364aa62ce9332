"""Compile C++ functions ahead of time: `python -m tilegrad build DIR` makes a package and its wheel.

A source marks each function to export by a comment with its signature:

    // tilegrad: scale(x: F[n], alpha: float) -> F[n]  # x times alpha

The package contains one library for each choice of variable dtypes, and `functions.json`. Importing it needs no
compiler, but the platform that it was built on.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import re
import sysconfig
import zipfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from ..config import VERSION as TILEGRAD
from ..errors import ArgumentError, DataError, DTypeError, SignatureError
from ..ir.dtype import DType, dtype_named, float32, float64, int32, int64
from . import glue
from .abi import VERSION
from .build import BuildOptions, BuildReport, LoadedLibrary, build_cpp
from .function import CppFunction
from .inline import NO_UNDEFINED_FLAGS, ForeignModule, module_of
from .patterns import Signature
from .signature import parse
from .source import SUFFIXES, ForeignSource, source

MARK = re.compile(r"^\s*//\s*tilegrad:\s*(.+)$", re.MULTILINE)
LISTED = "functions.json"
CHOICES: dict[str, tuple[DType, ...]] = {"F": (float32, float64), "I": (int32, int64)}
UNCONSTRAINED_DTYPES = (float32, float64, int32, int64)
"""Dtypes that an unconstrained variable is instantiated with."""
INIT = '''"""{about}"""

from pathlib import Path

from tilegrad.foreign.ahead_of_time import load

_module = load(Path(__file__).parent)
__all__ = {names}
globals().update({{name: getattr(_module, name) for name in __all__}})
'''


def build(folder: Path, output: Path, name: str = "") -> tuple[Path, Path]:
    """Compile the sources in a folder; return the package and the wheel."""
    if not folder.is_dir():
        raise ArgumentError(f"{folder} is no folder: build takes one with C++ sources")
    name = name or re.sub(r"\W", "_", folder.resolve().name)
    if not name.isidentifier():
        raise ArgumentError(f"{name!r} cannot be imported under this name: give another with --name")
    paths = sorted(p for p in folder.iterdir() if SUFFIXES.get(p.suffix) in ("c", "c++"))
    given = [source(p) for p in paths]
    found = _signatures(given, folder)
    plans = glue.bind_functions(found, given)
    package = output / name
    package.mkdir(parents=True, exist_ok=True)
    libraries = []
    for dtypes in _instantiations(found):
        ending = ".".join(["library", *(dtypes[v].name for v in sorted(dtypes))])
        made = build_cpp(
            given,
            name=name,
            include=[str(folder)],
            link=NO_UNDEFINED_FLAGS,
            dress=lambda sources, chosen=dtypes: glue.add_glue(plans, sources, chosen),  # type: ignore[misc]
        )
        (package / f"{ending}.so").write_bytes(made.image)
        libraries.append(
            {
                "file": f"{ending}.so",
                "sha256": sha256(made.image).hexdigest(),
                "dtypes": {v: d.name for v, d in dtypes.items()},
            }
        )
        print(f"{package / ending}.so: {made.report}")
    raw = {plan.signature.name: plan.symbol for plan in plans}
    listed = {
        "abi": VERSION,
        "tilegrad": TILEGRAD,
        "platform": sysconfig.get_platform(),
        "functions": [{"signature": f"{s}  # {s.doc}", "symbol": raw[s.name]} for s in found],
        "libraries": libraries,
    }
    (package / LISTED).write_text(json.dumps(listed, indent=1) + "\n")
    about = f"{len(found)} functions in C++: {', '.join(s.name for s in found)}."
    (package / "__init__.py").write_text(INIT.format(about=about, names=[s.name for s in found]))
    return package, _wheel(package, output, about)


def _signatures(given: Sequence[ForeignSource], folder: Path) -> list[Signature]:
    found = []
    for one in given:
        for line in MARK.finditer(one.text):
            try:
                found.append(parse(line[1]))
            except SignatureError as wrong:
                number = one.text.count("\n", 0, line.start(1)) + 1
                raise SignatureError(f"{one.path}:{number}: {wrong.args[0]}") from None
    if not found:
        raise SignatureError(
            f"no source in {folder} says which functions it has: write a comment for each, as in\n"
            "    // tilegrad: square(x: float[*s]) -> float[*s]"
        )
    return found


def _instantiations(found: Sequence[Signature]) -> list[dict[str, DType]]:
    """Return all combinations of dtypes for the variables."""
    names = sorted({name for s in found for name in glue.variables_of(s)})
    return [
        dict(zip(names, chosen, strict=True))
        for chosen in product(*(CHOICES.get(n[0], UNCONSTRAINED_DTYPES) for n in names))
    ]


def _wheel(package: Path, output: Path, about: str) -> Path:
    """Write a wheel of the package for any Python 3 on this platform."""
    name, version = package.name, "0.1.0"
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    tag = f"py3-none-{platform}"
    described = f"{name}-{version}.dist-info"
    contents = {f"{name}/{p.name}": p.read_bytes() for p in sorted(package.iterdir()) if p.is_file()}
    contents[f"{described}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {about}\nRequires-Dist: tilegrad\n"
    ).encode()
    contents[f"{described}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: tilegrad {TILEGRAD}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    ).encode()
    rows = [f"{path},sha256={_sum(data)},{len(data)}" for path, data in contents.items()]
    contents[f"{described}/RECORD"] = "\n".join([*rows, f"{described}/RECORD,,", ""]).encode()
    path = output / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for place, data in contents.items():
            wheel.writestr(zipfile.ZipInfo(place, (2020, 1, 1, 0, 0, 0)), data)
    return path


def _sum(data: bytes) -> str:
    return base64.urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()


class Prebuilt(CppFunction):
    """A function of a prebuilt package."""

    def __init__(
        self,
        package: Path,
        listed: Mapping[str, Any],
        plans: Sequence[glue.FunctionBinding],
        mine: glue.FunctionBinding,
    ) -> None:
        super().__init__(plans, mine, [], BuildOptions(), None, "copy")
        self.package, self.listed = package, listed

    def _built(self, dtypes: Mapping[str, DType]) -> LoadedLibrary:
        for library in self.listed["libraries"]:
            chosen = {name: dtype_named(dtype) for name, dtype in library["dtypes"].items()}
            if all(chosen[name] is dtype for name, dtype in dtypes.items()):
                return _loaded(self.package / library["file"], library["sha256"])
        wanted = ", ".join(f"{name} = {dtype.name}" for name, dtype in dtypes.items())
        raise DTypeError(f"{self.name} was built for other dtypes than {wanted}: convert, or use tilegrad.cpp.inline")


_libraries: dict[str, LoadedLibrary] = {}


def _loaded(path: Path, wanted: str) -> LoadedLibrary:
    if wanted not in _libraries:
        image = path.read_bytes()
        if sha256(image).hexdigest() != wanted:
            raise DataError(f"{path} is not what was built: install its package again")
        report = BuildReport(path.stem, "", 0.0, 0.0, 0, 0)
        _libraries[wanted] = LoadedLibrary(ctypes.CDLL(os.fspath(path.resolve())), image, report, wanted)
    return _libraries[wanted]


def load(package: str | os.PathLike[str]) -> ForeignModule:
    """Load the functions of a folder that `python -m tilegrad build` made."""
    folder = Path(package)
    try:
        listed = json.loads((folder / LISTED).read_text())
        functions = [(parse(f["signature"]), f["symbol"]) for f in listed["functions"]]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise DataError(
            f"{folder} holds no functions that were built ({problem}): python -m tilegrad build DIR"
        ) from None
    if listed["abi"] > VERSION:
        raise DataError(f"{folder} was built by tilegrad {listed['tilegrad']}, a newer one: update tilegrad")
    if listed["platform"] != sysconfig.get_platform():
        raise DataError(
            f"{folder} was built for {listed['platform']}, and this is {sysconfig.get_platform()}: build it here"
        )
    plans = [AddressedFunction(signature, symbol) for signature, symbol in functions]
    return module_of([Prebuilt(folder, listed, plans, plan) for plan in plans], folder.name)


class AddressedFunction(glue.FunctionBinding):
    """A function at a known address in a library."""

    def __init__(self, signature: Signature, symbol: str) -> None:
        super().__init__(signature, 0, None)
        self._symbol = symbol

    @property
    def symbol(self) -> str:
        return self._symbol
