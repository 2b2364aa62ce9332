"""Every device has a default generator of its own, which starts from the same seed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg


def dropped(device: str, wrapped: Callable[..., Any]) -> list[np.ndarray]:
    tg.manual_seed(5)
    fn = wrapped(lambda x: tg.nn.functional.dropout(x, 0.5))
    return [fn(tg.ones(40, device=device)).cpu().numpy() for _ in range(3)]


@pytest.mark.parametrize("wrapped", [tg.jit, lambda fn: fn])
def test_what_is_dropped_is_the_same_on_every_device(wrapped: Callable[..., Any]) -> None:
    """Also in a jitted function, whose program finds the state on its device and moves it on."""
    found = dropped("reference", wrapped)
    np.testing.assert_array_equal(found, dropped("cpu", wrapped))
    assert not np.array_equal(found[0], found[1])


def test_numbers_are_drawn_in_the_same_order_on_a_device_that_was_not_used_before() -> None:
    tg.manual_seed(11)
    here = tg.rand(5).cpu().numpy()
    np.testing.assert_array_equal(tg.rand(5, device="reference").cpu().numpy(), here)
    assert not np.array_equal(tg.rand(5, device="reference").cpu().numpy(), here)


def test_attention_with_dropout_on_another_device() -> None:
    tg.manual_seed(2)
    q = tg.ones(1, 2, 4, 4, device="reference")
    made = tg.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    assert np.isfinite(made.cpu().numpy()).all()


def test_a_traced_function_may_be_the_first_to_draw() -> None:
    generator = tg.Generator()
    draw = tg.jit(lambda: tg.rand(4, generator=generator))
    first, second = draw().numpy(), draw().numpy()
    assert not np.array_equal(first, second)
    generator.manual_seed(0)
    np.testing.assert_array_equal(tg.rand(4, generator=generator).numpy(), first)


def test_deviations_of_zero_are_normal_and_not_log_normal() -> None:
    np.testing.assert_array_equal(tg.ones(3).normal_(2, 0).numpy(), [2, 2, 2])
    with pytest.raises(tg.errors.ArgumentError, match="log_normal_: std=0"):
        tg.ones(3).log_normal_(1, 0)


def test_bernoulli_in_place_takes_a_chance_and_not_its_elements() -> None:
    assert 0 < tg.zeros(100).bernoulli_().sum().item() < 100
    assert tg.zeros(4).bernoulli_(tg.ones(4)).tolist() == [1, 1, 1, 1]
