"""Write docs/reference: every public name with its signature, its docstring and the example in it.

python tools/reference.py            writes the pages
python tools/reference.py --check    fails if one differs from what would be written
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from fnmatch import fnmatch
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import tilegrad as tg
from tilegrad.tensor import Method  # type: ignore[attr-defined]

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
WIDTH = 118
PAGES = {
    "tilegrad": "Functions of tensors, dtypes, devices, compilation",
    "tilegrad.nn": "Layers, losses, containers",
    "tilegrad.nn.functional": "Layers and losses as functions",
    "tilegrad.nn.init": "Initialisation of parameters",
    "tilegrad.nn.utils": "Gradient clipping, parametrizations, fusion",
    "tilegrad.nn.models": "Models",
    "tilegrad.optim": "Optimizers",
    "tilegrad.optim.lr_scheduler": "Learning-rate schedules",
    "tilegrad.optim.swa_utils": "Averages of weights",
    "tilegrad.data": "Data sets, samplers, loaders",
    "tilegrad.autograd": "Gradients",
    "tilegrad.amp": "Mixed precision",
    "tilegrad.linalg": "Linear algebra",
    "tilegrad.random": "Random numbers",
    "tilegrad.runtime": "Engines, memory planning",
    "tilegrad.serialization": "Checkpoints",
    "tilegrad.language": "The tile language",
    "tilegrad.custom": "User-defined operators",
    "tilegrad.cpp": "C++ functions",
}


DIFFERENCES = Path(__file__).parent.parent / "tests" / "operators" / "differences.txt"
"""What the comparison of all operators with PyTorch finds, with reasons; a test holds that there is nothing else."""
WITH_DIFFERENCES = ("tilegrad", "tilegrad.linalg", "tilegrad.nn.functional")
"""Pages of the functions that are compared."""
DIFFERING = {
    "accepted": "accepted here",
    "refused": "refused here",
    "gradient values": "gradients",
    "second values": "second derivatives",
    "type of elements": "dtype of the result",
    "shape": "shape of the result",
    "tracked": "whether the result requires gradients",
}
"""Words of the comparison, and of the reference."""


class Difference(NamedTuple):
    """A difference from PyTorch: a pattern of names, what differs, and the reason."""

    names: str
    what: str
    reason: str

    def __str__(self) -> str:
        return f"{self.what[0].upper()}{self.what[1:]}: {self.reason}."


def differences() -> list[Difference]:
    """Return the known differences from PyTorch."""
    found = []
    for line in DIFFERENCES.read_text().splitlines():
        pattern, mark, reason = line.partition(" # ")
        if mark:
            names = pattern.partition(": ")[0]
            what = next((words for key, words in DIFFERING.items() if key in pattern), "results")
            found.append(Difference(names.split()[0], what, reason.strip()))
    return found


def pages() -> dict[Path, str]:
    """Return all pages by their paths."""
    found = {FOLDER / f"{name.replace('tilegrad.', '')}.md": _page(name, title) for name, title in PAGES.items()}
    found[FOLDER / "tensor.md"] = _tensor()
    listed = [
        ("tensor.md", "`Tensor`: methods and properties"),
        *((f"{n.replace('tilegrad.', '')}.md", f"`{n}`: {t}") for n, t in PAGES.items()),
    ]
    lines = [f"- [{title}]({file})" for file, title in listed]
    found[FOLDER / "README.md"] = "\n".join([
        "# Reference", "",
        "Every public name, with its signature and its docstring. `python tools/reference.py` writes these pages from",
        "the source, a test compares them, and the examples are run as doctests. A function that differs from",
        "PyTorch's says how; the comparison of all operators finds no other differences. For all functions:", "",
        *(f"- {difference}" for difference in differences() if is_general(difference)), "",
        "Versions: [compatibility](../compatibility.md).", "", *lines, "",
    ])  # fmt: skip
    return found


def _page(name: str, title: str) -> str:
    module = import_module(name)
    lines = [f"# {name}", "", f"{title}.", ""]
    for public in sorted(module.__all__, key=str.lower):
        found = getattr(module, public)
        if not isinstance(found, ModuleType):
            lines += _entry(public, found)
            lines += _differing(public) if name in WITH_DIFFERENCES else []
    return _joined(lines)


def is_general(difference: Difference) -> bool:
    """Whether a difference is that of no function in particular."""
    return not difference.names.strip("*_")


def _differing(name: str) -> list[str]:
    """Return the lines about what differs from the function of PyTorch of the same name."""
    own = [str(d) for d in differences() if not is_general(d) and fnmatch(name, d.names)]
    shown = [line for text in own for line in textwrap.wrap(f"- {text}", WIDTH, subsequent_indent="  ")]
    return ["Differs from PyTorch:", "", *shown, ""] if shown else []


def _tensor() -> str:
    lines = ["# tilegrad.Tensor", "", _text(str(inspect.getdoc(tg.Tensor)))[0], ""]
    names = [name for name in sorted(dir(tg.Tensor), key=str.lower) if not name.startswith("_")]
    functions = [name for name in names if name in tg.functional.__all__ and not name.endswith("_")]
    in_place = [name for name in names if name.endswith("_") and name[:-1] in names]
    for title, listed in (
        ("Methods that are [functions](tilegrad.md) of the same name, which take the tensor first:", functions),
        ("Methods that store the result of the method without the underscore in the tensor:", in_place),
    ):
        lines += [title, "", *textwrap.wrap(", ".join(f"`{name}`" for name in listed), WIDTH), ""]
    for name in names:
        found = inspect.getattr_static(tg.Tensor, name)
        found = getattr(tg.Tensor, name) if isinstance(found, Method) else found
        if name not in (*functions, *in_place) and (callable(found) or isinstance(found, property)):
            lines += _entry(name, found)
    return _joined(lines)


def _entry(name: str, found: Any) -> list[str]:
    """Return the lines about one name."""
    if isinstance(found, property):
        shown, found = name, found.fget
    elif callable(found):
        shown = f"{name}{_signature(found)}"
    else:
        shown = f"{name}: {type(found).__name__}"
        return [f"### {name}", "", "```text", shown, "```", ""]
    own = inspect.getdoc(found) if not isinstance(found, type) or found.__dict__.get("__doc__") else None
    paragraphs, example = _text(own or "")
    lines = [f"### {name}", "", "```text", *textwrap.wrap(shown, WIDTH, subsequent_indent="    "), "```", ""]
    lines += [paragraphs, ""] if paragraphs else []
    return lines + (["```pycon", *example.splitlines(), "```", ""] if example else [])


def _text(doc: str) -> tuple[str, str]:
    """Return the paragraphs of a docstring, wrapped, and its example."""
    before, mark, after = doc.partition(">>>")
    parts = [part.strip() for part in re.split(r"\n\s*\n", before) if part.strip()]
    wrapped = [part if "\n    " in part else textwrap.fill(part, WIDTH, break_on_hyphens=False) for part in parts]
    return "\n\n".join(wrapped), (mark + after).rstrip()


def _signature(found: Any) -> str:
    """Return the parameters with annotations and defaults, as the source has them."""
    try:
        declared = inspect.signature(found)
    except (TypeError, ValueError):
        return "(...)"
    shown, starred = [], False
    for p in declared.parameters.values():
        if p.name == "self":
            continue
        starred |= p.kind is Parameter.VAR_POSITIONAL
        if p.kind is Parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        mark = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}.get(p.kind, "")
        note = f": {p.annotation}" if isinstance(p.annotation, str) else ""
        shown.append(f"{mark}{p.name}{note}" + (f" = {_default(p.default)}" if p.default is not p.empty else ""))
    result = declared.return_annotation
    return f"({', '.join(shown)})" + (f" -> {result}" if isinstance(result, str) and result != "None" else "")


def _default(value: object) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) < 30 and " at 0x" not in text else "..."


def _joined(lines: list[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Write the pages, or compare them."""
    FOLDER.mkdir(exist_ok=True)
    found = pages()
    different = [path for path, text in found.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        sys.exit(f"run tools/reference.py: {', '.join(p.name for p in different)} would change" if different else 0)
    for path in different:
        path.write_text(found[path])


if __name__ == "__main__":
    main()
