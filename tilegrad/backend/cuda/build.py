"""From tile kernels to cubins, kept on disk.

An entry is found by the kernel itself, so that a process which finds all of its kernels there writes no CUDA C++ and
does not load the compiler.
"""

from __future__ import annotations

import json
import re

from ...errors import CompileError, DeviceError
from ...ir.node import Node
from ...ir.tile import Kernel
from ...runtime import events
from ...runtime.cache import key, shared, sources
from .code.checked_indices import PLACE
from .tensor_map import TensorMap

ARCHITECTURES = ("sm_80", "sm_90a", "sm_120")
"""What is compiled for in tests."""


class Built(Node):
    """A compiled kernel, and how it is launched."""

    name: str
    """Of the entry point."""
    source: str
    image: bytes
    threads: int
    shared: int
    """Bytes of dynamic shared memory."""
    registers: int
    """Of a thread."""
    spills: int
    """Bytes that a thread stores and loads because it has too few registers."""
    architecture: str
    maps: tuple[TensorMap, ...] = ()
    """What the copy engine is told about tensors: further parameters, after the grid."""
    resident: int = 0
    """Blocks of a multiprocessor that take instance after instance; 0: there is a block for each."""

    def blocks(self, instances: int, multiprocessors: int) -> int:
        """How many are launched."""
        return min(instances, self.resident * multiprocessors) if self.resident else instances

    @property
    def checks_indices(self) -> bool:
        """Whether it takes the address where an index outside of its axis is noted."""
        return f"int64* {PLACE}" in self.source

    @property
    def ptx(self) -> str:
        """What the compiler makes of the source before the machine code."""
        from .nvrtc import ptx

        return ptx(self.source, self.architecture)

    @property
    def sass(self) -> str:
        """The machine code in print; empty where there is no disassembler."""
        from .nvrtc import disassembled

        return disassembled(self.image)


def built(kernel: Kernel, architecture: str) -> Built:
    """A kernel compiled for an architecture (`sm_90a`), from the disk if it was compiled before."""
    store = shared("kernels")
    name = key("cuda", sources("backend/cuda", "ir"), _compiler(), architecture, kernel.digest())
    found = store.read(name)
    made = _unpacked(found) if found is not None else None
    if made is None:
        with events.timed("compile", kernel.name, "cuda"):
            made = _compiled(kernel, architecture)
        store.write(name, _packed(made))
    return made


def kernel_source(kernel: Kernel, architecture: str = "sm_90a") -> str:
    """The CUDA C++ of a kernel; it needs no compiler."""
    from .code.lower import lower

    return lower(kernel, architecture).text


def _compiler() -> str:
    """The version of the compiler; where there is none, what others have compiled is taken."""
    from .nvrtc import version

    try:
        return ".".join(map(str, version()))
    except DeviceError:
        return "none"


def _compiled(kernel: Kernel, architecture: str) -> Built:
    from .code.lower import lower
    from .nvrtc import compile

    source = lower(kernel, architecture)
    try:
        image, log = compile(source.text, architecture)
    except CompileError as e:
        raise CompileError(f"{e}\n{blamed(str(e), kernel)}".rstrip()) from e
    registers, spills = report(log)
    return Built(
        source.name,
        source.text,
        image,
        source.threads,
        source.shared,
        registers,
        spills,
        architecture,
        source.maps,
        source.resident,
    )


def blamed(message: str, kernel: Kernel) -> str:
    """The kernel of which the compiler speaks, and its line: that which shares most names with the first text shown."""
    place = f"in kernel {kernel.name}" + (f" ({kernel.origin})" if kernel.origin else "")
    shown = re.search(r"^    \d+: (.*)$", message, re.MULTILINE)
    names = set(re.findall(r"[A-Za-z]\w*", shown[1])) if shown else set()
    lines = [line.strip() for line in str(kernel).split("\n") if not line.startswith(("#", "@", "def "))]
    shared = [len(names & set(re.findall(r"[A-Za-z]\w*", line))) for line in lines]
    best = max(shared, default=0)
    return f"{place}, where it says: {lines[shared.index(best)]}" if best else place


def report(log: str) -> tuple[int, int]:
    """Registers, and bytes spilled, from what ptxas says.

    >>> report("Used 40 registers, used 1 barriers\\n0 bytes stack, 8 bytes spill stores, 4 bytes spill loads")
    (40, 12)
    """
    registers = re.search(r"Used (\d+) registers", log)
    spills = re.findall(r"(\d+) bytes spill", log)
    return int(registers[1]) if registers else 0, sum(map(int, spills))


def _packed(made: Built) -> bytes:
    fields = {name: getattr(made, name) for name in Built.fields if name != "image"}
    fields["maps"] = [map.packed() for map in made.maps]
    return json.dumps(fields).encode() + b"\0" + made.image


def _unpacked(data: bytes) -> Built | None:
    head, _, image = data.partition(b"\0")
    try:
        fields = json.loads(head)
        fields["maps"] = tuple([TensorMap.unpacked(map) for map in fields["maps"]])
        return Built(image=image, **fields)
    except (ValueError, TypeError):
        return None
