"""Language models generate the same tokens on a GPU as on a CPU."""

from typing import Any

import pytest

import tilegrad as tg
from tests.generation.language_models import VOCABULARY, GroupedQueries, filled, gpt
from tilegrad.backend.cuda.device import CudaDevice

SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.8, "top_k": 5, "seed": 3},
    {"temperature": 1.2, "top_p": 0.7, "seed": 4},
]


@pytest.mark.parametrize("make", [gpt, lambda: filled(GroupedQueries())], ids=["gpt", "grouped"])
def test_tokens_are_those_of_the_cpu(make: Any, gpu: CudaDevice) -> None:
    """Requests of other lengths and settings share the steps of one batch."""
    prompts = [[1 + n % (VOCABULARY - 1) for n in range(start, start + 3 + start)] for start in range(5)]
    found = []
    for device in ("cpu", gpu.name):
        with tg.generation.TextGenerator(make().to(device), max_batch=3, prefill_chunks=(4, 16)) as generator:
            answers = [
                generator.submit(prompt, max_new_tokens=12, **SETTINGS[n % len(SETTINGS)])
                for n, prompt in enumerate(prompts)
            ]
            found.append([answer.result() for answer in answers])
    assert found[0] == found[1]
