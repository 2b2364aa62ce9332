"""Variables of kernels are named like what the CUDA backend declares itself: nothing is hidden or declared twice."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.backend.cuda.some_kernels import SCHEDULED
from tests.known_kernels import KNOWN
from tilegrad.backend.cuda.code.lower import lower
from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_parser import parse

KERNELS = {k.name: k for k in [*(make(np.random.default_rng(0)).kernel for make in KNOWN), *SCHEDULED.values()]}
TOKEN = re.compile(r"(?:\.|::)\w+|[A-Za-z_]\w*|\d\w*|\S")
"""A word, a member with what stands before it, a number, or a sign."""
OF_THE_LANGUAGE = {"for", "if", "else", "float", "while", "break", "continue", "C", "tl", "tg"}
"""Words that kernels cannot use either."""
PLAIN = "plain_name"


def renamed(kernel: Kernel, old: str, new: str) -> Kernel:
    return parse(re.sub(rf"(?<![.\w]){old}\b(?!=)", new, str(kernel)))


def tokens(kernel: Kernel) -> list[str]:
    text = lower(kernel, "sm_90a").text
    body = re.sub(r"//.*|#pragma.*", "", text[text.rindex('extern "C"') :])
    return TOKEN.findall(body)


def differs(plain: list[str], other: list[str]) -> bool:
    """Whether more than names is different, or different names became one."""
    names = dict(zip(plain, other, strict=False))
    consistent = len(plain) == len(other) and all(names[x] == y for x, y in zip(plain, other, strict=True))
    return not consistent or len(set(names.values())) < len(names)


@pytest.mark.parametrize("name", KERNELS)
def test_variables_may_have_any_name(name: str) -> None:
    kernel = KERNELS[name]
    written = str(kernel)
    (first, *_) = re.findall(r"^ +(\w+) = ", written, re.MULTILINE)
    plain = tokens(renamed(kernel, first, PLAIN))
    own = set(re.findall(r"\w+", written)) | OF_THE_LANGUAGE | {f"{name}_kernel"}
    words = {word for word in plain if word[0].isalpha() and not word.startswith(PLAIN)} - own
    for word in sorted(words | {"large", "largest", "held", "half_0", "shared", "thread", "min", "below"}):
        if word not in own:
            assert not differs(plain, tokens(renamed(kernel, first, word))), f"{first} is called {word}"


def test_parameters_may_be_named_like_regions_of_shared_memory() -> None:
    kernel = KERNELS["rows"]
    plain = tokens(renamed(kernel, "x", PLAIN))
    for word in ("large", "held", "half_0", "half_1", "shared", "thread", "grid_0"):
        assert not differs(plain, tokens(renamed(kernel, "x", word))), word
