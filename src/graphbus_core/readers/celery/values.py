"""What an expression of a Celery project may be: a task, a signature, an application, a module and so on.

An expression has several values if it depends on a condition, and none if nothing is known of it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from graphbus_core.model.agent import SourceSpan
from graphbus_core.readers.scopes import Point, Scope


class Arguments(msgspec.Struct, frozen=True):
    """The arguments of a message, or those that a signature has already.

    Attributes:
        positional: How many values are passed by position.
        keywords: The names of those that are passed by name.
        has_rest: More may be passed by position.
        is_open: More may be passed by name.
    """

    positional: int = 0
    keywords: tuple[str, ...] = ()
    has_rest: bool = False
    is_open: bool = False

    def behind(self, front: Arguments) -> Arguments:
        """Return these arguments with those that are put before them."""
        names = (*self.keywords, *(name for name in front.keywords if name not in self.keywords))
        is_open = self.is_open or front.is_open
        return Arguments(front.positional + self.positional, names, front.has_rest or self.has_rest, is_open)


NOTHING = Arguments()
RESULT = Arguments(positional=1)
"""What a callback and each further task of a chain get first: the result before them."""
SOMETHING = Arguments(has_rest=True, is_open=True)


class ModuleValue(msgspec.Struct, frozen=True):
    """A module of the project, by its stem."""

    stem: str


class External(msgspec.Struct, frozen=True):
    """Something that the project imports from elsewhere, by its full name."""

    name: str


class Text(msgspec.Struct, frozen=True):
    """A string."""

    text: str


class Elements(msgspec.Struct, frozen=True):
    """The elements of a list, tuple, set or comprehension; of a comprehension one stands for all."""

    parts: tuple[tuple[ast.expr, Point], ...]


class Entries(msgspec.Struct, frozen=True):
    """The entries of a dictionary: keys and values; of a comprehension one stands for all."""

    parts: tuple[tuple[ast.expr | None, ast.expr], ...]
    point: Point


class ClassValue(msgspec.Struct, frozen=True):
    """A class of the project, by its scope."""

    scope: Scope


class Instance(msgspec.Struct, frozen=True):
    """An instance of a class of the project."""

    scope: Scope


class FunctionValue(msgspec.Struct, frozen=True):
    """A function of the project, by its scope."""

    scope: Scope


class App(msgspec.Struct, frozen=True):
    """A Celery application."""


class Registry(msgspec.Struct, frozen=True):
    """`app.tasks`, which finds tasks by name."""


class Decorator(msgspec.Struct, frozen=True):
    """`shared_task`, `app.task` and the like, with the options that they were given already."""

    options: tuple[tuple[str, ast.expr, Point], ...] = ()
    is_open: bool = False

    def extended(self, keywords: Sequence[ast.keyword], point: Point) -> Decorator:
        """Return the decorator with further options."""
        given = tuple((each.arg, each.value, point) for each in keywords if each.arg)
        return Decorator((*self.options, *given), self.is_open or any(each.arg is None for each in keywords))


class Task(msgspec.Struct, frozen=True):
    """A task that the project defines.

    Attributes:
        name: The name in messages; empty if it is computed.
        label: The name of the function or class.
        span: The place of its definition.
        scope: The function that is executed; None if it is not known.
        is_bound: The first parameter of the function is not an argument of the message.
        options: Option -> its text.
        wrappers: The decorators around the function that may change which arguments the task takes.
        is_opaque: One of them does, so that the signature of the function says little.
    """

    name: str
    label: str
    span: SourceSpan
    scope: Scope | None
    is_bound: bool
    options: tuple[tuple[str, str], ...]
    wrappers: tuple[str, ...] = ()
    is_opaque: bool = False


class NamedTask(msgspec.Struct, frozen=True):
    """A task that is only named."""

    name: str


class Signature(msgspec.Struct, frozen=True):
    """A task with some of its arguments, made at a place; an immutable one gets no result of another task."""

    task: Task | NamedTask | None
    arguments: Arguments
    is_immutable: bool
    span: SourceSpan


class Chain(msgspec.Struct, frozen=True):
    """Tasks of which each gets the result of the one before. Each part is the values that it may have."""

    parts: tuple[tuple[Value, ...], ...]


class Group(msgspec.Struct, frozen=True):
    """Tasks that run side by side."""

    parts: tuple[tuple[Value, ...], ...]


class Chord(msgspec.Struct, frozen=True):
    """A group, and the task that gets the list of its results; None as long as it is not given."""

    header: tuple[tuple[Value, ...], ...]
    body: tuple[Value, ...] | None


class Bound(msgspec.Struct, frozen=True):
    """A method of one of the values above."""

    owner: Value
    name: str


class Partial(msgspec.Struct, frozen=True):
    """`functools.partial` of a value."""

    function: Value


Value = (
    ModuleValue | External | Text | Elements | Entries | ClassValue | Instance | FunctionValue | App | Registry | Decorator
    | Task | NamedTask | Signature | Chain | Group | Chord | Bound | Partial
)  # fmt: skip
Values = tuple[Value, ...]
