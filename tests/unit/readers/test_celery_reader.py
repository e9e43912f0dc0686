"""The reader of Celery keeps what the seam promises, and a reader of another package is found by its entry point."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core.contracts.messages import Messages
from graphbus_core.errors import UsageError
from graphbus_core.readers import celery
from graphbus_core.readers.packages import Packages
from graphbus_core.readers.seam import Project, find_reader
from graphbus_core.testing.reader_suite import ReaderSuite

FILES = {
    "shop/__init__.py": "",
    "shop/tasks.py": (
        "from celery import shared_task\n\n\n@shared_task\ndef charge(order):\n    pass\n\n\n"
        "@shared_task(name='mail')\ndef send(result, address):\n    pass\n\n\nraise SystemExit\n"
    ),
    "shop/views.py": (
        "from celery import chain\nfrom .tasks import charge, send as mail\n\n\n"
        "def pay(order):\n    charge.delay(order)\n    chain(charge.s(order), mail.s('a@example.com'))()\n\n\nraise SystemExit\n"
    ),
    "shop/other.py": "raise SystemExit\n",
}


class TestCelery(ReaderSuite):
    reader = celery
    files = FILES
    producers = (
        ("shop.tasks.charge", "shop/views.py", 6),
        ("shop.tasks.charge", "shop/views.py", 7),
        ("mail", "shop/views.py", 7),
    )
    consumers = (("shop.tasks.charge", "shop/tasks.py", 5), ("mail", "shop/tasks.py", 10))


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    pass\nexcept OSError, ValueError:\n    pass\n",
        "try:\n    pass\nexcept* OSError, ValueError:\n    pass\n",
        "def first[T: list[int]](items: list[T]) -> T:\n    return items[0]\n",
        "class Box[T]:\n    pass\n",
        "type Row = dict[str, int]\ntype Rows[T] = list[T]\n",
    ],
)
def test_syntax_of_newer_versions_of_python_is_read_by_older_ones(text: str) -> None:
    files = {**FILES, "shop/views.py": text + FILES["shop/views.py"]}
    found = celery.read(Project(files, lambda path: files[path].encode()))
    shift = text.count("\n")
    assert {each.span.line - shift for each in found.producers} == {6, 7}
    assert found.unread == ()


class _Guessing:
    """A reader that invents a place, forgets the focus and cannot stand a torn file."""

    def read(self, project):
        found = celery.read(project)
        return Messages(found.producers[1:], found.consumers)


@pytest.mark.parametrize(
    "test",
    ["test_it_finds_who_sends_and_who_takes_and_where", "test_a_file_that_cannot_be_read_is_unknown"],
)
def test_the_suite_finds_a_reader_that_breaks_a_promise(test: str) -> None:
    suite = type("Guessing", (TestCelery,), {"reader": _Guessing()})()
    with pytest.raises(AssertionError):
        getattr(suite, test)()


def test_a_reader_of_another_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "postman.py").write_text("def read(project):\n    return None\n")
    about = tmp_path / "postman-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: postman\nVersion: 1.0\n")
    points = "[graphbus.readers]\npostman = postman\nbroken = postman:missing\nempty = sys\n"
    (about / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_reader("postman").read.__module__ == "postman"
    for name, reason in (("broken", "missing"), ("empty", "no function `read`"), ("postmen", "postman")):
        with pytest.raises(UsageError, match=reason):
            find_reader(name)
    sys.modules.pop("postman")


def test_our_own_readers_ask_for_no_entry_points() -> None:
    code = "import sys; from graphbus_core.readers.seam import find_reader; find_reader('celery'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "importlib.metadata" not in done.stdout.split()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("shop/tasks.py", "shop.tasks"),
        ("src/shop/tasks.py", "shop.tasks"),
        ("backend/shop/tasks.py", "shop.tasks"),
        ("backend/shop/jobs/money.py", "shop.jobs.money"),
        ("backend/shop/plain/money.py", "shop.plain.money"),
        ("backend/shop/__init__.py", "shop"),
        ("loose/tasks.py", "loose.tasks"),
        ("tasks.py", "tasks"),
    ],
)
def test_a_module_has_the_name_by_which_it_is_imported(path: str, name: str) -> None:
    paths = [
        "shop/__init__.py", "src/shop/__init__.py", "backend/shop/__init__.py", "backend/shop/jobs/__init__.py", path,
    ]  # fmt: skip
    assert Packages(paths).name_of(path) == name


def test_an_import_means_the_module_beside_the_importer_before_others() -> None:
    packages = Packages(["one/shop/__init__.py", "one/shop/tasks.py", "two/shop/__init__.py", "two/shop/tasks.py"])
    assert packages.find("shop.tasks", "two/shop/views.py") == "two/shop/tasks"
    assert packages.find("shop.tasks", "elsewhere.py") == "one/shop/tasks"
    assert packages.find("django.db", "one/shop/tasks.py") is None
    assert packages.relative("two/shop/views.py", 1, "tasks") == "two/shop/tasks"
    assert packages.relative("two/shop/views.py", 2, "tasks") is None


def test_a_file_without_a_word_of_celery_may_send_a_task_by_a_helper() -> None:
    files = {
        "tasks.py": "from celery import shared_task\n\n@shared_task\ndef charge(a, b=1):\n    pass\n",
        "helpers.py": "def later(task, *args, **kwargs):\n    task.delay(*args, **kwargs)\n",
        "views.py": "import tasks\nfrom helpers import later\n\nlater(tasks.charge, 1, b=2)\n",
    }
    found = celery.read(Project(files, lambda path: files[path].encode())).producers
    assert [(each.span.path, len(each.positional)) for each in found if each.channel == "tasks.charge"] == [
        ("views.py", 1)
    ]
