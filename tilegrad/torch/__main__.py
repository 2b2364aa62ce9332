"""Run a script that imports torch unmodified on tilegrad: `python -m tilegrad.torch SCRIPT`."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from ..errors import DeviceError
from .doors import opened

ABOUT = """Runs a Python script with `import torch` and `import torchvision` meaning tilegrad. A setup.py with
CppExtension or CUDAExtension is built and installed likewise."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser("python -m tilegrad.torch", description=ABOUT)
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="have a GPU that is simulated on the CPU, kernels of extensions included",
    )
    parser.add_argument("-m", dest="module", metavar="MODULE", help="run a module in place of a script")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="the script and its arguments")
    given = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    rest = given.script
    if not rest and not given.module:
        parser.error("name a script: python -m tilegrad.torch train.py")
    opened()
    try:
        if given.simulate:
            from .simulated import simulate

            simulate()
        return _run(given.module, rest)
    except DeviceError as missing:
        if "cuda" in str(missing) and not given.simulate:
            missing.add_note("python -m tilegrad.torch --simulate SCRIPT has a GPU that is simulated on the CPU")
        raise
    finally:
        sys.stdout.flush()


def _run(module: str | None, rest: list[str]) -> int:
    if module:
        sys.argv = [module, *rest]
        sys.path.insert(0, "")
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return 0
    script = Path(rest[0])
    if not script.is_file():
        print(f"python -m tilegrad.torch: there is no script {script}", file=sys.stderr)
        return 2
    sys.argv = _for_setup(rest) if script.name == "setup.py" else rest
    sys.path.insert(0, str(script.absolute().parent))
    runpy.run_path(str(script), run_name="__main__")
    return 0


def _for_setup(rest: list[str]) -> list[str]:
    """Drop `--user` from the arguments of a setup.py within a virtual environment, which has no such folder."""
    if sys.prefix == sys.base_prefix:
        return rest
    return [word for word in rest if word != "--user"]


if __name__ == "__main__":
    sys.exit(main())
