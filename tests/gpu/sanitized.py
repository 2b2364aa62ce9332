"""Programs for a memory checker: every kernel scheme, on small tensors of odd sizes.

    python tests/gpu/sanitized.py [names]         without the checker it only compiles, so that nothing else is slow

Each program is printed when it is done. Its results are compared elsewhere.
"""

import faulthandler
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import tilegrad as tg
import tilegrad.nn.functional as F

LIMIT = 600
"""Seconds after which the current stack is printed."""
WORKS: dict[str, Callable[[], object]] = {}


def work(function: Callable[[], object]) -> Callable[[], object]:
    WORKS[function.__name__] = function
    return function


def drawn(*shape: int, dtype: tg.DType = tg.float32) -> tg.Tensor:
    return tg.randn(*shape, device="cuda").to(dtype)


@work
def elements() -> object:
    x = drawn(37, 1001)
    return [y.relu().sin() + y.t().contiguous().t() for y in (x, x.bfloat16(), x.double())]


@work
def reductions() -> object:
    x = drawn(37, 1001)
    return [x.sum(), x.sum(0), x.sum(1), x.max(1), x.argmax(0), x.softmax(1), x.var(0), drawn(1 << 20).sum()]


@work
def scans() -> object:
    x = drawn(37, 1001)
    return [x.cumsum(1), x.cumsum(0), x.cummax(1), drawn(70_003).cumsum(0)]


@work
def sorting() -> object:
    x = drawn(37, 1001)
    return [x.sort(1), x.topk(5, 1), drawn(70_003).argsort(), drawn(70_003).topk(5), drawn(1001).unique()]


@work
def indexing() -> object:
    index = tg.randint(0, 300, (5001,), device="cuda")
    table = drawn(300, 40)
    added = tg.zeros(300, 40, device="cuda").index_add(0, index, drawn(5001, 40))
    return [table[index], added, tg.bincount(index), tg.zeros(300, device="cuda").scatter(0, index, drawn(5001))]


def product_of(dtype: tg.DType, precision: str, *sizes: tuple[int, int, int]) -> list[tg.Tensor]:
    found = []
    for m, k, n in sizes:
        x, y = drawn(m, k, dtype=dtype), drawn(k, n, dtype=dtype)
        found += [tg.matmul(x, y, precision=precision), tg.matmul(y.t(), x.t(), precision=precision)]
    return found


@work
def products_float32() -> object:
    return product_of(tg.float32, "highest", (65, 70, 33), (256, 256, 256), (64, 4096, 64))


@work
def products_tf32() -> object:
    return product_of(tg.float32, "high", (65, 70, 33), (256, 256, 256))


@work
def products_bfloat16() -> object:
    return product_of(tg.bfloat16, "highest", (65, 70, 33), (256, 256, 256), (64, 8192, 64))


@work
def products_float64() -> object:
    return product_of(tg.float64, "highest", (65, 70, 33))


@work
def products_of_8_bits() -> object:
    x, y = (drawn(256, 256).to(tg.float8_e4m3fn) for _ in range(2))
    return [x.float() @ y.float(), tg.matmul(x.float(), y.float(), precision="medium")]


@work
def attention() -> object:
    x = [drawn(2, 2, 130, 64, dtype=tg.bfloat16).requires_grad_() for _ in range(3)]
    y = F.scaled_dot_product_attention(*x, is_causal=True)
    return tg.autograd.grad(y, x, y.detach())


@work
def convolutions() -> object:
    found = []
    for shape, weight, how in (((2, 3, 31, 30), (16, 3, 7, 7), (2, 3)), ((2, 32, 17, 19), (72, 32, 3, 3), (1, 1))):
        for dtype in (tg.float32, tg.bfloat16):
            x, w = (drawn(*s, dtype=dtype).requires_grad_() for s in (shape, weight))
            y = F.max_pool2d(F.conv2d(x, w, None, *how).relu(), 2)
            found += tg.autograd.grad(y, (x, w), y.detach())
    return found


@work
def recurrences() -> object:
    rnn, x = tg.nn.LSTM(9, 7).cuda(), drawn(5, 3, 9).requires_grad_()
    return tg.autograd.grad(rnn(x)[0].sum(), [x, *rnn.parameters()])


@work
def copies() -> object:
    x = drawn(37, 1001)
    return [x.cpu().cuda(), x.cpu().pin_memory().cuda(), x[3:, 5:].clone(), tg.cat([x, x.flip(1)], 0)]


@work
def steps() -> object:
    """Run as CUDA graphs from the third step on."""
    model = tg.nn.Sequential(tg.nn.Linear(33, 17), tg.nn.Dropout(0.5), tg.nn.ReLU(), tg.nn.Linear(17, 10)).cuda()
    optimizer = tg.optim.AdamW(model.parameters())
    x, t = drawn(5, 33), tg.randint(0, 10, (5,), device="cuda")

    @tg.jit
    def step() -> tg.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), t)
        loss.backward()
        optimizer.step()
        return loss

    return [step() for _ in range(4)]


def realized(found: object) -> None:
    match found:
        case tg.Tensor():
            found.realize()
        case list() | tuple():
            for part in found:
                realized(part)


def main(names: list[str]) -> None:
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    for name in names or list(WORKS):
        start = time.perf_counter()
        realized(WORKS[name]())
        tg.cuda.synchronize()
        print(f"{name} {time.perf_counter() - start:.2f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
