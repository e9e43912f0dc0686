"""Chat rooms: payloads from helpers, mixins, conditional handlers, topics from outside and from a table."""

import abc
import sys
import typing as t

import graphbus_core as gb
from graphbus_core import GraphBusNode as Node

from . import wire

if t.TYPE_CHECKING:
    from collections.abc import Iterable


class Greeting:
    """A mixin that is no agent."""

    greeting = "Hello"

    def greet(self, name):
        self.publish(wire.SAID, wire.said(name, f"{self.greeting}, {name}"))


class Speaker(Node, abc.ABC):
    """An abstract agent."""

    @abc.abstractmethod
    def say(self, text): ...


class Room(Greeting, Speaker):
    """Holds the members."""

    def __init__(self):
        super().__init__()
        self.members = []

    def say(self, text):
        self.publish(wire.SAID, wire.said("room", text))

    @gb.subscribe("/Client/Joined")
    def on_join(self, name, *, role="guest"):
        self.members.append((name, role))
        self.greet(name)

    @gb.subscribe("/Client/*")
    def on_client(self, ev):
        handler = getattr(self, "_" + ev.topic.rpartition("/")[2].lower(), None)
        if handler:
            handler(ev)

    def emit(self, topic, payload=None):
        self.publish(topic, payload or {})

    def _left(self, event):
        self.members = [pair for pair in self.members if pair[0] != event["name"]]

    @gb.schema_method({"filter": dict}, {"members": list})
    def list_members(self, filter: dict) -> dict:
        wanted = filter.get("role")
        return {"members": [name for name, role in self.members if wanted in (None, role)]}


class History(Node):
    """Keeps what was said."""

    def __init__(self):
        super().__init__()
        self.lines = []

    @gb.subscribe(wire.SAID)
    def on_said(self, msg):
        self._keep(msg)

    def _keep(self, event, lines=[]):
        for line in [*lines, f'{event["name"]}: {event["text"]}']:
            self.lines.append(line)

    if sys.platform == "win32":

        @gb.schema_method({}, {"text": str})
        def export(self) -> dict:
            return {"text": "\r\n".join(self.lines)}

    else:

        @gb.schema_method({}, {"text": str})
        def export(self) -> dict:
            return {"text": "\n".join(self.lines)}


@gb.depends_on(Room, History)
class Bot(Node):
    """Answers."""

    ANSWERS = {"time": "/Bot/Time", "weather": "/Bot/Weather"}

    @gb.subscribe(wire.SAID)
    def answer(self, event):
        for word, topic in self.ANSWERS.items():
            if word in event.payload.get("text", ""):
                self.publish(topic, {"asked_by": event["name"]})

    @gb.subscribe("/Bot/Time")
    def on_time(self, event: gb.Event):
        names = self.call("Room", "list_members", filter={"role": "guest"})["members"]
        self.log(f"{event['asked_by']} asked; {len(names)} listen; {self.call('History', 'export')['text'][:10]}")

    @gb.subscribe("/Bot/Weather")
    def on_weather(self, asked_by):
        def later(event):
            event.done = True
            return event

        return later
