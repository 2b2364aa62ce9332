"""Read networks from text: the inverse of `network_printer`, for files that people write, and that may be damaged.

Each line is read by itself, nested brackets up to a bound. Whatever is wrong ends in an error with the number of the
line. Lines may call functions of `tilegrad.nn.functional` besides ops: they stand for the ops that they record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from ..errors import CheckpointError, TilegradError
from ..functions.views import flatten as flattened
from ..ir.dtype import dtype_named
from ..ir.graph import Graph, Input, TensorType, Value
from ..ir.node import amend
from ..ir.size import Dim, Size
from ..lazy.handle import shared
from ..nn import functional
from ..nn.graph_module import RANDOM, NetworkGraph
from ..tree import LEAF, Tree
from .line_tokens import DTYPES, WORDS, LineTokens
from .network_printer import HEADER, PLAIN_NAME, Network, TensorDeclaration
from .op_classes import CHECKS, check_value, op_class, op_names

MAX_LINE_CHARACTERS = 1_000_000
MAX_LINES = 1_000_000
FUNCTIONS = frozenset(
    "conv1d conv2d conv3d linear max_pool1d max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d "
    "softmax log_softmax silu elu leaky_relu hardswish hardtanh softplus layer_norm group_norm embedding pad "
    "scaled_dot_product_attention flatten".split()
)
"""Functions of `tilegrad.nn.functional` that lines may call."""
KINDS = ("parameter", "frozen", "buffer", "unsaved")
INITIALS = ("uniform", "zeros", "ones")


def parse_network(text: str, name: str = "the text") -> Network:
    """Read a network.

    >>> text = '''tilegrad network 1
    ... tensors:
    ...   fc.weight: parameter float32[10, 784]
    ... evaluate(x: float32[n, 784]) -> tensor:
    ...   h = linear(x, fc.weight)
    ...   y = softmax(h, dim=1)
    ...   return y
    ... '''
    >>> network = parse_network(text)
    >>> str(network) == str(parse_network(str(network)))
    True
    """
    reader = _NetworkReader(text, name)
    try:
        return reader.network()
    except TilegradError as problem:
        if isinstance(problem, CheckpointError):
            raise
        raise reader.fault(str(problem)) from problem
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as why:
        raise reader.fault(f"does not fit its arguments ({type(why).__name__})") from why


class _NetworkReader:
    """Reads line after line; `number` is that of the current one."""

    def __init__(self, text: str, name: str) -> None:
        self.name, self.number = name, 0
        self.lines = self._numbered(text)
        self.line = LineTokens("", self.fault)
        self.tensors: dict[str, TensorDeclaration] = {}

    def fault(self, words: str) -> CheckpointError:
        return CheckpointError(f"{self.name}: line {self.number} {words}")

    def _numbered(self, text: str) -> Iterator[LineTokens]:
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            self.number = number
            if number > MAX_LINES or len(line) > MAX_LINE_CHARACTERS:
                raise self.fault("is too many or too long")
            made = LineTokens(line, self.fault)
            if made.tokens:
                yield made

    def advance(self) -> bool:
        self.line = next(self.lines, LineTokens("", self.fault))
        return bool(self.line)

    def network(self) -> Network:
        if not self.advance() or " ".join(text for _, text in self.line.tokens) != HEADER:
            raise self.fault(f"is not {HEADER!r}: this is no network, or one of another version")
        self.advance()
        if self.line.peek() != "tensors":
            raise self.fault("is not 'tensors:'")
        self._end_after("tensors", ":")
        while self.advance() and self.line.peek() not in ("evaluate", "train"):
            self.tensor()
        graphs: dict[str, NetworkGraph] = {}
        while self.line:
            mode = self.line.word()
            if mode not in ("evaluate", "train") or mode in graphs:
                raise self.fault(f"has {mode!r:.40} where 'evaluate' or 'train' begins, each once")
            graphs[mode] = _GraphReader(self).graph()
        if "evaluate" not in graphs:
            raise self.fault("ends the network, which has no 'evaluate(...)'")
        ends = [(graph.arguments, graph.results) for graph in graphs.values()]
        if ends[0] != ends[-1]:
            raise self.fault("ends a network whose two graphs have other arguments or results")
        return Network(self.tensors, graphs["evaluate"], graphs.get("train"))

    def _end_after(self, *marks: str) -> None:
        for mark in marks:
            self.line.want(mark)
        self.end()

    def end(self) -> None:
        if self.line:
            raise self.fault(f"has {self.line.peek()!r:.40} behind its end")

    def check_name(self, name: str) -> None:
        parts = name.split(".")
        if name in self.tensors or "" in parts or name == RANDOM:
            raise self.fault(f"declares {name!r:.60}, which is declared already or no name")
        outer = [".".join(parts[:n]) for n in range(1, len(parts))]
        if any(path in self.tensors for path in outer) or any(known.startswith(name + ".") for known in self.tensors):
            raise self.fault(f"declares {name!r:.60}, of which one part is a tensor itself")

    def tensor(self) -> None:
        line, name = self.line, self.line.word()
        self.check_name(name)
        if line.take("="):
            same = line.word()
            if same not in self.tensors or self.tensors[same].type is None:
                raise self.fault(f"says that {name!r:.60} is {same!r:.60}, which is no tensor before it")
            self.tensors[name] = TensorDeclaration("same", None, same)
        else:
            line.want(":")
            kind, type = line.word(), line.type()
            initial = line.word() if line.take("=") else ""
            if kind not in KINDS or (initial and initial not in INITIALS):
                raise self.fault(f"has {kind!r:.40} {initial!r:.40}: it is {', '.join(KINDS)}, = {', '.join(INITIALS)}")
            if any(isinstance(extent, Size) for extent in type.shape):
                raise self.fault(f"declares {name!r:.60} with a size that varies")
            self.tensors[name] = TensorDeclaration(kind, type, "", initial)
        self.end()


class _GraphReader:
    """Reads one graph."""

    def __init__(self, reader: _NetworkReader) -> None:
        self.reader = reader
        self.values: dict[str, Value] = {}
        self.inputs: list[Value] = []

    def graph(self) -> NetworkGraph:
        reader, line = self.reader, self.reader.line
        line.want("(")
        arguments: dict[str, Tree] = {}
        for name, tree in line.listed(")", self.argument)[0]:
            if name in arguments:
                raise reader.fault(f"has the argument {name!r:.60} twice")
            arguments[name] = tree
        line.want("->")
        results = line.structure(self.result)
        reader._end_after(":")
        unequal: list[tuple[Size, Dim]] = []
        while reader.advance() and (line := reader.line).peek() not in ("return", "evaluate", "train"):
            if line.take("where"):
                size = line.size()
                line.want("!=")
                unequal.append((size, line.size()))  # type: ignore[arg-type]
                if not isinstance(size, Size):
                    raise reader.fault("compares sizes of which the first does not vary")
            else:
                self.value()
            reader.end()
        if not line.take("return"):
            raise reader.fault("ends a graph without 'return'")
        outputs = self.outputs(line)
        reader.end()
        if len(outputs) != _leaves(results):
            raise reader.fault(f"returns {len(outputs)} tensors, and the head says {_leaves(results)}")
        updates: list[str] = []
        while reader.advance() and (line := reader.line).take("update"):
            updates.append(self.update(outputs))
            reader.end()
        self._check_symbols(outputs)
        given = tuple([x for x in self.inputs if x in self.arguments])
        read = tuple([x for x in self.inputs if x not in self.arguments])
        return NetworkGraph(Graph((*given, *read), tuple(outputs)), arguments, results, tuple(updates), tuple(unequal))

    @property
    def arguments(self) -> set[Value]:
        return {x for x in self.inputs if isinstance(x, Input) and x.name not in (*self.reader.tensors, RANDOM)}

    def outputs(self, line: LineTokens) -> list[Value]:
        found = []
        while line:
            found.append(self.read(line.word()))
            if not line.take(","):
                break
        return found

    def argument(self) -> tuple[str, Tree]:
        line, name = self.reader.line, self.reader.line.word()
        line.want(":")
        pending: list[TensorType] = []

        def leaf() -> Tree:
            pending.append(line.type())
            return LEAF

        tree = line.structure(leaf)
        for n, path in enumerate(_paths(name, tree)):
            taken = path in self.reader.tensors or path in self.values or path == RANDOM
            made = Input(pending[n], path + "_" * taken)
            if made.name in self.values or made.name in self.reader.tensors:
                raise self.reader.fault(f"has the argument {path!r:.60} twice")
            for extent in made.type.shape:
                if isinstance(extent, Size) and extent != Size.named(next(iter(extent.names()), "")):
                    raise self.reader.fault(f"has an argument of the size {extent}: it is a number or one symbol")
            amend(made, tracked=made.dtype.is_float)
            self.values[made.name] = made
            self.inputs.append(made)
        return name, tree

    def result(self) -> Tree:
        self.reader.line.want("tensor")
        return LEAF

    def read(self, name: str) -> Value:
        """Return the value of a name; tensors become inputs when they are first read."""
        if name in self.values:
            return self.values[name]
        declared = self.reader.tensors.get(name)
        if declared is not None and declared.type is None:
            return self.read(declared.same_as)
        if name == RANDOM:
            declared = TensorDeclaration("buffer", TensorType(dtype_named("int64"), (2,)))
        if declared is None or declared.type is None:
            raise self.reader.fault(f"reads {name!r:.60}, which is not there yet")
        made = self.values[name] = Input(declared.type, name)
        amend(made, tracked=declared.kind == "parameter" and made.dtype.is_float)
        self.inputs.append(made)
        return made

    def value(self) -> None:
        line = self.reader.line
        name = line.word()
        if name in self.values or name in self.reader.tensors or name == RANDOM:
            raise self.reader.fault(f"computes {name!r:.60}, which is there already")
        type = line.type() if line.take(":") else None
        line.want("=")
        op = line.word()
        line.want("(")
        given: list[Any] = []
        attributes: dict[str, Any] = {}
        line.listed(")", lambda: self.operand(given, attributes))
        cls = op_class(op)
        if cls is not None:
            made = self.applied(cls, given, attributes)
        elif op in FUNCTIONS:
            call = flattened if op == "flatten" else getattr(functional, op)
            made = call(*map(_wrapped, given), **{key: _wrapped(x) for key, x in attributes.items()}).value
        else:
            self.unknown(op)
        if type is not None and made.type != type:
            raise self.reader.fault(f"says {type}, but {op} makes {made.type}")
        amend(made, location=None)
        self.values[name] = made

    def unknown(self, op: str) -> NoReturn:
        from difflib import get_close_matches

        near = get_close_matches(op[:100], [*op_names(), *FUNCTIONS], 1)
        raise self.reader.fault(f"calls {op!r:.60}" + (f": did you mean {near[0]}?" if near else ", which is no op"))

    def operand(self, given: list[Any], attributes: dict[str, Any]) -> None:
        line = self.reader.line
        if line.peek(1) == "=":
            name, x = line.setting()
            if name in attributes:
                raise self.reader.fault(f"has {name!r:.40} twice")
            attributes[name] = x
        elif line.take("["):
            given.append(tuple(line.listed("]", lambda: self.read(line.word()))[0]))
        elif _is_name(line.peek()):
            given.append(self.read(line.word()))
        else:
            given.append(line.literal())

    def applied(self, cls: type[Value], given: list[Any], attributes: dict[str, Any]) -> Value:
        """Apply an op to its operands, after a check of both."""
        if len(given) != len(cls.input_fields):
            raise self.reader.fault(f"gives {cls.op} {len(given)} operands; it takes {len(cls.input_fields)}")
        for field, x in zip(cls.input_fields, given, strict=True):
            single = cls.annotations[field] == "Value"
            if not (isinstance(x, Value) if single else type(x) is tuple and all(isinstance(v, Value) for v in x)):
                raise self.reader.fault(
                    f"gives {cls.op} as {field} what is no {'tensor' if single else 'list of them'}"
                )
        for field, x in attributes.items():
            if field not in cls.attribute_fields or not CHECKS[cls.annotations[field]](_tupled(cls, field, x)):
                raise self.reader.fault(f"gives {cls.op} {field}={x!r:.60}, which does not fit")
        attributes = {field: _tupled(cls, field, x) for field, x in attributes.items()}
        made: Value = cls(**dict(zip(cls.input_fields, given, strict=True)), **attributes)
        check_value(made)
        if not CHECKS["TensorType"](made.type):
            raise self.reader.fault(f"computes {made.type}, which is too large or has a negative extent")
        return made

    def update(self, outputs: list[Value]) -> str:
        line, name = self.reader.line, self.reader.line.word()
        line.want("=")
        old, new = self.read(name), self.read(line.word())
        if old.type != new.type or (name != RANDOM and self.reader.tensors[name].kind not in ("buffer", "unsaved")):
            raise self.reader.fault(f"updates {name!r:.60} ({old.type}) with {new.type}: it is a buffer of that type")
        outputs.append(new)
        return name

    def _check_symbols(self, outputs: list[Value]) -> None:
        """Raise if a size is used that no argument determines."""
        known = {n for x in self.arguments for e in x.shape if isinstance(e, Size) for n in e.names()}
        for value in Graph(tuple(self.inputs), tuple(outputs)).values():
            for extent in value.shape:
                if isinstance(extent, Size) and not extent.names() <= known:
                    raise self.reader.fault(f"ends a graph with the size {extent}, which no argument has")


def _is_name(word: str) -> bool:
    """Whether a word is the name of a value rather than a literal."""
    return word[:1] in ("@", "%") or bool(PLAIN_NAME.match(word) and word not in WORDS and not DTYPES.fullmatch(word))


def _wrapped(x: Any) -> Any:
    return shared(x) if isinstance(x, Value) else x


def _tupled(cls: type[Value], field: str, x: Any) -> Any:
    """Write (3) for (3,), as a person would."""
    annotation = cls.annotations[field]
    several = annotation.startswith("tuple") or annotation in ("Shape", "Windows", "WindowAxes")
    return (x,) if several and not isinstance(x, tuple) else x


def _leaves(tree: Tree) -> int:
    return 1 if tree == LEAF else sum(map(_leaves, tree.parts))


def _paths(name: str, tree: Tree) -> Iterator[str]:
    """Yield the name of each tensor of an argument."""
    if tree == LEAF:
        yield name
    keys = tree.keys or range(len(tree.parts))
    for key, part in zip(keys, tree.parts, strict=True):
        yield from _paths(f"{name}.{key}", part)
