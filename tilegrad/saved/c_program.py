"""Write a network as a shared object for C, with a header: no Python is needed to call it.

The kernels are those of the compiled program, as position-independent code; a function in C calls them one after the
other, on one thread. Weights, packed as the kernels read them, are part of the file. Since neither threads nor places
change a result, predictions equal those of tilegrad to the bit: they are compared before the file is kept.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..autograd.modes import no_grad
from ..backend.cpu import objects
from ..backend.cpu.bind_sizes import BoundProgram, bind_sizes
from ..backend.cpu.executable import CpuExecutable
from ..backend.cpu.library_objects import library_object
from ..backend.cpu.partition import NativeCall
from ..backend.cpu.target import target
from ..config import VERSION
from ..errors import ArgumentError, CompileError
from ..foreign.compilers import compiler, run_compiler
from ..ir.program import Foreign, Launch
from ..ir.tile import Kernel
from ..runtime.index_faults import BYTES, SYMBOL
from ..serialization.files import replacing
from ..tensor import Tensor
from ..tree import flatten

if TYPE_CHECKING:
    from ..jitted.function import PreparedProgram
    from .exported import ExportedProgram

ALIGNMENT = 64
"""Alignment of all arrays, in bytes."""
COPY = -1
"""The number of the kernel that copies bytes."""
C_TYPES = {"float32": "float", "float64": "double", "bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t"}
KEYWORDS = (
    *(
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
    ),
    *("for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof"),
    *(
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "workspace",
        "weights",
    ),
    *("asm", "bool", "class", "delete", "export", "false", "new", "operator", "private", "public", "template", "this"),
    *("true", "try", "using", "virtual", "arguments", "linux", "unix"),
)
"""Words of C and C++ and names in the function, which arguments cannot have."""
STATUS = ("DONE", "UNALIGNED", "WRONG_INDEX", "OTHER_PROCESSOR")
PROCESSORS = {
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": ("avx2", "fma", "bmi2"),
    "x86-64-v2": ("sse4.2",),
}
"""Features by level of x86-64, as compilers name them."""


class CArray(NamedTuple):
    """An argument of the function in C."""

    name: str
    type: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


class CProgram(NamedTuple):
    """A program with its sizes bound, ready to be printed: `weights` are the arrays of inputs that are no arguments."""

    name: str
    arguments: list[CArray]
    results: list[CArray]
    bound: BoundProgram
    given: dict[int, str]
    """The names of the memory blocks of a run, in C."""
    kernels: list[Kernel]
    weights: bytes


def export_c(network: ExportedProgram, example: Any, output: Path) -> Path:
    """Write a shared object for calls like the example, and a header beside it; return the header's path."""
    name = output.stem
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise ArgumentError(f"{output}: the file's name becomes the name of a C function: use letters and digits")
    if network.training:
        raise ArgumentError("a network in training mode cannot be exported to C: call eval() first")
    given = network.example_leaves(example)
    with no_grad():
        prepared = network.compiled.prepared(*given)
        expected = [x.numpy() for x in flatten(network.compiled(*given))[0]]
    program = _c_program(network, prepared, expected, name)
    with TemporaryDirectory() as folder:
        built = _built(program, Path(folder))
        _compare(program, built, [x.numpy() for x in given], expected)
        with replacing(output) as file:
            file.write(built.read_bytes())
    header = output.with_suffix(".h")
    with replacing(header) as file:
        file.write(header_of(program).encode())
    return header


def _c_program(
    network: ExportedProgram, prepared: PreparedProgram, expected: Sequence[np.ndarray[Any, Any]], name: str
) -> CProgram:
    executable = prepared.compiled.executable
    if not isinstance(executable, CpuExecutable):
        raise ArgumentError(f"a network on {prepared.compiled.device} cannot be exported to C: move it to the CPU")
    made = executable.made
    if any(isinstance(step, Foreign) for step in made.steps):
        raise CompileError(f"{name} calls functions from outside of tilegrad, which a shared object for C cannot hold")
    kernels = {step.kernel.form(): step.kernel for step in made.steps if isinstance(step, Launch)}
    numbers = {form: n for n, form in enumerate(kernels)}
    bound = bind_sizes(made, lambda k: numbers[k.form()], {"copy_bytes": COPY, "call_outside": COPY}, prepared.sizes)
    names = [*network.argument_names, *[f"result{n}" if n else "result" for n in range(len(expected))]]
    arrays = list(map(_array, _identifiers(names), [*map(_numpy, prepared.leaves), *expected]))
    arguments, results = arrays[: len(prepared.leaves)], arrays[len(prepared.leaves) :]
    if len(prepared.program.outputs.templates) < len(bound.results):
        raise CompileError(f"{name} changes its tensors in a call, which a shared object for C cannot")
    if any(template is None for template in prepared.program.outputs.templates):
        raise CompileError(f"a result of {name} is a view of an argument or of another result: return it once")
    given = {n: arguments[a.n].name for n, a in enumerate(prepared.program.traced.arguments)}
    weights = _weights(prepared, bound, given)
    for number, datum in enumerate(bound.results):
        given.setdefault(datum, results[number].name)
    given[bound.inputs + len(bound.made)] = "workspace"
    return CProgram(name, arguments, results, bound, given, list(kernels.values()), weights)


def _identifiers(names: Sequence[str]) -> list[str]:
    """Make different names for C of names.

    >>> _identifiers(["x.a", "x_a", "int", "workspace"])
    ['x_a', 'x_a_', 'int_', 'workspace_']
    """
    made = [*KEYWORDS]
    for name in names:
        word = re.sub(r"\W", "_", name, flags=re.ASCII)
        while word in made:
            word += "_"
        made.append(word)
    return made[len(KEYWORDS) :]


def _numpy(x: Tensor) -> np.ndarray[Any, Any]:
    return x.detach().numpy()


def _array(name: str, x: np.ndarray[Any, Any]) -> CArray:
    usual = f"{x.dtype.name}_t" if "int" in x.dtype.name else "uint8_t"
    return CArray(name, C_TYPES.get(x.dtype.name, usual), x.shape, x.dtype.name)


def _weights(prepared: PreparedProgram, bound: BoundProgram, given: dict[int, str]) -> bytes:
    """Return the elements of all other inputs that calls read, and name their places in C."""
    buffers, used = prepared.buffers(), {patch.datum for patch in bound.patches} | set(bound.results)
    parts, at = [], 0
    for datum in sorted(used):
        if datum < bound.inputs and datum not in given:
            data = ctypes.string_at(buffers[datum].address, buffers[datum].bytes)
            given[datum] = f"weights + {at}"
            parts.append(data + bytes(-len(data) % ALIGNMENT))
            at += len(parts[-1])
    return b"".join(parts)


def header_of(program: CProgram) -> str:
    """Return the header."""
    name, upper = program.name, program.name.upper()
    parameters = _parameters(program)
    status = ", ".join([f"{upper}_{word} = {n}" for n, word in enumerate(STATUS)])
    arrays = "; ".join(map(str, [*program.arguments, *program.results]))
    return f"""/* {name}: a network, compiled by tilegrad {VERSION} for {objects.host().cpu}; it needs no Python. */
#ifndef {upper}_H
#define {upper}_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_WORKSPACE_BYTES {max(ALIGNMENT, -(-program.bound.arena // ALIGNMENT) * ALIGNMENT)}
enum {{ {status} }};

/* {arrays}.
   All arrays are row-major, and begin at multiples of {ALIGNMENT} bytes, as does the workspace (aligned_alloc).
   Nothing is allocated. Threads may call the function at the same time, each with its own results and workspace. */
int {name}_run({parameters});

#ifdef __cplusplus
}}
#endif
#endif
"""


def source_of(program: CProgram) -> str:
    """Return the function in C."""
    name, upper, bound = program.name, program.name.upper(), program.bound
    pointers = [*[x.name for x in (*program.arguments, *program.results)], "workspace"]
    slots = [[str(n) for n in call.slots] for call in bound.calls]
    for patch in bound.patches:
        slots[patch.call][patch.slot] = f"AT({program.given[patch.datum]}, {patch.offset})"
    calls = [_call(program, call, words) for call, words in zip(bound.calls, slots, strict=True)]
    copies = [
        f"    memcpy({x.name}, {program.given[datum]}, {_bytes(x)});"
        for x, datum in zip(program.results, bound.results, strict=True)
        if program.given[datum] != x.name
    ]
    features = (*PROCESSORS.get(objects.host().cpu, ()), *(["avx512bf16"] if target().pairs else []))
    supported = " && ".join([f'__builtin_cpu_supports("{feature}")' for feature in features]) or "1"
    prepare = "syscall(SYS_arch_prctl, 0x1023, 18) == 0" if target().matrix_unit else "1"
    return "\n".join(
        [
            "#define _GNU_SOURCE\n#include <string.h>\n#include <sys/syscall.h>\n#include <unistd.h>",
            f'#include "{name}.h"',
            "#define AT(base, offset) (int64_t)((const unsigned char *)(base) + (offset))",
            f'extern const unsigned char {name}_weights[] __attribute__((visibility("hidden")));',
            f'__attribute__((visibility("hidden"))) volatile int64_t {SYMBOL}[{BYTES // 8}];',
            *[f"void {name}_{n}(const int64_t *, int64_t, int64_t);" for n in range(len(program.kernels))],
            "",
            f'__attribute__((visibility("default"))) int {name}_run({_parameters(program)}) {{',
            f"    const unsigned char *weights = {name}_weights;",
            f"    if (!({supported}) || !({prepare})) return {upper}_OTHER_PROCESSOR;",
            f"    if (({' | '.join(f'(uintptr_t){p}' for p in pointers)}) % {ALIGNMENT}) return {upper}_UNALIGNED;",
            "    (void)weights;",
            *calls,
            *copies,
            f"    if ({SYMBOL}[0]) {{ {SYMBOL}[0] = 0; return {upper}_WRONG_INDEX; }}",
            f"    return {upper}_DONE;",
            "}",
            "",
        ]
    )


def _call(program: CProgram, call: NativeCall, words: Sequence[str]) -> str:
    if call.kernel == COPY:
        return f"    memcpy((void *){words[1]}, (const void *){words[0]}, {words[2]});"
    arguments = f"const int64_t arguments[] = {{{', '.join(words)}}};"
    return f"    {{ {arguments} {program.name}_{call.kernel}(arguments, 0, {call.instances}); }} /* {call.name} */"


def _parameters(program: CProgram) -> str:
    inputs = [f"const {x.type} *{x.name}" for x in program.arguments]
    return ", ".join([*inputs, *[f"{x.type} *{x.name}" for x in program.results], "void *workspace"])


def _bytes(x: CArray) -> int:
    return int(np.prod(x.shape, dtype=np.int64)) * np.dtype(x.dtype).itemsize


def _built(program: CProgram, folder: Path) -> Path:
    """Compile and link the shared object in a folder."""
    name = program.name
    (folder / f"{name}.h").write_text(header_of(program))
    (folder / f"{name}.c").write_text(source_of(program))
    (folder / "weights.bin").write_bytes(program.weights or bytes(ALIGNMENT))
    (folder / "weights.S").write_text(
        f".section .rodata\n.balign {ALIGNMENT}\n.globl {name}_weights\n.hidden {name}_weights\n{name}_weights:\n"
        '.incbin "weights.bin"\n.section .note.GNU-stack,"",@progbits\n'
    )
    files = [f"{name}.c", "weights.S"]
    for n, kernel in enumerate(program.kernels):
        (folder / f"{n}.o").write_bytes(library_object(kernel, f"{name}_{n}"))
        files.append(f"{n}.o")
    found = compiler("c")
    command = found.command_line(files, f"{name}.so", [], [], ["-lm"], shared=True, language="c")
    status, said = run_compiler(command, str(folder))
    if status:
        raise CompileError(f"{found.name} could not link {name}.so:\n{said.strip()}")
    return folder / f"{name}.so"


def _compare(
    program: CProgram, built: Path, given: Sequence[np.ndarray[Any, Any]], expected: Sequence[np.ndarray[Any, Any]]
) -> None:
    """Call the shared object, and compare its results with tilegrad's."""
    run = ctypes.CDLL(str(built))[f"{program.name}_run"]
    arrays = [_aligned(x.nbytes) for x in (*given, *expected)] + [_aligned(program.bound.arena)]
    for x, place in zip(given, arrays, strict=False):
        place[: x.nbytes] = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    status = run(*[ctypes.c_void_p(place.ctypes.data) for place in arrays])
    if status:
        raise CompileError(f"{program.name}.so does not run here: status {STATUS[status]}")
    for x, place in zip(expected, arrays[len(given) :], strict=False):
        if place[: x.nbytes].tobytes() != np.ascontiguousarray(x).tobytes():
            raise CompileError(f"{program.name}.so computes other results than tilegrad: it is not written")


def _aligned(bytes: int) -> np.ndarray[Any, Any]:
    memory = np.zeros(bytes + 2 * ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + bytes + ALIGNMENT]
