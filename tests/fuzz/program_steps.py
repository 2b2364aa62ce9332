"""Moves of random programs: steps of training, loops and pairs of Python's, results in given tensors, and layers. See
`program_moves`.
"""

from __future__ import annotations

from tests.fuzz.program_moves import IN_PLACE, STEPS, along, move
from tests.fuzz.program_views import places
from tests.fuzz.program_writes import source, target
from tests.fuzz.programs import Drawing, Unfit

# --- steps of training ------------------------------------------------------------------------------


LOSSES = (
    "(({p} * {x}).tanh() ** 2).sum()",
    "F.mse_loss({p}.sin(), {x})",
    "({p} - {x}).exp().mean()",
    "F.softmax({p} * {x}, -1).pow(2).sum()",
    "({p} @ {p}.mT + {x}.sum()).sigmoid().sum()",
    "F.layer_norm({p} + {x}, {p}.shape[-1:]).cos().sum()",
    "{p}.cumsum(0).mul({x}).tanh().sum()",
    "T.cat([{p}, {x}]).sigmoid().prod()",
)
OPTIMIZERS = (
    "SGD([{p}], lr=0.125)",
    "SGD([{p}], lr=0.1, momentum=0.5)",
    "SGD([{p}], lr=0.1, momentum=0.5, nesterov=True, weight_decay=0.25)",
    "AdamW([{p}], lr=0.05, eps=0.25)",
    "Adam([{p}], lr=0.05, amsgrad=True, eps=0.25)",
    "RMSprop([{p}], lr=0.05, eps=0.25)",
    "Adagrad([{p}], lr=0.05, eps=0.25)",
)
"""Optimizers that divide by the size of gradients need a large eps, or they turn rounding errors into whole steps."""


def parameter(d: Drawing) -> tuple[str, str, str]:
    """The statement that makes a parameter, its name, and another tensor of its shape and type."""
    x = d.pick(lambda x: x.dim() > 0 and x.numel() > 0 and str(x.dtype) in ("torch.float32", "torch.float64"), "float")
    y = d.pick(lambda y: y.shape == d.names[x].shape and y.dtype == d.names[x].dtype)
    p = f"w{len(d.done)}"
    made = d.random.choice(("{}.detach().clone()", "{}.data * 0.5", "T.nn.Parameter({}.detach().clone())")).format(x)
    return f"{p} = {made}; {p}.requires_grad_()", p, f"{y}.detach()"


@move("smooth", 5, table=STEPS)
def differentiated(d: Drawing) -> str:
    made, p, x = parameter(d)
    loss = d.random.choice(LOSSES).format(p=p, x=x)
    twice = f"; ({loss}).backward()" if d.random.random() < 0.3 else ""
    last = d.random.choice((f"v{len(d.done)} = {p}.grad", f"v{len(d.done)} = {p}.grad + {p}", f"seen.append({p}.ndim)"))
    return f"!{made}; ({loss}).backward(){twice}; {last}"


@move("smooth", 5, table=STEPS)
def trained(d: Drawing) -> str:
    made, p, x = parameter(d)
    loss, o = d.random.choice(LOSSES).format(p=p, x=x), f"o{len(d.done)}"
    step = f"{o}.zero_grad(); ({loss}).backward(); {o}.step()"
    made += f"; {o} = T.optim.{d.random.choice(OPTIMIZERS).format(p=p)}"
    return f"!{made}; " + "; ".join([step] * d.random.choice((1, 2, 3)))


@move("smooth", 3, table=STEPS)
def gradient_of(d: Drawing) -> str:
    made, p, x = parameter(d)
    return f"!{made}; v{len(d.done)}, = T.autograd.grad({d.random.choice(LOSSES).format(p=p, x=x)}, {p})"


# --- Python between operations ----------------------------------------------------------------------


@move(times=8)
def in_a_loop(d: Drawing) -> str:
    x = d.pick(lambda x: x.dim() > 0 and 0 < x.shape[0] <= 8, "number")
    n = d.number(not d.is_float(x))
    return d.random.choice(
        (
            f"T.stack([r * {n} for r in {x}])",
            f"sum({x})",
            f"T.cat([r.reshape(-1) for r in {x}.split(2)])",
            f"T.stack([{x}[n] * n for n in range({x}.shape[0])], -1)",
            f"T.stack([*{x}.unbind(0)][::-1])",
        )
    )


@move(times=5)
def pairs(d: Drawing) -> str:
    x, n = along(d, "any")
    v, w = f"v{len(d.done)}", f"w{len(d.done)}"
    d.pick(lambda y: y is d.names[x])
    return d.random.choice(
        (
            f"!{v}, {w} = {x}.split({x}.shape[{n}] // 2 or 1, {n})",
            f"!{v}, {w} = {x}.chunk(2, {n})",
            f"!{v} = {w} = {x}.clone(); {w} += 1",
            f"!{v}, {w} = {x}.unbind({n})",
            f"!{v} = {x}.clone(); {w} = {v}.transpose({n}, 0); {w} *= {w}",
            f"!{v}, {w} = T.broadcast_tensors({x}, {x}.select({n}, 0).unsqueeze({n}))",
        )
    )


@move("jump", 4)
def extremes_with_places(d: Drawing) -> str:
    x, n = along(d)
    v, w = f"v{len(d.done)}", f"w{len(d.done)}"
    options = [f"!{v}, {w} = {x}.max({n})", f"!{v}, {w} = {x}.min({n}, keepdim=True)", f"!{v}, {w} = {x}.cummax({n})"]
    if not d.smooth:
        options.append(f"!{v}, {w} = T.sort({x}, dim={n}, stable=True)")
    if d.mode in ("plain", "looks", "threads"):  # as many as there are different ones
        options.append(f"!{v}, {w} = T.unique({x}, return_counts=True)")
    return d.random.choice(options)


@move("smooth", 3)
def moments(d: Drawing) -> str:
    x, n = along(d, "float")
    v, w = f"v{len(d.done)}", f"w{len(d.done)}"
    return d.random.choice((f"!{v}, {w} = T.var_mean({x}, {n}, unbiased=False)", f"!{v}, {w} = T.std_mean({x}, {n})"))


# --- more places to write to ------------------------------------------------------------------------


@move(times=6, table=IN_PLACE)
def through_views_of_views(d: Drawing) -> str:
    x, at = target(d)
    if at == x or "flatten" in at or "reshape" in at:
        raise Unfit
    at += d.random.choice(("[..., ::2]", ".unsqueeze(-1)", "[-1:]", ".transpose(0, -1)", "[None]", ".squeeze()"))
    y = source(d, at) if d.random.random() < 0.5 else d.number(not d.is_float(x))
    return f"!{at}.{d.random.choice(('add_', 'mul_', 'copy_' if y[0] in 'vwxS' else 'sub_'))}({y})"


@move(times=5, table=IN_PLACE)
def into_given(d: Drawing) -> str:
    if d.smooth:
        raise Unfit
    x = d.pick(kind="number")
    memory = d.names[x].untyped_storage()._cdata  # PyTorch reads what it has written where it does not see an overlap
    out = d.pick(
        lambda o: (
            o.shape == d.names[x].shape
            and o.dtype == d.names[x].dtype
            and (o is d.names[x] or o.untyped_storage()._cdata != memory)
        )
    )
    d.used.insert(0, out)
    n = d.number(not d.is_float(x))
    options = (f"T.add({x}, {n}, out={out})", f"T.mul({x}, {x}, out={out})", f"T.maximum({x}, {x} * 2, out={out})")
    return "!" + d.random.choice(options)


@move(times=6, table=IN_PLACE)
def scattered_in_place(d: Drawing) -> str:
    x = d.pick(lambda x: x.dim() > 0 and x.shape[0] > 0)
    y = d.pick(lambda y: y.dtype == d.names[x].dtype and y is not d.names[x])
    at = places(d, d.shape(x)[0])
    extent = d.shape(x)[0]
    options = [
        f"!{x}.index_put_(({at},), {x}[{at}].clone() * 2, accumulate=True)",
        f"!{x}.index_add_(0, {at} % {extent}, {x}[{at}].clone())",
        f"!{x}[T.arange({x}.numel()).reshape({x}.shape) % 3 == 0] = {d.number(not d.is_float(x))}",
        f"!{x}.masked_scatter_(T.arange({x}.numel()).reshape({x}.shape) % 2 == 0, {x}.flip(0).contiguous())",
        f"!{x}[1:].copy_({x}[:-1].clone())",
        f"!{x}[{d.random.randrange(extent)}] = {y}[0].clone()",
        f"!{x}.scatter_(0, T.zeros_like({x}, dtype=T.int64), {x}.clone())",
        f"!{x}[..., None][0] = {y}.sum()",
    ]
    return d.random.choice(options)


@move(times=3, table=IN_PLACE)
def untracked(d: Drawing) -> str:
    x, at = target(d)
    if d.smooth and d.names[x].is_leaf and d.names[x].requires_grad:
        return f"!with T.no_grad(): {at}.add_({d.number()})"
    return f"!with T.no_grad(): {at}.mul_({d.number(not d.is_float(x))})"


# --- layers -----------------------------------------------------------------------------------------


@move("smooth", 8)
def layers(d: Drawing) -> str:
    x = d.pick(lambda x: 2 <= x.dim() <= 4 and min(x.shape) > 0, "float")
    c = d.shape(x)[1]
    images = "[None, None]" if len(d.shape(x)) == 2 else "[None]" if len(d.shape(x)) == 3 else ""
    options = [
        f"F.batch_norm({x}, None, None, training=True)",
        f"F.instance_norm({x}[:, :, None])",
        f"F.group_norm({x}, {d.random.choice([g for g in (1, 2, 3, 4, c) if c % g == 0])})",
        f"F.layer_norm({x}, {x}.shape[1:])",
        f"F.interpolate({x}{images}, scale_factor=2)",
        f"F.interpolate({x}{images}, size=(3, 5), mode='bilinear', align_corners={d.random.random() < 0.5})",
        f"F.adaptive_avg_pool2d({x}{images}, (2, 3))",
        f"F.pad({x}{images}, (1, 1, 1, 0), mode='{d.random.choice(('replicate', 'reflect', 'circular'))}')",
        f"F.conv2d({x}{images}, {x}{images}[:, :, :2, :2].transpose(0, 1).mean(1, keepdim=True).expand(-1, "
        f"({x}{images}).shape[1], -1, -1), padding=1)",
        f"F.embedding(T.arange(3) % {d.shape(x)[0]}, {x})",
        f"F.bilinear({x}, {x}, {x}[:1, :, None] * {x}[:1, None])",
        f"F.huber_loss({x}, {x}.flip(0), delta=0.7)",
        f"F.cross_entropy({x}, F.softmax({x}.flip(0), 1))",
        f"F.glu(T.cat([{x}, {x}], -1))",
        f"T.cdist({x} + 1, {x}.flip(0) * 2 - 7)",
    ]
    return d.random.choice(options)
