"""Call one operator in PyTorch and here, and say in which way the two differ."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilegrad as tg

from .drawing import Drawn, mapped

TOLERANCE = {"float64": 1e-7, "float32": 3e-4, "bfloat16": 4e-2, "float16": 8e-3}
Found = dict[str, Any]
NO_KERNEL = "PyTorch has no kernel for it"
"""The outcome of calls that only lack a kernel: neither agreement nor difference."""
GAPS = (
    "not implemented for", "Autograd not support dtype", "view size is not compatible", "could not infer output dtype",
    "can't be cast to the desired output type", "does not support bool dtypes on CPU",
)  # fmt: skip
"""PyTorch's messages for missing kernels: of element types, and of transposed tensors."""


@dataclass
class Call:
    """One call: of a function of a package, of a method, in place, or into a given tensor."""

    name: str
    form: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    first_only: bool = False
    """Whether of several results only the first is determined (ties)."""
    random: bool = False

    def __str__(self) -> str:
        said = [*map(_said, self.args), *(f"{name}={_said(x)}" for name, x in self.kwargs.items())]
        return f"{self.form} {self.name}({', '.join(said)})"


def _said(x: Any) -> str:
    if isinstance(x, (list, tuple)):
        return "[" + ", ".join(map(_said, x)) + "]"
    return str(x) if isinstance(x, Drawn) else repr(x)


def run(library: Any, call: Call) -> Found:
    """Run a call in a library: results and gradients that are not yet computed, or the error."""
    made: list[Any] = []

    def make(x: Any) -> Any:
        if not isinstance(x, Drawn):
            return getattr(library, x[1:]) if isinstance(x, str) and x.startswith(":") else x
        tensor = x.make(library)
        made.append(tensor)
        return tensor

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args, kwargs = mapped(call.args, make), mapped(call.kwargs, make)
            results = _called(library, call, args, kwargs)
    except Exception as error:
        return {"refused": error}
    leaves = [x for x in made if x.requires_grad]
    tensors = [x for x in results if isinstance(x, library.Tensor)]
    found: Found = {"results": results, "made": made}
    if call.random:
        return found
    _differentiate(library, found, leaves, [x for x in tensors if x.requires_grad])
    return found


def _called(library: Any, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    if call.form == "method":
        return flat(getattr(args[0], call.name)(*args[1:], **kwargs))
    if call.form == "in place":
        changed = args[0] * 1 if args[0].dtype is not library.bool else args[0] & True
        result = getattr(changed, call.name + "_")(*args[1:], **kwargs)
        return [changed, result is changed]
    package: Any = library
    for part in call.form.split(".")[1:]:
        package = getattr(package, part)
    if call.form.startswith("out"):
        wanted = getattr(library, call.name)(*args, **kwargs)
        several = isinstance(wanted, (tuple, list))
        into = [x.detach().clone() for x in (wanted if several else [wanted])]
        places = tuple(into) if several else into[0]
        given = getattr(library, call.name)(*(_untracked(args)), **_untracked(kwargs), out=places)
        same = given is None or [x is y for x, y in zip(given if several else [given], into, strict=True)]
        return [*into, same]
    return flat(getattr(package, call.name)(*args, **kwargs))


def _untracked(given: Any) -> Any:
    return mapped(given, lambda x: x.detach() if hasattr(x, "detach") else x)


def _differentiate(library: Any, found: Found, leaves: list[Any], results: list[Any]) -> None:
    """Adds the gradients of what can be differentiated, and of these gradients once more for float64."""
    found["tracked"] = [x.requires_grad for x in found["results"] if isinstance(x, library.Tensor)]
    if not leaves or not results:
        return
    try:
        first = library.autograd.grad(results, leaves, [_upstream(library, x) for x in results], allow_unused=True,
                                      create_graph=True)  # fmt: skip
    except Exception as error:
        found["no gradient"] = error
        return
    found["gradient"] = [library.zeros_like(x) if g is None else g for g, x in zip(first, leaves, strict=True)]
    again = [g for g in first if g is not None and g.requires_grad]
    nothing = [library.zeros_like(x) for x in leaves]
    if any(str(x.dtype).rpartition(".")[2] not in ("float64", "f64") for x in (*leaves, *results)) or not again:
        found["second"] = nothing
        return
    try:
        second = library.autograd.grad(again, leaves, [_upstream(library, g) for g in again], allow_unused=True)
    except Exception as error:
        found["no second gradient"] = error
        return
    found["second"] = [z if g is None else g for g, z in zip(second, nothing, strict=True)]


def _upstream(library: Any, x: Any) -> Any:
    """Numbers that differ from place to place, so that a gradient at a wrong place shows."""
    count = int(np.prod(tuple(x.shape), dtype=np.int64))
    numbers = [1 + (7 * n % 5) / 4 for n in range(count)]
    return library.tensor(numbers, dtype=x.dtype).reshape(tuple(x.shape))


def flat(x: Any) -> list[Any]:
    return [z for y in x for z in flat(y)] if isinstance(x, (tuple, list)) else [x]


def tensors_of(found: Found) -> list[Any]:
    """All tensors that are to be computed."""
    lists = [found.get(part, []) for part in ("results", "gradient", "second")]
    return [x for part in lists for x in part if isinstance(x, tg.Tensor)]


def _refused_by_one(ours: Found, theirs: Found) -> str:
    """The difference between two outcomes of which at least one is an error."""
    if "refused" not in theirs:
        return f"refused: {type(ours['refused']).__name__}: {str(ours['refused'])[:160]}"
    if "refused" in ours:
        return ""
    said = str(theirs["refused"])
    return NO_KERNEL if any(gap in said for gap in GAPS) else f"accepted: PyTorch says {said[:100]}"


def difference(call: Call, ours: Found, theirs: Found) -> str:
    """The difference between two outcomes; empty if they agree."""
    if "refused" in theirs or "refused" in ours:
        return _refused_by_one(ours, theirs)
    mine, other = ours["results"], theirs["results"]
    if call.first_only:
        mine, other = mine[:1], other[:1]
    if len(mine) != len(other):
        return f"results: {len(mine)}, not {len(other)}"
    for x, y in zip(mine, other, strict=True):
        said = _differ(x, y, 1, call.random)
        if said:
            return said
    if call.random:
        return ""
    if ours["tracked"] != theirs["tracked"]:
        return f"tracked: {ours['tracked']}, not {theirs['tracked']}"
    if "no gradient" in ours and "no gradient" not in theirs:
        return f"gradient refused: {str(ours['no gradient'])[:120]}"
    for part in ("gradient", "second"):
        for x, y in zip(ours.get(part, []), theirs.get(part, []), strict=False):
            said = _differ(x, y, 6, False)
            if said:
                return f"{part} {said}"
        if part == "gradient" and "no second gradient" in ours and "no second gradient" not in theirs:
            return f"second gradient refused: {str(ours['no second gradient'])[:120]}"
    return ""


def _differ(x: Any, y: Any, slack: int, random: bool) -> str:
    if not hasattr(y, "stride"):
        if hasattr(y, "is_floating_point"):
            return "" if repr(x).rpartition(".")[2] == repr(y).rpartition(".")[2] else f"value: {x!r}, not {y!r}"
        if isinstance(y, (bool, int, float)) and isinstance(x, (bool, int, float)):
            return (
                "" if type(x) is type(y) and (x == y or abs(x - y) <= 1e-3 * abs(y) or x != x) else f"value: {x}, {y}"
            )
        return ""
    if not isinstance(x, tg.Tensor):
        return f"type: {type(x).__name__}, not a tensor"
    if tuple(x.shape) != tuple(y.shape):
        return f"shape: {tuple(x.shape)}, not {tuple(y.shape)}"
    dtype = str(y.dtype).rpartition(".")[2]
    if x.dtype is not getattr(tg, dtype, None):
        return f"type of elements: {x.dtype.name}, not {dtype}"
    if not random and slack == 1 and y._is_view() and 0 not in y.shape and _steps(x) != _steps(y):
        return f"strides: {x.stride()}, not {y.stride()}"
    return "" if random else _values(_array(x), _array(y), dtype, slack)


def _steps(x: Any) -> list[int]:
    return [s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1]


def _array(x: Any) -> np.ndarray[Any, Any]:
    x = x.detach()
    if hasattr(x, "_is_zerotensor") and x._is_zerotensor():
        return np.zeros(tuple(x.shape))
    listed = (x.double() if "float" in str(x.dtype) or x.dtype.is_floating_point else x).tolist()
    return np.array(listed).reshape(tuple(x.shape))


def _values(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], dtype: str, slack: int) -> str:
    if dtype not in TOLERANCE:
        right = x == y
    else:
        tolerance = TOLERANCE[dtype] * slack
        with np.errstate(all="ignore"):
            scale = np.abs(y[np.isfinite(y)]).max(initial=1.0)
            right = np.isclose(x, y, rtol=tolerance, atol=tolerance * min(scale, 1e3), equal_nan=True)
    if right.all():
        return ""
    at = tuple(int(n) for n in np.argwhere(~right)[0])
    return f"values: {x[at]}, not {y[at]} ({int((~right).sum())} of {right.size})"
