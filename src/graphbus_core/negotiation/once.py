"""What follows from a project alone is worked out once for each: a project never changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from graphbus_core.compiler.project import Project

T = TypeVar("T")


def once_for_each(make: Callable[[Project], T]) -> Callable[[Project], T]:
    """Keep what a pure function gives for a project as long as the project is there. Two threads may both work it out."""
    known: WeakKeyDictionary[Project, T] = WeakKeyDictionary()

    @wraps(make)
    def given(project: Project) -> T:
        try:
            return known[project]
        except KeyError:
            known[project] = made = make(project)
            return made

    return given
