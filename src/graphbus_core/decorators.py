"""Decorators that write down what a class offers, hears, says and needs. Each returns the same function or class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from graphbus_core.model.deliveries import ONCE, DeliveryPolicy

Decorated = TypeVar("Decorated", bound=Callable[..., object])
Node = TypeVar("Node", bound=type)


class DeclaredSchema(msgspec.Struct, frozen=True):
    """What `@schema_method` was given: field name -> type, as written."""

    input_schema: Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | None


class DeclaredSubscription(msgspec.Struct, frozen=True):
    """What `@subscribe` was given."""

    topic: str
    policy: DeliveryPolicy


class DeclaredTopic(msgspec.Struct, frozen=True):
    """What `@publishes` was given; the schema is a mapping of field name -> type, or a typed class."""

    topic: str
    schema: Any


def schema_method(
    input_schema: Mapping[str, Any] | None = None, output_schema: Mapping[str, Any] | None = None
) -> Callable[[Decorated], Decorated]:
    """Declare the contract of a method: it can be called from outside, with arguments and results checked.

    Args:
        input_schema: Argument name -> type; None: not declared, and so not checked.
        output_schema: Field of the returned dict -> type; None likewise.
    """

    def declare(method: Decorated) -> Decorated:
        method.__graphbus_schema__ = DeclaredSchema(input_schema, output_schema)  # type: ignore[attr-defined]
        return method

    return declare


def subscribe(
    topic: str,
    *,
    retries: int = 0,
    backoff: float = 0.1,
    retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
    timeout: float | None = None,
    concurrency: int = 1,
) -> Callable[[Decorated], Decorated]:
    """Call the method for every event of the topic.

    Args:
        topic: `/Order/Created`, or a pattern: `*` stands for one segment, `**` at the end for one or more.
        retries: How often an event is delivered again after a failure.
        backoff: Seconds before the first further attempt; each later one waits twice as long.
        retry_on: Which exceptions are worth a further attempt; what does not fit a schema never is.
        timeout: Seconds that an `async def` handler may take.
        concurrency: How many events an `async def` handler may have in hand at once.
    """
    policy = ONCE
    if (retries, backoff, retry_on, timeout, concurrency) != (0, 0.1, Exception, None, 1):
        kinds = retry_on if isinstance(retry_on, tuple) else (retry_on,)
        policy = DeliveryPolicy(
            retries=retries, backoff_s=backoff, retry_on=kinds, timeout_s=timeout, concurrency=concurrency
        )

    def declare(method: Decorated) -> Decorated:
        below = getattr(method, "__graphbus_subscriptions__", ())
        method.__graphbus_subscriptions__ = (DeclaredSubscription(topic, policy), *below)  # type: ignore[attr-defined]
        return method

    return declare


def publishes(topic: str, schema: Any = None) -> Callable[[Decorated], Decorated]:
    """Declare that the method or class publishes on the topic, and what its payloads look like.

    Args:
        topic: The topic, without wildcards.
        schema: Field name -> type, or a TypedDict, dataclass, msgspec or pydantic class.
    """

    def declare(target: Decorated) -> Decorated:
        below = vars(target).get("__graphbus_publishes__", ())
        target.__graphbus_publishes__ = (DeclaredTopic(topic, schema), *below)  # type: ignore[attr-defined]
        return target

    return declare


def depends_on(*agents: str | type) -> Callable[[Node], Node]:
    """Declare that the class calls or builds on other agents, given as classes or by their names."""

    def declare(node: Node) -> Node:
        names = tuple(agent if isinstance(agent, str) else agent.__name__ for agent in agents)
        below = vars(node).get("__graphbus_depends_on__", ())
        node.__graphbus_depends_on__ = (*names, *below)  # type: ignore[attr-defined]
        return node

    return declare
