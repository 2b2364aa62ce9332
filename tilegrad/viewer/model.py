"""Define the data of the viewer's page: plain dicts, written as JSON into the page or served to it.

    page  ::= Page(title, notes, live, steps, traces, runs)
    step  ::= PageStep(nodes, lines, kernels, passes, memory, facts, roof)     a compiled function: `tilegrad.explain`
    trace ::= PageTrace(lanes of spans, counters)                              a profile, or anybody's Chrome trace
    run   ::= PageRun(curves, norms, pictures, matrices)                       a folder that `SummaryWriter` wrote

References between lists are positions: `PageNode.line` in `PageStep.lines`, `PageNode.kernels` in
`PageStep.kernels`, `PageNode.reads` in `PageStep.nodes`. All texts are shown as texts: nothing in a page is markup.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

VERSION = 1
"""Version of the format; a page of another version is not read."""
MAX_TEXT_CHARACTERS = 60_000
"""Longest text of a kernel, in characters: the rest is left out, and the text says so."""

Phase = Literal["forward", "backward", "update"]
Role = Literal["input", "parameter", "optimizer state", "buffer", "number", "operation"]


class PageNode(TypedDict):
    """A value of the graph after the last pass."""

    name: str
    op: str
    type: str
    bytes: int
    role: Role
    phase: Phase
    module: str
    """The path of the module in whose `forward` it was recorded."""
    line: int | None
    kernels: list[int]
    reads: list[int]
    output: bool


class Line(TypedDict):
    """A line of the user's source; `share` is its part of the time of all kernels."""

    file: str
    number: int
    text: str
    kernels: list[int]
    share: float | None


class PageKernel(TypedDict):
    """One launch. Seconds are None where they were not measured; `share` is the fraction of the machine's limit."""

    title: str
    name: str
    phase: Phase
    module: str
    lines: list[int]
    why: list[str]
    """What is fused into it, and why its neighbours are not, as sentences."""
    text: str
    """The tile kernel."""
    source: str
    language: str
    machine: str
    hot: list[list[int]]
    """First and last line of each inner loop of the machine code."""
    seconds: float | None
    bytes: int
    operations: int
    limit: float
    """Seconds that the machine needs at least."""
    share: float | None
    bound: str
    hint: str


class PagePass(TypedDict):
    """A stage of the compiler: `state` is changed, unchanged, or why it was skipped."""

    name: str
    sentence: str
    state: str
    seconds: float
    operations: int
    text: str


class PageBlock(TypedDict):
    """A block of memory, in use from the first to the last moment."""

    name: str
    kind: str
    type: str
    bytes: int
    line: int | None
    node: int | None
    kernel: int | None
    first: int
    last: int


class PageMemory(TypedDict):
    """Live bytes at each moment; a moment of a step is a launch."""

    moments: list[str]
    live: list[int]
    owners: list[PageBlock]


class PageStep(TypedDict):
    """A compiled function."""

    name: str
    device: str
    facts: list[list[str]]
    """Captions and figures of the heading."""
    nodes: list[PageNode]
    lines: list[Line]
    kernels: list[PageKernel]
    passes: list[PagePass]
    memory: PageMemory
    roof: dict[str, float]
    """The measured limits: `bytes` and `operations` per second."""
    note: str


class Lane(TypedDict):
    """A thread, worker, stream or device. A span is [start, length, depth, label], in microseconds; `label` is a
    position in `PageTrace.labels`.
    """

    name: str
    spans: list[list[float]]


class Label(TypedDict):
    """What the spans of one name have in common."""

    name: str
    kind: str
    line: str
    module: str


class PageCounter(TypedDict):
    """A curve over time: [microseconds, value]."""

    name: str
    points: list[list[float]]


class PageTrace(TypedDict):
    """The spans of a profile."""

    name: str
    lanes: list[Lane]
    labels: list[Label]
    counters: list[PageCounter]
    note: str


class Picture(TypedDict):
    """An image of a run, as the base64 of a PNG file."""

    tag: str
    step: int
    png: str


class PageMatrix(TypedDict):
    """A confusion matrix: rows are what a sample is, columns what it was taken for."""

    tag: str
    step: int
    labels: list[str]
    rows: list[list[float]]


class PageRun(TypedDict):
    """What one training wrote. A point of a curve is [step, wall time, value]; NaN and infinities are None."""

    name: str
    curves: dict[str, list[list[float | None]]]
    norms: dict[str, list[list[float | None]]]
    """Euclidean norms of tensors that were logged as histograms."""
    pictures: list[Picture]
    matrices: list[PageMatrix]
    texts: dict[str, str]


class Page(TypedDict):
    """Everything that a page shows."""

    format: int
    title: str
    notes: list[str]
    """Sentences about what was left out or could not be read."""
    live: bool
    """Whether the page asks its server for news."""
    steps: list[PageStep]
    traces: list[PageTrace]
    runs: list[PageRun]


def page_of(
    title: str, *, steps: list[PageStep] = [], traces: list[PageTrace] = [], runs: list[PageRun] = [],
    notes: list[str] = [], live: bool = False,
) -> Page:  # fmt: skip
    """Build a page."""
    return Page(format=VERSION, title=title, notes=notes, live=live, steps=steps, traces=traces, runs=runs)


def is_page(found: Any) -> bool:
    """Whether decoded JSON is a page of this version."""
    lists = ("notes", "steps", "traces", "runs")
    return (
        isinstance(found, dict)
        and found.get("format") == VERSION
        and isinstance(found.get("title"), str)
        and all(isinstance(found.get(name), list) for name in lists)
    )


def clipped(text: str) -> str:
    """Cut a text that is too long to be read.

    >>> clipped("short")
    'short'
    """
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    left_out = text.count("\n", MAX_TEXT_CHARACTERS)
    return f"{text[:MAX_TEXT_CHARACTERS]}\n... {left_out:,} more lines are left out"
