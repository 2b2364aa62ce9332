"""Implement hooks of modules: before and after forward, backward, saving and loading."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, NamedTuple, Self
from warnings import warn

from ..autograd.modes import is_grad_enabled
from ..errors import ArgumentError, check_callable
from ..ir.location import modules
from ..lazy.handle import Surroundings
from ..tensor import Tensor
from ..tree import flatten, unflatten


class Hook(NamedTuple):
    """A registered function, called with the keyword arguments or without."""

    function: Callable[..., Any]
    with_kwargs: bool = False
    always: bool = False
    """Call it also when forward raises."""


class RemovableHandle:
    """A handle that removes a hook, by `remove()` or at the end of a `with` block."""

    def __init__(self, hooks: dict[int, Hook], hook: Hook, first: bool = False) -> None:
        self._hooks = hooks
        self._number = min(hooks, default=0) - 1 if first else max(hooks, default=0) + 1
        hooks[self._number] = hook
        Surroundings.changes += 1

    def remove(self) -> None:
        self._hooks.pop(self._number, None)
        Surroundings.changes += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


class ModuleHooks:
    """The hooks of a module."""

    _hooks: dict[str, dict[int, Hook]]
    _module_name = ""
    """The name under which another module has it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward: define forward(self, x)")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        thread = get_ident()
        outer = modules.get(thread)
        modules[thread] = outer, self._module_name
        try:
            return self._with_hooks(args, kwargs) if self._hooks else self.forward(*args, **kwargs)
        except AttributeError as problem:
            if not self._hooks:
                self._refuse(args, problem)
            raise
        finally:
            if outer is None:
                del modules[thread]
            else:
                modules[thread] = outer

    def _with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        after = self._in_order("after")
        if not any(hook.always for hook in after):
            return self._called(args, kwargs, after, [])
        done: list[Hook] = []
        try:
            return self._called(args, kwargs, after, done)
        except Exception:
            self._call_in_any_case([hook for hook in after if hook.always and hook not in done], args, kwargs)
            raise

    def _call_in_any_case(self, hooks: list[Hook], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call the remaining `always_call` hooks after forward raised; their own errors become warnings."""
        for hook in hooks:
            try:
                hook.function(self, *((args, kwargs) if hook.with_kwargs else (args,)), None)
            except Exception as error:
                warn(
                    f"{type(self).__name__}: a hook with always_call=True raised {error!r}, after its forward",
                    stacklevel=3,
                )

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any], after: list[Hook], done: list[Hook]) -> Any:
        """Call forward with all hooks; `done` lists the hooks that ran after it."""
        for hook in self._in_order("before"):
            args, kwargs = self._before(hook, args, kwargs)
        backward = self._in_order("gradient_before"), self._in_order("gradient_after")
        watched = Gradients(self, *backward) if any(backward) and is_grad_enabled() else None
        output = self.forward(*(args if watched is None else watched.inputs(args)), **kwargs)
        for hook in after:
            done.append(hook)
            given = (args, kwargs) if hook.with_kwargs else (args,)
            changed = hook.function(self, *given, output)
            output = output if changed is None else changed
        return output if watched is None else watched.outputs(output)

    def _before(
        self, hook: Hook, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Call a hook before forward, and return the arguments as it changes them."""
        changed = hook.function(self, args, kwargs) if hook.with_kwargs else hook.function(self, args)
        if changed is None:
            return args, kwargs
        if hook.with_kwargs:
            args, kwargs = changed
            return args, kwargs
        return changed if isinstance(changed, tuple) else (changed,), kwargs

    def _refuse(self, args: tuple[Any, ...], problem: AttributeError) -> None:
        """Raise where an array or a list was given and an attribute of tensors was used."""
        given = next((x for x in args if x is problem.obj), None)
        if isinstance(given, (list, tuple)) or type(given).__module__ == "numpy":
            raise ArgumentError(
                f"{type(self).__name__} takes tensors, not a {type(given).__name__}: tilegrad.tensor(x)"
            ) from None

    def _in_order(self, kind: str) -> list[Hook]:
        hooks = self._hooks.get(kind, {})
        return [hooks[number] for number in sorted(hooks)]

    def _hook(
        self,
        kind: str,
        function: Callable[..., Any],
        first: bool = False,
        with_kwargs: bool = False,
        always: bool = False,
    ) -> RemovableHandle:
        check_callable(function, f"{type(self).__name__}: a hook")
        return RemovableHandle(self._hooks.setdefault(kind, {}), Hook(function, with_kwargs, always), first)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before each forward; a result other than None replaces the arguments."""
        return self._hook("before", hook, prepend, with_kwargs)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after each forward; a result other than None replaces the output.

        With `always_call` also where something raised before: then the output is None.
        """
        return self._hook("after", hook, prepend, with_kwargs, always_call)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` before backward; a result other than None replaces grad_output."""
        return self._hook("gradient_before", hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` after backward; a result other than None replaces grad_input."""
        return self._hook("gradient_after", hook, prepend)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before `state_dict` collects."""
        return self._hook("saving", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` with the collected state, which it may change."""
        return self._hook("saved", hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`
        before loading; it may change the state.
        """
        return self._hook("loading", hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after loading."""
        return self._hook("loaded", hook)


class Gradients:
    """The gradients of the outputs and inputs of one call of a module, for its backward hooks."""

    def __init__(self, module: ModuleHooks, before: list[Hook], after: list[Hook]) -> None:
        self.module, self.before, self.after = module, before, after
        self.at_outputs: tuple[Any, ...] = ()
        self.waits_for_inputs = False

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the positional arguments with their gradients watched."""
        self.waits_for_inputs = any(isinstance(x, Tensor) and x.requires_grad for x in flatten(args)[0])
        if not (self.after and self.waits_for_inputs):
            return args
        return _watched(args, self._arrived_at_inputs)  # type: ignore[no-any-return]

    def outputs(self, output: Any) -> Any:
        return _watched(output, self._arrived_at_outputs)

    def _arrived_at_outputs(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.before:
            gradients = _replaced(gradients, hook.function(self.module, gradients))
        self.at_outputs = gradients
        if self.after and not self.waits_for_inputs:
            self._arrived_at_inputs((None,))
        return gradients

    def _arrived_at_inputs(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.after:
            gradients = _replaced(gradients, hook.function(self.module, gradients, self.at_outputs))
        return gradients


def _replaced(gradients: tuple[Any, ...], found: Any) -> tuple[Any, ...]:
    if found is None:
        return gradients
    return found if isinstance(found, tuple) else (found,)


def _watched(structure: Any, arrived: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Any:
    """Return the same tensors with a function that sees and may replace their gradients."""
    leaves, form = flatten(structure)
    places = [n for n, x in enumerate(leaves) if isinstance(x, Tensor)]
    if not places:
        return structure
    from .passing import Passing

    passed = Passing.apply(arrived, *[leaves[n] for n in places])
    for n, x in zip(places, passed, strict=True):
        leaves[n] = x
    return unflatten(form, leaves)
