"""What is known of a renamed parameter in each form of Celery code: a message that fails is found, and no doubt becomes a ✓."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphbus_core.readers import celery
from graphbus_core.readers.seam import Project
from tests.celery.collection import Files, answer_of, compare

KNOWN = "from shop.tasks import charge\n\n\ndef known():\n    charge.delay(1, 2)\n\n\n"
SENT = "from shop.tasks import charge\n\n\ncharge.delay(1, amount=2)\n"
TASK = "from celery import shared_task\n\n\n@shared_task\ndef charge(order_id, amount=1):\n    pass\n"
OTHERS: Files = {
    "shop/__init__.py": "from shop.tasks import charge\n",
    "shop/other.py": "from celery import shared_task\n\n\n@shared_task\ndef a(x, amount=1, **kw):\n    pass\n",
    "shop/helpers.py": "def later(task, *args, **kwargs):\n    task.apply_async(args, kwargs)\n",
    "shop/deco.py": (
        "from celery import shared_task\n\n\ndef my_task(func):\n    return shared_task(acks_late=True)(func)\n\n\n"
        "def my_task2(*args, **kwargs):\n    return shared_task(*args, **kwargs)\n"
    ),
}


def read_forms() -> list[tuple[str, str, Files]]:
    """Return name, label and files of each form."""
    parts = Path(__file__).with_name("forms.txt").read_text("utf-8").split("\n--- ")[1:]
    found = []
    for part in parts:
        for entry in re.split(r"^=== ", part, flags=re.MULTILINE)[1:]:
            name, label, text = entry.split("\n", 2)
            is_send = part.startswith("sends")
            files = {"shop/views.py": KNOWN + text} if is_send else {"shop/views.py": SENT, "shop/tasks.py": text}
            found.append((name, label, {**OTHERS, "shop/tasks.py": TASK, **files}))
    return found


FORMS = read_forms()


@pytest.mark.parametrize(
    ("label", "files"), [each[1:] for each in FORMS], ids=[each[0].replace(" ", "-") for each in FORMS]
)
def test_a_renamed_parameter_is_judged_as_far_as_it_is_known(label: str, files: Files) -> None:
    changed = {**files, "shop/tasks.py": files["shop/tasks.py"].replace("amount", "total")}
    assert answer_of(compare(files, changed))[0] == label


def test_helpers_that_call_each_other_at_many_places_are_followed_only_so_far() -> None:
    calls = "".join(f"    other(task, key_{number}=1, **kwargs)\n" for number in range(12))
    helpers = f"def again(task, **kwargs):\n    task.delay(**kwargs)\n{calls}"
    helpers += helpers.replace("again", "other").replace(" other(", " again(")
    sent = f"{helpers}def go():\n    again(charge, order_id=1, amount=2)\n"
    files = {"shop/__init__.py": "", "shop/tasks.py": TASK, "shop/views.py": f"from shop.tasks import charge\n{sent}"}
    sends = celery.read(Project(files, lambda path: files[path].encode())).producers
    assert 13 < len(sends) < 500  # every path through four functions would be 1885
