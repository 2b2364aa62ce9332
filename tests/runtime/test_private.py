"""Folders that only their user could write to: whatever others do to a path, their bytes are not taken."""

import functools
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tilegrad.runtime import private_folder
from tilegrad.runtime.cache import Cache, key
from tilegrad.runtime.private_folder import ASIDE, MARK, SUFFIX, is_ours, opened, owned

pytestmark = pytest.mark.skipif(os.name == "nt", reason="permissions are others there")
MINE, THEIRS = b"mine", b"theirs"
NAME = key("a kernel")


def cache_at(folder: Path, payload: bytes) -> Cache:
    cache = Cache(folder, 1 << 20)
    cache.write(NAME, payload)
    assert cache.read(NAME) == payload
    return cache


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return cache_at(tmp_path / "cache", MINE)


@pytest.fixture
def planted(tmp_path: Path) -> bytes:
    """An entry in the right form with the bytes of somebody else."""
    cache_at(tmp_path / "theirs", THEIRS)
    return (tmp_path / "theirs" / (NAME + SUFFIX)).read_bytes()


def folder_of(cache: Cache) -> Path:
    assert cache.folder is not None
    return cache.folder


@pytest.mark.parametrize("others", [0o020, 0o002, 0o022])
def test_a_folder_in_which_others_could_write_is_emptied(cache: Cache, planted: bytes, others: int) -> None:
    """Not only refused as long as they can: what they left there meanwhile is not believed afterwards."""
    folder, other = folder_of(cache), key("other")
    folder.chmod(0o700 | others)
    (folder / (NAME + SUFFIX)).write_bytes(planted)
    (folder / (NAME + SUFFIX)).chmod(0o600)
    (folder / "notes.txt").write_text("of the user")
    assert cache.read(NAME) is None
    cache.write(other, MINE)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert cache.read(NAME) is None
    assert cache.read(other) == MINE
    assert sorted(os.listdir(folder)) == sorted([MARK, "notes.txt", other + SUFFIX])


def test_a_folder_without_its_mark_is_emptied(cache: Cache) -> None:
    """Such as one that others made, or closed again after they had written to it."""
    folder = folder_of(cache)
    for harm in (lambda: None, lambda: (folder / MARK).symlink_to("/dev/null"), (folder / MARK).mkdir):
        (folder / MARK).unlink()
        harm()
        assert cache.read(NAME) is None
        if (folder / MARK).is_dir():
            (folder / MARK).rmdir()
        cache.write(key("other"), MINE)
        assert cache.read(NAME) is None
        assert cache.read(key("other")) == MINE
        cache.write(NAME, MINE)
        assert cache.read(NAME) == MINE


def test_links_are_not_followed(cache: Cache, tmp_path: Path) -> None:
    folder, elsewhere = folder_of(cache), tmp_path / "elsewhere"
    folder.rename(elsewhere)
    elsewhere.chmod(0o755)
    folder.symlink_to(elsewhere)
    assert cache.read(NAME) is None
    cache.write(key("other"), THEIRS)
    assert sorted(os.listdir(elsewhere)) == sorted([MARK, NAME + SUFFIX])
    assert elsewhere.stat().st_mode & 0o777 == 0o755
    folder.unlink()
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    folder.symlink_to(open_to_all)
    cache.write(NAME, MINE)
    assert open_to_all.stat().st_mode & 0o777 == 0o777
    assert os.listdir(open_to_all) == []


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "hole"])
def test_what_is_no_file_is_absent(cache: Cache, tmp_path: Path, kind: str) -> None:
    path = folder_of(cache) / (NAME + SUFFIX)
    path.rename(tmp_path / "moved")
    match kind:
        case "link":
            path.symlink_to(tmp_path / "moved")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "hole":
            path.symlink_to(tmp_path / "nothing")
    assert cache.read(NAME) is None
    cache.write(NAME, MINE)
    assert not (tmp_path / "nothing").exists()
    assert cache.read(NAME) == (None if kind == "folder" else MINE)


def of_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a file away: only root can, for others all else is taken away."""
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(private_folder.os, "geteuid", lambda: 12345)


@pytest.mark.parametrize("what", [NAME + SUFFIX, MARK, "."])
def test_what_belongs_to_another_user_is_absent(cache: Cache, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder_of(cache) / what
    path.chmod(0o777 if what == "." else 0o644)
    path.chmod(0o700 if what == "." else 0o600)
    of_another(path, monkeypatch)
    assert not is_ours(path.stat())
    assert cache.read(NAME) is None
    if what == ".":
        cache.write(key("other"), MINE)
        assert cache.read(key("other")) is None
        assert not (folder_of(cache) / (key("other") + SUFFIX)).exists()


def test_what_a_path_leads_to_later_does_not_matter(
    cache: Cache, planted: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two steps the folder becomes another one, with bytes of others under the same name."""
    folder, open_one, closed = folder_of(cache), tmp_path / "open", tmp_path / "closed"

    def swap() -> None:
        open_one.mkdir()
        for name, data in ((NAME + SUFFIX, planted), (MARK, b"")):
            (open_one / name).write_bytes(data)
        open_one.chmod(0o777)
        folder.rename(closed)
        open_one.rename(folder)

    def back() -> None:
        if closed.exists():
            shutil.rmtree(folder)
            closed.rename(folder)

    calls = {"place": 0, "at": 0}
    for name in ("open", "fstat", "stat", "read", "utime", "replace", "write", "close", "urandom"):

        def counted(*args: object, real: Callable[..., object] = getattr(os, name), **options: object) -> object:
            calls["place"] += 1
            if calls["place"] == calls["at"]:
                swap()
            return real(*args, **options)

        monkeypatch.setattr(private_folder.os, name, counted)
    found = set()
    for use in (lambda: cache.read(NAME), lambda: cache.write(NAME, MINE)):
        for at in range(1, 40):
            calls.update(place=0, at=at)
            found |= {use(), cache.read(NAME)}
            calls["at"] = 0
            back()
            found.add(cache.read(NAME))
            if calls["place"] < at:
                break
        else:
            raise AssertionError("more steps than are looked at")
    assert found <= {MINE, None}
    assert cache.read(NAME) == MINE


def test_a_folder_that_is_made_is_not_exchanged_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may rename it before it is in its place could have files removed or written elsewhere."""
    place, precious = tmp_path / "place", tmp_path / "precious"
    precious.mkdir()
    files = {MARK: b"mine", NAME + SUFFIX: b"mine", "x" + ASIDE: b"mine"}
    for name, data in files.items():
        (precious / name).write_bytes(data)
    calls = {"place": 0, "at": 0}

    def counted(real: Callable[..., object], *args: object, **options: object) -> object:
        calls["place"] += 1
        if calls["place"] == calls["at"]:
            for new in place.iterdir():
                new.rename(tmp_path / f"taken{calls['at']}")
                new.symlink_to(precious)
            with suppress(FileExistsError):
                (place / "folder").mkdir()
                (place / "folder" / "theirs").touch()
        return real(*args, **options)

    for name in ("open", "fstat", "stat", "replace", "write", "close", "urandom", "rename", "unlink", "rmdir"):
        monkeypatch.setattr(private_folder.os, name, functools.partial(counted, getattr(os, name)))
    for at in range(1, 40):
        calls["at"] = 0
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        calls.update(place=0, at=at)
        with suppress(OSError), owned(place / "folder"):
            pass
        assert {file.name: file.read_bytes() for file in precious.iterdir()} == files
        if calls["place"] < at:
            return
    raise AssertionError("more steps than are looked at")


def test_names_aside_cannot_be_foreseen(tmp_path: Path) -> None:
    """A link at the name that is written aside would be a way to write somewhere else."""
    with owned(tmp_path / "folder") as folder:
        names = {folder.put("x", b"") for _ in range(20)}
        assert len(names) == 20
        monkey = next(iter(names))
        folder.remove(monkey)
        real, private_folder.os.urandom = os.urandom, lambda n: bytes.fromhex(monkey.split(".")[1])
        try:
            (tmp_path / "folder" / monkey).symlink_to(tmp_path / "target")
            with pytest.raises(FileExistsError):
                folder.put("x", b"data")
        finally:
            private_folder.os.urandom = real
    assert not (tmp_path / "target").exists()


def test_what_was_left_aside_goes_after_a_day(cache: Cache) -> None:
    folder, day = folder_of(cache), time.time() - 90_000
    old, fresh = folder / f"{NAME}{SUFFIX}.00{ASIDE}", folder / f"{NAME}{SUFFIX}.01{ASIDE}"
    for path in (old, fresh):
        path.write_bytes(b"")
    os.utime(old, (day, day))
    cache.write(key("other"), b"")
    assert old.exists(), "looked for once a day"
    os.utime(folder / MARK, (day, day))
    cache.write(key("other"), b"")
    assert (old.exists(), fresh.exists()) == (False, True)
    assert cache.read(NAME) == MINE


def test_many_make_a_folder_at_once(tmp_path: Path) -> None:
    """Nobody takes it for a foreign folder: the contents that the first one wrote stay."""
    for n in range(20):
        path, together = tmp_path / str(n) / "folder", threading.Barrier(4)

        def work(me: int, cache: Cache, together: threading.Barrier = together) -> None:
            together.wait()
            cache.write(key(me), bytes([me]))

        cache = Cache(path, 1 << 20)
        threads = [threading.Thread(target=work, args=(me, cache)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [cache.read(key(me)) for me in range(4)] == [bytes([me]) for me in range(4)]
        assert os.listdir(path.parent) == ["folder"]
        assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_library_is_loaded_through_the_folder(tmp_path: Path) -> None:
    with owned(tmp_path / "folder") as folder:
        name = folder.put("library", b"bytes")
        (tmp_path / "folder").rename(tmp_path / "moved")
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / name).write_bytes(b"of others")
        if os.path.isdir("/proc/self/fd"):
            assert Path(folder.place(name)).read_bytes() == b"bytes"
    with pytest.raises(OSError), opened(tmp_path / "nothing"):
        pass
