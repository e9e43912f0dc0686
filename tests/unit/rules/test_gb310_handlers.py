"""GB310: handlers that cannot be called, misuse their event, or stop the event loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler.rules.bodies import EVENT_FIELDS
from graphbus_core.model.messages import Event
from tests.checking import assert_marked, only_finding, read

HANDLER = 'class A(GraphBusNode):\n    @subscribe("/X")\n    def on_x({signature}):\n        {body}\n'


def handler(signature: str, body: str) -> str:
    return HANDLER.replace("{signature}", signature).replace("{body}", body)


WRONG = {
    "*args": handler("self, *events", "...").replace('"/X")', '"/X")  #! GB310'),
    "a generator": handler("self, event", "yield event").replace('"/X")', '"/X")  #! GB310'),
    "an attribute that no event has": handler("self, event", "return event.data  #! GB310"),
    "a field as attribute": handler("self, event: Event", "return event.sku  #! GB310"),
    "the event of the payload": handler("self, payload", "return payload.topic  #! GB310"),
    "the payload of the payload": handler("self, data", "return data.payload['x']  #! GB310"),
    "an event is changed": handler("self, event", "event['sku'] = 1  #! GB310"),
    "a payload is changed": handler("self, event", "event.payload['sku'] = 1  #! GB310"),
    "a payload is updated": handler("self, payload", "payload.update(a=1)  #! GB310"),
    "a key is taken out": handler("self, event", "return event.payload.pop('a')  #! GB310"),
    "an attribute is set": handler("self, event", "event.topic = '/Y'  #! GB310"),
    "a key is deleted": handler("self, payload: dict", "del payload['a']  #! GB310"),
}
RIGHT = {
    "everything that an event has": handler(
        "self, event", "return " + ", ".join(f"event.{f}" for f in sorted(EVENT_FIELDS))
    ),
    "everything that a dict has": handler("self, payload", "return payload.get('a'), payload.items(), payload.copy()"),
    "nothing": handler("self", "..."),
    "fields": handler("self, sku, *, count=0, **more", "more['x'] = sku; return sku.topic"),
    "a copy is changed": handler("self, event", "copy = dict(event.payload); copy['a'] = 1; copy.pop('a')"),
    "another event": handler("self, event", "event = self.wrap(event); event.data = 1\n    def wrap(self, e): ..."),
    "another type": handler("self, event: Letter", "return event.data"),
    "an inner function's own event": handler("self, event", "return sorted([], key=lambda event: event.size)"),
    "event and payload": handler("self, event, payload", "return event.topic, payload['a']"),
    "handle_event": """
class A(GraphBusNode):
    SUBSCRIBE = ["/X"]
    def handle_event(self, topic, payload):
        return topic, payload["a"]
""",
    "a generator within": handler("self, event", "return list(each for each in event)"),
    "special attributes": handler("self, event", "return event.__class__"),
    "no handler": "class A(GraphBusNode):\n    def f(self, event):\n        event.data = event.more\n",
}


@pytest.mark.parametrize("text", [*WRONG.values(), *RIGHT.values()], ids=[*WRONG, *RIGHT])
def test_handlers_that_cannot_do_what_they_say_are_found(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, "GB310")


NAMED_LIKE_EVENTS = {
    "a text": "self, msg: str):  #! GB310",
    "a number": "self, event: int):  #! GB310",
    "an event": "self, msg: Event):",
    "without annotation": "self, msg):",
    "a class of another package": "self, message: Message):",
    "a field of another name": "self, text: str):",
}


@pytest.mark.parametrize("signature", NAMED_LIKE_EVENTS.values(), ids=NAMED_LIKE_EVENTS)
def test_a_parameter_that_takes_the_event_is_annotated_as_one(tmp_path: Path, signature: str) -> None:
    assert_marked(
        tmp_path,
        f"""
        from elsewhere import Message
        class A(GraphBusNode):
            @subscribe("/A")
            def on_a({signature}
                pass
        """,
        "GB310",
    )


def test_the_fields_that_are_offered_are_those_that_an_event_has() -> None:
    assert all(hasattr(Event, name) for name in EVENT_FIELDS)


def test_the_likely_field_is_named(tmp_path: Path) -> None:
    finding = only_finding(read(tmp_path, handler("self, event", "return event.paylod")), "GB310")
    assert finding.hint == "Did you mean 'payload'?"


ASYNC = """
import time, subprocess, requests as web
from time import sleep
from urllib import request
import urllib.request as u

class A(GraphBusNode):
    @subscribe("/X")
    async def on_x(self, event):
        {body}
"""
BLOCKING = ["time.sleep(1)", "sleep(1)", "web.get('http://x')", "request.urlopen('x')", "u.urlopen('x')",
            "return subprocess.run(['ls'])", "for x in range(3): time.sleep(x)"]  # fmt: skip
GOING_ON = [
    "await self.sleep(1)",
    "self.sleep(1)",
    "import asyncio; await asyncio.to_thread(time.sleep, 1)",
    "await asyncio.sleep(1)",
    "self.time.sleep(1)",
    "def later(): time.sleep(1)",
    "return lambda: sleep(1)",
    "sleep = self.log; sleep(1)",
    "web.session().get('x')",
]


@pytest.mark.parametrize("body", BLOCKING)
def test_an_async_method_that_stops_the_loop_is_found(tmp_path: Path, body: str) -> None:
    assert_marked(tmp_path, ASYNC.replace("{body}", f"{body}  #! GB310"), "GB310")


@pytest.mark.parametrize("body", GOING_ON)
def test_an_async_method_that_lets_others_go_on_is_left_alone(tmp_path: Path, body: str) -> None:
    assert_marked(tmp_path, ASYNC.replace("{body}", body), "GB310")


def test_an_import_under_another_name_is_followed(tmp_path: Path) -> None:
    text = ASYNC.replace("from time import sleep", "from time import sleep as rest").replace(
        "{body}", "rest(1)  #! GB310"
    )
    assert_marked(tmp_path, text, "GB310")
