"""Wrong use of everything above single operations (those are in `test_wrong_use.py`), and what users are told.

A row has a name, what the user does, the class of the error, and fragments that the message must have: what met
what (shapes, names, numbers), and the remedy. Every message must also name the line of the user.
"""

from __future__ import annotations

import copy
import gzip
import re
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config, data, nn, optim
from tilegrad.errors import (
    ArgumentError,
    AxisError,
    DataError,
    DeviceError,
    DTypeError,
    GradientError,
    IndexRangeError,
    InPlaceError,
    RuntimeFault,
    ShapeError,
    TilegradError,
    TraceError,
)
from tilegrad.nn import functional as F

Row = tuple[str, Callable[[], Any], type[TilegradError], tuple[str, ...]]

A, B = tg.ones(3, 4), tg.ones(2, 5)
FAR = tg.ones(3, device="reference")
MASK = tg.tensor([True, False, True], device="reference")
PAIRS = data.TensorDataset(A, tg.arange(3))


def leaf(*shape: int) -> tg.Tensor:
    return tg.ones(*(shape or (3,)), requires_grad=True)


# --- gradients ---------------------------------------------------------------------------------


def twice() -> None:
    loss = (leaf() ** 2).sum()
    loss.backward()
    loss.backward()


def grad_twice_of_rows() -> None:
    table = tg.ones(5, 3).requires_grad_()
    rows = tg.nn.functional.embedding(tg.tensor([1, 3]), table)
    for _ in range(2):
        tg.autograd.grad(rows, [table], tg.ones(2, 3))


def shared_part_twice() -> None:
    shared = leaf().exp()
    (shared * 2).sum().backward()
    (shared * 3).sum().backward()


def saved_operand_changed() -> None:
    x = leaf() * 1
    y = x * x
    x.add_(1)
    y.sum().backward()


def saved_result_changed_through_a_view() -> None:
    x = (leaf() * 1).exp()
    y = x * x
    x[0] = 3
    y.sum().backward()


def leaf_assigned() -> None:
    x = leaf()
    x[0] = 1


def leaf_changed_through_a_view() -> None:
    leaf()[0].mul_(2)


def hook_of_another_shape() -> None:
    x = leaf()
    x.register_hook(lambda gradient: tg.ones(5))
    (x * 2).sum().backward()


class TooFew(tg.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        return x * y

    @staticmethod
    def backward(ctx: Any, gradient: tg.Tensor) -> Any:
        return gradient


class TooLarge(tg.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: tg.Tensor) -> tg.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: tg.Tensor) -> Any:
        return tg.ones(7)


def gradient_of(shape: tuple[int, ...], **options: Any) -> None:
    leaf().grad = tg.ones(shape, **options)


def wrong_gradient() -> None:
    x = tg.ones(2, dtype=tg.float64, requires_grad=True)
    tg.autograd.gradcheck(lambda x: (x.detach() * x).sum(), (x,))


GRADIENTS: list[Row] = [
    ("backward twice", twice, GradientError, ("[3]", "backward(retain_graph=True)")),
    ("grad twice", grad_twice_of_rows, GradientError, ("[2, 3]", "backward(retain_graph=True)")),
    ("backward twice through a part", shared_part_twice, GradientError, ("exp", "[3]", "retain_graph=True")),
    ("saved operand changed", saved_operand_changed, InPlaceError, ("mul", "[3]", "add_", "clone()")),
    ("saved result changed", saved_result_changed_through_a_view, InPlaceError, ("item assignment", "clone()")),
    ("leaf changed", lambda: leaf().add_(1), InPlaceError, ("add_", "[3]", "no_grad", "clone()")),
    ("leaf assigned", leaf_assigned, InPlaceError, ("item assignment", "no_grad")),
    ("leaf changed by a view", leaf_changed_through_a_view, InPlaceError, ("mul_", "no_grad")),
    ("integers require", lambda: tg.arange(3).requires_grad_(), GradientError, ("int64", "x.float()")),
    ("integers made so", lambda: tg.tensor([1], requires_grad=True), GradientError, ("int64", "float()")),
    ("gradient by integers", lambda: tg.grad(lambda x: x.sum())(tg.arange(3)), GradientError, ("int64", "float()")),
    ("backward of many", lambda: (leaf() * 2).backward(), GradientError, ("(3,)", ".sum().backward()", "ones_like")),
    ("backward of a constant", lambda: A.sum().backward(), GradientError, ("()", "requires_grad=True")),
    ("upstream shape", lambda: (leaf() * 2).backward(tg.ones(4)), ShapeError, ("(4,)", "(3,)", "equal")),
    ("upstream of integers", lambda: (leaf() * 2).backward(tg.arange(3)), GradientError, ("int64", "float()")),
    ("upstream number", lambda: (leaf() * 2).backward(3), ArgumentError, ("3 (int)", "tilegrad.tensor")),
    ("unused input", lambda: tg.autograd.grad(leaf().sum(), leaf()), GradientError, ("input 0", "allow_unused=True")),
    ("grad of a number", lambda: tg.grad(3), ArgumentError, ("3 (int)", "function")),  # type: ignore[arg-type]
    ("grad of many", lambda: tg.grad(lambda x: x * 2)(tg.ones(3)), GradientError, ("(3,)", ".sum()", "vjp")),
    ("grad of nothing", lambda: tg.grad(lambda x: None)(A), GradientError, ("None", "has_aux=True")),
    ("argnums", lambda: tg.grad(lambda x: x.sum(), argnums=3)(A), ArgumentError, ("argument 3", "there are 1")),
    ("vjp shape", lambda: tg.vjp(lambda x: x * 2, A)[1](B), ShapeError, ("(2, 5)", "(3, 4)")),
    ("jvp shape", lambda: tg.jvp(lambda x: x * 2, (A,), (B,)), ShapeError, ("(2, 5)", "(3, 4)")),
    ("jvp of tensors", lambda: tg.jvp(lambda x: x * 2, A, A), ArgumentError, ("tuples", "jvp(fn, (x,), (v,))")),
    ("vmap axis", lambda: tg.vmap(lambda x: x, in_dims=3)(A), AxisError, ("axis 3", "-2 to 1")),
    ("vmap sizes", lambda: tg.vmap(lambda x, y: x)(A, B), ShapeError, ("2, 3",)),
    ("vmap branch", lambda: tg.vmap(lambda x: x if x.sum() > 0 else -x)(A), TraceError, ("f32[4]", "where")),
    ("not a leaf", lambda: (leaf() * 2).requires_grad_(False), GradientError, ("leaves", "detach()")),
    ("grad of another shape", lambda: gradient_of((4,)), ShapeError, ("(4,)", "(3,)")),
    (
        "grad of another type",
        lambda: gradient_of((3,), dtype=tg.float64),
        DTypeError,
        ("float64", "to(tilegrad.float32)"),
    ),
    ("hook of a constant", lambda: A.register_hook(print), GradientError, ("require",)),
    ("hook of another shape", hook_of_another_shape, GradientError, ("(3,)", "(5,)", "None")),
    ("too few gradients", lambda: TooFew.apply(leaf(), leaf()).sum().backward(), GradientError, ("1", "2", "None")),
    ("gradient too large", lambda: TooLarge.apply(leaf()).sum().backward(), GradientError, ("(7,)", "(3,)")),
    ("gradcheck fails", wrong_gradient, GradientError, ("output 0", "input 0", "numerical", "analytical")),
    (
        "gradcheck of constants",
        lambda: tg.autograd.gradcheck(lambda x: x, (A,)),
        GradientError,
        ("requires_grad=True",),
    ),
    ("deep copy", lambda: copy.deepcopy(leaf() * 2), GradientError, ("leaves", "detach().clone()")),
    ("numpy of what requires", lambda: np.asarray(leaf()), GradientError, ("detach().numpy()",)),
    ("checkpoint of a number", lambda: tg.checkpoint(3, A), ArgumentError, ("3 (int)", "function")),  # type: ignore[arg-type]
]

# --- functions that are traced -----------------------------------------------------------------


@tg.jit
def branching(x: tg.Tensor) -> tg.Tensor:
    if x.sum() > 0:
        return x
    return -x


@tg.jit
def looping(x: tg.Tensor, count: tg.Tensor) -> tg.Tensor:
    for _ in range(count):  # type: ignore[call-overload]
        x = x + 1
    return x


def leaked() -> Any:
    queue: SimpleQueue[tg.Tensor] = SimpleQueue()
    tg.jit(lambda x: queue.put(x * 2))(A)
    return queue.get().tolist()


def two_devices() -> Any:
    return tg.jit(lambda x, y: x.sum() + y.sum())(A, FAR)


TRACED: list[Row] = [
    ("branch on data", lambda: branching(A), TraceError, ("f32[3,4]", "where", "cond")),
    ("loop over data", lambda: looping(A, tg.tensor(3)), TraceError, ("i64[]", "while_loop", "scan")),
    ("number of data", lambda: tg.jit(lambda x: x * x.max().item())(A), TraceError, ("f32[3,4]", "return the tensor")),
    ("as many as true", lambda: tg.jit(lambda x: x.nonzero())(A), TraceError, ("f32[3,4]", "where")),
    ("mask", lambda: tg.jit(lambda x: x[x > 0])(A), TraceError, ("f32[3,4]", "where")),
    ("leaked", leaked, TraceError, ("outside", "f32[3,4]", "Return it")),
    ("jit of a number", lambda: tg.jit(3), ArgumentError, ("3 (int)", "function")),  # type: ignore[call-overload]
    ("jit of a result", lambda: tg.jit(A.sum()), ArgumentError, ("Tensor", "not its result")),
    ("shapes in jit", lambda: tg.jit(lambda x, y: x + y)(A, B), ShapeError, ("(3, 4)", "(2, 5)")),
    ("devices in jit", two_devices, DeviceError, ("[3, 4] on cpu", "reference", "to('reference')")),
    ("explain a number", lambda: tg.explain(3), ArgumentError, ("function", "tensor", "int")),
    (
        "cond of other shapes",
        lambda: tg.jit(lambda x: tg.cond(x.sum() > 0, lambda: x, lambda: x.sum()))(A),
        ShapeError,
        ("cond", "[3, 4]", "[]"),
    ),
    (
        "cond of other structures",
        lambda: tg.jit(lambda x: tg.cond(x.sum() > 0, lambda: (x, x), lambda: x))(A),
        ShapeError,
        ("cond", "structure"),
    ),
    (
        "cond of many",
        lambda: tg.jit(lambda x: tg.cond(x > 0, lambda: x, lambda: -x))(A),
        ShapeError,
        ("cond", "[3, 4]", ".any()", "where"),
    ),
    ("cond of numbers", lambda: tg.cond(A.sum() > 0, 3, 4), ArgumentError, ("3 (int)",)),  # type: ignore[arg-type]
    (
        "loop without bound",
        lambda: tg.jit(lambda x: tg.while_loop(lambda s: s.sum() < 9, lambda s: s * 2, x))(A),
        TraceError,
        ("max_steps=",),
    ),
    (
        "loop that changes shape",
        lambda: tg.while_loop(lambda s: s.sum() < 99, lambda s: s[None], A),
        ShapeError,
        ("while_loop", "[3, 4]", "[1, 3, 4]"),
    ),
    ("scan of two lengths", lambda: tg.scan(lambda c, x: (c, c), A, (A, B)), ShapeError, ("[2, 3]",)),
    ("scan that changes shape", lambda: tg.scan(lambda c, x: (A, c), B, A), ShapeError, ("[2, 5]", "[3, 4]")),
    ("scan of one number", lambda: tg.scan(lambda c, x: (c, c), A, A.sum()), ShapeError, ("first axis",)),
    ("scan without pair", lambda: tg.scan(lambda c, x: c, A, A), ArgumentError, ("(carry, y)", "Tensor")),  # type: ignore[arg-type,return-value]
]

# --- devices and dtypes ------------------------------------------------------------------------

PLACES: list[Row] = [
    ("sum of two devices", lambda: tg.ones(3) + FAR, DeviceError, ("cpu", "reference", "to('cpu')")),
    ("product of two", lambda: A @ tg.ones(4, 2, device="reference"), DeviceError, ("(3, 4)", "(4, 2)", "to('cpu')")),
    ("cat of two", lambda: tg.cat([tg.ones(3), FAR]), DeviceError, ("cat", "cpu", "reference", "to(")),
    ("where of two", lambda: tg.where(MASK, tg.ones(3), 0.0), DeviceError, ("where", "reference", "to('cpu')")),
    ("in place of two", lambda: tg.ones(3).add_(FAR), DeviceError, ("add", "to('cpu')")),
    ("layer and input", lambda: nn.Linear(3, 2)(FAR), DeviceError, ("reference", "cpu", "to(")),
    ("loss of two", lambda: F.mse_loss(tg.ones(3), FAR), DeviceError, ("reference", "cpu", "to(")),
    ("numpy of another device", lambda: FAR.numpy(), DeviceError, ("reference", "x.cpu()")),
    ("no such device", lambda: tg.device("cpu:99"), DeviceError, ("cpu:99", "This machine has")),
    ("dtype by name", lambda: A.to("float64"), DTypeError, ("tilegrad.float64",)),
    ("dtype as a string", lambda: tg.ones(3, dtype="float32"), DTypeError, ("'float32'", "tilegrad.float32")),  # type: ignore[arg-type]
    ("dtype of random numbers", lambda: tg.randn(3, dtype="float32"), DTypeError, ("'float32'", "tilegrad.float32")),  # type: ignore[arg-type]
    ("dtype of a sum", lambda: A.sum(dtype="float64"), DTypeError, ("'float64'", "tilegrad.float32")),  # type: ignore[arg-type]
    ("dtype of a range", lambda: tg.arange(3, dtype="int32"), DTypeError, ("'int32'", "tilegrad.float32")),  # type: ignore[arg-type]
    ("dtype of numpy", lambda: tg.tensor([1], dtype=np.int8), DTypeError, ("int8", "tilegrad.")),  # type: ignore[arg-type]
    ("larger than memory", lambda: tg.rand(1 << 62, 2).realize(), RuntimeFault, ("bytes", "smaller")),
    ("more than can be counted", lambda: tg.eye(1 << 40).realize(), RuntimeFault, ("smaller",)),
    ("parts of one number", lambda: tg.tensor(1.0).split(1), ShapeError, ("without dimensions", "reshape")),
    ("too large", lambda: tg.ones(1 << 40).cumsum(0).realize(), RuntimeFault, ("4,398,046,511,104 bytes", "smaller")),
]

# --- networks ----------------------------------------------------------------------------------

TARGET = tg.tensor([0, 1, 2])


class Forgetful(nn.Module):
    def __init__(self) -> None:
        self.inner = nn.Linear(2, 2)


def state_of(*sizes: int) -> dict[str, Any]:
    return nn.Linear(*sizes).state_dict()


def parameter_replaced() -> None:
    nn.Linear(2, 2).weight = tg.ones(2, 2)  # type: ignore[assignment]


NETWORKS: list[Row] = [
    ("features", lambda: nn.Linear(5, 2)(A), ShapeError, ("(3, 4)", "(2, 5)", "5 features")),
    ("list for a tensor", lambda: nn.Linear(2, 2)([1.0, 2.0]), ArgumentError, ("list", "tilegrad.tensor")),
    ("negative size", lambda: nn.Linear(-1, 2), ShapeError, ("[2, -1]", "negative")),
    ("embedding of floats", lambda: nn.Embedding(3, 4)(A), DTypeError, ("float32", "index.long()")),
    ("word too large", lambda: nn.Embedding(3, 4)(tg.tensor([3])), IndexRangeError, ("index 3", "0 to 2")),
    ("word below 0", lambda: nn.Embedding(3, 4)(tg.tensor([-1])), IndexRangeError, ("index -1", "0 to 2")),
    ("padding row", lambda: nn.Embedding(3, 4, padding_idx=5), ArgumentError, ("padding_idx=5", "3 rows")),
    ("normalised shape", lambda: nn.LayerNorm(5)(A), ShapeError, ("(3, 4)", "(5,)")),
    ("probability", lambda: nn.Dropout(1.5), ArgumentError, ("1.5", "0 to 1")),
    ("module without init", Forgetful, ArgumentError, ("Forgetful", "super().__init__()", "'inner'")),
    ("parameter replaced", parameter_replaced, ArgumentError, ("Linear.weight", "Parameter", "Tensor")),
    ("parameter of a list", lambda: nn.Parameter([1]), ArgumentError, ("list", "tilegrad.tensor")),  # type: ignore[arg-type]
    ("parameter of integers", lambda: nn.Parameter(tg.arange(3)), GradientError, ("int64", "float()")),
    ("no module in a row", lambda: nn.Sequential(nn.ReLU(), "relu"), ArgumentError, ("at 1", "'relu'")),
    ("state lacks", lambda: nn.Linear(2, 2).load_state_dict({}), ArgumentError, ("weight", "bias", "strict=False")),
    (
        "state has more",
        lambda: nn.Linear(2, 2).load_state_dict(state_of(2, 2) | {"x": A}),
        ArgumentError,
        ("x: not in the module", "strict=False"),
    ),
    (
        "state of another shape",
        lambda: nn.Linear(2, 2).load_state_dict(state_of(3, 2)),
        ArgumentError,
        ("weight", "(2, 2)", "(2, 3)"),
    ),
    ("state no dict", lambda: nn.Linear(2, 2).load_state_dict([1]), ArgumentError, ("list", "state_dict()")),  # type: ignore[arg-type]
    (
        "state without tensors",
        lambda: nn.Linear(2, 2).load_state_dict({"weight": "w", "bias": 3}),
        ArgumentError,
        ("weight", "bias", "no tensor"),
    ),
    ("targets", lambda: F.cross_entropy(A, TARGET[:2]), ShapeError, ("(3, 4)", "(3,)", "(2,)")),
    ("class too large", lambda: F.cross_entropy(A, tg.tensor([0, 1, 4])), IndexRangeError, ("class 4", "0 to 3")),
    ("classes of floats", lambda: F.nll_loss(A, tg.ones(3)), DTypeError, ("float32", "integers")),
    ("classes of floats in logits", lambda: F.cross_entropy(A, tg.ones(3)), DTypeError, ("float32", "target.long()")),
    ("classes of bools", lambda: F.cross_entropy(A, TARGET > 0), DTypeError, ("bool", "integers")),
    ("probabilities", lambda: F.cross_entropy(A, tg.ones(3, 5)), ShapeError, ("(3, 4)", "(3, 5)")),
    ("list of classes", lambda: F.cross_entropy(A, [0, 1, 2]), ArgumentError, ("list", "tilegrad.tensor")),  # type: ignore[arg-type]
    ("class weights", lambda: F.cross_entropy(A, TARGET, tg.ones(3)), ShapeError, ("(3,)", "4")),
    ("reduction", lambda: F.mse_loss(A, A, "avg"), ArgumentError, ("'avg'", "'mean'")),
    ("smoothing", lambda: F.cross_entropy(A, TARGET, label_smoothing=2.0), ArgumentError, ("2.0", "0 to 1")),
    ("loss shapes", lambda: F.mse_loss(A, B), ShapeError, ("(3, 4)", "(2, 5)", "reshape")),
]

# --- optimizers --------------------------------------------------------------------------------


def given_twice() -> Any:
    x = leaf()
    return optim.SGD([x, x], lr=0.1)


def state_of_another() -> None:
    state = optim.SGD([leaf(), leaf()], lr=0.1).state_dict()
    optim.SGD([leaf()], lr=0.1).load_state_dict(state)


def state_of_other_shapes() -> None:
    optim.Adam([leaf()]).load_state_dict(optim.Adam([leaf(4)]).state_dict())


OPTIMIZERS: list[Row] = [
    ("negative rate", lambda: optim.SGD([leaf()], lr=-1), ArgumentError, ("lr is -1", "0 or more")),
    ("rate nan", lambda: optim.SGD([leaf()], lr=float("nan")), ArgumentError, ("lr is nan",)),
    ("rate as text", lambda: optim.SGD([leaf()], lr="0.1"), ArgumentError, ("'0.1'", "number")),  # type: ignore[arg-type]
    ("no parameters", lambda: optim.SGD([], lr=0.1), ArgumentError, ("no parameters", "generator")),
    ("nothing", lambda: optim.SGD(None, lr=0.1), ArgumentError, ("None", "model.parameters()")),  # type: ignore[arg-type]
    ("names only", lambda: optim.SGD(["w"], lr=0.1), ArgumentError, ("parameter 0", "str")),
    ("group without", lambda: optim.SGD([{"lr": 3}], lr=0.1), ArgumentError, ("'params'",)),
    ("unknown setting", lambda: optim.Adam([{"params": [leaf()], "beta": 3}]), ArgumentError, ("beta", "betas")),
    ("betas", lambda: optim.Adam([leaf()], betas=(1.0, 0.9)), ArgumentError, ("(1.0, 0.9)", "below 1")),
    ("not leaves", lambda: optim.SGD([leaf() * 2], lr=0.1), ArgumentError, ("(3,)", "detach()")),
    ("given twice", given_twice, ArgumentError, ("parameter 1", "already")),
    ("nesterov", lambda: optim.SGD([leaf()], lr=0.1, nesterov=True), ArgumentError, ("momentum",)),
    ("state of another", state_of_another, ArgumentError, ("[1]", "[2]")),
    ("state of other shapes", state_of_other_shapes, ArgumentError, ("exp_avg of parameter 0", "(4,)", "(3,)")),
    ("state no state", lambda: optim.SGD([leaf()], lr=1).load_state_dict({}), ArgumentError, ("param_groups", "{}")),
]

# --- data --------------------------------------------------------------------------------------


class Broken:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tg.Tensor:
        return A + B


def first(dataset: Any, **options: Any) -> Any:
    return next(iter(data.DataLoader(dataset, **options)))


DATA: list[Row] = [
    ("batch of 0", lambda: data.DataLoader(PAIRS, batch_size=0), ArgumentError, ("0", "at least 1")),
    ("two orders", lambda: data.DataLoader(PAIRS, shuffle=True, sampler=[0]), ArgumentError, ("shuffle", "sampler")),
    ("workers", lambda: data.DataLoader(PAIRS, num_workers=-1), ArgumentError, ("-1", "at least 0")),
    ("two batchings", lambda: data.DataLoader(PAIRS, 2, batch_sampler=[[0]]), ArgumentError, ("batch_sampler",)),
    ("no data set", lambda: data.DataLoader(3), ArgumentError, ("int", "__len__", "TensorDataset")),  # type: ignore[arg-type]
    ("no such sample", lambda: first(PAIRS, sampler=[7]), IndexRangeError, ("sample 7", "0 to 2")),
    ("uneven samples", lambda: first([(1,), (1, 2)], batch_size=2), ArgumentError, ("[1, 2]", "collate_fn")),
    ("uneven arrays", lambda: first([np.ones(2), np.ones(3)], batch_size=2), ShapeError, ("(2,), (3,)", "collate_fn")),
    ("error in a worker", lambda: first(Broken(), num_workers=2), ShapeError, ("(3, 4)", "(2, 5)")),
    ("uneven rows", lambda: data.TensorDataset(A, B), ShapeError, ("(3, 4)", "(2, 5)", "rows")),
    ("no arrays", lambda: data.TensorDataset(), ArgumentError, ("at least one",)),
    ("lengths", lambda: data.random_split(PAIRS, [1, 1]), ArgumentError, ("[1, 1]", "3 samples")),
    ("no files", lambda: data.MNIST("/nowhere"), DataError, ("/nowhere", "train-images")),
]

# --- knobs -------------------------------------------------------------------------------------

KNOBS: list[Row] = [
    ("unknown knob", lambda: config.read({"TILEGRAD_THREDS": "2"}), ArgumentError, ("TILEGRAD_THREADS", "The knobs")),
    ("no number", lambda: config.read({"TILEGRAD_THREADS": "two"}), ArgumentError, ("'two'", "whole number")),
    ("no switch", lambda: config.read({"TILEGRAD_HUGE_PAGES": "maybe"}), ArgumentError, ("'maybe'", "1 or 0")),
    ("seed", lambda: tg.manual_seed("x"), ArgumentError, ("'x'", "integer")),  # type: ignore[arg-type]
]

ROWS = [*GRADIENTS, *TRACED, *PLACES, *NETWORKS, *OPTIMIZERS, *DATA, *KNOBS]
LINE = re.compile(r"test_bad_input\.py:(\d+)\]")


@pytest.mark.parametrize(("use", "error", "fragments"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_row(use: Callable[[], Any], error: type[TilegradError], fragments: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:  # noqa: PT012 - what is recorded is refused when it is made, or computed
        made = use()
        if isinstance(made, tg.Tensor):
            made.realize()
    message = str(caught.value)
    assert [fragment for fragment in fragments if fragment not in message] == [], message
    line = LINE.search(message)
    assert line, f"no line of the user: {message}"
    lines = Path(__file__).read_text().splitlines()
    assert lines[int(line[1]) - 1].strip(), "the line is empty"


def test_names_are_unique() -> None:
    names = [row[0] for row in ROWS]
    assert len(names) >= 60
    assert len(set(names)) == len(names)


def test_the_line_is_the_users() -> None:
    """Not that of Python's library which calls tilegrad, nor that of a helper."""
    with pytest.raises(GradientError) as caught:
        copy.deepcopy(leaf() * 2)
    mine = (caught.tb.tb_lineno,)
    assert f"test_bad_input.py:{mine[0]}]" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "nothing"),
        (b"\x89PNG and more", "starts with 89 50 4e 47"),
        (b"\x00\x00\x08\x03\x00\x00", "ends within its header"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x09abc", "takes 17 bytes; it has 11"),
        (b"\x00\x00\x77\x01\x00\x00\x00\x01a", "not an IDX file"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_corrupt_idx_file(tmp_path: Path, content: bytes, message: str, packed: bool) -> None:
    from tilegrad.data.idx import read_idx

    path = tmp_path / ("images.gz" if packed else "images")
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)
    assert LINE.search(str(caught.value))


def test_torn_archive(tmp_path: Path) -> None:
    from tilegrad.data.idx import read_idx

    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\x07\x08" + bytes(range(200)) * 9)[:60])
    with pytest.raises(DataError, match="download it again"):
        read_idx(path)


@pytest.mark.parametrize(
    ("use", "message"),
    [("kernel:/no/such/file", "cannot be read"), ("gremlin:FILE", "only kernels"), ("kernel:BAD", "BAD|parse|line")],
)
def test_wrong_kernel_file(tmp_path: Path, use: str, message: str) -> None:
    """A kernel file that is none is refused with its name, and the next program runs as ever."""
    bad = tmp_path / "BAD"
    bad.write_text("def f(:\n  nonsense")
    x, other = tg.ones(100 + len(use)), float(len(use))
    with config.changed(use=use.replace("BAD", str(bad))), pytest.raises(TilegradError, match=message):
        (x * other + 1).tolist()
    assert (x * other + 1).tolist() == [other + 1] * len(x)
