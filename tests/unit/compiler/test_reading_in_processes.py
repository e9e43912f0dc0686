"""A first reading is shared between processes where that pays off; what is read does not depend on how many there were."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from graphbus_core.compiler.project import Project
from graphbus_core.model.config import BuildConfig
from graphbus_core.settings import resolve_build
from tests.project_files import write_project
from tests.reading import HEAD

FILES = {
    f"agents/a{n:02}.py": HEAD + f"class A{n}(GraphBusNode):\n    def go(self): self.publish('/A/{n}', {{}})\n"
    for n in range(70)
}
SHOP = {
    **FILES,
    "kit/base.py": HEAD + "class BaseAgent(GraphBusNode):\n    def go(self, x=[]): x.append(1)\n",
    "agents/heir.py": HEAD + "from kit.base import BaseAgent\nclass Heir(BaseAgent): pass\n",
    "agents/wrong.py": HEAD + "class Wrong(GraphBusNode:\n",
    "agents/late.py": "from agents.heir import Heir\nclass Late(Heir): pass\n",
    "agents/plain.py": "class Plain: pass\n",
}


def _read(root: Path) -> tuple[object, ...]:
    project = Project.read(resolve_build(BuildConfig(paths=(str(root / "agents"),))), cache=False)
    errors = [str(error) for error in project.errors]
    return (
        project.definitions,
        project.order,
        project.local_findings,
        errors,
        project.digests,
        project.source("kit/base.py").data,
    )


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often this process was copied, on a machine with two processors."""
    made: list[int] = []
    fork = os.fork

    def counted() -> int:
        made.append(1)
        return fork()

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "fork", counted)
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    return made


def test_two_processes_read_what_one_reads(forks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path, SHOP)
    together = _read(tmp_path)
    assert forks
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert together == _read(tmp_path)
    assert len(forks) == 1


def test_one_process_reads_all_where_no_other_can_be_started(
    forks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path, SHOP)
    together = _read(tmp_path)

    def refused() -> int:
        raise OSError("no more processes")

    monkeypatch.setattr(os, "fork", refused)
    assert together == _read(tmp_path)


def test_what_a_failed_process_leaves_is_read_by_this_one(
    forks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path, SHOP)
    together = _read(tmp_path)
    monkeypatch.setattr(os, "_exit", lambda _: os.kill(os.getpid(), signal.SIGKILL))
    assert together == _read(tmp_path)
    assert len(forks) == 2


def test_a_process_with_threads_is_not_copied(
    forks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path, SHOP)
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    _read(tmp_path)
    assert not forks
