"""Compile tile kernels to cubins, cached on disk.

The key of an entry is the kernel itself, so that a process whose kernels are all cached generates no CUDA C++ and does
not load the compiler.
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
"""Architectures that tests compile for."""


class CudaBinary(Node):
    """A compiled kernel, with what a launch needs."""

    name: str
    """Name of the entry point."""
    source: str
    image: bytes
    threads: int
    shared: int
    """Bytes of dynamic shared memory."""
    registers: int
    """Registers of a thread."""
    spills: int
    """Bytes that a thread spills."""
    architecture: str
    maps: tuple[TensorMap, ...] = ()
    """Tensor maps of the kernel: its parameters after the grid."""
    resident: int = 0
    """Persistent blocks per multiprocessor; 0: one block per instance."""

    def blocks(self, instances: int, multiprocessors: int) -> int:
        """Return the number of blocks to launch."""
        return min(instances, self.resident * multiprocessors) if self.resident else instances

    @property
    def checks_indices(self) -> bool:
        """Whether the kernel takes the address of the fault record."""
        return f"int64* {PLACE}" in self.source

    @property
    def ptx(self) -> str:
        """PTX of the source."""
        from .nvrtc import ptx

        return ptx(self.source, self.architecture)

    @property
    def sass(self) -> str:
        """Disassembled machine code; empty without a disassembler."""
        from .nvrtc import disassemble

        return disassemble(self.image)


def build_kernel(kernel: Kernel, architecture: str) -> CudaBinary:
    """Return a kernel compiled for an architecture (`sm_90a`), from the disk cache if possible."""
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
    """Return the CUDA C++ of a kernel; needs no compiler."""
    from .code.lower import lower

    return lower(kernel, architecture).text


def _compiler() -> str:
    """Return the version of the compiler, or "none": then only cached kernels can be used."""
    from .nvrtc import version

    try:
        return ".".join(map(str, version()))
    except DeviceError:
        return "none"


def _compiled(kernel: Kernel, architecture: str) -> CudaBinary:
    from .code.lower import lower
    from .nvrtc import compile

    source = lower(kernel, architecture)
    try:
        image, log = compile(source.text, architecture)
    except CompileError as e:
        raise CompileError(f"{e}\n{blamed(str(e), kernel)}".rstrip()) from e
    registers, spills = report(log)
    return CudaBinary(
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
    """Return the kernel and the line that a compiler message refers to: the line that shares most names with its
    excerpt.
    """
    place = f"in kernel {kernel.name}" + (f" ({kernel.origin})" if kernel.origin else "")
    shown = re.search(r"^    \d+: (.*)$", message, re.MULTILINE)
    names = set(re.findall(r"[A-Za-z]\w*", shown[1])) if shown else set()
    lines = [line.strip() for line in str(kernel).split("\n") if not line.startswith(("#", "@", "def "))]
    shared = [len(names & set(re.findall(r"[A-Za-z]\w*", line))) for line in lines]
    best = max(shared, default=0)
    return f"{place}, where it says: {lines[shared.index(best)]}" if best else place


def report(log: str) -> tuple[int, int]:
    r"""Return the registers and spilled bytes of a ptxas log.

    >>> report("Used 40 registers, used 1 barriers\n0 bytes stack, 8 bytes spill stores, 4 bytes spill loads")
    (40, 12)
    """
    registers = re.search(r"Used (\d+) registers", log)
    spills = re.findall(r"(\d+) bytes spill", log)
    return int(registers[1]) if registers else 0, sum(map(int, spills))


def _packed(made: CudaBinary) -> bytes:
    fields = {name: getattr(made, name) for name in CudaBinary.fields if name != "image"}
    fields["maps"] = [map.packed() for map in made.maps]
    return json.dumps(fields).encode() + b"\0" + made.image


def _unpacked(data: bytes) -> CudaBinary | None:
    head, _, image = data.partition(b"\0")
    try:
        fields = json.loads(head)
        fields["maps"] = tuple([TensorMap.unpacked(map) for map in fields["maps"]])
        return CudaBinary(image=image, **fields)
    except (ValueError, TypeError):
        return None
