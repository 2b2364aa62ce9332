"""Import modules when one of their names is first used: packages list their public names in a table by module.

So `import tilegrad` and a first training step load only what they use, and a distribution may lack modules of a table.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def defer(
    space: dict[str, Any],
    table: Mapping[str, str],
    packages: Iterable[str] = (),
    publish: Callable[[str, Any], Any] = lambda name, found: found,
) -> None:
    """Give a package, by its `globals()`, the public names of a table and the functions `__getattr__` and `__dir__`.

    The table maps modules, relative to the package, to the names that they define, separated by blanks. `packages` are
    public modules. `publish` makes the public object from a name and what the module defines.
    """
    package = space["__package__"]
    module_of = {name: module for module, names in table.items() for name in names.split()}
    modules = {*packages, *(module for module in table if module[0] != ".")}

    def get(name: str) -> Any:
        if name in module_of:
            module = import_module(f".{module_of[name]}", package)
            found = space[name] = publish(name, vars(module)[name])
            return found
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    public = [*packages, *module_of]
    space |= {"__all__": public, "__getattr__": get, "__dir__": lambda: public}
