"""An index outside of its axis raises within `jit` as it does outside, whatever takes it and on whatever device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tilegrad as tg
from tests.backend.cuda import emulated
from tests.backend.cuda.emulating import EmulatingDriver
from tests.backend.cuda.simulated import SimulatedDriver
from tilegrad import Tensor, nn
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.cuda.queues import here
from tilegrad.errors import IndexRangeError
from tilegrad.nn import functional as F
from tilegrad.random import forget
from tilegrad.runtime import device as registry

ROWS, WIDE = 7, 24
"""The extents of the table that is indexed."""
USES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str, int]] = {
    "embedding": (lambda x, i: F.embedding(i, x), "embedding", 0),
    "indexing": (lambda x, i: x[i] * 2, "indexing", -ROWS),
    "two indices": (lambda x, i: x[i, i.abs() % WIDE], "indexing", -ROWS),
    "indexing from the right": (lambda x, i: (x.t()[:, i]).sum(), "indexing", -ROWS),
    "index_select": (lambda x, i: x.index_select(0, i), "index_select", 0),
    "gather": (lambda x, i: x.gather(0, i[:, None].expand(-1, WIDE)), "gather", 0),
    "rows of a product": (lambda x, i: x[i] @ x.t(), "indexing", -ROWS),
    "computed": (lambda x, i: x[(i.float() + 0.25).floor().long()], "indexing", -ROWS),
    "index_add": (lambda x, i: x.index_add(0, i, tg.ones(len(i), WIDE, device=x.device)), "index_add", 0),
    "index_put": (lambda x, i: x.index_put((i,), x.sum()), "index_put", -ROWS),
    "index_fill": (lambda x, i: x.index_fill(0, i, 3.0), "index_fill", -ROWS),
    "scatter": (lambda x, i: x.scatter(0, i[:, None], 3.0), "scatter", 0),
    "scatter_add": (lambda x, i: x.scatter_add(0, i[:, None], x.new_ones(len(i), 1)), "scatter_add", 0),
    "gradient": (lambda x, i: tg.grad(lambda y: y[i].sum())(x), "indexing", -ROWS),
    "second use": (lambda x, i: x[i].exp() + x[i + 0].sum(0), "indexing", -ROWS),
    "one_hot": (lambda x, i: F.one_hot(i, ROWS), "one_hot", 0),
    "classes": (lambda x, i: F.cross_entropy(x[: len(i), :ROWS], i[:ROWS]), "cross_entropy", 0),
}
LENGTHS = {"classes": 5}
EMULATED = ("embedding", "computed", "index_add", "scatter", "classes", "gradient")
"""Uses of which the generated CUDA C++ is compiled and run: a second each."""


@pytest.fixture(scope="module", params=["cpu", "simulated", "emulated"])
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "cpu":
        yield "cpu"
        return
    if request.param == "emulated" and not emulated.has_compiler():
        pytest.skip("no C++ compiler")
    driver = EmulatingDriver() if request.param == "emulated" else SimulatedDriver()
    before = here.device
    name = registry.register(CudaDevice(driver, 210 + isinstance(driver, EmulatingDriver))).name
    yield name
    del registry._devices[name]
    forget(name)
    here.device = before


@pytest.mark.parametrize("use", USES)
def test_the_wrong_index_is_named(use: str, place: str) -> None:
    if "211" in place and use not in EMULATED:
        pytest.skip("one of each kind is emulated")
    tells_the_wrong_index(use, place)


def tells_the_wrong_index(use: str, place: str) -> None:
    function, op, least = USES[use]
    count = LENGTHS.get(use, 37)
    jitted = tg.jit(function)
    x = tg.randn(ROWS, WIDE).to(place)
    good = np.arange(count) * 5 % (ROWS - least) + least
    for at, wrong in ((None, 0), (0, ROWS), (count - 1, least - 1), (count // 2, 10**6), (None, 0)):
        rows = good.copy()
        if at is not None:
            rows[at] = wrong
        given = tg.tensor(rows).to(place)
        if at is None:
            assert np.isfinite(jitted(x, given).cpu().numpy()).all()
            continue
        with pytest.raises(IndexRangeError) as caught:
            jitted(x, given).cpu().numpy()
        said = str(caught.value)
        assert f"index {wrong} is outside axis" in said
        assert said.startswith(op)
        assert f"has {ROWS} elements (indices {least} to {ROWS - 1})" in said
        assert re.search(r"recorded at (\S+ or )*test_index_faults.py:", said), "a program may be shared"


@pytest.mark.parametrize("count", [1, 3, 8, 17, 37, 130])
def test_what_lies_beyond_the_border_is_no_index(count: int, place: str) -> None:
    """Tiles overhang: elements that do not exist have any index that is computed from nothing."""
    if "211" in place and count != 17:
        pytest.skip("one length is emulated")
    x = tg.arange(float(ROWS)).to(place)
    zeros = tg.zeros(count, dtype=tg.int64).to(place)
    steps = tg.arange(count).to(place)
    for function in (
        lambda i: x[i + ROWS - 1],
        lambda i: x[i - ROWS],
        lambda i: F.pad(x[i + 3], (2, 5)) + 1,
        lambda i: tg.cat([x[i + 2], x[i - 4], x[i * 0]]) * 2,
        lambda i: x[(i + ROWS - 1)[:, None].expand(-1, 5)].sum(1),
        lambda i: x[steps.minimum(i + ROWS - 1)],
        lambda i: F.pad((x[i + 5][None, None]), (1, 1)).unfold(2, 3, 1).sum(-1),
    ):
        np.testing.assert_array_equal(tg.jit(function)(zeros).cpu().numpy(), function(zeros).cpu().numpy())


def test_a_step_goes_on_after_a_wrong_index(place: str) -> None:
    model = nn.Sequential(nn.Embedding(ROWS, 8), nn.Flatten(), nn.Linear(24, 4)).to(place)
    optimizer = tg.optim.AdamW(model.parameters(), lr=0.1)

    @tg.jit
    def step(words: Tensor, classes: Tensor) -> Tensor:
        loss = F.cross_entropy(model(words), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    good, classes = tg.tensor([[0, 1, 2], [3, 4, 6]]).to(place), tg.tensor([1, 3]).to(place)
    first = step(good, classes).item()
    for words, wanted, said in (
        (good + 1, classes, "embedding: index 7"),
        (good, classes + 1, "cross_entropy: the classes of the target: index 4"),
    ):
        with pytest.raises(IndexRangeError, match=said):
            step(words, wanted).item()
    for _ in range(20):
        last = step(good, classes).item()
    assert last < first / 2


def test_ignored_classes_are_no_wrong_index(place: str) -> None:
    scores = tg.randn(5, 3).to(place)
    wanted = tg.tensor([0, -100, 2, -100, 1]).to(place)
    loss = tg.jit(F.cross_entropy)(scores, wanted).item()
    assert loss == pytest.approx(F.cross_entropy(scores, wanted).item(), rel=1e-5)


def test_it_is_found_for_sizes_that_change(place: str) -> None:
    jitted = tg.jit(lambda x, i: x[i])
    for rows in (4, 5, 6, 9, 12):  # the last ones share a program for all sizes
        x = tg.randn(rows, 3).to(place)
        assert jitted(x, tg.tensor([rows - 1, -rows]).to(place)).shape == (2, 3)
        with pytest.raises(IndexRangeError, match=f"index {rows} is outside axis 0, which has {rows} elements"):
            jitted(x, tg.tensor([0, rows]).to(place)).tolist()


@pytest.mark.parametrize("wait", ["synchronize", "event", "stream", "item"])
def test_whoever_waits_for_a_gpu_is_told(wait: str) -> None:
    before = here.device
    gpu = registry.register(CudaDevice(SimulatedDriver(), 212))
    try:
        x, rows = tg.ones(5).to(gpu.name), tg.tensor([1, 5]).to(gpu.name)
        made = tg.jit(lambda i: x[i])(rows)
        other = tg.ones(1).to(gpu.name)
        with tg.cuda.device(gpu.name):
            event = tg.cuda.Event()
            event.record()
            waits: dict[str, Callable[[], object]] = {
                "synchronize": tg.cuda.synchronize,
                "event": event.synchronize,
                "stream": tg.cuda.current_stream().synchronize,
                "item": other.item,
            }
            with pytest.raises(IndexRangeError, match="index 5 is outside axis 0, which has 5 elements"):
                waits[wait]()
            waits[wait]()
        assert made.tolist() == [1, 1]
    finally:
        del registry._devices[gpu.name]
        forget(gpu.name)
        here.device = before
