"""Topic names, `/Segment/Segment`, and patterns: `*` stands for one segment, `**` at the end for one or more."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

from graphbus_core.errors import RunError

_SEGMENT = r"[A-Za-z0-9_-]{1,64}"
_TOPIC = rf"(?:/{_SEGMENT})+"
_PATTERN = rf"(?:/(?:{_SEGMENT}|\*))*(?:/(?:{_SEGMENT}|\*{{1,2}}))"  # compiled only when a pattern is used

_Payload = TypeVar("_Payload")
_Given = ParamSpec("_Given")


class Publishable(Protocol[_Given]):
    """For type checkers only: publishing on a `Topic[Order]` takes an `Order`. The method does not exist at run time."""

    def _publish(self, *given: _Given.args, **named: _Given.kwargs) -> None: ...


class Requestable(Protocol[_Given]):
    """For type checkers only: a request on a `Topic[Order]` takes an `Order`, and optionally a timeout."""

    def _request(self, *given: _Given.args, **named: _Given.kwargs) -> None: ...


class Topic(Generic[_Payload]):
    """A topic, or a pattern to subscribe to, and the type of its payloads: `CREATED = Topic("/Order/Created", OrderCreated)`.

    `publish`, `request`, `@subscribe` and `@publishes` accept it in place of a name.

    Args:
        name: `/Order/Created`, or the pattern `/Order/*`.
        payload: A TypedDict, dataclass, msgspec or pydantic class, or any other type that JSON can express.

    Raises:
        RunError: GBE610, the name is malformed.
    """

    __slots__ = ("name", "payload")

    def __init__(self, name: str, payload: type[_Payload]) -> None:
        if not is_topic_or_pattern(name):
            raise RunError("GBE610", topic=name, reason="it is neither a topic nor a pattern")
        self.name = name
        self.payload = payload

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {getattr(self.payload, '__name__', self.payload)})"

    if TYPE_CHECKING:  # they match the ParamSpec of `Publishable`, which gives better messages than `payload: _Payload`

        def _publish(self, payload: _Payload) -> None: ...

        def _request(self, payload: _Payload, timeout_s: float | None = 30.0) -> None: ...


def name_of(topic: str | Topic[Any]) -> str:
    """Return the name of a Topic; a string is returned unchanged."""
    return topic.name if isinstance(topic, Topic) else topic


def is_topic(text: object) -> bool:
    """Return whether an object is a string with the form of a topic without wildcards."""
    return isinstance(text, str) and re.fullmatch(_TOPIC, text) is not None


def is_topic_or_pattern(text: object) -> bool:
    """Return whether an object is a string with the form of a topic or pattern."""
    return isinstance(text, str) and re.fullmatch(_PATTERN if "*" in text else _TOPIC, text) is not None


def is_pattern(text: str) -> bool:
    """Return whether a topic or pattern has a wildcard."""
    return "*" in text


def matches(pattern: str, topic: str) -> bool:
    """Return whether an event on `topic` is delivered to a subscription to `pattern`, which may also be a plain topic."""
    return pattern == topic or ("*" in pattern and _compile_pattern(pattern).fullmatch(topic) is not None)


@lru_cache(maxsize=1024)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return a regular expression that matches the topics of a pattern."""
    segments = (
        {"*": "[^/]+", "**": "[^/]+(?:/[^/]+)*"}.get(segment, re.escape(segment)) for segment in pattern.split("/")
    )
    return re.compile("/".join(segments))
