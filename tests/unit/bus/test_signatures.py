"""What a handler is called with: the whole table, with live functions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec
import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.bus.signatures import bind_handler, handler_name, handler_place
from graphbus_core.errors import RunError

PAYLOAD = {"order_id": "1", "total": 2.5}


class OrderDict(TypedDict):
    order_id: str
    total: float


@dataclasses.dataclass
class OrderData:
    order_id: str
    total: float


class OrderStruct(msgspec.Struct):
    order_id: str
    total: float


class OrderModel:
    """As pydantic's classes look from outside."""

    def __init__(self, total: float) -> None:
        self.total = total

    @classmethod
    def model_validate(cls, payload: dict[str, Any]) -> OrderModel:
        return cls(payload["total"])


class Agent:
    """One handler per row; each gives what it was called with."""

    def nothing(self):
        return "called"

    def event(self, event):
        return event

    def evt(self, evt):
        return evt

    def ev(self, ev):
        return ev

    def message(self, message):
        return message

    def msg(self, msg):
        return msg

    def annotated(self, anything: Event):
        return anything

    def with_default(self, event=None):
        return event

    def payload(self, payload):
        return payload

    def data(self, data):
        return data

    def body(self, body):
        return body

    def as_dict(self, order: dict):
        return order

    def as_dict_of(self, order: dict[str, Any]):
        return order

    def as_mapping(self, order: Mapping[str, Any]):
        return order

    def event_as_dict(self, event: dict):
        return event

    def typed_dict(self, order: OrderDict):
        return order

    def typed_data(self, order: OrderData):
        return order.total

    def typed_struct(self, order: OrderStruct):
        return order.total

    def typed_model(self, order: OrderModel):
        return order.total

    def both(self, event, payload):
        return event, payload

    def both_typed(self, event, data: OrderStruct):
        return event, data.total

    def fields(self, order_id, total):
        return order_id, total

    def one_field(self, total):
        return total

    def optional_field(self, order_id, priority=3):
        return order_id, priority

    def keyword_only(self, *, total, order_id=None):
        return order_id, total

    def rest(self, total, **others):
        return total, others

    @staticmethod
    def static(event):
        return event

    @classmethod
    def of_class(cls, event):
        return event

    def optional(self, event: Event | None):
        return event

    def for_type_checkers(self, event: NotThere):  # noqa: F821
        return event


EVENT = object()
ROWS: dict[str, Any] = {
    "nothing": "called",
    **dict.fromkeys(["event", "evt", "ev", "message", "msg", "annotated", "with_default", "static", "of_class"], EVENT),
    "for_type_checkers": EVENT,
    "optional": EVENT,
    **dict.fromkeys(["payload", "data", "body", "as_dict", "as_dict_of", "as_mapping", "event_as_dict"], PAYLOAD),
    "typed_dict": PAYLOAD,
    **dict.fromkeys(["typed_data", "typed_struct", "typed_model", "one_field"], 2.5),
    "both": (EVENT, PAYLOAD),
    "both_typed": (EVENT, 2.5),
    "fields": ("1", 2.5),
    "optional_field": ("1", 3),
    "keyword_only": ("1", 2.5),
    "rest": (2.5, {"order_id": "1"}),
}


def test_every_handler_of_the_agent_is_a_row() -> None:
    assert set(ROWS) == {name for name in vars(Agent) if not name.startswith("__")}


@pytest.mark.parametrize("name", ROWS)
def test_a_handler_is_called_as_its_signature_says(name: str) -> None:
    event = Event("/Order/Created", PAYLOAD)
    got = bind_handler(getattr(Agent(), name)).call(event)
    expected = ROWS[name]
    if isinstance(expected, tuple):
        assert got == tuple(event if part is EVENT else part for part in expected)
    else:
        assert got == (event if expected is EVENT else expected)


@pytest.mark.parametrize("name", ROWS)
def test_a_handler_on_the_bus_runs_without_dead_letters(name: str) -> None:
    bus = MessageBus(on_error="raise")
    bus.subscribe("/Order/Created", getattr(Agent(), name))
    bus.publish("/Order/Created", PAYLOAD)
    assert bus.statistics().delivered == 1


def test_a_handler_that_takes_the_event_is_not_wrapped() -> None:
    handler = Agent().event
    assert bind_handler(handler).call is handler


class Callable_:
    def __call__(self, payload):
        return payload


def wrapped(function):
    @functools.wraps(function)
    def call(*arguments, **named):
        return function(*arguments, **named)

    return call


def test_other_callables_are_bound_by_what_can_be_known_of_them() -> None:
    event = Event("/Order/Created", PAYLOAD)
    seen: list[Event] = []
    bind_handler(seen.append).call(event)
    assert seen == [event]
    assert bind_handler(functools.partial(lambda extra, event: (extra, event), 1)).call(event) == (1, event)
    assert bind_handler(Callable_()).call(event) == PAYLOAD
    assert bind_handler(wrapped(lambda payload: payload)).call(event) == PAYLOAD


@pytest.mark.parametrize(
    "handler",
    [
        lambda *args: None,
        lambda event, *args: None,
        lambda order_id, /: None,
        lambda event: (yield),
    ],
    ids=["args", "event and args", "positional only", "generator"],
)
def test_a_signature_that_fits_no_row_is_refused_with_its_place(handler) -> None:
    with pytest.raises(RunError) as refused:
        MessageBus().subscribe("/A/B", handler)
    assert refused.value.code == "GBE611"
    assert refused.value.where is not None
    assert refused.value.where.path == __file__


@pytest.mark.parametrize("handler", [None, 5, "on_order"])
def test_what_cannot_be_called_is_no_handler(handler) -> None:
    with pytest.raises(RunError, match="it cannot be called") as refused:
        MessageBus().subscribe("/A/B", handler)
    assert refused.value.code == "GBE611"


async def endless(event):
    yield event


def test_an_async_generator_is_no_handler() -> None:
    with pytest.raises(RunError, match="GBE611"):
        bind_handler(endless)


@pytest.mark.parametrize(
    ("name", "payload", "reason"),
    [
        ("fields", {"order_id": "1"}, "'total'"),
        ("keyword_only", {}, "'total'"),
        ("rest", {"order_id": "1"}, "'total'"),
        ("one_field", None, "'total'"),
        ("one_field", [1], "'total'"),
        ("typed_dict", {"order_id": 1, "total": 2.5}, "order_id: expected str, got int 1"),
        ("typed_data", {"order_id": "1"}, "total: expected float, got nothing"),
        ("typed_struct", {"order_id": "1", "total": "x"}, "total: expected float, got str 'x'"),
        ("both_typed", {"order_id": "1"}, "total: expected float, got nothing"),
    ],
)
def test_a_payload_that_does_not_serve_the_handler_is_a_dead_letter_that_names_the_field(
    name: str, payload: Any, reason: str
) -> None:
    bus = MessageBus()
    bus.subscribe("/Order/Created", getattr(Agent(), name))
    bus.publish("/Order/Created", payload)
    (letter,) = bus.dead_letters()
    assert reason in letter.error
    assert "/Order/Created" in letter.error


def test_optional_fields_cope_with_an_event_without_payload() -> None:
    seen: list[Any] = []
    bus = MessageBus()
    bus.subscribe("/A/B", lambda order_id=7: seen.append(order_id))
    bus.publish("/A/B")
    bus.publish("/A/B", {"order_id": 8, "more": 1})
    assert seen == [7, 8]


def test_handle_event_gets_topic_and_payload() -> None:
    event = Event("/Order/Created", PAYLOAD)
    assert bind_handler(lambda topic, payload: (topic, payload), shape="topic_payload").call(event) == (
        "/Order/Created",
        PAYLOAD,
    )
    assert bind_handler(lambda a, b: (a, b), shape="topic_payload").call(event) == ("/Order/Created", PAYLOAD)


@pytest.mark.parametrize("handler", [lambda event: None, lambda a, b, c: None, lambda a, *, b: None, lambda *a: None])
def test_handle_event_with_other_parameters_is_refused(handler) -> None:
    with pytest.raises(RunError, match="GBE611"):
        bind_handler(handler, shape="topic_payload")


def test_a_handler_is_named_for_people() -> None:
    assert handler_name(Agent().event) == "Agent.event"
    assert handler_name(Callable_()) == "Callable_"
    assert handler_place([].append) is None


def given_a_line(line: str, order_id: str, total: float, *, flag: bool = False) -> tuple[object, ...]:
    return line, order_id, total, flag


async def later(line: str, total: float) -> tuple[object, ...]:
    return line, total


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        (functools.partial(given_a_line, "bank"), ("bank", "1", 2.5, False)),
        (functools.partial(given_a_line, "bank", flag=True), ("bank", "1", 2.5, True)),
        (functools.partial(functools.partial(given_a_line, "bank"), total=9.0), ("bank", "1", 9.0, False)),
        (functools.partial(Agent().fields), ("1", 2.5)),
        (functools.partial(Agent().both, "given"), ("given", PAYLOAD)),
    ],
)
def test_a_partial_takes_from_the_event_what_it_has_not_been_given(handler: Any, result: object) -> None:
    assert bind_handler(handler).call(Event("/A/B", PAYLOAD)) == result


def test_a_partial_is_named_after_what_it_calls_and_may_be_async() -> None:
    handler = functools.partial(later, "bank")
    assert bind_handler(handler).is_async
    assert handler_name(handler) == "later"
    assert handler_place(handler) == handler_place(later)


def test_a_method_is_read_once_and_again_while_a_name_in_it_is_not_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    class Agent:
        def on_order(self, order: OrderData) -> str:
            return f"{order.total}"

        def on_later(self, order: Later) -> str:  # type: ignore[name-defined]  # noqa: F821 - defined below
            return f"{order.total}"

    event = Event("/Order", PAYLOAD)
    assert [bind_handler(Agent().on_order).call(event) for _ in range(2)] == ["2.5", "2.5"]
    with pytest.raises(RunError, match="GBE611"):
        bind_handler(Agent().on_later, shape="typed")
    monkeypatch.setitem(globals(), "Later", OrderStruct)
    assert bind_handler(Agent().on_later, shape="typed").call(event) == "2.5"
