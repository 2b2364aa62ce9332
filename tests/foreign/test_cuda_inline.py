"""CUDA from texts on a machine without a GPU: compiled for one, its launches checked; called on the null device."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from tests.checklist import checklist
from tests.foreign.kernels import SIGNATURE, SQUARE, product_of_the_lab, square_2d
from tilegrad.errors import CompileError, DeviceError, LaunchError

pytestmark = pytest.mark.usefixtures("cuda")


def test_a_body_has_a_thread_for_each_element() -> None:
    launch = tg.cuda.inline(SQUARE, SIGNATURE).launch(tg.ones(33, 31))
    assert (launch.grid, launch.block) == ((4, 1, 1), (256, 1, 1))
    assert 0 < launch.registers < 64
    assert "4 blocks of 256 threads" in str(launch)


def test_nothing_is_launched_for_nothing() -> None:
    assert tg.cuda.inline(SQUARE, SIGNATURE).launch(tg.ones(0, 3)) is None


@checklist(119)
def test_grids_of_two_axes() -> None:
    """Width and height that are no multiples of 16."""
    launch = square_2d().launch(tg.ones(33, 50))
    assert (launch.grid, launch.block) == ((4, 3, 1), (16, 16, 1))


LAUNCHES: list[tuple[dict[str, Any], str]] = [
    ({"block": 1025}, r"a block of \(1025, 1, 1\) threads: .* allows 1 to \(1024, 1024, 64\)"),
    ({"block": (1025, 1, 1)}, r"\(1025, 1, 1\).*\(1024, 1024, 64\)"),
    ({"block": (1, 1, 65)}, r"\(1, 1, 65\).*\(1024, 1024, 64\)"),
    ({"block": 0}, r"\(0, 1, 1\).*allows 1 to"),
    ({"block": (-1,)}, r"\(-1, 1, 1\).*allows 1 to"),
    ({"block": (32, 33)}, r"1056 threads in a block of \(32, 33, 1\): .* allows 1024"),
    ({"grid": 0}, r"a grid of \(0, 1, 1\) blocks: .* allows 1 to"),
    ({"grid": (1, 65536)}, r"\(1, 65536, 1\).*65535"),
    ({"grid": (1, 1, 70000)}, r"\(1, 1, 70000\).*65535"),
    ({"grid": lambda n: -n}, r"\(-5, 1, 1\)"),
    ({"shared": 300_000}, "300000 bytes of shared memory: .* allows 232448"),
    ({"shared": -1}, "-1 bytes of shared memory"),
]


@checklist(60)
@pytest.mark.parametrize(("options", "message"), LAUNCHES, ids=[message for _, message in LAUNCHES])
def test_launches_that_no_gpu_does(options: dict[str, Any], message: str) -> None:
    """The error names the request and the limit, before anything is launched."""
    f = tg.cuda.inline("out[0] = x[0];", "f(x: float[n]) -> float[n]", **options)
    with pytest.raises(LaunchError, match=message):
        f.launch(tg.ones(5))


def test_its_own_shared_memory_counts() -> None:
    body = "__shared__ float kept[12000]; kept[threadIdx.x] = x[0]; __syncthreads(); out[0] = kept[1];"
    f = tg.cuda.inline(body, "f(x: float[n]) -> float[n]", shared=lambda n: 50_000 * n)
    assert f.launch(tg.ones(1)).static_shared == 48_000
    with pytest.raises(LaunchError, match=r"298000 bytes of shared memory \(48000 of them its own\)"):
        f.launch(tg.ones(5))


def test_dtypes_that_vary() -> None:
    f = tg.cuda.inline("out[threadIdx.x] = T(float(x[threadIdx.x]) * 2.0f);", "f(x: T[n]) -> T[n]")
    for dtype in (tg.float32, tg.float64, tg.float16, tg.bfloat16, tg.int64, tg.uint8, tg.bool_):
        assert f.launch(tg.ones(5).to(dtype)).threads == 256


def test_several_kernels_and_sources() -> None:
    """A function of one source is used in another; kernels of one name live in two extensions."""
    made = tg.cuda.inline(
        [
            "__device__ float twice(float x) { return x + x; }",
            "__global__ void first(const float *x, float *out) { out[threadIdx.x] = twice(x[threadIdx.x]); }\n"
            "__global__ void second(const float *x, float a, float *out) { out[threadIdx.x] = a * x[threadIdx.x]; }",
        ],
        "first(x: float[n]) -> float[n]\nsecond(x: float[n], a: float) -> float[n]",
        block=32,
    )
    assert made.first.launch(tg.ones(32)).blocks == 1
    assert made.second.launch(tg.ones(64), 2.0).blocks == 2


def test_an_error_is_at_its_line() -> None:
    with pytest.raises(CompileError, match='identifier "missing" is undefined') as caught:
        tg.cuda.inline(
            """
            int i = threadIdx.x;
            out[i] = missing;
            """,
            "f(x: float[n]) -> float[n]",
        )
    line = int(str(caught.value).split("test_cuda_inline.py:")[1].split(":")[0])
    assert "out[i] = missing;" in Path(__file__).read_text().split("\n")[line - 1]


@checklist(118)
def test_kept_by_content(own_cache: Path, tmp_path: Path) -> None:
    folder, header = tmp_path / "built", tmp_path / "factor.h"
    header.write_text("#define FACTOR 1\n")
    body, signature = '#include "factor.h"\nout[threadIdx.x] = FACTOR * x[threadIdx.x];', "f(x: float[n]) -> float[n]"

    def built(**options: Any) -> int:
        f = tg.cuda.inline(body, signature, include=[str(tmp_path)], build_directory=folder, **options)
        f.launch(tg.ones(3))
        return int(f.report().compiled)

    assert [built(), built(), built(flags=["-DOTHER"])] == [1, 0, 1]
    header.write_text("#define FACTOR 2\n")
    assert [built(), built()] == [1, 0]
    assert sorted(p.name for p in folder.iterdir()) == ["f.cu", "f.sm_90a.cubin"]


def test_without_a_gpu_it_says_what_to_do() -> None:
    with pytest.raises(DeviceError, match=r"`x` is on cpu: give it x.cuda\(\); without a GPU square.launch"):
        tg.cuda.inline(SQUARE, SIGNATURE)(tg.ones(3))


def test_on_the_null_device_it_is_called(tmp_path: Path) -> None:
    """Everything but the launch itself happens, and one line says so."""
    script = tmp_path / "script.py"
    script.write_text(
        f"import tilegrad as tg\nf = tg.cuda.inline({SQUARE!r}, {SIGNATURE!r})\n"
        "x = tg.tensor([1.0, 2.0, 3.0], device='cuda:0')\nprint(f(x).tolist(), f(x).shape)\n"
        "g = tg.cuda.inline('out[0] = x[0];', 'g(x: float[n]) -> float[n]', block=(1, 1, 65))\n"
        "try:\n    g(x)\nexcept tg.errors.LaunchError as e:\n    print('refused')\n"
    )
    environment = {**os.environ, "TILEGRAD_CUDA": "null", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[0.0, 0.0, 0.0] (3,)", "refused"]
    assert done.stderr.count("runs nothing") == 1


@checklist(15)
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_the_kernel_of_the_lab_compiles(dtype: str) -> None:
    x = tg.ones(33, 31, dtype=getattr(tg, dtype))
    assert product_of_the_lab().launch(x, x, 33, 31, 33, 0, 1).grid == (3, 3, 1)
