"""Topic names: `/Segment/Segment`; patterns use `*` for one segment and `**`, last only, for one or more."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

from graphbus_core.errors import RunError

_SEGMENT = r"[A-Za-z0-9_-]{1,64}"
_TOPIC = rf"(?:/{_SEGMENT})+"
_PATTERN = rf"(?:/(?:{_SEGMENT}|\*))*(?:/(?:{_SEGMENT}|\*{{1,2}}))"  # compiled with the first wildcard

_Payload = TypeVar("_Payload")
_Given = ParamSpec("_Given")


class Publishable(Protocol[_Given]):
    """What type checkers know of publishing: a `Topic[Order]` takes an `Order`. There are no such methods at run time."""

    def _publish(self, *given: _Given.args, **named: _Given.kwargs) -> None: ...


class Requestable(Protocol[_Given]):
    """What type checkers know of a request."""

    def _request(self, *given: _Given.args, **named: _Given.kwargs) -> None: ...


class Topic(Generic[_Payload]):
    """A topic, or a pattern to subscribe to, and the type of its payloads: `CREATED = Topic("/Order/Created", OrderCreated)`.

    `publish`, `request`, `@subscribe` and `@publishes` take it wherever they take a name.

    Args:
        name: `/Order/Created`, or the pattern `/Order/*`.
        payload: A TypedDict, dataclass, msgspec or pydantic class, or any other type that JSON can express.

    Raises:
        RunError: GBE610 for a malformed name.
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

    if TYPE_CHECKING:  # a ParamSpec lets them say what is wrong with a payload; `payload: _Payload` does not

        def _publish(self, payload: _Payload) -> None: ...

        def _request(self, payload: _Payload, timeout_s: float | None = 30.0) -> None: ...


def name_of(topic: str | Topic[Any]) -> str:
    """Return the name of what may be a Topic or a name already."""
    return topic.name if isinstance(topic, Topic) else topic


def is_topic(text: object) -> bool:
    """True for a well-formed topic without wildcards."""
    return isinstance(text, str) and re.fullmatch(_TOPIC, text) is not None


def is_topic_or_pattern(text: object) -> bool:
    """True for what may be subscribed to."""
    return isinstance(text, str) and re.fullmatch(_PATTERN if "*" in text else _TOPIC, text) is not None


def is_pattern(text: str) -> bool:
    """True when the text has a wildcard."""
    return "*" in text


def matches(pattern: str, topic: str) -> bool:
    """True when an event of `topic` reaches a subscription to `pattern`; a topic matches itself."""
    return pattern == topic or ("*" in pattern and _compiled(pattern).fullmatch(topic) is not None)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    segments = (
        {"*": "[^/]+", "**": "[^/]+(?:/[^/]+)*"}.get(segment, re.escape(segment)) for segment in pattern.split("/")
    )
    return re.compile("/".join(segments))
