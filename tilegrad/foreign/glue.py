"""Generate the C++ around user code: entry points that unpack a call.

A body becomes a function; a function is called by its parameter names. The names of the signature are views (tensors),
numbers and extents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..errors import SignatureError
from ..ir.dtype import DType, bfloat16, bool_, float16, float32, float64, int32
from .build import TranslationUnit
from .definitions import Definition, definitions, without_comments
from .patterns import AxisGroup, DtypeVariable, Signature, TensorPattern, extent_names
from .source import ForeignSource

C_TYPES = {bool_: "bool", float16: "tg::half", bfloat16: "tg::bfloat16", float32: "float", float64: "double"}
PROLOGUE = '#include "tilegrad.hpp"\n'


def c_type(dtype: DType) -> str:
    """Return the C++ name of a dtype.

    >>> from ..ir.dtype import int64
    >>> c_type(int64), c_type(float16)
    ('int64_t', 'tg::half')
    """
    return C_TYPES.get(dtype) or f"{dtype.name}_t"


def symbol(name: str) -> str:
    """Return the exported symbol of a function."""
    return f"tilegrad_{name}"


def extents_of(signature: Signature) -> list[str]:
    """Return the extents of a signature in the order in which a call passes them, after its numbers."""
    axes = [axis for p in signature.tensors if isinstance(p.type, TensorPattern) for axis in p.type.axes]
    names = {n for axis in axes if not isinstance(axis, AxisGroup) for n in extent_names(axis)}
    return sorted(names - {p.name for p in signature.scalars})


def variables_of(signature: Signature) -> list[str]:
    """Return the dtype variables of a signature."""
    patterns = [p.type for p in (*signature.parameters, *signature.results)]
    found = [p.dtype.name for p in patterns if isinstance(p, TensorPattern) and isinstance(p.dtype, DtypeVariable)]
    return list(dict.fromkeys(found))


def default_dtypes(names: Sequence[str]) -> dict[str, DType]:
    """Return default dtypes for variables that a call leaves open."""
    return {name: int32 if name[0] == "I" else float32 for name in names}


class FunctionBinding:
    """Maps a signature to a function in a source; `definition` is None if the source is a body."""

    def __init__(self, signature: Signature, place: int, definition: Definition | None) -> None:
        self.signature = signature
        self.place = place
        self.definition = definition

    @property
    def symbol(self) -> str:
        raw = self.definition is not None and self.definition.takes_call
        return self.signature.name if raw else symbol(self.signature.name)


def bind_functions(
    signatures: Sequence[Signature], given: Sequence[ForeignSource], kind: str = "function"
) -> list[FunctionBinding]:
    """Find the function of each signature, or raise an error that lists those in the sources."""
    found = [definitions(source.text) for source in given]
    made = []
    for signature in signatures:
        place = next((n for n, defined in enumerate(found) if signature.name in defined), None)
        if place is not None:
            made.append(FunctionBinding(signature, place, found[place][signature.name]))
            continue
        names = [name for defined in found for name in defined]
        if len(signatures) == 1 and not names and len(given) == 1 and given[0].path is None:
            made.append(FunctionBinding(signature, 0, None))
            continue
        near = _near(signature.name, names)
        has = f"they define {', '.join(names)}" if names else "a body serves one signature alone, and is a text"
        raise SignatureError(
            f"no source defines the {kind} {signature.name}{f' (did you mean {near[0]}?)' if near else ''}: {has}. The "
            "names in signature and source must be the same"
        )
    return made


def add_glue(
    all: Sequence[FunctionBinding], given: Sequence[ForeignSource], dtypes: Mapping[str, DType]
) -> list[TranslationUnit]:
    """Return the translation units: each source with its glue."""
    known = "".join(f"typedef {c_type(dtype)} {name};\n" for name, dtype in sorted(dtypes.items()))
    units = []
    for n, source in enumerate(given):
        here = [plan for plan in all if plan.place == n]
        language = source.language or "c++"
        if language == "c":
            units.append(TranslationUnit(source, n, language="c"))
            if here:
                declared = "".join(_declared(p.definition) for p in here if p.definition)
                glue = ForeignSource("", None, source.origin)
                before = f'{PROLOGUE}{known}extern "C" {{\n{declared}}}\n'
                units.append(TranslationUnit(glue, n, before, "".join(entry(p, dtypes) for p in here), inner=""))
            continue
        bodies = [plan for plan in here if plan.definition is None]
        after = "".join(entry(plan, dtypes) for plan in here)
        if bodies:
            top, inner = split_preamble(source.text)
            before = f'{PROLOGUE}{known}#line 1 "<source {n}>"\n{top}\n{head(bodies[0].signature, dtypes)} {{\n'
            units.append(TranslationUnit(source, n, before, "}\n" + after, inner=inner))
        else:
            units.append(TranslationUnit(source, n, PROLOGUE + known, after))
    return units


def _declared(definition: Definition) -> str:
    return f"{definition.result} {definition};\n"


def split_preamble(text: str) -> tuple[str, str]:
    r"""Split a body from lines that must stand outside a function: preprocessor lines and leading `using`.

    >>> split_preamble("#include <math.h>\nout[0] = 1;")
    ('#include <math.h>\n', '\nout[0] = 1;')
    """
    top, inner = [], []
    plain, going_on, first = without_comments(text).split("\n"), False, True
    for line, code in zip(text.split("\n"), plain, strict=True):
        outside = going_on or line.lstrip().startswith("#") or (first and re.match(r"\s*using\s", line) is not None)
        going_on = outside and line.rstrip().endswith("\\")
        first = first and (outside or not code.strip())
        top.append(line if outside else "")
        inner.append("" if outside else line)
    return "\n".join(top), "\n".join(inner)


def _variables(signature: Signature, dtypes: Mapping[str, DType]) -> list[tuple[str, str, str]]:
    """Return what a function may take: type, name, and the expression that unpacks it."""
    found, tensors, numbers = [], 0, 0
    for p in signature.parameters:
        if isinstance(p.type, TensorPattern):
            element = c_type(_known_dtype(p.type.dtype, dtypes))
            found.append((f"tg::View<const {element}>", p.name, f"call->inputs + {tensors}"))
            tensors += 1
        else:
            member = "f" if p.type.dtype.is_float else "i"
            kind = c_type(p.type.dtype)
            found.append((kind, p.name, f"{kind}(call->scalars[{numbers}].{member})"))
            numbers += 1
    for n, name in enumerate(extents_of(signature)):
        found.append(("int64_t", name, f"call->scalars[{numbers + n}].i"))
    for n, p in enumerate(signature.results):
        assert isinstance(p.type, TensorPattern)
        found.append((f"tg::View<{c_type(_known_dtype(p.type.dtype, dtypes))}>", p.name, f"call->outputs + {n}"))
    return found


def _known_dtype(dtype: DType | DtypeVariable, dtypes: Mapping[str, DType]) -> DType:
    return dtype if isinstance(dtype, DType) else dtypes[dtype.name]


def head(signature: Signature, dtypes: Mapping[str, DType]) -> str:
    """Generate the head of the function around a body."""
    taken = ", ".join(f"const {type} {name}" for type, name, _ in _variables(signature, dtypes))
    kind = {"Tensor": "tg::Tensor", "list": "tg::List"}.get(signature.open, "void")
    return f"static {kind} {signature.name}({taken})"


def entry(plan: FunctionBinding, dtypes: Mapping[str, DType]) -> str:
    """Generate the entry point."""
    signature, definition = plan.signature, plan.definition
    if definition is not None and definition.takes_call:
        return ""
    variables = _variables(signature, dtypes)
    lines = [f"        const {type} {name}({given});" for type, name, given in variables]
    names = [name for _, name, _ in variables] if definition is None else arguments(signature, definition)
    call = f"{signature.name}({', '.join(names)})"
    returns = definition is not None and definition.returns
    if signature.open:
        call = f"tg::give({call})"
    elif returns and signature.results:
        results = [p.name for p in signature.results]
        call = (
            f"tg::assign_all({{{', '.join(results)}}}, {call})" if results[1:] else f"tg::assign({results[0]}, {call})"
        )
    body = "\n".join([*lines, f"        {call};"])
    return (
        f"TG_EXPORT int32_t {plan.symbol}(const tg_call *call) {{\n"
        f"    return tg::guarded(call, [&] {{\n{body}\n    }});\n}}\n"
    )


def _check_const(definition: Definition, name: str, pointer: str, is_input: bool, is_output: bool) -> None:
    """Raise if a pointer to an input may write, or one to a result may not."""
    if is_input and "const" not in pointer:
        raise SignatureError(
            f"{definition}: `{name}` is an input, which is only read: declare it const {pointer} {name}"
        )
    if is_output and "const" in pointer.partition("*")[0]:
        raise SignatureError(f"{definition}: `{name}` is a result, which is written: declare it without const")


def arguments(signature: Signature, definition: Definition) -> list[str]:
    """Return the argument list of a function, matched by parameter names."""
    inputs = {p.name for p in signature.tensors}
    outputs = {p.name for p in signature.results}
    known = [p.name for p in (*signature.parameters, *signature.results)] + extents_of(signature)
    for p in definition.parameters:
        if p.name not in known:
            near = _near(p.name, known)
            raise SignatureError(
                f"{definition}: `{p.name}` is nothing in {signature}{f' (did you mean {near[0]}?)' if near else ''}: "
                f"a parameter is the name of an argument, of a result ({', '.join(sorted(outputs)) or 'none'}), or of "
                "an extent"
            )
        if "*" in p.type:
            _check_const(definition, p.name, p.type, p.name in inputs, p.name in outputs)
    taken = {p.name for p in definition.parameters}
    returns = definition.returns
    if signature.open and not returns:
        raise SignatureError(f"{definition} returns nothing, and {signature} wants what it returns")
    if not signature.open and outputs - taken and (not returns or outputs & taken):
        lacking = ", ".join(sorted(outputs - taken))
        raise SignatureError(
            f"{definition} never gets `{lacking}`, a result of {signature}: take it as a parameter of that name, or "
            "return it"
        )
    return [p.name for p in definition.parameters]


def _near(name: str, known: Sequence[str]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(name, known, 1)
