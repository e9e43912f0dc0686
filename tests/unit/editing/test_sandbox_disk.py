"""What a command may do to the disk: no trick hides what it writes, and whatever it leaves can be removed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from graphbus_core.editing.sandboxes import process
from graphbus_core.editing.sandboxes.process import Limits, ProcessSandbox, process_count, remove_tree

DEEP = """
import os
for step in range(3000):
    os.mkdir("d" * 20)
    os.chdir("d" * 20)
open("last", "w").write("hello")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "copy"
    made.mkdir()
    return made


def test_folders_nested_deeper_than_a_path_can_be_long_are_removed(folder: Path) -> None:
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        exec(DEEP)
        os._exit(0)
    os.waitpid(child, 0)
    assert list(folder.iterdir())

    remove_tree(folder)

    assert not folder.exists()


def test_unreadable_folders_and_links_are_removed_and_what_links_lead_to_stays(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.mkdir(mode=0o500)
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").write_text("x")
    (folder / "link").symlink_to(outside)
    (folder / "a").chmod(0)

    remove_tree(folder)

    assert not folder.exists()
    assert outside.stat().st_mode & 0o777 == 0o500


def test_what_is_not_there_needs_no_removal(folder: Path) -> None:
    remove_tree(folder / "nothing")

    assert folder.exists()


@pytest.mark.slow
def test_folders_too_deep_to_be_weighed_end_the_command(folder: Path) -> None:
    code = f"{DEEP}\nimport time; time.sleep(20)"

    done = ProcessSandbox().run([sys.executable, "-c", code], folder, limits=Limits(timeout_s=10))

    remove_tree(folder)
    assert "it wrote more than" in done.stderr
    assert not done.timed_out


@pytest.mark.slow
def test_empty_files_count(folder: Path) -> None:
    code = "import time\nfor step in range(2000): open(str(step), 'w').close()\ntime.sleep(20)"

    done = ProcessSandbox().run([sys.executable, "-c", code], folder, limits=Limits(timeout_s=10, disk_mb=4))

    assert "it wrote more than" in done.stderr


@pytest.mark.slow
def test_files_without_a_name_fill_the_disk_only_as_far_as_some_of_it_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = os.statvfs(folder)
    monkeypatch.setattr(process, "_KEPT_FREE", (disk.f_bavail * disk.f_frsize, 0))
    rooms = iter([(1000, 1000), *[(400, 1000)] * 1000])
    monkeypatch.setattr(process, "_room", lambda folders: next(rooms))

    done = ProcessSandbox().run(
        [sys.executable, "-c", "import time; time.sleep(20)"], folder, limits=Limits(timeout_s=10)
    )

    assert "it wrote more than" in done.stderr
    assert not done.timed_out


def test_threads_count_as_processes_for_they_do_for_the_kernel() -> None:
    """Else a user with many threads could not start anything in the plain sandbox."""
    import threading

    stop = threading.Event()
    before = process_count()
    threads = [threading.Thread(target=stop.wait) for _ in range(50)]
    for thread in threads:
        thread.start()
    try:
        assert process_count() >= before + 25
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_where_the_kernel_does_not_tell_many_processes_are_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self: "")

    assert process_count() == 1024
