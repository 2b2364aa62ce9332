"""Machines without a GPU: error messages, and the null driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tilegrad as tg
from tilegrad.backend.cuda.nvrtc import is_available as has_compiler
from tilegrad.errors import DeviceError

ROOT = Path(__file__).parents[3]
NO_GPU = pytest.mark.skipif(tg.cuda.is_available(), reason="there is a GPU")
SCRIPT = """
import tilegrad as tg

@tg.jit
def scores(x):
    return (x * 2).softmax(-1)

print(scores(tg.ones(4, 8).cuda()).sum().item(), tg.cuda.get_device_name(), tg.cuda.device_count())
"""


def python(setting: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TILEGRAD_CUDA": setting, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=120)


@NO_GPU
def test_missing_driver_is_reported() -> None:
    assert not tg.cuda.is_available()
    assert not tg.cuda.is_bf16_supported()
    assert tg.cuda.device_count() == 0
    assert all(place.kind != "cuda" for place in tg.devices())
    tg.cuda.empty_cache()
    for ask in (tg.cuda.synchronize, tg.cuda.Stream, tg.cuda.get_device_name, tg.ones(3).cuda):
        with pytest.raises(DeviceError, match="no device 'cuda' here: there is no NVIDIA driver here") as caught:
            ask()
        assert "\n" not in str(caught.value)
        assert "TILEGRAD_CUDA=null compiles without one" in str(caught.value)
    x = tg.ones(3)
    assert x.pin_memory() is x
    assert not x.is_pinned()


def test_the_wrong_kind() -> None:
    with pytest.raises(DeviceError, match="cpu is not a GPU"):
        tg.cuda.synchronize("cpu")


def test_off_and_misspelt_settings() -> None:
    made = python("off", "-c", "import tilegrad as tg; tg.ones(1).cuda()")
    assert "there is no device 'cuda' here: TILEGRAD_CUDA=off is set" in made.stderr
    made = python("nul", "-c", "import tilegrad as tg; tg.devices()")
    assert "TILEGRAD_CUDA='nul': one of off, null, synchronous, checked is wanted" in made.stderr


def test_null_driver_shows_the_kernels(tmp_path: Path) -> None:
    """`python -m tilegrad explain` without a GPU shows CUDA C++, and machine code if there is a compiler."""
    script = tmp_path / "scores.py"
    script.write_text(SCRIPT)
    made = python("null", "-m", "tilegrad", "explain", str(script))
    assert made.returncode == 0, made.stderr
    assert "0.0 NVIDIA H200 1\n" in made.stdout
    assert "=== source ===" in made.stdout
    assert 'extern "C" __global__' in made.stdout
    assert "cuda:0 runs nothing here: there are no times" in made.stdout
    assert "a run" not in made.stdout
    assert "scores.py:6" in made.stdout
    if has_compiler():
        assert "registers, 0 bytes spilled, " in made.stdout
    else:
        assert "// mul_kernel: not compiled (there is no NVRTC: " in made.stdout


def test_without_a_compiler_there_is_the_source(tmp_path: Path) -> None:
    code = (
        "from tilegrad.backend.cuda import nvrtc\n"
        "from tilegrad.errors import DeviceError\n"
        "def missing(): raise DeviceError('no compiler')\n"
        "nvrtc.library = missing\n"
        "import tilegrad as tg\n"
        "e = tg.explain(lambda x: x * 3, tg.ones(100, device='cuda'))\n"
        "print(e['source'], len(e.assembly))\n"
    )
    environment = os.environ | {"TILEGRAD_CUDA": "null", "PYTHONPATH": str(ROOT), "TILEGRAD_CACHE": str(tmp_path)}
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert "// mul_kernel: not compiled (there is no NVRTC: " in made.stdout, made.stderr
    assert made.stdout.endswith("}\n 0\n")
