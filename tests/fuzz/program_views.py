"""Moves of random programs: views, indices, joining, products and windows. See `program_moves`."""

from __future__ import annotations

from tests.fuzz.program_moves import along, move
from tests.fuzz.programs import Drawing, Unfit

# --- views --------------------------------------------------------------------------------------


@move(times=14)
def viewed(d: Drawing) -> str:
    x, n = along(d, "any")
    rank, extent = len(d.shape(x)), d.shape(x)[n]
    other, r = d.axis(x), d.random
    a = r.randrange(extent + 1)
    options = [
        f"{x}.transpose({n}, {other})",
        f"{x}.swapaxes({n}, {other})",
        f"{x}.permute({', '.join(map(str, r.sample(range(rank), rank)))})",
        f"{x}.narrow({n}, {a}, {r.randint(0, extent - a)})",
        f"{x}[{a}:]",
        f"{x}[:, ::2]",
        f"{x}[::2]",
        f"{x}[..., {r.choice(('1:', ':-1', '::3', '0', '-1', '1::2'))}]",
        f"{x}[{r.choice(('0', '-1', '1', ':1', '1:-1'))}]",
        f"{x}.select({n}, 0)",
        f"{x}.diagonal()",
        f"T.diag({x})",
        f"{x}.unfold({n}, 2, {r.choice((1, 2))})",
        f"{x}.chunk(2, {n})[{r.choice((0, -1))}]",
        f"{x}.split(1, {n})[0]",
        f"{x}.unbind({n})[-1]",
        f"{x}.unflatten({n}, (-1, 2))",
        f"{x}.expand(2, {', '.join(['-1'] * rank)})",
        f"{x}.reshape({', '.join(map(str, reversed(d.shape(x))))})",
        f"{x}.view(-1, {extent})",
        f"{x}.unsqueeze({n}).expand({', '.join(map(str, (*d.shape(x)[: n % rank], 3, *d.shape(x)[n % rank :])))})",
        f"{x}.tril()",
        f"{x}.triu(1)",
        f"{x}.reshape(2, -1)",
        f"{x}[0:0]",
    ]
    return r.choice(options)


@move(times=4)
def expanded(d: Drawing) -> str:
    x = d.pick()
    return f"{x}.expand_as({d.partner(x)})"


# --- indices ------------------------------------------------------------------------------------


def places(d: Drawing, extent: int) -> str:
    """Whole numbers that are places in an axis, in one tensor."""
    if not extent:
        raise Unfit
    if d.random.random() < 0.6:
        listed = [d.random.randrange(-extent, extent) for _ in range(d.random.choice((extent, 2, 3, 1)))]
        return f"T.tensor({listed})"
    return f"({d.pick(lambda x: x.dim() == 1, 'int')}.long() % {extent})"


@move(times=7)
def indexed(d: Drawing) -> str:
    x, n = along(d, "any")
    extent = d.shape(x)[n]
    r = d.random
    options = (
        lambda: f"{x}[{places(d, d.shape(x)[0])}]",
        lambda: f"{x}[:, {places(d, d.shape(x)[1])}]",
        lambda: f"{x}[..., {places(d, d.shape(x)[-1])}]",
        lambda: f"{x}[{places(d, d.shape(x)[0])}, 0]",
        lambda: f"{x}[[0, -1]]",
        lambda: f"{x}.index_select({n}, {places(d, extent)}.remainder({extent}))",
        lambda: f"{x}[{places(d, d.shape(x)[0])}, {places(d, d.shape(x)[1])}]",
        lambda: f"{x}[{places(d, d.shape(x)[0])}[:, None], {places(d, d.shape(x)[1])}]",
    )
    return r.choice(options)() if len(d.shape(x)) > 1 else r.choice((options[0], options[4], options[5]))()


@move(times=4)
def gathered(d: Drawing) -> str:
    x, n = along(d, "any")
    extent, rank = d.shape(x)[n], len(d.shape(x))
    y = d.pick(lambda y: y.dim() == rank, "int")
    if not extent:
        raise Unfit
    index = f"({y}.long() % {x}.shape[{n}])"
    options = (f"{x}.gather({n}, {index})", f"T.take_along_dim({x}, {index}, {n})", f"{x}.gather({n}, {index}) + 1")
    return d.random.choice(options)


@move(times=4)
def scattered(d: Drawing) -> str:
    x, n = along(d)
    extent, rank = d.shape(x)[n], len(d.shape(x))
    if not extent:
        raise Unfit
    y = d.pick(lambda y: y.dim() == rank and y.dtype == d.names[x].dtype)
    place = f"T.arange({y}.numel()).reshape({y}.shape) % {extent}"
    lines = f"{places(d, extent)}.remainder({extent})"
    options = (
        f"{x}.scatter_add({n}, {place}, {y})",
        f"{x}.index_add({n}, {lines}, {x}.index_select({n}, {lines}))" if "v" not in lines else f"{x} + 0",
        f"{x}.index_fill({n}, {lines}, 2)",
        f"{x}.scatter({n}, T.zeros({y}.shape, dtype=T.int64).narrow({n}, 0, 1), 2)",
    )
    return d.random.choice(options)


# --- joining, products, windows -----------------------------------------------------------------


@move(times=5)
def joined(d: Drawing) -> str:
    x, n = along(d, "any")
    y = d.pick(lambda y: y.dim() == len(d.shape(x)))
    options = (
        f"T.cat([{x}, {y}], {n})",
        f"T.cat([{x}, {y}, {x}], {n})",
        f"T.stack([{x}, {y}], {n})",
        f"T.stack([{x}, {x}], -1)",
        f"F.pad({x}, (1, 0))",
        f"F.pad({x}, (0, 1, 1, 0))",
        f"{x}.repeat(2, {', '.join(['1'] * (len(d.shape(x)) - 1))})".replace(", )", ")"),
        f"T.hstack([{x}, {y}])",
        f"T.tile({x}, (2,))",
        # PyTorch's kron does not see that what it saved is changed in place: its gradient is then wrong
        f"T.kron({x}, {y})" if not d.smooth else f"T.cat([{x}, {x}], {n})",
    )
    return d.random.choice(options)


@move(times=10)
def multiplied(d: Drawing) -> str:
    x = d.pick(lambda x: x.dim() > 0, "number")
    y = d.pick(lambda y: y.dim() > 0 and y.dtype == d.names[x].dtype)
    options = (
        f"{x} @ {y}",
        f"{x} @ {x}.transpose(-2, -1)",
        f"{x}.transpose(-2, -1) @ {y}",
        f"{x} @ {x}",
        f"T.outer({x}, {y})",
        f"T.einsum('ij,jk->ki', {x}, {y})",
        f"T.einsum('ij,ij->i', {x}, {y})",
        f"T.einsum('ij,kj->ik', {x}, {y})",
        f"T.einsum('ii->i', {x}).clone()",
        f"F.linear({x}, {y})",
        f"T.matmul({x}, {y}).sum(-1)",
        f"T.dot({x}, {y})",
        f"T.addmm({x}, {y}, {x})",
        f"T.tensordot({x}, {y}, 1)",
        f"{x}.trace()" if not d.smooth else f"{x} @ {y} + 1",  # PyTorch's gradient of what is no square is wrong
        f"T.bmm({x}, {y})",
    )
    return d.random.choice(options)


@move("smooth", 3)
def attended(d: Drawing) -> str:
    x = d.pick(lambda x: x.dim() >= 2, "float")
    y = d.pick(lambda y: y.shape == d.names[x].shape and y.dtype == d.names[x].dtype)
    options = (
        f"F.scaled_dot_product_attention({x}, {y}, {x})",
        f"F.mse_loss({x}, {y})",
        f"F.softmax({x} @ {y}.mT, -1) @ {x}",
        f"F.cross_entropy({x}, {y}.detach().argmax(1))" if not d.smooth else f"F.mse_loss({x}, {y} + 3)",
        f"F.linear({x}, {y}.tanh(), {y}[0])",
    )
    return d.random.choice(options)


@move(times=4)
def convolved(d: Drawing) -> str:
    x = d.pick(lambda x: x.dim() in (2, 3) and min(x.shape) > 0, "float")
    y = d.pick(lambda y: y.dim() == 2 and y.dtype == d.names[x].dtype and min(y.shape) > 0, "float")
    options = (
        f"F.conv1d({x}[None], {y}[None].expand(2, {x}.shape[-2], {y}.shape[1])[..., :3], padding=1)",
        f"F.conv2d({x}[None, None], {y}[None, None])[0, 0]",
        f"F.conv2d({x}[None, None], {y}[None, None], stride=2, padding=1)",
        f"F.conv1d({x}[:, None], {y}[:1, None, :2])",
        f"F.conv_transpose1d({x}[:, None], {y}[:1, None, :2], stride=2)",
    )
    return d.random.choice(options)


@move("kink", 3)
def pooled(d: Drawing) -> str:
    x = d.pick(lambda x: x.dim() in (2, 3), "float")
    return d.random.choice((f"F.max_pool1d({x}, 2)", f"F.max_pool1d({x}, 3, 1, 1)", f"F.max_pool2d({x}[None], 2, 1)"))


@move("smooth", 2)
def averaged(d: Drawing) -> str:
    x = d.pick(lambda x: x.dim() in (2, 3), "float")
    return d.random.choice((f"F.avg_pool1d({x}, 2)", f"F.avg_pool1d({x}, 3, 1, 1)", f"F.avg_pool2d({x}[None], 2, 1)"))
