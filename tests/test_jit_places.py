"""Every place that a value may come from, times every way it may change: the next call follows, as without jit."""

import contextlib
import io
import itertools
import os
import random
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import Tensor
from tilegrad.jitted.captured_state import outside

PLACES: dict[str, tuple[str, str, str]] = {
    # name: (what stands before, what the function reads, how another value is put there)
    "global": ("v = OLD", "v", "v = NEW"),
    "closure": (
        "def cell():\n    v = OLD\n    def put(x):\n        nonlocal v\n        v = x\n    return (lambda: v), put\n"
        "get, put = cell()", "get()", "put(NEW)",
    ),
    "default": ("def get(v=OLD):\n    return v", "get()", "get.__defaults__ = (NEW,)"),
    "keyword default": ("def get(*, v=OLD):\n    return v", "get()", "get.__kwdefaults__['v'] = NEW"),
    "list": ("a = [1, OLD]", "a[1]", "a[1] = NEW"),
    "dict": ("a = {'k': OLD}", "a['k']", "a['k'] = NEW"),
    "dict in a list in a tuple": ("a = (1, [{'k': OLD}])", "a[1][0]['k']", "a[1][0]['k'] = NEW"),
    "default list": ("def get(v=[OLD]):\n    return v[0]", "get()", "get.__defaults__[0][0] = NEW"),
    "defaultdict": ("a = collections.defaultdict(int, k=OLD)", "a['k']", "a['k'] = NEW"),
    "ordered dict": ("a = collections.OrderedDict(k=OLD)", "a['k']", "a['k'] = NEW"),
    "deque": ("a = collections.deque([OLD, 7])", "a[0]", "a[0] = NEW"),
    "UserDict": ("a = collections.UserDict(k=OLD)", "a['k']", "a['k'] = NEW"),
    "UserList": ("a = collections.UserList([OLD])", "a[0]", "a[0] = NEW"),
    "ChainMap": ("a = collections.ChainMap({}, {'k': OLD})", "a['k']", "a.maps[1]['k'] = NEW"),
    "dict behind a proxy": ("d = {'k': OLD}\na = types.MappingProxyType(d)", "a['k']", "d['k'] = NEW"),
    "list of 300": ("a = [1] * 300\na[77] = OLD", "a[77]", "a[77] = NEW"),
    "dict of 300": ("a = dict.fromkeys(range(300), 1)\na[77] = OLD", "a[77]", "a[77] = NEW"),
    "list in a list of 300": ("a = [[1]] * 300\na[77] = [OLD]", "a[77][0]", "a[77][0] = NEW"),
    "object in a list of 300": (
        "a = [types.SimpleNamespace(v=1) for _ in range(300)]\na[77].v = OLD", "a[77].v", "a[77].v = NEW"
    ),
    "deque of 300": ("a = collections.deque([1] * 300)\na[77] = OLD", "a[77]", "a[77] = NEW"),
    "attribute": ("class A: pass\na = A()\na.v = OLD", "a.v", "a.v = NEW"),
    "attribute of an attribute": ("class A: pass\na = A()\na.b = A()\na.b.v = OLD", "a.b.v", "a.b.v = NEW"),
    "object replaced": ("class A: pass\na = A()\na.v = OLD", "a.v", "a = A()\na.v = NEW"),
    "slot": ("class A:\n    __slots__ = ('v',)\na = A()\na.v = OLD", "a.v", "a.v = NEW"),
    "property": (
        "class A:\n    @property\n    def v(self):\n        return self.own\na = A()\na.own = OLD", "a.v", "a.own = NEW"
    ),
    "property replaced": (
        "old, new = OLD, [None]\nclass A:\n    v = property(lambda self: old)\na = A()", "a.v",
        "new = [NEW]\nA.v = property(lambda self: new[0])",
    ),
    "cached property": (
        "class A:\n    @functools.cached_property\n    def v(self):\n        return OLD\na = A()", "a.v", "a.v = NEW"
    ),
    "descriptor": (
        "class D:\n    def __get__(self, owner, kind):\n        return owner.own\nclass A:\n    v = D()\n"
        "a = A()\na.own = OLD", "a.v", "a.own = NEW",
    ),
    "class attribute": ("class A:\n    v = OLD\na = A()", "a.v", "A.v = NEW"),
    "class attribute of a base": ("class B:\n    v = OLD\nclass A(B): pass\na = A()", "a.v", "B.v = NEW"),
    "own attribute over that of the class": ("class A:\n    v = OLD\na = A()", "a.v", "a.v = NEW"),
    "attribute of the class itself": ("class A:\n    v = OLD", "A.v", "A.v = NEW"),
    "class method": (
        "class A:\n    v = OLD\n    @classmethod\n    def get(c):\n        return c.v", "A.get()", "A.v = NEW"
    ),
    "dataclass": ("@dataclasses.dataclass\nclass A:\n    v: object\na = A(OLD)", "a.v", "a.v = NEW"),
    "frozen dataclass": (
        "@dataclasses.dataclass(frozen=True)\nclass A:\n    v: object\na = A(OLD)", "a.v", "a = A(NEW)"
    ),
    "named tuple": ("N = collections.namedtuple('N', 'v')\na = N(OLD)", "a.v", "a = N(NEW)"),
    "enum": ("class E(enum.Enum):\n    a = 1\nE.a.v = OLD", "E.a.v", "E.a.v = NEW"),
    "partial": ("def get(v):\n    return v\np = functools.partial(get, OLD)", "p()", "p = functools.partial(get, NEW)"),
    "keyword of a partial": (
        "def get(v):\n    return v\np = functools.partial(get, v=OLD)", "p()", "p.keywords['v'] = NEW"
    ),
    "method": ("class A:\n    def get(self):\n        return self.v\na = A()\na.v = OLD", "a.get()", "a.v = NEW"),
    "bound method": (
        "class A:\n    def get(self):\n        return self.v\na = A()\na.v = OLD\nget = a.get", "get()", "a.v = NEW"
    ),
    "callable object": (
        "class A:\n    def __call__(self):\n        return self.v\na = A()\na.v = OLD", "a()", "a.v = NEW"
    ),
    "item of an object": (
        "class A:\n    def __getitem__(self, k):\n        return self.own[k]\na = A()\na.own = {'k': OLD}", "a['k']",
        "a.own['k'] = NEW",
    ),
    "__getattr__": (
        "class A:\n    def __getattr__(self, k):\n        return d[k]\nd = {'v': OLD}\na = A()", "a.v", "d['v'] = NEW"
    ),
    "getattr": ("class A: pass\na = A()\na.v = OLD", "getattr(a, 'v')", "a.v = NEW"),
    "getattr by a variable": ("class A: pass\na = A()\na.v = OLD\nname = 'v'", "getattr(a, name)", "a.v = NEW"),
    "attrgetter": ("class A: pass\na = A()\na.v = OLD\nget = operator.attrgetter('v')", "get(a)", "a.v = NEW"),
    "itemgetter": ("a = [OLD]\nget = operator.itemgetter(0)", "get(a)", "a[0] = NEW"),
    "vars": ("class A: pass\na = A()\na.v = OLD", "vars(a)['v']", "a.v = NEW"),
    "__dict__": ("class A: pass\na = A()\na.v = OLD", "a.__dict__['v']", "a.v = NEW"),
    "globals": ("v = OLD", "globals()['v']", "v = NEW"),
    "module": ("m = types.ModuleType('m')\nm.v = OLD", "m.v", "m.v = NEW"),
    "function of a module": (
        "m = types.ModuleType('m')\nexec('v = 0\\ndef get(): return v', m.__dict__)\nm.v = OLD", "m.get()", "m.v = NEW"
    ),
    "context variable": ("c = contextvars.ContextVar('c')\nc.set(OLD)", "c.get()", "c.set(NEW)"),
    "weak reference": ("class A: pass\na = A()\na.v = OLD\nw = weakref.ref(a)", "w().v", "a.v = NEW"),
    "attribute of a function": ("def g(): pass\ng.v = OLD", "g.v", "g.v = NEW"),
    "function replaced": (
        "old = OLD\ndef get():\n    return old", "get()", "new = [NEW]\ndef get():\n    return new[0]"
    ),
    "code replaced": (
        "old = OLD\ndef get():\n    return old\nnew = None\ndef other():\n    return new", "get()",
        "new = NEW\nget.__code__ = other.__code__",
    ),
    "method replaced": (
        "old = OLD\nclass A:\n    def get(self):\n        return old\na = A()", "a.get()",
        "new = [NEW]\nA.get = lambda self: new[0]",
    ),
    "name over a builtin": (
        "old = OLD\ndef abs_of(x):\n    return old if abs(-1) == 1 else new", "abs_of(1)",
        "new = NEW\nabs = lambda x: 2"
    ),
    "builtin replaced": (
        "import builtins\nbuiltins.found_value = lambda: OLD", "found_value()",
        "new = NEW\nbuiltins.found_value = lambda: new"
    ),
    "iterator": ("a = iter(range(99))", "(next(a), OLD)[1]", "OLD = NEW"),
    "wrapped": (
        "def get():\n    return v\n@functools.wraps(get)\ndef wrapped():\n    return get()\nv = OLD", "wrapped()",
        "v = NEW"
    ),
    "list in a closure of a lambda": ("a = [OLD]\nget = (lambda a: lambda: a[0])(a)", "get()", "a[0] = NEW"),
    "generator function": ("def each():\n    yield v\nv = OLD", "list(each())[0]", "v = NEW"),
    "comprehension": ("a = [OLD, 1]", "[y for y in a][0]", "a[0] = NEW"),
    "map": ("a = [OLD, 1]", "list(map(lambda y: y, a))[0]", "a[0] = NEW"),
    "map by a method": (
        "class A:\n    def of(self, y):\n        return self.v\na = A()\na.v = OLD", "list(map(a.of, [1]))[0]",
        "a.v = NEW"
    ),
    "reduce": ("a = [OLD, 1]", "functools.reduce(lambda p, q: p, a)", "a[0] = NEW"),
    "star arguments": ("a = [OLD]\ndef get(*v):\n    return v[0]", "get(*a)", "a[0] = NEW"),
    "exec": ("v = OLD", "eval('v')", "v = NEW"),
}  # fmt: skip

VALUES: dict[str, tuple[list[Any], str]] = {
    # name: (one value after the other, what is computed)
    "float": ([2.0, 3.0, 0.5, 2.0], "x * {0}"),
    "int": ([1, 2, 0, -3], "x * {0}"),
    "int to float": ([1, 0.5, 2, 0.25], "x * {0}"),
    "bool": ([True, False, True], "x * 2 if {0} else x * 3"),
    "text": (["a", "b", "a"], "x * 2 if {0} == 'a' else x * 3"),
    "none": ([None, 1, None], "x * 2 if {0} is None else x * 3"),
    "size": ([2, 3, 4, 2], "x.sum() * tg.ones({0})"),
    "tensor": ([tg.ones(2), tg.ones(2) * 3, tg.ones(1) * 5], "x * {0}"),
    "array": ([np.ones(2), np.full(2, 3.0), np.full(1, 5.0)], "x * tg.tensor({0})"),
    "element of an array": ([np.ones(2), np.full(2, 3.0)], "x * float({0}[0])"),
    "list": ([[1], [1, 2], [3]], "x * len({0}) + sum({0})"),
    "dict": ([{"k": 1}, {"k": 2}, {"n": 2}], "x * {0}.get('k', 9)"),
    "tuple": ([(1, 2), (1, 3)], "x * sum({0})"),
    "set": ([{1}, {1, 2}, {3}], "x * sum({0})"),
    "bytes": ([b"a", b"b"], "x * {0}[0]"),
    "range": ([range(2), range(3)], "x * len({0})"),
    "function": ([lambda *_: 2, lambda *_: 3], "x * {0}()"),
}

HEAD = (
    "import collections, contextvars, dataclasses, enum, functools, operator, types, weakref\nimport numpy as np\n"
    "import tilegrad as tg\n"
)


def shown(x: Any) -> Any:
    return x.tolist() if isinstance(x, tg.Tensor) else x


def story(place: str, value: str, jit: bool) -> list[Any]:
    """Call a function before and after a change; list its results."""
    before, read, put = PLACES[place]
    values, use = VALUES[value]
    names: dict[str, Any] = {"__name__": f"users_{place}", "OLD": values[0]}
    exec(f"{HEAD}{before}\ndef f(x):\n    return {use.format(read)}", names)
    f = tg.jit(names["f"]) if jit else names["f"]
    x = tg.arange(2).float() + 1
    results = [shown(f(x)), shown(f(x))]
    for new in values[1:]:
        names["NEW"] = new
        exec(put, names)
        results += [shown(f(x)), shown(f(x)), shown(f(x))]
    return results


SOME = ("float", "text", "tensor", "element of an array", "list")
EVERYWHERE = ("global", "closure", "list", "attribute", "default", "list of 300")
PAIRS = [(p, v) for p in PLACES for v in VALUES if v in SOME or p in EVERYWHERE]


@pytest.mark.parametrize(("place", "value"), PAIRS, ids="-".join)
def test_another_value_at_a_place(place: str, value: str) -> None:
    with contextlib.redirect_stderr(io.StringIO()):
        assert story(place, value, True) == story(place, value, False)


CHANGES: dict[str, tuple[str, str, list[str]]] = {
    # name: (what stands before, what the function gives, what happens between the calls)
    "array": ("a = np.ones(2)", "x * tg.tensor(a)", ["a[0] = 5", "a *= 3", "a[:] = 1"]),
    "array in an operator": ("a = np.ones(2, np.float32)", "x + tg.as_tensor(a)", ["a[0] = 5", "a *= 3"]),
    "element of an array": ("a = np.ones(2)", "x * a[0]", ["a[0] = 5", "a[0] = 1", "a[0] = 7"]),
    "sum of an array": ("a = np.ones(2)", "x * float(a.sum())", ["a[1] = 5", "a[1] = 6"]),
    "shape of an array": ("a = np.ones((1, 2))", "x * a.shape[0]", ["a.resize((2, 1))"]),
    "view of an array": ("whole = np.ones(4)\na = whole[1:3]", "x * tg.tensor(a)", ["whole[1] = 5", "whole[3] = 9"]),
    "array in a list": ("a = [np.ones(2)]", "x * tg.tensor(a[0])", ["a[0][0] = 5", "a[0] = np.zeros(2)"]),
    "array that cannot change": (
        "whole = np.ones(2)\na = whole.view()\na.flags.writeable = False", "x * tg.tensor(a)", ["whole[0] = 5"]
    ),
    "large array": ("a = np.ones(2**18)", "x * tg.tensor(a[:2])", ["a[0] = 5", "a[1] = 6"]),
    "array of objects": ("a = np.array([[1], 'b'], object)", "x * a[0][0]", ["a[0][0] = 5", "a[0] = [7]"]),
    "bytearray": ("a = bytearray(b'ab')", "x * a[0]", ["a[0] = 5", "a[0] = 1"]),
    "array.array": ("a = array.array('d', [1, 2])", "x * a[0]", ["a[0] = 5", "a[0] = 1"]),
    "length of a list": ("a = []", "x * len(a)", ["a.append(1)", "a.append(1)", "a.clear()"]),
    "length of a long list": ("a = [0] * 500", "x * len(a)", ["a.append(1)", "a.pop()", "del a[3:]"]),
    "order of a list": ("a = [1, 2]", "x * a[0] + a[1]", ["a.reverse()", "a.sort()"]),
    "keys of a dict": ("a = {'k': 1}", "x * ('n' in a)", ["a['n'] = 1", "del a['n']", "a.clear()"]),
    "keys of a long dict": ("a = dict.fromkeys(range(500))", "x * (7 in a)", ["a[-1] = a.pop(7)", "a[7] = 1"]),
    "set": ("a = {1}", "x * sum(a)", ["a.add(5)", "a.remove(1)", "a.clear()"]),
    "object in a set": (
        "class A:\n    v = 1\n    def __hash__(self): return 1\no = A()\na = {o}", "x * sum(y.v for y in a)",
        ["o.v = 5", "o.v = 2", "A.v = 3"],
    ),
    "attribute that comes and goes": (
        "class A: pass\na = A()", "x * getattr(a, 'v', 3)", ["a.v = 1", "a.v = 2", "del a.v"]
    ),
    "environment": (
        "os.environ['TG_PLACE'] = '1'", "x * float(os.environ['TG_PLACE'])", ["os.environ['TG_PLACE'] = '5'"]
    ),
    "getenv": (
        "", "x * len(os.getenv('TG_PLACE', ''))", ["os.environ['TG_PLACE'] = 'abc'", "del os.environ['TG_PLACE']"]
    ),
    "environment by name": (
        "from os import environ", "x * ('TG_' in environ)", ["environ['TG_'] = '1'", "del environ['TG_']"]
    ),
    "list in a partial": ("f1 = functools.partial(lambda a, y: a[0] * y, [1])", "x * f1(2)", ["f1.args[0][0] = 5"]),
    "list that a method changes": (
        "class A:\n    def __init__(self): self.a = []\n    def add(self): self.a.append(1)\no = A()", "x * len(o.a)",
        ["o.add()", "o.add()"],
    ),
    "list of lists": ("a = [[1, 2], [3]]", "x * sum(map(sum, a))", ["a[1].append(4)", "a.append([5])", "a[0][0] = 0"]),
    "file": (
        "path = tempfile.mkstemp()[1]\nprint(1, file=open(path, 'w'))", "x * float(open(path).read())",
        ["print(5, file=open(path, 'w'))"],
    ),
    "path": (
        "path = pathlib.Path(tempfile.mkstemp()[1])\npath.write_text('1')", "x * float(path.read_text())",
        ["path.write_text('5')"],
    ),
}  # fmt: skip


def changed(case: str, jit: bool) -> list[Any]:
    before, gives, steps = CHANGES[case]
    names: dict[str, Any] = {"__name__": "users"}
    exec(f"import array, os, pathlib, tempfile\n{HEAD}{before}\ndef f(x):\n    return {gives}", names)
    os.environ.pop("TG_PLACE", None) if case == "getenv" else None
    f, x = tg.jit(names["f"]) if jit else names["f"], tg.arange(2).float() + 1
    results = [shown(f(x)), shown(f(x))]
    for step in steps:
        exec(step, names)
        results += [shown(f(x)), shown(f(x))]
    return results


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_in_place(case: str) -> None:
    with contextlib.redirect_stderr(io.StringIO()):
        assert changed(case, True) == changed(case, False)


DRAWN = {
    "random": "random.random()",
    "a generator": "r.random()",
    "a choice": "random.choice([1.0, 2.0, 3.0])",
    "a shuffled list": "(lambda a: (random.shuffle(a), a[0])[1])([1, 2, 3, 4])",
    "numpy's": "np.random.rand()",
    "numpy's generator": "g.random()",
    "numpy's old generator": "s.rand()",
    "an array of numpy's": "tg.tensor(g.normal(size=2))",
    "next": "next(n)",
    "a generator's": "next(e)",
    "enumerate": "next(m)[0]",
}


def draws(case: str, jit: bool) -> list[Any]:
    random.seed(1)
    np.random.seed(1)
    names: dict[str, Any] = {"random": random, "np": np, "tg": tg, "r": random.Random(2), "g": np.random.default_rng(2)}
    names |= {
        "s": np.random.RandomState(2),
        "n": itertools.count(),
        "e": (k for k in range(9)),
        "m": enumerate("abcdef"),
    }
    exec(f"def f(x):\n    return x * {DRAWN[case]}", names)
    f = tg.jit(names["f"]) if jit else names["f"]
    return [shown(f(tg.ones(2))) for _ in range(5)]


@pytest.mark.parametrize("case", DRAWN)
def test_what_is_drawn_is_drawn_at_each_call(case: str) -> None:
    with contextlib.redirect_stderr(io.StringIO()):
        assert draws(case, True) == draws(case, False)


CLOCKS = ("time.time()", "time.perf_counter()", "datetime.datetime.now().timestamp()", "os.urandom(2)[0]", "clock()")


@pytest.mark.parametrize("asked", CLOCKS)
def test_a_clock_is_asked_at_each_call(asked: str, capsys: Any) -> None:
    names: dict[str, Any] = {}
    exec(f"import datetime, os, time\nclock = time.monotonic_ns\nasked = []\ndef f(x):\n    v = {asked}\n    "
         "asked.append(v)\n    return x * v", names)  # fmt: skip
    f = tg.jit(names["f"])
    for _ in range(4):
        f(tg.ones(1))
    assert len(names["asked"]) == 4
    assert "runs without a program: it asks" in capsys.readouterr().err


def test_a_clock_that_is_only_mentioned_costs_nothing(capsys: Any) -> None:
    def f(x: tg.Tensor, verbose: bool = False) -> tg.Tensor:
        return x * (time.time() if verbose else 2)

    step = tg.jit(f)
    assert [step(tg.ones(1)).item() for _ in range(3)] == [2, 2, 2]
    assert step.programs[0].unjitted_reason == ""
    assert sys.getprofile() is None


def test_generators_go_on_as_without_jit() -> None:
    """Tracing draws too: the run that follows draws the same again."""
    random.seed(3)
    f = tg.jit(lambda x: x * random.random())
    got = [f(tg.ones(1)).item() for _ in range(3)]
    random.seed(3)
    assert got == [tg.tensor(random.random()).item() for _ in range(3)]


def test_long_lists_that_change_again_and_again_keep_few_programs() -> None:
    a = np.zeros(2)
    f = tg.jit(lambda x: x + tg.tensor(a))
    for n in range(60):
        a[0] = n
        assert f(tg.zeros(2)).tolist() == [n, 0]
    assert len(f.programs) <= 40


def test_a_long_chain_of_objects_is_followed() -> None:
    """Chains of any length are followed without recursion."""
    last = chain = SimpleNamespace(scale=2.0, next=None)
    for _ in range(3000):
        chain = SimpleNamespace(next=chain)

    def f(x: Tensor) -> Tensor:
        found = chain
        while found.next is not None:
            found = found.next
        return x * found.scale

    jitted = tg.jit(f)
    x = tg.ones(2)
    assert jitted(x).tolist() == [2, 2]
    last.scale = 3.0
    assert jitted(x).tolist() == [3, 3]


def test_functions_of_an_installed_package_without_tilegrad_are_not_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function whose text is 4,000 functions of one package that mention each other: PyTorch's optimizers are so."""
    package = ModuleType("of_4000_functions")
    package.__file__ = "/lib/site-packages/of_4000_functions.py"
    text = "\n".join(f"def f{n}(x): return f{(n + 1) % 4000}(x) if x is None else x * 2" for n in range(4000))
    exec(text, vars(package))
    monkeypatch.setitem(sys.modules, "of_4000_functions", package)
    first = vars(package)["f0"]
    jitted = tg.jit(lambda x: first(x) + 1)
    for _ in range(2):
        assert jitted(tg.ones(2)).tolist() == [3, 3]
    assert len(outside(first).others) == 0
