"""Signatures of operators: the grammar of `foreign/signature.py` with two additions.

    parameter ::= NAME ":" tensor "?"                  a tensor or None
                | NAME ":" "(" tensor "," "..." ")"    any number of tensors, as a tuple or list
    name      ::= [NAMESPACE "::"] NAME

A call determines which tensors are present, its *form*. Each form has a plain signature, which checks dtypes and shapes
and infers those of the results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ..errors import ArgumentError, DTypeError, ShapeError, SignatureError
from ..foreign.patterns import ScalarPattern, SignatureParameter, TensorPattern, as_number
from ..foreign.signature import Signature, parse
from ..ir.dtype import bool_
from ..ir.graph import TensorType
from ..lazy.handle import Handle

ParameterKind = Literal["tensor", "optional", "many", "number"]
NAMESPACE = re.compile(r"\s*([A-Za-z_][\w.]*)::")
MANY = re.compile(r":(\s*)\(([^()]*),(\s*\.\.\.\s*)\)")


class ParameterPresence(NamedTuple):
    """One parameter in a call: its number of tensors, and its value if it is a number (`varies`: given as a tensor)."""

    tensors: int
    number: float | int | bool | None = None
    varies: bool = False


Form = tuple[ParameterPresence, ...]


class Declaration:
    """A parsed signature."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise SignatureError(f"an operator is declared by a text, not by {type(text).__name__}: "
                                 '@tilegrad.op("square(x: F[*s]) -> F[*s]")')  # fmt: skip
        found = NAMESPACE.match(text)
        self.namespace = found[1] if found else ""
        self.text = text.strip()
        rest = " " * (found.end() if found else 0) + text[found.end() if found else 0 :]
        self.kinds: dict[str, ParameterKind] = {}
        plain = MANY.sub(self._many, rest)
        plain = re.sub(r"\](\s*)\?", lambda m: "]" + m[1] + " ", plain)
        try:
            self.whole = parse(plain)
        except SignatureError as error:
            read = plain.strip().partition("#")[0].rstrip()
            raise SignatureError(str(error.args[0]).replace(read, self.text)) from None
        if self.whole.open or not self.whole.results:
            raise SignatureError(f"{self.whole.name}: an operator says what it gives, as in -> F[*s]\n    {self.text}")
        marked = dict.fromkeys(self._named(MANY, rest), "many")
        marked |= dict.fromkeys(re.findall(r"(\w+)\s*:\s*\w+\s*\[[^\]]*\]\s*\?", rest), "optional")
        for p in self.whole.parameters:
            self.kinds[p.name] = marked.get(p.name, "tensor" if p.is_tensor else "number")  # type: ignore[assignment]
        self.parameters = self.whole.parameters
        self.forms: dict[Form, Signature] = {}

    @staticmethod
    def _many(found: re.Match[str]) -> str:
        return f":{found[1]} {found[2]} {' ' * len(found[3])} "

    @staticmethod
    def _named(pattern: re.Pattern[str], text: str) -> list[str]:
        """Return the parameter names before each match of a pattern."""
        before = (re.search(r"(\w+)\s*$", text[: m.start()]) for m in pattern.finditer(text))
        return [m[1] for m in before if m]

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def results(self) -> tuple[SignatureParameter, ...]:
        return self.whole.results

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], Form]:
        """Return the tensors of a call in parameter order, and the call's form."""
        given = self.by_name(args, kwargs) if kwargs or len(args) != len(self.parameters) else args
        tensors: list[Any] = []
        form: list[ParameterPresence] = []
        for p, value in zip(self.parameters, given, strict=True):
            kind = self.kinds[p.name]
            if kind == "number":
                form.append(self._number(p, value, tensors))
            elif kind == "optional" and value is None:
                form.append(ABSENT)
            elif kind == "many":
                form.append(self._several(p, value, tensors))
            else:
                tensors.append(self._tensor(p.name, value))
                form.append(SINGLE)
        return tensors, tuple(form)

    def by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of a call in parameter order, with defaults."""
        optional = [name for name, kind in self.kinds.items() if kind == "optional"]
        return self.whole.by_name(args, kwargs, self.text, optional)

    def _tensor(self, name: str, value: Any) -> Any:
        if isinstance(value, Handle):
            return value
        what = "None" if value is None else f"{type(value).__name__} {value!r:.40}"
        remedy = (
            f"it is not optional: write `{name}: ...[...]?` if it may be left out"
            if value is None
            else f"give a tensor, as in tilegrad.tensor({name})"
        )
        raise ArgumentError(f"{self.name}: `{name}` is {what}; {remedy}: {self.text}")

    def _several(self, p: SignatureParameter, value: Any, tensors: list[Any]) -> ParameterPresence:
        if not isinstance(value, tuple | list):
            raise ArgumentError(
                f"{self.name}: `{p.name}` is {type(value).__name__}; it takes a tuple or a list of tensors: {self.text}"
            )
        tensors += [self._tensor(f"{p.name}[{n}]", x) for n, x in enumerate(value)]
        return ParameterPresence(len(value))

    def _number(self, p: SignatureParameter, value: Any, tensors: list[Any]) -> ParameterPresence:
        assert isinstance(p.type, ScalarPattern)
        if isinstance(value, Handle):
            if value._value.shape or value._value.dtype is bool_:
                raise DTypeError(
                    f"{self.name}: `{p.name}` is a tensor of {value._value.type}; the signature says {p}, a Python "
                    f"number: {p.name}.item() is one"
                )
            tensors.append(value)
            return VARIES
        if p.type.dtype is bool_:
            if value not in (0, 1):
                raise DTypeError(f"{self.name}: `{p.name}` is {value!r:.40}; the signature says bool: True or False")
            return ParameterPresence(0, bool(value))
        return ParameterPresence(0, as_number(value, p.type.dtype, self.name, p.name))

    def plain(self, form: Form) -> Signature:
        """Return the plain signature of a form, with the tensors that are present."""
        found = self.forms.get(form)
        if found is None:
            parameters: list[SignatureParameter] = []
            for p, present in zip(self.parameters, form, strict=True):
                if self.kinds[p.name] == "many":
                    parameters += [SignatureParameter(f"{p.name}[{n}]", p.type) for n in range(present.tensors)]
                elif present.varies:
                    assert isinstance(p.type, ScalarPattern)
                elif present.tensors or present.number is not None:
                    parameters.append(p)
            found = Signature(self.name, tuple(parameters), self.results, "", self.whole.doc)
            self.forms[form] = found
        return found

    def types(self, tensors: Sequence[TensorType], form: Form) -> tuple[TensorType, ...]:
        """Infer the types of the results, or raise an error that names the argument."""
        signature = self.plain(form)
        counted = [t for t, varies in zip(tensors, self.varying(form), strict=True) if not varies]
        numbers = [x.number for x in form if x.number is not None]
        match = signature.match(counted, numbers)
        try:
            return signature.outputs(match)
        except KeyError as missing:
            raise ShapeError(
                f"{self.name}: {missing.args[0]} of a result is given by an argument that is not there in this call: "
                f"{self.text}"
            ) from None

    def varying(self, form: Form) -> list[bool]:
        """Whether each tensor of a call stands for a number."""
        return [present.varies for present in form for _ in range(present.tensors)]

    def arguments(self, form: Form, tensors: Sequence[Any]) -> list[Any]:
        """Rebuild the arguments of a form from tensors."""
        rest = iter(tensors)
        made: list[Any] = []
        for p, present in zip(self.parameters, form, strict=True):
            if self.kinds[p.name] == "many":
                made.append(tuple([next(rest) for _ in range(present.tensors)]))
            else:
                made.append(next(rest) if present.tensors else present.number)
        return made

    def names(self, form: Form) -> list[str]:
        """Name each tensor of a call."""
        made: list[str] = []
        for p, present in zip(self.parameters, form, strict=True):
            many = self.kinds[p.name] == "many"
            made += [f"{p.name}[{n}]" if many else p.name for n in range(present.tensors)]
        return made

    def pattern(self, name: str) -> TensorPattern | ScalarPattern:
        """Return the type pattern of a parameter."""
        return next(p.type for p in self.parameters if p.name == name)

    def __str__(self) -> str:
        return self.text


ABSENT, SINGLE, VARIES = ParameterPresence(0), ParameterPresence(1), ParameterPresence(1, None, True)
