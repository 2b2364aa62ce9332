"""Print every stage between a line of user code and the machine code: `tilegrad.explain`.

e = tilegrad.explain(step, x, y)
print(e)              everything
e["fuse"]             one stage, by name; e.stages has all names
e.kernels["softmax"]  a kernel as a person would write it
e.assembly.full       every instruction
e.save("step.html")   one self-contained file
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ..compiler import Compiled, Stage
from ..config import settings
from ..deferred import part
from ..errors import ArgumentError
from ..ir.graph import Graph, Value
from ..ir.program import Foreign, Launch, Program, name_of, uses
from ..ir.program_printer import peak, show_program, show_step
from ..jitted.captured_state import display_name
from ..jitted.function import Jitted, PreparedProgram, jit
from ..jitted.memory_budget import memory, shown_bytes
from ..lazy.realize import plain_graph, structure
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import Device, device
from ..schedule.group import Group, Schedule
from ..schedule.replace import launch_line
from ..tensor import Tensor
from ..tiles.pipeline import PASSES, show_stages
from ..transform.autodiff import undifferentiated
from .choices import show_choices
from .lines import FileLine, LineKernels, places_of, show_lines, user_lines
from .listing import Listing
from .measure import Measured, duration, measure

SHOWN_LINES = 8
"""Largest number of the user's lines printed above a kernel."""


class Kernels:
    """The kernels of a program as source, each once; by name, or by the number of its launch."""

    def __init__(self, program: Program, places: Sequence[Sequence[FileLine]], on: Device) -> None:
        self.launches = [s for s in program.steps if isinstance(s, Launch | Foreign)]
        self.texts = [
            _text(program, launch, found, on)
            for launch, found in zip(self.launches, [*places, *[()] * len(self.launches)], strict=False)
        ]

    def __getitem__(self, which: str | int) -> str:
        if isinstance(which, int):
            return self.texts[which]
        for launch, text in zip(self.launches, self.texts, strict=True):
            if name_of(launch) == which:
                return text
        names = ", ".join(dict.fromkeys(map(name_of, self.launches)))
        raise KeyError(f"there is no kernel {which!r}; there are: {names}")

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def distinct(self) -> dict[str, tuple[list[int], Launch | Foreign]]:
        """Map each distinct text to the numbers of its launches."""
        found: dict[str, tuple[list[int], Launch | Foreign]] = {}
        for n, (launch, text) in enumerate(zip(self.launches, self.texts, strict=True)):
            found.setdefault(text, ([], launch))[0].append(n)
        return found

    def __str__(self) -> str:
        return "\n\n".join(self.distinct())


def _text(program: Program, launch: Launch | Foreign, places: Sequence[FileLine], on: Device) -> str:
    """Return the source of a kernel below the user's lines; of foreign code only the call."""
    if isinstance(launch, Foreign):
        return "\n".join([*_heading(places), f"# {show_step(launch)}"])
    said = [f"# {line}" for line in on.arithmetic(launch.kernel)]
    head = [launch_line(program, launch), *_heading(places), *said]
    return "\n".join([*head, _without_origin(launch)])


def _heading(places: Sequence[FileLine]) -> list[str]:
    """Format the user's lines as comments."""
    lines = [f"# {place}: {place.text}".rstrip(": ") for place in places[:SHOWN_LINES]]
    return lines + ([f"# and {len(places) - SHOWN_LINES} lines more"] if len(places) > SHOWN_LINES else [])


def _without_origin(launch: Launch) -> str:
    return str(launch.kernel.replaced(origin=""))


def _origin(step: Launch | Foreign, planned: Sequence[Launch | Foreign]) -> int:
    """Find the planned launch that a device made a launch from: it may have split one, or dropped others."""
    used = set(uses(step))
    found = [n for n, other in enumerate(planned) if other is step or used.issuperset(uses(other))]
    return max(found, key=lambda n: (planned[n] is step, len(uses(planned[n]))))


def show_kept(program: Program) -> str:
    """Print the program of values that are kept from call to call."""
    return f"done when a captured tensor has changed, not in each call:\n{show_program(program)}"


class Explanation:
    """The compilation of a function with every stage. Prints, and saves as one HTML file."""

    def __init__(
        self,
        name: str,
        compiled: Compiled,
        inputs: Callable[[], Sequence[DeviceBuffer]],
        sizes: Mapping[str, int],
        function: Callable[..., Any] | None = None,
        tier: str = "",
    ) -> None:
        self.name = name
        self.tier = tier
        """Which tier would run it now, and why; empty for functions that `jit` compiles."""
        self.compiled = compiled
        self.sizes = sizes
        self._inputs = inputs
        self._function = function

    @property
    def program(self) -> Program:
        """The program with its buffers."""
        return self.compiled.executable.program

    @property
    def graph(self) -> Graph:
        """The recorded graph, without what differentiation added."""
        return undifferentiated(self.differentiated)

    @property
    def differentiated(self) -> Graph:
        """The whole recorded graph before any pass, gradients included."""
        return self.compiled.stages["graph"].artifact  # type: ignore[return-value]

    @property
    def simplified(self) -> Graph:
        """The graph after the last pass."""
        graphs = [s.artifact for s in self.compiled.stages.made if isinstance(s.artifact, Graph)]
        return graphs[-1]

    @property
    def schedule(self) -> Schedule:
        """The groups in the order in which they were found, and why neighbours were not fused."""
        return self.compiled.stages["fuse"].artifact  # type: ignore[return-value]

    @property
    def device(self) -> Device:
        places = [v.device for v in (*self.differentiated.outputs, *self.differentiated.inputs)]
        return device(places[0] if places else "cpu")

    @cached_property
    def groups(self) -> list[Group]:
        """The groups of the launches, in the order of the launches."""
        schedule: Schedule = self.compiled.stages["order"].artifact  # type: ignore[assignment]
        groups = [g for g in schedule.groups if any(v.type.count != 0 for v in g.stored)]
        planned = [step for step in self.compiled.program.steps if isinstance(step, Launch | Foreign)]
        made = [step for step in self.program.steps if isinstance(step, Launch | Foreign)]
        return groups if planned == made else [groups[_origin(step, planned)] for step in made]

    @property
    def kept(self) -> Program | None:
        """The program that is computed from captured tensors alone, and run only when they have changed."""
        hoisted = self.compiled.executable.hoisted
        return None if hoisted is None else hoisted.executable.program

    @cached_property
    def places(self) -> list[list[FileLine]]:
        """The user's lines of each launch."""
        return places_of(self.simplified, self.groups)

    @cached_property
    def lines(self) -> list[LineKernels]:
        """The user's lines, each with the numbers of its kernels."""
        return user_lines(self._function, self.places)

    @cached_property
    def kernels(self) -> Kernels:
        return Kernels(self.program, self.places, self.device)

    def source(self) -> str:
        """Return the backend's source of each kernel (LLVM IR, CUDA C++)."""
        kernels = dict.fromkeys(s.kernel for s in self.kernels.launches if isinstance(s, Launch))
        return "\n\n".join(self.device.source(kernel) for kernel in kernels)

    @cached_property
    def assembly(self) -> Listing:
        """The machine code of the kernels: printed, the inner loops; `.full` has all."""
        launches = {s.kernel.name: s.kernel for s in reversed(self.kernels.launches) if isinstance(s, Launch)}
        texts = {name: self.device.assembly(kernel) for name, kernel in reversed(launches.items())}
        return Listing({name: text for name, text in texts.items() if text})

    @cached_property
    def measured(self) -> Measured:
        """The time of each launch, measured at first access on copies of the arguments."""
        return measure(self.compiled.executable, self.device, self._inputs(), self.groups, self.sizes)

    @property
    def passes(self) -> list[Stage]:
        """The stages between the differentiated graph and the groups."""
        return [s for s in self.compiled.stages.made if s.name != "graph" and isinstance(s.artifact, Graph)]

    @property
    def stages(self) -> dict[str, Callable[[], object]]:
        """All stages by name; each is computed when it is called."""
        found: dict[str, Callable[[], object]] = {"lines": lambda: show_lines(self.lines)}
        found["graph"] = lambda: self.graph
        found["differentiated"] = lambda: "(unchanged)" if self.graph is self.differentiated else self.differentiated
        for stage in self.compiled.stages.made:
            if stage.name != "graph" and isinstance(stage.artifact, Graph | Schedule):
                found[stage.name] = lambda s=stage: s.artifact if s.changed else "(unchanged)"  # type: ignore[misc]
        found["kernels"] = lambda: self.kernels
        found["choices"] = lambda: show_choices(
            self.kernels.launches, self.groups, self.device.target, self.compiled.lock
        )
        found["program"] = lambda: show_program(self.program)
        kept = self.kept
        if kept is not None:
            found["kept"] = lambda: show_kept(kept)
        found |= self._passes()
        if self.device.shows_source:
            found["source"] = self.source
        found["assembly"] = lambda: self.assembly if len(self.assembly) else f"({self.device.name} has none to show)"
        found["measured"] = lambda: self.measured
        if self.tier:
            found["tier"] = lambda: self.tier
        return found

    def _passes(self) -> dict[str, Callable[[], object]]:
        """Return the kernels after each pass of the device, by the name of the pass."""
        kernels = [(s.kernel, bool(s.users)) for s in self.program.steps if isinstance(s, Launch)]
        steps = [step for step in PASSES if step.target == self.device.kind]
        return {s.name: lambda s=s: show_stages(kernels, s.target)[s.name] for s in steps}  # type: ignore[misc]

    def __getitem__(self, name: str) -> Any:
        """Return a stage by its name."""
        if name not in self.stages:
            raise KeyError(f"there is no stage {name!r}; there are: {', '.join(self.stages)}")
        return self.stages[name]()

    def summary(self) -> str:
        """Summarise in one line: operations, kernels, memory, time."""
        operations = len(self.differentiated.values()) - len(self.differentiated.inputs)
        temporaries, rest = peak(self.program)
        whole = self.measured.whole
        kernels = f"{len(self.kernels)} kernel{'' if len(self.kernels) == 1 else 's'}"
        time = f", {duration(whole.seconds)} a run" if whole.seconds else ""
        share = f", {100 * whole.share:.0f} % of this machine's limit" if whole.share else ""
        taken = memory(self.compiled)
        again = f", {taken.values} values computed again ({taken.share:.1%} more work)" if taken.values else ""
        if taken.kept:
            again += f", {shown_bytes(taken.kept)} made of weights kept from call to call"
        return (
            f"{self.name}: {operations} operations in {kernels}{again}, "
            f"{temporaries + rest} bytes ({temporaries} for temporaries){time}{share}"
        )

    def text(self, full: bool = False) -> str:
        """Print all stages; with `full` every instruction, otherwise the inner loops."""
        parts = [self.summary()]
        for name, made in self.stages.items():
            shown = self.assembly.full if full and name == "assembly" and len(self.assembly) else made()
            parts.append(f"=== {name} ===\n{shown}")
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.text()

    def save(self, path: str | Path) -> Path:
        """Write everything to one HTML file that needs nothing but itself, or its data to a `.json` file."""
        from .step_model import save

        return save(path, [self])


def explain(thing: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Explain the compilation of a function for these arguments, or of a tensor that is not computed yet.

    >>> import tilegrad as tg
    >>> e = explain(lambda x: x.exp().sum(), tg.ones(4, 8, device="reference"))
    >>> print(e["fuse"])
    group 0: rows over one; along k0 in 4, k1 in 8
      let t0 = sum(exp(x0[k0, k1]) for k1 in 0:8)
      let t1 = sum(t0 for k0 in 0:4)
      store sum_1[] = t1
    """
    if isinstance(thing, Tensor):
        if args or kwargs:
            raise ArgumentError("explain: a tensor is explained alone; arguments go with a function")
        return of_tensors([thing])
    if isinstance(thing, Jitted):
        return of_prepared(thing.prepared(*args, **kwargs))
    if not callable(thing):
        raise ArgumentError(
            f"explain takes a function with its arguments, or a tensor that is not computed yet, not {type(thing)}"
        )
    function = thing if hasattr(thing, "__code__") or hasattr(thing, "__func__") else thing.__call__
    return of_prepared(jit(function).prepared(*args, **kwargs))


def of_prepared(prepared: PreparedProgram) -> Explanation:
    """Explain a program of a jitted function."""
    function = prepared.function.fn
    return Explanation(display_name(function), prepared.compiled, prepared.buffers, prepared.sizes, function)


def of_tensors(tensors: Sequence[Tensor]) -> Explanation:
    """Explain the program that would compute tensors."""
    from ..compiler import compile

    values = [x.value for x in tensors]
    if all(v.buffer is not None for v in values):
        raise ArgumentError(
            "explain: the tensor is in memory already, nothing is left to compute. Explain it before it is "
            "looked at, or explain the function that makes it: tilegrad.explain(fn, ...); what has a few elements is "
            "computed at once, unless TILEGRAD_TIER=compiled"
        )
    graph, buffers = plain_graph(values, [])
    tier = _tier_of(values)
    try:
        return Explanation("tensor", compile(graph), lambda: buffers, {}, tier=tier)
    except Exception as e:
        if tier:
            e.add_note(tier)
        raise


def _tier_of(values: Sequence[Value]) -> str:
    """Tell which tier would compute values, where this is not fixed."""
    explain_tier = part("first_tier.decision", "explain_tier")
    if explain_tier is None or settings().tier == "compiled":
        return ""
    key, order, _, _ = structure(values)
    return str(explain_tier(key, order, device(values[0].device)))
