"""Translate inline PTX in generated CUDA C++ to calls of functions in `host/host.h`.

An `asm` statement is parsed like the compiler does: template, outputs, inputs. Unknown instructions stay as they are,
and the host compiler rejects them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

ASM = re.compile(r"\basm(?: volatile)?\((.*?)\);", re.DOTALL)
KINDS = {"f16": "F16", "bf16": "BF16", "tf32": "TF32", "e4m3": "E4M3", "e5m2": "E5M2", "s8": "S8", "u8": "U8"}
CALLS = {
    r"": "",
    r"(prefetch|setmaxnreg|fence)\..*": "",
    r"cvt\.rn\.f16\.f32 (.*), (.*);": r"\1 = as_f16(\2);",
    r"cvt\.rn\.bf16\.f32 (.*), (.*);": r"\1 = as_bf16(\2);",
    r"cvt\.rn\.(b?f16)x2\.f32 (.*), (.*), (.*);": r"\2 = unsigned(as_\1(\3)) << 16 | as_\1(\4);",
    r"cvt\.f32\.f16 (.*), (.*);": r"\1 = from_f16(\2);",
    r"cvt\.rna\.tf32\.f32 (.*), (.*);": r"\1 = as_tf32(\2);",
    r"(max|min)\.NaN\.f32 (.*), (.*), (.*);": r"\2 = \1_of(\3, \4);",
    r"tanh\.approx\.f32 (.*), (.*);": r"\1 = tanhf(\2);",
    r"ex2\.approx\.ftz\.f32 (.*), (.*);": r"\1 = exp2f(\2);",
    r"rcp\.approx\.ftz\.f32 (.*), (.*);": r"\1 = 1.0f / (\2);",
    r"ld\.shared\.b32 (.*), \[(.*)\];": r"\1 = *(uint32*)(::shared + \2);",
    r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16 \{(\w+)\[0\].*\}, \[(.*)\];": r"matrices(\1, \2, false);",
    r"ldmatrix\.sync\.aligned\.m8n8\.x4\.trans\.shared\.b16 \{(\w+)\[0\].*\}, \[(.*)\];": r"matrices(\1, \2, true);",
    r"cp\.async\.c[ag]\.shared\.global \[(.*)\], \[(.*)\], (\d+);": r"::copy_later(\1, \2, \3);",
    r"cp\.async\.commit_group;": "::commit_copies();",
    r"cp\.async\.wait_group (.*);": r"::wait_copies(\1);",
    r"bar\.sync 1, (.*);": r"::consumer_barrier(\1);",
    r"mbarrier\.init\.shared::cta\.b64 \[(.*)\], (.*);": r"::barrier_start(\1, \2);",
    r"mbarrier\.arrive\.shared::cta\.b64 _, \[(.*)\];": r"::barrier_arrive(\1);",
    r"mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _, \[(.*)\], (.*);": (
        r"::barrier_expect(\1, \2), ::barrier_arrive(\1);"
    ),
    r"\{.*mbarrier\.try_wait\.parity\.shared::cta\.b64 done, \[(\w+)\], (\w+);.*\}": r"::barrier_wait(\1, \2);",
    r"cp\.async\.bulk\.tensor\.2d\..* \[(\w+)\], \[(.*), \{(\w+), (\w+)\}\], \[(\w+)\];": (
        r"::copy_box(2, \1, \2, \3, \4, 0, \5);"
    ),
    r"cp\.async\.bulk\.tensor\.3d\..* \[(\w+)\], \[(.*), \{(\w+), (\w+), (\w+)\}\], \[(\w+)\];": (
        r"::copy_box(3, \1, \2, \3, \4, \5, \6);"
    ),
    r"wgmma\.fence\..*": "::fence_products();",
    r"wgmma\.commit_group\..*": "::commit_products();",
    r"wgmma\.wait_group\.sync\.aligned (.*);": r"::wait_products(\1);",
}


def translated(text: str) -> str:
    """Return a source with all inline PTX translated."""
    return ASM.sub(lambda found: _call(found[1]) or found[0], text)


def _call(statement: str) -> str | None:
    template, *parts = _split(statement, ":")
    operands = [re.fullmatch(r'"[^"]*"\s*\((.*)\)', x.strip(), re.DOTALL)[1] for p in parts[:2] for x in _split(p, ",")]  # type: ignore[index]
    words = "".join(re.findall(r'"([^"]*)"', template)).replace("\\n", "\n")
    product = re.search(r"\b(wgmma\.mma_async|mma)\.sync\.aligned\.m(\d+)n(\d+)k\d+\.(.*?) (.*?);", words, re.DOTALL)
    if product is not None:
        more = re.search(r"setp\.ne\.b32 more, (%\d+), 0;", words)
        return _product(product, operands, operands[int(more[1][1:])] if more else "1")
    plain = re.sub(r"%(\d+)", lambda found: operands[int(found[1])], words)
    for pattern, call in CALLS.items():
        found = re.fullmatch(pattern, plain, re.DOTALL)
        if found:
            return found.expand(call) or ";"
    return None


def _product(found: re.Match[str], operands: Sequence[str], more: str) -> str:
    """Translate the product of a warp or a warpgroup."""
    _, _, columns, types, arguments = found.groups()
    kind = KINDS[next(word for word in reversed(types.split(".")) if word in KINDS)]

    def named(text: str) -> list[str]:
        return [operands[int(n)] for n in re.findall(r"%(\d+)", text)]

    sums, *rest = _split(arguments, ",")
    places = ", ".join(f"&{x}" for x in named(sums))
    if found[1] == "mma":
        a, b, _ = rest
        x, y = named(a)[0].partition("[")[0], ", ".join(named(b))
        return f"{{ void* at[] = {{{places}}}; warp_product({kind}, at, {x}, {y}); }}"
    left, right, _, *scaled = rest
    turned = scaled[2:]
    registers = f"{named(left)[0].partition('[')[0]}" if "{" in left else "nullptr"
    x = "0" if "{" in left else named(left)[0]
    flags = [flag.strip() for flag in turned]
    if len(flags) == 1:  # of a left operand in registers nothing is said
        flags = ["0", *flags]
    flags = flags or ["0", "0"]
    return (
        f"{{ void* at[] = {{{places}}}; group_product({kind}, {columns}, at, {registers}, {x}, {named(right)[0]}, "
        f"{more}, {', '.join(flags)}); }}"
    )


def _split(text: str, mark: str) -> list[str]:
    """Split at separators outside of strings and brackets."""
    parts, depth, quoted = [""], 0, False
    for at, c in enumerate(text):
        if c == '"' and text[at - 1] != "\\":
            quoted = not quoted
        if not quoted:
            depth += (c in "([{") - (c in ")]}")
        if c == mark and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += c
    return [p for p in parts if p.strip()] if mark == "," else parts
