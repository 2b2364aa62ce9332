"""Names are words: what the package calls its own things."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source import FILES, module_name, parsed
from tools.house import classes

FORBIDDEN = {"ctx", "src", "dst", "ret", "utils", "util", "helpers", "misc", "tmp", "foo"}
SUSPICIOUS = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(sorted(FORBIDDEN))})(?![A-Za-z0-9])|pm_|Manager")
RIDDLES = {
    *("dear", "laid", "turned", "sooner", "beforehand", "mould", "moulds", "straight", "settle", "settled", "told"),
    *("beside", "way", "ways", "apart", "steady", "stretch", "stretches", "gone", "goes", "lies", "fed"),
}
"""Words for which the field has better ones: expensive, transposed, prepacked, guard, bind, strategy, constant, ..."""
UNITLESS = re.compile(r"_?(MOST|LEAST)_.*|_?(MOST|LEAST|FEW|LARGE|SMALL|ENOUGH|SHORT|TOGETHER|ROOM|EVEN|WIDE|DEEP)")
"""Names of thresholds without a quantity, or with another word than MAX or MIN for a bound."""
"""A text without any match has no forbidden name, and need not be parsed."""

GIVEN = {
    "tilegrad.autograd.function": {"ctx"},
    "tilegrad.functions.arranging": {"src"},
    "tilegrad.functions.inplace": {"src"},
    "tilegrad.functions.selecting": {"src"},
    "tilegrad.nn.transformer": {"src"},
}
"""Names of arguments that are PyTorch's, and that people type."""

PYTORCHS = "a name of PyTorch's; tilegrad.torch has the class that scripts for PyTorch expect"
OF_TWO_LEVELS = "one operation: a node of the tile language, and one of the scalar language or an op of the graph"

SAME_MEANING = {
    "DataLoader": PYTORCHS,
    "Event": PYTORCHS,
    "MNIST": PYTORCHS,
    "profile": PYTORCHS,
    "Apply": OF_TWO_LEVELS,
    "Bitcast": OF_TWO_LEVELS,
    "Cast": OF_TWO_LEVELS,
    "Reduce": OF_TWO_LEVELS,
    "Reshape": OF_TWO_LEVELS,
    "Scan": OF_TWO_LEVELS,
    "Config": "public names: the settings, and Triton's class of constants to try",
    "Engine": "public names: what runs a network for inference, and the engine of functions that courses teach",
    "Pad": "one operation: an op of the graph, and the transform of images that torchvision calls so",
}
"""Class names that two modules define, with the reason why."""


def own_names(path: Path) -> Iterator[tuple[str, int]]:
    """Every name that a file gives: to arguments, variables, fields, functions, classes, and to itself."""
    yield path.stem, 1
    for node in ast.walk(parsed(path)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(id, ast.Store()):
                yield id, node.lineno
            case ast.Attribute(_, attr, ast.Store()):
                yield attr, node.lineno


def words(name: str) -> set[str]:
    """Split a name in snake_case or CamelCase.

    >>> sorted(words("_is_laid"))
    ['is', 'laid']
    """
    return {word.lower() for word in re.split(r"_|(?<=[a-z])(?=[A-Z])", name) if word}


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_no_riddles(path: Path) -> None:
    wrong = [
        f"line {line}: {name}" for name, line in own_names(path) if words(name) & RIDDLES or UNITLESS.fullmatch(name)
    ]
    assert not wrong, f"{module_name(path)}: {'; '.join(wrong)}"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_names(path: Path) -> None:
    if not SUSPICIOUS.search(f"{path.stem}\n{path.read_text()}"):
        return
    forbidden = FORBIDDEN - GIVEN.get(module_name(path), set())
    wrong = [
        f"line {line}: {name}"
        for name, line in own_names(path)
        if name.strip("_") in forbidden or name.startswith("pm_") or "Manager" in name
    ]
    assert not wrong, f"{module_name(path)}: {'; '.join(wrong)}"


def test_a_class_name_means_one_thing() -> None:
    found = classes()
    assert not {name: paths for name, paths in found.items() if name not in SAME_MEANING}
    assert not SAME_MEANING.keys() - found.keys(), "these have no second meaning any more"
    assert all(len(paths) == 2 for paths in found.values())
