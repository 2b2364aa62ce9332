"""Export networks, run them without their Python source, and save and load them as one file.

An exported network is a module on recorded graphs (`nn/graph_module.py`). Where nothing is recorded for gradients it
runs as one compiled program for all sizes that vary; otherwise its ops are recorded, and it is trained like any module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, ShapeError, TilegradError
from ..functions.creation import ones, zeros
from ..ir.graph import TensorType
from ..ir.location import Location, working_for
from ..ir.size import Dim, Size
from ..jitted.function import Jitted
from ..jitted.signature import CallArguments
from ..jitted.specialised import Specialised
from ..lazy.handle import mode, state
from ..nn.graph_module import GraphModule, NetworkGraph, input_name
from ..nn.module import Module
from ..nn.parameter import Parameter
from ..serialization.files import File, Source
from ..tensor import Tensor
from . import program_file
from .network_parser import parse_network
from .network_printer import HEADER, Network, TensorDeclaration, network_of
from .op_classes import check_sizes

PROGRAM_NAME = "network"
NETWORK_LINE = Location(compile("", "<network>", "exec"), 0)
"""The line of all values of a compiled network: programs that call it from other lines find what it was compiled to."""
MAX_CHECKED_SIZES = 4096
"""Number of kinds of sizes that are remembered as checked."""


class ExportedProgram(GraphModule):
    """A network that needs no Python source of the model.

    It is called, trained and saved like any module; printed, it is its text form.
    """

    def __init__(self, graph: NetworkGraph, tensors: Mapping[str, Tensor], *more: Any) -> None:
        super().__init__(graph, tensors, *more)
        self.__dict__.update(_compiled=_CompiledNetwork(self), _checked=set())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        leaves = self.current_graph.leaves_of(args, kwargs)
        self._check_sizes(self.current_graph.sizes_of(leaves))
        if mode.enabled or state.trace is not None or self.current_graph.updates:
            return super().forward(*args, **kwargs)
        return self.compiled(*leaves)

    def _check_sizes(self, sizes: Mapping[str, Dim]) -> None:
        """Check once for each kind of sizes that the ops stay within their inputs: a file may say anything."""
        checked = self.__dict__["_checked"]
        key = (self.current_graph, *sizes.values())
        if sizes and key not in checked and not any(isinstance(x, Size) for x in sizes.values()):
            check_sizes(self.current_graph.graph, sizes)  # type: ignore[arg-type]
            if len(checked) >= MAX_CHECKED_SIZES:
                checked.clear()
            checked.add(key)

    def save(self, file: File, code_for: Sequence[Any] = ()) -> None:
        """Write graph and tensors to one file; an existing file stays as it was until the new one is whole.

        `code_for` lists example arguments, each a tensor or a tuple: the machine code for such calls on this kind of
        machine goes into the file.
        """
        code = b""
        if code_for:
            from .machine_code import code_of

            code = code_of(str(self.network), [_types(self.example_leaves(x)) for x in code_for])
        program_file.write(file, self.network, {name: self.tensor(name) for name in self.tensor_names}, code)

    def save_c(self, file: str | Path, example: Any) -> Path:
        """Write a shared object for C (`net.so`) and a header (`net.h`), whose path is returned.

        It computes what calls with arguments like the example compute, to the bit, on one thread and without Python.
        """
        from .c_program import export_c

        return export_c(self, example, Path(file))

    def example_leaves(self, example: Any) -> list[Tensor]:
        """Check example arguments, a tensor or a tuple; return the tensors among them."""
        args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
        leaves = self.graph.leaves_of(args, {})
        self._check_sizes(self.graph.sizes_of(leaves))
        return leaves

    @property
    def compiled(self) -> Jitted[..., Any]:
        """The jitted function of the tensors of a call."""
        return self.__dict__["_compiled"]  # type: ignore[no-any-return]

    @property
    def argument_names(self) -> list[str]:
        """The names of the tensors of a call."""
        return [input_name(x) for x in self.graph.argument_inputs]

    @property
    def network(self) -> Network:
        """The graphs and the names of the tensors; it prints as text that `load_program` reads."""
        return network_of(self)

    def __str__(self) -> str:
        return str(self.network)


def _types(leaves: Sequence[Tensor]) -> list[tuple[str, list[int]]]:
    return [(x.dtype.name, [int(n) for n in x.shape]) for x in leaves]


class _CompiledNetwork(Jitted[..., Any]):
    """The compiled form of a network: sizes that vary are symbols from the first call on."""

    def __init__(self, network: ExportedProgram) -> None:
        def call(*leaves: Tensor) -> Any:
            graph = network.current_graph
            arguments, rest = {}, iter(leaves)
            for name, tree in graph.arguments.items():
                arguments[name] = program_file.filled(tree, rest)
            return GraphModule.forward(network, **arguments)

        call.__name__ = call.__qualname__ = PROGRAM_NAME
        super().__init__(call)
        self.network = network

    def _specialise(self, call: CallArguments) -> Specialised:
        with working_for(NETWORK_LINE):
            return self._specialise_anywhere(call)

    def _specialise_anywhere(self, call: CallArguments) -> Specialised:
        types = [x.value.type if isinstance(x, Tensor) else None for x in call.leaves]
        symbolic: list[TensorType | None] = [x.type for x in self.network.current_graph.argument_inputs]
        if symbolic != types and not any(_has_one(x, y) for x, y in zip(types, symbolic, strict=True)):
            try:
                made = self._traced(call, symbolic)
            except (TilegradError, ValueError, TypeError, AssertionError):
                return super()._specialise(call)  # some ops must know their sizes
            self.programs.insert(0, made)
            return made
        return super()._specialise(call)


def _has_one(type: TensorType | None, symbolic: TensorType | None) -> bool:
    """Whether a size that varies is 1 in a call: symbols are larger."""
    if type is None or symbolic is None:
        return True
    return any(isinstance(s, Size) and n == 1 for n, s in zip(type.shape, symbolic.shape, strict=True))


def export(
    model: Module,
    example: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic: Mapping[str, Any] | None = None,
) -> ExportedProgram:
    """Record a network as a graph with its tensors; `save` writes it to one file.

    `example` is the tensor, or the tuple of arguments, that the network is called with once. `dynamic` names the sizes
    that vary, by argument and axis. The tensors are shared with the model.

    >>> import tilegrad as tg
    >>> program = export(tg.nn.Linear(2, 1), tg.ones(3, 2), dynamic={"input": {0: "n"}})
    >>> program(tg.ones(5, 2)).shape
    (5, 1)
    """
    from ..nn.record import recorded  # not loaded where programs are run

    if not isinstance(model, Module):
        raise ArgumentError(f"export: a module is wanted, not {type(model).__name__}")
    args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    net = recorded(model, args, kwargs, dynamic)
    tensors = {name: net.tensor(name) for name in net.tensor_names}
    made = ExportedProgram(net.graph, tensors, net.training_graph, net.unsaved)
    return made.train(model.training)


def load_program(file: File, *, trust_code: bool = False) -> ExportedProgram:
    """Load an exported network: a saved program, or text that a person wrote. It is in evaluation mode.

    Nothing in the file is executed, unless `trust_code` says that its machine code may be: then nothing is compiled on
    the kind of machine that it was saved on. The tensors of a saved program are mapped: processes share their memory.
    Those of a text are initialised anew: `uniform` is the default of matrices, `zeros` of vectors.
    """
    with Source(file) as source:
        is_text = source.read(0, min(source.size, len(HEADER))) == HEADER.encode()
        text = source.read(0, source.size) if is_text else b""
        name = source.name
    if is_text:
        network = parse_network(program_file.decoded(text, name), name)
        tensors = {n: initial(t) for n, t in network.tensors.items() if t.type is not None}
    else:
        network, tensors = program_file.read(file, trust_code)
    return program_of(network, tensors)


def program_of(network: Network, tensors: Mapping[str, Tensor]) -> ExportedProgram:
    """Put a network and its tensors together."""
    made: dict[str, Tensor] = {}
    for name, declared in network.tensors.items():
        if declared.kind == "same":
            made[name] = made[declared.same_as]
        elif declared.kind in ("parameter", "frozen"):
            made[name] = Parameter(tensors[name], declared.kind == "parameter")
        else:
            made[name] = tensors[name]
    unsaved = [name for name, declared in network.tensors.items() if declared.kind == "unsaved"]
    return ExportedProgram(network.graph, made, network.training_graph, unsaved).eval()


def initial(declared: TensorDeclaration) -> Tensor:
    """Make a tensor of a network that was written by hand: matrices uniform by the number of their inputs."""
    type = declared.type
    assert type is not None
    shape: Any = type.shape
    kind = declared.initial or ("uniform" if len(shape) > 1 and type.dtype.is_float else "zeros")
    if kind != "uniform":
        return (ones if kind == "ones" else zeros)(*shape, dtype=type.dtype, device=type.device)
    fan_in = 1
    for extent in shape[1:]:
        fan_in *= extent
    if not fan_in or not type.dtype.is_float:
        raise ShapeError(f"a tensor {type} cannot be uniform by the number of its inputs")
    bound = float(fan_in) ** -0.5
    return zeros(*shape, dtype=type.dtype, device=type.device).uniform_(-bound, bound)
