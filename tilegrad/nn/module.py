"""Define `Module`: a part of a network that registers its parameters, its buffers and its submodules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..errors import ArgumentError, DTypeError
from ..functions.creation import DeviceLike
from ..ir.dtype import DType
from ..lazy.handle import Surroundings, state
from ..lazy.layout import RANKS
from ..tensor import Tensor
from .hooks import ModuleHooks
from .parameter import EXTRA_STATE, Buffer, Parameter

if TYPE_CHECKING:
    from .loading import LoadResult

Named = Iterator[tuple[str, Any]]


class Module(ModuleHooks):
    """The base class of layers and networks, with PyTorch's interface.

    An attribute that is a `Parameter` or a `Module` is found by `parameters()`, `state_dict()`, `to()`.
    """

    _training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _passing: set[str]
    """Names of the buffers that are not part of the state."""
    _of_ours: ClassVar[bool] = False
    """Whether it is a layer of the library: traced functions do not watch each of its settings."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._of_ours = cls._of_ours or cls.__module__.startswith("tilegrad.")

    def __init__(self) -> None:
        registries = ("_parameters", "_buffers", "_modules", "_hooks")
        self.__dict__.update({name: {} for name in registries}, _passing=set(), _training=True)

    # -- attributes

    @property
    def training(self) -> bool:
        """Whether the module is in training mode. A traced function that reads it is traced anew when it changes."""
        own = self.__dict__
        if state.trace is not None:
            state.trace.guards.append((lambda: own["_training"], own["_training"]))
        return own["_training"]  # type: ignore[no-any-return]

    @training.setter
    def training(self, mode: bool) -> None:
        self.__dict__["_training"] = mode

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if "_parameters" not in own:
            if isinstance(value, (Parameter, Module)):
                raise ArgumentError(f"{type(self).__name__}: call super().__init__() before assigning {name!r}")
            own[name] = value
        elif isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Buffer):
            self.register_buffer(name, value, value.persistent)
        elif isinstance(value, Module):
            self.add_module(name, value)
        elif (registry := self._registry(name)) is None:
            object.__setattr__(self, name, value)
            if self._of_ours:
                Surroundings.changes += 1
        elif value is None or (registry is self._buffers and isinstance(value, Tensor)):
            registry[name] = value
        else:
            kind = {id(self._parameters): "Parameter", id(self._buffers): "Tensor"}.get(id(registry), "Module")
            raise ArgumentError(
                f"{type(self).__name__}.{name} is a {kind}: assign a {kind} or None, not a {type(value).__name__}"
            )

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for registry in ("_parameters", "_buffers", "_modules"):
            if name in own.get(registry, ()):
                return own[registry][name]
        # a copy that is being made, or a class without super().__init__(), has no registries yet
        near = get_close_matches(name, dir(self), n=1) if "_modules" in own else []
        advice = f": did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}", name=name, obj=self)

    def __delattr__(self, name: str) -> None:
        registry = self._registry(name)
        if registry is None:
            object.__delattr__(self, name)
            Surroundings.changes += 1
        else:
            del registry[name]
            self._passing.discard(name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._parameters, *self._buffers, *self._modules})

    def _registry(self, name: str) -> dict[str, Any] | None:
        return next((r for r in (self._parameters, self._buffers, self._modules) if name in r), None)

    def _register(self, registry: dict[str, Any], name: str, value: Any) -> None:
        if not name or "." in name:
            raise ArgumentError(f"{type(self).__name__}: {name!r} cannot name a part of it: it is empty or has a dot")
        old = self._registry(name)
        if old is not None and old is not registry:
            del old[name]
        elif old is None and name not in self.__dict__ and hasattr(type(self), name):
            raise ArgumentError(f"{type(self).__name__} already has an attribute {name!r}: choose another name")
        self.__dict__.pop(name, None)
        registry[name] = value
        if isinstance(value, Module):
            value._named(self._name_of_part(name))

    def _name_of_part(self, name: str) -> str:
        """Return the name of a submodule within the nearest module that is called; containers are not called."""
        own = self.__dict__.get("_module_name", "")
        return f"{own}.{name}" if own and type(self).forward is ModuleHooks.forward else name

    def _named(self, name: str) -> None:
        """Record the name under which profiles show what runs in this module."""
        self.__dict__["_module_name"] = name
        if type(self).forward is ModuleHooks.forward:
            for part, module in self._modules.items():
                if module is not None:
                    module._named(self._name_of_part(part))

    def _require(self, name: str, value: Any, kind: type, registry: dict[str, Any]) -> None:
        """Raise unless an object has the kind that is registered and its name is free."""
        module = type(self).__name__
        if value is not None and not isinstance(value, kind):
            raise ArgumentError(f"{module}: {name!r} is to be a {kind.__name__} or None, not a {type(value).__name__}")
        if self._registry(name) not in (None, registry):
            raise ArgumentError(f"{module} already has a part {name!r} of another kind: choose another name")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        self._require(name, param, Parameter, self._parameters)
        self._register(self._parameters, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Register a tensor that belongs to the state but is not trained."""
        self._require(name, tensor, Tensor, self._buffers)
        self._register(self._buffers, name, tensor)
        if tensor is not None:
            tensor.is_state = True
        (self._passing.discard if persistent else self._passing.add)(name)

    def add_module(self, name: str, module: Module | None) -> None:
        if isinstance(module, type):
            kind = getattr(module, "__name__", "")
            raise ArgumentError(f"{type(self).__name__}, at {name}: {kind} is a class: {kind}(...)")
        if module is not None and not callable(module):
            raise ArgumentError(f"{type(self).__name__}, at {name}: a module is wanted, not {module!r:.60}")
        self._register(self._modules, name, module)

    register_module = add_module

    # -- what it consists of

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yield the module and all its submodules with their names, each once; none that is in `memo`."""
        seen = set() if memo is None else memo
        stack = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            if remove_duplicate and module in seen:
                continue
            seen.add(module)
            yield name, module
            inner = ((f"{name}.{k}" if name else k, m) for k, m in module._modules.items() if m is not None)
            stack.extend(reversed(list(inner)))

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self) -> Iterator[tuple[str, Module]]:
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        return (module for _, module in self.named_children())

    def _tensors(self, registry: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Named:
        seen: set[int] = set()
        for path, module in self.named_modules(None, prefix, remove_duplicate) if recurse else [(prefix, self)]:
            for name, tensor in module.__dict__[registry].items():
                if tensor is not None and not (remove_duplicate and id(tensor) in seen):
                    seen.add(id(tensor))
                    yield f"{path}.{name}" if path else name, tensor

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Named:
        return self._tensors("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Named:
        return self._tensors("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        return self._at(target, Module)  # type: ignore[no-any-return]

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replace a submodule; unless `strict`, also under a new name."""
        path, _, name = target.rpartition(".")
        if strict or hasattr(self.get_submodule(path), name):
            self.get_submodule(target)
        self.get_submodule(path).add_module(name, module)

    def get_parameter(self, target: str) -> Parameter:
        return self._at(target, Parameter)  # type: ignore[no-any-return]

    def get_buffer(self, target: str) -> Tensor | None:
        path, _, name = target.rpartition(".")
        buffers = self.get_submodule(path)._buffers
        if name not in buffers:
            raise AttributeError(f"{type(self).__name__}.{target} is no buffer")
        return buffers[name]

    def _at(self, path: str, kind: type) -> Any:
        found: Any = self
        for name in path.split(".") if path else []:
            found = getattr(found, name)
        if not isinstance(found, kind):
            raise AttributeError(f"{type(self).__name__}.{path} is a {type(found).__name__}, not a {kind.__name__}")
        return found

    # -- its state

    def state_dict(
        self, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Return all parameters and persistent buffers by name; they share memory with the module."""
        state: dict[str, Any] = {} if destination is None else destination
        for hook in self._in_order("saving"):
            hook.function(self, prefix, keep_vars)
        for name, tensor in self._own_state():
            state[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            state[prefix + EXTRA_STATE] = self.get_extra_state()
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=state, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._in_order("saved"):
            changed = hook.function(self, state, prefix, {})
            state = state if changed is None else changed
        return state

    def _own_state(self) -> list[tuple[str, Tensor]]:
        named = [*self._parameters.items(), *((k, b) for k, b in self._buffers.items() if k not in self._passing)]
        return [(name, tensor) for name, tensor in named if tensor is not None]

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> LoadResult:
        """Copy a state into the module; if anything does not fit, raise with all of it and change nothing.

        `assign` takes the tensors of the state, with their dtypes, instead of copying from them.
        """
        from .loading import load

        return load(self, state_dict, strict, assign)

    def get_extra_state(self) -> Any:
        """Return additional state, for classes that define this and `set_extra_state`."""
        raise NotImplementedError(f"{type(self).__name__}: define get_extra_state() if there is more to save")

    def set_extra_state(self, state: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__}: define set_extra_state(state), as there is more to load")

    # -- changes to the whole

    def apply(self, fn: Callable[[Module], None]) -> Self:
        """Call `fn` on every submodule, inner ones first, and on the module itself."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        if not isinstance(mode, bool):
            raise ArgumentError(f"{type(self).__name__}.train: the mode is True or False, not {mode!r:.60}")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = parameter.grad.detach().zero_()

    def share_memory(self) -> Self:
        """Return the module: threads share memory anyway."""
        return self

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Move parameters and buffers to a device without copying their elements."""
        return self.to(device)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move parameters and buffers to a device, or cast the floating-point ones to a dtype; takes the arguments of
        `x.to`.

        A memory format is for what has as many axes as it is about.
        """
        for dtype in (*args, *kwargs.values()):
            if isinstance(dtype, DType) and not dtype.is_float:
                raise DTypeError(f"{type(self).__name__}.to: parameters are floating-point numbers, no {dtype.name}")
        format = kwargs.pop("memory_format", None)
        return self._converted(
            lambda x: x.to(*args, **kwargs, memory_format=format if x.dim() == RANKS.get(format) else None)
        )

    def type(self, dst_type: Any) -> Self:
        return self._converted(lambda x: x.to(dst_type))

    def float(self) -> Self:
        return self._converted(lambda x: x.float())

    def double(self) -> Self:
        return self._converted(lambda x: x.double())

    def half(self) -> Self:
        return self._converted(lambda x: x.half())

    def bfloat16(self) -> Self:
        return self._converted(lambda x: x.bfloat16())

    def cpu(self) -> Self:
        return self.to("cpu")

    def cuda(self, device: DeviceLike = None) -> Self:
        return self.to("cuda" if device is None else device)

    def _converted(self, convert: Callable[[Tensor], Tensor]) -> Self:
        for tensor in [*self.parameters(), *self.buffers()]:
            changed = convert(tensor.data)
            if changed.dtype is not tensor.dtype and not tensor.dtype.is_floating_point:
                changed = tensor.data.to(changed.device)  # whole numbers stay what they are
            tensor.data = changed
            if tensor.grad is not None:
                tensor.grad = convert(tensor.grad.data)
        return self

    # -- in print

    def extra_repr(self) -> str:
        """Return the text between the parentheses of the printed form."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr().splitlines()
        inner = [f"({name}): {module!r}".replace("\n", "\n  ") for name, module in self._modules.items()]
        if not inner and len(extra) < 2:
            return f"{self._get_name()}({''.join(extra)})"
        return "\n  ".join([f"{self._get_name()}(", *extra, *inner]) + "\n)"

    def _get_name(self) -> str:
        return type(self).__name__
