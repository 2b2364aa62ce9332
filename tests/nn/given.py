"""The inputs of the cases."""

from typing import Any

import numpy as np


def given(shape: Any, seed: int) -> Any:
    """An input: a shape of floats, or a word and sizes."""
    generator = np.random.default_rng(seed)
    if shape is None:
        return None
    if not isinstance(shape, str):
        return (generator.standard_normal(shape) * 2).astype(np.float32)
    kind, *sizes = shape.split()
    shape = tuple(map(int, sizes))
    match kind:
        case "numbers":
            return generator.integers(0, 6, shape)
        case "offsets":
            return np.array(shape)
        case "shares":
            return generator.random(shape).astype(np.float32) * np.float32(0.9) + np.float32(0.05)
        case "counts":
            return generator.integers(0, 6, shape).astype(np.float32)
        case "classes":
            return generator.integers(0, shape[-1], shape[:-1])
        case "signs":
            return generator.choice([-1.0, 1.0], shape).astype(np.float32) if shape else np.array(1.0, np.float32)
        case _:
            rows = np.stack([generator.permutation(shape[-1]) for _ in range(shape[0])])
            rows[:, 2], rows[-1, 0] = -1, -1
            return rows
