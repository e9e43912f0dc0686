"""Whether files are still what they were: digests decide, the status of a file only saves reading it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from graphbus_core.store.cache import read_cache, write_cache
from graphbus_core.store.stamps import Fingerprint, take_statuses


def _age(path: Path, seconds: float = 10) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - int(seconds * 1e9)))


def _settle(root: str, paths: list[str]) -> None:
    """Wait until the files are old enough; when they were changed cannot be set."""
    while Fingerprint.take(root, paths).is_racy:
        time.sleep(0.01)


def _files(root: Path) -> list[str]:
    for name in ("a", "b"):
        (root / name).write_text(name)
        _age(root / name)
    return ["a", "b"]


def test_it_holds_while_nothing_changes(tmp_path: Path) -> None:
    paths = _files(tmp_path)
    found = Fingerprint.take(str(tmp_path), paths, "key")
    assert found.is_current(str(tmp_path), paths, "key")
    assert found.is_current(str(tmp_path), ["a"], "key")


def test_another_key_a_new_path_and_a_vanished_file_are_changes(tmp_path: Path) -> None:
    root, paths = str(tmp_path), _files(tmp_path)
    found = Fingerprint.take(root, paths, "key")
    assert not found.is_current(root, paths, "other key")
    assert not found.is_current(root, [*paths, "c"], "key")
    (tmp_path / "a").unlink()
    assert not found.is_current(root, paths, "key")


def test_a_file_that_was_touched_but_not_changed_still_holds(tmp_path: Path) -> None:
    root, paths = str(tmp_path), _files(tmp_path)
    found = Fingerprint.take(root, paths)
    (tmp_path / "a").write_text("a")
    assert found.is_current(root, paths)
    (tmp_path / "a").write_text("changed")
    assert not found.is_current(root, paths)


def test_an_archive_that_brings_another_text_with_the_same_size_time_and_inode_is_seen(tmp_path: Path) -> None:
    """Only the time of the last change of a file's status cannot be set: it is what gives a planted text away."""
    path = tmp_path / "a"
    path.write_text("one")
    _age(path)
    _settle(str(tmp_path), ["a"])
    found = Fingerprint.take(str(tmp_path), ["a"])
    status = path.stat()
    path.write_text("two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    now = path.stat()
    assert (now.st_size, now.st_mtime_ns, now.st_ino) == (status.st_size, status.st_mtime_ns, status.st_ino)
    assert not found.is_current(str(tmp_path), ["a"])


def test_a_change_within_the_resolution_of_the_clock_is_seen(tmp_path: Path) -> None:
    """The same size, time and inode: only reading can tell, and it is read because the file was too young to be trusted."""
    path = tmp_path / "a"
    path.write_text("one")
    status = path.stat()
    found = Fingerprint.take(str(tmp_path), ["a"])
    path.write_text("two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not found.is_current(str(tmp_path), ["a"])


def test_only_files_that_surely_did_not_change_are_trusted(tmp_path: Path) -> None:
    root, paths = str(tmp_path), _files(tmp_path)
    _settle(root, paths)
    found = Fingerprint.take(root, paths)
    (tmp_path / "b").write_text("b")
    assert set(found.unchanged_digests(take_statuses(root, [*paths, "new"]))) == {"a"}


def test_it_comes_back_from_the_cache(tmp_path: Path) -> None:
    found = Fingerprint.take(str(tmp_path), _files(tmp_path), "key")
    write_cache(tmp_path / "cache/stamps", found)
    assert read_cache(tmp_path / "cache/stamps", Fingerprint) == found


def test_a_damaged_cache_is_no_cache(tmp_path: Path) -> None:
    path = tmp_path / "stamps"
    assert read_cache(path, Fingerprint) is None
    path.write_bytes(b"\x93\x01")
    assert read_cache(path, Fingerprint) is None
    write_cache(path, ["something", "else"])
    assert read_cache(path, Fingerprint) is None
