"""Makes a random program that fails smaller: fewer calls, results, lines and arguments, smaller extents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tests.fuzz.programs import Argument, Call, Program

Fails = Callable[[Program], bool]


def shrunk(p: Program, fails: Fails, tries: int = 400) -> Program:
    """The smallest program that is found to fail as well."""
    while True:
        for smaller in candidates(p):
            tries -= 1
            if tries < 0:
                return p
            if fails(smaller):
                p = smaller
                break
        else:
            return p


def candidates(p: Program) -> Iterator[Program]:
    """Smaller programs, those that save most first."""
    for n in range(len(p.calls)):
        if len(p.calls) > 1:
            yield p.with_changes(calls=p.calls[:n] + p.calls[n + 1 :])
    for n in range(len(p.results)):
        if len(p.results) > 1:
            yield p.with_changes(results=p.results[:n] + p.results[n + 1 :])
    for size in (8, 4, 2, 1):
        for start in range(len(p.lines) - size, -1, -1):
            yield from without(p, start, size)
    for name in (*p.calls[0].tensors, *p.calls[0].numbers, *p.calls[0].globals, *p.views, *p.state):
        if len(p.calls[0].tensors) > 1 or name not in p.calls[0].tensors:
            yield without_name(p, name)
    if p.mode in ("looks", "threads"):
        yield p.with_changes(mode="plain")
    if p.mode == "jit gradient":
        yield p.with_changes(mode="gradient")
    if p.mode == "jit" and len(p.calls) == 1:
        yield p.with_changes(mode="plain")
    yield from smaller(p)
    for n, line in enumerate(p.lines):
        for simpler in simplified(line):
            yield p.with_changes(lines=(*p.lines[:n], simpler, *p.lines[n + 1 :]))


def without(p: Program, start: int, size: int) -> Iterator[Program]:
    """The program without some lines; their names are replaced by others of the same exactness."""
    kept = p.lines[:start] + p.lines[start + size :]
    names = [n for line in p.lines[start : start + size] for n in given_by(line)]
    text = "\n".join(kept) + "\n" + " ".join(p.results)
    needed = [n for n in names if re.search(rf"\b{n}\b", text)]
    if not needed:
        yield p.with_changes(lines=kept)
        return
    results = tuple(r for r in p.results if r not in needed)
    if results and not any(re.search(rf"\b{n}\b", "\n".join(kept)) for n in needed):
        yield p.with_changes(lines=kept, results=results)
    if len(needed) > 1 or size > 1:
        return
    (name,) = needed
    for other in dict.fromkeys(re.findall(r"\b(?:[vwx]\d+|S|R)\b", p.lines[start].partition(" = ")[2])):
        if (other in p.inexact) <= (name in p.inexact):
            swap = lambda s: re.sub(rf"\b{name}\b", other, s)  # noqa: B023, E731
            yield p.with_changes(lines=tuple(map(swap, kept)), results=tuple(dict.fromkeys(map(swap, p.results))))


def given_by(line: str) -> list[str]:
    """The names that a line gives values to.

    >>> given_by("v1, w1 = x.max(0)"), given_by("w2 = x.clone(); w2.add_(1); v2 = w2 == 1"), given_by("v1[v2] = v3")
    (['v1', 'w1'], ['w2', 'v2'], [])
    """
    targets = re.findall(r"(?:^|; |(?<== ))((?:[vwo]\d+,? ?)+)= ", line)
    return [name for target in targets for name in re.findall(r"\w+", target)]


def without_name(p: Program, name: str) -> Program:
    """The program without an argument, a global or a tensor of the state."""
    drop = lambda d: {k: v for k, v in d.items() if k != name}  # noqa: E731
    calls = [Call(drop(c.tensors), drop(c.numbers), drop(c.globals)) for c in p.calls]
    return p.with_changes(calls=tuple(calls), state=drop(p.state), views=drop(p.views))


def smaller(p: Program) -> Iterator[Program]:
    """The program with smaller extents, fewer axes, or plainer types in its arguments."""
    shapes = [a.shape for c in p.calls for a in c.tensors.values()]
    for extent in sorted({e for s in shapes for e in s if e > 2}, reverse=True):
        for new in (2, 3):
            if new < extent:
                yield changed(
                    p, lambda a, e=extent, n=new: a._replace(shape=tuple(n if k == e else k for k in a.shape))
                )
    for name, a in p.calls[0].tensors.items():
        if a.shape:
            yield changed(p, lambda a: a._replace(shape=a.shape[1:]), name)
        if a.dtype != "float32":
            yield changed(p, lambda a: a._replace(dtype="float32"), name)


def changed(p: Program, change: Callable[[Argument], Argument], only: str = "") -> Program:
    new = lambda d: {k: change(a) if only in ("", k) else a for k, a in d.items()}  # noqa: E731
    calls = tuple(Call(new(c.tensors), c.numbers, c.globals) for c in p.calls)
    return p.with_changes(calls=calls, state=new(p.state))


def simplified(line: str) -> Iterator[str]:
    """A line with less in it."""
    for old, new in ((".clone()", ""), (".contiguous()", ""), (" + 1", ""), (", keepdim=True", ""), (" * 2", "")):
        if old in line:
            yield line.replace(old, new, 1)
