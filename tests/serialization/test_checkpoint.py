"""`tg.save` and `tg.load`: round trips, PyTorch in both directions, shared memory, training that goes on."""

import io
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilegrad as tg
from tilegrad.errors import ArgumentError, CheckpointError, DeviceError
from tilegrad.ir.dtype import DTYPES

torch = pytest.importorskip("torch")


def again(thing: Any, **options: Any) -> Any:
    file = io.BytesIO()
    tg.save(thing, file)
    return tg.load(io.BytesIO(file.getvalue()), **options)


def in_torch(thing: Any) -> Any:
    file = io.BytesIO()
    tg.save(thing, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


def from_torch(thing: Any, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(thing, file, **options)
    return tg.load(io.BytesIO(file.getvalue()))


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 200), 1 << 200),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.complex_numbers(allow_nan=False),
)
keys = st.one_of(st.text(max_size=5), st.integers(), st.booleans(), st.none(), st.tuples(st.integers(), st.text()))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(keys, inner, max_size=5),
        st.dictionaries(keys, inner, max_size=5).map(OrderedDict),
        st.sets(st.integers() | st.text(), max_size=5),
    ),
)


@given(trees)
def test_objects_come_back(tree: Any) -> None:
    """Here and in PyTorch, and from PyTorch, with the same types."""
    for found in (again(tree), in_torch(tree), from_torch(tree)):
        assert repr(found) == repr(tree) or found == tree
        assert type(found) is type(tree)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4)], ids=str)
def test_every_dtype(dtype: tg.DType, shape: tuple[int, ...]) -> None:
    x = (tg.rand(shape) * 100 - (0 if dtype.kind == "uint" else 50)).to(dtype)
    theirs = in_torch(x)
    assert str(theirs.dtype) == f"torch.{dtype.name}"
    assert tuple(theirs.shape) == shape
    for found in (again(x), from_torch(theirs), from_torch({"x": theirs}, _use_new_zipfile_serialization=False)["x"]):
        assert found.dtype is dtype
        assert found.shape == shape
        assert found.numpy().tobytes() == x.numpy().tobytes()


MOVES: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2),
    "row": lambda x: x[1],
    "column": lambda x: x[:, 1:, 2],
    "step": lambda x: x[::2, :, 1::2],
    "repeated": lambda x: x[:, :1].expand(4, 3, 5),
    "nothing": lambda x: x[1:1],
    "windows": lambda x: x.reshape(-1).unfold(0, 3, 1),
    "diagonal": lambda x: x.diagonal(0, 0, 2),
}


COPIED = (MOVES["windows"], MOVES["diagonal"])
"""Their strides are no movements of axes: they are loaded as copies."""


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_strides(move: Callable[[Any], Any], legacy: bool) -> None:
    """Tensors that PyTorch stores with strides, alone and next to their base."""
    x = torch.arange(60.0).reshape(4, 3, 5)
    for thing in (move(x), [x, move(x)], [move(x), move(x), x[0, 0]]):
        found = from_torch(thing, _use_new_zipfile_serialization=not legacy)
        for ours, theirs in zip(*([found], [thing]) if torch.is_tensor(thing) else (found, thing)):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_shared_memory(move: Callable[[Any], Any]) -> None:
    """Views are views again after loading, in both directions; a view alone is as small as it looks."""
    x = tg.arange(60).float().reshape(4, 3, 5)
    for found in (again([x, move(x)]), in_torch([x, move(x)])):
        whole, view = found
        np.testing.assert_array_equal(view.numpy(), move(x).numpy())
        if move not in COPIED or torch.is_tensor(whole):
            whole += 1
            np.testing.assert_array_equal(view.numpy(), move(x).numpy() + 1)
    file = io.BytesIO()
    tg.save(x[0, 0], file)
    alone = len(file.getvalue())
    tg.save(x, file := io.BytesIO())
    assert len(file.getvalue()) > alone


def test_one_thing_stays_one() -> None:
    x, inner = tg.ones(2), [1]
    found = again({"a": x, "b": x, "c": inner, "d": inner})
    assert found["a"] is found["b"]
    assert found["c"] is found["d"]
    model = tg.nn.Linear(3, 3)
    found = again({"a": model.weight, "b": model.weight})
    assert found["a"] is found["b"]
    assert type(found["a"]) is tg.nn.Parameter


def test_gradients_are_wanted_again() -> None:
    x = tg.ones(2, requires_grad=True)
    y = tg.nn.Parameter(tg.ones(2), requires_grad=False)
    for a, b in (again((x, y)), in_torch((x, y)), from_torch(in_torch((x, y)))):
        assert a.requires_grad
        assert a.is_leaf
        assert not b.requires_grad
        assert type(b).__name__ == "Parameter"


def test_numbers_of_numpy_and_types() -> None:
    thing = {"lr": np.float32(0.5), "n": np.int64(3), "dtype": tg.bfloat16, "device": tg.device("cpu")}
    assert again(thing) == {"lr": 0.5, "n": 3, "dtype": tg.bfloat16, "device": "cpu"}
    assert in_torch(thing)["dtype"] is torch.bfloat16
    assert from_torch({"m": Counter([3, 3])}) == {"m": Counter([3, 3])}
    assert again(Counter("aab")) == Counter("aab")


@pytest.mark.parametrize("legacy", [False, True])
def test_elements_of_a_type_that_is_not_there(legacy: bool) -> None:
    """Missing element types do no harm, and the error describes them correctly."""
    with pytest.raises(CheckpointError, match="has a ComplexFloat tensor"):
        from_torch(torch.ones(2, dtype=torch.complex64), _use_new_zipfile_serialization=not legacy)


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        ({"model": tg.nn.Linear(2, 2)}, r"the object\['model'\] is .*Linear.*state_dict"),
        ([np.ones(3)], r"the object\[0\] is .*tilegrad.tensor"),
        ({(1, (2,)): 3}, "has the key"),
        ({"a": print}, "cannot be saved"),
        (type("Point", (tuple,), {})(), r"save tuple\(...\) of it"),
        (1 << 3000, "3001 bits"),
    ],
)
def test_what_cannot_be_saved(thing: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "old.pt").write_bytes(b"old")
    with pytest.raises(ArgumentError, match=message):
        tg.save(thing, tmp_path / "old.pt")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


def test_what_contains_itself() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ArgumentError, match="contains itself"):
        tg.save(loop, io.BytesIO())
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ArgumentError, match="nested more than"):
        tg.save(deep, io.BytesIO())


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    x = tg.arange(1000)
    tg.save({"x": x}, path)
    first = path.read_bytes()
    tg.save({"x": x}, str(path))
    assert path.read_bytes() == first, "the same tensors give the same bytes"
    for found in (tg.load(path), tg.load(str(path), mmap=True), torch.load(path, mmap=True, weights_only=True)):
        assert found["x"].tolist() == list(range(1000))
    mapped = tg.load(path, mmap=True)["x"]
    tg.save({"x": mapped + 1}, path)  # a new file takes the place: what was mapped is not disturbed
    mapped += 5
    assert mapped.tolist() == list(range(5, 1005))
    assert tg.load(path)["x"].tolist() == list(range(1, 1001))
    with path.open("wb") as file:
        file.write(b"before")
        tg.save([1], file)
    with path.open("rb") as file:
        file.seek(6)
        assert tg.load(file) == [1]
    with pytest.raises(CheckpointError, match="cannot be written"):
        tg.save([1], tmp_path / "no" / "x.pt")
    with pytest.raises(ArgumentError, match="never does"):
        tg.load(path, weights_only=False)


def test_devices() -> None:
    x = tg.ones(2, device="reference")
    assert again([x])[0].device.name == "cpu"
    assert again([x], map_location="reference")[0].device.name == "reference"
    assert again([x], map_location={"cpu": "reference"})[0].device.name == "reference"
    file = io.BytesIO()
    tg.save([tg.ones(2)], file)
    elsewhere = file.getvalue().replace(b"X\3\0\0\0cpu", b"X\3\0\0\0xpu")
    with pytest.raises(CheckpointError, match="checksum"):
        tg.load(io.BytesIO(elsewhere))
    file = io.BytesIO()
    torch.save(torch.ones(1), file, _use_new_zipfile_serialization=False)
    for place in (b"xpu", b"mps"):
        elsewhere = file.getvalue().replace(b"cpu", place)
        with pytest.raises(DeviceError, match=f"has tensors of '{place.decode()}'.*map_location='cpu'"):
            tg.load(io.BytesIO(elsewhere))
        assert tg.load(io.BytesIO(elsewhere), map_location="cpu").tolist() == [1]


def test_the_order_of_bytes() -> None:
    file = io.BytesIO()
    x = torch.arange(6, dtype=torch.int32)
    torch.save([x, torch.tensor([1.5, 2.5], dtype=torch.bfloat16)], file)
    import zipfile

    swapped = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(file.getvalue())) as old, zipfile.ZipFile(swapped, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("byteorder"):
                data = b"big"
            elif "/data/" in name:
                data = np.frombuffer(data, f"<u{4 if name.endswith('0') else 2}").byteswap().tobytes()
            new.writestr(name, data)
    found = tg.load(io.BytesIO(swapped.getvalue()))
    assert [y.tolist() for y in found] == [[0, 1, 2, 3, 4, 5], [1.5, 2.5]]


NETWORKS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda nn: nn.Linear(3, 4),
    "norm": lambda nn: nn.LayerNorm(5),
    "embedding": lambda nn: nn.Embedding(7, 3),
    "sequence": lambda nn: nn.Sequential(nn.Embedding(7, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2, bias=False)),
}


@pytest.mark.parametrize("container", ["pt", "legacy", "safetensors"])
@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_weights_travel(make: Callable[[Any], Any], container: str, tmp_path: Path) -> None:
    """Weights go from PyTorch to tilegrad and back with the same results."""
    theirs, ours, back = make(torch.nn), make(tg.nn), make(torch.nn)
    path = tmp_path / "weights"
    if container == "safetensors":
        tg.save_safetensors(from_torch(theirs.state_dict()), path)
        ours.load_state_dict(tg.load_safetensors(path))
    else:
        torch.save(theirs.state_dict(), path, _use_new_zipfile_serialization=container == "pt")
        ours.load_state_dict(tg.load(path))
    tg.save(ours.state_dict(), path)
    back.load_state_dict(torch.load(path, weights_only=True))
    first = next(iter(theirs.children()), theirs)
    x = np.arange(4) if isinstance(first, torch.nn.Embedding) else np.linspace(-1, 1, 10, dtype=np.float32)
    x = x if x.dtype.kind == "i" else x.reshape(2, 5) if isinstance(first, torch.nn.LayerNorm) else x[:9].reshape(3, 3)
    wanted = theirs(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours(tg.tensor(x)).detach().numpy(), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(back(torch.tensor(x)).detach().numpy(), wanted)


class Training:
    """Everything that decides how a loss goes on."""

    def __init__(self) -> None:
        self.model = tg.nn.Sequential(tg.nn.Linear(6, 8), tg.nn.Dropout(0.3), tg.nn.Tanh(), tg.nn.Linear(8, 3))
        self.optimizer = tg.optim.AdamW(self.model.parameters(), lr=0.01, amsgrad=True)
        self.epoch = 0

    def step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def epochs(self, count: int, traced: bool) -> list[float]:
        data = np.random.default_rng(0).random((3, 8, 6), np.float32)
        step = tg.jit(self.step) if traced else self.step
        losses = []
        for _ in range(count):
            self.optimizer.param_groups[0]["lr"] = 0.01 / (1 + self.epoch)
            losses += [step(tg.tensor(x), tg.tensor(np.arange(8) % 3)).item() for x in data]
            self.epoch += 1
        return losses

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": tg.get_rng_state(),
            "epoch": self.epoch,
        }

    def resume(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        tg.set_rng_state(state["generator"])
        self.epoch = state["epoch"]


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.usefixtures("compiled")
def test_training_goes_on_as_if_nothing_had_been(traced: bool, tmp_path: Path) -> None:
    """The same numbers, bit for bit; dropout draws on where it stopped. PyTorch can read the file too."""
    tg.manual_seed(3)
    whole = Training()
    whole.epochs(2, traced)
    tg.save(whole.state(), tmp_path / "state.pt")
    wanted = whole.epochs(3, traced)
    tg.manual_seed(99)
    resumed = Training()
    resumed.resume(tg.load(tmp_path / "state.pt"))
    assert resumed.epochs(3, traced) == wanted
    assert torch.load(tmp_path / "state.pt", weights_only=True)["epoch"] == 2
