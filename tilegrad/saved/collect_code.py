"""Compile a network for examples in a process of its own, and collect what it is compiled to (`machine_code.py`)."""

from __future__ import annotations

import json
import sys

from ..autograd.modes import no_grad
from ..functions.creation import zeros
from ..ir import dtype as dtypes
from ..runtime import cache
from ..tree import flatten
from .exported import load_program
from .machine_code import packed
from .program_file import filled


def collect() -> None:
    """Run the network of a file once for each example, and write the entries of the cache to the standard output."""
    cache.collected = {}
    network = load_program(sys.argv[1])
    for types in json.load(sys.stdin):
        leaves = iter([zeros(*shape, dtype=getattr(dtypes, name)) for name, shape in types])
        arguments = {name: filled(tree, leaves) for name, tree in network.current_graph.arguments.items()}
        with no_grad():
            for result in flatten(network(**arguments))[0]:
                result.numpy()
    sys.stdout.buffer.write(packed(cache.collected))
