"""Folders that are opened without following a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from errno import ELOOP
from pathlib import Path

import pytest

from graphbus_core.model.digests import sha256_hex
from graphbus_core.store import folders
from graphbus_core.store.cache import seal_of
from graphbus_core.store.folders import Folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    (folder / "file").write_bytes(b"theirs")
    return folder


@pytest.fixture
def inside(tmp_path: Path, outside: Path) -> Path:
    root = tmp_path / "inside"
    (root / "real").mkdir(parents=True)
    (root / "linked").symlink_to(outside)
    (root / "real/linked").symlink_to("../../outside/file")
    (root / "real/near").symlink_to(".")
    return root


@pytest.mark.parametrize("relative", ["linked/file", "linked", "real/linked", "real/near/file", "linked/deep/new"])
def test_no_link_is_followed(inside: Path, outside: Path, relative: str) -> None:
    with Folder.at(inside) as folder:
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_CREAT):
            with pytest.raises(OSError, match="the path is or contains a symbolic link") as refused:
                os.close(folder.open(relative, flags))
            assert refused.value.errno == ELOOP
    assert (outside / "file").read_bytes() == b"theirs"
    assert sorted(os.listdir(outside)) == ["deep", "file"]


@pytest.mark.parametrize("relative", ["../outside/file", "real/../../outside/file", "/etc/hosts", ".."])
def test_no_path_leads_out(inside: Path, relative: str) -> None:
    with Folder.at(inside) as folder, pytest.raises(OSError, match="leads out"):
        os.close(folder.open(relative, os.O_RDONLY))


def test_a_folder_behind_a_link_is_neither_opened_nor_made(inside: Path, outside: Path) -> None:
    for path in (inside / "linked", inside / "linked/deep", inside / "linked/new/folder"):
        with pytest.raises(OSError, match="link"):
            Folder.at(path, make=True)
    assert sorted(os.listdir(outside)) == ["deep", "file"]


def test_a_link_is_replaced_and_removed_for_itself(inside: Path, outside: Path) -> None:
    with Folder.at(inside / "real") as folder:
        folder.write_atomic("linked", b"ours")
        (inside / "real/again").symlink_to(outside / "deep")
        folder.remove_tree("again")
    assert (inside / "real/linked").read_bytes() == b"ours"
    assert not (inside / "real/linked").is_symlink()
    assert (outside / "deep").is_dir()
    assert (outside / "file").read_bytes() == b"theirs"


def test_a_file_with_another_name_elsewhere_is_not_opened_for_writing(inside: Path, outside: Path) -> None:
    os.link(outside / "file", inside / "real/file")
    with Folder.at(inside / "real") as folder, pytest.raises(OSError, match="another hard link"):
        folder.open_own("file")


Made = Callable[[Path], object]


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_only_plain_files_are_read(inside: Path, make: Made) -> None:
    make(inside / "odd")
    with pytest.raises(OSError, match=r"plain|link"):
        folders.read_plain(inside / "odd")


def test_no_more_is_read_than_is_allowed(inside: Path) -> None:
    (inside / "large").write_bytes(b"x" * 100)
    assert len(folders.read_plain(inside / "large", 100)) == 100
    with pytest.raises(OSError, match="more than 99 bytes"):
        folders.read_plain(inside / "large", 99)


def test_folders_are_made_and_files_keep_their_mode(inside: Path) -> None:
    with Folder.at(inside / "a/b/c", make=True) as folder:
        folder.write_atomic("file", b"one")
        (inside / "a/b/c/file").chmod(0o640)
        folder.write_atomic("file", b"two")
        assert folder.names() == ["file"]
    assert (inside / "a/b/c/file").read_bytes() == b"two"
    assert stat.S_IMODE((inside / "a/b/c/file").stat().st_mode) == 0o640


def test_two_names_change_places_or_nothing_happens(inside: Path) -> None:
    with Folder.at(inside, make=True) as folder:
        folder.write("one", b"1")
        folder.write("two", b"2")
        has_changed = folder.exchange("one", "two")
        assert (folder.read("one"), folder.read("two")) == ((b"2", b"1") if has_changed else (b"1", b"2"))
        with pytest.raises(FileNotFoundError):
            folder.exchange("one", "nothing")


def test_a_seal_is_of_one_purpose_one_place_and_one_text_and_of_one_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seals = [seal_of("a", "b", b"c"), seal_of("ab", "", b"c"), seal_of("a", "c", b"b"), seal_of("a", "b", b"cc")]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    seals.append(seal_of("a", "b", b"c"))
    assert len(set(seals)) == 5
    assert seal_of("a", "b", b"c") == seals[-1]


def test_digests_are_those_of_the_standard_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib

    import msgspec

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = seal_of("purpose", "place", b"data")
    key = (tmp_path / "graphbus/cache.key").read_bytes()
    message = msgspec.msgpack.encode(("purpose", "place", b"data"))
    assert hashlib.blake2b(message, key=key, digest_size=32).hexdigest() == made
    assert hashlib.sha256(message).hexdigest() == sha256_hex(message)
