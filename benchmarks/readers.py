"""Measures `contract diff --reader celery` on a generated repository: processor time of the whole command, of one changed task.

python benchmarks/readers.py                 # 500,000 lines
python benchmarks/readers.py --lines 50000 --runs 3
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

_STEPS = "".join(
    f"    value_{n} = compute_{n}(value_{n - 1}, option={n})\n    if value_{n} is None:\n        raise ValueError({n})\n"
    for n in range(1, 9)
)
_TASK = "@shared_task(bind=True, max_retries=3)\ndef task_{app}_{n}(self, value_0, option=None):\n{steps}\n\n"
_VIEW = (
    "def view_{n}(request):\n    value_0 = request.data\n{steps}    task_{app}_{n}.delay(value_1, option=value_2)\n\n\n"
)
_PLAIN = "def rule_{n}(value_0):\n{steps}    return value_8\n\n\n"


def main() -> None:
    """Generate the repository, change a task and one of its sends, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="graphbus-readers-") as folder:
        lines, files = make_repository(Path(folder), arguments.lines)
        times = sorted(processor_time(Path(folder)) for _ in range(arguments.runs))
    middle = statistics.median(times)
    print(f"{lines:,} lines in {files:,} files: {middle:.2f} s of processor time, at most {times[-1]:.2f} s")


def make_repository(root: Path, wanted: int) -> tuple[int, int]:
    """Make a repository with at least so many lines, and change a task and one of its sends; return its lines and files."""
    lines = files = 0
    for app in count():
        for path, text in app_files(app):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
            lines, files = lines + text.count("\n"), files + 1
        if lines >= wanted:
            break
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "All")
    for path, old, new in (
        ("app_1/tasks.py", "task_1_2(self, value_0", "task_1_2(self, value_0, tenant"),
        ("app_1/views_0.py", "task_1_2.delay(value_1", "task_1_2.delay(value_1, tenant=2"),
    ):
        (root / path).write_text((root / path).read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    return lines, files


def app_files(app: int) -> Iterator[tuple[str, str]]:
    """Yield the files of an app: a third of them know Celery."""
    yield f"app_{app}/__init__.py", ""
    head = "from celery import shared_task\n\n\n"
    yield f"app_{app}/tasks.py", head + "".join(_TASK.format(app=app, n=n, steps=_STEPS) for n in range(4))
    for number in range(5):
        head = f"from app_{app}.tasks import task_{app}_1, task_{app}_2, task_{app}_3\n\n\n"
        body = "".join(_VIEW.format(app=app, n=n, steps=_STEPS) for n in range(1, 4))
        yield f"app_{app}/views_{number}.py", head + body
    for number in range(12):
        yield f"app_{app}/rules_{number}.py", "".join(_PLAIN.format(n=n, steps=_STEPS) for n in range(4))


def git(root: Path, *arguments: str) -> None:
    """Run git in the repository."""
    subprocess.run(["git", "-C", str(root), *arguments], check=True)


def processor_time(root: Path) -> float:
    """Return the seconds of processor time of one comparison, those of git included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "graphbus_core", "contract", "diff", "--reader", "celery", "main"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 3 or "`tenant` was added" not in done.stdout:
        raise SystemExit(f"the change was not found:\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
