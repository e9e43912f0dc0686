"""The events of a graph as AsyncAPI 3.0: a channel for each topic, and who sends and receives there.

/Order/Created   ->  channel Order.Created, message Order.Created.Event, schema Order.Created.Payload
publishes        ->  operation send.OrderProcessor.Order.Created
a handler        ->  operation receive.Accounts.on_order_created.Order.Created, one for each topic that a pattern of its matches
a request        ->  operation request.Checkout.Price.Asked, with a reply

No line numbers and no paths of files: what is no promise changes nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from graphbus_core.contracts.documents import UNKNOWN_PAYLOAD, Classes, Part, dotted, payloads, place_of
from graphbus_core.contracts.surface import Handler, Surface
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.project_info import ProjectInfo
from graphbus_core.model.topics import is_pattern, matches

VERSION = "3.0.0"

Node = dict[str, Any]


def document(artifacts: BuildArtifacts, info: ProjectInfo) -> Node:
    """Describe what agents publish, hear, ask and answer."""
    return _Document(Surface.of(artifacts)).written(info)


class _Document:
    """One document while it is written."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._payloads = payloads(surface)
        self._classes = Classes(self._payloads.values(), "#/components/schemas/", "draft-07")
        self._asked = [topic for topic in self._payloads if surface.asked(topic)]
        self._handlers = sorted((each for each in surface.handlers if each.subscription.topic), key=place_of)
        self._senders = sorted(
            {
                (agent.name, each.topic or f"{each.prefix or '/'}**", each.is_request)
                for agent in surface.agents.values()
                for each in agent.publications
            }
        )

    def written(self, info: ProjectInfo) -> Node:
        tags = [
            _filled({"name": each.name, "description": _first_line(each)}) for each in self._surface.agents.values()
        ]
        schemas = {each.name: each.written(self._classes.writer) for each in self._payloads.values()}
        messages = {f"{dotted(name)}.Event": _event(name, each) for name, each in self._payloads.items()}
        messages |= {f"{dotted(topic)}.Reply": self._reply(topic) for topic in self._asked}
        return {
            "asyncapi": VERSION,
            "info": _filled({**info._asdict(), "tags": tags}),
            "defaultContentType": "application/json",
            "channels": dict(sorted(self._channels())),
            "operations": dict(sorted((*self._sending(), *self._receiving()))),
            "components": {
                "messages": dict(sorted(messages.items())),
                "schemas": self._classes.needed() | schemas,
            },
        }

    def _channels(self) -> Iterator[tuple[str, Node]]:
        for topic in self._payloads:
            external = {"x-graphbus-external": True} if self._surface.is_external(topic) else {}
            yield dotted(topic), {"address": topic, "messages": _message("event", f"{dotted(topic)}.Event"), **external}
        heard = {topic for handler in self._handlers for topic in self._heard_by(handler)}
        said = {topic for _, topic, _ in self._senders}
        for pattern in (heard | said) - self._payloads.keys():
            yield dotted(pattern), _open_channel(pattern)
        for topic in self._asked:
            title = f"Answers to those who ask on {topic}"
            messages = _message("reply", f"{dotted(topic)}.Reply")
            yield _reply_channel(topic), {"address": None, "title": title, "messages": messages}

    def _heard_by(self, handler: Handler) -> list[str]:
        """The topics that a handler hears: those that there are, or its own pattern where there is none."""
        wanted = handler.subscription.topic
        return [topic for topic in self._payloads if matches(wanted, topic)] or [wanted]

    def _reply(self, topic: str) -> Node:
        """The message of an answer; what it looks like is known where one handler answers and says so."""
        found = self._surface.hearers(topic)
        method = found[0].method if len(found) == 1 else None
        name = f"{topic} (answer)"
        return {"name": name, "title": name, "payload": self._classes.writer.value(method.returns) if method else {}}

    def _sending(self) -> Iterator[tuple[str, Node]]:
        for agent, topic, is_request in self._senders:
            verb, does = ("request", "asks on") if is_request else ("send", "publishes")
            about = {"title": f"{agent} {does} {topic}", "x-graphbus-agent": agent}
            reply = _reply_reference(topic) if is_request and topic in self._payloads else {}
            yield f"{verb}.{agent}.{dotted(topic)}", {"action": "send", **_at(topic, agent), **about, **reply}

    def _receiving(self) -> Iterator[tuple[str, Node]]:
        for handler in self._handlers:
            agent, wanted = handler.agent.name, handler.subscription.topic
            for topic in self._heard_by(handler):
                about = {
                    "title": f"{handler.name} hears {topic}",
                    "summary": _first_line(handler.method) if handler.method else "",
                    "x-graphbus-agent": agent,
                    "x-graphbus-method": handler.subscription.method,
                    "x-graphbus-pattern": wanted if is_pattern(wanted) else "",
                }
                reply = _reply_reference(topic) if topic in self._asked else {}
                name = f"receive.{handler.name}.{dotted(topic)}"
                yield name, {"action": "receive", **_at(topic, agent), **_filled(about), **reply}


def _filled(node: Node) -> Node:
    """Leave out what is empty."""
    return {key: value for key, value in node.items() if value}


def _first_line(described: AgentDefinition | Any) -> str:
    text: str = described.doc
    return text.strip().partition("\n")[0]


def _event(topic: str, payload: Part) -> Node:
    about = _filled({"name": topic, "title": topic, "summary": payload.note})
    return {**about, "payload": _ref("components", "schemas", payload.name)}


def _message(key: str, name: str) -> Node:
    return {key: _ref("components", "messages", name)}


def _open_channel(pattern: str) -> Node:
    """The channel of topics that are known by their pattern only; each wildcard is a parameter."""
    count = pattern.count("*") - 2 * pattern.count("**")
    parameters: dict[str, Node] = {}
    address = pattern
    for number in range(1, count + 1):
        name = f"segment{number}" if count > 1 else "segment"
        address = re.sub(r"(?<!\*)\*(?!\*)", f"{{{name}}}", address, count=1)
        parameters[name] = {"description": "One segment of the topic."}
    if "**" in address:
        address = address.replace("**", "{rest}")
        parameters["rest"] = {"description": "The rest of the topic: one segment or more, with slashes between them."}
    message = {"event": {"name": pattern, "title": pattern, "summary": UNKNOWN_PAYLOAD, "payload": {}}}
    return {"address": address, "messages": message, **_filled({"parameters": parameters})}


def _reply_channel(topic: str) -> str:
    """No topic has a colon."""
    return f"{dotted(topic)}:reply"


def _reply_reference(topic: str) -> Node:
    channel = _reply_channel(topic)
    messages = [_ref("channels", channel, "messages", "reply")]
    return {"reply": {"channel": _ref("channels", channel), "messages": messages}}


def _at(topic: str, agent: str) -> Node:
    """The channel and message of an operation, and whose it is."""
    channel = dotted(topic)
    messages = [_ref("channels", channel, "messages", "event")]
    return {"channel": _ref("channels", channel), "messages": messages, "tags": [{"name": agent}]}


def _ref(*names: str) -> Node:
    return {"$ref": f"#/{'/'.join(names)}"}
