"""Every stage prints, by name; what is counted is right; the page stands alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tilegrad as tg
from tests.profile.example import attention_weights, two_layers
from tilegrad.custom import which_kernel
from tilegrad.errors import ArgumentError, TraceError
from tilegrad.ir.tile_parser import parse
from tilegrad.profile import explain
from tilegrad.profile.count import Work
from tilegrad.profile.explanation import Explanation
from tilegrad.profile.step_model import step_of

STAGES = ("lines", "graph", "simplify", "fuse", "kernels", "program")


def ones(*shape: int) -> tg.Tensor:
    return tg.tensor(np.ones(shape, np.float32), device="reference")


def softmax() -> Explanation:
    return explain(attention_weights, ones(4, 8), ones(1))


@pytest.mark.parametrize("stage", STAGES)
def test_softmax(stage: str, golden: Callable[[object], None]) -> None:
    golden(softmax()[stage])


@pytest.mark.parametrize("stage", ["lines", "fuse", "kernels", "program"])
def test_two_layers(stage: str, golden: Callable[[object], None]) -> None:
    golden(explain(two_layers, ones(8, 16), ones(16, 4), ones(4, 2))[stage])


def test_everything_prints_at_once() -> None:
    e = softmax()
    text = str(e)
    for name in e.stages:
        assert f"=== {name} ===" in text
    assert "of limit" in text


def test_an_unknown_stage_is_refused_with_those_there_are() -> None:
    with pytest.raises(KeyError, match="there is no stage 'fusion'; there are: lines, graph"):
        softmax()["fusion"]
    with pytest.raises(KeyError, match="there is no kernel 'conv'; there are: "):
        softmax().kernels["conv"]


def test_kernels_print_as_they_are_read() -> None:
    e = explain(two_layers, ones(8, 16), ones(16, 4), ones(4, 2))
    for text, launch in zip(e.kernels, e.kernels.launches):
        assert parse(text).replaced(origin="") == launch.kernel.replaced(origin="")


def test_work_is_counted_from_what_is_computed() -> None:
    e = explain(two_layers, ones(8, 16), ones(16, 4), ones(4, 2))
    first, second = (row.work for row in e.measured.rows)
    assert first.read == 4 * (8 * 16 + 16 * 4)
    assert first.written == 4 * 8 * 4
    assert 2 * 8 * 16 * 4 <= first.operations <= 2 * 8 * 16 * 4 + 8 * 4
    assert second.operations >= 2 * 8 * 4 * 2


def test_what_is_counted_of_a_gather_is_what_it_reads() -> None:
    table, rows = ones(1000, 4), tg.tensor(np.arange(3), device="reference")
    (row,) = explain(lambda t, r: t[r] * 2.0, table, rows).measured.rows[-1:]
    assert row.work.read < 1000
    assert row.work.operations == 12


def test_a_jitted_training_step_is_not_run() -> None:
    w = ones(4).requires_grad_()

    @tg.jit
    def step(x: tg.Tensor) -> tg.Tensor:
        loss = (w * x).sum()
        loss.backward()
        with tg.no_grad():
            w.sub_(w.grad * 0.5)
        w.grad = None
        return loss.detach()

    e = explain(step, ones(4))
    assert e.measured.whole.seconds > 0
    assert w.tolist() == [1.0] * 4
    step(ones(4))
    assert w.tolist() == [0.5] * 4


def test_what_is_faster_than_the_machine_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first use on a busy machine measures limits that are too low, and they are kept."""
    cpu = tg.device("cpu")
    slow = {**cpu.limits, **{name: 1.0 for name in cpu.limits if name.endswith("_read")}}
    monkeypatch.setattr(type(cpu), "limits", property(lambda self: slow))
    said = str(explain(lambda x: x + 1, tg.ones(8)).measured)
    assert "doctor --measure" in said.splitlines()[-1]


def test_nothing_is_measured_where_nothing_runs(tmp_path: Path) -> None:
    e = explain(lambda x: x + 1, tg.ones(8, device="null"))
    assert "null runs nothing here: there are no times" in str(e.measured)
    assert "a run" not in e.summary()
    assert "null runs nothing here" in e.save(tmp_path / "nothing.html").read_text()
    assert all(kernel["seconds"] is None for kernel in step_of(e)["kernels"])


def test_a_module_is_called_by_its_class() -> None:
    net, x = tg.nn.Linear(2, 2), tg.ones(1, 2)
    for thing in (net, tg.jit(net), tg.jit(partial(net))):
        e = explain(thing, x)
        assert e.name == "Linear"
        assert str(e["program"]).startswith("program Linear(")


def test_a_recorded_tensor_is_explained() -> None:
    e = explain(ones(4, 8).exp().sum())
    assert "exp" in str(e["graph"])
    assert e.measured.rows[0].work == Work(128, 4, 64)


def test_what_is_computed_already_is_refused() -> None:
    with pytest.raises(ArgumentError, match="in memory already"):
        explain(ones(3))
    with pytest.raises(ArgumentError, match="a function with its arguments, or a tensor"):
        explain(3)


def test_sizes_that_vary_are_explained() -> None:
    fn = tg.jit(lambda x: (x * 2.0).sum(0))
    fn(ones(3, 2))
    fn(ones(5, 2))
    e = explain(fn, ones(7, 2))
    assert e.sizes == {"n": 7}
    assert e.measured.rows[0].work.read == 4 * 14
    assert step_of(e)["memory"]["live"][0] == 4 * (7 * 2 + 2)


def test_what_differentiation_added_is_a_stage() -> None:
    w = tg.ones(8, 3, requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=0.1, momentum=0.9)

    @tg.jit
    def step(x: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        loss = (x @ w).tanh().mean()
        loss.backward()
        optimizer.step()
        return loss

    e = tg.explain(step, tg.ones(4, 8))

    assert list(e.stages)[:3] == ["lines", "graph", "differentiated"]
    recorded, whole = str(e["graph"]), str(e["differentiated"])
    assert "tanh" in recorded
    assert "gradient of" not in recorded
    assert "state1" not in recorded.partition("\n")[2], "the momentum is computed from a gradient"
    assert set(recorded.split("\n")[:-1]) < set(whole.split("\n"))
    assert "# gradient of test_explanation.py" in whole
    assert "# gradient of test_explanation.py" in str(e.simplified)


def test_nothing_is_added_where_nothing_is_differentiated() -> None:
    e = tg.explain(lambda x: x + 1, tg.ones(3))
    assert e.graph is e.differentiated
    assert e["differentiated"] == "(unchanged)"


def test_a_number_belongs_to_no_line() -> None:
    """Equal numbers are one value, whatever line they stand in."""
    e = tg.explain(lambda x: x * 12345.5, tg.ones(3))
    assert "fill[12345.5]\n" in str(e["graph"])


def test_a_derived_function_stands_where_its_function_does() -> None:
    def cube(x: tg.Tensor) -> tg.Tensor:
        return (x * x * x).sum()

    text = str(tg.explain(tg.grad(cube), tg.ones(4))["lines"])

    assert text.startswith("test_explanation.py\n")
    assert text.count(".py") == 1
    assert text.count("x * x * x") == 1


@pytest.mark.parametrize("look", [tg.explain, tg.first_nan, which_kernel], ids=lambda f: f.__name__)
def test_a_function_without_a_program_is_refused_with_the_reason(look: Callable[..., object]) -> None:
    def turned(x: tg.Tensor) -> tg.Tensor:
        x.unsqueeze_(0)
        return x * 2

    with pytest.raises(TraceError, match="runs without a program.*unsqueeze_ changes what a tensor from outside is"):
        look(turned, tg.tensor([1.0, 2.0]))
    jitted = tg.jit(turned)
    assert jitted(tg.tensor([1.0, 2.0])).tolist() == [[2.0, 4.0]]
    assert jitted.memory is None
