"""Map object files into memory without LLVM, whose library takes longer to load than the first computations.

Generated code has the large code model: it reaches everything by addresses of 64 bits, so that its object files have
one kind of relocation. A file that has anything else is left to the linker of LLVM.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

HEADER = b"\x7fELF\x02\x01\x01"
"""Beginning of a file of the format ELF with 64 bits, little-endian."""
RELOCATABLE, X86_64 = 1, 62
PROGRAM, SYMBOLS, RELOCATIONS, ZEROS, SHORT_RELOCATIONS, UNWINDING = 1, 2, 4, 8, 9, 0x70000001
"""Kinds of sections; the last tells how to unwind the stack, which nothing does."""
WRITABLE, ALLOCATED, THREAD_LOCAL = 1, 2, 0x400
"""Flags of sections."""
ADDRESS_64 = 1
"""The relocation that stores the address of a symbol in a word."""
UNDEFINED, FIRST_RESERVED = 0, 0xFF00
"""Numbers of sections that symbols have: those from the second on are no sections."""
SECTION, SYMBOL, RELOCATION = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
WORD = struct.Struct("<Q")
MAX_WORD = (1 << 64) - 1
"""Addresses wrap around beyond it, as in the processor."""
PAGE = mmap.PAGESIZE


class UnknownForm(Exception):
    """An object file that LLVM has to link."""


class Section(NamedTuple):
    """An entry of the section table."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    item: int


class ObjectFile:
    """The sections and symbols of an object file."""

    def __init__(self, image: bytes) -> None:
        self.image = image
        if image[:7] != HEADER or struct.unpack_from("<HH", image, 16) != (RELOCATABLE, X86_64):
            raise UnknownForm
        (table,), (item, count) = WORD.unpack_from(image, 40), struct.unpack_from("<HH", image, 58)
        if item != SECTION.size or not count:
            raise UnknownForm
        self.sections = [Section(*SECTION.unpack_from(image, table + item * n)) for n in range(count)]
        (self.symbols,) = [s for s in self.sections if s.kind == SYMBOLS]
        self.placed: dict[int, int] = {}
        """Offsets of sections from the beginning of the code, later their addresses, by number."""

    def loaded(self, writable: bool) -> list[int]:
        """List the sections that code needs in memory: those that it writes to, or the others."""
        found = []
        for number, section in enumerate(self.sections):
            if section.flags & ALLOCATED and section.kind != UNWINDING:
                if section.kind not in (PROGRAM, ZEROS) or section.flags & THREAD_LOCAL:
                    raise UnknownForm
                if bool(section.flags & WRITABLE) is writable:
                    found.append(number)
        return found

    def contents(self, section: Section) -> bytes:
        return self.image[section.offset : section.offset + section.size]

    def symbol(self, number: int) -> tuple[int, int, int]:
        """Return the name of a symbol, as a place in the table of names, its section, and its place there."""
        name, _, _, section, value, _ = SYMBOL.unpack_from(self.image, self.symbols.offset + SYMBOL.size * number)
        if section >= FIRST_RESERVED:
            raise UnknownForm
        return name, section, value

    def name(self, place: int) -> str:
        start = self.sections[self.symbols.link].offset + place
        return self.image[start : self.image.index(b"\0", start)].decode()

    def exported(self) -> dict[str, int]:
        """Return the addresses of the symbols that other files may use."""
        found = {}
        for number in range(self.symbols.info, self.symbols.size // SYMBOL.size):
            name, section, value = self.symbol(number)
            if section in self.placed:
                found[self.name(name)] = self.placed[section] + value
        return found


class MappedCode:
    """Code in memory, executable and read-only but for its variables; it is unmapped with this object."""

    def __init__(self, memory: mmap.mmap, exported: Mapping[str, int]) -> None:
        self.memory = memory
        self.exported = exported
        """The addresses of symbols."""


class _MappedSections:
    """Places of sections in memory: what only code reads, then on pages of their own the variables."""

    def __init__(self, files: Sequence[ObjectFile]) -> None:
        self.files = files
        self.fixed = -(-self._place(False, 0) // PAGE) * PAGE
        end = max(PAGE, self._place(True, self.fixed))
        flags, access = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE
        self.memory = mmap.mmap(-1, end, flags=flags, prot=access)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for file in files:
            for number, place in file.placed.items():
                section = file.sections[number]
                if section.kind == PROGRAM:
                    self.memory[place : place + section.size] = file.contents(section)
                file.placed[number] = self.address + place

    def _place(self, writable: bool, end: int) -> int:
        """Lay out sections from a place on, and return where they end."""
        for file in self.files:
            for number in file.loaded(writable):
                section = file.sections[number]
                alignment = max(1, section.alignment)
                if alignment > PAGE:
                    raise UnknownForm
                file.placed[number] = start = -(-end // alignment) * alignment
                end = start + section.size
        return end

    def relocate(self, exported: Mapping[str, int], given: Mapping[str, int]) -> None:
        """Store the addresses of symbols where the code has them."""
        known = dict(given)
        for file in self.files:
            for table in file.sections:
                if table.kind not in (RELOCATIONS, SHORT_RELOCATIONS) or table.info not in file.placed:
                    continue
                if table.kind == SHORT_RELOCATIONS:
                    raise UnknownForm
                first = file.placed[table.info] - self.address
                for place, info, addend in RELOCATION.iter_unpack(file.contents(table)):
                    if info & 0xFFFFFFFF != ADDRESS_64:
                        raise UnknownForm
                    value = _address(file, info >> 32, exported, known) + addend
                    WORD.pack_into(self.memory, first + place, value & MAX_WORD)

    def protect(self) -> None:
        """Make what only code reads executable, and no longer writable."""
        protect = ctypes.CDLL(None).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if self.fixed and protect(self.address, self.fixed, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
            raise UnknownForm


def _address(file: ObjectFile, number: int, exported: Mapping[str, int], known: dict[str, int]) -> int:
    """Return the address of a symbol: of the files, given, or of a function that the process has."""
    name, section, value = file.symbol(number)
    if section != UNDEFINED:
        if section not in file.placed:
            raise UnknownForm
        return file.placed[section] + value
    word = file.name(name)
    if word in exported:
        return exported[word]
    if word not in known:
        try:
            function = getattr(ctypes.CDLL(None), word)
        except AttributeError:
            raise UnknownForm from None
        known[word] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return known[word]


def map_objects(images: Sequence[bytes], symbols: Mapping[str, int]) -> MappedCode | None:
    """Map object files into memory; `symbols` gives the addresses of names that they do not define. Return None if LLVM
    has to link them.
    """
    try:
        files = [ObjectFile(image) for image in images]
        sections = _MappedSections(files)
        exported: dict[str, int] = {}
        for file in files:
            own = file.exported()
            if not own.keys().isdisjoint(exported):
                return None  # LLVM tells which name is defined twice
            exported |= own
        sections.relocate(exported, symbols)
        sections.protect()
    except (UnknownForm, OSError, ValueError, IndexError, struct.error):  # the latter: a file that is cut off
        return None
    return MappedCode(sections.memory, exported)
