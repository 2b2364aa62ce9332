"""Compile LLVM IR to object files in this process, cache them on disk, and link them.

Linking an object file is much faster than compiling it. The generator already emits vector code, which LLVM's passes
would leave unchanged while doubling the compile time: they run only on request.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, Literal, NamedTuple, TypeAlias

from ...config import settings
from ...deferred import part
from ...errors import CompileError
from ...runtime import events
from ...runtime.cache import key, shared
from ...runtime.index_faults import SYMBOL
from ...runtime.singletons import guarded, once

AVX2 = frozenset({"avx", "avx2", "fma", "f16c"})
VECTOR_FEATURES: Mapping[str, frozenset[str]] = {
    "sse": frozenset(),
    "avx2": AVX2,
    "avx512": AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
"""Features that need wide registers, for each value of `TILEGRAD_VECTORS`."""


Optimise: TypeAlias = "bool | Literal['inline']"
"""Which of LLVM's passes run on a module: none, those of level 2, or only the inliner of what is marked for it."""


class HostProcessor(NamedTuple):
    """The processor that code is generated for."""

    triple: str
    cpu: str
    features: str


@once
def _llvm() -> Any:
    """Load LLVM, which takes longer than to find code on disk and to map it."""
    import llvmlite.binding as llvm

    guarded(llvm.ffi.lib._lock._lock)  # a child forked while another thread is in LLVM would deadlock
    return llvm


def host() -> HostProcessor:
    """Return the processor of this machine."""
    return HostProcessor(*_detected()[:3])


def version() -> str:
    """Return the version of LLVM."""
    return _detected()[3]


@once
def _detected() -> tuple[str, ...]:
    recorded = part("backend.cpu.host_record", "recorded")
    return _detect() if recorded is None else recorded(_detect)


def _detect() -> tuple[str, ...]:
    """Detect the processor of this machine, and the version of LLVM.

    LLVM's guess of the model is wrong in virtual machines, its list of features is right: the model is taken from the
    features, as one of the levels that x86-64 defines.
    """
    llvm = initialised_llvm()
    features, triple = llvm.get_host_cpu_features(), llvm.get_process_triple()
    version = ".".join(map(str, llvm.llvm_version_info))
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return triple, llvm.get_host_cpu_name(), features.flatten(), version
    features = permitted_features(features, settings().vectors)
    v4 = all(features.get(f"avx512{part}") for part in ("f", "bw", "cd", "dq", "vl"))
    v3 = all(features.get(part) for part in ("avx2", "fma", "bmi2", "f16c"))
    level = "-v4" if v4 else "-v3" if v3 else "-v2" if features.get("sse4.2") else ""
    flags = ",".join(f"{'+' if present else '-'}{name}" for name, present in sorted(features.items()))
    return triple, f"x86-64{level}", flags, version


def permitted_features(features: Mapping[str, bool], vectors: str) -> dict[str, bool]:
    """Switch off the features of x86 processors beyond those of `TILEGRAD_VECTORS`.

    >>> permitted_features({"sse4.2": True, "avx": True, "fma": True, "avx512f": True, "amx-tile": True}, "avx2")
    {'sse4.2': True, 'avx': True, 'fma': True, 'avx512f': False, 'amx-tile': False}
    """
    if not vectors:
        return dict(features)
    kept = VECTOR_FEATURES[vectors]
    return {
        name: present and (name in kept or not name.startswith(("avx", "amx", "fma", "f16c", "vaes", "vpclmul")))
        for name, present in features.items()
    }


class LinkedCode:
    """Linked machine code; it stays mapped as long as this object lives, and so do its owners."""

    def __init__(self, addresses: Mapping[str, int], owners: Sequence[Any], checks_indices: bool = False) -> None:
        self._owners = owners
        self.checks_indices = checks_indices
        """Whether the code may report an out-of-range index."""
        self.addresses = addresses


def cached_object(name: str, ir: str, host: HostProcessor, *, optimise: Optimise = False) -> bytes:
    """Compile a module of IR to an object file, or read it from the disk cache."""
    store = shared("objects")
    name_of_object = key("object", ir, *host, version(), optimise)
    found = store.read(name_of_object)
    if found is None:
        with events.timed("compile", name, "cpu"):
            found = compile_object(name, ir, host, optimise=optimise)
        store.write(name_of_object, found)
    return found


def compile_object(name: str, ir: str, host: HostProcessor, *, optimise: Optimise = False) -> bytes:
    """Compile a module of IR to an object file."""
    machine = target_machine(host)
    module = parsed_module(name, ir, machine, optimise)
    module.triple = host.triple
    try:
        return bytes(machine.emit_object(module))
    except RuntimeError as e:
        raise CompileError(f"kernel {name}: LLVM could not generate code: {e}") from e


def link(objects: Sequence[bytes], names: Sequence[str], symbols: Mapping[str, int] = {}) -> LinkedCode:
    """Link object files; `symbols` gives the addresses of names that they lack. LLVM links what cannot be mapped."""
    checks_indices = any(SYMBOL.encode() in data for data in objects)
    mapped = part("backend.cpu.map_objects", "map_objects")
    code = None if mapped is None else mapped(objects, symbols)
    if code is not None and all(name in code.exported for name in names):
        return LinkedCode({name: code.exported[name] for name in names}, [code], checks_indices)
    library = _llvm().JITLibraryBuilder()
    for data in objects:
        library.add_object_img(data)
    for symbol, address in symbols.items():
        library.import_symbol(symbol, address)
    library.add_current_process()
    for name in names:
        library.export_symbol(name)
    try:
        tracker = library.link(linker(), f"library{next(_libraries)}")
        return LinkedCode({name: int(tracker[name]) for name in names}, [tracker, linker()], checks_indices)
    except RuntimeError as e:
        raise CompileError(f"{', '.join(names[:3])}: the machine code does not link: {e}") from e


_libraries = count()


@once
def initialised_llvm() -> Any:
    llvm = _llvm()
    llvm.initialize_native_target()  # all targets would take 6 ms
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm


@once
def linker() -> Any:
    """Return the JIT linker."""
    return initialised_llvm().create_lljit_compiler(suppress_errors=True)


@cache
def target_machine(host: HostProcessor) -> Any:
    """Return the target machine, created once: creating it takes as long as compiling a small kernel."""
    # Level 2 of code generation: at level 0 LLVM aborts the process on AVX-512 code.
    target = initialised_llvm().Target.from_triple(host.triple)
    return target.create_target_machine(cpu=host.cpu, features=host.features, opt=2, jit=True)


def parsed_module(name: str, ir: str, machine: Any, optimise: Optimise) -> Any:
    """Parse and verify a module of IR, and run passes on it."""
    llvm = _llvm()
    try:
        module = llvm.parse_assembly(ir)
        module.verify()
    except RuntimeError as e:
        raise CompileError(f"kernel {name}: LLVM does not take what was generated for it: {e}") from e
    if optimise:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        builder = llvm.create_pass_builder(machine, options)
        if optimise == "inline":
            passes = llvm.create_new_module_pass_manager()
            passes.add_always_inliner_pass()
            passes.add_global_dead_code_eliminate_pass()
        else:
            passes = builder.getModulePassManager()
        passes.run(module, builder)
    return module
