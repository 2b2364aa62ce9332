"""List the objects of some classes that are alive in the process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import chain, compress, repeat, tee
from operator import itemgetter
from typing import Any

TEE_OBJECTS = 64
"""More objects than `itertools.tee` keeps in a block."""


def live_objects(*classes: type) -> list[Any]:
    """List the instances of some classes and of their subclasses. Slow: examines all objects of the process.

    The objects of other threads are among them, tuples that are not finished too, and Python refuses to finish a tuple
    that somebody else refers to. Therefore the list of all objects is made, filtered and dropped in one call of C code,
    during which no other thread runs.

    >>> class Point: pass
    >>> p = Point()
    >>> live_objects(Point) == [p]
    True
    """
    wanted = set(map(id, chain.from_iterable(map(_subclasses, classes))))
    collects = gc.isenabled()
    gc.disable()  # finalizers are Python code, between whose instructions threads take turns
    try:
        return list(_instances(wanted))
    finally:
        if collects:
            gc.enable()


def _instances(classes: set[int]) -> Iterator[Any]:
    """Return an iterator over the instances of classes, made of C code only; the objects are listed at its first step.

    `tee` keeps its latest objects. The iterators here are among the objects themselves; to not keep them for ever, each
    list ends with enough of None.
    """
    lists = map(gc.get_objects, (None,))
    padded = map(chain, lists, (repeat(None, TEE_OBJECTS),))
    pairs, same_pairs = tee(map(tee, padded))
    everything = chain.from_iterable(map(itemgetter(0), pairs))
    again = chain.from_iterable(map(itemgetter(1), same_pairs))
    return compress(everything, map(classes.__contains__, map(id, map(type, again))))


def _subclasses(cls: type) -> Iterator[type]:
    yield cls
    below: type
    for below in type.__subclasses__(cls):
        yield from _subclasses(below)
