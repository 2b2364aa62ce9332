"""The example of a system for inference: files, launch queues, launches by the host, engines."""

import random
from pathlib import Path

import numpy as np
import pytest

import tilegrad as tg
from examples.alexnet.__main__ import main
from examples.alexnet.launch_queue import breadth_first_queue, launch_queue
from examples.alexnet.network import alexnet


def is_topological(queue: list[str], inputs: dict[str, list[str]]) -> bool:
    place = {name: n for n, name in enumerate(queue)}
    return all(place[x] < place[name] for name in queue for x in inputs.get(name, ()))


def test_the_launch_queue_is_in_order_where_a_breadth_first_walk_is_not() -> None:
    inputs = {"output": ["a", "c"], "c": ["b"], "b": ["a"]}
    assert is_topological(launch_queue(inputs, ["output"]), inputs)
    assert not is_topological(breadth_first_queue(inputs, ["output"]), inputs)


def test_random_networks_of_many_outputs() -> None:
    wrong = 0
    for seed in range(1000):
        draw = random.Random(seed)
        names = [f"layer{n}" for n in range(draw.randint(1, 20))]
        inputs = {name: draw.sample(names[:n], min(n, draw.randint(0, 3))) for n, name in enumerate(names)}
        outputs = draw.sample(names, draw.randint(1, min(3, len(names))))
        queue = launch_queue(inputs, outputs)
        assert len(queue) == len(set(queue))
        assert set(outputs) <= set(queue)
        assert is_topological(queue, inputs)
        assert set(queue) == set(breadth_first_queue(inputs, outputs))
        wrong += not is_topological(breadth_first_queue(inputs, outputs), inputs)
    assert wrong > 100


def test_a_cycle_is_named() -> None:
    with pytest.raises(ValueError, match="b, c, b"):
        launch_queue({"a": ["b"], "b": ["c"], "c": ["b"]}, ["a"])


def test_alexnet_has_the_shapes_of_the_paper(tmp_path: Path) -> None:
    assert sum(int(np.prod(shape)) for shape in alexnet().weights.values()) == 46_764_746
    (tmp_path / "net.txt").write_text(alexnet((2,) * 7, 67).text)
    program = tg.load_program(tmp_path / "net.txt")
    assert str(program) == str(tg.load_program(tmp_path / "net.txt"))
    assert program(tg.ones(3, 1, 67, 67)).shape == (3, 10)


def test_the_program_compares_all_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--file", str(tmp_path / "net.txt"), "--side", "67", "--narrow", "16", "--seconds", "0.2", "--batch", "2"]
    engine = main(words)
    said = capsys.readouterr().out
    assert engine.max_batch == 2
    assert float(said.split("launches by the host: ")[1].split()[0]) < 1e-4
    assert all(f"| {mode} |" in said for mode in ("sequential", "double", "threads", "pipeline"))
