"""Functions in C++: bodies, functions, files, results of all kinds, what is kept on disk, and what is counted."""

import gc
import os
import pydoc
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad.errors import CompileError, ForeignError, GradientError
from tilegrad.foreign import compilers
from tilegrad.foreign.build import INCLUDE

pytestmark = pytest.mark.usefixtures("cpp")

SQUARE = "for (int64_t i = 0; i < x.size(); ++i) out[i] = x[i] * x[i];"
SIGNATURE = "square(x: float[*s]) -> float[*s]  # every element times itself"


@pytest.fixture(scope="module")
def several() -> Any:
    """Functions of all kinds, compiled once."""
    return tg.cpp.inline(
        """
#include <vector>

static float twice(float x) { return x + x; }  // "a brace in a comment {"

void scale(const float *x, float alpha, float *out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
}

std::vector<tg::Tensor> pieces(tg::View<const float> x) {
    auto doubled = tg::empty_like(x);
    auto counted = tg::zeros<int64_t>({x.size(), 2});
    for (int64_t i = 0; i < x.size(); ++i) { doubled[i] = twice(x[i]); counted(i, 1) = i; }
    return {doubled, counted, x};
}

void divide(const int32_t *x, int by, int *quotient, int *rest, int64_t n) {
    TG_CHECK(by != 0, "by is %d",
             int(by));
    for (int64_t i = 0; i < n; ++i) { quotient[i] = x[i] / by; rest[i] = x[i] % by; }
}

tg::Tensor positive(tg::Tensor given) {
    auto x = given.as<float>();
    int64_t count = 0;
    for (float e : x) count += e > 0;
    auto made = tg::empty<float>({count});
    int64_t at = 0;
    for (float e : x) if (e > 0) made[at++] = e;
    return made;
}

TG_EXPORT int32_t rows(const tg_call *call) {
    if (call->inputs[0].ndim == 0) return TG_FAIL(call, "a number has no rows");
    *(int64_t *)call->outputs[0].data = call->inputs[0].shape[0];
    return 0;
}
""",
        """
        scale(x: float[n], alpha: float = 2) -> float[n]   # x times alpha
        pieces(x: float[n]) -> list                        # doubled, counted, and x itself
        divide(x: int[n], by: int) -> (quotient: int[n], rest: int[n])
        positive(given: float[*s]) -> Tensor
        rows(x: float[*s]) -> long[]
        """,
    )


def test_a_body() -> None:
    square = tg.cpp.inline(SQUARE, SIGNATURE)
    x = tg.rand(3, 5)
    assert np.array_equal(square(x).numpy(), x.numpy() ** 2)
    assert square(tg.zeros(0, 4)).shape == (0, 4)
    assert square(tg.tensor(3.0)).item() == 9


def test_numbers_and_extents(several: Any) -> None:
    x = tg.arange(4).float()
    assert several.scale(x).tolist() == [0, 2, 4, 6]
    assert several.scale(x, alpha=-1).tolist() == [0, -1, -2, -3]
    assert several.rows(tg.ones(7, 2)).item() == 7


@checklist(43)
def test_lists_of_tensors_and_nothing_leaks(several: Any, small_heap: None) -> None:
    """A call more or less changes no count: neither of bytes, nor of objects; so 100,000 calls do not either."""
    x = tg.arange(4).float().realize()
    doubled, counted, same = several.pieces(x)
    assert doubled.tolist() == [0, 2, 4, 6]
    assert counted.tolist() == [[0, 0], [0, 1], [0, 2], [0, 3]]
    assert same.tolist() == x.tolist()
    del doubled, counted, same
    counts = []
    for times in (10, 500):
        for _ in range(times):
            several.pieces(x)
            several.scale(x)
        gc.collect()
        counts.append((tg.live_bytes(), sys.getrefcount(x.value.buffer), len(gc.get_objects())))
    assert counts[0][:2] == counts[1][:2]
    assert counts[1][2] < counts[0][2] + 500  # of which a call that keeps anything would have made one at least


def test_dtypes_that_vary_are_compiled_apart() -> None:
    body = "for (int64_t i = 0; i < n; ++i) out[0] = T((i ? out[0] : T(0)) + x[i] * y[i]);"
    dot = tg.cpp.inline(body, "dot(x: T[n], y: T[n]) -> T[]")
    x = tg.arange(5)
    for dtype in (tg.float64, tg.bfloat16, tg.uint8):
        found = dot(x.to(dtype), x.to(dtype))
        assert found.dtype is dtype
        assert found.item() == 30


def test_several_results(several: Any) -> None:
    quotient, rest = several.divide(tg.tensor([7, 8, 9]).int(), 4)
    assert (quotient.tolist(), rest.tolist(), rest.dtype) == ([1, 2, 2], [3, 0, 1], tg.int32)


@checklist(120)
def test_the_tensor_of_cpp(several: Any) -> None:
    """size, empty_like, zeros and data of a dtype that is checked: a wrong one raises."""
    assert several.positive(tg.tensor([[1.0, -2.0], [0.0, 4.0]])).tolist() == [1, 4]
    wrong = tg.cpp.inline("return x.as<double>();", "wrong(x: float[n]) -> Tensor")
    with pytest.raises(ForeignError, match="a tensor of float32 is taken for one of float64"):
        wrong(tg.ones(2))


@checklist(45)
def test_functions_have_names_and_descriptions(several: Any) -> None:
    shown = pydoc.render_doc(several.scale, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    assert "scale(x: float32[n], alpha: float32 = 2) -> float32[n]" in shown
    assert "x times alpha" in shown
    assert "doubled, counted, and x itself" in pydoc.render_doc(several, renderer=pydoc.plaintext)  # type: ignore[attr-defined]


def test_what_a_function_says_is_at_its_line(several: Any) -> None:
    with pytest.raises(ForeignError, match=r"divide: by is 0\n.*test_cpp\.py:\d+: TG_CHECK\(by != 0") as caught:
        several.divide(tg.tensor([1]).int(), 0)
    line = int(str(caught.value).split("test_cpp.py:")[1].split(":")[0])
    assert "TG_CHECK(by != 0" in Path(__file__).read_text().split("\n")[line - 1]


@checklist(26)
def test_a_broken_source_is_shown_at_its_line() -> None:
    with pytest.raises(CompileError, match="'missing' was not declared") as caught:
        tg.cpp.inline(
            """
            int64_t count = 0;
            out[0] = missing;
            """,
            "broken(x: float[n]) -> float[n]",
        )
    line = int(str(caught.value).split("test_cpp.py:")[1].split(":")[0])
    assert "out[0] = missing;" in Path(__file__).read_text().split("\n")[line - 1]
    _, shown, caret = str(caught.value).split("\n")[1:4]
    assert shown[caret.index("^") :].startswith("missing")


@checklist(26)
def test_a_broken_file_is_shown_at_its_line(tmp_path: Path) -> None:
    """The macro for checks is there; what is wrong is named with file and line."""
    path = tmp_path / "broken.cpp"
    path.write_text('void f(const float *x, float *out) {\n    TG_CHECK(x, "no x");\n    out[0] = y;\n}\n')
    with pytest.raises(CompileError, match=r"broken\.cpp:3: error: 'y' was not declared"):
        tg.cpp.inline(path, "f(x: float[n]) -> float[n]")


@checklist(117)
def test_hello_world_and_square(capfd: pytest.CaptureFixture[str]) -> None:
    hello = tg.cpp.inline('puts("hello world"); fflush(stdout);', "hello() -> None")
    assert hello() is None
    assert capfd.readouterr().out == "hello world\n"


@checklist(118)
def test_what_is_the_same_is_not_built_again(own_cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "square"
    first = tg.cpp.inline(SQUARE, SIGNATURE, build_directory=folder)
    again = tg.cpp.inline(SQUARE, SIGNATURE, build_directory=folder)
    other = tg.cpp.inline(SQUARE, SIGNATURE, flags=["-DOTHER"])
    assert [f.report().compiled for f in (first, again, other)] == [1, 0, 1]
    assert first(tg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).tolist() == [[1, 4, 9], [16, 25, 36]]
    names = {p.name for p in folder.iterdir()}
    assert names == {"square.cpp", "square.so", "Makefile"}
    mine = tmp_path / "mine.txt"
    mine.write_text("of the user")
    for name in names:  # a link that somebody left there is replaced: what it leads to is not written over
        (folder / name).unlink()
        (folder / name).symlink_to(mine)
    tg.cpp.inline(SQUARE, SIGNATURE, build_directory=folder)
    assert mine.read_text() == "of the user"
    assert not any(path.is_symlink() for path in folder.iterdir())
    assert {p.name for p in folder.iterdir()} == names
    os.unlink(folder / "square.so")
    if compilers.find_program("make"):
        subprocess.run(["make", "-s", "-C", folder], check=True)
        assert (folder / "square.so").exists()
    assert first.report().own < 0.1, "tilegrad's own share of a first call"


def test_a_second_process_finds_it(own_cache: Path) -> None:
    code = (
        "import tilegrad as tg, time; tg.cpp.include; start = time.process_time(); "
        f"f = tg.cpp.inline({SQUARE!r}, {SIGNATURE!r}); r = f.report(); print(r.compiled, r.own)"
    )
    environment = {**os.environ, "TILEGRAD_CACHE": str(own_cache.parent)}
    runs = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        runs.append(done.stdout.split())
    assert [run[0] for run in runs] == ["1", "0"]


def test_only_what_we_wrote_is_loaded(own_cache: Path) -> None:
    """Files that others could have written, and files that were changed, are compiled again."""
    tg.cpp.inline(SQUARE, SIGNATURE)
    (entry,) = own_cache.glob("*.entry")
    assert entry.stat().st_mode & 0o077 == 0
    assert own_cache.stat().st_mode & 0o077 == 0
    spoilt = bytearray(entry.read_bytes())
    spoilt[-5] ^= 1
    entry.write_bytes(bytes(spoilt))
    assert tg.cpp.inline(SQUARE, SIGNATURE).report().compiled == 1
    assert tg.cpp.inline(SQUARE, SIGNATURE).report().compiled == 0
    os.chmod(entry, 0o666)
    assert tg.cpp.inline(SQUARE, SIGNATURE).report().compiled == 1
    os.chmod(own_cache, 0o777)
    assert tg.cpp.inline(SQUARE, SIGNATURE).report().compiled == 1
    os.chmod(own_cache, 0o700)
    real = entry.rename(own_cache / "elsewhere")
    entry.symlink_to(real)
    assert tg.cpp.inline(SQUARE, SIGNATURE).report().compiled == 1


@checklist(58, 64, 72)
def test_several_files_are_compiled_apart(own_cache: Path, tmp_path: Path) -> None:
    """The pair of files of the playground: what one defines the other uses; only what has changed is compiled."""
    first, second, header = tmp_path / "first.cpp", tmp_path / "second.c", tmp_path / "factor.h"
    first.write_text(
        '#include "factor.h"\nextern "C" int square(int x);\n'
        "void f(const int *x, int *out, int64_t n) {\n"
        "    for (int64_t i = 0; i < n; ++i) out[i] = FACTOR * square(x[i]);\n}\n"
    )
    second.write_text("int square(int x) { return x * x; }\n")
    header.write_text("#define FACTOR 1\n")
    signature = "f(x: int[n]) -> int[n]"

    def built() -> Any:
        return tg.cpp.inline([first, second], signature, include=[str(tmp_path)])

    f = built()
    assert f(tg.tensor([5]).int()).tolist() == [25]
    assert (f.report().compiled, f.report().of) == (2, 2)
    assert built().report().compiled == 0
    second.write_text("int square(int x) { return x * x + 1; }\n")
    g = built()
    assert (g.report().compiled, g(tg.tensor([5]).int()).tolist()) == (1, [26])
    header.write_text("#define FACTOR 2\n")
    h = built()
    assert (h.report().compiled, h(tg.tensor([5]).int()).tolist()) == (1, [52])


@checklist(62)
def test_equal_names_live_side_by_side() -> None:
    """Three extensions, each with a function and a global of the same names."""
    made = [
        tg.cpp.inline(
            f"int factor = {n}; int helper(int x) {{ return factor * x; }} "
            "void kernel(const int *x, int *out) { out[0] = helper(x[0]); }",
            "kernel(x: int[1]) -> int[1]",
        )
        for n in (2, 3, 4)
    ]
    x = tg.tensor([10]).int()
    assert [f(x).item() for f in made + made[::-1]] == [20, 30, 40, 40, 30, 20]


def test_views() -> None:
    body = "for (int64_t i = 0; i < n; ++i) for (int64_t j = 0; j < k; ++j) out(j, i) = x(i, j);"
    turned = tg.cpp.inline(body, "turned(x: F[n, k]) -> F[k, n]", contiguous="strided")
    x = tg.arange(12).reshape(3, 4).float()
    for view in (x, x.t(), x[1:, ::2], x[:, 1], x.expand(2, 3, 4)[1]):
        if view.ndim == 2:
            assert turned(view).tolist() == view.t().tolist()
    dense = tg.cpp.inline(SQUARE, SIGNATURE, contiguous="copy")
    assert dense(x.t()).tolist() == (x.t() * x.t()).tolist()


def test_other_python_threads_run_meanwhile() -> None:
    """Two calls wait for each other: each can only return while the other runs."""
    meet = tg.cpp.inline(
        """
#include <atomic>
static std::atomic<int> here{0};
void meet(const float *x, float *out) {
    ++here;
    for (long turn = 0; here < 2 && turn < 20000000000; ++turn) {}
    out[0] = here;
}
""",
        "meet(x: float[1]) -> float[1]",
    )
    x, found = tg.ones(1).realize(), []
    threads = [threading.Thread(target=lambda: found.append(meet(x).item())) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert found == [2, 2]


def test_many_threads_at_once(several: Any) -> None:
    wrong = []

    def work(seed: int) -> None:
        for n in range(50):
            x = tg.tensor([float(seed), float(n)])
            if several.scale(x, alpha=seed).tolist() != [seed * seed, seed * n]:
                wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_gradients_are_refused_when_they_are_asked_for() -> None:
    square = tg.cpp.inline(SQUARE, SIGNATURE)
    x = tg.ones(3, requires_grad=True)
    y = square(x)
    assert y.tolist() == [1, 1, 1]
    with pytest.raises(GradientError, match="square has no derivative"):
        y.sum().backward()


@checklist(19)
def test_inside_a_function_with_a_gradient() -> None:
    square = tg.cpp.inline(SQUARE, SIGNATURE)

    class Square(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return square(x)

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * upstream

    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    Square.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 4, 6]


def test_the_header_is_plain_c(tmp_path: Path) -> None:
    path = tmp_path / "plain.c"
    path.write_text('#include "tilegrad.h"\nTG_EXPORT int32_t f(const tg_call *c) { return TG_FAIL(c, "no"); }\n')
    line = [*compilers.compiler("c").command, "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-c"]
    subprocess.run([*line, "-I", INCLUDE, str(path), "-o", str(tmp_path / "plain.o")], check=True)
    assert len((Path(INCLUDE) / "tilegrad.h").read_text().splitlines()) < 120


def test_half_and_bfloat16_are_rounded_as_ours() -> None:
    convert = tg.cpp.inline("for (int64_t i = 0; i < n; ++i) { h[i] = x[i]; b[i] = x[i]; }",
                            "convert(x: float[n]) -> (h: half[n], b: bfloat16[n])")  # fmt: skip
    bits = np.random.default_rng(0).integers(0, 1 << 32, 4000, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), np.float32([0, -0.0, 65504, 65519.9, 65520, 1e-8, 6e-8, 3e38, np.inf])])
    h, b = convert(tg.tensor(x))
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.array_equal(h.numpy(), x.astype(np.float16), equal_nan=True)
    assert np.array_equal(b.float().numpy(), tg.tensor(x).bfloat16().float().numpy(), equal_nan=True)


def test_a_first_call_takes_less_than_a_second_besides_the_compiler(own_cache: Path) -> None:
    start = time.process_time()
    made = tg.cpp.inline(SQUARE, SIGNATURE, flags=["-DFIRST"])
    assert time.process_time() - start < 0.1, "this process; the compiler is another"
    assert made.report().compiling > 0
    assert "tilegrad's own share" in str(made.report())
