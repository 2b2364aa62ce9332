"""docs/comparison.md lists PyTorch's names that tilegrad does not have."""

import re
from typing import Any

import pytest

import tilegrad as tg
from tests.source import ROOT

torch = pytest.importorskip("torch")

PAIRS = {
    "nn": (torch.nn, tg.nn),
    "nn.functional": (torch.nn.functional, tg.nn.functional),
    "optim": (torch.optim, tg.optim),
    "optim.lr_scheduler": (torch.optim.lr_scheduler, tg.optim.lr_scheduler),
    "nn.init": (torch.nn.init, tg.nn.init),
    "nn.utils.rnn": (torch.nn.utils.rnn, tg.nn.utils.rnn),
}
INNER = {"Tensor", "Optimizer", "factory_kwargs", "assert_int_or_pair", "boolean_dispatch", "handle_torch_function"}
INNER |= {"has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "native_channel_shuffle"}
INNER |= {"ScalingType", "SwizzleType", "swap_in_optimizer_params_and_state", "PackedSequence_", "bind"}
INNER |= {"copy_method_params", "invert_permutation"}
"""Names in modules of PyTorch that are not meant for users."""


def missing(name: str) -> list[str]:
    theirs, ours = PAIRS[name]

    def counts(own: str, thing: Any) -> bool:
        return callable(thing) and (getattr(thing, "__module__", "") or "").startswith("torch") and own not in INNER

    found = [n for n in dir(theirs) if not n.startswith("_") and counts(n, getattr(theirs, n)) and not hasattr(ours, n)]
    # deprecated functions of init have the name without the underscore
    return [n for n in found if not hasattr(ours, f"{n}_")]


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_left_out_is_said(name: str) -> None:
    said = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "comparison.md").read_text()))
    assert set(missing(name)) <= said
