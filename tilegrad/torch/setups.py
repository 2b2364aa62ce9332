"""Build extensions with setuptools, without Python's headers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from .building import INCLUDE, compiled, units_of

if TYPE_CHECKING:
    BuildExtension: Any

LOADER = '''"""A C++ extension for tilegrad, built by `python -m tilegrad.torch setup.py`."""

from tilegrad.torch.installed import loaded

loaded(__name__, __path__[0])
'''


def CppExtension(name: str, sources: Sequence[str], *_: Any, **options: Any) -> Any:
    """Declare an extension of C++ files."""
    return _extension(name, sources, options)


def CUDAExtension(name: str, sources: Sequence[str], *_: Any, **options: Any) -> Any:
    """Declare an extension of C++ and CUDA files; no toolkit is needed to build it."""
    return _extension(name, sources, options)


def _extension(name: str, sources: Sequence[str], options: dict[str, Any]) -> Any:
    Extension: Any = import_module("setuptools").Extension  # setuptools has no types
    if isinstance(sources, str):
        raise ArgumentError(f"{name}: sources is a list of files, not the text {sources!r}")
    found = Extension(name, [str(s) for s in sources], language="c++")
    arguments = options.get("extra_compile_args") or []
    found.extra_compile_args = arguments.get("cxx", []) if isinstance(arguments, dict) else list(arguments)
    found.extra_link_args = list(options.get("extra_link_args") or [])
    found.include_dirs = list(options.get("include_dirs") or [])
    found.define_macros = list(options.get("define_macros") or [])
    return found


def include_paths(device_type: str = "cpu", **_: Any) -> list[str]:
    """Return the folders of the headers."""
    return [str(INCLUDE)]


def _command() -> type:
    build_ext: Any = import_module("setuptools.command.build_ext").build_ext

    class BuildExtension(build_ext):  # type: ignore[misc]
        """Build each extension as a package: the machine code, and two lines that load it."""

        @classmethod
        def with_options(cls, **options: Any) -> type:
            """Ignore options about ninja and the compiler's ABI."""
            return cls

        def get_ext_filename(self, fullname: str) -> str:
            return str(Path(*fullname.split(".")) / "__init__.py")

        def copy_extensions_to_source(self) -> None:
            """Install next to the setup.py (`--inplace`)."""
            for ext in self.extensions:
                folder = Path(self.build_lib, *ext.name.split("."))
                shutil.copytree(folder, Path(*ext.name.split(".")), dirs_exist_ok=True)

        def build_extension(self, ext: Any) -> None:
            name = ext.name.rpartition(".")[2]
            macros = [f"-D{n}" if v is None else f"-D{n}={v}" for n, v in ext.define_macros]
            folder = Path(self.get_ext_fullpath(ext.name)).parent
            library = compiled(
                name, units_of(name, ext.sources, Path()), [*ext.extra_compile_args, *macros], ext.extra_link_args,
                ext.include_dirs,
            )  # fmt: skip
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "extension.so").write_bytes(library.image)
            (folder / "__init__.py").write_text(LOADER)
            print(f"tilegrad: {library.report}; it is in {folder}")

        def get_outputs(self) -> list[str]:
            found = [self.get_ext_fullpath(ext.name) for ext in self.extensions]
            return [*found, *(str(Path(path).with_name("extension.so")) for path in found)]

    return BuildExtension


def __getattr__(name: str) -> Any:
    if name == "BuildExtension":  # setuptools takes a while to import
        found = globals()[name] = _command()
        return found
    raise AttributeError(name)
