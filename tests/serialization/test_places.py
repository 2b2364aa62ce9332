"""Writing files: links, devices, pipes, permissions, concurrent writers, leftovers."""

import gc
import io
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from tilegrad.errors import CheckpointError
from tilegrad.runtime import atomic_write
from tilegrad.serialization import safetensors

posix = pytest.mark.skipif(os.name == "nt", reason="files are others there")
root = pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can be another user")

Writer = Callable[[Any, Any], None]
WRITERS = {
    "pt": (lambda x, path: tg.save({"x": x}, path), lambda path: tg.load(path)["x"]),
    "safetensors": (
        lambda x, path: safetensors.save_file({"x": x}, path),
        lambda path: safetensors.load_file(path)["x"],
    ),
}
kinds = pytest.mark.parametrize("kind", WRITERS)


@posix
@kinds
def test_devices_and_pipes_are_written_to(kind: str, tmp_path: Path) -> None:
    write, read = WRITERS[kind]
    for device in ("/dev/null", "/dev/full"):
        if device == "/dev/full":
            with pytest.raises(CheckpointError, match="/dev/full cannot be written: No space left"):
                write(tg.ones(3), device)
        else:
            write(tg.ones(3), device)
        assert stat.S_ISCHR(os.stat(device).st_mode)
    pipe, copy = tmp_path / "pipe", tmp_path / "copy"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: copy.write_bytes(pipe.read_bytes()))
    reader.start()
    write(tg.arange(5), pipe)
    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert read(copy).tolist() == [0, 1, 2, 3, 4]


@posix
@kinds
def test_links_stay_links(kind: str, tmp_path: Path) -> None:
    """To a file, to another link, to nothing yet, in another folder."""
    write, read = WRITERS[kind]
    there = tmp_path / "there"
    there.mkdir()
    (tmp_path / "second").symlink_to("there/file")
    (tmp_path / "first").symlink_to(tmp_path / "second")
    for n in range(2):
        write(tg.ones(2) * n, tmp_path / "first")
        assert (tmp_path / "first").is_symlink()
        assert (tmp_path / "second").is_symlink()
        assert read(there / "file").tolist() == [n, n]
    assert os.listdir(there) == ["file"]


@posix
def test_a_file_without_a_name_is_written_to(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w+b") as file:
        os.unlink(tmp_path / "file")
        tg.save(tg.ones(2), f"/proc/self/fd/{file.fileno()}") if os.path.isdir("/proc/self/fd") else tg.save(
            tg.ones(2), file
        )
        file.seek(0)
        assert tg.load(file).tolist() == [1, 1]
    assert os.listdir(tmp_path) == []


@contextmanager
def as_user(user: int, group: int, groups: list[int]) -> Iterator[None]:
    """Do something as somebody else: only root can."""
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(group)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that all can reach and write to."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@root
@kinds
def test_what_must_not_be_written_is_not_replaced(kind: str, open_folder: Path) -> None:
    """Whoever may write to a folder could put another file in the place of one that is protected."""
    write, read = WRITERS[kind]
    path = open_folder / "file"
    with as_user(12345, 12345, []):
        write(tg.ones(2), path)
        path.chmod(0o444)
        with pytest.raises(CheckpointError, match="cannot be written: Permission denied"):
            write(tg.zeros(2), path)
        (open_folder / "link").symlink_to(path)
        with pytest.raises(CheckpointError, match="cannot be written: Permission denied"):
            write(tg.zeros(2), open_folder / "link")
        assert read(path).tolist() == [1, 1]
    with as_user(23456, 23456, []), pytest.raises(CheckpointError, match="cannot be written: Permission denied"):
        write(tg.zeros(2), path)
    assert sorted(os.listdir(open_folder)) == ["file", "link"]


@root
@pytest.mark.parametrize(
    "groups, group, mode", [([34567], 34567, 0o660), ([34567, 5], 34567, 0o660), ([], 23456, 0o606)]
)
def test_no_other_group_may_read_a_file(groups: list[int], group: int, mode: int, open_folder: Path) -> None:
    """A file of somebody else in one's group stays with the group; else it is nobody's but the new owner's."""
    path = open_folder / "file"
    tg.save(1, path)
    os.chown(path, 12345, 34567)
    path.chmod(0o4666 if not groups else 0o4660)
    with as_user(23456, 23456, groups):
        tg.save(2, path)
    status = path.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (23456, group, mode)


@kinds
def test_a_folder_is_no_file(kind: str, tmp_path: Path) -> None:
    write, _ = WRITERS[kind]
    for place in (f"{tmp_path}/", f"{tmp_path}/new/", tmp_path):
        with pytest.raises(CheckpointError, match="Is a directory"):
            write(tg.ones(2), place)
    assert os.listdir(tmp_path) == []


class Full(io.BytesIO):
    """A file that takes no more than some bytes."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > 1000:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_nothing_is_written_after_a_failure(tmp_path: Path) -> None:
    """Neither to a file that is the user's, when what wrote to it is collected, nor words to the user."""
    file = Full()
    with pytest.raises(OSError, match="No space left"):
        tg.save({"x": tg.ones(10_000)}, file)
    written = file.getvalue()
    gc.collect()
    assert file.getvalue() == written
    assert b"PK\5\6" not in written


@posix
@kinds
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_who_may_read_a_file_stays(kind: str, mode: int, tmp_path: Path) -> None:
    write, read = WRITERS[kind]
    path = tmp_path / "file"
    write(tg.ones(2), path)
    before = os.umask(0)
    os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~before
    path.chmod(mode)
    if not os.access(path, os.W_OK):
        return  # only root may write to it all the same
    write(tg.zeros(2), path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert read(path).tolist() == [0, 0]


@posix
@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root gives files away")
def test_whose_a_file_is_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    tg.save(1, path)
    os.chown(path, 12345, 23456)
    path.chmod(0o640)
    tg.save(2, path)
    status = path.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (12345, 23456, 0o640)


@kinds
def test_threads_save_to_one_path(kind: str, tmp_path: Path) -> None:
    """Each file is that of one thread; none fails, and nothing is left."""
    write, read = WRITERS[kind]
    path, failed = tmp_path / "file", []
    together = threading.Barrier(4)

    def work(n: int) -> None:
        try:
            together.wait()
            for _ in range(10):
                write(tg.ones(1000) * n, path)
                assert len(set(read(path).tolist())) == 1
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["a" * 250, "ü" * 120, "a.b"])
def test_long_names(name: str, tmp_path: Path) -> None:
    tg.save(3, tmp_path / name)
    assert tg.load(tmp_path / name) == 3
    assert os.listdir(tmp_path) == [name]


def interrupted(path: Path) -> None:
    with atomic_write.replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def test_the_old_file_stays_where_the_new_one_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    tg.save(1, path)
    with pytest.raises(CheckpointError, match="Is a directory"):
        tg.save(2, tmp_path)
    with pytest.raises(CheckpointError, match="No such file"):
        tg.save(2, tmp_path / "no" / "file")
    with pytest.raises(KeyboardInterrupt):
        interrupted(path)
    assert tg.load(path) == 1
    assert os.listdir(tmp_path) == ["file"]


def test_what_was_left_behind_goes_after_a_day(tmp_path: Path) -> None:
    """And nothing else: files of others with such a name stay, and those that are written now."""
    word = "0123456789abcdef"
    old, fresh = tmp_path / f"file.{word}.unfinished", tmp_path / f"file.{word[::-1]}.unfinished"
    others = [tmp_path / name for name in ("work.unfinished", f"{word}.txt", "file.123.unfinished")]
    for path in (old, fresh, *others):
        path.write_bytes(b"")
        if path != fresh:
            os.utime(path, (time.time() - 90_000,) * 2)
    tg.save(1, tmp_path / "file")
    assert not old.exists()
    assert all(path.exists() for path in (fresh, *others))


@posix
def test_a_pipe_cannot_be_read_at_places(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as file:
        tg.save(1, file)
    with os.fdopen(reading, "rb") as file, pytest.raises(CheckpointError, match="from begin to end"):
        tg.load(file)
