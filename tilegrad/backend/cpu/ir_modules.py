"""Compile modules of LLVM IR that somebody wrote, to run them or to show their assembly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .objects import HostProcessor, LinkedCode, Optimise, cached_object, link, parsed_module, target_machine


def compile_kernels(
    kernels: Sequence[tuple[str, str]],
    host: HostProcessor,
    *,
    optimise: Optimise = False,
    symbols: Mapping[str, int] = {},
) -> LinkedCode:
    """Compile and link kernels, each given as the name of its function and a module of IR."""
    objects = [cached_object(name, ir, host, optimise=optimise) for name, ir in kernels]
    return link(objects, [name for name, _ in kernels], symbols)


def assembly(name: str, ir: str, host: HostProcessor, *, optimise: Optimise = False) -> str:
    """Return the assembly of a module."""
    machine = target_machine(host)
    return str(machine.emit_assembly(parsed_module(name, ir, machine, optimise)))
