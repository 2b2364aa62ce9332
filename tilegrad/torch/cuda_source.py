"""Split a .cu file into the host part for a C++ compiler and the device part for NVRTC.

The host's part is the whole file with every launch `k<<<grid, block>>>(x, y)` written as a call; kernels stay in it, as
functions that run on the CPU when a GPU is simulated. The device's part is what kernels need: functions marked
`__global__`, `__device__` or `__constant__`, types, constants, macros. Lines keep their numbers in both.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import CompileError

MARKS = ("__global__", "__device__", "__constant__")
HOST_WORDS = re.compile(
    r"\b(torch|at|c10|std|py|pybind11)\s*::(?!\s*(PackedTensorAccessor|RestrictPtrTraits|DefaultPtrTraits))"
)
BARRIERS = re.compile(r"\b__(syncthreads|syncwarp|shfl_\w+)\b")
DYNAMIC = re.compile(r"\bextern\s+__shared__\s+((?:__align__\s*\([^)]*\)\s*)?)([\w:<>\s]+?)\s+(\w+)\s*\[\s*\]\s*;")
KEPT_INCLUDE = re.compile(r"#\s*include\s*[<\"](cuda_fp16|cuda_bf16|cooperative_groups|mma|math_constants|curand\w*)")


class Parts(NamedTuple):
    """Both parts of a file, and the names of the kernels that are not templates."""

    host: str
    device: str
    kernels: tuple[str, ...]
    barriers: bool


def split_source(text: str, name: str = "kernel.cu") -> Parts:
    r"""Return both parts of a file.

    >>> parts = split_source("__global__ void f(int* x) { *x = 1; }\nvoid g() { f<<<1, 2>>>(p); }")
    >>> print(parts.device)
    __global__ void f(int* x) { *x = 1; }
    <BLANKLINE>
    >>> parts.host.splitlines()[1]
    'void g() { ::tilegrad::Grid(tilegrad_device, "kernel.cu", 2, 1, 2).run("f", [&](auto... a) { f(a...); }, p); }'
    """
    plain = blanked(text)
    device = "".join(_device_pieces(text, plain))
    kernels = tuple(
        re.findall(
            r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)",
            device,
        )
    )
    templates = set(re.findall(r"template\s*<[^{;]*?>\s*__global__[^({;]*?(\w+)\s*\(", device))
    return Parts(
        _launches_written(text, plain, name),
        device,
        tuple(k for k in kernels if k not in templates),
        bool(BARRIERS.search(plain)),
    )


def blanked(text: str) -> str:
    """Replace comments and string literals by spaces, so that the rest can be searched.

    >>> blanked('a = "x;" // {')
    'a = "  "     '
    """

    def spaces(match: re.Match[str]) -> str:
        found = match[0]
        inside = re.sub(r"[^\n]", " ", found)
        return f"{found[0]}{inside[1:-1]}{found[-1]}" if found[0] in "\"'" else inside

    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", spaces, text, flags=re.DOTALL)


# --- the device's part ---------------------------------------------------------------------------


def _device_pieces(text: str, plain: str) -> list[str]:
    """Return the declarations that kernels need, with empty lines for the rest."""
    found = []
    for begin, end in _declarations(plain):
        piece = text[begin:end]
        found.append(piece if _for_device(plain[begin:end]) else "\n" * piece.count("\n"))
    return found


def _declarations(plain: str) -> list[tuple[int, int]]:
    """Return the ranges of top-level declarations: each ends at its `;`, its closing brace, or at the end of a `#`
    line.
    """
    found: list[tuple[int, int]] = []
    begin = at = 0
    while at < len(plain):
        letter = plain[at]
        if letter == "#" and not plain[begin:at].strip():
            at = _line_end(plain, at)
        elif letter == "{":
            if re.match(r"\s*namespace\b", plain[begin:at]):
                found.append((begin, at + 1))
                begin = at = at + 1
                continue
            at = _closing(plain, at, "{", "}") + 1
            following = re.match(r"\s*[\w\s,*\[\]]*;", plain[at:])
            if following and re.search(
                r"\b(struct|class|enum|union)\b|=\s*$|=[^;]*$", plain[begin : plain.index("{", begin)]
            ):
                at += following.end()
        elif letter in ";}":
            at += 1
        else:
            at += 1
            continue
        found.append((begin, at))
        begin = at
    return [*found, (begin, len(plain))]


def _for_device(piece: str) -> bool:
    words = piece.strip()
    if words.startswith("#"):
        return not re.match(r"#\s*(include|pragma\s+once)", words) or bool(KEPT_INCLUDE.match(words))
    if any(mark in words for mark in MARKS):
        return True
    if words == "}" or re.match(r"(inline\s+)?namespace\b", words):
        return True
    if HOST_WORDS.search(words):
        return False
    return bool(
        re.match(
            r"(template\s*<[^{]*>\s*)?(struct|class|union|enum|using|typedef|constexpr|const|static\s+const)\b", words
        )
    ) and not re.match(r"using\s+namespace\s+(std|torch|at)\b", words)


def _line_end(plain: str, at: int) -> int:
    """Return the end of a preprocessor line, with its continuation lines."""
    while True:
        end = plain.find("\n", at)
        if end < 0:
            return len(plain)
        if plain[end - 1] != "\\":
            return end
        at = end + 1


def _closing(plain: str, at: int, opening: str, closing: str) -> int:
    """Return the position of the matching closing bracket."""
    depth = 0
    for n in range(at, len(plain)):
        if plain[n] == opening:
            depth += 1
        elif plain[n] == closing:
            depth -= 1
            if not depth:
                return n
    line = plain.count("\n", 0, at) + 1
    raise CompileError(f"line {line}: this {opening} is never closed")


# --- the host's part -----------------------------------------------------------------------------


def _launches_written(text: str, plain: str, name: str) -> str:
    made = []
    last = 0
    at = plain.find("<<<")
    while at >= 0:
        line = plain.count("\n", 0, at) + 1
        begin = _callee_start(plain, at)
        end = plain.find(">>>", at)
        if end < 0:
            raise CompileError(f"{name}:{line}: <<< without >>>")
        opening = end + 3 + len(plain[end + 3 :]) - len(plain[end + 3 :].lstrip())
        if opening >= len(plain) or plain[opening] != "(":
            raise CompileError(f"{name}:{line}: after >>> come the arguments of the kernel, in parentheses")
        closing = _closing(plain, opening, "(", ")")
        callee = text[begin:at].strip()
        configuration, arguments = text[at + 3 : end], text[opening + 1 : closing]
        made.append(text[last:begin] + _call(callee, configuration, arguments, name, line))
        last = closing + 1
        at = plain.find("<<<", last)
    made.append(text[last:])
    return DYNAMIC.sub(r"\2* \3 = (\2*)::tilegrad::dynamic_shared();", "".join(made))


def _call(callee: str, configuration: str, arguments: str, name: str, line: int) -> str:
    label = f"::tilegrad::kernel_name<&{callee}>()" if "<" in callee else f'"{callee}"'
    given = f", {arguments}" if arguments.strip() else ""
    return (
        f'::tilegrad::Grid(tilegrad_device, "{name}", {line}, {configuration}).run({label}, '
        f"[&](auto... a) {{ {callee}(a...); }}{given})"
    )


def _callee_start(plain: str, at: int) -> int:
    """Return the start of the name before `<<<`, with template arguments and namespaces."""
    n = at
    while n and plain[n - 1].isspace():
        n -= 1
    if plain[n - 1] == ">":
        depth = 0
        while n:
            n -= 1
            depth += (plain[n] == ">") - (plain[n] == "<")
            if not depth:
                break
        while n and plain[n - 1].isspace():
            n -= 1
    return n - len(re.search(r"[\w:]*$", plain[:n])[0])  # type: ignore[index]
