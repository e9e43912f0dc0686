"""Work shared out to child processes: the same result as without, and none lost when a child fails."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from graphbus_core.compiler.parallel import count_workers

COUNT = 250
SCRIPT = """
import os, signal, sys, warnings
warnings.simplefilter("error")
from graphbus_core.compiler import facts
from graphbus_core.compiler.project import Project
from graphbus_core.model.config import BuildConfig

def read(workers):
    facts.count_workers = lambda items: workers
    return Project.read(BuildConfig(root=sys.argv[1], paths=(sys.argv[1],)), cache=False)

def same(one, other):
    return (
        one.definitions == other.definitions
        and one.digests == other.digests
        and list(map(str, one.errors)) == list(map(str, other.errors))
        and one.local_findings == other.local_findings
        and one.agent_files == other.agent_files
    )
"""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of many files, some of them bad, some without an agent, some with a base elsewhere."""
    root = tmp_path_factory.mktemp("many")
    (root / "base.py").write_text("from graphbus_core import GraphBusNode\nclass Base(GraphBusNode): pass\n")
    for number in range(COUNT):
        text = f"from base import Base\nclass Agent{number}(Base):\n    def f(self, x=[]): x.append(1)\n"
        if number % 50 == 0:
            text = "from graphbus_core import (\n"
        elif number % 7 == 0:
            text = f"X = {number}\n"
        elif number % 2:
            text = (
                f"import graphbus_core as g\nclass Agent{number}(g.GraphBusNode):\n    def f(self, x=[]): x.append(1)\n"
            )
        (root / f"a{number:03}.py").write_text(text)
    return root


def _run(root: Path, script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + textwrap.dedent(script), str(root)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_several_processes_read_what_one_reads(many: Path, workers: int) -> None:
    script = f"""
    alone, shared = read(1), read({workers})
    print(same(alone, shared), len(shared.definitions), len(shared.errors), len(shared.local_findings))
    """
    assert _run(many, script) == "True 210 5 210\n"


@pytest.mark.slow
@pytest.mark.parametrize("failure", ["os.kill(os.getpid(), signal.SIGKILL)", "raise MemoryError", "sys.exit(3)"])
def test_the_files_of_a_child_that_dies_are_read_all_the_same(many: Path, failure: str) -> None:
    script = f"""
    alone = read(1)
    parent, look = os.getpid(), facts.FactsReader._first_look
    def fails(self, file):
        if os.getpid() != parent and file.path > "a200":
            {failure}
        return look(self, file)
    facts.FactsReader._first_look = fails
    print(same(alone, read(3)))
    """
    assert _run(many, script) == "True\n"


@pytest.mark.slow
def test_no_child_outlives_a_reading_that_is_broken_off(many: Path) -> None:
    script = """
    import time
    parent, look = os.getpid(), facts.FactsReader._first_look
    def interrupted(self, file):
        if os.getpid() != parent:
            time.sleep(60)
        raise KeyboardInterrupt
    facts.FactsReader._first_look = interrupted
    try:
        read(3)
    except KeyboardInterrupt:
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("none left")
    """
    assert _run(many, script) == "none left\n"


@pytest.mark.parametrize("items", [0, 1, 79])
def test_few_files_are_read_by_one_process(items: int) -> None:
    assert count_workers(items) == 1


def test_beside_other_threads_nothing_is_forked() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert count_workers(100_000) == 1
    finally:
        done.set()
        thread.join()


@pytest.mark.slow
def test_as_many_processes_as_there_are_cores_and_work(many: Path) -> None:
    script = """
    from graphbus_core.compiler import parallel
    cores = min(len(os.sched_getaffinity(0)), parallel.MOST_WORKERS)
    print([parallel.count_workers(n) - min(cores, wanted) for n, wanted in ((80, 2), (100_000, 8))])
    """
    assert _run(many, script) == "[0, 0]\n"
