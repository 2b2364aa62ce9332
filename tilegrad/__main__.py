"""Define the command line: `python -m tilegrad`, or `tilegrad`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from .errors import TilegradError


class Parser(argparse.ArgumentParser):
    """Reports mistakes in one line, with a suggestion."""

    def error(self, message: str) -> NoReturn:
        known = [*self._option_string_actions, *_commands(self)]
        wrong = next((word for word in sys.argv[1:] if word in message and word not in known), "")
        near = get_close_matches(wrong, known, 1) if wrong else []
        guess = f" (did you mean {near[0]}?)" if near else ""
        self.exit(2, f"{self.prog}: {message}{guess}\nTry: {self.prog} --help\n")


def _commands(parser: argparse.ArgumentParser) -> list[str]:
    return [name for action in parser._actions if isinstance(action.choices, dict) for name in action.choices]


def parser() -> Parser:
    """Build the parser of all commands."""
    made = Parser(prog="tilegrad", description="Tensors, differentiation, a graph compiler and generated kernels.")
    from .config import VERSION

    made.add_argument("--version", action="version", version=f"tilegrad {VERSION}")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True)

    demo = commands.add_parser("demo", help="train on handwritten digits, show what was compiled and how fast it is")
    demo.add_argument("--seed", type=int, default=0, help="of all random numbers: the same seed, the same result")
    demo.add_argument("--epochs", type=int, default=30, help="times that all images are gone through (default 30)")
    demo.add_argument("--output", type=Path, default=Path("report.html"), help="the report (default report.html)")

    explain = commands.add_parser("explain", help="run a script and show what became of its jitted functions")
    explain.add_argument("--html", type=Path, metavar="FILE", help="write everything to one HTML file")
    explain.add_argument("--full", action="store_true", help="print the assembly whole, not only its inner loops")
    explain.add_argument(
        "script", type=Path, metavar="SCRIPT", help="the script, or a module's name; then its arguments"
    )
    explain.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")

    tune = commands.add_parser(
        "tune", help="run a script, then measure its kernels in other ways, and keep the fastest"
    )
    tune.add_argument("--budget", default="5m", metavar="TIME", help="how long to measure: 90s, 5m (default 5m)")
    tune.add_argument("--lock", type=Path, metavar="FILE", help="where to keep what is found (default: kernels.lock)")
    tune.add_argument("script", type=Path, metavar="SCRIPT", help="the script, or a module's name; then its arguments")
    tune.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")

    build = commands.add_parser("build", help="compile the C++ functions of a folder to a package and a wheel")
    build.add_argument("--output", type=Path, default=Path("dist"), metavar="DIR", help="where to (default: dist)")
    build.add_argument("--name", default="", help="of the package (default: the name of the folder)")
    build.add_argument("folder", type=Path, metavar="DIR", help="the folder with the sources")

    view = commands.add_parser(
        "view", help="show a step, a trace, the runs of a training or the functions of a script in the browser"
    )
    view.add_argument("path", type=Path, metavar="PATH", help="a page, a trace, a run folder, or a script to run")
    view.add_argument(
        "--port", type=int, metavar="N", help="of 127.0.0.1, where the page is served (default: a free one)"
    )
    view.add_argument("--save", type=Path, metavar="FILE", help="write the page to a file instead")

    compare = commands.add_parser("compare", help="say what got slower between two profiles; exit status 1 if anything")
    compare.add_argument("before", type=Path, metavar="A", help="a trace, or a summary as JSON")
    compare.add_argument("after", type=Path, metavar="B", help="another one")
    _add_networks(commands)
    doctor = commands.add_parser("doctor", help="what this machine offers, and what to do about what is missing")
    doctor.add_argument("--measure", action="store_true", help="measure speeds again, and keep the best of all times")
    return made


def _add_networks(commands: Any) -> None:
    """Add the commands for networks in files."""
    from .serve.options import add_options

    add_options(commands.add_parser("serve", help="answer requests for results of networks over HTTP"))
    run = commands.add_parser("run", help="call a saved program with arrays, and show or write the results")
    run.add_argument("--output", type=Path, metavar="FILE", help="a .npy file for the result (several are numbered)")
    run.add_argument("--trust-code", action="store_true", help="execute the machine code that the program comes with")
    run.add_argument("program", type=Path, metavar="PROGRAM", help="the saved program, or a network written as text")
    run.add_argument("inputs", type=Path, nargs="*", metavar="INPUT", help="an array in a .npy file for each argument")

    export = commands.add_parser("export", help="write a network as a saved program, or one as text (.txt)")
    export.add_argument(
        "--dynamic", action="append", default=[], metavar="ARGUMENT:AXIS=SIZE", help="a size that varies: input:0=n"
    )
    export.add_argument("--code", action="store_true", help="store machine code for calls with arrays like the inputs")
    export.add_argument("--c", action="store_true", help="write a shared object for C, net.so, with a header beside it")
    export.add_argument("source", metavar="SOURCE", help="file.py:model, package.module:model, or a saved program")
    export.add_argument("output", type=Path, metavar="OUTPUT", help="where to: net.tgp, or net.txt for the text form")
    export.add_argument(
        "inputs", type=Path, nargs="*", metavar="INPUT", help="an example in a .npy file for each argument"
    )


def _on_networks(options: argparse.Namespace) -> int:
    """Run a command for networks in files."""
    if options.command == "serve":
        from .serve.command_line import serve

        return serve(options)
    from .saved.command_line import export_program, run_program

    if options.command == "run":
        return run_program(options.program, options.inputs, options.output, options.trust_code)
    return export_program(options.source, options.output, options.inputs, options.dynamic, options.code, options.c)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    options = parser().parse_args(arguments)
    try:
        match options.command:
            case "demo":
                from .demo import run

                return run(options.seed, options.epochs, options.output)
            case "explain":
                from .profile.script import explain_script

                return explain_script(options.script, options.arguments, options.html, options.full)
            case "tune":
                from .profile.tuned import tune_script

                return tune_script(options.script, options.arguments, options.budget, options.lock)
            case "build":
                from .foreign.ahead_of_time import build

                package, wheel = build(options.folder, options.output, options.name)
                print(f"the package: {package}\nthe wheel:   {wheel}")
                return 0
            case "view":
                if options.path.suffix == ".py":
                    from .profile.script import view_script

                    return view_script(options.path, options.port, options.save)
                from .viewer.server import view

                return view(options.path, options.port, options.save)
            case "run" | "export" | "serve":
                return _on_networks(options)
            case "compare":
                from .profile.difference import compare_files

                return compare_files(options.before, options.after)
            case _:
                from .profile.doctor import report

                print(report(options.measure))
                return 0
    except TilegradError as problem:
        print(f"tilegrad {options.command}: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read the output has enough of it, as in `tilegrad explain train.py | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
