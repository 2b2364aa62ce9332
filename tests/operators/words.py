"""Draw the arguments of operators, each word of a recipe in its way: what comes later fits what was drawn before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .drawing import DTYPES, Drawn, Scene


def of_rank(least: int, most: int, **how: Any) -> Callable[[Scene], Any]:
    def draw(s: Scene) -> Drawn:
        s.shape = s.draw_shape(least, most)
        return s.tensor(s.shape, **how)

    return draw


def matrix(s: Scene) -> Drawn:
    s.shape = s.draw_shape(2, 2)
    return s.tensor(s.shape)


def like(*extents: Any) -> Callable[[Scene], Drawn]:
    """A tensor whose extents are those of the first argument ("0", "-1") or drawn ones, kept by a name."""

    def draw(s: Scene) -> Drawn:
        shape = []
        for e in extents:
            if isinstance(e, int):
                shape.append(s.shape[e] if -len(s.shape) <= e < len(s.shape) else 1)
            else:
                shape.append(s.known.setdefault(e, s.rng.choice((1, 2, 3, 3))))
        if s.one_in(30):
            shape = [n + 1 for n in shape]
        return s.tensor(tuple(shape))

    return draw


def image(rank: int) -> Callable[[Scene], Drawn]:
    def draw(s: Scene) -> Drawn:
        long = (3, 4, 5, 6) if rank < 3 else (2, 3)
        space = tuple(s.rng.choice(long) for _ in range(rank)) if s.one_in(2) else (s.rng.choice(long),) * rank
        batch = () if s.one_in(5) else (s.rng.choice((1, 2, 2, 0 if s.one_in(6) else 2)),)
        s.known["channels"] = s.rng.choice((2, 4))
        s.shape = (*batch, s.known["channels"], *space)
        return s.tensor(s.shape)

    return draw


def filters(rank: int, turned: bool) -> Callable[[Scene], Drawn]:
    def draw(s: Scene) -> Drawn:
        channels, out = s.known["channels"], s.known.setdefault("out", s.rng.choice((1, 2, 3)))
        window = (s.rng.choice((1, 2, 3)),) * rank if s.one_in(2) else tuple(s.rng.choice((1, 2)) for _ in range(rank))
        return s.tensor((channels, out, *window) if turned else (out, channels, *window))

    return draw


def second(s: Scene) -> Any:
    """Draw a second operand: one that broadcasts, of the same type or another, one without axes, or a number."""
    match s.rng.randrange(6):
        case 0:
            return s.number()
        case 1:
            return s.tensor((), s.rng.choice(DTYPES))
        case 2:
            return s.tensor(s.broadcast(s.shape), s.rng.choice(DTYPES))
    return s.tensor(s.broadcast(s.shape))


def index(s: Scene) -> Drawn:
    axis = s.dim % max(len(s.shape), 1) if s.shape else 0
    shape = tuple(max(n - s.rng.randrange(2), 0) for n in s.shape)
    s.known["index"] = shape
    return s.index(shape, s.shape[axis] if s.shape else 1)


def extent(s: Scene) -> int:
    return s.shape[s.dim % len(s.shape)] if s.shape else 1


def list_index(s: Scene) -> Drawn:
    s.known["count"] = s.rng.choice((0, 1, 2, 3))
    return s.index((s.known["count"],), extent(s))


def unique_index(s: Scene) -> Drawn:
    s.known["count"] = count = min(s.rng.choice((1, 2)), extent(s))
    return Drawn(s.rng.sample(range(extent(s)), count), (count,), "int64")


def slices(s: Scene) -> Drawn:
    axis = s.dim % len(s.shape) if s.shape else 0
    return s.tensor(tuple(s.known["count"] if n == axis else e for n, e in enumerate(s.shape)))


def kept_dim(s: Scene) -> int:
    s.dim = s.axis()
    if not -max(len(s.shape), 1) <= s.dim < max(len(s.shape), 1):
        wrong, s.dim = s.dim, 0
        return wrong
    return s.dim


def sizes(s: Scene) -> Any:
    e = extent(s)
    return s.rng.choice(([e], [1, e], [-1, 1], [e - 1, 1], [e, 1], [2, -1]))


def shape_of_same_count(s: Scene) -> Any:
    count = 1
    for n in s.shape:
        count *= n
    found = s.rng.choice(((count,), (-1,), (1, count), (count, 1), tuple(reversed(s.shape)), (2, -1)))
    return found


def wide(s: Scene) -> Any:
    found = tuple(s.rng.choice((2, 3)) if n == 1 else s.rng.choice((n, n, -1)) for n in s.shape)
    return (s.rng.choice((1, 2)), *found) if s.one_in(2) else found


def several(s: Scene, alike: bool) -> list[Any]:
    shape = s.draw_shape(0 if alike else 1, 3)
    s.shape = shape
    s.dim = s.rng.randrange(max(len(shape), 1))
    found = []
    for _ in range(s.rng.randint(1, 3)):
        dtype = s.dtype if not s.one_in(4) else s.rng.choice(DTYPES)
        other = shape if alike else tuple(s.rng.choice((1, 2, 3)) if n == 0 else e for n, e in enumerate(shape))
        found.append(s.tensor(other, dtype))
    return found


def classes(s: Scene) -> Drawn:
    return s.index(s.shape[:1], s.shape[1] if len(s.shape) > 1 else 1)


def vector(s: Scene) -> Drawn:
    s.shape = s.draw_shape(1, 1)
    return s.tensor(s.shape)


def edges(s: Scene) -> Drawn:
    numbers: list[float] = sorted(s.rng.randint(-8, 8) / (4 if s.is_float else 1) for _ in range(4))
    return Drawn([max(n, 0) for n in numbers] if s.dtype == "uint8" else numbers, (4,), s.dtype)


def flat_index(s: Scene) -> Drawn:
    count = 1
    for n in s.shape:
        count *= n
    s.known["places"] = shape = s.draw_shape(0, 2, empty=False)
    return s.index(shape, count)


def free_index(s: Scene) -> Drawn:
    s.shape = s.draw_shape(0, 2)
    return s.index(s.shape, 4)


def summand(rank: int, *extents: Any) -> Callable[[Scene], Drawn]:
    """Draw a tensor to which a product is added; its first factor has the scene's shape."""

    def draw(s: Scene) -> Drawn:
        s.shape = s.draw_shape(rank, rank)
        wanted = like(*extents)(s)
        wanted.shape = s.broadcast(wanted.shape) if s.one_in(3) else wanted.shape
        wanted.layout = "dense"
        return wanted

    return draw


def statistic(s: Scene) -> Drawn:
    """A running mean or variance, which nobody differentiates."""
    made = s.tensor((s.known["channels"],), positive=True)
    made.tracked, made.layout = False, "dense"
    return made


def square(s: Scene) -> Drawn:
    n = s.rng.choice((1, 2, 3))
    s.shape = (*s.draw_shape(0, 1), n, n)
    return s.tensor(s.shape)


def three(s: Scene) -> Drawn:
    s.shape = (*s.draw_shape(0, 2), 3)
    return s.tensor(s.shape)


def filled(s: Scene, dtype: str = "", shape: tuple[int, ...] | None = None, **how: Any) -> Drawn:
    return s.tensor(s.shape if shape is None else shape, dtype, **how)


WORDS: dict[str, Callable[[Scene], Any]] = {
    "X": of_rank(0, 4), "P1": of_rank(1, 2, positive=True),
    "[index1]": lambda s: (index(s),), "X1": of_rank(1, 3), "X2": of_rank(2, 3), "F": of_rank(0, 3), "V": vector,
    "P": of_rank(0, 3, positive=True), "U": of_rank(0, 3, positive=True), "V(positive)": of_rank(1, 1, positive=True),
    "D": of_rank(0, 3, distinct=True), "D1": of_rank(1, 3, distinct=True),
    "E": lambda s: s.rng.choice((0, 1, 2, 3, 0.5, -1, filled(s, positive=True))),
    "Y": second, "Z": lambda s: s.tensor(s.broadcast(s.shape), s.rng.choice((s.dtype, s.dtype, *DTYPES[:4:3]))),
    "C": lambda s: s.tensor(s.broadcast(s.shape)), "same": filled, "X_": filled,
    "S_": lambda s: s.tensor(s.known["index"]),
    "S1": lambda s: s.tensor(s.known["places"]), "same_u": lambda s: filled(s, positive=True),
    "same_p": lambda s: filled(s, positive=True), "big": lambda s: s.tensor((40,)),
    "weight": lambda s: s.rng.choice((0.3, 2.0, filled(s))), "num": lambda s: s.number(), "flag": lambda s: s.one_in(2),
    "small": lambda s: s.rng.choice((0, 1, -1)), "k": lambda s: s.rng.choice((0, 1, 2, 3)), "dim": kept_dim,
    "dims": lambda s: s.axes(), "dtype": lambda s: ":" + s.rng.choice(DTYPES),
    "floats": lambda s: ":" + s.rng.choice(DTYPES[:4]), "mask": lambda s: s.tensor(s.broadcast(s.shape), "bool"),
    "index": index, "index1": index, "flatindex": flat_index, "flatindex1": flat_index, "flatindex0": free_index,
    "list_index": list_index, "unique_index": unique_index, "slices": slices, "sizes": sizes,
    "shape": shape_of_same_count, "wide": wide, "narrow": lambda s: tuple(1 if s.one_in(2) else n for n in s.shape),
    "perm": lambda s: tuple(s.rng.sample(range(len(s.shape)), len(s.shape))),
    "axes": lambda s: tuple(s.rng.sample(range(len(s.shape)), s.rng.randint(0, len(s.shape)))),
    "repeats": lambda s: tuple(s.rng.choice((0, 1, 2, 2)) for _ in s.shape) or (2,),
    "list": lambda s: several(s, False), "alike": lambda s: several(s, True), "size": lambda s: s.draw_shape(0, 3),
    "vectors": lambda s: [vector(s) for _ in range(s.rng.randint(1, 3))], "edges": edges,
    "A": matrix, "AB": like(1, "n"), "Av": like(1), "Ai": like("m", -1), "Asame": like(0, 1), "Abits": like(0, 1),
    "A(out)": summand(2, 0, "n"), "Av(out)": summand(2, 0), "B(out)": summand(3, 0, 1, "n"),
    "Bsum(out)": summand(3, 1, "n"), "order": lambda s: s.rng.choice((0, 1, 2)),
    "B": of_rank(3, 3), "Bm": like(0, 2, "n"), "Bcd": like(0, "n", 2), "Bsame": like(0, 1, 2),
    "V3": like(0), "V4": like(1), "V2": like(0), "S": square,
    "X3": three, "Z3": filled, "classes": classes,
    "signs": lambda s: Drawn([1.0, -1.0], s.shape[:1], s.dtype),
    "row": lambda s: s.tensor(s.shape[1:]), "diagonal": lambda s: s.tensor((*s.shape[2:], min(s.shape[:2]))),
    "reduction": lambda s: s.rng.choice(("none", "mean", "sum")),
    "weight1": lambda s: s.tensor((s.rng.choice((1, s.shape[1])),)),
    "weight2": like("out", -1), "bias2": like("out"), "weight3": like("out", 1, 1), "table": lambda s: s.tensor((4, 3)),
    "last": lambda s: s.shape[len(s.shape) - s.rng.randint(1, len(s.shape)) :], "mean_c": statistic,
    "var_c": statistic, "bias_o": like("out"),
    "pads": lambda s: tuple(s.rng.choice((0, 1, 2, -1)) for _ in range(2 * s.rng.randint(1, len(s.shape)))),
    "pad1": lambda s: (s.rng.choice((0, 1, 2)), s.rng.choice((0, 1, 3))), "win": lambda s: s.rng.choice((1, 2, 3)),
    "I1": image(1), "I2": image(2), "I3": image(3), "filter1": filters(1, False), "filter2": filters(2, False),
    "filter3": filters(3, False), "turned1": filters(1, True), "turned2": filters(2, True), "turned3": filters(3, True),
    "bags": lambda s: s.index((s.rng.randint(1, 3), s.rng.randint(1, 3)), 4),
    "labels": lambda s: s.index(s.shape, s.shape[-1]),
    "columns": lambda s: s.tensor((2, 4 * s.rng.randint(1, 2), 9)),
    "rows_out": lambda s: s.index(s.shape[:1], s.known["out"]),
    "grid": lambda s: s.tensor((s.shape[0], 2, 3, 2)), "theta": lambda s: s.tensor((1, 2, 3)),
}  # fmt: skip
