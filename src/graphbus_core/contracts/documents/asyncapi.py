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
from functools import cached_property
from typing import Any, NamedTuple

from graphbus_core.contracts.documents.classes import Classes
from graphbus_core.contracts.documents.parts import UNKNOWN_PAYLOAD, Handler, Parts, Payload, dotted
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.project_info import ProjectInfo
from graphbus_core.model.topics import is_pattern, matches

VERSION = "3.0.0"

Node = dict[str, Any]


def document(artifacts: BuildArtifacts, info: ProjectInfo) -> Node:
    """Describe what agents publish, hear, ask and answer."""
    return _Document(Parts(artifacts)).written(info)


class Sender(NamedTuple):
    """An agent that publishes to a topic, or to one that it computes; with `is_request` it waits for the answer."""

    agent: AgentDefinition
    topic: str
    is_request: bool


class _Document:
    """One document while it is written."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._payloads = {topic.name: parts.payload_of(topic.name) for topic in parts.topics}
        self._classes = Classes(self._payloads.values(), "#/components/schemas/", "draft-07")

    def written(self, info: ProjectInfo) -> Node:
        tags = [_tag(agent) for agent in self._parts.agents]
        about: Node = {name: text for name, text in info._asdict().items() if text}
        schemas = {each.name: each.written(self._classes.writer) for each in self._payloads.values()}
        messages = {f"{dotted(name)}.Event": _event(each) for name, each in self._payloads.items()}
        replies = {f"{dotted(topic)}.Reply": self._reply(topic) for topic in self._asked}
        return {
            "asyncapi": VERSION,
            "info": about | ({"tags": tags} if tags else {}),
            "defaultContentType": "application/json",
            "channels": dict(sorted(self._channels())),
            "operations": dict(sorted(self._operations())),
            "components": {
                "messages": dict(sorted((messages | replies).items())),
                "schemas": self._classes.needed() | schemas,
            },
        }

    # --- channels and messages ---

    def _channels(self) -> Iterator[tuple[str, Node]]:
        for topic in self._parts.topics:
            channel: Node = {"address": topic.name, "messages": _message("event", f"{dotted(topic.name)}.Event")}
            yield dotted(topic.name), channel | ({"x-graphbus-external": True} if topic.is_external else {})
        heard = (topic for handler in self._parts.handlers for topic in self._heard_by(handler))
        said = (sender.topic for sender in self._senders)
        for pattern in {*heard, *said} - self._payloads.keys():
            yield dotted(pattern), _open_channel(pattern)
        for asked in self._asked:
            messages = _message("reply", f"{dotted(asked)}.Reply")
            title = f"Answers to those who ask on {asked}"
            yield _reply_channel(asked), {"address": None, "title": title, "messages": messages}

    def _heard_by(self, handler: Handler) -> Iterator[str]:
        """The topics that a handler hears: those that there are, or its own pattern where there is none."""
        wanted = handler.subscription.topic
        found = [topic for topic in self._payloads if matches(wanted, topic)]
        yield from found or [wanted]

    def _reply(self, topic: str) -> Node:
        """The message of an answer; what it looks like is known where one handler answers and says so."""
        found = [handler for handler in self._parts.handlers if matches(handler.subscription.topic, topic)]
        method = found[0].method if len(found) == 1 else None
        name = f"{topic} (answer)"
        return {"name": name, "title": name, "payload": self._classes.writer.value(method.returns) if method else {}}

    # --- operations ---

    def _operations(self) -> Iterator[tuple[str, Node]]:
        for agent, topic, is_request in self._senders:
            verb, does = ("request", "asks on") if is_request else ("send", "publishes")
            about = {"title": f"{agent.name} {does} {topic}", "x-graphbus-agent": agent.name}
            reply = _reply_reference(topic) if topic in self._asked and is_request else {}
            yield (
                f"{verb}.{agent.name}.{dotted(topic)}",
                {"action": "send", **_at(topic), **_tagged(agent), **about, **reply},
            )
        for handler in self._parts.handlers:
            for topic in self._heard_by(handler):
                yield f"receive.{handler.name}.{dotted(topic)}", self._receive(handler, topic)

    def _receive(self, handler: Handler, topic: str) -> Node:
        agent, subscription = handler
        summary = handler.method.doc.strip().partition("\n")[0] if handler.method else ""
        return {
            "action": "receive",
            **_at(topic),
            **_tagged(agent),
            "title": f"{handler.name} hears {topic}",
            **({"summary": summary} if summary else {}),
            "x-graphbus-agent": agent.name,
            "x-graphbus-method": subscription.method,
            **({"x-graphbus-pattern": subscription.topic} if is_pattern(subscription.topic) else {}),
            **(_reply_reference(topic) if topic in self._asked else {}),
        }

    @cached_property
    def _senders(self) -> tuple[Sender, ...]:
        """Who publishes what, each once, by agent and topic."""
        found = {
            (agent.name, each.topic or f"{each.prefix or '/'}**", each.is_request): agent
            for agent in self._parts.agents
            for each in agent.publications
        }
        return tuple(
            Sender(agent, topic, is_request) for (_, topic, is_request), agent in sorted(found.items(), key=_key)
        )

    @cached_property
    def _asked(self) -> tuple[str, ...]:
        """The topics on which somebody waits for an answer."""
        return tuple(sorted({each.topic for each in self._senders if each.is_request and each.topic in self._payloads}))


def _key(entry: tuple[tuple[str, str, bool], AgentDefinition]) -> tuple[str, str, bool]:
    return entry[0]


def _event(payload: Payload) -> Node:
    note = {"summary": payload.note} if payload.note else {}
    return {
        "name": payload.topic,
        "title": payload.topic,
        **note,
        "payload": _ref("components", "schemas", payload.name),
    }


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
    return {"address": address, "messages": message, **({"parameters": parameters} if parameters else {})}


def _reply_channel(topic: str) -> str:
    """No topic has a colon."""
    return f"{dotted(topic)}:reply"


def _reply_reference(topic: str) -> Node:
    channel = _reply_channel(topic)
    return {
        "reply": {"channel": _ref("channels", channel), "messages": [_ref("channels", channel, "messages", "reply")]}
    }


def _at(topic: str) -> Node:
    return {
        "channel": _ref("channels", dotted(topic)),
        "messages": [_ref("channels", dotted(topic), "messages", "event")],
    }


def _tag(agent: AgentDefinition) -> Node:
    summary = agent.doc.strip().partition("\n")[0]
    return {"name": agent.name, **({"description": summary} if summary else {})}


def _tagged(agent: AgentDefinition) -> Node:
    return {"tags": [{"name": agent.name}]}


def _ref(*names: str) -> Node:
    return {"$ref": f"#/{'/'.join(names)}"}
