"""Unsupported versions of drivers, compilers and libraries; sources that the compiler rejects."""

import ctypes
from typing import Any

import pytest

from tests.backend.cuda.some_kernels import SCHEDULED
from tilegrad.backend.cuda import build, libraries, native, nvrtc
from tilegrad.backend.cuda.libraries import CUBLASLT, CUDNN, check_version
from tilegrad.backend.cuda.null import NullDriver
from tilegrad.backend.cuda.properties import check_compiler, properties
from tilegrad.config import changed
from tilegrad.errors import CompileError, DeviceError
from tilegrad.profile import doctor


class OldDriver:
    """A library that answers like the driver of CUDA 11.8."""

    def cuDriverGetVersion(self, place: Any) -> int:
        place._obj.value = 11080
        return 0


def test_a_driver_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: OldDriver())
    with pytest.raises(
        DeviceError, match=r"is for CUDA 11\.8, and 12\.0 or newer is needed \(driver 525; 580"
    ) as caught:
        native.NativeDriver()
    assert "\n" not in str(caught.value)


class BrokenDriver:
    """A library that returns one status from every function: a stub, or a driver without GPUs."""

    def __init__(self, codes: dict[str, int]) -> None:
        self.codes = codes

    def __getattr__(self, name: str) -> Any:
        def answer(*arguments: Any) -> int:
            if name == "cuDriverGetVersion":
                arguments[0]._obj.value = 13000
            return self.codes.get(name, 0)

        return answer


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ({"cuDriverGetVersion": 34}, "the NVIDIA driver does not work: unknown error"),
        ({"cuInit": 100}, r"finds no GPU: unknown error \(CUDA_VISIBLE_DEVICES='7' says which it may find\)"),
    ],
)
def test_a_driver_that_does_not_work(codes: dict[str, int], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: BrokenDriver(codes))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(DeviceError, match=said):
        native.NativeDriver()


def test_a_compiler_that_is_newer_than_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = properties(NullDriver(), 0)
    monkeypatch.setattr(nvrtc, "is_available", lambda: True)
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 5))
    check_compiler(limits)
    assert limits.runtime_version == 13050
    old = limits._replace(driver_version=12040)
    with pytest.raises(DeviceError, match=r"for CUDA 12\.4, and this NVRTC .* for 13\.5: update .*nvrtc-cu12"):
        check_compiler(old)
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 9))
    check_compiler(old)
    monkeypatch.setattr(nvrtc, "is_available", lambda: False)
    assert old.runtime_version == 0, "kernels that were compiled before are still there"
    check_compiler(old)


@pytest.mark.parametrize(
    ("number", "knob", "said"),
    [
        (111103, "", "not used: 12 to 13 is wanted"),
        (130100, "off", "not used: TILEGRAD_LIBRARIES=off"),
        (130100, "", "for products where it is faster"),
        (140000, "", "not used: 12 to 13 is wanted"),
    ],
)
def test_a_library_of_another_version(number: int, knob: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor` reports it in one line."""
    monkeypatch.setattr(libraries, "cublaslt", lambda: check_version(CUBLASLT, "libcublasLt.so", number))
    monkeypatch.setattr(libraries, "cudnn", lambda: None)
    monkeypatch.setattr(doctor.cuda, "absence", lambda: "")
    monkeypatch.setattr(doctor, "devices", list)
    with changed(libraries=knob):
        (found, _) = doctor.cuda_libraries()
    assert found.name == "cuBLASLt"
    assert found.fact.endswith(f"(libcublasLt.so): {said}")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (8907, "8.9.7 (libcudnn.so): not used: 9 is wanted"),
        (91400, "9.14.0 (libcudnn.so): for convolutions where it is faster"),
        (100000, "10.0.0 (libcudnn.so): not used: 9 is wanted"),
    ],
)
def test_cudnn_of_another_version(number: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "cublaslt", lambda: None)
    monkeypatch.setattr(libraries, "cudnn", lambda: check_version(CUDNN, "libcudnn.so", number, 13000))
    monkeypatch.setattr(doctor.cuda, "absence", lambda: "")
    monkeypatch.setattr(doctor, "devices", list)
    with changed(libraries="all"):
        (_, found) = doctor.cuda_libraries()
    assert (found.name, found.fact) == ("cuDNN", said)
    with changed(libraries=""):
        (_, found) = doctor.cuda_libraries()
    assert number != 91400 or found.fact.endswith("not used: TILEGRAD_LIBRARIES=all is needed for it")


def test_a_library_for_another_driver() -> None:
    for library in (
        check_version(CUBLASLT, "libcublasLt.so.13", 130100),
        check_version(CUDNN, "libcudnn.so.9", 91400, 13000),
    ):
        assert library.unusable_reason(12040) == "it is for CUDA 13, and the driver for 12.4"
        assert library.unusable_reason(13000) == ""


@pytest.mark.parametrize("name", ["cuBLASLt", "cuDNN"])
def test_library_without_functions_is_not_opened(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "cublaslt", lambda: check_version(CUBLASLT, "libcublasLt.so", 130100))
    monkeypatch.setattr(libraries, "cudnn", lambda: check_version(CUDNN, "libcudnn.so", 91400, 13000))
    monkeypatch.setattr(ctypes, "CDLL", lambda path: object())
    assert libraries.open_library(name, 13000) is None


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not here")
def test_compile_errors_name_kernel_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SCHEDULED["rows"].replaced(name="refused", origin="model.py:7")
    source = build.kernel_source(kernel)
    line = next(line for line in source.split("\n") if "expf(" in line and "=" in line)
    wrong = source.replace(line, line.replace("expf(", "no_function("))
    compile = nvrtc.compile
    monkeypatch.setattr(nvrtc, "compile", lambda text, architecture: compile(wrong, architecture))
    with pytest.raises(CompileError, match="no_function") as caught:
        build.build_kernel(kernel, "sm_90a")
    *_, said = str(caught.value).split("\n")
    assert said.startswith("in kernel refused (model.py:7), where it says: ")
    assert "tl.exp(" in said
