"""Names and types in CUDA C++."""

from __future__ import annotations

from ..ir.dtype import DTYPES, DType

C_TYPES = {
    "bool": "bool",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "float16": "half",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
}
TYPES: dict[DType, str] = {d: C_TYPES[d.name] for d in DTYPES if d.name in C_TYPES}

RESERVED = frozenset(
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr "
    "const_cast "
    "continue decltype default delete do double dynamic_cast else enum explicit export extern false float for "
    "friend goto if "
    "inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public "
    "register "
    "reinterpret_cast return short signed sizeof static static_assert static_cast struct switch template this throw "
    "true try "
    "typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq min max abs threadIdx "
    "blockIdx blockDim gridDim warpSize dim3 half bfloat16 float2 float4 int2 int4".split()
)


def cpp_name(name: str) -> str:
    """Rename a user's variable if its name is reserved in C++.

    >>> cpp_name("total"), cpp_name("double")
    ('total', 'double_')
    """
    return f"{name}_" if name in RESERVED else name
