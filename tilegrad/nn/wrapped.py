"""Make modules from the signatures of functions: their constructor takes all parameters but the inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from inspect import Parameter, signature
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..functions.signatures import add_method, subclass
from .functional.losses import reduction_of
from .module import Module

M = TypeVar("M", bound=Module)
OUT_OF_USE = ("size_average", "reduce")
"""Older words of PyTorch for `reduction`: constructors take them, and do not keep them."""


class FunctionModule(Module):
    """A module that calls a function with its settings, which its printed form shows.

    `function` is called. Its leading parameters that are tensors, or those named in `inputs`, are the inputs of
    `forward`; the others, but for those in `without`, are the parameters of the constructor, of the same names and
    defaults, those in `last` after the others. Tensors among them become buffers.

    >>> from tilegrad.nn import functional
    >>> class Mish(FunctionModule, function=functional.mish): ...
    >>> Mish(inplace=True)
    Mish(inplace=True)
    """

    settings: ClassVar[dict[str, Parameter]] = {}
    shown: ClassVar[Collection[str] | None] = None
    """Settings in the printed form; None: all, but `inplace` only where it is true."""
    unnamed: ClassVar[Collection[str]] = ()
    """Settings that are printed without their names."""

    if TYPE_CHECKING:

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __init_subclass__(
        cls,
        function: Callable[..., Any] | None = None,
        inputs: Sequence[str] | None = None,
        without: Collection[str] = (),
        last: Collection[str] = (),
        keyword_only: bool = False,
    ) -> None:
        if function is None:
            return
        parameters, result = signature(function).parameters, signature(function).return_annotation
        if inputs is None:
            inputs = [p.name for p in takewhile(lambda p: p.annotation == "Tensor", parameters.values())]
        kept = [name for name in parameters if name not in (*inputs, *without, "training")]
        cls.settings = {name: parameters[name] for name in sorted(kept, key=lambda name: name in last)}
        given = [parameters[name] for name in inputs]
        passed = [p.name if p.default is Parameter.empty else f"{p.name}={p.name}" for p in given]
        passed += [f"{name}=self.{name}" for name in cls.settings if name not in OUT_OF_USE]
        passed += ["training=self.training"] if "training" in parameters else []
        kind = Parameter.KEYWORD_ONLY if keyword_only else Parameter.POSITIONAL_OR_KEYWORD
        stored = f"self._set({', '.join(f'{name}={name}' for name in cls.settings)})"
        called = f"function({', '.join(passed)})"
        if "__init__" not in cls.__dict__:
            taken = [p.replace(kind=kind) for p in cls.settings.values()]
            add_method(cls, "__init__", taken, stored, "None")
        if "forward" not in cls.__dict__:
            add_method(cls, "forward", given, called, result, function=function)

    def _set(self, **settings: Any) -> None:
        Module.__init__(self)
        if "size_average" in settings:
            size_average, reduce = settings.pop("size_average"), settings.pop("reduce")
            settings["reduction"] = reduction_of(size_average, reduce, settings["reduction"])
        for name, value in settings.items():
            if type(self).settings[name].annotation == "Tensor | None":
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def extra_repr(self) -> str:
        """Return the settings that are shown."""
        if self.shown is None:
            names = [name for name in self.settings if name != "inplace" or self.inplace]
        else:
            names = [name for name in self.settings if name in self.shown]
        shown = ((name, getattr(self, name)) for name in names)
        return ", ".join(f"{value}" if name in self.unnamed else f"{name}={value!r}" for name, value in shown)


class Loss(FunctionModule):
    """A loss that is a function with a reduction."""

    shown = ()


def layer(
    name: str, function: Callable[..., Any], base: type[FunctionModule] = FunctionModule, **facts: Any
) -> type[FunctionModule]:
    """Return the class of modules that call a function; its docstring is that of the function, without the example.

    `facts` are arguments of `FunctionModule.__init_subclass__`, and attributes of the class.

    >>> from tilegrad.nn import functional
    >>> layer("Softshrink", functional.softshrink, unnamed=("lambd",))(0.25)
    Softshrink(0.25)
    """
    form = {key: facts.pop(key) for key in ("inputs", "without", "last", "keyword_only") if key in facts}
    doc = (function.__doc__ or "").partition(">>>")[0].rstrip()
    module = sys._getframe(1).f_globals["__name__"]
    return subclass(name, base, {"__module__": module, "__doc__": doc, **facts}, function=function, **form)


def layers_of_ranks(name: str, base: type[M], doc: str, facts: Callable[[int], dict[str, Any]]) -> list[type[M]]:
    """Return the subclasses of a layer for one, two and three spatial axes, with the attributes `facts(rank)`.

    The docstring is filled in as that of functions, see `for_ranks`.

    >>> [made.__doc__ for made in layers_of_ranks("Norm", Module, "Normalise (N, C, {axes}).", lambda rank: {})]
    ['Normalise (N, C, L).', 'Normalise (N, C, H, W).', 'Normalise (N, C, D, H, W).']
    """
    from .functional.geometry import AXES, doc_of_rank  # layers without axes do not need it

    own = {"__module__": sys._getframe(1).f_globals["__name__"]}
    return [
        subclass(f"{name}{rank}d", base, {**own, "__doc__": doc_of_rank(doc, rank, rank == 1), **facts(rank)})
        for rank in AXES
    ]
