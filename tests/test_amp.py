"""Autocast and the scaling of gradients, against PyTorch's."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad.errors import ArgumentError, DTypeError

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)

PRODUCTS: dict[str, Any] = {
    "matmul": lambda t, x: x @ x.T,
    "mm": lambda t, x: t.mm(x, x.T),
    "bmm": lambda t, x: t.bmm(x[None], x.T[None]),
    "addmm": lambda t, x: t.addmm(x[:, :4], x, x.T),
    "baddbmm": lambda t, x: t.baddbmm(x[None, :, :4], x[None], x.T[None]),
    "einsum": lambda t, x: t.einsum("ij,kj->ik", x, x),
    "linear": lambda t, x: t.nn.functional.linear(x, x, x[:, 0]),
    "conv1d": lambda t, x: t.nn.functional.conv1d(x[None], x[None, :, :3]),
    "conv2d": lambda t, x: t.nn.functional.conv2d(x[None, None], x[None, None, :2, :2]),
    "conv_transpose2d": lambda t, x: t.nn.functional.conv_transpose2d(x[None, None], x[None, None, :2, :2]),
    "attention": lambda t, x: t.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    "mse": lambda t, x: t.nn.functional.mse_loss(x.to(t.bfloat16), x.to(t.bfloat16)),
    "l1": lambda t, x: t.nn.functional.l1_loss(x.to(t.bfloat16), x.to(t.bfloat16)),
    "huber": lambda t, x: t.nn.functional.huber_loss(x.to(t.bfloat16), x.to(t.bfloat16)),
    "cross entropy": lambda t, x: t.nn.functional.cross_entropy(x.to(t.bfloat16), t.tensor([0, 1, 2, 3])),
    "nll": lambda t, x: t.nn.functional.nll_loss(x.to(t.bfloat16), t.tensor([0, 1, 2, 3])),
    "prod": lambda t, x: x.to(t.bfloat16).prod(),
    "relu": lambda t, x: (x @ x.T).relu(),
    "mixed": lambda t, x: (x @ x.T) + x[:, :4],
    "double": lambda t, x: x.double() @ x.double().T,
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_types_and_values_are_pytorchs(name: str) -> None:
    torch = pytorch()
    made = []
    for library in (tg, torch):
        with library.autocast("cpu", library.bfloat16):
            made.append(PRODUCTS[name](library, library.tensor(X)))
    ours, theirs = made
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    np.testing.assert_allclose(ours.float().numpy(), theirs.float().numpy(), rtol=0.03, atol=0.03)


def test_what_is_wider_than_pytorchs() -> None:
    x = tg.tensor(X).bfloat16()
    with tg.autocast("cpu"):
        for made in (x.softmax(-1), x.log_softmax(0), x.sum(), x.norm(), tg.nn.functional.layer_norm(x, (6,))):
            assert made.dtype is tg.float32
        assert tg.nn.functional.rms_norm(x, (6,)).dtype is tg.float32
        assert x.mean().dtype is tg.bfloat16


def test_blocks_nest() -> None:
    x = tg.tensor(X)
    types = []
    assert not tg.amp.is_autocast_enabled("cpu")
    with tg.autocast("cpu", tg.bfloat16):
        types.append((x @ x.T).dtype)
        with tg.autocast("cpu", enabled=False):
            types.append((x @ x.T).dtype)
            with tg.autocast("cpu", tg.float16):
                types.append((x @ x.T).dtype)
                assert tg.amp.get_autocast_dtype("cpu") is tg.float16
        with tg.autocast("cuda" if "cuda:0" in map(str, tg.devices()) else "reference"):
            types.append((x @ x.T).dtype)
    with tg.autocast("cpu", tg.float32, enabled=False), tg.autocast("a device that is elsewhere", enabled=False):
        types.append((x @ x.T).dtype)
    assert types == [tg.bfloat16, tg.float32, tg.float16, tg.bfloat16, tg.float32]


def test_it_ends_when_an_error_passes() -> None:
    with pytest.raises(KeyError), tg.autocast("cpu"):
        raise KeyError
    assert not tg.amp.is_autocast_enabled()


def test_as_decorator() -> None:
    @tg.autocast("cpu", tg.bfloat16)
    def product(x: Any) -> Any:
        """A product."""
        return x @ x.T

    assert product(tg.tensor(X)).dtype is tg.bfloat16
    assert product.__doc__ == "A product."


def test_it_is_part_of_what_jit_compiles_for() -> None:
    product = tg.jit(lambda x: x @ x.T)
    x = tg.tensor(X)
    for _ in range(2):
        assert product(x).dtype is tg.float32
        with tg.autocast("cpu", tg.bfloat16):
            assert product(x).dtype is tg.bfloat16
        with tg.autocast("cpu", tg.float16):
            assert product(x).dtype is tg.float16
    assert len(product.programs) == 3


def test_inside_a_jitted_function() -> None:
    """The block inside decides; what is on outside matters only for what is outside of the block."""

    @tg.jit
    def both(x: Any) -> Any:
        with tg.autocast("cpu", tg.bfloat16):
            low = x @ x.T
        return low, x @ x.T

    x = tg.tensor(X)
    for _ in range(2):
        assert [y.dtype for y in both(x)] == [tg.bfloat16, tg.float32]
        with tg.autocast("cpu", tg.float16):
            assert [y.dtype for y in both(x)] == [tg.bfloat16, tg.float16]
    assert len(both.programs) == 2


def test_programs_without_products_do_not_ask() -> None:
    fn = tg.jit(lambda x: x * 2)
    x = tg.tensor(X)
    fn(x)
    with tg.autocast("cpu"):
        fn(x)
    assert len(fn.programs) == 1


def test_precision_is_part_of_what_jit_compiles_for() -> None:
    fn = tg.jit(lambda x: x @ x.T)
    x = tg.tensor(X)
    assert tg.get_float32_matmul_precision() == "highest"
    try:
        fn(x)
        tg.set_float32_matmul_precision("high")
        fn(x)
        assert len(fn.programs) == 2
    finally:
        tg.set_float32_matmul_precision("highest")
    fn(x)
    assert len(fn.programs) == 2
    with pytest.raises(ArgumentError, match="'highest', 'high' or 'medium', not 'tf32'"):
        tg.set_float32_matmul_precision("tf32")


@pytest.mark.parametrize("jit", [False, True])
def test_training(jit: bool) -> None:
    """Parameters and gradients stay in float32, and the losses are PyTorch's up to what bfloat16 resolves."""
    torch = pytorch()
    rng = np.random.default_rng(1)
    first, second = (rng.standard_normal(s).astype(np.float32) * 0.4 for s in ((16, 6), (3, 16)))
    losses = []
    for library in (tg, torch):
        w, v = (library.tensor(x, requires_grad=True) for x in (first, second))
        optimizer = library.optim.AdamW([w, v], lr=0.02)

        def step(x: Any, y: Any, library: Any = library, w: Any = w, v: Any = v, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            with library.autocast("cpu", library.bfloat16):
                hidden = library.nn.functional.linear(x, w).relu()
                loss = library.nn.functional.cross_entropy(library.nn.functional.linear(hidden, v), y)
            loss.backward()
            optimizer.step()
            return loss

        run = tg.jit(step) if jit and library is tg else step
        x, y = library.tensor(X), library.tensor([0, 1, 2, 0])
        losses.append([run(x, y).item() for _ in range(12)])
        assert w.grad.dtype == w.dtype == library.float32
    np.testing.assert_allclose(*losses, rtol=0.03, atol=0.01)
    assert losses[0][-1] < losses[0][0] * 0.7


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_recurrent_layers_train_with_a_scaler(name: str, dtype: str) -> None:
    """Their inputs' products are in the low type; parameters and gradients stay in float32, near what that gives."""
    x = tg.tensor(np.random.default_rng(2).standard_normal((5, 3, 4)).astype(np.float32))
    x = x[0] if name.endswith("Cell") else x
    found = []
    for low in (False, True):
        tg.manual_seed(0)
        layer = getattr(tg.nn, name)(4, 6)
        scaler = tg.amp.GradScaler("cpu", init_scale=256.0, enabled=low)
        optimizer = tg.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            with tg.autocast("cpu", getattr(tg, dtype), enabled=low):
                result = layer(x)
                loss = ((result if isinstance(result, tg.Tensor) else result[0]).float() ** 2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        assert all(p.dtype == p.grad.dtype == tg.float32 for p in layer.parameters())
        found.append([p.detach().numpy() for p in layer.parameters()])
    for ours, exact in zip(*found[::-1], strict=True):
        np.testing.assert_allclose(ours, exact, atol=0.01)
    assert any((ours != exact).any() for ours, exact in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: tg.autocast(tg.bfloat16), ArgumentError, "kind of device comes first"),  # type: ignore[arg-type]
        (lambda: tg.autocast("cpu", tg.float32), DTypeError, "bfloat16 or float16"),
        (lambda: tg.amp.GradScaler(growth_factor=0.5), ArgumentError, "must be above 1"),
        (lambda: tg.amp.GradScaler().update(), ArgumentError, "no step since"),
        (lambda: tg.amp.GradScaler().scale(3), ArgumentError, "takes tensors"),
        (lambda: tg.amp.GradScaler().step(tg.optim.SGD([tg.ones(1)])), ArgumentError, "no gradients"),
        (lambda: tg.amp.GradScaler().load_state_dict({}), ArgumentError, "the state is empty"),
    ],
)
def test_what_makes_no_sense(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# --- scaling gradients ---------------------------------------------------------------------------

FACTORS = [1.0, 1.0, np.inf, 1.0, np.nan, np.nan, 1.0, 1.0, 1.0, 1.0, np.inf, 1.0]
"""Factors of the gradients in each step."""


def scaled_training(library: Any, name: str, clip: bool, run: Any = lambda step: step) -> list[Any]:
    w = library.tensor([1.0, -2.0, 3.0], requires_grad=True)
    optimizer = getattr(library.optim, name)([w], lr=0.1)
    scaler = library.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)

    def step(factor: Any) -> Any:
        optimizer.zero_grad()
        scaler.scale((w * w).sum() * factor).backward()
        if clip:
            scaler.unscale_(optimizer)
            w.grad.clamp_(-1, 1)
        scaler.step(optimizer)
        scaler.update()

    call = run(step)
    seen = []
    for factor in FACTORS:
        call(library.tensor(factor, dtype=library.float32))
        seen.append([scaler.get_scale(), *w.detach().tolist()])
    seen.append([scaler.state_dict()["_growth_tracker"], 0, 0, 0])
    return seen


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam"])
@pytest.mark.parametrize("jit", [False, True])
def test_scaling_follows_pytorchs(name: str, clip: bool, jit: bool) -> None:
    torch = pytorch()
    functions = []

    def run(step: Any) -> Any:
        functions.append(tg.jit(step))
        return functions[-1]

    ours = scaled_training(tg, name, clip, run) if jit else scaled_training(tg, name, clip)
    np.testing.assert_allclose(ours, scaled_training(torch, name, clip), rtol=2e-5, atol=1e-6)
    assert all(len(fn.programs) == 1 for fn in functions)


def test_a_state_of_pytorch_loads() -> None:
    torch = pytorch()
    theirs = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    theirs.scale(torch.ones(1))
    ours = tg.amp.GradScaler()
    ours.load_state_dict(theirs.state_dict())
    assert ours.state_dict() == theirs.state_dict()


def test_not_enabled() -> None:
    w = tg.tensor([1.0], requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=0.5)
    scaler = tg.amp.GradScaler("a device that is elsewhere", enabled=False)
    scaler.scale(w * 2).sum().backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert (w.item(), scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()) == (0.0, 1.0, {}, False)


def test_twice_is_refused() -> None:
    w = tg.tensor([1.0], requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=0.5)
    scaler = tg.amp.GradScaler()
    scaler.scale(w * 2).sum().backward()
    scaler.unscale_(optimizer)
    with pytest.raises(ArgumentError, match="unscale_ was called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(ArgumentError, match="step was called"):
        scaler.step(optimizer)


def test_float16_gradients_survive() -> None:
    """Gradients of 1e-8 are 0 in float16; scaled they are not."""
    w = tg.ones(4, requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=1e6)
    scaler = tg.amp.GradScaler(init_scale=2.0**14)
    with tg.autocast("cpu", tg.float16):
        product = tg.nn.functional.linear(tg.ones(1, 4), w[None])
    scaler.scale(product.float().sum() * 1e-8).backward()
    scaler.step(optimizer)
    np.testing.assert_allclose(w.detach().numpy(), 1 - 0.01, rtol=1e-3)


def test_what_a_scaler_is_told_later() -> None:
    scaler = tg.amp.GradScaler("cpu", init_scale=4.0)
    scaler.set_growth_factor(3.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(1)
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (3.0, 0.25, 1)
    w = tg.ones(1, requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=0.1)
    for factor, scale in ((1.0, 12.0), (np.inf, 3.0)):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
