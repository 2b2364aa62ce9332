"""Draw programs that share data by atomic operations, right ones and ones with a fault, for both kernel languages."""

import random
from collections.abc import Callable
from typing import NamedTuple

Lines = list[str]


class Words(NamedTuple):
    """A language's notation of an atomic operation on `lock`, and of loads and stores of `data` and `out`."""

    atomic: Callable[..., str]
    load: Callable[[str], str]
    store: Callable[[str, str, str], str]


TILES = Words(
    lambda how, at, *xs: f"tl.atomic_{how}({', '.join([f'lock + {at}', *map(str, xs)])})",
    lambda at: f"tl.load(data + {at})",
    lambda name, at, value: f"tl.store({name} + {at}, {value})",
)
THREADS = Words(
    lambda how, at, *xs: (
        f"atomic{ {'xchg': 'Exch', 'cas': 'CAS'}.get(how, how.title()) }({', '.join([f'lock[{at}]', *map(str, xs)])})"
    ),
    lambda at: f"data[{at}]",
    lambda name, at, value: f"{name}[{at}] = {value}",
)


class Drawn(NamedTuple):
    """A kernel's body. `fault` is empty if it is right; `total` is the sum of `data` and `out` then, by p programs."""

    body: str
    fault: str
    total: Callable[[int], float]


def drawn(seed: int, words: Words) -> Drawn:
    chance = random.Random(seed)
    protocol = (guarded, passed, counted, posted)[seed % 4]
    return protocol(chance, words)


def indented(lines: Lines) -> Lines:
    return ["    " + line for line in lines]


def taken(chance: random.Random, w: Words, lock: str) -> tuple[Lines, Lines]:
    """Acquire and release of a lock; a ticket lock has two numbers."""
    way = chance.choice(["cas", "xchg", "ticket"])
    if way == "ticket":
        take = [f"t = {w.atomic('add', lock, 1)}", f"while {w.atomic('add', f'{lock} + 1', 0)} != t:", "    pass"]
        return take, [w.atomic("add", f"{lock} + 1", 1)]
    turn = w.atomic("cas", lock, 0, 1) if way == "cas" else w.atomic("xchg", lock, 1)
    back = chance.choice(
        [w.atomic("xchg", lock, 0), w.atomic("cas", lock, 1, 0), w.atomic("add", lock, -1), w.store("lock", lock, "0")]
    )
    return [f"while {turn} != 0:", "    pass"], [back]


def guarded(chance: random.Random, w: Words) -> Drawn:
    """Sections under locks, each with data of its own."""
    fault = chance.choice(["", "", "read too early", "written too late", "no lock", "another lock", "never given back"])
    sections = chance.randrange(1, 4)
    wrong = chance.randrange(sections)
    body: Lines = []
    for n in range(sections):
        here = fault if n == wrong else ""
        lock = f"{4 * n} + p % 2 * 2" if here == "another lock" else f"{4 * n}"
        take, back = taken(chance, w, lock)
        read, write = [f"v{n} = {w.load(str(n))}"], [w.store("data", str(n), f"v{n} + 1.0")]
        match here:
            case "read too early":
                body += [*read, *take, *write, *back]
            case "written too late":
                body += [*take, *read, *back, *write]
            case "no lock":
                body += ["if p == 1:", *indented([*read, *write]), "else:", *indented([*take, *read, *write, *back])]
            case "never given back":
                body += [*take, *read, *write]
            case _:
                body += [*take, *read, *write, *back]
    return Drawn("\n".join(body), fault, lambda programs: sections * programs)


def passed(chance: random.Random, w: Words) -> Drawn:
    """A message and its flag: the first program writes, the others wait."""
    fault = chance.choice(["", "", "flag first", "nobody waits", "another flag"])
    count, other = chance.randrange(1, 4), "1" if fault == "another flag" else "0"
    writes = [w.store("data", str(n), f"{n} + 1.0") for n in range(count)]
    flag = [w.atomic(chance.choice(["xchg", "add", "max", "or"]), "0", 1)]
    if fault == "another flag":
        writes, flag = [w.atomic("xchg", "1", 1), *writes], flag
    looked = chance.choice([w.atomic("add", other, 0), w.atomic("max", other, 0), w.atomic("cas", other, 7, 7)])
    reads = [w.store("out", "p", " + ".join(w.load(str(n)) for n in range(count)))]
    wait = [] if fault == "nobody waits" else [f"while {looked} == 0:", "    pass"]
    first = [*flag, *writes] if fault == "flag first" else [*writes, *flag]
    body = ["if p == 0:", *indented(first), "else:", *indented([*wait, *reads])]
    return Drawn("\n".join(body), fault, lambda programs: programs * count * (count + 1) / 2)


def counted(chance: random.Random, w: Words) -> Drawn:
    """The last program adds up what all have written."""
    fault = chance.choice(["", "", "counted first", "one too early"])
    writes, count = [w.store("data", "p", "2.0")], [f"t = {w.atomic('add', 0, 1)}"]
    last = "programs - 2" if fault == "one too early" else "programs - 1"
    total = ["s = 0.0", "for k in range(0, programs):", f"    s += {w.load('k')}", w.store("out", "0", "s")]
    begin = [*count, *writes] if fault == "counted first" else [*writes, *count]
    return Drawn("\n".join([*begin, f"if t == {last}:", *indented(total)]), fault, lambda programs: 4.0 * programs)


def posted(chance: random.Random, w: Words) -> Drawn:
    """A semaphore: the first program makes one item after the other, program p waits for p of them."""
    fault = chance.choice(["", "", "posted first", "one item too few"])
    write, post = [w.store("data", "k", "3.0")], [w.atomic("add", 0, 1)]
    each = [*post, *write] if fault == "posted first" else [*write, *post]
    least = "p - 1" if fault == "one item too few" else "p"
    make = ["for k in range(1, programs):", *indented(each)]
    use = [f"while {w.atomic('add', 0, 0)} < {least}:", "    pass", w.store("out", "p", w.load("p"))]
    body = ["if p == 0:", *indented(make), "else:", *indented(use)]
    return Drawn("\n".join(body), fault, lambda programs: 6.0 * (programs - 1))
