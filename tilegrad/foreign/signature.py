"""Parse signatures: the parameters and results of a function in one line, checked before every call.

    signature ::= NAME "(" [parameter ("," parameter)*] ")" "->" result [# what it does]
    parameter ::= NAME ":" (tensor | DTYPE ["=" number])         DTYPE alone: a Python number
    tensor    ::= (DTYPE | VARIABLE) "[" [axis ("," axis)*] "]"
    axis      ::= "*" NAME | extent                              *s: any number of axes
    extent    ::= numbers and names with + - * // and brackets
    result    ::= tensor | "(" NAME ":" tensor ("," NAME ":" tensor)* ")" | "Tensor" | "list" | "None"

`float` is float32, as everywhere in tilegrad. A capitalised word is a dtype variable with one value per call: F... is
floating, I... integer, any other unconstrained.

>>> linear = parse("linear(x: F[*s, n], w: F[k, n], scale: double = 1.0) -> F[*s, k]  # x times w transposed")
>>> linear.doc, [p.name for p in linear.parameters]
('x times w transposed', ['x', 'w', 'scale'])
>>> from ..ir.dtype import float64
>>> found = linear.match([TensorType(float64, (7, 2, 3)), TensorType(float64, (5, 3))], (1.0,))
>>> dict(found.groups), dict(found.sizes)["n"], str(linear.outputs(found)[0])
({'s': (7, 2)}, 3, 'f64[7,2,5]')
"""

from __future__ import annotations

import re
from typing import NoReturn

from ..errors import SignatureError
from ..ir.dtype import DTYPES, DType
from ..ir.graph import TensorType as TensorType
from .patterns import (
    DEFAULT_RESULT,
    Axis,
    AxisGroup,
    ComputedExtent,
    DtypeVariable,
    Extent,
    ScalarPattern,
    SignatureParameter,
    TensorPattern,
    extent_names,
)
from .patterns import Signature as Signature
from .patterns import SignatureMatch as SignatureMatch

NAMED = {d.name: d for d in DTYPES} | {
    short: next(d for d in DTYPES if d.name == name)
    for short, name in {
        "float": "float32",
        "double": "float64",
        "half": "float16",
        "short": "int16",
        "int": "int32",
        "long": "int64",
    }.items()
}
TOKEN = re.compile(r"\s*(->|//|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\w+|[^\w\s])")
RESERVED = frozenset(
    "alignas asm auto bool break case catch char class const constexpr continue decltype default delete do double else "
    "enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept nullptr "
    "operator private protected public register return short signed sizeof static struct switch template this throw "
    "true try typedef typename union unsigned using virtual void volatile while call tg".split()
)
"""C++ keywords and names that generated code uses."""


def parse(text: str) -> Signature:
    """Parse a signature.

    >>> print(parse("saxpy(a: float, x: float[n], y: float[n]) -> float[n]"))
    saxpy(a: float32, x: float32[n], y: float32[n]) -> float32[n]
    >>> parse("f(x: flaot[n]) -> float[n]")
    Traceback (most recent call last):
        ...
    tilegrad.errors.SignatureError: there is no dtype flaot (did you mean float?)
        f(x: flaot[n]) -> float[n]
             ^^^^^
    """
    return _SignatureParser(text).signature()


def signatures(text: str) -> list[Signature]:
    """Parse several signatures, one per line; blank lines and lines that begin with # are skipped."""
    lines = [line.strip() for line in text.strip().splitlines()]
    found = [parse(line) for line in lines if line and not line.startswith("#")]
    if not found:
        raise SignatureError('a signature is wanted, as in "square(x: float[*s]) -> float[*s]"')
    names = [s.name for s in found]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice:
        raise SignatureError(f"there are two signatures for {twice}: give each function a name of its own")
    return found


class _SignatureParser:
    """Parses a line token by token."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise SignatureError(f"a signature is a text, not {type(text).__name__} {text!r:.60}")
        self.text, _, self.doc = text.strip().partition("#")
        self.text = self.text.rstrip()
        self.at = 0

    # --- tokens --------------------------------------------------------------------------------

    def peek(self) -> str:
        found = TOKEN.match(self.text, self.at)
        return found[1] if found else ""

    def take(self, wanted: str = "") -> str:
        found = TOKEN.match(self.text, self.at)
        word = found[1] if found else ""
        if wanted and word != wanted:
            self.refuse(f"{wanted!r} is wanted here", word)
        self.at = found.end() if found else self.at
        return word

    def took(self, word: str) -> bool:
        if self.peek() == word:
            self.take()
            return True
        return False

    def name(self, what: str) -> str:
        word = self.peek()
        if not word.isidentifier():
            self.refuse(f"{what} is wanted here", word)
        if word in RESERVED:
            self.refuse(f"{word} means something in C++ already: take another name", word)
        return self.take()

    def refuse(self, reason: str, word: str = "") -> NoReturn:
        start = len(self.text) - len(self.text[self.at :].lstrip())
        raise SignatureError(f"{reason}\n    {self.text}\n    {' ' * start}{'^' * max(1, len(word))}")

    # --- grammar -------------------------------------------------------------------------------

    def signature(self) -> Signature:
        name = self.name("the name of the function")
        self.take("(")
        parameters: list[SignatureParameter] = []
        while not self.took(")"):
            if parameters:
                self.take(",")
            parameters.append(self.parameter({p.name for p in parameters}))
        self.take("->")
        results, free = self.results({p.name for p in parameters})
        if self.peek():
            self.refuse("nothing more is expected", self.peek())
        made = Signature(name, tuple(parameters), results, free, self.doc.strip())
        self.known_names(made)
        return made

    def parameter(self, taken: set[str], result: bool = False) -> SignatureParameter:
        word = self.peek()
        if word in taken:
            self.refuse(f"there are two of the name {word}", word)
        name = self.name("a name")
        self.take(":")
        pattern = self.pattern(result)
        default = self.number() if isinstance(pattern, ScalarPattern) and self.took("=") else None
        return SignatureParameter(name, pattern, default)

    def element_type(self, word: str) -> DType | DtypeVariable:
        if word in NAMED:
            return NAMED[word]
        if word[:1].isalpha() and word[0].isupper():
            return DtypeVariable(word)
        from difflib import get_close_matches

        near = get_close_matches(word, NAMED, 1)
        self.refuse(f"there is no dtype {word}{f' (did you mean {near[0]}?)' if near else ''}", word)

    def pattern(self, result: bool = False) -> TensorPattern | ScalarPattern:
        before, word = self.at, self.peek()
        dtype = self.element_type(word)
        self.take()
        if not self.took("["):
            if isinstance(dtype, DtypeVariable) or result:
                self.at = before
                kind = "a result" if result else f"{word}, a dtype that varies,"
                self.refuse(f"{kind} needs its axes: {word}[n], or {word}[] for a single element", word)
            return ScalarPattern(dtype)
        axes: list[Axis] = []
        while not self.took("]"):
            if axes:
                self.take(",")
            if self.peek() == "*" and any(isinstance(a, AxisGroup) for a in axes):
                self.refuse("one * is enough: where would the first end?", "*")
            axes.append(AxisGroup(self.name("a name")) if self.took("*") else self.extent())
        return TensorPattern(dtype, tuple(axes))

    def results(self, taken: set[str]) -> tuple[tuple[SignatureParameter, ...], str]:
        word = self.peek()
        if word in (*Signature.OPEN, "None"):
            return (), "" if self.take() == "None" else word
        if not self.took("("):
            if DEFAULT_RESULT in taken:
                self.refuse(f"a single result is called {DEFAULT_RESULT}: give the argument another name", word)
            return (SignatureParameter(DEFAULT_RESULT, self.pattern(True)),), ""
        found: list[SignatureParameter] = []
        while not found or not self.took(")"):
            if found:
                self.take(",")
            found.append(self.parameter(taken | {p.name for p in found}, True))
        return tuple(found), ""

    def extent(self) -> Extent:
        left = self.product()
        while self.peek() in ("+", "-"):
            left = ComputedExtent(self.take(), left, self.product())
        return left

    def product(self) -> Extent:
        left = self.factor()
        while self.peek() in ("*", "//"):
            left = ComputedExtent(self.take(), left, self.factor())
        return left

    def factor(self) -> Extent:
        word = self.peek()
        if self.took("("):
            inner = self.extent()
            self.take(")")
            return inner
        if word.isdigit():
            return int(self.take())
        return self.name("the name or the number of an extent")

    def number(self) -> float | int:
        sign = -1 if self.took("-") else 1
        word = self.peek()
        if word in ("True", "False"):
            return int(self.take() == "True")
        try:
            value = float(word) if any(c in word for c in ".eE") else int(word)
        except ValueError:
            self.refuse("a number is wanted here", word)
        self.take()
        return sign * value

    def known_names(self, made: Signature) -> None:
        """Check that the extents and dtypes of results are determined by the arguments."""
        axes = [axis for p in made.parameters if isinstance(p.type, TensorPattern) for axis in p.type.axes]
        groups = {axis.name for axis in axes if isinstance(axis, AxisGroup)}
        names = {p.name for p in made.parameters if isinstance(p.type, ScalarPattern) and not p.type.dtype.is_float}
        names |= {name for axis in axes if not isinstance(axis, AxisGroup) for name in extent_names(axis)}
        types = [p.type.dtype for p in made.parameters if isinstance(p.type, TensorPattern)]
        for p in made.results:
            assert isinstance(p.type, TensorPattern)
            lacking = {f"*{a.name}" for a in p.type.axes if isinstance(a, AxisGroup) and a.name not in groups}
            lacking |= {n for a in p.type.axes if not isinstance(a, AxisGroup) for n in extent_names(a) - names}
            lacking |= (
                {p.type.dtype.name} if isinstance(p.type.dtype, DtypeVariable) and p.type.dtype not in types else set()
            )
            if lacking:
                self.at = 0
                self.refuse(
                    f"{', '.join(sorted(lacking))} of the result `{p.name}` is given by no argument: take it from the "
                    "axes of one, or from a number",
                    self.text,
                )
        clash = {p.name for p in (*made.parameters, *made.results) if p.is_tensor} & (names | groups)
        if clash or names & groups:
            word = sorted(clash | names & groups)[0]
            self.at = 0
            self.refuse(f"{word} is the name of two things: a tensor, an extent, or several axes", self.text)
