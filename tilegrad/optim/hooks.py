"""Implement hooks of optimizers: before and after steps, saving and loading."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..errors import ArgumentError
from ..lazy.handle import state
from ..nn.hooks import Hook, RemovableHandle

Step = Callable[..., Any]


class Counted(dict[int, Hook]):
    """Hooks by number, with a count of changes, which invalidates programs that were traced with others."""

    changes = 0

    def __setitem__(self, number: int, hook: Hook) -> None:
        self.changes += 1
        super().__setitem__(number, hook)

    def pop(self, *number: Any) -> Any:
        self.changes += 1
        return super().pop(*number)


class OptimizerHooks:
    """The hooks of an optimizer. A traced step calls them while it is traced."""

    _hooks: dict[str, Counted]
    _stepping: bool = False

    def _changes(self) -> tuple[int, ...]:
        """Count changes of hooks and parameters, as a guard of steps."""
        around: list[Counted] = [self._hooks.setdefault(kind, Counted()) for kind in ("before", "after")]
        groups: list[dict[str, Any]] = self.param_groups  # type: ignore[attr-defined]
        return *[hooks.changes for hooks in around], *[len(group["params"]) for group in groups]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[attr-defined]

    def _in_order(self, kind: str) -> list[Callable[..., Any]]:
        hooks: dict[int, Hook] = self._hooks.get(kind, {})
        return [hooks[number].function for number in sorted(hooks)]

    def _hook(self, kind: str, function: Callable[..., Any], first: bool = False) -> RemovableHandle:
        return RemovableHandle(self._hooks.setdefault(kind, Counted()), Hook(function), first)

    def _replaced(self, kind: str, given: Any) -> Any:
        """Apply hooks in order, each to the result of the one before; None keeps it."""
        for hook in self._in_order(kind):
            changed = hook(self, given)
            given = given if changed is None else changed
        return given

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; a pair that it returns replaces both.

        `args` begins with the optimizer, as in PyTorch.
        """
        return self._hook("before", hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return self._hook("after", hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict` collects."""
        return self._hook("saving", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` with the collected state; a result other than None replaces it."""
        return self._hook("saved", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading; a result other than None is loaded instead."""
        return self._hook("loading", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after loading."""
        return self._hook("loaded", hook, prepend)


def _with_hooks(step: Step) -> Step:
    """Wrap a class's `step` with the hooks before and after it, but not a `step` called within it."""

    @wraps(step)
    def hooked(self: OptimizerHooks, *args: Any, **kwargs: Any) -> Any:
        if state.trace is not None:
            state.trace.guards.append((self._changes, self._changes()))
        if self._stepping:
            return step(self, *args, **kwargs)
        given: tuple[Any, ...] = (self, *args)
        for hook in self._in_order("before"):
            changed = hook(self, given, kwargs)
            if changed is not None and not (isinstance(changed, tuple) and len(changed) == 2):
                raise ArgumentError(
                    f"{type(self).__name__}.step: a hook before it returned {changed!r:.60}: return None, or the pair "
                    "(args, kwargs)"
                )
            given, kwargs = changed or (given, kwargs)
        self._stepping = True
        try:
            result = step(*given, **kwargs)
        finally:
            self._stepping = False
        for hook in self._in_order("after"):
            hook(self, given, kwargs)
        return result

    return hooked
