"""Define `Optimizer`: groups of parameters, their state, and the step that updates them all."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from ..autograd.modes import enable_grad, no_grad
from ..deferred import part
from ..errors import ArgumentError
from ..functions.arithmetic import where
from ..functions.creation import as_tensor, zeros_like
from ..functions.promotion import kind_of
from ..functions.signatures import add_method
from ..jitted.function import tracing
from ..lazy.evaluation import compute, compute_together
from ..lazy.handle import state as tracer
from ..lazy.handle import wrap
from ..tensor import Tensor
from . import counters
from .hooks import OptimizerHooks
from .settings import HINTS, Group, Hints, Settings, check_hints, declared_parameters

Params = Iterable[Any]
"""Tensors, or groups as dicts with their own settings, or pairs of a name and a tensor."""

State = dict[str, Tensor]


class Optimizer(OptimizerHooks):
    """The base of all optimizers, with PyTorch's interface.

    A subclass names its state and writes the update of one parameter as tensor expressions. The whole step then runs at
    once: as few kernels as the compiler can make of it, or as a part of a `jit`ted function. State is made with the
    optimizer, not at the first step, so that a traced step finds it there.

    Or it writes `step` itself, as subclasses of PyTorch's base do, and keeps in `state[parameter]` what it likes.
    """

    state_names: ClassVar[tuple[str, ...]] = ()
    """Names of the state of each parameter: tensors of its shape, 0 at first."""
    counters: ClassVar[dict[str, float]] = {}
    """Counters shared by parameters, with their initial values; `step` first."""

    def __init__(self, params: Params, defaults: Group, hints: Hints | None = None) -> None:
        check_hints(self.name, hints or {})
        self._hooks = {}
        self.defaults = defaults
        self.state: dict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        self.separations = 0
        """Number of times that counters were reassigned, which invalidates earlier programs."""
        self.skip: Tensor | None = None
        """Condition under which a step changes nothing (`amp.GradScaler`)."""
        if not isinstance(params, Iterable):
            raise ArgumentError(f"{self.name} takes tensors, as model.parameters() gives, not {kind_of(params)}")
        given: list[Any] = [params] if isinstance(params, Tensor) else list(params)
        if not given:
            raise ArgumentError(
                f"{self.name} got no parameters: was their generator used before, or are layers in a plain list? "
                "(tilegrad.nn.ModuleList is one that a module sees)"
            )
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add a group of tensors, with its own settings where it has them."""
        if not isinstance(param_group, Mapping):
            raise ArgumentError(f"{self.name}: a group is a dict with 'params': tensors, not {kind_of(param_group)}")
        params = param_group.get("params")
        if not isinstance(params, Iterable):
            raise ArgumentError(f"{self.name}: a group is a dict with 'params': tensors, not {kind_of(params)}")
        members, names = self._named([params] if isinstance(params, Tensor) else list(params))
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for n, parameter in enumerate(members):
            self._check_parameter(n, parameter, known)
            known.add(id(parameter))
        unknown = sorted(set(param_group) - set(self.defaults) - {"params", "param_names", "initial_lr", *HINTS})
        # a text is no setting with a slip in its name, but a label of the group
        unknown = [name for name in unknown if not isinstance(param_group[name], str)]
        if unknown and not self.steps_itself:
            raise ArgumentError(
                f"{self.name} has no {', '.join(unknown)}; it has {', '.join(self.defaults)}. What is only your own "
                "goes into optimizer.param_groups afterwards"
            )
        own = {name: value for name, value in param_group.items() if name not in HINTS}
        group = {**self.defaults, **own, **names, "params": members}
        if not self.steps_itself:
            self.check(group)
        self.param_groups.append(group)
        if self.steps_itself:
            return
        shared = counters.start(members, self.counted(group))
        for parameter in members:
            self._begin(parameter, {**shared[parameter], **self.first_state(parameter, group)})

    def _add_missing_state(self, group: Group) -> None:
        """Create state that a change of settings needs: a momentum, for instance, that was 0 until now."""
        counted, names = self.counted(group), (*self.counted(group), *self.kept(group))
        lacking = [p for p in group["params"] if any(name not in self.state[p] for name in names)]
        if not lacking:
            return
        with counters.untraced():
            shared = counters.start(lacking, counted)
            for p in lacking:
                self._begin(p, {**shared[p], **self.first_state(p, group), **self.state[p]})

    def _begin(self, parameter: Tensor, state: State) -> None:
        """Set the state of a parameter before its first step."""
        self.state[parameter] = state
        for value in state.values():
            if isinstance(value, Tensor):
                value.is_state = True

    def _named(self, given: list[Any]) -> tuple[list[Any], Group]:
        """Return the parameters, and the names of a group, if they were given."""
        pairs = [p for p in given if isinstance(p, tuple)]
        if not pairs:
            return given, {}
        if len(pairs) != len(given):
            raise ArgumentError(
                f"{self.name}: {len(pairs)} of {len(given)} parameters have names: name all of a group, or none"
            )
        return [parameter for _, parameter in pairs], {"param_names": [name for name, _ in pairs]}

    def _check_parameter(self, n: int, parameter: Any, known: set[int]) -> None:
        if not isinstance(parameter, Tensor):
            raise ArgumentError(f"{self.name} updates tensors, but parameter {n} is a {type(parameter).__name__}")
        if type(parameter).__name__ == "UninitializedParameter":
            raise ArgumentError(
                f"{self.name}: parameter {n} has no shape yet: run a batch through the network before, so that its "
                "lazy layers know their sizes"
            )
        if not parameter.is_leaf:
            raise ArgumentError(
                f"{self.name}: parameter {n} of the shape {tuple(parameter.shape)} is computed from other tensors: "
                "give those, or detach() it"
            )
        if id(parameter) in known:
            raise ArgumentError(f"{self.name}: parameter {n} is in another group already, or twice in this one")

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def steps_itself(self) -> bool:
        """Test whether a subclass defines `step` and no `update`, and so owns its settings and state."""
        return type(self).update is Optimizer.update

    def check(self, group: Group) -> None:
        """Raise for invalid settings."""
        for name in ("lr", "weight_decay", "eps", "momentum", "lr_decay", "initial_accumulator_value"):
            value = group.get(name, 0)
            if name == "lr" and isinstance(value, Tensor) and value.numel() == 1:
                continue
            if not (isinstance(value, (int, float)) and value >= 0):
                raise ArgumentError(f"{self.name}: {name} is {value!r}: it must be a number, 0 or more")
        self._check_betas(group.get("betas", (0, 0)))
        for name in ("alpha", "rho"):
            if name in group and not 0 <= group[name] <= 1:
                raise ArgumentError(f"{self.name}: {name} is {group[name]}: it must be from 0 to 1")

    def _check_betas(self, betas: Any) -> None:
        if not isinstance(betas, Sequence) or len(betas) != 2:
            raise ArgumentError(f"{self.name}: betas are two numbers, as in (0.9, 0.999), not {betas!r}")
        if not all(isinstance(beta, (int, float)) and 0 <= beta < 1 for beta in betas):
            raise ArgumentError(f"{self.name}: betas are {betas}: both must be from 0 up to below 1")

    def first_state(self, parameter: Tensor, group: Group) -> State:
        return {name: zeros_like(parameter.detach()) for name in self.kept(group)}

    def kept(self, group: Group) -> tuple[str, ...]:
        """Return the names of the state that this group needs."""
        return self.state_names

    def counted(self, group: Group) -> dict[str, float]:
        """Return the counters that this group needs, with their initial values."""
        return self.counters

    def tick(self, state: State, group: Settings) -> Any:
        """Count one step, and compute what all parameters with these counters share."""
        state["step"].add_(1)

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Settings, common: Any) -> None:
        """Update one parameter and its state in place; `common` is the result of `tick`."""
        raise NotImplementedError(f"{self.name} has no step() of its own, and no update()")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; `closure`, if given, computes the loss first."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        changed: list[Tensor] = []
        with no_grad():
            for group in self.param_groups:
                changed += self._step(group)
        if changed and not tracing():
            recorded_tensors = part("lazy.bounded_recording", "recorded_tensors") or list
            compute_together(recorded_tensors())  # counts and totals do not hold, and repeat, the work of this step
            compute(*changed)
        return loss

    def _step(self, group: Group) -> list[Tensor]:
        """Update the parameters of a group; return the tensors that were written."""
        settings = Settings(group, self.defaults)
        self._add_missing_state(group)
        counted = tuple(self.counted(group))
        if counted:
            self._count_group(group["params"], counted)
        common: dict[int, Any] = {}
        changed: list[Tensor] = []
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            number = id(state[counted[0]]) if counted else 0
            if counted and number not in common:
                numbers = [state[name] for name in counted]
                common[number] = self._unless_skipped(numbers, partial(self.tick, state, settings))
            gradient = -parameter.grad if settings.uses("maximize") else parameter.grad
            written = [parameter, *(x for name, x in state.items() if name not in counted)]
            change = partial(self.update, parameter, gradient, state, settings, common.get(number))
            self._unless_skipped(written, change)
            # a gradient that somebody still holds must not keep the old parameters alive
            changed += [parameter, *state.values(), parameter.grad]
        return changed

    def _count_group(self, params: Sequence[Tensor], counted: Sequence[str]) -> None:
        self.separations += counters.separate(params, self.state, counted)
        if tracer.trace is not None:
            tracer.trace.guards.append((lambda: self.separations, self.separations))

    def _unless_skipped(self, written: Sequence[Tensor], change: Callable[[], Any]) -> Any:
        """Return the result of `change`; where `skip` is true, restore what it wrote."""
        if self.skip is None:
            return change()
        before = [wrap(x.value) for x in written]
        result = change()
        for x, old in zip(written, before, strict=True):
            x.copy_(where(self.skip, old, x))
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients; with `set_to_none=False` set them to zeros."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none or parameter.grad is None:
                    parameter.grad = None
                else:
                    parameter.grad = zeros_like(parameter.grad.detach())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def state_dict(self) -> dict[str, Any]:
        """Return state and settings, with numbers in place of the parameters, in PyTorch's format."""
        for hook in self._in_order("saving"):
            hook(self)
        return self._replaced("saved", self._collected())  # type: ignore[no-any-return]

    def _collected(self) -> dict[str, Any]:
        order = [p for group in self.param_groups for p in group["params"]]
        numbers = {id(p): n for n, p in enumerate(order)}
        groups = [g | {"params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups]
        kept = {numbers.get(id(key), key): values for key, values in self.state.items() if values}
        state = {n: {k: t.detach() if isinstance(t, Tensor) else t for k, t in x.items()} for n, x in kept.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`, of this class or PyTorch's; parameters must have the same order."""
        if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= set(state_dict):
            raise ArgumentError(
                f"{self.name}.load_state_dict: takes a dict with 'state' and 'param_groups', as state_dict() gives, "
                f"not {state_dict!r:.60}"
            )
        self._take_over(self._replaced("loading", dict(state_dict)))
        for hook in self._in_order("loaded"):
            hook(self)

    def _take_over(self, state_dict: Mapping[str, Any]) -> None:
        groups = state_dict["param_groups"]
        self._check_form(groups, state_dict["state"])
        sizes, given = [len(g["params"]) for g in self.param_groups], [len(g["params"]) for g in groups]
        if sizes != given:
            raise ArgumentError(
                f"{self.name}.load_state_dict: the groups here have {sizes} parameters, those given {given}"
            )
        self._check_settings(groups)
        states = [[state_dict["state"].get(n, {}) for n in group["params"]] for group in groups]
        self._check_shapes(states)
        for own, other, found in zip(self.param_groups, groups, states, strict=True):
            own.update({k: v for k, v in other.items() if k != "params" and k not in HINTS})
            with no_grad():
                self._load(own, found)

    def _check_form(self, groups: Any, state: Any) -> None:
        lists = isinstance(groups, Sequence) and all(
            isinstance(g, Mapping) and isinstance(g.get("params"), Sequence) for g in groups
        )
        if not (lists and isinstance(state, Mapping) and all(isinstance(s, Mapping) for s in state.values())):
            raise ArgumentError(
                f"{self.name}.load_state_dict: 'param_groups' is a list of dicts with 'params', 'state' a dict of "
                f"dicts, as state_dict() gives; these are {groups!r:.60} and {state!r:.60}"
            )

    def _check_settings(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Raise for missing numbers; a switch that an older version lacked keeps its value."""
        for own, other in zip(self.param_groups, groups, strict=True):
            numbers = [name for name in self.defaults if not isinstance(own[name], (bool, type(None)))]
            missing = [name for name in numbers if name not in other]
            strange = sorted(set(other) - set(own) - {"params", "initial_lr", *HINTS})
            if missing:
                has = f" but {', '.join(strange)}" if strange else ""
                raise ArgumentError(
                    f"{self.name}.load_state_dict: a group has no {', '.join(missing)}{has}: is it the state of "
                    "another optimizer?"
                )
            if not self.steps_itself:
                self.check({**own, **other})

    def _check_shapes(self, states: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        wrong = [
            f"{name} of parameter {n} has the shape {_shape(value)} instead of {tuple(parameter.shape)}"
            for group, found in zip(self.param_groups, states, strict=True)
            for n, (parameter, given) in enumerate(zip(group["params"], found, strict=True))
            for name, value in given.items()
            if name in self.kept(group) and value is not None and _shape(value) != tuple(parameter.shape)
        ]
        wrong += [
            f"{name} of parameter {n} is {given[name]!r:.40}, no number"
            for group, found in zip(self.param_groups, states, strict=True)
            for n, given in enumerate(found)
            for name in self.counted(group)
            if name in given and not hasattr(given[name], "__float__")
        ]
        if wrong:
            raise ArgumentError(f"{self.name}.load_state_dict: {'; '.join(wrong)}")

    def _load(self, group: Group, states: Sequence[Mapping[str, Any]]) -> None:
        """Set the state of a group; missing state starts anew."""
        if self.steps_itself:
            for parameter, given in zip(group["params"], states, strict=True):
                self.state[parameter] = {name: _of(parameter, name, value) for name, value in given.items()}
            return
        for parameter, given in zip(group["params"], states, strict=True):
            for name, first in self.first_state(parameter, group).items():
                value = given.get(name)
                new = first if value is None else as_tensor(value).to(dtype=first.dtype, device=first.device)
                known = self.state[parameter].get(name)
                self.state[parameter][name] = new.clone() if known is None else known.copy_(new)
        counted = self.counted(group)
        if counted:
            # SGD with dampening counts, PyTorch's does not: where there is state, there were steps
            missing = [counted if not given else dict.fromkeys(counted, 1.0) for given in states]
            values = [
                {name: float(given.get(name, other[name])) for name in counted}
                for given, other in zip(states, missing, strict=True)
            ]
            for parameter in group["params"]:
                for name, value in counted.items():
                    self.state[parameter].setdefault(name, counters.counter(value, parameter))
            self.separations += counters.load(group["params"], self.state, values)

    def __repr__(self) -> str:
        lines = [f"{self.name} ("]
        for n, group in enumerate(self.param_groups):
            settings = [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
            lines += [f"Parameter Group {n}", *settings]
        return "\n".join([*lines, ")"])


class DeclaredOptimizer(Optimizer):
    """An optimizer whose settings are declared with its class, and are the parameters of its constructor.

    `settings` has their names, in order, those behind `*` given by name; defaults that differ from those in
    `settings.DEFAULTS` follow. `fixed` are settings that the constructor does not take.

    >>> import tilegrad as tg
    >>> class Ascent(DeclaredOptimizer, settings="lr * maximize", maximize=True): ...
    >>> Ascent([tg.ones(2)], lr=0.5).defaults
    {'lr': 0.5, 'maximize': True}
    """

    if TYPE_CHECKING:

        def __init__(self, params: Params, *args: Any, **settings: Any) -> None: ...

    def __init_subclass__(cls, settings: str = "", fixed: Group | None = None, **defaults: Any) -> None:
        super().__init_subclass__()
        if settings:
            parameters = declared_parameters(settings, defaults)
            names = [parameter.name for parameter in parameters]
            kept = [name for name in names if name not in ("params", "hints")]
            kept.sort(key=lambda name: name == "decoupled_weight_decay")  # the last of a group, as in PyTorch
            given = ", ".join(f"{name!r}: {name}" for name in kept)
            body = f"Optimizer.__init__(self, params, {{{given}, **fixed}}, {'hints' if 'hints' in names else None})"
            add_method(cls, "__init__", parameters, body, "None", Optimizer=Optimizer, fixed=fixed or {})


def _of(parameter: Tensor, name: str, value: Any) -> Any:
    """Return a copy of the saved state of a parameter, in its dtype unless it counts steps, as PyTorch does."""
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    dtype = parameter.dtype if parameter.dtype.is_floating_point and name != "step" else value.dtype
    return value.to(dtype=dtype, device=parameter.device).clone()


def _shape(value: Any) -> Any:
    return tuple(value.shape) if hasattr(value, "shape") else type(value).__name__
