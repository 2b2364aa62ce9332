"""One module per library: each workload as users of that library would write it.

A module has a function for each workload that it supports. The function takes the inputs and returns a call without
arguments that does the work once and waits for it. `outputs` converts the result of a call to arrays that are compared.
Each setting of a library is a contender of its own.
"""

from typing import NamedTuple

MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "268435456",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""Let glibc keep freed memory, in huge pages, instead of returning it: what a careful user sets."""


class Contender(NamedTuple):
    """A library with settings."""

    name: str
    module: str
    variant: str = ""
    environment: dict[str, str] = {}
    tuned: bool = False

    @property
    def library(self) -> str:
        return self.name.split("-")[0]


CONTENDERS = [
    Contender("tilegrad", "ours"),
    Contender("tilegrad-checked", "ours", "", {"TILEGRAD_CHECK": "kernels"}),
    Contender("tilegrad-untuned", "ours", "", {"TILEGRAD_LOCK": "off"}),
    Contender("torch", "pytorch", "eager"),
    Contender("torch-compile", "pytorch", "compile"),
    Contender("torch-tuned", "pytorch", "eager", MALLOC, tuned=True),
    Contender("torch-compile-tuned", "pytorch", "compile", MALLOC, tuned=True),
    Contender("jax", "with_jax"),
    Contender("onnxruntime", "with_onnxruntime"),
    Contender("numpy", "with_numpy"),
]
