"""Compile user CUDA sources with NVRTC, cached on disk by content.

A body becomes a kernel; kernel parameters are matched by name to arguments, extents and numbers. Several sources are
compiled together, because NVRTC has no linker.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from ..backend.cuda import nvrtc
from ..errors import CompileError, SignatureError
from ..ir.dtype import DType, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from ..runtime.cache import key
from . import glue, store
from .build import INCLUDE, BuildOptions, BuildReport, _folder, _write_if_changed
from .definitions import Definition
from .patterns import Signature, TensorPattern
from .source import GLUE_FILE, ForeignSource, compile_error

SCALAR_C_TYPES: dict[str, DType] = {
    "float": float32, "double": float64, "char": int8, "signed char": int8, "unsigned char": uint8, "short": int16,
    "unsigned short": uint16, "int": int32, "unsigned": uint32, "unsigned int": uint32, "long": int64,
    "unsigned long": uint64, "long long": int64, "unsigned long long": uint64, "size_t": uint64, "bool": uint8,
}  # fmt: skip
"""C++ types of the numbers that kernels take."""
SCALAR_C_TYPES |= {f"{d.name}_t": d for d in (int8, int16, int32, int64, uint8, uint16, uint32, uint64)}


class KernelParameter(NamedTuple):
    """A kernel parameter: the address of a tensor (`dtype` None), a number, or an extent of a tensor."""

    name: str
    dtype: DType | None
    axis: int | None = None
    """Axis of the tensor `name` whose extent is passed."""


class CudaKernel(NamedTuple):
    """A compiled kernel."""

    symbol: str
    image: bytes
    registers: int
    static_shared: int
    words: tuple[KernelParameter, ...]
    report: BuildReport


def kernel_parameters(signature: Signature, definition: Definition) -> tuple[KernelParameter, ...]:
    """Match the parameters of a user's kernel by name."""
    glue.arguments(signature, definition)
    tensors = {p.name for p in (*signature.parameters, *signature.results) if p.is_tensor}
    made = []
    for p in definition.parameters:
        kind = re.sub(r"\b(const|__restrict__|__grid_constant__|volatile|std::)\b", " ", p.type)
        kind = " ".join(kind.split())
        if p.name in tensors:
            if not kind.endswith("*") and p.type.count("*") != 1:
                raise SignatureError(
                    f"{definition}: `{p.name}` is a tensor: a kernel takes its address, {kind} *{p.name}"
                )
            made.append(KernelParameter(p.name, None))
        elif kind in SCALAR_C_TYPES:
            made.append(KernelParameter(p.name, SCALAR_C_TYPES[kind]))
        else:
            raise SignatureError(
                f"{definition}: `{p.name}` is a number, and {p.type} is none: int64_t, int, float, ... are"
            )
    return tuple(made)


def body_parameters(signature: Signature, ranks: Mapping[str, int]) -> tuple[KernelParameter, ...]:
    """Return the parameters of a kernel generated from a body."""
    tensors = (*signature.tensors, *signature.results)
    made = [KernelParameter(p.name, None) for p in tensors]
    made += [KernelParameter(p.name, int64, axis) for p in tensors for axis in range(ranks[p.name])]
    made += [KernelParameter(p.name, dtype) for p, dtype in zip(signature.scalars, signature.scalar_types, strict=True)]
    return tuple(made + [KernelParameter(name, int64) for name in glue.extents_of(signature)])


def cuda_source(
    signature: Signature,
    definition: Definition | None,
    given: Sequence[ForeignSource],
    dtypes: Mapping[str, DType],
    ranks: Mapping[str, int],
) -> str:
    """Generate the whole source to compile."""
    top = '#include "tilegrad.cuh"\n' + "".join(f"typedef {glue.c_type(d)} {n};\n" for n, d in sorted(dtypes.items()))
    if definition is not None:
        return top + "".join(_numbered(n, source.path, source.text) for n, source in enumerate(given))
    above, inner = glue.split_preamble(given[0].text)
    inputs = {p.name for p in signature.tensors}
    taken, lines = [], []
    for p in (*signature.tensors, *signature.results):
        assert isinstance(p.type, TensorPattern)
        dtype = p.type.dtype if isinstance(p.type.dtype, DType) else dtypes[p.type.dtype.name]
        element = f"{'const ' if p.name in inputs else ''}{glue.c_type(dtype)}"
        rank = ranks[p.name]
        taken.append(f"{element} *{p.name}_data")
        extents = ", ".join(f"{p.name}_{axis}" for axis in range(rank))
        lines.append(f"    const tg::View<{element}, {rank}> {p.name} = {{{p.name}_data, {{{extents or '1'}}}}};\n")
    taken += [f"int64_t {p.name}_{a}" for p in (*signature.tensors, *signature.results) for a in range(ranks[p.name])]
    taken += [f"{glue.c_type(d)} {p.name}" for p, d in zip(signature.scalars, signature.scalar_types, strict=True)]
    taken += [f"int64_t {name}" for name in glue.extents_of(signature)]
    return (
        f'{top}#line 1 "<source 0>"\n{above}\n#line 1 "{GLUE_FILE}"\n'
        f'extern "C" __global__ void {glue.symbol(signature.name)}({", ".join(taken)}) {{\n{"".join(lines)}'
        f'#line 1 "<source 0>"\n{inner}\n}}\n'
    )


def _numbered(n: int, path: Path | None, text: str) -> str:
    return f'#line 1 "{path.as_posix() if path else f"<source {n}>"}"\n{text}\n'


def compile_kernel(
    signature: Signature,
    definition: Definition | None,
    given: Sequence[ForeignSource],
    dtypes: Mapping[str, DType],
    ranks: Mapping[str, int],
    choices: BuildOptions,
    architecture: str,
) -> CudaKernel:
    """Compile the kernel for an architecture, or load it from the disk cache."""
    start = perf_counter()
    text = cuda_source(signature, definition, given, dtypes, ranks)
    taken = kernel_parameters(signature, definition) if definition else body_parameters(signature, ranks)
    include = (INCLUDE, *choices.include)
    name = signature.name
    digest = key("kernel", _compiler(), architecture, text, *choices.flags, *headers(text, given, include))
    payload, seconds = store.read(digest), 0.0
    if payload is None:
        options = [*(f"--include-path={folder}" for folder in include), *choices.flags]
        begin = perf_counter()
        try:
            image, log = nvrtc.compile(text, architecture, *options)
        except CompileError as refused:
            said = refused.args[0].partition("\n")[2] or refused.args[0]
            raise compile_error(name, f"NVRTC for {architecture}", said, given) from None
        seconds = perf_counter() - begin
        payload = json.dumps(parse_resources(log)).encode() + b"\0" + image
        store.write(digest, payload)
    head, _, image = payload.partition(b"\0")
    used = json.loads(head)
    symbol = symbol_of(name if definition else glue.symbol(name), image)
    registers, shared = used.get(symbol, (0, 0))
    if choices.build_directory:
        folder = Path(_folder(choices.build_directory))
        folder.mkdir(parents=True, exist_ok=True)
        _write_if_changed(folder / f"{name}.cu", text.encode())
        _write_if_changed(folder / f"{name}.{architecture}.cubin", image)
    own = perf_counter() - start - seconds
    report = BuildReport(name, "NVRTC" if seconds else "", seconds, own, int(bool(seconds)) * len(given), len(given))
    if choices.verbose:
        print(f"tilegrad: {report}")
    return CudaKernel(symbol, image, registers, shared, taken, report)


def parse_resources(log: str) -> dict[str, tuple[int, int]]:
    r"""Parse registers and static shared memory of each kernel from ptxas output.

    >>> text = "info : Compiling entry function '_Z1fPf' for 'sm_90a'\ninfo : Used 12 registers, 64 bytes smem"
    >>> parse_resources(text)
    {'_Z1fPf': (12, 64)}
    """
    found = {}
    for part in log.split("Compiling entry function ")[1:]:
        registers, shared = re.search(r"Used (\d+) registers", part), re.search(r"(\d+) bytes smem", part)
        name = part.partition("'")[2].partition("'")[0]
        found[name] = (int(registers[1]) if registers else 0, int(shared[1]) if shared else 0)
    return found


def symbol_of(name: str, image: bytes) -> str:
    """Return the mangled name of a kernel."""
    wanted = name.encode()
    found = re.findall(rb"\.text\.(\w+)", image)
    plain = [symbol for symbol in found if symbol == wanted]
    mangled = [symbol for symbol in found if symbol.startswith(b"_Z%d%b" % (len(wanted), wanted))]
    if not plain + mangled:
        raise SignatureError(
            f"the kernel {name} is not in the machine code: a template is compiled only where it is used"
        )
    symbol: str = (plain + mangled)[0].decode()
    return symbol


def headers(text: str, given: Sequence[ForeignSource], include: Sequence[str]) -> list[str]:
    """Return the contents of all included files, transitively."""
    found: dict[str, str] = {}
    folders = [*{str(s.path.parent) for s in given if s.path}, *include]
    waiting = [text]
    while waiting:
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', waiting.pop(), re.MULTILINE):
            path = next((p for f in folders if os.path.isfile(p := os.path.join(f, name))), None)
            if path and path not in found:
                found[path] = Path(path).read_text(encoding="utf-8", errors="replace")
                waiting.append(found[path])
    return [part for item in sorted(found.items()) for part in item]


def _compiler() -> str:
    """Identify NVRTC without loading it."""
    for path in nvrtc.candidates():
        if os.path.isfile(path):
            status = os.stat(path)
            return f"{path} {status.st_size} {status.st_mtime_ns}"
    return "the loader's"
