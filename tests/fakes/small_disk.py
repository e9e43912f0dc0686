"""A small disk that a test can fill, where the machine lets a test mount one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


class SmallDisk:
    """A mounted folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        with suppress(OSError), (self.folder / "ballast").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    def make_room(self) -> None:
        (self.folder / "ballast").unlink()


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """Mount 8 MB on a new folder; skip the test where that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
