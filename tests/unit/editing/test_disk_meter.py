"""What a command writes is measured also when it has deleted its folder."""

from __future__ import annotations

from pathlib import Path

from graphbus_core.editing.sandboxes.process import remove_tree
from graphbus_core.editing.sandboxes.usage import make_disk_meter


def test_a_folder_that_is_gone_ends_no_measurement(tmp_path: Path) -> None:
    home, work = tmp_path / "home" / "tmp", tmp_path / "work"
    home.mkdir(parents=True)
    work.mkdir()
    meter = make_disk_meter((home, work), disk_mb=1)
    remove_tree(tmp_path / "home")
    assert meter._find_excess() == ""
    (work / "large").write_bytes(b"x" * 2_000_000)
    assert meter._find_excess() == "it wrote more than 1 MB"
