"""Kernels are compiled while their program is being made, each form once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from tilegrad import config
from tilegrad.backend.cpu import build, executable, kernels_ahead
from tilegrad.ir.tile import Kernel

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path) -> Iterator[None]:
    with config.changed(cache=str(tmp_path)):
        yield


def recorded(number: int) -> tg.Tensor:
    """Record a program of several kernels that no other number has."""
    x = tg.rand(139, 88).realize()
    w = tg.rand(88, 88).realize()
    return ((x.softmax(1) @ w).softmax(1) @ w.T).softmax(1).roll(number, 1)


def test_all_kernels_are_begun_before_the_program_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    at_load: list[int] = []
    whole, load = kernels_ahead.start_compiling, executable.build_kernels

    def noted(kernel: Kernel, submit: Callable[..., Any] | None) -> Callable[[], bytes]:
        begun.append(kernel.form())
        return whole(kernel, submit)

    def loaded(kernels: Any) -> build.KernelCode:
        at_load.append(len(begun))
        return load(kernels)

    monkeypatch.setattr(kernels_ahead, "start_compiling", noted)
    monkeypatch.setattr(executable, "build_kernels", loaded)
    recorded(17).numpy()
    assert at_load[-1] == len(begun) > 2
    assert len(set(begun)) == len(begun)


def test_an_error_is_that_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the failed program is left for the next."""

    def broken(*_: Any) -> bytes:
        raise tg.errors.CompileError("no code")

    y = recorded(19)
    with monkeypatch.context() as patched:
        patched.setattr(build.objects, "compile_object", broken)
        with pytest.raises(tg.errors.CompileError, match="no code"):
            y.numpy()
    assert build.compiling.objects is build.kernel_objects
    assert y.numpy().shape == (139, 88)
