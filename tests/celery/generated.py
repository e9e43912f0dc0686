"""Generated Celery projects: tasks with signatures of all kinds, and sends in all forms, each of which fits its task."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

Files = dict[str, str]


class Task(NamedTuple):
    """A task: names of its parameters, each with whether it must be given."""

    module: str
    name: str
    positional: tuple[tuple[str, bool], ...]
    by_name: tuple[tuple[str, bool], ...]
    is_bound: bool
    has_rest: bool
    is_open: bool
    given_name: str

    @property
    def full_name(self) -> str:
        return self.given_name or f"{self.module}.{self.name}"

    def source(self) -> str:
        listed = ["self"] * self.is_bound
        listed += [name if needed else f"{name}=None" for name, needed in self.positional]
        listed += ["*args"] if self.has_rest else ["*"] if self.by_name else []
        listed += [name if needed else f"{name}=0" for name, needed in self.by_name]
        listed += ["**kwargs"] * self.is_open
        options = ["bind=True"] * self.is_bound + [f"name={self.given_name!r}"] * bool(self.given_name)
        return f"@shared_task({', '.join(options)})\ndef {self.name}({', '.join(listed)}):\n    return 1\n\n"


def make_task(random: Random, module: str, name: str) -> Task:
    count = random.randrange(4)
    needed = random.randint(0, count)
    positional = tuple((f"p{n}", n < needed) for n in range(count))
    by_name = tuple((f"k{n}", random.random() < 0.5) for n in range(random.randrange(3)))
    given = f"{name}.job" if random.random() < 0.3 else ""
    flags = [random.random() < 0.3 for _ in range(3)]
    return Task(module, name, positional, by_name, flags[0], flags[1], flags[2], given)


def arguments(random: Random, task: Task, front: int = 0) -> tuple[list[str], dict[str, str]]:
    """Return values by position and by name that fit the task when `front` values come before them."""
    least = sum(needed for _, needed in task.positional)
    most = len(task.positional) + (2 if task.has_rest else 0)
    by_position = random.randint(min(front, most), max(most, front))
    named = {name: "1" for name, needed in task.by_name if needed or random.random() < 0.5}
    for at, (name, needed) in enumerate(task.positional):
        if at >= by_position and (needed or random.random() < 0.3):
            named[name] = "2"
    assert by_position + len(named) >= least
    if task.is_open and random.random() < 0.5:
        named["extra"] = "3"
    return ["x"] * (by_position - front), named


def call(values: list[str], named: dict[str, str]) -> str:
    return ", ".join([*values, *(f"{name}={value}" for name, value in named.items())])


def literals(values: list[str], named: dict[str, str]) -> tuple[str, str]:
    tuple_of = f"({', '.join(values)},)" if values else "()"
    return tuple_of, "{" + ", ".join(f"{name!r}: {value}" for name, value in named.items()) + "}"


Form = Callable[[Random, Task, str], "tuple[str, int]"]


def _delay(random: Random, task: Task, name: str) -> tuple[str, int]:
    return f"{name}.delay({call(*arguments(random, task))})", 1


def _apply_async(random: Random, task: Task, name: str) -> tuple[str, int]:
    values, named = literals(*arguments(random, task))
    return f"{name}.apply_async({values}, {named}, countdown=3)", 1


def _by_keywords(random: Random, task: Task, name: str) -> tuple[str, int]:
    values, named = literals(*arguments(random, task))
    return f"{name}.apply_async(kwargs={named}, args={values})", 1


def _variables(random: Random, task: Task, name: str) -> tuple[str, int]:
    values, named = literals(*arguments(random, task))
    return f"values = {values}\n    named = {named}\n    {name}.apply_async(values, named)", 1


def _signature(random: Random, task: Task, name: str) -> tuple[str, int]:
    return f"{name}.s({call(*arguments(random, task))}).apply_async(queue='slow')", 1


def _named(random: Random, task: Task, name: str) -> tuple[str, int]:
    values, named = literals(*arguments(random, task))
    return f"app.send_task({task.full_name!r}, {values}, {named})", 1


def _named_signature(random: Random, task: Task, name: str) -> tuple[str, int]:
    values, named = literals(*arguments(random, task))
    return f"signature({task.full_name!r}, args={values}, kwargs={named}).delay()", 1


def _group(random: Random, task: Task, name: str) -> tuple[str, int]:
    return f"group({name}.s({call(*arguments(random, task))}) for x in things)()", 1


def _partial(random: Random, task: Task, name: str) -> tuple[str, int]:
    inside = call(*arguments(random, task))
    return f"on_commit(partial({name}.delay{', ' if inside else ''}{inside}))", 1


def _later(random: Random, task: Task, name: str) -> tuple[str, int]:
    return f"on_commit(lambda: {name}.delay({call(*arguments(random, task))}))", 1


def _chain(random: Random, task: Task, name: str) -> tuple[str, int]:
    first = f"{name}.s({call(*arguments(random, task))})"
    if task.positional or task.has_rest:
        return f"chain({first}, {name}.s({call(*arguments(random, task, 1))})).delay()", 2
    return f"({first} | {name}.si({call(*arguments(random, task))}))()", 2


def _chord(random: Random, task: Task, name: str) -> tuple[str, int]:
    body = f"{name}.s({call(*arguments(random, task, 1))})"
    if not (task.positional or task.has_rest):
        body = f"{name}.si({call(*arguments(random, task))})"
    return f"chord([{name}.s({call(*arguments(random, task))})])({body})", 2


FORMS: list[Form] = [
    _delay, _apply_async, _by_keywords, _variables, _signature, _named, _named_signature, _group, _partial, _later,
    _chain, _chord,
]  # fmt: skip

SHADOWS = [
    "def other({name}):\n    {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "def other(things):\n    for {name} in things:\n        {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "def other(things):\n    return [{name}.delay(1, 2, 3, 4, 5, wrong=6) for {name} in things]\n",
    "def other(things):\n    {name} = things.pop()\n    {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "def other(things):\n    with things as {name}:\n        {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "def other(things):\n    if ({name} := things.first()):\n        {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "def other(things):\n    from elsewhere import {name}\n    {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "def other(things):\n    class {name}:\n        pass\n    {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "def other(things):\n    def {name}():\n        pass\n    {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "def other(things):\n    {name}, rest = things\n    {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "def other(things):\n    try:\n        pass\n    except OSError as {name}:\n        {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "def other(things):\n    match things:\n        case [{name}, *_]:\n            {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "def outer({name}):\n    def other():\n        {name}.delay(1, 2, 3, 4, 5, wrong=6)\n    return other\n",
    "other = lambda {name}: {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "class Other:\n    def run(self, {name}=None):\n        self.{name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "class Other:\n    {name} = object()\n    {name}.delay(1, 2, 3, 4, 5, wrong=6)\n    def run(self):\n"
    "        self.{name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "def other(*{name}):\n    {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
    "async def other(things):\n    async for {name} in things:\n        {name}.delay(1, 2, 3, 4, 5, wrong=6)\n",
]  # fmt: skip

_HEAD = """
from functools import partial
from celery import chain, chord, group, signature
from {module} import {name} as {alias}
from shop import {last}
from shop.worker import app

"""
_APP = {"shop/__init__.py": "", "shop/worker.py": "from celery import Celery\napp = Celery('shop')\n"}


def make_project(seed: int, tasks: int) -> tuple[Files, Files, int]:
    """Return the files with tasks, the files that send them, and how many sends these have; the sends are all correct."""
    random = Random(seed)
    jobs, senders, count = dict(_APP), {}, 0
    for number in range(tasks):
        last = f"tasks_{number % 7}"
        task = make_task(random, f"shop.{last}", f"job_{number}")
        jobs.setdefault(f"shop/{last}.py", "from celery import shared_task\n\n")
        jobs[f"shop/{last}.py"] += task.source()
        alias = random.choice([task.name, f"{task.name}_task"])
        text = _HEAD.format(module=task.module, name=task.name, alias=alias, last=last)
        for at, form in enumerate(random.sample(FORMS, 6)):
            line, sent = form(random, task, random.choice([alias, f"{last}.{task.name}"]))
            text += f"def send_{at}(x, things, on_commit):\n    {line}\n\n"
            count += sent
        text += random.choice(SHADOWS).format(name=alias)
        senders[f"shop/views/view_{number}.py"] = text
    return jobs, senders, count
