"""The errors of GraphBus: one class for each family, one code for each error, with a sentence and a hint.

An error carries data; its sentence and hint are formatted from that data and the templates in `register.REGISTER`:

    raise BuildError("GBE210", where=Place("agents/shop.py", 12), name="OrderProcessor", other="agents/old.py:3")

The family decides the exit status of the command line. Findings of `graphbus check` (GB001 ...) are not errors; they are in
`graphbus_core.compiler.rules`.
"""

from __future__ import annotations

from collections.abc import Iterable
from errno import EPERM
from typing import Any, ClassVar, NamedTuple

from graphbus_core.errors.legible import escape_unprintable


class Place(NamedTuple):
    """A place in a file: a path as the user would write it, a line and a column that count from 1 (0: unknown)."""

    path: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.path, *(str(number) for number in self[1:] if number)])


class ErrorText(NamedTuple):
    """The sentence and the hint for one code: format templates for the data of the error."""

    sentence: str
    hint: str


class GraphBusError(Exception):
    """Base of all errors that GraphBus reports to the user, without a traceback.

    Attributes:
        code: The key in `register.REGISTER`, e.g. `"GBE210"`.
        where: The place of the error, if there is one.
        data: The values of the template fields.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, code: str, *, where: Place | None = None, **data: object) -> None:
        from graphbus_core.errors.register import REGISTER  # imported late: most commands raise no error

        entry = REGISTER[code]
        self.code = code
        self.where = where
        self.data = data
        self.sentence = escape_unprintable(entry.sentence.format(**data))
        self.hint = escape_unprintable(entry.hint.format(**data))
        super().__init__(code, self.sentence)

    @property
    def status(self) -> int:
        """The exit status of the command that fails with it."""
        return self.exit_status

    def __reduce__(self) -> tuple[Any, ...]:
        return _recreate_error, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{place}{self.sentence} [{self.code}]{hint}"


def _recreate_error(kind: type[GraphBusError], arguments: tuple[Any, ...], data: dict[str, Any]) -> GraphBusError:
    """Recreate a pickled error; its sentence is formatted already."""
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(data)
    return error


class UsageError(GraphBusError):
    """The command, its options or its settings are not valid."""

    exit_status = 2


class BuildError(GraphBusError):
    """Source files or the graph that they describe cannot be built."""

    exit_status = 3


class EditError(GraphBusError):
    """A change to a source file was refused or could not be written."""

    exit_status = 4


class NotJudgedError(EditError):
    """The machine was too busy to test a change, so there is no verdict on it."""


class NegotiationError(GraphBusError):
    """A negotiation could not be started, continued or found."""

    exit_status = 5


class ModelError(NegotiationError):
    """A model cannot be asked, or gave no usable answer.

    Attributes:
        is_final: Every further call would fail in the same way: a wrong key, an unknown model, no such program.
        is_transient: The same call may succeed later; `retry_after_s` is what the server asks for, if it does.
        may_be_billed: The provider may charge for it: the answer was cut off, or the wait for it ended early.
    """

    def __init__(
        self,
        code: str,
        *,
        is_final: bool = False,
        is_transient: bool = False,
        retry_after_s: float | None = None,
        may_be_billed: bool = False,
        where: Place | None = None,
        **data: object,
    ) -> None:
        super().__init__(code, where=where, **data)
        self.is_final = is_final
        self.is_transient = is_transient
        self.retry_after_s = retry_after_s
        self.may_be_billed = may_be_billed


class ArtifactError(GraphBusError):
    """The artifacts in `.graphbus/` are missing, damaged, outdated or do not match the source files."""

    exit_status = 6


class RunError(GraphBusError):
    """A graph could not be started, or a call or an event was refused."""

    exit_status = 7


class PowerError(RunError, PermissionError):
    """A confined graph tried to use a power that is not declared, and was refused.

    It is also a PermissionError, so that libraries which continue without a file or a host still do.
    """

    def __init__(self, code: str, *, where: Place | None = None, **data: object) -> None:
        super().__init__(code, where=where, **data)
        self.errno = EPERM


class BackpressureError(RunError):
    """The queue of the bus is full."""


class DeadlockError(RunError):
    """A call or request would wait for itself."""


class RequestTimeoutError(RunError):
    """The answer to a request did not come in time."""


class DeployError(GraphBusError):
    """An image, manifest or pipeline could not be generated, written, built or deployed."""

    exit_status = 8


class SeveralErrors(GraphBusError):  # noqa: N818 - a group, like ExceptionGroup
    """Several errors of one operation; all are reported, and the first decides the exit status.

    Attributes:
        errors: The errors, in the order of their places.
    """

    def __init__(self, errors: Iterable[GraphBusError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        super().__init__("GBE001", count=len(self.errors))
        self.where = first.where
        self._first = first

    @property
    def status(self) -> int:
        """The exit status of the first error."""
        return self._first.status

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


def raise_all(errors: Iterable[GraphBusError]) -> None:
    """Raise a single error itself, several ones as `SeveralErrors`; return if there are none."""
    found = tuple(errors)
    if len(found) == 1:
        raise found[0]
    if found:
        raise SeveralErrors(found)


_SIMILAR = 0.6
"""The least share of equal letters (`difflib.SequenceMatcher.ratio`) of a word and a suggestion for it."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` for the most similar of `known`, or `""` if none is similar.

    Leading segments of paths and topics that are equal do not count: `/Book/Lent` is not similar to `/Book/Returned`.
    """
    from difflib import SequenceMatcher, get_close_matches

    for near in get_close_matches(word, sorted(known), n=3, cutoff=_SIMILAR):
        ends = (at for at, letter in enumerate(near, 1) if letter == "/" and word.startswith(near[:at]))
        same = max(ends, default=0)
        if SequenceMatcher(None, word[same:], near[same:]).ratio() >= _SIMILAR:
            return f" Did you mean {near!r}?"
    return ""
