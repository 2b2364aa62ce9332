"""The folder list is the architecture: a module imports from its own layer and from those above it."""

from pathlib import Path

import pytest

from tests.source import FILES, MODULES, PACKAGE, ROOT, imported, module_name

TENSOR = "the tensor and what stands beside it: tensor.py, functional.py, random.py, ..."

LAYERS: list[set[str]] = [
    {"errors"},
    {"config", "deferred"},
    {"ir"},
    {"runtime"},
    {"tiles"},
    {"ops"},
    {"transform"},
    {"schedule"},
    {"backend"},
    {"compiler"},
    {"first_tier"},
    {TENSOR, "lazy", "functions", "jitted", "amp", "autograd", "foreign"},
    {"nn", "optim", "data", "serialization"},
    {"language", "simt", "custom", "saved"},
    {"viewer"},
    {"profile", "sparse", "distributed", "interop", "onnx", "generation"},
    {"engines"},
    {"serve"},
    {"logging", "memory", "profiler", "tensorboard", "testing", "utils", "torch"},
    {"__main__", "demo", PACKAGE.name},
]
FEATURES = LAYERS[-5]
"""Features import the layers above them, never each other."""


def layer(module: str) -> int:
    """The place of a module in the list."""
    part = module.removeprefix(PACKAGE.name).strip(".").split(".")[0] or PACKAGE.name
    listed = next((n for n, names in enumerate(LAYERS) if part in names), None)
    if listed is not None:
        return listed
    assert not (PACKAGE / part).is_dir(), f"the folder {part} is in no layer: give it one in tests/test_layers.py"
    return next(n for n, names in enumerate(LAYERS) if TENSOR in names)


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_module_imports_only_what_stands_above_it(path: Path) -> None:
    own = layer(module_name(path))
    below = sorted(name for name in imported(path) if layer(name) > own)
    assert not below, f"{module_name(path)} imports what stands below it: {', '.join(below)}"


@pytest.mark.parametrize("feature", sorted(FEATURES))
def test_features_do_not_know_each_other(feature: str) -> None:
    for path in FILES:
        if module_name(path).split(".")[1:2] == [feature]:
            others = {name.split(".")[1] for name in imported(path) if name.count(".")} & FEATURES - {feature}
            assert not others, f"{module_name(path)} imports another feature: {', '.join(sorted(others))}"


def test_no_import_cycles() -> None:
    """Imports inside functions are counted: they hide a cycle, and do not remove it."""
    reads = {name: {x for x in imported(path) if x in MODULES and x != name} for name, path in MODULES.items()}
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> None:
        assert name not in trail, f"a cycle of imports: {' -> '.join([*trail[trail.index(name) :], name])}"
        if name not in done:
            for other in sorted(reads[name]):
                visit(other, [*trail, name])
            done.add(name)

    for name in sorted(reads):
        visit(name, [])


def test_every_folder_has_its_row_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    folders = sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py"))
    missing = [name for name in folders if f"({PACKAGE.name}/{name})" not in text]
    assert not missing, f"the README's table of folders lacks {', '.join(missing)}"
