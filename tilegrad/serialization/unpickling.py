"""Interpret pickles without executing anything in them.

A pickle is a program for a stack machine that may call any function of Python. This one knows the operations of
protocols 2 to 5 that build numbers, strings, lists, tuples, sets and dicts. What is to be called is looked up in a
table of names, given by whoever uses the machine; a name outside it is an error, and nothing is ever imported.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..errors import CheckpointError, UnsafeFileError

MAX_NAME_BYTES = 512
MAX_PROTOCOL = 5
PLAIN = (str, float, bool, bytes, type(None))
"""Types of dict keys and set members whose hash is cached."""
MIN_COLLIDING_INT = 1 << 60
"""Integers below it have distinct hashes."""
MAX_KEY_BITS = 4096
"""Largest integer key, in bits: it is hashed anew each time."""
DEEPEST_KEY = 4
MAX_EQUAL_HASHES = 64
"""Largest number of keys of one dict with the same hash."""
MAX_OPERATIONS_PER_BYTE = 4
"""Operations per byte of a pickle, counting repeated mentions; a small pickle has `FREE_OPERATIONS` of them."""
FREE_OPERATIONS = 1 << 16
SIZED = (str, bytes, bytearray, tuple, list, dict, set)


class Constructor(NamedTuple):
    """A stand-in for a function or class that a pickle calls."""

    name: str
    make: Callable[..., Any]
    of_members: bool = False
    """Whether it hashes the members of its list argument."""


class Unpickler:
    """Read pickles from bytes, one after the other."""

    def __init__(
        self, file: str, data: bytes | memoryview, known: Mapping[str, Any], persistent: Callable[[Any], Any]
    ) -> None:
        self.file = file
        self.data = memoryview(data)
        self.known = known
        self.persistent = persistent
        self.place = 0
        self.work = MAX_OPERATIONS_PER_BYTE * len(self.data) + FREE_OPERATIONS
        self.crowds: dict[tuple[int, int], int] = {}

    def load(self) -> Any:
        """Return the next object."""
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        """Stacks below the open marks."""
        self.memo: dict[int, Any] = {}
        begin = self.place
        try:
            while True:
                (code,) = self.take(1)
                if code == STOP:
                    break
                operation = OPERATIONS.get(code)
                if operation is None:
                    raise self.fault(f"has the operation {bytes([code])!r}, which tensors do not need")
                operation(self)
            (result,) = self.stack
            if self.outer:
                raise ValueError("an open mark is left")
            return result
        except (LookupError, struct.error, TypeError, ValueError, ArithmeticError) as damage:
            if isinstance(damage, CheckpointError):
                raise
            where = f"byte {self.place:,} of its pickle, begun at {begin:,}"
            raise self.fault(f"is damaged at {where}: {str(damage)[:100]}") from damage

    def fault(self, reason: str) -> CheckpointError:
        return CheckpointError(f"{self.file} {reason}")

    def take(self, count: int) -> memoryview:
        """Return the next bytes of the pickle."""
        end = self.place + count
        if count < 0 or end > len(self.data):
            self.place = len(self.data)
            raise ValueError("it ends too early")
        found = self.data[self.place : end]
        self.place = end
        return found

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def marked(self) -> list[Any]:
        """Pop everything since the last mark."""
        items, self.stack = self.stack, self.outer.pop()
        return items

    def line(self) -> str:
        text = bytes(self.data[self.place : self.place + MAX_NAME_BYTES])
        length = text.index(b"\n")
        self.place += length + 1
        return text[:length].decode()

    def find(self, module: Any, name: Any) -> Any:
        """Return the stand-in for a name."""
        if type(module) is not str or type(name) is not str:
            raise TypeError("a name that is no string")
        full = f"{module}.{name}".replace("__builtin__.", "builtins.")
        if full not in self.known:
            if module == "torch" and name.endswith("Storage"):
                raise self.fault(f"has a {name.removesuffix('Storage')} tensor; tilegrad has no such elements")
            raise UnsafeFileError(
                f"{self.file} asks for {full:.120}, which would execute code. tilegrad loads tensors, numbers, "
                "strings, lists, tuples, sets and dicts, and executes nothing; save those only (of a model its "
                "state_dict())"
            )
        return self.known[full]

    def call(self, maker: Any, arguments: Any) -> Any:
        if not isinstance(maker, Constructor) or not isinstance(arguments, tuple):
            raise UnsafeFileError(f"{self.file} calls a {type(maker).__name__}, which is no function")
        self.spend(len(arguments) + sum([len(x) for x in arguments if isinstance(x, SIZED)]))
        if maker.of_members and arguments and type(arguments[0]) is list:
            self.keys(arguments[0], arguments[0])
        return maker.make(*arguments)

    def spend(self, operations: int) -> None:
        """Raise for work out of proportion to the pickle's size: a few bytes may mention a long object again."""
        self.work -= operations
        if self.work < 0:
            raise self.fault("mentions long things again and again, more often than a file of this size can need")

    def keys(self, found: Sequence[Any], owner: object) -> Sequence[Any]:
        """Check the keys of a dict or members of a set; raise where hashing would take longer than reading."""
        for x in found:
            if type(x) in PLAIN or (type(x) is int and -MIN_COLLIDING_INT < x < MIN_COLLIDING_INT):
                continue
            self._check_key(x, DEEPEST_KEY)
            crowd = id(owner), hash(x)
            self.crowds[crowd] = self.crowds.get(crowd, 0) + 1
            if self.crowds[crowd] > MAX_EQUAL_HASHES:
                raise self.fault("has many keys in one dict that were made to have the same hash")
        return found

    def _check_key(self, x: Any, depth: int) -> None:
        self.spend(1)
        if type(x) is tuple and depth:
            for y in x:
                self._check_key(y, depth - 1)
        elif type(x) is int and x.bit_length() > MAX_KEY_BITS:
            raise self.fault(f"has an integer of {x.bit_length():,} bits as a key of a dict or in a set")
        elif type(x) not in (*PLAIN, int):
            raise self.fault(f"has a {type(x).__name__} as a key of a dict or in a set; numbers and strings may be")


# --- operations: each takes its arguments from the pickle and changes the stack -----------------


def _ignore(form: str, m: Unpickler) -> None:
    m.number(form)


def _protocol(m: Unpickler) -> None:
    if (protocol := m.number("<B")) > MAX_PROTOCOL:
        raise m.fault(f"is a pickle of protocol {protocol}; {MAX_PROTOCOL} is the newest that is known")


def _constant(x: Any, m: Unpickler) -> None:
    m.stack.append(x)


def _new(kind: Callable[[], Any], m: Unpickler) -> None:
    m.stack.append(kind())


def _number(form: str, m: Unpickler) -> None:
    m.stack.append(m.number(form))


def _long(form: str, m: Unpickler) -> None:
    m.stack.append(int.from_bytes(m.take(m.number(form)), "little", signed=True))


def _text(form: str, encoding: str, m: Unpickler) -> None:
    m.stack.append(str(m.take(m.number(form)), encoding, "surrogatepass" if encoding == "utf-8" else "strict"))


def _bytes(form: str, kind: Callable[[memoryview], Any], m: Unpickler) -> None:
    m.stack.append(kind(m.take(m.number(form))))


def _mark(m: Unpickler) -> None:
    m.outer.append(m.stack)
    m.stack = []


def _pop(m: Unpickler) -> None:
    m.marked() if not m.stack else m.stack.pop()


def _pop_mark(m: Unpickler) -> None:
    m.marked()


def _duplicate(m: Unpickler) -> None:
    m.stack.append(m.stack[-1])


def _tuple(count: int, m: Unpickler) -> None:
    if len(m.stack) < count:
        raise ValueError("the stack is empty")
    m.stack[-count:] = [tuple(m.stack[-count:])]


def _gathered(kind: Callable[[list[Any]], Any], m: Unpickler) -> None:
    items = m.marked()
    m.stack.append(kind(items))


def _frozen(m: Unpickler) -> None:
    items = m.marked()
    m.stack.append(frozenset(m.keys(items, items)))


def _append(m: Unpickler) -> None:
    item = m.stack.pop()
    _list(m).append(item)


def _extend(m: Unpickler) -> None:
    items = m.marked()
    _list(m).extend(items)


def _list(m: Unpickler) -> list[Any]:
    if type(m.stack[-1]) is not list:
        raise TypeError("something is appended that is no list")
    return m.stack[-1]


def _put(m: Unpickler, items: list[Any]) -> None:
    target = m.stack[-1]
    if not isinstance(target, dict) or len(items) % 2:
        raise TypeError("something is given keys that is no dict")
    for key, value in zip(m.keys(items[::2], target), items[1::2], strict=True):
        target[key] = value


def _item(m: Unpickler) -> None:
    value, key = m.stack.pop(), m.stack.pop()
    _put(m, [key, value])


def _items(m: Unpickler) -> None:
    items = m.marked()
    _put(m, items)


def _dict(m: Unpickler) -> None:
    items = m.marked()
    m.stack.append({})
    _put(m, items)


def _members(m: Unpickler) -> None:
    items = m.marked()
    if type(m.stack[-1]) is not set:
        raise TypeError("something is given members that is no set")
    m.stack[-1].update(m.keys(items, m.stack[-1]))


def _remember(form: str, m: Unpickler) -> None:
    m.memo[m.number(form)] = m.stack[-1]


def _memoize(m: Unpickler) -> None:
    m.memo[len(m.memo)] = m.stack[-1]


def _recall(form: str, m: Unpickler) -> None:
    m.stack.append(m.memo[m.number(form)])


def _global(m: Unpickler) -> None:
    module = m.line()
    m.stack.append(m.find(module, m.line()))


def _stack_global(m: Unpickler) -> None:
    name, module = m.stack.pop(), m.stack.pop()
    m.stack.append(m.find(module, name))


def _call(m: Unpickler) -> None:
    arguments, maker = m.stack.pop(), m.stack.pop()
    m.stack.append(m.call(maker, arguments))


def _build(m: Unpickler) -> None:
    state, target = m.stack.pop(), m.stack[-1]
    if type(target) is not OrderedDict or not isinstance(state, dict):
        raise UnsafeFileError(f"{m.file} sets attributes of a {type(target).__name__}, which is not done")
    # PyTorch's state dicts have an attribute with versions of modules, which nobody here reads


def _persistent(m: Unpickler) -> None:
    m.stack.append(m.persistent(m.stack.pop()))


STOP = ord(".")
OPERATIONS: dict[int, Callable[[Unpickler], None]] = {
    0x80: _protocol,
    0x95: partial(_ignore, "<Q"),  # the length of what comes together
    ord("("): _mark,
    ord("0"): _pop,
    ord("1"): _pop_mark,
    ord("2"): _duplicate,
    ord("N"): partial(_constant, None),
    0x88: partial(_constant, True),
    0x89: partial(_constant, False),
    ord("K"): partial(_number, "<B"),
    ord("M"): partial(_number, "<H"),
    ord("J"): partial(_number, "<i"),
    ord("G"): partial(_number, ">d"),
    0x8A: partial(_long, "<B"),
    0x8B: partial(_long, "<i"),
    ord("X"): partial(_text, "<I", "utf-8"),
    0x8C: partial(_text, "<B", "utf-8"),
    0x8D: partial(_text, "<Q", "utf-8"),
    ord("U"): partial(_text, "<B", "latin-1"),
    ord("T"): partial(_text, "<i", "latin-1"),
    ord("C"): partial(_bytes, "<B", bytes),
    ord("B"): partial(_bytes, "<I", bytes),
    0x8E: partial(_bytes, "<Q", bytes),
    0x96: partial(_bytes, "<Q", bytearray),
    ord(")"): partial(_constant, ()),
    ord("]"): partial(_new, list),
    ord("}"): partial(_new, dict),
    0x8F: partial(_new, set),
    0x85: partial(_tuple, 1),
    0x86: partial(_tuple, 2),
    0x87: partial(_tuple, 3),
    ord("t"): partial(_gathered, tuple),
    ord("l"): partial(_gathered, list),
    ord("d"): _dict,
    0x91: _frozen,
    ord("a"): _append,
    ord("e"): _extend,
    ord("s"): _item,
    ord("u"): _items,
    0x90: _members,
    ord("q"): partial(_remember, "<B"),
    ord("r"): partial(_remember, "<I"),
    0x94: _memoize,
    ord("h"): partial(_recall, "<B"),
    ord("j"): partial(_recall, "<I"),
    ord("c"): _global,
    0x93: _stack_global,
    ord("R"): _call,
    0x81: _call,
    ord("b"): _build,
    ord("Q"): _persistent,
}
"""Operations by the codes that Python's `pickletools` documents."""
