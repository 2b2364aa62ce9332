"""Train a small GPT on Shakespeare and let it continue several texts at a time: `python -m examples.generation`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import tilegrad as tg

from . import shakespeare
from .training import command, rate, run

PROMPTS = ("ROMEO:\n", "First Citizen:\nBefore we", "O, ")


def parser() -> argparse.ArgumentParser:
    """The options of training, and those of generation."""
    made = shakespeare.parser()
    made.prog, made.description = "python -m examples.generation", __doc__
    made.add_argument("--prompts", nargs="+", default=PROMPTS, help="texts to continue")
    made.add_argument("--temperature", type=float, default=0.8)
    made.add_argument("--top-k", type=int)
    made.add_argument("--top-p", type=rate, default=0.95)
    made.set_defaults(epochs=2, letters=100)
    return made


def main(arguments: Sequence[str] | None = None) -> list[str]:
    """Train, print the first answer letter by letter and then the others, and return all."""
    chosen = parser().parse_args(arguments)
    if chosen.model != "gpt":
        raise tg.errors.ArgumentError("only --model gpt keeps keys and values of earlier letters")
    training, text, epochs = shakespeare.prepared(chosen)
    run(training, chosen, epochs, shakespeare.evaluation(training, text, chosen))
    return continued(training.model.eval(), text, chosen)


def continued(model: Any, text: shakespeare.Text, chosen: argparse.Namespace) -> list[str]:
    """Continue all texts together; each has a seed of its own, so that its answer does not depend on the others."""
    tokenizer = tg.generation.CharacterTokenizer(text.letters)
    settings = {"temperature": chosen.temperature, "top_k": chosen.top_k, "top_p": chosen.top_p}
    with tg.generation.TextGenerator(model, max_batch=len(chosen.prompts), tokenizer=tokenizer) as generator:
        answers = [
            generator.generate(
                prompt, seed=chosen.seed + n, timeout=600, **settings, **_length(generator, prompt, chosen)
            )
            for n, prompt in enumerate(chosen.prompts)
        ]
        for prompt, answer in zip(chosen.prompts, answers, strict=True):
            sys.stdout.write(f"--- {prompt}")
            for piece in answer.pieces():
                sys.stdout.write(piece)
                sys.stdout.flush()
            sys.stdout.write("\n")
        return [answer.text() for answer in answers]


def _length(generator: Any, prompt: str, chosen: argparse.Namespace) -> dict[str, int]:
    """The number of letters, as far as the context of the network allows."""
    return {"max_new_tokens": max(1, min(chosen.letters, generator.max_length - len(prompt)))}


if __name__ == "__main__":
    command(main)
