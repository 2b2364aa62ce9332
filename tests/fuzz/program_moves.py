"""Lines of random programs. Each move gives an expression, or after "!" a whole statement. Its kind says what it does
to numbers: "exact" keeps them exact, "smooth" rounds, "kink" has no derivative at a point, and "jump" needs exact
numbers. A statement names the tensor that it writes to first.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.programs import Drawing, Unfit

Move = Callable[[Drawing], str]
MOVES: list[tuple[Move, str]] = []
IN_PLACE: list[tuple[Move, str]] = []
LOOKS: list[tuple[Move, str]] = []
"""Moves that read elements on the way, or make as many as there are true ones: not for `jit`."""
STEPS: list[tuple[Move, str]] = []
"""Moves that differentiate on the way: not for programs that are differentiated as a whole."""


def move(kind: str = "exact", times: int = 2, table: list[tuple[Move, str]] = MOVES) -> Callable[[Move], Move]:
    """Add a move to a table with a weight."""

    def register(function: Move) -> Move:
        table.extend([(function, kind)] * times)
        return function

    return register


def moves_for(mode: str) -> list[tuple[Move, str]]:
    """The moves that programs of a mode are drawn from."""
    from tests.fuzz import program_steps, program_views, program_writes  # their moves enter the tables

    assert program_views.move is program_writes.move is program_steps.move
    looks = {"plain": LOOKS, "threads": LOOKS, "looks": LOOKS * 3}.get(mode, [])
    if "gradient" in mode:
        return MOVES + IN_PLACE
    return MOVES + IN_PLACE * 2 + STEPS + looks


def simple(kind: str, times: int, expressions: str, takes: str = "any") -> None:
    """A move that draws one of several expressions of one tensor x."""
    options = [e.strip() for e in expressions.strip().splitlines()]

    @move(kind, times)
    def drawn(d: Drawing) -> str:
        return d.random.choice(options).replace("$", d.pick(kind=takes))


SMOOTH = """T.tanh($)
T.sigmoid($)
T.sin($)
$.cos()
T.exp(-$.abs())
T.exp($.tanh())
($ * $ + 0.5).log()
($ * $ + 0.25).sqrt()
1 / ($ * $ + 1)
T.rsqrt($ * $ + 1)
F.gelu($)
F.silu($)
T.erf($)
T.atan($)
T.log1p($ * $)
T.expm1($.tanh())
$ / 3
$ * 0.1
F.logsigmoid($)"""
simple("smooth", 8, SMOOTH, "float")
simple("exact", 8, "-$\n$ * 0.5\n$ + 1\n1 - $\n$ * $\n$ - 0.25\n$ / 2\n$ * 2 - 1\n2 * $ + $", "float")
simple(
    "exact", 4, "-$\n$ + 1\n$ * 2\n1 - $\n$ * $\n$ // 2\n$ % 3\n$ / 2\n$ & 3\n$ | 1\n$ ^ 2\n$ << 1\n$ >> 1\n~$", "int"
)
simple("exact", 2, "~$\n$ | True\n$ & $\n$ + 1\n$ * 2\n$.logical_not()\n1.5 * $\n$ ^ True", "bool")
simple(
    "kink",
    4,
    "$.abs()\nF.relu($)\n$.clamp(-1, 1)\n$.clamp(min=0)\nF.relu6($)\nF.leaky_relu($, 0.5)\n$.clamp(max=1.5)\n"
    "F.softplus($)",
    "number",
)
simple(
    "jump",
    3,
    "$.floor()\n$.round()\n$.sign()\n$ > 0\n$ == 0\n$ != 1\n$.trunc()\n$.ceil()\n$ <= 0.5\n$ % 2\n$ // 1",
    "number",
)
simple(
    "exact",
    6,
    """$.clone()
$.T if $.dim() == 2 else $
$.contiguous()
$.unsqueeze(0)
$.unsqueeze(-1)
$.squeeze()
$.reshape(-1)
$.flatten()
$[None]
$.detach()
$.reshape($.shape[0], -1) if $.dim() > 1 else $
$.mT if $.dim() > 1 else $
$.view_as($)
$.movedim(0, -1)
$.flip(0)
$.reshape(-1, 1)
$[..., None]""",
)
simple(
    "exact",
    2,
    """T.zeros_like($)
T.ones_like($)
T.full_like($, 2)
T.arange($.numel())
$.new_zeros($.shape)
T.full($.shape, 0.5)
T.eye($.shape[0])
T.arange($.shape[-1]) - 1
$.new_full($.shape, 3)
T.ones($.shape) * $""",
)
simple(
    "jump",
    3,
    """$.float()
$.to(T.float64)
$.bool()
$.long()
$.to(T.int32)
$.to(T.float16)
$.to(T.bfloat16)
$.to(T.uint8) if $.min() >= 0 else $
$.to(T.float32)
$.to(T.int8)""",
)
simple("smooth", 1, "$.to(T.float64)\n$.float()\n$.to(T.float64)", "float")
simple("exact", 4, "$.sum()\n$.sum() / 2\n$.sum() * $\n$ - $.sum()", "number")
simple("smooth", 4, "$.mean()\n$ / ($ * $).sum().add(1)\n$ - $.mean()\n$.var()\n$.std()\n$ * $.mean()", "float")
simple("kink", 2, "$.max()\n$.min()\n$ - $.max()\n$.amax()", "number")
simple(
    "jump", 2, "$.argmax()\n$.argmin()\n$.any()\n$.all()\n$.count_nonzero()\n$.nonzero().shape[0] * $.sum()", "number"
)
simple("exact", 1, "$ / max(1, $.shape[0])\n$ * $.numel()\n$ + $.dim()\n$.sum() * len($)", "number")


# --- two tensors --------------------------------------------------------------------------------


@move(times=14)
def combined(d: Drawing) -> str:
    x = d.pick(kind="number")
    y = d.partner(x)
    form = d.random.choice(("{} + {}", "{} * {}", "{} - {}", "T.add({}, {})", "{} * {} + 1", "T.mul({1}, {0})"))
    return form.format(x, y)


@move("smooth", 6)
def combined_smoothly(d: Drawing) -> str:
    x = d.pick(kind="float")
    y = d.partner(x, "float")
    form = d.random.choice(
        ("{} / ({} ** 2 + 1)", "T.atan2({}, {1} * {1} + 1)", "{} * T.exp(-{} ** 2)", "T.lerp({}, {}, 0.3)")
    )
    return form.format(x, y)


@move("kink", 5)
def extremes(d: Drawing) -> str:
    x = d.pick(kind="number")
    return f"T.{d.random.choice(('maximum', 'minimum'))}({x}, {d.partner(x, 'number')})"


@move("jump", 5)
def compared(d: Drawing) -> str:
    x = d.pick()
    y = d.partner(x) if d.random.random() < 0.7 else d.number()
    return f"{x} {d.random.choice(('>', '<', '==', '!=', '<=', '>='))} {y}"


@move(times=6)
def with_number(d: Drawing) -> str:
    x = d.pick(kind="number")
    n = d.number(whole=not d.is_float(x) and d.random.random() < 0.8)
    form = d.random.choice(("{x} * {n}", "{x} + {n}", "{n} - {x}", "{n} * {x}", "T.add({x}, {n})", "{x} * {n} + {n}"))
    return form.format(x=x, n=n)


@move("smooth", 1)
def divided_by_number(d: Drawing) -> str:
    return f"{d.pick(kind='number')} / {d.random.choice(('3', '7.0', '(1 + f * f)', '(G + 4)'))}"


@move(times=3)
def whole_division(d: Drawing) -> str:
    x = d.pick(kind="int")
    y = d.partner(x, "int")
    return f"{x} {d.random.choice(('//', '%', '&', '|', '^'))} ({y}.abs() + 1)"


@move(times=2)
def logic(d: Drawing) -> str:
    x = d.pick(kind="bool")
    return f"{x} {d.random.choice('&|^')} {d.partner(x, 'bool')}"


@move(times=6)
def chosen(d: Drawing) -> str:
    mask = d.pick(kind="bool")
    x = d.partner(mask)
    if d.random.random() < 0.3:
        return f"{x}.masked_fill({mask}, {d.number(not d.is_float(x))})"
    return f"T.where({mask}, {x}, {d.partner(x) if d.random.random() < 0.6 else d.number()})"


@move(times=3)
def by_flag(d: Drawing) -> str:
    if "flag" not in d.call.numbers:
        raise Unfit
    x = d.pick()
    y = d.pick(lambda y: y.shape == d.names[x].shape and y.dtype == d.names[x].dtype)
    return f"{x} if flag else {y}"


# --- along axes ---------------------------------------------------------------------------------


def along(d: Drawing, kind: str = "number") -> tuple[str, int]:
    x = d.pick(lambda x: x.dim() > 0, kind)
    return x, d.axis(x)


@move(times=10)
def summed(d: Drawing) -> str:
    x, n = along(d)
    keep = ", keepdim=True" if d.random.random() < 0.5 else ""
    return d.random.choice(
        (f"{x}.sum({n}{keep})", f"{x}.sum(dim={n}{keep})", f"{x}.cumsum({n})", f"T.sum({x}, {n}{keep}) * {x}")
    )


@move("smooth", 12)
def normalised(d: Drawing) -> str:
    x, n = along(d, "float")
    options = [
        "F.softmax($, @)",
        "F.log_softmax($, @)",
        "$.mean(@)",
        "$.mean(@, keepdim=True)",
        "$.logsumexp(@)",
        "$.var(@)",
        "$.std(@, keepdim=True)",
        "$ - $.mean(@, keepdim=True)",
        "$ / ($.abs().sum(@, keepdim=True) + 1)",
        "F.normalize($, dim=@)",
        "$.exp() / $.exp().sum(@, keepdim=True)",
        "T.cumprod($.tanh(), @)",
        "F.softmax($, @).cumsum(@)",
        "F.layer_norm($, $.shape[-1:])",
        "$.var(@, unbiased=False)",
        "$.prod(@)",
        "F.cosine_similarity($, $ + 1, dim=@)",
    ]
    if (
        not d.smooth
    ):  # a norm of zeros has no derivative; PyTorch's second one of logcumsumexp is wrong where the first is 0
        options += ["T.logcumsumexp($, @)", "$.norm(dim=@)"]
    return d.random.choice(options).replace("$", x).replace("@", str(n))


@move("kink", 6)
def extremes_along(d: Drawing) -> str:
    x, n = along(d)
    options = (
        "$.amax(@)",
        "$.amin(@, keepdim=True)",
        "$.max(@).values",
        "T.cummax($, @).values",
        "$ - $.amax(@, keepdim=True)",
    )
    return d.random.choice(options).replace("$", x).replace("@", str(n))


@move("jump", 6)
def places_along(d: Drawing) -> str:
    x, n = along(d)
    options = [
        "$.argmax(@)",
        "$.argmin(@, keepdim=True)",
        "T.sort($, dim=@, stable=True).values",
        "T.sort($, dim=@, stable=True).indices",
        "T.argsort($, dim=@, stable=True)",
        "$.any(@)",
        "$.all(@)",
        "$.count_nonzero(@)",
        "T.max($, @).indices",
    ]
    if not d.smooth:  # of equal elements another one may be taken
        options += ["$.topk(min(2, $.shape[@]), dim=@).values", "$.sort(dim=@, descending=True).values"]
    return d.random.choice(options).replace("$", x).replace("@", str(n))


@move(times=5)
def rearranged_along(d: Drawing) -> str:
    x, n = along(d, "any")
    options = (
        "$.flip(@)",
        "$.roll(1, @)",
        "T.diff($, dim=@)",
        "$.repeat_interleave(2, @)",
        "$.roll(-2, @)",
        "$.squeeze(@)",
        "$.unsqueeze(@)",
    )
    return d.random.choice(options).replace("$", x).replace("@", str(n))
