"""The rows: which program is measured how, against whom, and at most how slow it should be."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A program, the largest ratios that it should have, and by what they are divided."""

    name: str
    program: str
    """Module and function, as in `loops:item_reads`."""
    title: str
    cold: float
    """The largest ratio with an empty cache."""
    warm: float = 0.0
    """The largest ratio with the cache of an earlier process; 0: as cold."""
    jit: bool = False
    memory: bool = False
    """Whether the peak memory of the process is compared, not its time."""
    rival: str = "torch"
    tolerance: float = 2e-3
    gpu: bool = False
    """Whether it runs on the first GPU; such rows are measured where they are named."""

    @property
    def contenders(self) -> tuple[str, str, str]:
        return "tilegrad cold", "tilegrad warm", self.rival


TRAINED = {
    "small_resnet": ("networks:small_resnet", "small ResNet, 32 x 3 x 32 x 32"),
    "alexnet": ("networks:alexnet", "AlexNet, 16 x 1 x 224 x 224"),
    "gpt": ("networks:gpt", "GPT of the examples, 16 x 128"),
    "lstm": ("networks:lstm", "LSTM of the examples, 32 x 64"),
    "vae": ("networks:vae", "VAE, 128 x 784"),
    "unet": ("networks:unet", "U-Net, 8 x 64 x 64"),
    "densenet121": ("deep_networks:densenet121", "DenseNet-121, 16 x 3 x 32 x 32"),
}
SECONDS = "import to the end of the second step"
NEW = "a new length"
LARGE = "first calls on 16 M elements"
TINY = "10,000 tiny operations"
GPU = "on a GPU: import to the end of the first step"
ROWS = [
    *(Row(n, p, f"{t}: {SECONDS}", 1.2, 0.8) for n, (p, t) in TRAINED.items()),
    *(Row(f"{n}_jit", p, f"{t}, `jit`: {SECONDS}", 0.5, 0.12, jit=True, rival="jax") for n, (p, t) in TRAINED.items()),
    Row("resnet18", "deep_networks:resnet18", "ResNet-18 at 32 x 32: import to the end of the first step", 1.5),
    Row("googlenet", "deep_networks:googlenet", "GoogLeNet at 32 x 32: import to the end of the first step", 1.5),
    Row("new_linear", "lengths:linear", f"{NEW}: linear forward and backward", 1.5),
    Row("new_gru", "lengths:gru", f"{NEW}: GRU forward and backward", 1.5),
    Row("new_tokens", "lengths:gpt_tokens", f"{NEW}: a token of a GPT", 1.5),
    Row("new_episodes", "lengths:reinforce", f"{NEW}: an episode of REINFORCE", 1.5),
    Row("new_structures", "lengths:structures", "a structure that was never seen", 2.0),
    Row("item_products", "loops:item_products", "`t[i, j] += a[i, k] * b[k, j]`, a round", 1.5),
    Row("item_products_seen", "loops:item_products_seen", "the same, printed element by element", 1.5),
    Row("item_reads", "loops:item_reads", "`x[i].item()`", 1.5),
    Row("item_writes", "loops:item_writes", "`y[i] = i` for 250 elements, then a look", 1.5),
    Row("varied_batches", "loops:varied_batches", "batches of varied items (`x[1:1+n] = ix`), a batch", 1.5),
    Row("recurrence", "loops:recurrence", "a recurrence of 1,000 steps, forward and backward", 1.5),
    Row("lstm_cells", "loops:lstm_cells", "two LSTM cells, 1,000 steps, forward and backward", 1.5),
    Row("truncated", "loops:truncated", "truncated back-propagation, a batch", 1.5),
    Row("cat_pieces", "loops:cat_pieces", "`torch.cat` of 4,000 pieces of different lengths", 1.5),
    Row("stacked", "loops:stacked", "1,000 tensors made and stacked", 1.5),
    Row("elements_once", "loops:elements_once", f"{TINY} on 16 elements, looked at once", 1.5),
    Row("elements_each", "loops:elements_each", f"{TINY} on 16 elements, looked at each time", 1.5),
    Row("scalars_once", "loops:scalars_once", f"{TINY} on scalars, looked at once", 1.5),
    Row("scalars_each", "loops:scalars_each", f"{TINY} on scalars, looked at each time", 1.5),
    Row("items_once", "loops:items_once", f"{TINY} on items, looked at once", 1.5),
    Row("items_each", "loops:items_each", f"{TINY} on items, looked at each time", 1.5),
    Row("unseen", "loops:unseen", "10^5 operations that nobody looks at: time", 1.5),
    Row("unseen_memory", "loops:unseen", "10^5 operations that nobody looks at: peak memory", 1.2, memory=True),
    Row("first_add", "large:add", f"{LARGE}: add", 1.25),
    Row("first_exp", "large:exp", f"{LARGE}: exp", 1.25),
    Row("first_sum", "large:total", f"{LARGE}: sum", 1.25),
    Row("first_softmax", "large:softmax", f"{LARGE}: softmax", 1.25),
    Row("first_layer_norm", "large:layer_norm", f"{LARGE}: layer norm", 1.25),
    Row("first_matmul", "large:matmul", "first calls: matmul 1024", 1.25),
    Row("first_convolution", "large:convolution", "first calls: convolution 16 x 96 x 26² → 256", 1.25),
    Row("gpu_resnet18", "deep_networks:resnet18", f"ResNet-18 at 32 x 32, {GPU}", 2.0, 1.2, gpu=True),
    Row("gpu_gpt2", "networks:gpt2", f"GPT-2 small, 2 x 1024, {GPU}", 2.0, 1.2, gpu=True),
    Row("import", "imports:nothing", "`import tilegrad` over `import numpy`", 1.3, rival="numpy"),
]
BY_NAME = {row.name: row for row in ROWS}


def find(names: list[str]) -> list[Row]:
    """Find rows by their names, or all whose names begin with one that ends with a star; without names all of the CPU.

    >>> [row.name for row in find(["new_l*", "vae"])]
    ['new_linear', 'vae']
    """
    found = []
    for name in names or [row.name for row in ROWS if not row.gpu]:
        fitting = [row for row in ROWS if row.name == name or (name[-1:] == "*" and row.name.startswith(name[:-1]))]
        if not fitting:
            raise SystemExit(f"no row {name!r}; there are {', '.join(BY_NAME)}")
        found += fitting
    return list(dict.fromkeys(found))
