"""Measure decoding with a cache against PyTorch: python -m bench.generation [--device cuda:0] [--out file.json]

PyTorch runs with a static cache, eagerly (attending to the filled part) and compiled (with a mask; on a GPU in mode
reduce-overhead), with as many threads as ours (TILEGRAD_THREADS: 1 where other work runs). All choose the most likely
token, and hand each token to Python before the next step, as a server that streams does. Contenders take turns; before
anything is timed their tokens are compared. `--quick` measures the small model for a moment.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tilegrad as tg
from bench import machine

RESULTS = Path(__file__).parent / "results"
ROUNDS = 5
COMPARED = 16
"""Tokens that are compared before anything is timed."""


class Task(NamedTuple):
    """A network, and how many requests there are of how many tokens."""

    name: str
    vocabulary: int
    context: int
    width: int
    layers: int
    heads: int
    batch: int
    prompt: int
    new: int

    @property
    def label(self) -> str:
        return f"{self.name}, batch {self.batch}"


def tasks(on_gpu: bool, quick: bool) -> Iterator[Task]:
    """The GPT of the examples, and one of the size of GPT-2 small."""
    for batch in (1, 8):
        yield Task("tiny", 65, 128, 128, 4, 4, batch, 16, 8 if quick else 96)
    if not quick:
        for batch in (1, 64) if on_gpu else (1, 8):
            yield Task("gpt2-small", 50257, 1024, 768, 12, 12, batch, 64, 128 if on_gpu else 24)


class Contender(NamedTuple):
    """Decoding by one library: `begin` reads prompts and returns the first tokens, `step` the following ones."""

    begin: Callable[[Any], list[int]]
    step: Callable[[], list[int]]


def weights(task: Task) -> dict[str, Any]:
    """Random weights whose scores differ clearly."""
    model = tg.nn.models.GPT(task.vocabulary, task.context, task.width, task.layers, task.heads)
    rng = np.random.default_rng(0)
    found = {}
    for name, p in model.state_dict().items():
        scale = 0.02 if name.endswith("bias") else 1.0 if name.startswith("w") else p.shape[-1] ** -0.5
        found[name] = (scale * rng.standard_normal(tuple(p.shape))).astype(np.float32)
        if "ln_" in name and name.endswith("weight"):
            found[name] = np.ones(tuple(p.shape), np.float32)
    return found


def ours(task: Task, arrays: dict[str, Any], device: str) -> Contender:
    """The public interface, with its scheduler."""
    model = tg.nn.models.GPT(task.vocabulary, task.context, task.width, task.layers, task.heads)
    model.load_state_dict({name: tg.tensor(x) for name, x in arrays.items()})
    model = model.to(device, tg.float32 if device == "cpu" else tg.bfloat16).eval()
    generator = tg.generation.TextGenerator(model, max_batch=task.batch, prefill_chunks=(task.prompt,))
    iterators: list[Iterator[int]] = []

    def begin(prompts: Any) -> list[int]:
        # requests begin one after the other: the first ones are ahead by as many tokens, and may not end earlier
        longest = task.new + task.batch + 1
        iterators[:] = [iter(generator.generate(p, max_new_tokens=longest, temperature=0)) for p in prompts]
        return [next(x) for x in iterators]

    return Contender(begin, lambda: [next(x) for x in iterators])


class StaticGPT:
    """The same network in PyTorch, with caches of a fixed size."""

    def __init__(self, torch: Any, task: Task, arrays: dict[str, Any], device: str) -> None:
        self.torch, self.task, self.device = torch, task, device
        self.dtype = torch.float32 if device == "cpu" else torch.bfloat16
        self.w = {name: torch.tensor(x).to(device, self.dtype) for name, x in arrays.items()}
        sizes = (task.batch, task.heads, task.context, task.width // task.heads)
        self.keys, self.values = (
            [torch.zeros(sizes, device=device, dtype=self.dtype) for _ in range(task.layers)] for _ in range(2)
        )
        self.places = torch.arange(task.context, device=device)
        if device != "cpu":
            # without this, compiled steps are no CUDA graphs: caches are inputs that they write
            for x in (*self.w.values(), *self.keys, *self.values, self.places):
                torch._dynamo.mark_static_address(x)

    def scores(self, tokens: Any, positions: Any, seen: Any) -> Any:
        """Scores of the token after the last one. `seen` is a number of keys, or a mask over all of them."""
        w, task, F = self.w, self.task, self.torch.nn.functional
        x = w["wte.weight"][tokens] + w["wpe.weight"][positions]
        batch, length, width = x.shape
        for n in range(task.layers):
            at = f"h.{n}."

            def linear(x: Any, name: str, at: str = at) -> Any:
                return F.linear(x, w[f"{at}{name}.weight"], w[f"{at}{name}.bias"])

            def norm(x: Any, name: str, at: str = at) -> Any:
                return F.layer_norm(x, (width,), w[f"{at}{name}.weight"], w[f"{at}{name}.bias"])

            parts = linear(norm(x, "ln_1"), "attn.c_attn").view(batch, length, 3, task.heads, -1).unbind(2)
            query, key, value = (y.transpose(1, 2) for y in parts)
            keys, values = self.keys[n].index_copy_(2, positions, key), self.values[n].index_copy_(2, positions, value)
            if isinstance(seen, int):
                keys, values, seen_mask = keys[:, :, :seen], values[:, :, :seen], None
            else:
                seen_mask = seen
            is_causal = length > 1 and seen_mask is None
            y = F.scaled_dot_product_attention(query, keys, values, attn_mask=seen_mask, is_causal=is_causal)
            x = x + linear(y.transpose(1, 2).reshape(batch, length, width), "attn.c_proj")
            x = x + linear(F.gelu(linear(norm(x, "ln_2"), "c_fc")), "c_proj")
        x = F.layer_norm(x[:, -1], (width,), w["ln_f.weight"], w["ln_f.bias"])
        return F.linear(x, w["wte.weight"])

    def contender(self, mode: str | None = None) -> Contender:
        """Eager decoding, or compiled in a mode."""
        torch = self.torch
        state: dict[str, Any] = {"tokens": None, "position": 0}

        def masked(tokens: Any, positions: Any) -> Any:
            return self.scores(tokens, positions, (self.places <= positions)[None, None, None]).argmax(-1)

        compiled = masked if mode is None else torch.compile(masked, mode=mode, fullgraph=True)

        def following(tokens: Any) -> list[int]:
            state["tokens"] = tokens.clone()
            found: list[int] = tokens.tolist()
            return found

        @torch.inference_mode()  # type: ignore[untyped-decorator, unused-ignore]
        def begin(prompts: Any) -> list[int]:
            tokens = torch.tensor(prompts, device=self.device)
            state["position"] = tokens.shape[1]
            return following(self.scores(tokens, self.places[: tokens.shape[1]], tokens.shape[1]).argmax(-1))

        @torch.inference_mode()  # type: ignore[untyped-decorator, unused-ignore]
        def step() -> list[int]:
            position = state["position"]
            positions, tokens = self.places[position : position + 1].clone(), state["tokens"][:, None]
            state["position"] = position + 1
            if mode is None:
                return following(self.scores(tokens, positions, position + 1).argmax(-1))
            return following(compiled(tokens, positions))

        return Contender(begin, step)


def contenders(task: Task, device: str, modes: dict[str, str | None]) -> dict[str, Contender]:
    arrays = weights(task)
    found = {"tilegrad": ours(task, arrays, device)}
    try:
        import torch
    except ModuleNotFoundError:
        return found
    torch.set_num_threads(tg.device("cpu").limits["threads"])
    for name, mode in modes.items():
        found[name] = StaticGPT(torch, task, arrays, device).contender(mode)
    return found


def agreement(tokens: dict[str, list[list[int]]]) -> dict[str, float]:
    """The share of requests whose tokens are those of PyTorch's eager run, for each contender."""
    if "torch" not in tokens:
        return {}
    rows = {name: list(zip(*steps, strict=True)) for name, steps in tokens.items()}
    wanted = rows["torch"]
    return {name: sum(x == y for x, y in zip(r, wanted, strict=True)) / len(wanted) for name, r in rows.items()}


def measured(task: Task, device: str, modes: dict[str, str | None], rounds: int) -> dict[str, Any]:
    """Compare the tokens, then time contenders in turn; give medians over rounds."""
    rng = np.random.default_rng(1)
    prompts = rng.integers(0, task.vocabulary, (task.batch, task.prompt)).tolist()
    made = contenders(task, device, modes)
    count = min(COMPARED, task.new)
    tokens = {name: [c.begin(prompts), *(c.step() for _ in range(count))] for name, c in made.items()}
    agrees = agreement(tokens)
    bound = 0.99 if device == "cpu" else 0.5  # roundings of bfloat16 part some texts
    if any(share < bound for share in agrees.values()):
        raise AssertionError(f"{task.label}: other tokens than PyTorch's: {agrees}")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
    for _ in range(rounds):
        for name, contender in made.items():
            times[name].append(_timed(task, contender, prompts))
    row: dict[str, Any] = {"task": task._asdict(), "same_tokens": agrees, "tokens_per_second": {}, "first_seconds": {}}
    for name, found in times.items():
        rates = sorted(task.batch * task.new / decoding for _, decoding in found)
        row["tokens_per_second"][name] = {
            "median": statistics.median(rates),
            "quartiles": [rates[len(rates) // 4], rates[-1 - len(rates) // 4]],
        }
        row["first_seconds"][name] = statistics.median(first for first, _ in found)
    row["ratios"] = {
        name: statistics.median(theirs[1] / ours[1] for theirs, ours in zip(found, times["tilegrad"], strict=True))
        for name, found in times.items()
        if name != "tilegrad"
    }
    return row


def _timed(task: Task, contender: Contender, prompts: Any) -> tuple[float, float]:
    """Seconds to the first tokens of all requests, and for the following ones."""
    start = time.perf_counter()
    contender.begin(prompts)
    begun = time.perf_counter()
    for _ in range(task.new):
        contender.step()
    return begun - start, time.perf_counter() - begun


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m bench.generation", description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="only tasks whose label contains this")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--uncompiled", action="store_true", help="leave torch.compile out")
    chosen = parser.parse_args(arguments)
    on_gpu = chosen.device != "cpu"
    modes: dict[str, str | None] = {"torch": None}
    if not chosen.uncompiled:
        modes["torch-compile"] = "reduce-overhead" if on_gpu else "default"
    date = datetime.date.today().isoformat()
    where = tg.cuda.get_device_name() if on_gpu else machine.describe()
    threads = tg.device("cpu").limits["threads"]
    result: dict[str, Any] = {"date": date, "machine": where, "device": chosen.device, "threads": threads, "rows": []}
    for task in tasks(on_gpu, chosen.quick):
        if chosen.only in task.label:
            row = measured(task, chosen.device, modes, 1 if chosen.quick else ROUNDS)
            result["rows"].append(row)
            rates = ", ".join(f"{name} {x['median']:,.0f}" for name, x in row["tokens_per_second"].items())
            ratios = ", ".join(f"{x:.2f} of {name}" for name, x in row["ratios"].items())
            print(f"{task.label}: tokens/s {rates}; {ratios}; same tokens {row['same_tokens']}", flush=True)
    if not chosen.quick:
        out = chosen.out or RESULTS / f"{'h200' if on_gpu else 'cpu'}-generation-{date}.json"
        out.write_text(json.dumps(result, indent=1) + "\n")
    return result


if __name__ == "__main__":
    main()
