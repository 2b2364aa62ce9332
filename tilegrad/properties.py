"""Define the attributes of all tensors: shape, type, gradients, and Python's protocols."""

from __future__ import annotations

import numbers
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from .errors import ArgumentError, DTypeError, GradientError, ShapeError
from .functions import conversion, views
from .functions.creation import from_array, full, ones, zeros
from .functions.creation import tensor as made
from .functions.declared import checking_arguments, flag, integer
from .ir.dtype import DType
from .ir.graph import Value
from .lazy import storage as sharing
from .lazy.evaluation import compute, compute_together
from .lazy.handle import Handle, Surroundings, alias, mode, root_at, state, wrap
from .lazy.layout import strides_of
from .ops.broadcasting import normal_axis, shown
from .runtime.device import Device, device

if TYPE_CHECKING:
    from .tensor import Tensor


class GradFn:
    """The operation that computed a tensor, as a node of the gradient graph."""

    def __init__(self, value: Value) -> None:
        self.value = value

    def name(self) -> str:
        """Return the name of the operation, as PyTorch prints it."""
        return f"{type(self.value).__name__}Backward0"

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        """The nodes of its operands."""
        return tuple([(GradFn(x) if x.tracked else None, 0) for x in self.value.inputs])

    def __repr__(self) -> str:
        return f"<{self.name()}>"


class HookHandle:
    """Removes a hook."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self.hooks, self.hook = hooks, hook

    def remove(self) -> None:
        if self.hook in self.hooks:
            self.hooks.remove(self.hook)
            Surroundings.changes += 1


class Properties(Handle):
    """A tensor without its operations."""

    __array_priority__ = 1000
    retains_grad = False
    is_sparse = is_quantized = is_meta = False

    if TYPE_CHECKING:
        item: Callable[[], Any]

    __hash__ = object.__hash__

    # --- what it is ----------------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._value.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return (self._value if state.trace is None else self.value).type.shape  # type: ignore[return-value]

    @property
    def device(self) -> Device:
        """The device of the elements."""
        return device(self._value.type.device)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._value.type.shape)

    @property
    def itemsize(self) -> int:
        """Size of an element, in bytes."""
        return self._value.type.dtype.bytes

    @property
    def nbytes(self) -> int:
        """Size of all elements, in bytes."""
        return self.numel() * self.itemsize

    @property
    def is_cpu(self) -> bool:
        """Whether it is on the CPU."""
        return self._value.type.device == "cpu"

    @property
    def is_cuda(self) -> bool:
        """Whether it is on an NVIDIA GPU."""
        return self._value.type.device.startswith("cuda")

    @property
    def _version(self) -> int:
        """The number of in-place modifications."""
        return 0 if self._base is None else self._base.storage.version

    def size(self, dim: int | None = None) -> Any:
        """Return the size of each dimension, or of one."""
        if dim is None:
            return self.shape
        dim = integer(dim, "size", "dim")
        if not -self.ndim <= dim < self.ndim:
            normal_axis(dim, self.ndim, "size")
        return self.shape[dim]

    def numel(self) -> int:
        """Return the number of elements."""
        return self.value.type.count  # type: ignore[return-value]

    def dim(self) -> int:
        """Return the number of dimensions."""
        return self.ndim

    def element_size(self) -> int:
        """Return the size of an element, in bytes."""
        return self.itemsize

    def is_floating_point(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return self.dtype.kind == "float"

    def is_complex(self) -> bool:
        """Return False: there are no complex numbers."""
        return False

    def get_device(self) -> int:
        """Return the number of the GPU, -1 on the CPU."""
        name, _, number = self._value.type.device.partition(":")
        return -1 if name == "cpu" else int(number or 0)

    # --- gradients -----------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to it."""
        return self.own_value().tracked

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:
        """Whether it was not computed from tensors that require gradients."""
        value = self.own_value()
        return not value.tracked or value.provenance.is_leaf

    @property
    def grad_fn(self) -> GradFn | None:
        """The operation that computed it; None for a leaf."""
        return None if self.is_leaf else GradFn(self.own_value())

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient."""
        found = self.own_gradient()
        if state.trace is not None:
            state.trace.gradient_read(self)
        return found

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Handle):
                raise ArgumentError(f"grad must be a tensor or None, not a {type(value).__name__}")
            if value.shape != self.shape:
                raise ShapeError(
                    f"grad has shape {shown(value.shape)}, the tensor {shown(self.shape)}; they must be equal"
                )
            if value.dtype is not self.dtype:
                raise DTypeError(
                    f"grad has {value.dtype.name} elements, the tensor {self.dtype.name}; convert it, as in "
                    f"grad.to(tilegrad.{self.dtype.name})"
                )
        if state.trace is not None:
            state.trace.gradient_set(self)
        self._gradient = value

    @property
    def data(self) -> Tensor:
        """A tensor on the same storage without history; writes through it are hidden from the check of saved values."""
        return alias(self, hidden=True)

    @data.setter
    def data(self, other: Tensor) -> None:
        if self._base is not None and other._base is not None and self._moves == other._moves:
            if self._base.storage is other._base.storage:
                return  # `p.data -= step` assigns what it has changed
        if state.trace is not None:
            state.trace.reformed(self, "an assignment to .data")
        old = self.own_value()
        if old.tracked and other.dtype.kind != "float":
            raise GradientError(
                f"data: the tensor requires gradients, which {other.dtype.name} elements do not have: convert them, as "
                "in other.float()"
            )
        other.base(with_strides=False)
        shared = alias(other)
        root_at(self, shared, sharing.replaced(old, shared._value) if old.tracked else shared._value)

    def detach(self) -> Tensor:
        """Return a tensor on the same storage without history."""
        made = alias(self)
        compute_together([made])  # what is carried to the next step waits for no one there
        return made

    def detach_(self) -> Self:
        """Drop the history."""
        if state.trace is not None:
            state.trace.reformed(self, "detach_")
        if self._moves:
            raise GradientError("detach_: a view cannot be detached in place; take x.detach()")
        self._value = sharing.detached(self.value if state.trace is not None else self.own_value())
        if self._base is not None:
            self._base.value = self._value
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Make it a leaf with or without gradients."""
        flag(requires_grad, "requires_grad_", "requires_grad")
        value = self.value if state.trace is not None else self.own_value()
        if value.tracked == bool(requires_grad):
            return self
        if state.trace is not None:
            state.trace.reformed(self, "requires_grad_")
        if requires_grad:
            if value.dtype.kind != "float":
                raise GradientError(
                    f"requires_grad_: {value.dtype.name} elements have no gradient; floating-point ones do: x.float()"
                )
            new = sharing.leaf(value, weakref.ref(self))
            self.is_state = True
            if self._base is not None and (self._moves or self._base.hidden):
                root_at(self, self, new)
                return self
        else:
            if not value.provenance.is_leaf:
                raise GradientError(
                    "requires_grad can be switched off for leaves only; of what was computed take x.detach()"
                )
            new = sharing.detached(value)
            if self._moves:
                root_at(self, self, new)
                return self
        self._value = new
        if self._base is not None:
            self._base.storage.seen_by(new)
            self._base.value = new
        return self

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradients of this tensor to `.grad` of the leaves that it depends on."""
        from .autograd.engine import backward

        own: Any = self
        backward(own, gradient, retain_graph, create_graph, inputs)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
        """Call a function with the gradient of this tensor when it is computed; it may return another one."""
        value = self.value
        if not value.tracked:
            raise GradientError("register_hook: no gradient arrives at a tensor that does not require gradients")

        def on_value(gradient: Value) -> Value | None:
            changed = hook(wrap(gradient))
            if changed is None:
                return None
            if not isinstance(changed, Handle) or changed.value.shape != gradient.shape:
                found = (
                    f"a tensor of shape {shown(changed.value.shape)}" if isinstance(changed, Handle) else repr(changed)
                )
                raise GradientError(
                    f"a hook of a tensor of shape {shown(gradient.shape)} returned {found:.80}; return a "
                    "gradient of that shape, or None to leave it as it is"
                )
            return changed.value

        kept = None if state.trace is not None or self._moves else self._base
        hooks = sharing.hooks_of(value) if kept is None else kept.hooks()
        keeper = None if self._moves or self._base is None else self._base.keeper
        hooks.insert(len(hooks) - (keeper is not None and keeper[0] is hooks), on_value)
        Surroundings.changes += 1
        return HookHandle(hooks, on_value)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> HookHandle:
        """Call a function with this leaf after a gradient was added to `.grad`."""
        hooks: list[Any] = self.__dict__.setdefault("_after_gradient", [])
        hooks.append(hook)
        Surroundings.changes += 1
        return HookHandle(hooks, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of a non-leaf tensor in `.grad`, after its hooks."""
        if self.is_leaf or self.retains_grad:
            return
        holder = weakref.ref(self)

        def keep(gradient: Tensor) -> None:
            kept = holder()
            if kept is not None:
                new = gradient if mode.enabled else gradient.detach()
                before = kept.own_gradient()
                kept._gradient = new if before is None else before + new

        if not self._moves:
            self.base()
        handle = self.register_hook(keep)
        if self._base is not None and not self._moves:
            self._base.keeper = handle.hooks, handle.hook
        self.__dict__["retains_grad"] = True

    def ndimension(self) -> int:
        """Return the number of dimensions."""
        return len(self._value.type.shape)

    def nelement(self) -> int:
        """Return the number of elements."""
        return self.numel()

    def is_signed(self) -> bool:
        """Whether elements can be negative."""
        return self.dtype.kind in ("int", "float")

    def is_nonzero(self) -> bool:
        """Whether its only element is not 0."""
        return bool(self)

    @checking_arguments
    def is_same_size(self, other: Tensor) -> bool:
        """Whether another tensor has the same shape."""
        return self.shape == other.shape

    # --- Python's protocols --------------------------------------------------------------------

    def __repr__(self) -> str:
        from .printing import show

        return show(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.ndim == 0 else object.__format__(self, spec)

    def __bool__(self) -> bool:
        if self._value.type.shape and self.numel() != 1:
            raise ArgumentError(
                f"a tensor of {self.numel()} elements, of shape {shown(self.shape)}, is neither true nor false; use "
                ".any() or .all()"
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if self.dtype.kind == "float" or self.numel() != 1:
            raise ArgumentError(
                f"only an integer tensor of one element is an index, not {self.dtype.name} {shown(self.shape)}"
            )
        return int(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentError("len: a tensor without dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise ArgumentError("a tensor without dimensions cannot be iterated over; read it with item()")
        whole: Any = self
        return iter(views.unbind(whole, 0))

    def __contains__(self, element: Any) -> bool:
        equal: Any = self == element if isinstance(element, Handle | numbers.Number) else None
        if equal is None:
            raise ArgumentError(f"in: a tensor has numbers in it, and can have no {type(element).__name__}")
        return bool(equal.any())

    def __copy__(self) -> Self:
        copied: Any = alias(self, hidden=True)
        copied.__class__ = type(self)
        copied.requires_grad_(self.requires_grad and self.is_leaf)
        return copied  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if not self.is_leaf:
            raise GradientError(
                "only leaves can be copied deeply, not what was computed from them; use x.detach().clone()"
            )
        copied: Any = object.__new__(type(self))
        memo[id(self)] = copied
        copied._value = sharing.kept_separate(sharing.detached(self.value))
        copied._strides = strides_of(self)
        if state.trace is not None:
            state.trace.made(copied)
        compute(copied)
        if self.requires_grad:
            copied.requires_grad_()
        gradient = self.own_gradient()
        copied._gradient = None if gradient is None else gradient.detach().clone()
        return copied  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        array = conversion.numpy(self.detach(), force=True)
        return _restored, (type(self), array, self._value.type.device, self.requires_grad, strides_of(self))

    __array__, __dlpack__, __dlpack_device__ = conversion.__array__, conversion.__dlpack__, conversion.__dlpack_device__

    # --- new tensors like this one ---------------------------------------------------------------

    def new_tensor(self, data: Any, **options: Any) -> Tensor:
        """Make a tensor from data, by default with the same dtype and device."""
        return made(data, **self._like(options))

    def new_zeros(self, *size: Any, **options: Any) -> Tensor:
        """Make a tensor of zeros, by default with the same dtype and device."""
        return zeros(*size, **self._like(options))

    def new_ones(self, *size: Any, **options: Any) -> Tensor:
        """Make a tensor of ones, by default with the same dtype and device."""
        return ones(*size, **self._like(options))

    def new_empty(self, *size: Any, **options: Any) -> Tensor:
        """Make an uninitialised tensor, by default with the same dtype and device."""
        return self.new_zeros(*size, **options)

    def new_full(self, size: Any, fill_value: Any, **options: Any) -> Tensor:
        """Make a tensor of one number, by default with the same dtype and device."""
        return full(size, fill_value, **self._like(options))

    def _like(self, options: dict[str, Any]) -> dict[str, Any]:
        """Complete `dtype`, `device` and `requires_grad` of a new tensor."""
        given = {name: chosen for name, chosen in options.items() if chosen is not None}
        return {"dtype": self.dtype, "device": self._value.type.device, **given}

    def realize(self) -> Self:
        """Compute the elements now; reading them would do so as well."""
        compute(self)
        return self

    def share_memory_(self) -> Self:
        """Return the tensor itself: threads share memory anyway."""
        return self

    def pin_memory(self, device: Device | str | None = None) -> Tensor:
        """Copy to page-locked memory of the CPU, from which GPUs copy asynchronously; without a GPU return it
        unchanged.
        """
        return conversion.pinned(self)  # type: ignore[arg-type]

    def record_stream(self, stream: Any) -> None:
        """Do nothing: memory records the streams that read it."""

    def is_pinned(self, device: Device | str | None = None) -> bool:
        """Whether it is in page-locked memory."""
        return conversion.is_pinned(self)  # type: ignore[arg-type]


def _restored(
    cls: type[Tensor], array: Any, name: str, requires_grad: bool, strides: tuple[int, ...] | None = None
) -> Tensor:
    """Rebuild a tensor from its pickled form."""
    found = object.__new__(cls)
    found._value = from_array(array.copy(), name).value
    found._strides = strides
    return found.requires_grad_() if requires_grad else found
