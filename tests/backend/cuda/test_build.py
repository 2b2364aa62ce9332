"""Compile kernels to cubins without a GPU: every function and node, three architectures, registers and spills."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.backend.cuda.functions_kernels import CASES, KIND, FunctionCase
from tests.backend.cuda.some_kernels import SCHEDULED, runs
from tests.known_kernels import KNOWN
from tilegrad.backend.cuda import build, nvrtc
from tilegrad.backend.cuda.build import ARCHITECTURES, build_kernel, kernel_source
from tilegrad.backend.cuda.code.lower import lower
from tilegrad.config import settings
from tilegrad.errors import CompileError, DeviceError
from tilegrad.ir.dtype import DTYPES, DType, bool_
from tilegrad.ir.functions import FUNCTIONS
from tilegrad.ir.tile import Apply, Arange, Assign, Kernel, Load, Name, Statement, Store, TileParameter
from tilegrad.ir.tile_parser import parse

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not here: pip install nvidia-cuda-nvrtc")

FIGURES = {"elements": (48, 256), "rows": (48, 512), "sums": (48, 512), "turned": (40, 512), "running": (64, 512)}
"""Upper bounds of registers and threads of kernels whose speed was measured; none of them may spill."""


def compiled(kernel: Kernel, architecture: str) -> tuple[int, int]:
    """Return registers and spilled bytes."""
    return build.report(nvrtc.compile(lower(kernel, architecture).text, architecture).log)


@needs_nvrtc
@pytest.mark.parametrize("name", FIGURES)
def test_registers(name: str) -> None:
    source = lower(SCHEDULED[name], "sm_90a")
    registers, spills = compiled(SCHEDULED[name], "sm_90a")
    most, threads = FIGURES[name]
    assert (registers <= most, spills, source.threads <= threads) == (True, 0, True), (
        registers,
        spills,
        source.threads,
    )


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_known_kernels(architecture: str) -> None:
    """Compile all of them for one architecture, every third for the others."""
    kernels = [make(np.random.default_rng(0)).kernel for make in KNOWN] + [case.kernel for case in runs()]
    for kernel in kernels if architecture == "sm_90a" else kernels[:: 3 if architecture == "sm_80" else 4]:
        assert compiled(kernel, architecture)[0] > 0


def every_function(dtype: DType) -> Kernel:
    """Return a kernel with all functions on a dtype, one store each."""
    fns = [f for f in FUNCTIONS.values() if f.result != "given" and f.in_kernels and KIND[dtype.kind] in f.domain]
    fns = [f for f in fns if f.name != "mulhi" or dtype.name == "uint32"]
    parameters = [TileParameter(f"x{n}", dtype) for n in range(3)] + [TileParameter("c", bool_)]
    body: list[Statement] = [Assign("i", Arange(0, 32))]
    body += [Assign(f"v{n}", Load(Name(f"x{n}") + Name("i"))) for n in range(3)]
    body.append(Assign("chosen", Load(Name("c") + Name("i"))))
    for f in fns:
        result = bool_ if f.result == "bool" else dtype
        parameters.append(TileParameter(f"out_{f.name}", result))
        args = tuple(Name(f"v{n}") for n in range(f.arity))
        args = (Name("chosen"), *args[1:]) if f.name == "where" else args
        body.append(Store(Name(f"out_{f.name}") + Name("i"), Apply(f.name, args)))
    return Kernel(f"all_of_{dtype.name}", tuple(parameters), tuple(body))


@needs_nvrtc
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_function(dtype: DType) -> None:
    assert compiled(every_function(dtype), "sm_90a")[0] > 0


@needs_nvrtc
def test_conversions() -> None:
    casts: list[FunctionCase] = [case for case in CASES if case.target is not None]
    for case in casts[::16]:
        assert compiled(case.kernel(), "sm_80")[0] > 0


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from tilegrad.runtime import cache

    monkeypatch.setattr(cache, "settings", lambda: settings()._replace(cache=str(tmp_path)))
    return tmp_path


@needs_nvrtc
def test_compiled_kernels_are_cached_on_disk(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SCHEDULED["turned"].replaced(name="turned_once")
    first = build_kernel(kernel, "sm_90a")
    monkeypatch.setattr(nvrtc, "compile", None)
    again = build_kernel(kernel, "sm_90a")
    assert first is not again
    assert first.field_values() == again.field_values()
    assert (first.name, first.spills, first.threads > 0) == ("turned_once_kernel", 0, True)
    assert first.image[:4] == b"\x7fELF"
    assert first.source == kernel_source(kernel)


@needs_nvrtc
def test_ptx_and_machine_code_can_be_read() -> None:
    made = build_kernel(SCHEDULED["elements"], "sm_90a")
    assert ".entry elements_kernel" in made.ptx
    assert "ld.global.nc.v4" in made.ptx
    if made.sass:
        assert "LDG.E.128" in made.sass


@needs_nvrtc
def test_a_refused_source_shows_its_line() -> None:
    with pytest.raises(CompileError, match=r'(?s)kernel\.cu\(2\): error.*"y" is undefined.*2: x\[0\] = y;'):
        nvrtc.compile('extern "C" __global__ void f(float* x) {\nx[0] = y;\n}', "sm_90a")


def test_missing_compiler_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "candidates", lambda: iter(["no/such/libnvrtc.so"]))
    with pytest.raises(DeviceError, match=r"pip install tilegrad\[cuda\]"):
        nvrtc.library.__wrapped__()  # type: ignore[attr-defined]


def test_too_much_shared_memory_is_an_error() -> None:
    kernel = parse("""
        def huge(x: "*f64", out: "*f64"):
            i = tl.arange(0, 512)
            j = tl.arange(0, 512)
            v = tl.load(x + i[:, None] * 512 + j[None, :])
            tl.store(out + i[:, None] * 512 + j[None, :], tl.trans(v * 2.0))
    """)
    with pytest.raises(CompileError, match="huge.*shared memory.*smaller tiles"):
        kernel_source(kernel)
