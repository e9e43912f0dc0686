"""Generated correct code gives no alarm, and every name that hides a task hides it."""

from __future__ import annotations

import re

import pytest

from graphbus_core.readers import celery
from graphbus_core.readers.seam import Project
from tests.celery.collection import compare
from tests.celery.generated import SHADOWS, make_project

TASKS = "from celery import shared_task\n\n@shared_task\ndef charge(order):\n    pass\n"


def test_no_alarm_in_more_than_five_hundred_correct_sends_and_none_is_missed() -> None:
    found = 0
    for seed in range(4):
        jobs, senders, count = make_project(seed, 25)
        comparison = compare(jobs, jobs | senders)
        alarms = [each for each in comparison.remarks if each.verdict != "note"]
        assert alarms == []
        new = comparison.messages[1]
        assert sum(bool(each.channel) for each in new.producers) == count
        assert [each for each in new.producers if each.is_open or each.has_rest] == []
        found += count
    print(f"{found} correct sends, 0 alarms")
    assert found >= 500


@pytest.mark.parametrize("seed", range(3))
def test_each_send_fails_when_its_task_needs_one_more(seed: int) -> None:
    jobs, senders, _ = make_project(seed, 10)
    for path, text in jobs.items():
        for name in re.findall(r"def (job_\d+)\(", text):
            changed = re.sub(rf"def {name}\((self,? ?)?", rf"def {name}(\1, missing, ", text).replace("(, ", "(")
            changed = changed.replace("self, , ", "self, ")
            comparison = compare(jobs | senders, jobs | senders | {path: changed})
            [broken] = [each for each in comparison.remarks if each.verdict == "breaks"]
            assert broken.task in (f"{name}.job", f"{path[:-3].replace('/', '.')}.{name}")
            assert "missing" in {each.parameter for each in broken.differences}


@pytest.mark.parametrize("shadow", SHADOWS)
def test_a_name_that_hides_a_task_is_not_the_task(shadow: str) -> None:
    files = {"tasks.py": TASKS, "views.py": f"from tasks import charge\n\n{shadow.format(name='charge')}"}
    found = celery.read(Project(files, lambda path: files[path].encode()))
    assert not [each for each in found.producers if each.channel]


@pytest.mark.parametrize(
    "text",
    [
        "charge.delay(1)",
        "def f():\n    charge.delay(1)\n\ndef charge_all(charge_all):\n    pass",
        "def f(things):\n    x = [charge for charge in things]\n    charge.delay(1)",
        "class A:\n    charge = None\n    def f(self):\n        charge.delay(1)",
        "def f(things):\n    def g(charge):\n        pass\n    charge.delay(1)",
        "def f():\n    global charge\n    charge.delay(1)",
        "if x:\n    charge.delay(1)\nelse:\n    pass",
        "def f():\n    task = charge\n    task.delay(1)",
        "def f(x):\n    task = charge if x else None\n    if task:\n        task.delay(1)",
        "def f():\n    for task in (charge,):\n        task.delay(1)",
        "class A:\n    task = charge\n    def f(self):\n        self.task.delay(1)",
        "class A:\n    def __init__(self):\n        self.task = charge\n    def f(self):\n        self.task.delay(1)",
        "def pick():\n    return charge\n\ndef f():\n    pick().delay(1)",
        "import tasks as jobs\njobs.charge.delay(1)",
        "def f():\n    import tasks\n    tasks.charge.delay(1)",
        "from celery import current_app\ncurrent_app.tasks['tasks.charge'].delay(1)",
        "import tasks\ngetattr(tasks, 'charge').delay(1)",
        "send = charge.delay\nsend(1)",
        "[charge.delay(x) for x in range(3)]",
        "def prepare(x):\n    if x:\n        return None, None\n    return charge, x\n\n"
        "def f(x):\n    task, y = prepare(x)\n    task.delay(1)",
        "def prepare(x):\n    return charge.s(1), x\n\ndef f(x):\n    task, y = prepare(x)\n    task.apply_async()",
        "def f(x):\n    (a, b), c = (charge, x), x\n    a.delay(1)",
        "def later(function, *args, **kwargs):\n    on_commit(lambda: function(*args, **kwargs))\n\nlater(charge.delay, 1)",
        "def f(x):\n    task = other\n    task = charge\n    task.delay(1)",
        "def f(x):\n    task = None\n    while x:\n        if task:\n            task.delay(1)\n        task = charge",
        "try:\n    from tasks import charge as send\nexcept ImportError:\n    send = None\nsend.delay(1)",
    ],
)
def test_a_name_that_is_a_task_is_found(text: str) -> None:
    files = {"tasks.py": TASKS, "views.py": f"from tasks import charge\n{text}\n"}
    found = celery.read(Project(files, lambda path: files[path].encode()))
    known = [
        each for each in found.producers if not each.has_rest
    ]  # `send = charge.delay` by itself, or a task that a class keeps, may get any arguments
    assert [(each.channel, len(each.positional)) for each in known] == [("tasks.charge", 1)]
