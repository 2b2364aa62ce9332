"""The disk cache: right or absent, whatever happens to its files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilegrad.runtime import cache as module
from tilegrad.runtime.cache import Cache, key
from tilegrad.runtime.private_folder import SUFFIX, opened

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", 1 << 20)


def entry(cache: Cache, name: str) -> Path:
    assert cache.folder is not None
    return cache.folder / (name + SUFFIX)


def test_what_is_written_is_read(cache: Cache) -> None:
    name = key("a kernel", 3)
    assert cache.read(name) is None
    cache.write(name, b"code")
    assert cache.read(name) == b"code"
    cache.write(name, b"")
    assert cache.read(name) == b""


@pytest.mark.parametrize("damage", ["torn", "changed", "foreign", "empty", "another key"])
def test_a_damaged_entry_is_absent_and_written_anew(cache: Cache, damage: str) -> None:
    name, other = key("x"), key("y")
    cache.write(name, b"some code")
    cache.write(other, b"other code")
    path = entry(cache, name)
    data = path.read_bytes()
    damaged = {
        "torn": data[:-3],
        "changed": data[:-1] + b"!",
        "foreign": b"\x7fELF" + data,
        "empty": b"",
        "another key": entry(cache, other).read_bytes(),
    }
    path.write_bytes(damaged[damage])
    assert cache.read(name) is None
    cache.write(name, b"some code")
    assert cache.read(name) == b"some code"


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 100_000)
    names = [key(n) for n in range(12)]
    for n, name in enumerate(names[:8]):
        cache.write(name, bytes(10_000))
        os.utime(entry(cache, name), (1_000_000 + n, 1_000_000 + n))
    assert cache.read(names[0]) is not None  # used now
    for name in names[8:]:
        cache.write(name, bytes(10_000))
    with opened(tmp_path) as folder:
        cache._evict(folder)
    kept = [cache.read(name) is not None for name in names]
    assert kept[0]
    assert kept[8:] == [True] * 4
    assert not kept[1]
    assert sum(kept) <= 9


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    cache = Cache(file / "cache", 1000)
    cache.write(key("x"), b"x")
    assert cache.read(key("x")) is None
    assert Cache(None, 0).read(key("x")) is None
    Cache(None, 0).write(key("x"), b"x")


def test_processes_share_a_folder(tmp_path: Path) -> None:
    """Three processes write and read the same entries, and evict; nobody sees anything but whole entries."""
    source = f"""
import random, sys
from pathlib import Path
from tilegrad.runtime.cache import Cache, key
random.seed(int(sys.argv[1]))
cache = Cache(Path({str(tmp_path)!r}), 200_000)
for _ in range(1500):
    n = random.randrange(60)
    found = cache.read(key(n))
    assert found is None or found == bytes([n]) * 5000
    cache.write(key(n), bytes([n]) * 5000)
"""
    children = [subprocess.Popen([sys.executable, "-c", source, str(n)], cwd=ROOT) for n in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert not list(tmp_path.glob("*.aside"))
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) < 400_000


def test_source_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    (package / "runtime").mkdir(parents=True)
    (package / "ops" / "deep").mkdir(parents=True)
    file, other = package / "ops" / "deep" / "a.py", package / "b.py"
    file.write_text("one")
    other.write_text("one")
    monkeypatch.setattr(module, "__file__", str(package / "runtime" / "cache.py"))
    find = module.sources.__wrapped__
    first = find("ops", "b.py")
    assert find("ops", "b.py") == first != find("ops")
    (package / "ops" / "notes.txt").write_text("nothing")
    assert find("ops", "b.py") == first
    file.write_text("other")
    second = find("ops", "b.py")
    other.write_text("other")
    assert len({first, second, find("ops", "b.py")}) == 3


@pytest.mark.skipif(os.name == "nt", reason="permissions are others there")
def test_what_somebody_else_could_have_written_is_absent(cache: Cache, tmp_path: Path) -> None:
    """Entries that others could have written count as absent, because the code in them would be executed."""
    name = key("mine")
    cache.write(name, b"code")
    path = entry(cache, name)
    assert [p.stat().st_mode & 0o777 for p in (path, path.parent)] == [0o600, 0o700]
    for place in (path, path.parent):
        for others in (0o020, 0o002):
            place.chmod(place.stat().st_mode | others)
            assert cache.read(name) is None
            cache.write(name, b"code")
            assert cache.read(name) == b"code"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.read(name) is None
    cache.write(name, b"code")
    assert not path.is_symlink()
    assert cache.read(name) == b"code"
