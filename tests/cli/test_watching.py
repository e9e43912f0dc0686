"""The watcher on a real file system: folders that come, go and change places while files are saved."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from graphbus_core.cli.running.watching import Watcher
from graphbus_core.errors import UsageError
from tests.patience import PATIENCE_S


class Watched:
    """A project that is watched, and what was told of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.excluded: tuple[str, ...] = ()
        self.told: SimpleQueue[tuple[str, ...] | UsageError] = SimpleQueue()
        self.watcher = Watcher(str(root), self.told.put, lambda: self.excluded)

    def saves(self, path: str) -> None:
        """Write a file."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"# {time.monotonic_ns()}\n")

    def is_told(self, path: str) -> bool:
        """Save a file until that is told: the watcher may be about to look at other folders."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.saves(path)
            if self._hears(path):
                return True
        return False

    def _hears(self, path: str) -> bool:
        try:
            while True:
                told = self.told.get(timeout=0.5)
                assert not isinstance(told, UsageError), told
                if path in told:
                    return True
        except Empty:
            return False


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    made.saves("agents/stock.py")
    with made.watcher:
        assert made.is_told("agents/stock.py")
        yield made


def replaced(watched: Watched) -> None:
    shutil.copytree(watched.root / "agents", watched.root.parent / f"{watched.root.name}-copy")
    shutil.rmtree(watched.root / "agents")
    shutil.move(watched.root.parent / f"{watched.root.name}-copy", watched.root / "agents")


def new_inside(watched: Watched) -> None:
    watched.saves("agents/inner/deep/new.py")


@pytest.mark.slow
@pytest.mark.parametrize("change", [replaced, new_inside])
def test_a_folder_that_has_changed_places_is_still_followed(
    watched: Watched, change: Callable[[Watched], None]
) -> None:
    change(watched)
    time.sleep(0.6)  # the batch of the change itself is over
    assert watched.is_told("agents/stock.py")
    if change is new_inside:
        assert watched.is_told("agents/inner/deep/new.py")


@pytest.mark.slow
def test_folders_that_come_and_go_all_the_time_do_not_end_it(watched: Watched) -> None:
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            for number in range(20):
                (watched.root / f"build{number}/lib/temporary").mkdir(parents=True, exist_ok=True)
            for number in range(20):
                shutil.rmtree(watched.root / f"build{number}", ignore_errors=True)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    time.sleep(3)
    is_over.set()
    thread.join()
    assert watched.is_told("agents/stock.py")


@pytest.mark.slow
def test_what_is_excluded_is_asked_after_each_save(watched: Watched) -> None:
    watched.excluded = ("inner",)
    assert watched.is_told("agents/stock.py")
    watched.saves("agents/inner/hidden.py")
    time.sleep(1)
    watched.excluded = ()
    assert watched.is_told("agents/stock.py")
    assert watched.is_told("agents/inner/hidden.py")


def test_a_machine_that_refuses_to_watch_is_reported(tmp_path: Path) -> None:
    told: SimpleQueue[object] = SimpleQueue()
    with Watcher(str(tmp_path / "nowhere"), told.put):
        refused = told.get(timeout=PATIENCE_S)
    assert isinstance(refused, UsageError)
    assert refused.code == "GBE164"
