"""Who sends which messages, who takes them, and where: the facts by which two builds are compared both ways.

    Producer  --channel-->  Consumer

`agent_messages` makes them from the contracts of agents. A reader of another framework makes them from its source text; the
comparison is the same.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Literal

import msgspec

from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.topics import is_pattern, matches
from graphbus_core.schema.types import UNKNOWN, Type

MessageKind = Literal["event", "request", "call", "answer", "task"]
"""What is sent. `event`: to every handler of a topic. `request`: to its only handler, which answers. `call`: to a method.

`answer`: what a method or handler returns to who called or asked it. `task`: to a function of a worker, through a queue.
"""

OUTSIDE = "code outside"
"""The name of a producer that is not in the graph."""


PERHAPS = frozenset({"passed on", "kept", "named"})
"""What `Producer.how` says of a task that other code gets, a table keeps or a text names: it may be sent from there."""


class Producer(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A place that sends messages.

    Attributes:
        channel: The topic, the method as `Agent.method`, or the name of the task; empty if it is computed at run time.
        name: Who sends, such as `Checkout`.
        unit: What is deployed as one and contains it, such as an agent or a service; empty: not known, or outside.
        given: The type of what is sent by name: a record, or another type if the message is no mapping. Unknown: not known.
        declared: The type that is declared for all messages of the channel; unknown if none is.
        positional: The types of what is sent by position, for tasks.
        is_open: More may be sent by name than `given` lists.
        has_rest: More may be sent by position than `positional` lists.
        prefix: The constant beginning of a computed channel.
        how: The way in which it is sent, if there are several, such as `delay`, `chain` or `beat`.
        digest: A digest of the source text around it. If the text is the same in both builds, so are unknown messages.
    """

    kind: MessageKind
    channel: str
    name: str
    span: SourceSpan
    unit: str = ""
    given: Type = UNKNOWN
    declared: Type = UNKNOWN
    positional: tuple[Type, ...] = ()
    is_open: bool = False
    has_rest: bool = False
    prefix: str = ""
    how: str = ""
    digest: str = ""


class Consumer(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A place that takes messages.

    Attributes:
        channel: The topic or pattern, the method, or the name of the task; empty if it is computed at run time.
        name: Who takes them: a handler or method as `Agent.method`, a function, or the agent that waits for an answer.
        unit: What is deployed as one and contains it; empty: not known.
        wanted: The type that a message must have; a record of the fields that it needs or may have.
        positions: The names of the fields that positional values fill, in their order.
        is_closed: It refuses fields that `wanted` does not list.
        takes_rest: It takes further positional values.
        is_whole: It certainly needs nothing that `wanted` does not list.
        guarded: Fields that it reads under a condition, or perhaps finds elsewhere, so that it may need them.
        reads: Field -> where it is read or taken; for other fields and for the whole message, `span`.
        digest: A digest of the source text around it.
        options: Further options of a task, as text: `{"queue": "'mail'"}`.
    """

    kind: MessageKind
    channel: str
    name: str
    span: SourceSpan
    unit: str = ""
    wanted: Type = UNKNOWN
    positions: tuple[str, ...] = ()
    is_closed: bool = False
    takes_rest: bool = False
    is_whole: bool = True
    guarded: tuple[str, ...] = ()
    reads: dict[str, SourceSpan] = {}
    digest: str = ""
    options: dict[str, str] = {}

    @property
    def key(self) -> tuple[str, str, str]:
        """What messages in a queue are addressed to."""
        return self.kind, self.channel, self.name

    def place_of(self, field: str) -> SourceSpan:
        """Return where it reads or takes a field of the message."""
        return self.reads.get(field, self.span)


class Unread(msgspec.Struct, frozen=True, gc=False):
    """A place whose messages are not known, and why in one clause; an empty span stands for a whole file or folder."""

    span: SourceSpan
    why: str

    @property
    def is_file(self) -> bool:
        """True for a whole file or folder."""
        return (self.span.line, self.span.column) == (self.span.end_line, self.span.end_column)


class Messages(msgspec.Struct, frozen=True, dict=True):
    """The producers and consumers of one build; those with a channel that is computed at run time match nothing.

    Attributes:
        unread: What could not be read, so that nothing is known of its messages.
    """

    producers: tuple[Producer, ...] = ()
    consumers: tuple[Consumer, ...] = ()
    unread: tuple[Unread, ...] = ()

    def without(self, units: Collection[str]) -> Messages:
        """Return the messages without those that these units send and take."""
        producers = tuple(each for each in self.producers if each.unit not in units)
        consumers = tuple(each for each in self.consumers if each.unit not in units)
        return Messages(producers, consumers, self.unread)

    def of_units(self, units: Collection[str]) -> Messages:
        """Return only the messages that these units send and take, and what code outside sends."""
        return self.without(self.units - {*units})

    def without_outside(self) -> Messages:
        """Return the messages without what code outside is assumed to send."""
        return Messages(tuple(each for each in self.producers if each.name != OUTSIDE), self.consumers, self.unread)

    @property
    def units(self) -> frozenset[str]:
        """What is deployed as one, such as the agents of a graph."""
        sending = {each.unit for each in self.producers if each.unit}
        return frozenset(sending | {each.unit for each in self.consumers if each.unit})

    @cached_property
    def by_key(self) -> dict[tuple[str, str, str], Consumer]:
        """Address -> the consumer."""
        return {each.key: each for each in self.consumers if each.channel}

    @cached_property
    def _by_channel(self) -> dict[tuple[MessageKind, str], list[Consumer]]:
        found: dict[tuple[MessageKind, str], list[Consumer]] = {}
        for each in self.consumers:
            if each.channel:
                found.setdefault((each.kind, each.channel), []).append(each)
        return found

    @cached_property
    def _patterns(self) -> tuple[tuple[MessageKind, str], ...]:
        return tuple((kind, channel) for kind, channel in self._by_channel if is_pattern(channel))

    def consumers_of(self, producer: Producer) -> tuple[Consumer, ...]:
        """Return every consumer that messages of a producer reach; of another build, that they would reach."""
        kind, channel = _taken_as(producer.kind), producer.channel
        if not channel:
            return ()
        if kind == "answer" and is_pattern(channel):  # a handler of a pattern answers requests on each topic of it
            found = [key for key in self._by_channel if key[0] == kind and matches(channel, key[1])]
        else:
            found = [(kind, channel), *(key for key in self._patterns if key[0] == kind and matches(key[1], channel))]
        return tuple(each for key in dict.fromkeys(found) for each in self._by_channel.get(key, ()))

    def producers_of(self, producer: Producer) -> tuple[Producer, ...]:
        """Return the producers on the channel of a producer, which may be one of another build."""
        return self._senders.get((_taken_as(producer.kind), producer.channel), ())

    @cached_property
    def _senders(self) -> dict[tuple[MessageKind, str], tuple[Producer, ...]]:
        found: dict[tuple[MessageKind, str], tuple[Producer, ...]] = {}
        for each in self.producers:
            key = _taken_as(each.kind), each.channel
            found[key] = (*found.get(key, ()), each)
        return found


def _taken_as(kind: MessageKind) -> MessageKind:
    """Return the kind of the consumers: the same handlers take events and requests."""
    return "event" if kind == "request" else kind
