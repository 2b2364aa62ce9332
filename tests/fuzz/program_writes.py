"""Moves of random programs: what writes in place, and what looks on the way. See `program_moves`."""

from __future__ import annotations

from tests.fuzz.program_moves import IN_PLACE, LOOKS, move
from tests.fuzz.program_views import places
from tests.fuzz.programs import Drawing, Unfit

# --- in place -----------------------------------------------------------------------------------


def target(d: Drawing) -> tuple[str, str]:
    """Draw a tensor to write to, with an expression for it or for a view of it."""
    x = d.pick()
    if d.random.random() < 0.4:
        return x, x
    views = [
        "$[0]",
        "$[-1]",
        "$[::2]",
        "$[:, 0]",
        "$[..., 1:]",
        "$.T",
        "$.transpose(-2, -1)",
        "$.diagonal()",
        "$.reshape(-1)",
        "$[1:, :1]",
    ]
    views += [
        "$.view(-1)",
        "$.detach()",
        "$.data",
        "$.data[0]",
        "$.narrow(0, 0, 1)",
        "$.unsqueeze(0)",
        "$.flatten()[::3]",
    ]
    # With gradients PyTorch does not see such writes: it takes what they changed for what it saved, or forgets to track
    # views.
    hidden = (".data", ".detach()") if d.smooth else ()
    views = [v for v in views if not any(name in v for name in hidden)]
    return x, d.random.choice(views).replace("$", x)


def source(d: Drawing, of: str) -> str:
    """Draw the source of a write, in memory of its own."""
    shape = d.torch.zeros(0)
    try:
        shape = eval(of, d.space)
    except (RuntimeError, IndexError, TypeError, ValueError, AttributeError) as e:
        raise Unfit from e
    y = d.pick(
        lambda y: (
            all(a == b or b == 1 for a, b in zip(reversed(shape.shape), reversed(y.shape))) and y.dim() <= shape.dim()
        )
    )
    written = d.names[of.partition("[")[0].partition(".")[0]]  # what an index by a list shows is a copy
    shared = d.names[y].untyped_storage()._cdata == written.untyped_storage()._cdata
    return f"{y}.clone()" if shared else y


@move(times=12, table=IN_PLACE)
def updated(d: Drawing) -> str:
    x, at = target(d)
    y = source(d, at) if d.random.random() < 0.6 else d.number(not d.is_float(x))
    options = [f"!{at}.add_({y})", f"!{at}.mul_({y})", f"!{at}.sub_({y})"]
    if d.random.random() < 0.3:
        options = [f"!{at}.fill_({d.number(not d.is_float(x))})", f"!{at}.zero_()", f"!{at}.neg_()"]
    return d.random.choice(options)


@move(times=5, table=IN_PLACE)
def augmented(d: Drawing) -> str:
    x = d.pick()
    y = source(d, x) if d.random.random() < 0.6 else d.number(not d.is_float(x))
    return f"!{x} {d.random.choice(('+=', '*=', '-='))} {y}"


@move(times=4, table=IN_PLACE)
def copied(d: Drawing) -> str:
    _, at = target(d)
    return f"!{at}.copy_({source(d, at)})"


PLACES = (
    "0",
    "-1",
    "...",
    "::2",
    "1:",
    ":, 0",
    "..., 0",
    ":, ::2",
    "0, 0",
    "..., -1",
    "None",
    ":1, 1:",
    "[0, -1]",
    ":-1",
)


@move(times=12, table=IN_PLACE)
def assigned(d: Drawing) -> str:
    x = d.pick()
    at = f"{x}[{d.random.choice(PLACES)}]"
    y = source(d, at) if d.random.random() < 0.6 else d.number(not d.is_float(x))
    return f"!{at} {d.random.choice(('=', '=', '=', '+=', '*='))} {y}"


@move(times=6, table=IN_PLACE)
def assigned_by_tensor(d: Drawing) -> str:
    x = d.pick(lambda x: x.dim() > 0 and x.numel() > 0)  # of no elements PyTorch takes any index
    n = d.number(not d.is_float(x))
    if d.random.random() < 0.5:
        mask = d.pick(lambda m: m.shape == d.names[x].shape[: m.dim()] and m.dim() > 0, "bool")
        return d.random.choice((f"!{x}[{mask}] = {n}", f"!{x}[~{mask}] = {n}", f"!{x}.masked_fill_({mask}, {n})"))
    at = places(d, d.shape(x)[0])
    return d.random.choice(
        (f"!{x}[{at}] = {n}", f"!{x}[..., {at}[:1]] = {n}", f"!{x}.index_fill_(0, {at} % {d.shape(x)[0]}, {n})")
    )


@move("kink", 2, table=IN_PLACE)
def bent(d: Drawing) -> str:
    _, at = target(d)
    return f"!{at}.{d.random.choice(('clamp_(-1, 1)', 'relu_()', 'abs_()', 'clamp_(min=0)'))}"


@move("smooth", 2, table=IN_PLACE)
def smoothed(d: Drawing) -> str:
    _, at = target(d)
    return f"!{at}.{d.random.choice(('tanh_()', 'mul_(0.3)', 'sigmoid_()', 'sin_()', 'div_(3)'))}"


# --- looks --------------------------------------------------------------------------------------


@move("smooth", 6, table=LOOKS)
def seen(d: Drawing) -> str:
    x = d.pick()
    d.used.clear()
    return d.random.choice((f"!seen.append({x}.tolist())", f"!seen.append({x}.sum().item())"))


@move("jump", 2, table=LOOKS)
def decided(d: Drawing) -> str:
    x = d.pick(kind="number")
    y = d.pick(lambda y: y.shape == d.names[x].shape)
    return d.random.choice(
        (f"{x} if bool(({x} > 0).any()) else {y}", f"{x} * {y}.sum().item()", f"{x} + float({y}.max())")
    )


@move(times=3, table=LOOKS)
def selected(d: Drawing) -> str:
    mask = d.pick(lambda m: m.dim() > 0, "bool")
    x = d.pick(lambda x: x.shape[: d.names[mask].dim()] == d.names[mask].shape)
    return d.random.choice(
        (f"{x}[{mask}]", f"{mask}.nonzero()", f"{x}[~{mask}].sum()", f"T.masked_select({x}, {mask})")
    )


@move("jump", 1, table=LOOKS)
def unique(d: Drawing) -> str:
    return f"T.unique({d.pick(kind='number')})"
