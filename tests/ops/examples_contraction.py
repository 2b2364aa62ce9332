"""Examples of contractions, matmul and einsum."""

from __future__ import annotations

from tests.ops.registry import (
    example,
    floats,
    ints,
)
from tilegrad.ops import contraction
from tilegrad.ops.einsum import einsum

# --- contraction -------------------------------------------------------------------------------------

for x_shape, y_shape in (
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((2, 1, 2, 3), (3, 3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 2)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((1, 2, 3), (4, 3, 1)),
):
    example(contraction.Contract, contraction.matmul, floats(*x_shape), floats(*y_shape, seed=1), torch="matmul")
for equation, *shapes in (
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("...ij,...jk", (2, 1, 3, 4), (5, 4, 2)),
    ("bij,bjk->bki", (2, 3, 4), (2, 4, 3)),
    ("i,j->ij", (2,), (3,)),
    ("ij,kl->", (2, 3), (4, 2)),
    ("iij,jk->k", (2, 2, 3), (3, 4)),
    ("ij->ji", (2, 3)),
    ("a,a,a->a", (3,), (3,), (3,)),
    ("b...->...b", (2, 3, 4)),
    ("ij,j->ij", (2, 3), (1,)),
    ("ij,jk->ik", (2, 1), (3, 4)),
    ("i,i,jk->k", (3,), (3,), (2, 2)),
    ("bij,kj,bk->bi", (2, 3, 4), (2, 4), (2, 2)),
):
    example(
        None,
        lambda *xs, e=equation: einsum(e, *xs),
        *(floats(*s, seed=n) for n, s in enumerate(shapes)),
        torch=lambda t, *xs, e=equation: t.einsum(e, *xs),
        name=f"einsum {equation}",
    )
example(contraction.Contract, contraction.matmul, ints(3, 4), ints(4, 2), torch="matmul")
example(contraction.Contract, contraction.mm, floats(3, 4), floats(4, 2), torch="mm")
example(contraction.Contract, contraction.mv, floats(3, 4), floats(4), torch="mv")
example(contraction.Contract, contraction.dot, floats(4), floats(4, seed=1), torch="dot")
example(contraction.Contract, contraction.bmm, floats(2, 3, 4), floats(2, 4, 2), torch="bmm")
example(None, contraction.outer, floats(3), floats(4), torch="outer")
example(None, contraction.kron, floats(2, 3), floats(2, 1, 2), torch="kron")
example(contraction.Contract, contraction.inner, floats(2, 3), floats(4, 3), torch="inner")
example(
    contraction.Contract,
    lambda *a: contraction.baddbmm(*a, 0.5, 2.0),
    floats(3, 1),
    floats(3, 4),
    floats(4, 2),
    torch=lambda t, *a: t.addmm(*a, beta=0.5, alpha=2.0),
)
example(contraction.Contract, contraction.tensordot, floats(2, 3, 4), floats(3, 4, 2), torch="tensordot")
example(
    contraction.Contract,
    lambda x, y: contraction.tensordot(x, y, ((1, 0), (0, 2))),
    floats(2, 3, 4),
    floats(3, 4, 2),
    torch=lambda t, x, y: t.tensordot(x, y, ((1, 0), (0, 2))),
)
