"""The seam between a comparison of builds and a framework: a reader turns source text into messages, without importing it.

    Project (paths and texts of one state) --> Reader.read --> Messages (who sends what, who takes it, where)

What a reader promises
======================
Static    It runs nothing of the project and imports nothing of it; it reads files only through the project.
Honest    What it cannot read is a producer without channel, or open arguments, or listed in `unreadable`; it guesses nothing.
Places    Every span is in a file of the project.
Repeated  The same project gives the same messages.
Focused   If the project has a focus, the messages that a file in it sends or takes are among the result, and all others that
          are sent to these consumers. More may be among it.

A reader of your own is an entry point of the group `graphbus.readers`: its name, and an object with the function `read`.
`graphbus_core.testing.reader_suite` checks what is promised here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from importlib import import_module
from typing import Protocol, TypeVar, runtime_checkable

from graphbus_core.contracts.messages import Messages
from graphbus_core.errors import UsageError, did_you_mean

GROUP = "graphbus.readers"
"""The group of the entry points of readers."""
_OWN = {"celery": "graphbus_core.readers.celery"}
_Result = TypeVar("_Result")


class Project:
    """The Python files of one state of a repository.

    Attributes:
        paths: Their paths, relative to the root, with `/`.
        focus: The files that differ from the other state; None if everything is asked.
    """

    def __init__(
        self,
        paths: Collection[str],
        read: Callable[[str], bytes],
        focus: frozenset[str] | None = None,
        memory: dict[Hashable, object] | None = None,
    ) -> None:
        self.paths = frozenset(paths)
        self.focus = focus
        self._read = read
        self._memory = {} if memory is None else memory

    def text(self, path: str) -> bytes:
        """Return the bytes of a file; raises OSError if it cannot be read."""
        return self._read(path)

    def once(self, function: Callable[[bytes, str], _Result], path: str) -> _Result:
        """Return `function(text, path)`; states that share a memory compute it once for the same text."""
        text = self.text(path)
        key = (function, path, text)
        if key not in self._memory:
            self._memory[key] = function(text, path)
        return self._memory[key]  # type: ignore[return-value]


@runtime_checkable
class Reader(Protocol):
    """Reads the messages of one framework."""

    def read(self, project: Project) -> Messages:
        """Return who sends which messages in a project, and who takes them."""


def find_reader(name: str) -> Reader:
    """Return the reader with this name: one of GraphBus, else an entry point.

    Raises:
        UsageError: GBE185, there is none; GBE186, the entry point cannot be loaded, or is no reader.
    """
    if name in _OWN:
        found: object = import_module(_OWN[name])
    else:
        from importlib.metadata import entry_points

        points = {each.name: each for each in entry_points(group=GROUP)}
        if name not in points:
            known = sorted({*_OWN, *points})
            raise UsageError("GBE185", name=name, suggestion=did_you_mean(name, known), known=", ".join(known))
        try:
            found = points[name].load()
        except (ImportError, AttributeError) as failure:
            raise UsageError("GBE186", name=name, reason=str(failure)) from None
    if not isinstance(found, Reader):
        raise UsageError("GBE186", name=name, reason="it has no function `read`")
    return found
