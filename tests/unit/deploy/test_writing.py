"""Generated files are written whole or not at all, and nothing of other content is overwritten unasked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphbus_core.cli.shipping import WriteOptions, write_files
from graphbus_core.errors import DeployError

FILES = {"a.txt": "one\n", "below/b.bin": b"\x00\x01"}


def on_disk(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_file_of_other_content_is_not_overwritten_and_the_others_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("mine\n")
    with pytest.raises(DeployError, match=r"1 file would be overwritten with different content: a\.txt") as refusal:
        write_files(tmp_path, FILES, WriteOptions())
    assert refusal.value.code == "GBE701"
    assert on_disk(tmp_path) == {"a.txt": b"mine\n"}


def test_with_force_it_is_and_what_changes_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("mine\n")
    (tmp_path / "a.txt").chmod(0o640)
    assert write_files(tmp_path, FILES, WriteOptions(is_forced=True))["a.txt"] == "changed"
    assert on_disk(tmp_path)["a.txt"] == b"one\n"
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640
    talk = capsys.readouterr().err
    assert "-mine" in talk
    assert "+one" in talk


def test_where_one_cannot_be_written_none_is(tmp_path: Path) -> None:
    (tmp_path / "below").write_text("a file stands where a folder is needed")
    with pytest.raises(DeployError) as refusal:
        write_files(tmp_path, FILES, WriteOptions(is_forced=True))
    assert refusal.value.code == "GBE702"
    assert list(on_disk(tmp_path)) == ["below"]


@pytest.mark.parametrize("wish", [WriteOptions(), WriteOptions(is_forced=True), WriteOptions(is_check=True)])
def test_what_is_no_file_is_neither_waited_for_nor_replaced(tmp_path: Path, wish: WriteOptions) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DeployError, match="GBE702"):
        write_files(tmp_path, {"pipe": ""}, wish)


def test_a_link_that_leads_nowhere_is_somebodys_and_stays(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to("nowhere")
    with pytest.raises(DeployError, match="a link to a file that does not exist"):
        write_files(tmp_path, FILES, WriteOptions())
    assert (tmp_path / "a.txt").is_symlink()
