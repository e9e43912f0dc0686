"""Topic names: `/Segment/Segment`; patterns use `*` for one segment and `**`, last only, for one or more."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Generic, TypeVar

_SEGMENT = r"[A-Za-z0-9_-]{1,64}"
_TOPIC = rf"(?:/{_SEGMENT})+"
_PATTERN = rf"(?:/(?:{_SEGMENT}|\*))*(?:/(?:{_SEGMENT}|\*{{1,2}}))"  # compiled with the first wildcard

_Payload = TypeVar("_Payload")


class Topic(Generic[_Payload]):
    """A topic, or a pattern to subscribe to, and the type of its payloads: `CREATED = Topic("/Order/Created", OrderCreated)`.

    Args:
        name: `/Order/Created`.
        payload: A TypedDict, dataclass, msgspec or pydantic class, or any other type that JSON can express.
    """

    __slots__ = ("name", "payload")

    def __init__(self, name: str, payload: type[_Payload]) -> None:
        self.name = name
        self.payload = payload

    def __str__(self) -> str:
        return self.name


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
