"""Modules: what they find in themselves, their state, hooks and printed form."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tests.nn.printing import as_in
from tests.recorded import pytorch
from tilegrad import nn
from tilegrad.errors import ArgumentError, ShapeError


class Block(nn.Module):
    """Something of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.rest = nn.ModuleList([nn.Linear(4, 4, bias=False), nn.LayerNorm(4)])
        self.named = nn.ModuleDict({"act": nn.ReLU(), "drop": nn.Dropout(0.1)})
        self.scale = nn.Parameter(tg.ones(4))
        self.register_buffer("count", tg.zeros(1))
        self.register_buffer("scratch", tg.zeros(2), persistent=False)
        self.note = "no tensor"

    def forward(self, x: Any) -> Any:
        x = self.named["act"](self.first(x))
        for layer in self.rest:
            x = layer(x)
        return self.named["drop"](x) * self.scale


def torch_block(torch: Any) -> Any:
    """The same block in PyTorch."""

    class Block(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(3, 4)
            self.rest = torch.nn.ModuleList([torch.nn.Linear(4, 4, bias=False), torch.nn.LayerNorm(4)])
            self.named = torch.nn.ModuleDict({"act": torch.nn.ReLU(), "drop": torch.nn.Dropout(0.1)})
            self.scale = torch.nn.Parameter(torch.ones(4))
            self.register_buffer("count", torch.zeros(1))
            self.register_buffer("scratch", torch.zeros(2), persistent=False)

    return Block()


NAMES = ["scale", "first.weight", "first.bias", "rest.0.weight", "rest.1.weight", "rest.1.bias"]


@checklist(39)
def test_names_are_those_of_pytorch() -> None:
    ours = Block()
    assert [name for name, _ in ours.named_parameters()] == NAMES
    assert [name for name, _ in ours.named_buffers()] == ["count", "scratch"]
    assert [name for name, _ in ours.named_children()] == ["first", "rest", "named"]
    assert len(list(ours.parameters())) == len(NAMES)
    torch = pytest.importorskip("torch")
    theirs = torch_block(torch)
    assert [n for n, _ in ours.named_modules()] == [n for n, _ in theirs.named_modules()]
    assert {k: tuple(v.shape) for k, v in ours.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()
    }
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_printed_as_pytorch_prints() -> None:
    torch = pytest.importorskip("torch")
    assert as_in(torch, Block()) == repr(torch_block(torch))


PRINTED = [
    "Linear(3, 4, bias=False)",
    "LayerNorm((2, 3), eps=1e-06)",
    "Embedding(5, 3, padding_idx=-1)",
    "Dropout(0.3)",
    "Flatten()",
    "Identity()",
    "ELU(alpha=0.5)",
    "LeakyReLU(0.2)",
    "GELU('tanh')",
    "GELU()",
    "Softmax(dim=1)",
    "Softplus()",
    "Hardtanh(-2.0, 2.0)",
    "SiLU()",
    "PReLU(3)",
    "CrossEntropyLoss()",
    "Sequential()",
]


@pytest.mark.parametrize("made", PRINTED)
def test_layers_print_as_pytorchs(made: str) -> None:
    torch = pytorch()
    assert as_in(torch, eval(f"nn.{made}")) == repr(eval(f"torch.nn.{made}", {"torch": torch}))


@checklist(39)
def test_state_dict_round_trip() -> None:
    x = tg.randn(5, 3)
    first, second = Block().eval(), Block().eval()
    assert not np.array_equal(first(x).detach().numpy(), second(x).detach().numpy())
    assert "matched" in str(second.load_state_dict(first.state_dict()))
    np.testing.assert_array_equal(first(x).detach().numpy(), second(x).detach().numpy())
    arrays = {k: v.numpy() for k, v in first.state_dict().items()}
    third = Block().eval()
    third.load_state_dict(arrays)
    np.testing.assert_array_equal(first(x).detach().numpy(), third(x).detach().numpy())


@checklist(39)
def test_state_of_pytorch_is_ours() -> None:
    torch = pytorch()
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.LayerNorm(4))
    ours = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4))
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    np.testing.assert_allclose(
        ours(tg.tensor(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_what_others_cannot_give_is_said_with_its_name() -> None:
    class Sparse:
        shape = (2,)

        def __array__(self, *_: Any) -> Any:
            raise TypeError("no numbers here")

    with pytest.raises(ArgumentError, match="bias: no numbers here"):
        tg.nn.Linear(3, 2).load_state_dict({"bias": Sparse()}, strict=False)


def test_all_that_does_not_fit_is_said_at_once_and_nothing_is_changed() -> None:
    module = Block()
    before = {k: v.numpy().copy() for k, v in module.state_dict().items()}
    state: dict[Any, Any] = dict(before)
    state["second.bias"] = state.pop("first.bias")
    state["scale"] = np.ones(5, np.float32)
    state["first.weight"] = np.zeros((4, 3), np.float32)
    state["rest.1.weight"], state["rest.1.bias"] = "ones", np.array(["text"] * 4)
    state[7] = np.ones(1)
    with pytest.raises(ArgumentError) as error:
        module.load_state_dict(state)
    message = str(error.value)
    assert "6 things do not fit" in message
    assert "rest.1.weight: 'ones' (str) is no tensor" in message
    assert "rest.1.bias: tensor takes numbers" in message
    assert "7: not in the module" in message
    assert "scale: the module has the shape (4,), the state (5,)" in message
    assert "first.bias: missing in the state (there is second.bias)" in message
    assert "second.bias: not in the module" in message
    for name, value in module.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    for name in ("scale", 7, "rest.1.weight", "rest.1.bias"):
        del state[name]
    result = module.load_state_dict(state, strict=False)
    assert set(result.missing_keys) == {"scale", "first.bias", "rest.1.weight", "rest.1.bias"}
    assert result.unexpected_keys == ["second.bias"]
    assert not module.first.weight.detach().numpy().any()


def test_shared_parameters_are_found_once() -> None:
    layer = nn.Linear(2, 2)
    both = nn.Sequential(layer, layer)
    assert len(list(both.parameters())) == 2
    assert list(both.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_train_eval_apply_zero_grad_requires_grad() -> None:
    module = Block()
    assert module.eval() is module
    assert not any(m.training for m in module.modules())
    assert all(m.training for m in module.train().modules())
    seen: list[str] = []
    module.apply(lambda m: seen.append(type(m).__name__))
    assert seen[-1] == "Block"
    assert len(seen) == len(list(module.modules()))
    module(tg.ones(2, 3)).sum().backward()
    assert all(p.grad is not None for p in module.parameters())
    module.zero_grad(set_to_none=False)
    assert not any(p.grad.numpy().any() for p in module.parameters())
    module.zero_grad()
    assert all(p.grad is None for p in module.parameters())
    assert not any(p.requires_grad for p in module.requires_grad_(False).parameters())


@checklist(39)
def test_to_casts_what_is_floating_point() -> None:
    module = Block()
    module.register_buffer("numbers", tg.tensor([1, 2, 3]))
    weight = module.first.weight
    assert module.to(tg.float64) is module
    assert module.first.weight is weight, "the optimizer must go on seeing the parameter"
    assert weight.dtype is tg.float64
    assert module.numbers.dtype is tg.int64
    assert module.float().scale.dtype is tg.float32
    assert module.to("cpu").scale.requires_grad


def test_hooks() -> None:
    layer = nn.Identity()
    calls: list[str] = []
    last = layer.register_forward_hook(lambda m, args, y: calls.append("after") or y + 1)
    first = layer.register_forward_pre_hook(lambda m, args: calls.append("before") or args[0] * 2)
    layer.register_forward_pre_hook(lambda m, args: calls.append("first"), prepend=True)
    assert layer(tg.tensor(3.0)).item() == 7
    assert calls == ["first", "before", "after"]
    first.remove()
    last.remove()
    assert layer(tg.tensor(3.0)).item() == 3
    with layer.register_forward_hook(lambda m, args, kwargs, y: y * 10, with_kwargs=True):
        assert layer(tg.tensor(3.0)).item() == 30
    assert layer(tg.tensor(3.0)).item() == 3


def test_assignment() -> None:
    module = Block()
    module.first = nn.Linear(3, 4, bias=False)
    assert "first.bias" not in dict(module.named_parameters())
    module.scale = None
    assert "scale" not in dict(module.named_parameters())
    with pytest.raises(ArgumentError, match="scale is a Parameter: assign a Parameter or None, not a float"):
        module.scale = 2.0
    del module.scale
    with pytest.raises(AttributeError, match="no attribute 'scale'"):
        _ = module.scale
    with pytest.raises(AttributeError, match="did you mean 'first'"):
        _ = module.frist
    with pytest.raises(ArgumentError, match="empty or has a dot"):
        module.register_buffer("a.b", None)
    with pytest.raises(ArgumentError, match="already has an attribute 'forward'"):
        module.add_module("forward", nn.Identity())
    assert "count" in dir(module)


def test_forgotten_super() -> None:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(1, 1)

    with pytest.raises(ArgumentError, match=r"call super\(\).__init__\(\) before assigning 'layer'"):
        Forgetful()


def test_a_module_without_forward() -> None:
    with pytest.raises(NotImplementedError, match="define forward"):
        nn.Module()(1)


def test_containers() -> None:
    row = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(row) == 3
    assert isinstance(row[-1], nn.Linear)
    assert len(row[:2]) == 2
    row[1] = nn.Tanh()
    assert isinstance(row[1], nn.Tanh)
    row.append(nn.Identity()).insert(0, nn.Flatten())
    assert [type(m).__name__ for m in row] == ["Flatten", "Linear", "Tanh", "Linear", "Identity"]
    del row[0]
    assert next(iter(row.state_dict())) == "0.weight"
    with pytest.raises(IndexError, match="index 9 in a Sequential of 4 modules"):
        _ = row[9]
    named = nn.Sequential({"up": nn.Linear(1, 2), "down": nn.Linear(2, 1)})
    assert list(named.state_dict()) == ["up.weight", "up.bias", "down.weight", "down.bias"]
    table = nn.ModuleDict({"a": nn.Identity()})
    assert "a" in table
    assert list(table) == ["a"]
    with pytest.raises(KeyError, match="no module 'b'"):
        _ = table["b"]


def test_copies_and_pickles_are_independent() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        np.testing.assert_array_equal(twin[0].weight.detach().numpy(), module[0].weight.detach().numpy())
        assert twin[0].weight.requires_grad
        assert isinstance(twin[0].weight, nn.Parameter)
        with tg.no_grad():
            twin[0].weight.zero_()
        assert module[0].weight.detach().numpy().any()


def test_tables_from_what_was_trained_before() -> None:
    rows = tg.arange(6).float().reshape(3, 2)
    frozen = nn.Embedding.from_pretrained(rows, padding_idx=1)
    assert not frozen.weight.requires_grad
    assert frozen(tg.tensor([2, 1])).tolist() == [[4, 5], [2, 3]]
    bag = nn.EmbeddingBag.from_pretrained(rows, freeze=False, mode="sum")
    assert bag.weight.requires_grad
    assert bag(tg.tensor([[0, 2]])).tolist() == [[4, 6]]
    with pytest.raises(ShapeError, match="needs a table"):
        nn.Embedding.from_pretrained(tg.ones(3))


def test_an_axis_that_cannot_be_taken_apart() -> None:
    with pytest.raises(ShapeError, match=r"has 5 elements, which do not become \(2, 3\)"):
        nn.Unflatten(1, (2, 3))(tg.ones(2, 5))


def test_layers_in_place_change_their_input() -> None:
    x = tg.tensor([-1.0, 2.0])
    for layer in (nn.ReLU(inplace=True), nn.ELU(inplace=True), nn.Threshold(0.5, 3.0, inplace=True)):
        assert layer(x) is x
    assert x.tolist() == [3, 2]


def test_layers_of_channels_say_what_they_need() -> None:
    with pytest.raises(ShapeError, match=r"BatchNorm2d: needs an input of 4 axes, but its shape is \(2, 3\)"):
        nn.BatchNorm2d(3)(tg.ones(2, 3))
    with pytest.raises(ShapeError, match="InstanceNorm1d: 4 channels .* not the 3 of num_features"):
        nn.InstanceNorm1d(3)(tg.ones(2, 4, 5))
    with pytest.raises(ArgumentError, match="takes one width, or 4"):
        nn.ZeroPad2d((1, 2))
    with pytest.raises(ArgumentError, match="cannot be divided into 4 groups"):
        nn.GroupNorm(4, 6)


def test_a_row_of_modules_several_times() -> None:
    row = nn.Sequential(nn.ReLU(), nn.Tanh())
    assert [type(m).__name__ for m in 2 * row] == ["ReLU", "Tanh", "ReLU", "Tanh"]
    row *= 3
    assert len(row) == 6
    with pytest.raises(ArgumentError, match="how many times"):
        row * 0


def test_what_stands_at_a_path() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert net.get_parameter("0.weight") is net[0].weight
    assert net.get_buffer("1.running_mean") is net[1].running_mean
    with pytest.raises(AttributeError, match=r"Sequential\.1\.running_mean is a Tensor, not a Parameter"):
        net.get_parameter("1.running_mean")
    with pytest.raises(AttributeError, match=r"Sequential\.0\.weight is no buffer"):
        net.get_buffer("0.weight")
    with pytest.raises(AttributeError, match="'Sequential' object has no attribute '5'"):
        net.get_buffer("5.weight")


def test_what_changes_nothing_here() -> None:
    net = nn.LSTM(2, 3, 2, bidirectional=True)
    net.flatten_parameters()
    assert net.share_memory() is net
    assert net.to_empty(device="cpu") is net
    shapes = [[tuple(w.shape) for w in weights] for weights in net.all_weights]
    assert shapes == [[(12, 2), (12, 3), (12,), (12,)]] * 2 + [[(12, 6), (12, 3), (12,), (12,)]] * 2
    x = tg.ones(2, 3)
    assert (x.is_complex(), x.get_device(), x.share_memory_() is x) == (False, -1, True)
    assert (x.new_empty(2, 1).shape, x.new_empty((4,), dtype=tg.int64).dtype) == ((2, 1), tg.int64)
