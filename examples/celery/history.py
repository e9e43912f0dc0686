"""Makes a small repository that uses Celery, with a branch for each of some changes: safe ones, and one for each way to break.

python history.py shop
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RECEIPT = '''@shared_task
def send_receipt(payment, address):
    """Send the receipt of a payment."""
'''
TASKS = f'''"""What workers do."""

from celery import shared_task


@shared_task(autoretry_for=(OSError,), max_retries=10)
def charge(order_id, amount):
    """Take money for an order."""


{RECEIPT}

@shared_task
def clean_up(days=30):
    """Forget old orders."""
'''
VIEWS = '''"""What visitors do."""

from celery import chain

from shop.tasks import charge, send_receipt


def pay(order):
    """Take the money, then send the receipt."""
    chain(charge.s(order.id, order.total), send_receipt.s(order.address)).delay()


def try_again(order):
    """Take the money of an order that could not be paid."""
    charge.delay(order.id, amount=order.total)
'''
WORKER = '''"""The application."""

from celery import Celery

app = Celery("shop")
app.conf.beat_schedule = {
    "nightly": {"task": "shop.tasks.clean_up", "schedule": 86400, "kwargs": {"days": 7}},
}
'''
_IMPORTS = "from shop.mail import send_receipt\nfrom shop.tasks import charge"
BRANCHES = {
    "a-currency": [
        ("tasks.py", "order_id, amount)", "order_id, amount, currency)"),
        ("views.py", "order.id, order.total)", "order.id, order.total, order.currency)"),
        ("views.py", "amount=order.total)", "amount=order.total, currency=order.currency)"),
    ],
    "a-currency-with-default": [("tasks.py", "order_id, amount)", 'order_id, amount, currency="EUR")')],
    "another-name": [("tasks.py", "clean_up(days=30)", "clean_up(age=30)"), ("worker.py", '"days"', '"age"')],
    "a-module-of-its-own": [
        ("tasks.py", f"{RECEIPT}\n\n", ""),
        ("mail.py", "", f'"""Mail."""\n\nfrom celery import shared_task\n\n\n{RECEIPT}'),
        ("views.py", "from shop.tasks import charge, send_receipt", _IMPORTS),
    ],
    "a-comment": [("tasks.py", "Take money for an order.", "Take the money for an order, once.")],
}  # fmt: skip
"""Branch -> the file, the old text and the new text of each change."""


def make_history(folder: Path) -> None:
    """Make the repository in a new folder, with a branch for each change; `main` is checked out."""
    (folder / "shop").mkdir(parents=True)
    texts = {"__init__.py": "", "tasks.py": TASKS, "views.py": VIEWS, "worker.py": WORKER}
    write(folder, texts)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "A shop")
    for branch, edits in BRANCHES.items():
        changed = dict(texts)
        for name, old, new in edits:
            changed[name] = changed.get(name, "").replace(old, new)
        git(folder, "switch", "-q", "-c", branch, "main")
        write(folder, changed)
        commit(folder, branch.replace("-", " ").capitalize())
    git(folder, "switch", "-q", "main")


def write(folder: Path, texts: dict[str, str]) -> None:
    """Write files of the package."""
    for name, text in texts.items():
        (folder / "shop" / name).write_text(text, encoding="utf-8")


def commit(folder: Path, message: str) -> None:
    """Commit everything."""
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "-m", message)


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder."""
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)


if __name__ == "__main__":
    make_history(Path(sys.argv[1]))
