"""Decorators that declare the contracts of an agent: its methods, subscriptions, publications and dependencies.

Each one stores a declaration on the function or class and returns that function or class unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

import msgspec

from graphbus_core.errors import RunError
from graphbus_core.model.deliveries import ONCE, DeliveryPolicy, OnRetry
from graphbus_core.model.messages import Event
from graphbus_core.model.topics import Topic, name_of
from graphbus_core.schema.values import format_value

if TYPE_CHECKING:
    from datetime import date, time, timedelta
    from decimal import Decimal
    from enum import Enum
    from uuid import UUID

    _Scalar = str | int | float | bytes | Decimal | date | time | timedelta | UUID | Enum | list[Any] | tuple[Any, ...]

    class _Options(TypedDict, total=False):
        """What `@subscribe` takes besides topics."""

        retries: int
        backoff: float
        retry_on: type[Exception] | tuple[type[Exception], ...]
        timeout: float | None
        concurrency: int
        key: str
        on_retry: OnRetry

    _Field = TypeVar("_Field", bound=_Scalar | None)
    _AnyHandler = TypeVar("_AnyHandler", bound=Callable[[Any], object])
    _EventHandler = TypeVar("_EventHandler", bound=Callable[[Any, Event], object])
    _DictHandler = TypeVar("_DictHandler", bound=Callable[[Any, dict[str, Any]], object])
    _FirstField = TypeVar("_FirstField", bound=_Scalar | Mapping[str, object] | None)  # no Event

Decorated = TypeVar("Decorated", bound=Callable[..., object])
Node = TypeVar("Node", bound=type)
_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")
_Result = TypeVar("_Result")
_Rest = ParamSpec("_Rest")


class DeclaredSchema(msgspec.Struct, frozen=True):
    """The arguments of `@schema_method`: mappings of field name -> type, as written.

    Attributes:
        method: The decorated method. Its annotations are the contract when both schemas are None; its defaults always count.
    """

    input_schema: Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | None
    method: Callable[..., object] | None = None


class DeclaredSubscription(msgspec.Struct, frozen=True):
    """One topic of `@subscribe`, with the options of the decorator."""

    topic: str
    policy: DeliveryPolicy
    payload: Any = None  # the payload type of a `Topic`; None for a topic given by name


class DeclaredTopic(msgspec.Struct, frozen=True):
    """The arguments of `@publishes`; `schema` is a mapping of field name -> type, or a typed class."""

    topic: str
    schema: Any


@overload
def schema_method(input_schema: Decorated, /) -> Decorated: ...


@overload
def schema_method(
    input_schema: Mapping[str, Any] | None = None, output_schema: Mapping[str, Any] | None = None
) -> Callable[[Decorated], Decorated]: ...


def schema_method(input_schema: Any = None, output_schema: Any = None) -> Any:
    """Make a method callable for other agents and from outside, with checked arguments and results.

    Plain `@schema_method` takes both schemas from the annotations of the method. A parameter with a default is optional.

    Args:
        input_schema: Argument name -> type. None, if `output_schema` is not None: arguments are not checked.
        output_schema: Field of the returned dict -> type. None, if `input_schema` is not None: results are not checked.

    Returns:
        The method itself, or a decorator that returns it.
    """
    if callable(input_schema) and output_schema is None and not isinstance(input_schema, type):
        return schema_method()(input_schema)

    def declare(method: Decorated) -> Decorated:
        method.__graphbus_schema__ = DeclaredSchema(input_schema, output_schema, method)  # type: ignore[attr-defined]
        return method

    return declare


class _Handles(Generic[_A]):
    """The type that `subscribe(TOPIC)` returns: one overload for each handler signature that accepts the topic's payload.

    The signatures are the table in docs/runtime.md. The fields of a payload are not known here, so a handler that takes several
    fields by name is accepted whatever their names and types.
    """

    if TYPE_CHECKING:

        @overload
        def __call__(self, handler: Callable[[Any, _A], _Result], /) -> Callable[..., _Result]: ...

        @overload
        def __call__(self, handler: _AnyHandler, /) -> _AnyHandler: ...

        @overload
        def __call__(self, handler: _EventHandler, /) -> _EventHandler: ...

        @overload
        def __call__(self, handler: _DictHandler, /) -> _DictHandler: ...

        @overload
        def __call__(self, handler: Callable[[Any, Event, _A], _Result], /) -> Callable[..., _Result]: ...

        @overload
        def __call__(self, handler: Callable[[Any, Event, dict[str, Any]], _Result], /) -> Callable[..., _Result]: ...

        @overload
        def __call__(self, handler: Callable[[Any, _Field], _Result], /) -> Callable[..., _Result]: ...

        @overload
        def __call__(
            self, handler: Callable[Concatenate[Any, _FirstField, Any, _Rest], _Result], /
        ) -> Callable[..., _Result]: ...

        def __call__(self, handler: Any, /) -> Any: ...


@overload
def subscribe(topic: Topic[_A], /, **options: Unpack[_Options]) -> _Handles[_A]: ...


@overload
def subscribe(topic: Topic[_A], second: Topic[_B], /, **options: Unpack[_Options]) -> _Handles[_A | _B]: ...


@overload
def subscribe(
    topic: Topic[_A], second: Topic[_B], third: Topic[_C], /, **options: Unpack[_Options]
) -> _Handles[_A | _B | _C]: ...


@overload
def subscribe(
    topic: str | Topic[Any], *more: str | Topic[Any], **options: Unpack[_Options]
) -> Callable[[Decorated], Decorated]: ...


def subscribe(
    topic: str | Topic[Any],
    *more: str | Topic[Any],
    retries: int = 0,
    backoff: float = 0.1,
    retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
    timeout: float | None = None,
    concurrency: int = 1,
    key: str = "",
    on_retry: OnRetry = "block",
) -> Any:
    """Call the method for every event of one or more topics: `@subscribe(CREATED, "/Order/Paid")`.

    Args:
        topic: A name such as `/Order/Created`, a `Topic`, or a pattern: `*` stands for one segment, `**` at the end for one or
            more. For a `Topic`, type checkers verify the signature of the method.
        more: Further topics.
        retries: How many further attempts an event gets after a failure.
        backoff: Seconds before the first retry; the delay doubles with each retry.
        retry_on: Exceptions that cause a retry. A payload that does not fit its schema is never retried.
        timeout: Seconds that one attempt of an `async def` handler may take; None: no limit.
        concurrency: How many events an `async def` handler processes at the same time.
        key: With a ledger: the field of the payload whose values are independent of each other. Events with the same value stay
            in order; others may be handled at the same time, in up to `partitions` processes. Empty: one order for all.
        on_retry: With a ledger: whether an event that waits for a retry holds back the later ones of its key (`"block"`), or is
            overtaken by them (`"skip"`).

    Returns:
        A decorator that returns the method unchanged.

    Raises:
        RunError: GBE664 for an argument that is not a topic, such as a list of topics, or the method when the call is missing.
    """
    topics = (topic, *more)
    for each in topics:
        if not isinstance(each, str | Topic):
            raise RunError("GBE664", got=format_value(each), example=_suggest_call(each))
    policy = ONCE
    if (retries, backoff, retry_on, timeout, concurrency, key, on_retry) != (0, 0.1, Exception, None, 1, "", "block"):
        kinds = retry_on if isinstance(retry_on, tuple) else (retry_on,)
        policy = DeliveryPolicy(
            retries=retries,
            backoff_s=backoff,
            retry_on=kinds,
            timeout_s=timeout,
            concurrency=concurrency,
            key=key,
            on_retry=on_retry,
        )

    def declare(method: Decorated) -> Decorated:
        below = getattr(method, "__graphbus_subscriptions__", ())  # of further decorators below this one
        method.__graphbus_subscriptions__ = (*map(make_declaration, topics), *below)  # type: ignore[attr-defined]
        return method

    def make_declaration(each: str | Topic[Any]) -> DeclaredSubscription:
        return DeclaredSubscription(name_of(each), policy, getattr(each, "payload", None))

    return declare


def _suggest_call(topic: object) -> str:
    """Return the decorator call to suggest for an argument that is not a topic."""
    if isinstance(topic, list | tuple | set | frozenset) and topic:
        return f"@subscribe({', '.join(repr(str(each)) for each in topic)})"
    return '@subscribe("/Order/Created")'


def publishes(topic: str | Topic[Any], schema: Any = None) -> Callable[[Decorated], Decorated]:
    """Declare that a method or class publishes on a topic, and the schema of the payloads.

    Args:
        topic: A topic without wildcards.
        schema: Field name -> type, or a TypedDict, dataclass, msgspec or pydantic class. By default that of the `Topic`; None
            for a topic given by name: any payload.

    Returns:
        A decorator that returns the method or class unchanged.
    """
    if schema is None and isinstance(topic, Topic):
        schema = topic.payload

    def declare(target: Decorated) -> Decorated:
        below = vars(target).get("__graphbus_publishes__", ())  # of further decorators below; not of base classes
        target.__graphbus_publishes__ = (DeclaredTopic(name_of(topic), schema), *below)  # type: ignore[attr-defined]
        return target

    return declare


def depends_on(*agents: str | type) -> Callable[[Node], Node]:
    """Declare which agents the class calls; the graph starts them first.

    Args:
        agents: Classes or class names. The dependencies of a graph must have no cycle.

    Returns:
        A decorator that returns the class unchanged.
    """

    def declare(node: Node) -> Node:
        names = tuple(agent if isinstance(agent, str) else agent.__name__ for agent in agents)
        below = vars(node).get("__graphbus_depends_on__", ())  # as in `publishes`
        node.__graphbus_depends_on__ = (*names, *below)  # type: ignore[attr-defined]
        return node

    return declare
