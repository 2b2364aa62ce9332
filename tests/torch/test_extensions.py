"""Extensions in C++ from texts: what they compute, what they are given, and what they may not do."""

import gc
from types import ModuleType

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad import errors
from tilegrad.foreign import compilers
from tilegrad.torch.cpp_extension import load_inline

pytestmark = pytest.mark.skipif(not compilers.is_available(), reason="there is no C++ compiler")

SOURCE = r"""
std::vector<torch::Tensor> pair(torch::Tensor x, torch::Tensor w) {
    return {torch::mm(x, w.transpose(0, 1)), x.sum(1)};
}
torch::Tensor twice(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 2, "x must have 2 axes, and has ", x.dim());
    auto out = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = 2 * from[i];
    return out;
}
bool transpose_is_a_view(torch::Tensor x) {
    auto y = x.transpose(0, 1);
    auto z = y.t();
    return y.data_ptr() == x.data_ptr() && !y.is_contiguous() && y.stride(0) == x.stride(1) && z.is_contiguous();
}
std::tuple<torch::Tensor, torch::Tensor> cell(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor h) {
    auto gates = torch::addmm(b, torch::cat({h, x}, 1), w.transpose(0, 1)).chunk(3, /*dim=*/1);
    auto input = torch::sigmoid(gates[0]), output = torch::sigmoid(gates[1]);
    auto candidate = torch::elu(gates[2], /*alpha=*/1.0);
    auto made = h + candidate * input;
    return {torch::tanh(made) * output, 1 - made / 2.0};
}
template <typename T> void grow(const torch::Tensor& x, torch::Tensor& out) {
    auto from = x.accessor<T, 2>();
    auto to = out.accessor<T, 2>();
    for (int i = 0; i < x.size(0); ++i)
        for (int j = 0; j < x.size(1); ++j) to[i][j] = from[i][j] * from[i][j];
}
torch::Tensor squares(torch::Tensor x) {
    auto out = torch::zeros({x.size(0), x.size(1)}, x.options());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "squares", [&] { grow<scalar_t>(x, out); });
    return out;
}
torch::Tensor ordered(torch::Tensor x) {
    auto out = torch::zeros({2, 3});
    auto before = out + 1;
    float* p = out.data_ptr<float>();
    p[0] = 5;
    auto after = out * 10;
    p[0] = 7;
    out.add_(1);
    TORCH_CHECK(p[0] == 8, "memory that was handed out must stay where it is");
    return torch::stack({before, after, out});
}
void spoil(torch::Tensor x) { x.data_ptr<float>()[0] = 99; }
std::string described(torch::Tensor x, double alpha = 1.5, std::optional<torch::Tensor> y = std::nullopt) {
    return c10::str(x.sizes(), " ", x.scalar_type(), " ", x.device(), " ", alpha, " ", y.has_value());
}
int64_t fails(int64_t what) {
    if (what == 0) throw std::runtime_error("a plain failure");
    if (what == 1) throw std::out_of_range("too far");
    return torch::ones({2, 2}).size(what);
}
"""
NAMES = ("pair", "twice", "transpose_is_a_view", "cell", "squares", "ordered", "spoil", "fails")
MODULE = """
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.doc() = "Things for tests";
    %s
    m.def("described", &described, "what it was given",
          py::arg("x"), py::arg("alpha") = 1.5, py::arg("y") = std::nullopt);
    m.def("plus", [](int64_t a, bool b) { return a + b; });
}
"""
DOCUMENTS = {"pair": "a product, and a sum"}


@pytest.fixture(scope="module")
def made() -> ModuleType:
    lines = "\n".join(f'm.def("{n}", &{n}, "{DOCUMENTS.get(n, n)}");' for n in NAMES)
    return load_inline("things_for_tests", SOURCE + MODULE % lines)


def random(*shape: int, seed: int = 0) -> tg.Tensor:
    return tg.tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@checklist(17, 43, 46, 120)
def test_results(made: ModuleType) -> None:
    x, w = random(3, 4), random(5, 4, seed=1)
    product, sums = made.pair(x, w)
    assert isinstance(made.pair(x, w), list)
    np.testing.assert_allclose(product.numpy(), x.numpy() @ w.numpy().T, rtol=1e-6)
    np.testing.assert_allclose(sums.numpy(), x.numpy().sum(1), rtol=1e-5)
    np.testing.assert_array_equal(made.twice(x).numpy(), 2 * x.numpy())
    assert made.transpose_is_a_view(x) is True
    np.testing.assert_allclose(made.squares(x).numpy(), x.numpy() ** 2)
    assert made.squares(x.double()).dtype is tg.float64


def test_a_cell_computed_with_tensors_alone(made: ModuleType) -> None:
    x, h, w, b = random(2, 3), random(2, 4, seed=1), random(12, 7, seed=2), random(12, seed=3)
    first, second = made.cell(x, w, b, h)
    gates = tg.addmm(b, tg.cat([h, x], 1), w.t()).chunk(3, 1)
    new = h + tg.nn.functional.elu(gates[2]) * gates[0].sigmoid()
    np.testing.assert_allclose(first.numpy(), (new.tanh() * gates[1].sigmoid()).numpy(), rtol=1e-5)
    np.testing.assert_allclose(second.numpy(), (1 - new / 2).numpy(), rtol=1e-5)


def test_what_is_computed_with_tensors_alone_is_recorded(made: ModuleType) -> None:
    """It is traced, differentiated and fused like any other operation."""
    x, w = random(3, 4), random(5, 4, seed=1)
    step = tg.jit(lambda x, w: made.pair(x * 2, w)[0].relu())
    np.testing.assert_allclose(step(x, w).numpy(), (x * 2 @ w.t()).relu().numpy(), rtol=1e-5)
    w.requires_grad_()
    made.pair(x, w)[0].sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), np.ones((3, 5)).T @ x.numpy(), rtol=1e-5)  # type: ignore[union-attr]


def test_pointers_see_the_order_of_things(made: ModuleType) -> None:
    before, after, out = made.ordered(random(1, 1))
    assert before.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert after[0, 0].item() == 50, "what is asked for after a pointer was given is computed at once"
    assert out.tolist() == [[8, 1, 1], [1, 1, 1]]


def test_a_write_to_an_argument_is_seen(made: ModuleType) -> None:
    x = random(2, 2)
    part = x[0]
    made.spoil(x)
    assert x[0, 0].item() == 99
    assert part[0].item() == 99
    assert x._version == 1


def test_a_write_to_what_a_gradient_needs_raises(made: ModuleType) -> None:
    w = random(2, 2).requires_grad_()
    y = (w * w).exp()
    y.sum().item()
    with pytest.raises(errors.InPlaceError, match=r"spoil wrote to an argument of shape \[2, 2\]"):
        made.spoil(y)


def test_arguments_by_name_and_defaults(made: ModuleType) -> None:
    x = random(2, 3)
    assert made.described(x) == "[2, 3] Float cpu 1.5 False"
    assert made.described(x, alpha=2) == "[2, 3] Float cpu 2 False"
    assert made.described(x, 0.25, x) == "[2, 3] Float cpu 0.25 True"
    assert made.plus(4, True) == 5


@checklist(45)
def test_documents(made: ModuleType) -> None:
    assert made.__doc__ == "Things for tests"
    assert made.pair.__doc__ == "pair(arg0: Tensor, arg1: Tensor) -> list[Tensor]\n\na product, and a sum"
    assert "alpha: float = ..." in made.described.__doc__


@checklist(43)
def test_nothing_leaks(made: ModuleType) -> None:
    x, w = random(3, 4), random(5, 4, seed=1)
    tg.compute(x, w)

    def call() -> None:
        for _ in range(500):
            made.pair(x, w)
            made.transpose_is_a_view(x)
        tg.synchronize()  # another test may have measured time: results that are dropped are computed then

    for _ in range(2):
        call()  # what is met often is compiled, and modules are loaded for it
    gc.collect()
    objects, bytes = len(gc.get_objects()), tg.live_bytes()
    call()
    gc.collect()
    assert len(gc.get_objects()) - objects < 100
    assert tg.live_bytes() - bytes < 500, "less than a byte for each call"


WRONG = {
    "a type": (lambda m: m.twice(1), errors.CallError, "argument 0: an int was given, and a Tensor is wanted"),
    "None": (lambda m: m.twice(None), errors.CallError, "argument 0: None was given"),
    "a second type": (lambda m: m.pair(random(2, 2), 0.5), errors.CallError, "argument 1: a float was given"),
    "too few": (lambda m: m.pair(random(2, 2)), errors.CallError, "takes 2 arguments, and 1 was given"),
    "too many": (lambda m: m.twice(1, 2, 3), errors.CallError, "takes 1 argument, and 3 were given"),
    "a name": (lambda m: m.described(random(1, 1), beta=1), errors.CallError, "no argument 'beta'"),
    "a bool": (lambda m: m.plus(1, 1), errors.CallError, "argument 1: an int was given, and a bool is wanted"),
    "numpy": (lambda m: m.twice(np.zeros(3)), errors.DTypeError, "ndarray cannot be given to a C\\+\\+ function"),
    "dtype": (lambda m: m.twice(random(2, 2).double()), errors.ForeignError, "scalar type Float but found Double"),
    "axes": (lambda m: m.twice(random(2)), errors.ForeignError, r"x must have 2 axes, and has 1 \("),
    "accessor": (lambda m: m.squares(random(2)), errors.IndexRangeError, r"axis 1 of a tensor with 1 axes, \[2\]"),
    "no code": (lambda m: m.squares(random(2, 2).long()), errors.NotThereError, "not implemented for 'Long'"),
    "shapes": (lambda m: m.pair(random(2, 3), random(2, 4)), errors.ShapeError, "4|3"),
    "plain": (lambda m: m.fails(0), errors.ForeignError, "things_for_tests.fails: a plain failure"),
    "range": (lambda m: m.fails(1), errors.IndexRangeError, "too far"),
    "axis": (lambda m: m.fails(2), errors.IndexRangeError, "axis 2 of a tensor with 2 axes"),
    "pointer traced": (lambda m: tg.jit(m.twice)(random(2, 2)), errors.TraceError, "asks for the pointer"),
}  # fmt: skip


@checklist(17, 120)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(made: ModuleType, name: str) -> None:
    call, kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        call(made)


@checklist(26)
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("int f(int x) {\n    return y;\n}", r"test_extensions.py:\d+: error: 'y' was not declared"),
        ("torch::Tensor f(torch::Tensor x) { return torch::nosuch(x); }", "hint: docs/torch.md lists"),
        ("#include <torch/nosuch.h>\nint f();", "hint: of PyTorch's headers"),
    ],
)
def test_wrong_sources(source: str, message: str) -> None:
    with pytest.raises(errors.CompileError, match=message):
        load_inline("wrong", source, functions=["f"])


def test_no_module() -> None:
    with pytest.raises(errors.ForeignError, match="has no PYBIND11_MODULE"):
        load_inline("empty_one", "int f() { return 1; }")


def test_wrong_names() -> None:
    with pytest.raises(errors.ArgumentError, match="is no name of an extension"):
        load_inline("a name", "int f();", functions=["f"])
    with pytest.raises(errors.ArgumentError, match="with_cuda=True and no cuda_sources"):
        load_inline("name", "int f();", functions=["f"], with_cuda=True)
