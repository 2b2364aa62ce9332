"""Wrong uses of foreign code, each with the class of its error, the names in it, and the remedy."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad.backend.cuda import nvrtc
from tilegrad.errors import (
    ArgumentError,
    CompileError,
    DeviceError,
    DTypeError,
    ForeignError,
    ShapeError,
    SignatureError,
    TilegradError,
)
from tilegrad.foreign import compilers

pytestmark = pytest.mark.usefixtures("cpp")

S = "f(x: float[n]) -> float[n]"
BODY = "for (int64_t i = 0; i < n; ++i) out[i] = x[i];"
LINEAR = "linear(x: float[b, n], w: float[k, n], scale: float = 1) -> float[b, k]"


def f(*args: Any, **kwargs: Any) -> Any:
    return tg.cpp.inline(BODY, S)(*args, **kwargs)


def linear(*args: Any, **kwargs: Any) -> Any:
    return tg.cpp.inline("for (float &e : out) e = scale;", LINEAR)(*args, **kwargs)


def inline(source: Any, signature: Any = S, **options: Any) -> Callable[[], Any]:
    return lambda: tg.cpp.inline(source, signature, **options)


def cuda(source: Any, signature: Any = S, **options: Any) -> Callable[[], Any]:
    def made() -> Any:
        if not nvrtc.is_available():
            pytest.skip("no NVRTC here: install the wheel nvidia-cuda-nvrtc")
        return tg.cuda.inline(source, signature, **options)

    return made


X, M = tg.ones(3), tg.ones(2, 4)

CALLS: list[tuple[Callable[[], Any], type[TilegradError], str]] = [
    (lambda: f(), ArgumentError, "f: `x` is missing"),
    (lambda: f(X, X), ArgumentError, "f takes 1 arguments, not 2"),
    (lambda: f(X, x=X), ArgumentError, "`x` is given twice"),
    (lambda: f(y=X), ArgumentError, "f has no argument `y`"),
    (lambda: f([1.0]), DTypeError, r"takes a tensor, not list .*tilegrad.tensor\(x\)"),
    (lambda: f(X.double()), DTypeError, r"`x` is float64 of shape \(3,\).*x.to\(tilegrad.float32\)"),
    (lambda: f(M), ShapeError, r"`x` of shape \(2, 4\) has 2 axes; x: float32\[n\] has 1"),
    (lambda: linear(M, tg.ones(5, 3)), ShapeError, r"axis 1 of `w` of shape \(5, 3\) is n = 3, but n = 4 by axis 1"),
    (lambda: linear(M, M, "2"), DTypeError, "`scale` is str '2'"),
    (lambda: linear(M, M, X), DTypeError, "`scale` is Tensor"),
    (lambda: linear(M, M.half()), DTypeError, "`w` is float16"),
]

SOURCES: list[tuple[Callable[[], Any], type[TilegradError], str]] = [
    (inline("out[0] = y;"), CompileError, r"test_wrong_use.py:\d+: error: 'y' was not declared"),
    (inline("out[0] = x[0]"), CompileError, r"test_wrong_use.py:\d+: error: expected ';'"),
    (inline("x[0] = 1;"), CompileError, "read-only"),
    (inline('#include "nowhere.h"\nout[0] = 1;'), CompileError, r"nowhere.h.*\n.*\n?.*include=\["),
    (inline("int g(); void f(float *out) { out[0] = g(); }"), CompileError, r"undefined reference to `g\(\)'"),
    (inline("void f(const double *x, float *out) {}"), CompileError, "cannot convert"),
    (inline(BODY, flags=["--no-such-flag"]), CompileError, "no-such-flag"),
    (inline("void g(const float *x) {}"), SignatureError, "no source defines the function f.*they define g"),
    (inline("void ff(const float *x) {}", S.replace("f(", "fff(")), SignatureError, r"did you mean ff\?"),
    (inline("void f(float *x, float *out) {}"), SignatureError, r"`x` is an input.*declare it const float \* x"),
    (inline("void f(const float *x, const float *out) {}"), SignatureError, "`out` is a result.*without const"),
    (inline("void f(const float *x, float *y) {}"), SignatureError, "`y` is nothing in f"),
    (inline("void f(const float *x) {}"), SignatureError, "never gets `out`"),
    (inline("void f(const float *x) {}", "f(x: float[n]) -> Tensor"), SignatureError, "returns nothing"),
    (inline(BODY, S + "\n" + S), SignatureError, "two signatures for f"),
    (inline(BODY, S + "\n" + S.replace("f(", "g(")), SignatureError, "a body serves one signature alone"),
    (inline(BODY, ""), SignatureError, "a signature is wanted"),
    (inline(BODY, 3), ArgumentError, "signatures are a text"),
    (inline(3), ArgumentError, "a source is a text or a path, not int"),
    (inline([]), ArgumentError, "there is no source"),
    (inline("nowhere.cpp"), ArgumentError, "nowhere.cpp: the source cannot be read"),
    (inline(Path("/")), ArgumentError, "cannot be read"),
    (inline(BODY, flags="-O2"), ArgumentError, r"flags=\['-O2'\]"),
    (inline(BODY, contiguous="no"), ArgumentError, "contiguous is 'copy' or 'check' or 'strided'"),
    (lambda: tg.cpp.inline(BODY, S.replace("float", "T")).report(), ArgumentError, "call it first"),
    (cuda("out[0] = y;"), CompileError, r'test_wrong_use.py:\d+: error: identifier "y" is undefined'),
    (cuda("void f(const float *x, float *out) {}"), CompileError, "is no kernel: write __global__ void f"),
    (cuda("__global__ void g(float *out) {}"), SignatureError, "no source defines the kernel f"),
    (cuda("__global__ void f(const float x, float *out) {}"), SignatureError, "a kernel takes its address"),
    (cuda("__global__ void f(const float *x, float *out, Foo n) {}"), SignatureError, "`n` is a number, and Foo"),
    (cuda(BODY, "f(x: float[n]) -> list"), ArgumentError, "write their shapes"),
    (lambda: cuda("", grid=lambda q: q)().launch(X), ArgumentError, "grid asks for `q`; a call has n, x, out"),
    (lambda: cuda("", block=(1, 2, 3, 4))().launch(X), ArgumentError, "one to three whole numbers"),
    (lambda: cuda("", block=2.5)().launch(X), ArgumentError, "block is 2.5"),
    (lambda: cuda("")()(X), DeviceError, r"`x` is on cpu: give it x.cuda\(\)"),
]

FAILING = """
#include <cstdlib>

void condition(const float *x, int64_t n) { TG_CHECK(n > 9); }
void text(const float *x, int64_t n) { TG_CHECK(n == 0, "%d of %d", 1, int(n)); }
void thrown(const float *x) { throw 1; }
tg::Tensor nothing(tg::Tensor x) { return tg::Tensor(); }
tg::Tensor negative(tg::Tensor x) { return tg::empty<float>({-4}); }
tg::Tensor shape(tg::Tensor x) { return tg::empty<float>({2}); }
tg::Tensor type(tg::Tensor x) { return tg::empty<double>({5}); }
tg::List fewer(tg::Tensor x) { return {x}; }
int64_t number(tg::Tensor x) { return 3; }
void outside(const float *x, float *out, int64_t n) { out[0] = x[n * 1000000]; }
void aborts(const float *x) { abort(); }
void divides(const float *x, float *out, int64_t n) {
    volatile int seven = 7, zero = int(n) - 5;
    out[0] = float(seven / zero);
}
void leaves(const float *x) { _Exit(3); }
void behind(const float *x, float *out, int64_t n) { for (int64_t i = 0; i <= n; ++i) out[i] = 1; }
void before(const float *x, float *out, int64_t n) { for (int64_t i = -1; i < n; ++i) out[i] = 1; }
void skips(const float *x, float *out, int64_t n) { for (int64_t i = 2; i < n; ++i) out[i] = 1; }
void writes(const float *x, float *out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) const_cast<float &>(x[i]) = out[i] = 1;
}
"""
RUNS = [
    ("condition", "None", "condition: n > 9 is not so\n.*test_wrong_use.py:\\d+: void condition"),
    ("text", "None", "text: 1 of 5\n.*test_wrong_use.py"),
    ("thrown", "None", "an exception that is no std::exception"),
    ("nothing", "Tensor", "a result is no tensor of this call"),
    ("negative", "Tensor", r"\(-4,\) cannot be made"),
    ("shape", "float[n]", "does not have the shape of the signature"),
    ("type", "float[n]", "a result is float64, and should be float32"),
    ("fewer", "(a: float[n], b: float[n])", "fewer than 2 results"),
    ("number", "float[n]", "a number is returned for a result of 5 elements"),
    ("outside", "float[n]", r"outside crashed \(SIGSEGV\): .*`x` float32 \(5,\)"),
    ("aborts", "None", r"aborts crashed \(SIGABRT\): it called abort"),
    ("divides", "float[n]", r"divides crashed \(SIGFPE\): it divided an integer by zero"),
    ("leaves", "None", r"leaves ended its process with exit\(3\)"),
    ("behind", "float[n]", "wrote outside of `out`: 4 bytes behind the end of its 20 bytes"),
    ("before", "float[n]", "wrote outside of `out`: 4 bytes before the beginning"),
    ("skips", "float[n]", r"left 2 of 5 elements of `out` unwritten, the first is out\[0\]"),
    ("writes", "float[n]", "writes wrote to its input `x`"),
]
CRASHING = {"outside", "aborts", "divides", "leaves", "behind", "before", "skips", "writes"}


@pytest.fixture(scope="module")
def failing() -> Any:
    return tg.cpp.inline(FAILING, [f"{name}(x: float[n]) -> {result}" for name, result, _ in RUNS])


@checklist(17)
@pytest.mark.parametrize(("call", "error", "message"), CALLS)
def test_arguments(call: Callable[[], Any], error: type[TilegradError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "test_wrong_use.py" in str(caught.value), "the user's line"


@pytest.mark.parametrize(("make", "error", "message"), SOURCES)
def test_sources(make: Callable[[], Any], error: type[TilegradError], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(("name", "message"), [(name, message) for name, _, message in RUNS])
def test_runs(failing: Any, name: str, message: str) -> None:
    f, x = getattr(failing, name), tg.arange(5).float()
    with pytest.raises(ForeignError, match=message):
        f.check(x)
    if name not in CRASHING:
        with pytest.raises(ForeignError, match=message):
            f(x)


def test_a_checked_call_gives_the_results() -> None:
    x = tg.arange(5).float()
    assert tg.cpp.inline(BODY, S).check(x).tolist() == x.tolist()
    made = tg.cpp.inline("auto y = tg::zeros<int64_t>({n, 2}); return {y, x};", "made(x: float[n]) -> list").check(x)
    assert [y.tolist() for y in made] == [[[0, 0]] * 5, x.tolist()]


@checklist(17)
def test_contiguity() -> None:
    strict = tg.cpp.inline(
        "for (int64_t i = 0; i < x.size(); ++i) out[i] = x[i];", "f(x: float[n, k]) -> float[n, k]", contiguous="check"
    )
    assert strict(M[:1]).tolist() == [[1, 1, 1, 1]]
    with pytest.raises(ShapeError, match=r"`x` of shape \(4, 2\) is a view.*x.contiguous\(\)"):
        strict(M.t())


@checklist(17)
def test_devices() -> None:
    at_null = tg.ones(3, device="null")
    with pytest.raises(DeviceError, match="`x` is on null"):
        f(at_null)
    with pytest.raises(DeviceError, match=r"`y` is on null.*on cpu: move it with y.to\('cpu'\)"):
        tg.cpp.inline("", "g(x: float[n], y: float[n]) -> float[n]")(X, at_null)


def test_a_crash_is_an_error_where_it_is_asked_for() -> None:
    from tilegrad import config

    boom = tg.cpp.inline("out[n << 28] = 1;", "boom(x: float[n]) -> float[n]")
    with config.changed(check="foreign"), pytest.raises(ForeignError, match="boom crashed"):
        boom(X)
    with config.changed(check="foreign"), ThreadPoolExecutor(1) as worker, pytest.raises(ForeignError, match="crashed"):
        worker.submit(boom, X).result()  # as in a worker of a DataLoader


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "find_program", lambda name: "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(CompileError, match=r"apt-get install g\+\+.*pip install tilegrad\[cpp\]"):
        f(X)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompileError, match="no-such-compiler.*no such program"):
        f(X)
