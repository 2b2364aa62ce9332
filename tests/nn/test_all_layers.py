"""Every layer against PyTorch's: the same state and inputs give the same outputs, gradients, buffers and printed form,
over several steps of training, in evaluation, and under jit.
"""

import warnings
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.nn.cases import ACTIVATIONS, IMAGES, LOSSES, NORMS, PADDINGS, PRINTED, PRODUCTS, RANDOM, Case
from tests.nn.given import given
from tests.nn.printing import as_in
from tests.recorded import Names, pytorch
from tilegrad import nn

torch = pytorch()
warnings.filterwarnings("ignore", module="torch")

CASES = [*ACTIVATIONS, *NORMS, *PADDINGS, *IMAGES, *PRODUCTS, *LOSSES]
STEPS = 3


def made(text: str) -> tuple[Any, Any]:
    """The layer here and in PyTorch, with the same state."""
    ours = eval(text, {name: getattr(nn, name) for name in nn.__all__})
    try:
        theirs = eval(text, {}, Names(torch.nn))
    except TypeError as problem:
        if "unexpected keyword" not in str(problem):
            raise
        pytest.skip(f"this PyTorch: {problem}")
    generator = np.random.default_rng(5)
    state = {
        name: np.asarray(generator.random(tuple(value.shape)) + 0.5, np.float32)
        if value.is_floating_point()
        else value.numpy()
        for name, value in theirs.state_dict().items()
    }
    theirs.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    ours.load_state_dict(state)
    return ours, theirs


def tensors(arrays: list[Any], make: Any) -> list[Any]:
    """The inputs; a gradient is wanted of all floats but targets, which stand last."""
    return [
        None if a is None else make(a, requires_grad=True) if a.dtype == np.float32 and n == 0 else make(a)
        for n, a in enumerate(arrays)
    ]


def same(what: str, ours: Any, theirs: Any, tolerance: float = 3e-5) -> None:
    assert (ours is None) == (theirs is None), what
    if ours is not None:
        assert tuple(ours.shape) == tuple(theirs.shape), what
        np.testing.assert_allclose(
            ours.detach().numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance, err_msg=what
        )


def same_state(ours: Any, theirs: Any) -> None:
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for (name, x), y in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        same(name, x, y)


def weighted(output: Any, make: Any) -> Any:
    weights = np.random.default_rng(9).standard_normal(tuple(output.shape)).astype(np.float32)
    return (output * make(weights)).sum()


def train(layer: Any, arrays: list[Any], make: Any, no_grad: Any) -> tuple[Any, list[Any]]:
    """One step of gradient descent: the output, and the gradients of inputs and parameters."""
    inputs = tensors(arrays, make)
    output = layer(*inputs)
    if output.requires_grad:
        weighted(output, make).backward()
    parameters = list(layer.parameters())
    gradients = [x.grad for x in [*inputs, *parameters] if x is not None]
    with no_grad():
        for parameter in parameters:
            if parameter.grad is not None:
                parameter -= 0.05 * parameter.grad
                parameter.grad = None
    return output, gradients


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.made} {case.inputs}")
def test_layer(case: Case) -> None:
    ours, theirs = made(case.made)
    assert as_in(torch, ours) == repr(theirs)
    for step in range(STEPS if ours.state_dict() else 1):
        arrays = [given(shape, 10 * step + n) for n, shape in enumerate(case.inputs)]
        (y, gradients), (wanted, others) = (
            train(ours, arrays, tg.tensor, tg.no_grad),
            train(theirs, arrays, torch.tensor, torch.no_grad),
        )
        same("output", y, wanted)
        for n, (x, other) in enumerate(zip(gradients, others, strict=True)):
            same(f"gradient {n} of step {step}", x, other)
        same_state(ours, theirs)
    if ours.state_dict():
        same(
            "eval",
            *(layer.eval()(*tensors(arrays, make)) for layer, make in ((ours, tg.tensor), (theirs, torch.tensor))),
        )
        same_state(ours, theirs)


@pytest.mark.parametrize("case", RANDOM, ids=lambda case: case.made)
def test_random_layers_without_training(case: Case) -> None:
    ours, theirs = made(case.made)
    assert as_in(torch, ours) == repr(theirs)
    array = given(case.inputs[0], 0)
    same("eval", ours.eval()(tg.tensor(array)), theirs.eval()(torch.tensor(array)))


@pytest.mark.parametrize("text", PRINTED)
def test_printed(text: str) -> None:
    ours, theirs = made(text)
    assert as_in(torch, ours) == repr(theirs)


@pytest.mark.parametrize(
    "made_of", ["BatchNorm1d(3)", "BatchNorm1d(3, momentum=None)", "InstanceNorm1d(3, track_running_stats=True)"]
)
def test_running_statistics_move_in_a_traced_step(made_of: str) -> None:
    ours, theirs = made(made_of)

    @tg.jit
    def step(x: Any) -> Any:
        return ours(x)

    for n in range(4):
        array = given((4, 3, 5), n)
        same("output", step(tg.tensor(array)), theirs(torch.tensor(array)))
        same_state(ours, theirs)
    ours.eval(), theirs.eval()
    same("eval", step(tg.tensor(array)), theirs(torch.tensor(array)))
    same_state(ours, theirs)
