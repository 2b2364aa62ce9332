"""Import modules when one of their names is first used: packages list their public names in a table by module.

So `import tilegrad` and a first training step load only what they use, and a distribution may lack modules of a table.
Passes, strategies and the like are optional: `part` finds those that are there.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any


def defer(
    space: dict[str, Any],
    table: Mapping[str, str],
    packages: Iterable[str] = (),
    publish: Callable[[str, Any], Any] = lambda name, found: found,
) -> None:
    """Give a package, by its `globals()`, the public names of a table, which are imported when they are first used.

    The table maps modules, relative to the package, to the names that they define, separated by blanks. `packages` are
    public modules. `publish` makes the public object from a name and what the module defines.
    """
    package = space["__package__"]
    module_of = {name: module for module, names in table.items() for name in names.split()}
    modules = {*packages, *(module for module in table if module[0] != ".")}

    def find(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        return publish(name, vars(import_module(f".{module_of[name]}", package))[name])

    space["__all__"] = [*packages, *module_of]
    define_later(space, find, {*modules, *module_of})


def define_later(space: dict[str, Any], find: Callable[[str], Any], names: Iterable[str]) -> None:
    """Give a module the functions `__getattr__`, which finds some names when they are first used, and `__dir__`."""
    found = frozenset(names)

    def get(name: str) -> Any:
        if name not in found:
            raise AttributeError(f"module {space['__name__']!r} has no attribute {name!r}")
        space[name] = find(name)
        return space[name]

    space |= {"__getattr__": get, "__dir__": lambda: space["__all__"]}


@cache
def part(module: str, name: str) -> Any:
    """Return what an optional module of tilegrad defines, or None in a distribution without it.

    >>> part("transform.share", "share").__name__, part("transform.nothing", "nothing")
    ('share', None)
    """
    full = f"{__package__}.{module}"
    try:
        return getattr(import_module(full), name)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{full}.".startswith(f"{problem.name}."):
            raise
        return None
