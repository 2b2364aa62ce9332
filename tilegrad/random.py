"""Generate random tensors by a counter (Philox): same seed, same values, for any device and number of threads."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ArgumentError, DTypeError
from .functions.creation import DeviceLike, from_array, new_shape, place, typed
from .functions.declared import publish
from .functions.pointwise import named
from .functions.promotion import Number, get_default_dtype, kind_of
from .functions.views import in_one_piece
from .ir.dtype import DType, int64
from .ir.graph import Value
from .ir.size import Dim, product
from .lazy.evaluation import MAX_CHECKED_INDICES, array_of, compute_together
from .lazy.handle import Handle, state, wrap
from .lazy.layout import MemoryFormat, formatted, lay, like
from .lazy.storage import one_writer
from .ops import random as ops
from .ops.cast import cast

if TYPE_CHECKING:
    from .tensor import Tensor


class Generator:
    """A random generator: a seed, and how many numbers have been drawn."""

    def __init__(self, device: DeviceLike = None) -> None:
        self.device = place(device) if device is not None else "cpu"
        self._tensor: Tensor | None = None

    @property
    def tensor(self) -> Tensor:
        """The state: seed and count, as an int64 tensor."""
        with one_writer:
            if self._tensor is None:
                self.manual_seed(0)
        assert self._tensor is not None
        return self._tensor

    def manual_seed(self, seed: int) -> Generator:
        """Restart from a seed."""
        if not isinstance(seed, int):
            raise ArgumentError(f"manual_seed takes an integer, not {kind_of(seed)}")
        with one_writer:
            if self._tensor is None:
                self._tensor = _state_outside(seed, self.device)
            else:
                self._tensor.write(_state(seed, self.device).value, "manual_seed")
        return self

    def seed(self) -> int:
        """Restart from a random seed, and return it."""
        seed = int.from_bytes(os.urandom(8)) >> 1
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """Return the seed that it started from."""
        return int(array_of(self.tensor)[0])

    def get_state(self) -> Tensor:
        """Return the state, for `set_state`."""
        with one_writer:
            return self.tensor.clone()

    def set_state(self, new_state: Tensor) -> Generator:
        """Restore a state."""
        with one_writer:
            self.tensor.write(cast(new_state.value, int64), "set_state")
        return self

    def draw(self, count: Dim) -> Value:
        """Return the state for drawing so many numbers, and advance the generator."""
        with one_writer:  # of two threads that draw at once, each gets numbers of its own
            return self._drawn(self.tensor, count)

    def _drawn(self, tensor: Tensor, count: Dim) -> Value:
        before = tensor.value
        if state.trace is not None or not isinstance(count, int):
            tensor.write(ops.advance(before, count), "draw")
            return before
        seed, offset = array_of(tensor).tolist()
        tensor.write(from_array(np.array([seed, _wrapped(offset + count)], np.int64), self.device).value, "draw")
        return before


def _state(seed: int, device: str) -> Tensor:
    return from_array(np.array([_wrapped(seed), 0], np.int64), device)


def _state_outside(seed: int, device: str) -> Tensor:
    """Make an initial state. If a traced function is the first to draw, it is made outside the trace, so that the
    program advances it from call to call.
    """
    trace, state.trace = state.trace, None
    try:
        made = _state(seed, device)
        made.base().storage.common = True
    finally:
        state.trace = trace
    return made


def _wrapped(n: int) -> int:
    """Wrap a number to a signed 64-bit integer."""
    return (n + (1 << 63)) % (1 << 64) - (1 << 63)


default_generator = Generator()

_others: dict[str, Generator] = {}
"""The default generators of devices other than the CPU: a program finds the state on its own device."""
_first_seed = 0


def generator_of(device: str) -> Generator:
    """Return the default generator of a device. A new one starts from the seed of the CPU's."""
    if device == "cpu":
        return default_generator
    with one_writer:
        found = _others.get(device)
        if found is None:
            found = _others[device] = Generator(device).manual_seed(_first_seed)
    return found


def forget(device: str) -> None:
    """Drop the generator of a device that no longer exists."""
    with one_writer:
        _others.pop(device, None)


def manual_seed(seed: int) -> Generator:
    """Seed the default generators of all devices."""
    global _first_seed
    default_generator.manual_seed(seed)
    with one_writer:
        _first_seed = seed
        for other in _others.values():
            other.manual_seed(seed)
    return default_generator


def seed() -> int:
    """Seed the default generators randomly."""
    made = int.from_bytes(os.urandom(8)) >> 1
    manual_seed(made)
    return made


def initial_seed() -> int:
    """Return the seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Return the state of the default generator."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Restore the state of the default generator."""
    default_generator.set_state(new_state)


def _drawn(count: Dim, generator: Generator | None, device: DeviceLike) -> Value:
    """Draw from a generator, with the state on the device of the result."""
    if generator is None:
        return generator_of(place(device)).draw(count)
    found = generator.draw(count)
    return found if device is None or found.device == place(device) else wrap(found).to(device).value


# --- new tensors -------------------------------------------------------------------------------


@in_one_piece("size")
def rand(
    *size: Any,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draw uniformly from [0, 1)."""
    shape = new_shape(size, "rand")
    return _asked(
        ops.rand(_drawn(product(shape), generator, device), shape, typed(dtype) or get_default_dtype()), requires_grad
    )


@in_one_piece("size")
def randn(
    *size: Any,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draw from a normal distribution with mean 0 and standard deviation 1."""
    shape = new_shape(size, "randn")
    return _asked(
        ops.randn(_drawn(product(shape), generator, device), shape, typed(dtype) or get_default_dtype()), requires_grad
    )


def randint(
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draw integers from low (0 if only one bound is given) to below high."""
    if size is None:
        if not isinstance(high, (tuple, list)):
            raise ArgumentError("randint: the size is missing, as in randint(10, (3, 4))")
        low, high, size = 0, low, high
    if high is None:
        raise ArgumentError("randint: the end of the range is missing, as in randint(0, 10, (3, 4))")
    shape = new_shape((size,), "randint")
    made = ops.randint(_drawn(product(shape), generator, device), int(low), int(high), shape, typed(dtype) or int64)
    return _asked(made, requires_grad)


def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a random permutation of 0 to n - 1."""
    made = _asked(ops.randperm(_drawn(n, generator, device), n, typed(dtype) or int64), requires_grad)
    compute_together([made])  # whoever takes a part of it for each batch should not have it sorted for each
    return made


def _asked(value: Value, requires_grad: bool) -> Tensor:
    made = wrap(value)
    return made.requires_grad_() if requires_grad else made


def _drawing_like(draw: Callable[..., Tensor], name: str, doc: str) -> Callable[..., Tensor]:
    def make(
        input: Tensor,
        *,
        generator: Generator | None = None,
        dtype: DType | None = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
        memory_format: MemoryFormat | None = None,
    ) -> Tensor:
        x = input.value
        made = draw(x.shape, generator=generator, dtype=dtype or x.dtype, device=device or x.device)
        return lay(made, formatted(input, memory_format, name)).requires_grad_(requires_grad)

    return named(make, name, doc)


rand_like = _drawing_like(rand, "rand_like", "Draw uniformly from [0, 1), in the shape of another tensor.")
randn_like = _drawing_like(
    randn, "randn_like", "Draw from a standard normal distribution, in the shape of another tensor."
)


def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """Draw integers from low to below high, in the shape of another tensor."""
    low, high = (0, low) if high is None else (low, high)
    x = input.value
    made = randint(low, high, x.shape, generator=generator, dtype=dtype or x.dtype, device=device or x.device)
    return lay(made, formatted(input, memory_format, "randint_like")).requires_grad_(requires_grad)


def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """Draw 1 with the probability given by the input (or p), else 0."""
    x = input.value
    if p is None and not x.dtype.is_float and 0 not in x.shape:
        raise DTypeError(f"bernoulli takes floating-point probabilities, not {x.dtype.name}; convert them: x.float()")
    known = _seen(input) if p is None else None
    if known is not None and not ((known >= 0) & (known <= 1)).all():
        raise ArgumentError("bernoulli: probabilities are numbers from 0 to 1, and some of these are not")
    found = _drawn(x.type.count, generator, x.device)
    return wrap(cast(ops.bernoulli(found, x if p is None else _probability(p), x.shape), x.dtype))


def _seen(x: Tensor) -> Any:
    """Return a small tensor's values in memory, for checks that compute nothing."""
    if state.trace is not None or x.value.buffer is None or not 0 < x.numel() <= MAX_CHECKED_INDICES:
        return None
    return array_of(x)


def _probability(p: float) -> float:
    if not 0 <= p <= 1:
        raise ArgumentError(f"bernoulli: p={p} is no probability: give a number from 0 to 1")
    return p


def normal(
    mean: Tensor | float,
    std: Tensor | float = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draw from normal distributions with given means and standard deviations; two numbers need a size."""
    least = _seen(std) if isinstance(std, Handle) else np.asarray(std)
    if least is not None and (least < 0).any():
        raise ArgumentError(f"normal: std={least.min()}: a standard deviation is 0 or more")
    given = [x for x in (mean, std) if isinstance(x, Handle)]
    if not given:
        if size is None:
            raise ArgumentError("normal: of two numbers the size is needed too, as in normal(0.0, 1.0, (3, 4))")
        made = randn(size, generator=generator, dtype=dtype, device=device) * std + mean
        return made.requires_grad_() if requires_grad else made
    if any(x is not None for x in (size, dtype, device)) or requires_grad:
        raise ArgumentError(
            "normal: shape, type and device are those of the tensor; size and dtype go with two numbers"
        )
    like = given[0]
    if not like.dtype.is_float:
        raise DTypeError(f"normal draws floating-point elements, not {like.dtype.name}; convert the mean: x.float()")
    shape = (given[0] + given[-1]).shape
    drawn = randn(shape, generator=generator, dtype=like.dtype, device=like.device) * std + mean
    return drawn.to(like.dtype)


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Draw indices with the probabilities (or weights) in each row."""
    if input.dim() not in (1, 2) or num_samples < 1:
        raise ArgumentError(f"multinomial: {num_samples} of {tuple(input.shape)}: at least one, of a row or of rows")
    known = _seen(input)
    if known is not None and not ((known >= 0).all() and np.isfinite(known).all() and (known.sum(-1) > 0).all()):
        raise ArgumentError("multinomial: weights are finite, 0 or more, and in each row at least one is more than 0")
    if replacement:
        steps = input.cumsum(-1)
        drawn = (
            rand(*input.shape[:-1], num_samples, dtype=input.dtype, device=input.device, generator=generator)
            * steps[..., -1:]
        )
        return (drawn.unsqueeze(-1) >= steps.unsqueeze(-2)).long().sum(-1).clamp(max=input.shape[-1] - 1)
    if num_samples > input.shape[-1]:
        raise ArgumentError(
            f"multinomial: {num_samples} of {input.shape[-1]} without replacement; give replacement=True"
        )
    waits = -(1 - rand(input.shape, dtype=input.dtype, device=input.device, generator=generator)).log() / input
    return waits.topk(num_samples, -1, largest=False).indices


def dropout(input: Tensor, p: float = 0.5, train: bool = True) -> Tensor:
    """Zero each element with probability p and scale the others so that the mean is preserved; identity if not in
    training.
    """
    if not train or p == 0:
        return input
    x = input.value
    return like(ops.dropout(x, _drawn(x.type.count, None, x.device), p), input)


# --- in place ----------------------------------------------------------------------------------


def uniform_(self: Tensor, from_: float = 0, to: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill with uniform numbers from [from, to)."""
    if from_ > to:
        raise ArgumentError(f"uniform_: from {from_} to {to}: the first number must not be more than the second")
    x = self.value
    drawn = rand(x.shape, dtype=x.dtype, device=x.device, generator=generator)
    self.write((drawn * (to - from_) + from_).value, "uniform_")
    return self


def normal_(self: Tensor, mean: float = 0, std: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill with normally distributed numbers."""
    if std < 0:
        raise ArgumentError(f"normal_: std={std}: a standard deviation is 0 or more")
    x = self.value
    drawn = randn(x.shape, dtype=x.dtype, device=x.device, generator=generator)
    self.write((drawn * std + mean).value, "normal_")
    return self


def bernoulli_(self: Tensor, p: Tensor | float = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 1 with probability p, else 0."""
    x = self.value
    found = _drawn(x.type.count, generator, x.device)
    chance = p.value if isinstance(p, Handle) else _probability(p)
    self.write(cast(ops.bernoulli(found, chance, x.shape), x.dtype), "bernoulli_")
    return self


def random_(self: Tensor, from_: int = 0, to: int | None = None, *, generator: Generator | None = None) -> Tensor:
    """Fill with integers from `from` to below `to`; a single bound means 0 to below it."""
    x = self.value
    if to is None:
        from_, to = (0, from_) if from_ else (0, 1 << (24 if x.dtype.is_float else min(x.dtype.bits - 1, 62)))
    found = _drawn(x.type.count, generator, x.device)
    self.write(cast(ops.randint(found, from_, to, x.shape, int64), x.dtype), "random_")
    return self


def exponential_(self: Tensor, lambd: Number = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponentially distributed numbers."""
    if not lambd > 0:
        raise ArgumentError(f"exponential_: lambd={lambd}: a rate is more than 0")
    drawn = _uniform(self, generator)
    self.write((-drawn.log() / lambd).value, "exponential_")
    return self


def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with the number of trials, each successful with probability p, up to the first success."""
    if not 0 < p < 1:
        raise ArgumentError(f"geometric_: p={p}: give a probability between 0 and 1, both excluded")
    waits = (_uniform(self, generator).log() / math.log1p(-p)).ceil().clamp(min=1)
    self.write(cast(waits.value, self.dtype), "geometric_")
    return self


def log_normal_(self: Tensor, mean: float = 1, std: float = 2, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponentials of normally distributed numbers."""
    if not std > 0:
        raise ArgumentError(f"log_normal_: std={std} is not greater than 0")
    x = self.value
    drawn = randn(x.shape, dtype=x.dtype, device=x.device, generator=generator)
    self.write((drawn * std + mean).exp().value, "log_normal_")
    return self


def cauchy_(self: Tensor, median: float = 0, sigma: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers of a Cauchy distribution."""
    if not sigma > 0:
        raise ArgumentError(f"cauchy_: sigma={sigma} is not greater than 0")
    self.write(((math.pi * (_uniform(self, generator) - 0.5)).tan() * sigma + median).value, "cauchy_")
    return self


def _uniform(like: Tensor, generator: Generator | None) -> Tensor:
    """Draw uniformly from (0, 1], on which the logarithm is finite."""
    x = like.value
    dtype = x.dtype if x.dtype.is_float else get_default_dtype()
    return 1 - rand(x.shape, dtype=dtype, device=x.device, generator=generator)


publish(globals(), internal=("generator_of", "forget"), others=("Generator", "default_generator"))
