"""The launch queue: an order of layers in which each comes after those whose results it takes.

A breadth-first walk from the output that visits each layer once, reversed, is no such order: where a layer feeds the
output and a deeper layer, too, it is visited early, so that it comes late.
"""

from collections.abc import Mapping, Sequence


def launch_queue(inputs: Mapping[str, Sequence[str]], outputs: Sequence[str]) -> list[str]:
    """Order the layers that some outputs need; `inputs` has the layers that each takes. Depth first: a layer follows
    when all of its inputs have been placed.

    >>> launch_queue({"output": ["a", "c"], "c": ["b"], "b": ["a"]}, ["output"])
    ['a', 'b', 'c', 'output']
    >>> launch_queue({"a": ["b"], "b": ["a"]}, ["a"])
    Traceback (most recent call last):
    ...
    ValueError: the layers take each other's results: a, b, a
    """
    placed: dict[str, None] = {}
    path: list[str] = []
    stack = [(name, False) for name in reversed(outputs)]
    while stack:
        name, is_done = stack.pop()
        if is_done:
            placed[path.pop()] = None
        elif name in path:
            raise ValueError(f"the layers take each other's results: {', '.join([*path[path.index(name) :], name])}")
        elif name not in placed:
            path.append(name)
            stack.append((name, True))
            stack += [(x, False) for x in reversed(inputs.get(name, ())) if x not in placed]
    return list(placed)


def breadth_first_queue(inputs: Mapping[str, Sequence[str]], outputs: Sequence[str]) -> list[str]:
    """Order layers by a reversed breadth-first walk, which is wrong for some networks.

    >>> breadth_first_queue({"output": ["a", "c"], "c": ["b"], "b": ["a"]}, ["output"])
    ['b', 'c', 'a', 'output']
    """
    found = list(dict.fromkeys(outputs))
    for name in found:  # it grows
        found += [x for x in dict.fromkeys(reversed(inputs.get(name, ()))) if x not in found]
    return found[::-1]
