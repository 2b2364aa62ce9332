"""Wrong calls of every public signature: a call that is right, with one argument replaced by nonsense."""

import inspect
import itertools
import random
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

NAN = float("nan")
TENSOR = "x(2, 3)"
NONSENSE = (
    "None", "'text'", "nan", "1.5", "-1", "-7", "0", "99", "10**400", "2**63", "-2**63", "2**40", "[]", "(None,)",
    "{}", "object()", "int", "True", "1j", "['a']", "[-1, -2, -3]", "[1.5]", "x()", "x(2, 3).bool()", "x(4, 5, 6)",
    "x(0)", "x(2, 3).long()", "x().long()", "'sum'", "T.float32", "len", "(2.0, -3.0)", "x(2).long() * 99 - 1",
)  # fmt: skip
"""Expressions over T (tilegrad or torch) and x (a tensor of a shape)."""
USUAL = {
    "dim": "0", "dims": "(0, 1)", "dim0": "0", "dim1": "1", "dim2": "1", "axis": "0", "axis0": "0", "axis1": "1",
    "index": "x(2, 3).long() * 0", "indices": "x(2).long()", "size": "(2, 3)", "shape": "(2, 3)", "sizes": "(2, 3)",
    "start": "0", "end": "2", "step": "1", "steps": "3", "length": "1", "n": "2", "m": "2", "k": "1", "q": "0.5",
    "shifts": "1", "repeats": "2", "chunks": "2", "bins": "3", "min": "0.5", "max": "2.0", "p": "0.5", "value": "0.5",
    "kernel_size": "2", "output_size": "2", "padding": "0", "normalized_shape": "(3,)", "num_groups": "1",
    "num_classes": "9", "fill_value": "1.5", "window_length": "4", "num_samples": "2", "correction": "1",
    "tensors": "[x(2, 3), x(2, 3)]", "split_size_or_sections": "1", "indices_or_sections": "1", "pad": "(1, 1)",
    "mask": "x(2, 3) > 1", "condition": "x(2, 3) > 1", "in_features": "3", "out_features": "3", "input_size": "3",
    "hidden_size": "3", "in_channels": "2", "out_channels": "2", "num_features": "3", "num_embeddings": "9",
    "embedding_dim": "3", "embed_dim": "4", "num_heads": "2", "d_model": "4", "nhead": "2", "lr": "0.1",
    "params": "[x(3).requires_grad_()]", "low": "0", "high": "5", "upscale_factor": "1", "downscale_factor": "1",
    "scale_factor": "2", "threshold": "0.5", "destination": "0", "source": "x(2, 3)", "exponent": "2", "data": "[1, 2]",
    "equation": "'ij,ij->i'", "reduce": "'sum'", "decimals": "1", "diagonal": "0", "offset": "0", "other": TENSOR,
    "rounding_mode": "'floor'", "dtype": "T.float32", "r": "2", "groups": "1", "split_sizes": "[1, 1]", "row": "2",
    "col": "2", "maxnorm": "1.0", "min_val": "-1.0", "max_val": "1.0", "dimension": "0", "start_dim": "0",
    "end_dim": "1", "type1": "T.int32", "type2": "T.int64", "from_": "T.float32", "to": "T.float64",
    "alpha": "1", "eps": "1e-5", "margin": "1.0", "weight_decay": "0.1", "momentum": "0.1", "stride": "1",
    "betas": "(0.9, 0.99)", "keepdim": "True", "dilation": "1", "num_layers": "1",
    "num_parameters": "1", "reduction": "'sum'", "label_smoothing": "0.1",
    "compute_mode": "'donot_use_mm_for_euclid_dist'",
    "optimizer": "T.optim.SGD([x(3).requires_grad_()], lr=0.1)", "lr_lambda": "lambda n: 0.9", "milestones": "[1, 2]",
    "gamma": "0.5", "step_size": "2", "T_max": "3", "T_0": "2", "base_lr": "0.1", "max_lr": "0.5", "total_iters": "3",
    "total_steps": "5", "swa_lr": "0.1", "factor": "0.5", "patience": "1", "power": "2.0", "T_mult": "1",
    "schedulers": "[T.optim.lr_scheduler.StepLR(T.optim.SGD([x(3).requires_grad_()], lr=0.1), 2)]",
    "dataset": "[1, 2, 3]", "datasets": "[[1, 2], [3]]", "data_source": "[1, 2, 3]", "lengths": "[1, 2]",
    "weights": "[0.5, 0.5]", "batch_size": "2", "drop_last": "False", "batch": "[1, 2]", "sampler": "[0, 1, 2]",
    "num_workers": "0", "shuffle": "False", "parameters": "[x(3).requires_grad_()]", "max_norm": "1.0",
    "clip_value": "1.0", "vec": "x(3)", "val": "1.0", "mean": "0.5", "std": "1.0", "gain": "1.0", "sparsity": "0.5",
    "nonlinearity": "'relu'", "obj": "1", "f": "'file'", "total_norm": "x()",
}  # fmt: skip
"""Usual arguments by the name of the parameter; a tensor otherwise."""
SEVERAL = {"repeats": "1", "data": "1", "size": "2", "sizes": "(2, 3)", "shape": "(2, 3)", "dims": "(0, 1)"}
"""Usual arguments of `*name`."""
OTHERS = (
    "x(3)", "x(3, 3)", "x(2, 3).long()", "x(3).long()", "x(1, 3, 3)", "x(1, 2, 4, 4)", "x(1, 2, 4, 4, 4)",
    "x(3).bool()", "x()", "x(1, 2, 3, 4)", "x(2, 4, 4)",
)  # fmt: skip
LEFT_OUT = frozenset(
    "DType Device dtype device manual_seed seed set_default_dtype set_rng_state Generator Any wrap "
    "from_numpy from_dlpack enable_grad no_grad inference_mode apply_ map_ register_hook op write set_grad_enabled "
    "register_post_accumulate_grad_hook backward cuda share_memory_ Extreme Sorted StdMean VarMean Size as_subclass "
    "cdiv next_power_of_2 shown floats_of handle set_ retain_grad "
    "Module RNNBase RNNCellBase ModuleList ModuleDict ParameterList ParameterDict Optimizer Parameter Buffer "
    "UninitializedParameter UninitializedBuffer FunctionType LRScheduler WorkerInfo MNIST Digits Dataset "
    "IterableDataset Sampler DistributedSampler get_worker_info read_idx skip_init".split()
)
"""Not calculations: types, states of the process, and what is not meant for users."""


def used_by_nothing(made: Any, library: Any) -> Any:
    """The result of a function: there is nothing to do with it."""
    return made


def iterated(made: Any, library: Any) -> Any:
    """The first items of a data set, a sampler or a loader."""
    return list(itertools.islice(made, 2))


def stepped(made: Any, library: Any) -> Any:
    """One step of a schedule."""
    return made.step() if type(made).__name__ != "ReduceLROnPlateau" else made.step(1.0)


@dataclass(frozen=True)
class Space:
    """A package whose public names are called."""

    path: str
    """The path of the package; PyTorch's path stands after a slash if it differs."""
    use: Callable[[Any, Any], Any] = used_by_nothing
    """Uses the result of a call; modules are called with a tensor."""
    kinds: tuple[type, ...] = (object,)
    """The kinds of names that are called: functions, classes, or both."""
    more: tuple[str, ...] = ()
    """Names that are loaded late, so that `dir` does not list them."""

    def get(self, library: Any) -> Any:
        ours, _, theirs = self.path.partition("/")
        found = library
        for part in ((theirs or ours) if library.__name__ == "torch" else ours).split("."):
            found = getattr(found, part) if part else found
        return found


CLASSES, FUNCTIONS = (type,), (FunctionType,)
SPACES = {
    "T": Space("", kinds=FUNCTIONS, more=("save", "load", "vmap")),
    "F": Space("nn.functional", kinds=FUNCTIONS),
    "linalg": Space("linalg", kinds=FUNCTIONS),
    "Tensor": Space("Tensor", kinds=FUNCTIONS),
    "nn": Space("nn", kinds=CLASSES),
    "optim": Space("optim", kinds=CLASSES),
    "init": Space("nn.init", kinds=FUNCTIONS),
    "utils": Space("nn.utils", kinds=FUNCTIONS),
    "scheduler": Space("optim.lr_scheduler", use=stepped, kinds=CLASSES),
    "data": Space("data/utils.data", use=iterated),
}


@dataclass(frozen=True)
class Target:
    """A public function, or a class with what is done with its objects."""

    name: str
    usual: dict[str, str]
    """Each parameter that can be given by name, with an expression that is right."""
    first: tuple[str, ...] = ()
    """Arguments given by position: those of functions that have no default, and *sizes."""

    @property
    def space(self) -> str:
        return self.name.partition(".")[0]

    def find(self, library: Any) -> Callable[..., Any]:
        return getattr(SPACES[self.space].get(library), self.name.partition(".")[2])  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Call:
    target: Target
    places: tuple[str, ...]
    names: dict[str, str]
    input: str = TENSOR
    """The argument of a module that is called."""

    def __str__(self) -> str:
        given = [*self.places, *(f"{k}={v}" for k, v in self.names.items())]
        return f"{self.target.name}({', '.join(given)})"

    def __call__(self, library: Any) -> Any:
        def x(*shape: int) -> Any:
            count = 1
            for n in shape:
                count *= n
            return library.arange(count).float().reshape(shape)

        scope = {"T": library, "x": x, "nan": NAN}
        places = [eval(e, scope) for e in self.places]
        names = {k: eval(e, scope) for k, e in self.names.items()}
        made = self.target.find(library)(*places, **names)
        if self.target.space == "nn":
            needed = [p for p in inspect.signature(made.forward).parameters.values() if p.default is p.empty]
            made = made(*[eval(self.input, scope) for p in needed if p.kind is p.POSITIONAL_OR_KEYWORD])
        return computed(SPACES[self.target.space].use(made, library))


def computed(made: Any) -> Any:
    """Computes a tensor, or those in a tuple, if it is small; nothing large is ever allocated."""
    for part in made if isinstance(made, (tuple, list)) else (made,):
        if hasattr(part, "tolist") and hasattr(part, "numel") and part.numel() < 10_000:
            part.detach().tolist()
    return made


def targets(library: Any) -> Iterator[Target]:
    """Every public function, method, module, optimizer, schedule and sampler that has a signature."""
    for name, space in SPACES.items():
        for own in sorted({*dir(space.get(library)), *space.more}):
            fn = getattr(space.get(library), own)
            if own[0] != "_" and own not in LEFT_OUT and callable(fn) and _ours(fn, space):
                yield target(name, own, fn)


def _ours(fn: Any, space: Space) -> bool:
    if not getattr(fn, "__module__", "").startswith("tilegrad") or fn.__module__.startswith("tilegrad.errors"):
        return False
    return isinstance(fn, space.kinds) or (space.kinds is FUNCTIONS and not isinstance(fn, type))


def target(space: str, name: str, fn: Callable[..., Any]) -> Target:
    parameters = list(inspect.signature(fn).parameters.values())
    first = (TENSOR,) if space == "Tensor" else ()
    usual: dict[str, str] = {}
    for p in parameters[1 if space == "Tensor" else 0 :]:
        if p.kind is p.VAR_POSITIONAL:
            first += (SEVERAL.get(p.name, TENSOR),)
        elif (
            p.kind is p.POSITIONAL_ONLY
            or p.name == "self"
            or (p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and not isinstance(fn, type))
        ):
            first += (USUAL.get(p.name, TENSOR),)
        elif p.kind is not p.VAR_KEYWORD and (p.default is p.empty or p.name in USUAL):
            usual[p.name] = USUAL.get(p.name, TENSOR)
        elif p.kind is not p.VAR_KEYWORD:
            usual[p.name] = ""
    return Target(f"{space}.{name}", usual, first)


def right(target: Target, library: Any) -> Call:
    """A call that is right, with what has no default: tensors of several shapes and dtypes are tried."""
    fn = target.find(library)
    needed = {p.name for p in inspect.signature(fn).parameters.values() if p.default is p.empty}
    first = Call(target, target.first, {k: e for k, e in target.usual.items() if k in needed and e})
    for tensor in (TENSOR, *OTHERS):
        names = {k: tensor if e == TENSOR else e for k, e in first.names.items()}
        call = Call(target, tuple(tensor if e == TENSOR else e for e in first.places), names, input=tensor)
        if outcome(call, library) is None:
            return call
    return first


def wrong(target: Target, rng: random.Random, count: int) -> Iterator[Call]:
    """Calls with one argument replaced, and now and then two."""
    base = right(target, sys.modules["tilegrad"])
    keys = [*range(1 if target.name.startswith("Tensor.") else 0, len(base.places)), *target.usual]
    for _ in range(count if keys else 0):
        places, names = list(base.places), dict(base.names)
        for key in rng.sample(keys, 2 if len(keys) > 1 and rng.random() < 0.15 else 1):
            nonsense = rng.choice(NONSENSE)
            if isinstance(key, int):
                places[key] = nonsense
            else:
                names[key] = nonsense
        yield Call(target, tuple(places), names, base.input)


def outcome(call: Call, library: Any) -> BaseException | None:
    """Make a call and return what it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call(library)
        except Exception as error:
            return error
    return None


INTERNAL = (
    AttributeError, KeyError, AssertionError, RecursionError, StopIteration, ZeroDivisionError, NameError,
    UnicodeError, NotImplementedError, SystemError, BufferError,
)  # fmt: skip
BUILTIN = (TypeError, ValueError, IndexError, OverflowError)
INNER = tuple(f"tilegrad/{room}/" for room in ("ir", "ops", "transform", "schedule", "backend", "runtime", "lazy"))


def fault(error: BaseException | None) -> str:
    """Name the defect of a wrong call's error; empty if it is ours, or Python's on the arguments."""
    from tilegrad.errors import TilegradError

    if error is None:
        return ""
    if isinstance(error, TilegradError):
        return "" if error.location else "no line of the user's"
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return f"{type(error).__name__}: {error}"
    where = Path(frames[-1].filename).as_posix()
    place = where[where.rfind("tilegrad/") :] if "/tilegrad/" in where else where
    if type(error) is TypeError and _of_binding(str(error)):
        return ""
    if isinstance(error, BUILTIN) and not place.startswith(INNER) and ("tests/" in where or _stated(frames[-1])):
        return ""
    return f"{type(error).__name__}: {str(error)[:90]} ({place}:{frames[-1].lineno})"


def _of_binding(message: str) -> bool:
    """Whether Python says that the arguments do not fit the signature."""
    return "() missing " in message or "() got " in message or "() takes " in message


def _stated(frame: traceback.FrameSummary) -> bool:
    return (frame.line or "").lstrip().startswith("raise ")
