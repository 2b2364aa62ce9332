"""Print programs: their memory and their steps."""

from __future__ import annotations

from .program import Allocate, Copy, Foreign, Free, Launch, Program, ProgramBuffer, Record, Step, Wait
from .size import Dim, Size


def show_program(program: Program) -> str:
    """Print a program.

    >>> from .dtype import float32
    >>> from .graph import TensorType
    >>> b = ProgramBuffer("x", TensorType(float32, (4, 8)), "input")
    >>> t = ProgramBuffer("t", TensorType(float32, (4, 8)), "temporary", offset=0)
    >>> print(Program("demo", (), (b, t), ("x",), ("t",), (Copy("x", "t"),), arena=128))
    program demo(x) -> t
      memory
        x: f32[4,8] input, 128 bytes
        t: f32[4,8] temporary, 128 bytes at 0
      steps
        0: t = copy x
      peak 256 bytes: 128 for temporaries, 128 for the rest
    """
    sizes = f" for {', '.join(program.sizes)}" if program.sizes else ""
    head = f"program {program.name}({', '.join(program.inputs)}) -> {', '.join(program.outputs)}{sizes}"
    steps = _with_comments([_step(s) for s in program.steps], [_origin(s) for s in program.steps])
    lines = [head, "  memory", *(f"    {_buffer(b)}" for b in program.buffers), "  steps"]
    lines += [f"    {n}: {text}" for n, text in enumerate(steps)]
    return "\n".join([*lines, f"  {_peak(program)}"])


def show_step(step: Step) -> str:
    """Print a step on one line."""
    return _step(step)


def _buffer(b: ProgramBuffer) -> str:
    where = f" at {b.offset}" if b.offset is not None else f" in the memory of {b.alias}" if b.alias else ""
    return f"{b.name}: {b.type} {b.role}, {b.type.bytes} bytes{where}"


def _step(step: Step) -> str:
    match step:
        case Allocate(buffer):
            return f"allocate {buffer}"
        case Free(buffer):
            return f"free {buffer}"
        case Launch(kernel, arguments, grid, stream):
            extents = ", ".join(map(str, grid)) or "1"
            return f"{kernel.name}[{extents}]({', '.join(map(str, arguments))}){_stream(stream)}"
        case Copy(source, target, stream):
            return f"{target} = copy {source}{_stream(stream)}"
        case Foreign(work, inputs, outputs, stream):
            return f"{', '.join(outputs)} = call {work}({', '.join(inputs)}){_stream(stream)}"
        case Record(event, stream):
            return f"record event {event}{_stream(stream)}"
        case Wait(event, stream):
            return f"wait for event {event}{_stream(stream)}"


def _stream(stream: int) -> str:
    return f" on stream {stream}" if stream else ""


def _origin(step: Step) -> str:
    return step.kernel.origin.split("\n")[0] if isinstance(step, Launch) else ""


def _with_comments(texts: list[str], comments: list[str]) -> list[str]:
    width = min(72, max((len(t) for t, c in zip(texts, comments, strict=True) if c), default=0))
    return [f"{t:{width}}  # {c}" if c else t for t, c in zip(texts, comments, strict=True)]


def peak(program: Program) -> tuple[Dim, Dim]:
    """Return the peak bytes of temporaries, and the bytes of all other buffers.

    Before memory is planned, temporaries count while they are allocated.
    """
    rest: Dim = 0
    for b in program.buffers:
        if b.role != "temporary" and b.alias is None:
            rest = rest + b.type.bytes
    if any(isinstance(step, Allocate) for step in program.steps):
        return _allocated(program), rest
    return program.arena, rest


def _allocated(program: Program) -> Dim:
    """With symbolic sizes, return the sum of all allocations: the peak depends on the sizes."""
    moves: list[Dim] = []
    for step in program.steps:
        if isinstance(step, Allocate):
            moves.append(program.buffer(step.buffer).type.bytes)
        elif isinstance(step, Free):
            moves.append(-program.buffer(step.buffer).type.bytes)
    if any(isinstance(m, Size) for m in moves):
        total: Dim = 0
        for step in program.steps:
            total = total + (program.buffer(step.buffer).type.bytes if isinstance(step, Allocate) else 0)
        return total
    most = now = 0
    for m in moves:
        now += m if isinstance(m, int) else 0
        most = max(most, now)
    return most


def _peak(program: Program) -> str:
    temporary, rest = peak(program)
    return f"peak {temporary + rest} bytes: {temporary} for temporaries, {rest} for the rest"
