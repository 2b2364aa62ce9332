"""Networks that tilegrad and PyTorch write in the same words: `library` is either of them.

The harness draws the weights, so that both compute the same.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Inputs = dict[str, np.ndarray]
Size = tuple[int, ...]
Call = Callable[[], Any]
Ready = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes a function fast: `tg.jit`, `torch.compile`, or the identity."""


def lenet(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def alexnet(nn: Any) -> Any:
    """AlexNet with one input channel, as people train it on digits of 224 x 224."""
    return nn.Sequential(
        nn.Conv2d(1, 96, 11, stride=4),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(96, 256, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(256, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Flatten(),
        nn.Linear(6400, 4096),
        nn.ReLU(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Linear(4096, 10),
    )


def wide(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


def gpt(nn: Any, vocabulary: int = 256, context: int = 128, width: int = 128, layers: int = 4, heads: int = 4) -> Any:
    """A GPT: pre-norm blocks of attention and a feed-forward network with residual connections."""
    functional, Module = nn.functional, nn.Module

    class Block(Module):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            parts = self.qkv(self.before(x)).view(batch, length, 3, heads, width // heads)
            q, k, v = (parts[:, :, n].transpose(1, 2) for n in range(3))
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.between(x))))

    class Gpt(Module):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.last, self.scores = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, x: Any) -> Any:
            x = self.tokens(x) + self.places.weight
            return self.scores(self.last(self.blocks(x))).flatten(0, 1)

    return Gpt()


def lstm(nn: Any, vocabulary: int = 256, width: int = 256, layers: int = 2) -> Any:
    """Scores of the next letter from LSTM layers."""

    class Letters(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.scores = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
            self.lstm = nn.LSTM(width, width, layers, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.scores(self.lstm(self.tokens(x))[0]).flatten(0, 1)

    return Letters()


def mlp(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


BUILD: dict[str, Callable[[Any], Any]] = {
    "mlp": mlp,
    "lenet": lenet,
    "alexnet": alexnet,
    "wide": wide,
    "gpt": gpt,
    "gpt2": lambda nn: gpt(nn, GPT2_LETTERS, 1024, 768, 12, 12),
    "lstm": lstm,
}
GPT2_LETTERS = 50304
"""The vocabulary of GPT-2, padded to a multiple of 128."""
SHAPES: dict[str, tuple[int, ...]] = {"lenet": (1, 28, 28), "alexnet": (1, 224, 224), "wide": (784,), "mlp": (784,)}
"""The shape of one sample."""


def batch(name: str, size: Size) -> Inputs:
    """Samples and labels, or, for language, letters and their successors."""
    rng = np.random.default_rng(0)
    if name in SHAPES:
        x = rng.standard_normal((size[0], *SHAPES[name]), dtype=np.float32)
        return {"x": x, "labels": rng.integers(0, 10, size[0])}
    letters = rng.integers(0, GPT2_LETTERS if name == "gpt2" else 256, (size[0], size[1] + 1))
    return {"x": np.ascontiguousarray(letters[:, :-1]), "labels": letters[:, 1:].flatten()}


def drawn(shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    """Draw weights of these shapes."""
    rng = np.random.default_rng(1)
    return [
        (rng.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:])))).astype(np.float32) for shape in shapes
    ]


def filled(library: Any, name: str) -> Any:
    """The network with the weights of the harness."""
    model = BUILD[name](library.nn)
    parameters = list(model.parameters())
    with library.no_grad():
        for parameter, w in zip(parameters, drawn([tuple(p.shape) for p in parameters]), strict=True):
            parameter.copy_(library.tensor(w))
    return model


def same(x: Any) -> Any:
    return x


class Step:
    """A step that updates parameters and can report its gradients."""

    def __init__(self, library: Any, parameters: list[Any], optimizer: Any, run: Call) -> None:
        self.library, self.parameters, self.optimizer, self.run = library, parameters, optimizer, run
        self.adam = not isinstance(optimizer, library.optim.SGD)

    def __call__(self) -> Any:
        return self.run()

    def gradients(self) -> list[np.ndarray]:
        """Compute all gradients at the first weights from the update of the timed step.

        SGD subtracts a multiple of the gradient; Adam keeps a tenth of the first gradient as its mean. The last of
        several steps counts, each from the first weights, because later steps may run another program.
        """
        library, group = self.library, self.optimizer.param_groups[0]
        first, rate = [p.detach().clone() for p in self.parameters], group["lr"]
        group["lr"] = 1.0
        for _ in range(SAME_STEPS):
            with library.no_grad():
                for p, w in zip(self.parameters, first, strict=True):
                    p.copy_(w)
                    if self.adam and self.optimizer.state[p]:
                        self.optimizer.state[p]["exp_avg"].zero_()
            self()
        group["lr"] = rate
        if self.adam:
            means = [self.optimizer.state[p]["exp_avg"] / (1 - group["betas"][0]) for p in self.parameters]
            return [as_array(mean) for mean in means]
        return [as_array(w) - as_array(p) for w, p in zip(first, self.parameters, strict=True)]


class Training(Step):
    """A whole training step; `low`: products in bfloat16; `laid`: the memory layout of images and weights."""

    def __init__(
        self,
        library: Any,
        name: str,
        inputs: Inputs,
        ready: Ready,
        low: bool = False,
        device: str = "cpu",
        laid: Callable[[Any], Any] = same,
    ) -> None:
        x, labels = (library.tensor(a).to(device) for a in inputs.values())
        self.given, self.model = (laid(x), labels), laid(filled(library, name).to(device))
        parameters = list(self.model.parameters())
        kind = library.optim.AdamW if name in ("gpt", "gpt2", "lstm") else library.optim.SGD
        optimizer = kind(parameters, lr=1e-3)

        def step(x: Any, labels: Any) -> Any:
            with library.autocast(device, library.bfloat16, enabled=low):
                scores = self.model(x)
            loss = library.nn.functional.cross_entropy(scores.float(), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()  # a step leaves weights and a loss, with every library: JAX's has no gradients
            return loss

        self.step = ready(step)
        super().__init__(library, parameters, optimizer, lambda: self.step(*self.given))

    def __call__(self) -> Any:
        return (self.run(), *([] if self.adam else self.parameters))


SAME_STEPS = 4


def as_array(x: Any) -> np.ndarray:
    """Convert a tensor of either library to numpy."""
    found: np.ndarray = x.detach().cpu().numpy()
    return found.astype(np.float64)


def exact_gradients(torch: Any, name: str, inputs: Inputs, device: str = "cpu") -> list[np.ndarray]:
    """Compute all gradients of a step at the first weights in float64."""
    x, labels = (torch.tensor(a).to(device) for a in inputs.values())
    model = filled(torch, name).double().to(device)
    loss = torch.nn.functional.cross_entropy(model(x.double() if x.is_floating_point() else x), labels)
    return [as_array(g) for g in torch.autograd.grad(loss, list(model.parameters()))]


def exact_of_mlp(torch: Any, inputs: Inputs) -> list[np.ndarray]:
    """The same for a network with one hidden layer and given weights."""
    x, labels, *weights = (torch.from_numpy(a) for a in inputs.values())
    w1, b1, w2, b2 = (w.double().requires_grad_() for w in weights)
    linear = torch.nn.functional.linear
    loss = torch.nn.functional.cross_entropy(linear(linear(x.double(), w1, b1).relu(), w2, b2), labels)
    return [as_array(g) for g in torch.autograd.grad(loss, (w1, b1, w2, b2))]


def errors(found: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> list[float]:
    """The error of each gradient relative to its norm."""
    return [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(found, exact, strict=True)]


def inference(
    library: Any,
    name: str,
    inputs: Inputs,
    ready: Ready,
    low: bool = False,
    device: str = "cpu",
    laid: Callable[[Any], Any] = same,
) -> Call:
    """The scores of a batch; `low`: everything in bfloat16."""
    x, model = laid(library.tensor(inputs["x"]).to(device)), laid(filled(library, name).eval().to(device))
    if low:
        x, model = x.to(library.bfloat16), model.to(library.bfloat16)
    quick = ready(lambda x: model(x))

    def call() -> Any:
        with library.no_grad():
            return quick(x)

    return call
