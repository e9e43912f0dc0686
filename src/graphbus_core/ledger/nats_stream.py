"""The stream and the consumers of a graph on a NATS server: their names and configurations, made or verified through `NatsLink`.

    stream GB_<app>, subjects gb.<app>.>       topic /Order/Created -> subject gb.<app>.Order.Created
    one durable pull consumer for each agent, named as the agent, filtered by the topics that it subscribes to
    or one for each partition of an agent, named Agent-0, Agent-1, ..., which gets all of these, too

Which events belong to a partition is decided where they arrive, by the keys of the handlers, which the server does not see. The
description of its consumer has them: processes that divide events in different ways would lose some and double others.

The stream keeps an event until the consumer of each agent that gets it has acknowledged it (`interest`), and refuses new events
when it is full (`discard: new`). The server answers with the configuration that it uses; that is compared with the one that was
asked for, because server 2.9 ignores unknown fields in silence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from graphbus_core.ledger.nats_link import ApiError, ForbiddenError, NatsLink
from graphbus_core.ledger.nats_names import consumer_name, stream_name, subject_of, unusable
from graphbus_core.ledger.seam import EngineGone, Subscription
from graphbus_core.log import Log
from graphbus_core.model.config import NatsConfig

OLDEST = (2, 9)
"""The oldest version of the server that is tested."""
_SEVERAL_FILTERS = (2, 10)
"""The oldest version whose consumers may have several filters."""
NS = 1_000_000_000
ACK_WAIT_S = 30.0
_WINDOW_S = 600
_MAX_BYTES, _REPLICAS = 1 << 30, 1
"""Of a new stream, if the settings say nothing."""
_MOST_UNACKNOWLEDGED = 10_000

_LONGEST_DESCRIPTION = 4000
_HOLD = "-hold"
"""The end of the name of a consumer that only keeps events while others are replaced."""

_NO_STREAM, _STREAM_EXISTS, _OVERLAP = 10059, 10058, 10065
_NO_CONSUMER = 10014
_DEPLOY = "Let a user who may do so make it: `graphbus nats deploy`."
_NOT_ENABLED, _NOT_READY = (10039, 10076), 10008

_log = Log("graphbus.ledger")


class Stream(NamedTuple):
    """The stream of an application.

    Attributes:
        name: Its name.
        created: When it was made, which tells it from an earlier one of the same name.
        last: The number of its last message.
    """

    name: str
    created: str
    last: int


def filters_of(app: str, topics: Iterable[str], version: tuple[int, int]) -> list[str]:
    """Return the filters of a consumer that gets these topics; empty: it gets all events, and leaves out others itself.

    The server refuses filters that overlap: those within another one are left out, and of others that overlap none is used.
    """
    subjects = sorted({subject_of(app, topic) for topic in topics})
    needed = [each for each in subjects if not any(other != each and _is_within(each, other) for other in subjects)]
    if len(needed) > 1 and (version < _SEVERAL_FILTERS or _overlap(needed)):
        return []
    return needed


def _is_within(inner: str, outer: str) -> bool:
    """Return whether all subjects that match `inner` match `outer`."""
    parts, limits = inner.split("."), outer.split(".")
    if limits[-1] == ">":
        parts, limits = parts[: len(limits) - 1], limits[:-1] if len(parts) >= len(limits) else limits
    return len(parts) == len(limits) and all(
        limit == part or (limit == "*" and part != ">") for part, limit in zip(parts, limits, strict=True)
    )


def _overlap(subjects: Sequence[str]) -> bool:
    """Return whether a subject may match two of these."""
    return any(
        _may_meet(first.split("."), second.split("."))
        for number, first in enumerate(subjects)
        for second in subjects[number + 1 :]
    )


def _may_meet(first: Sequence[str], second: Sequence[str]) -> bool:
    for one, other in zip(first, second, strict=False):
        if ">" in (one, other):
            return True
        if one != other and "*" not in (one, other):
            return False
    return len(first) == len(second)


# --- the stream ---


def _stream_config(app: str, settings: NatsConfig) -> dict[str, Any]:
    return {
        "name": stream_name(app),
        "description": f"Events of the GraphBus application {app}",
        "subjects": [f"gb.{app}.>"],
        "retention": "interest",
        "discard": "new",
        "storage": "file",
        "max_age": 0,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "duplicate_window": _WINDOW_S * NS,
        "max_bytes": settings.max_bytes or _MAX_BYTES,
        "num_replicas": settings.replicas or _REPLICAS,
    }


def _changeable(settings: NatsConfig) -> dict[str, int]:
    """Return the fields of the stream that `deploy` changes, with the values that are set."""
    found = {"max_bytes": settings.max_bytes, "num_replicas": settings.replicas}
    return {name: value for name, value in found.items() if value}


_FREE = ("description", "max_bytes", "num_replicas")
"""What an operator may change in the stream, unless the settings have a value."""


async def declare_stream(link: NatsLink, settings: NatsConfig, *, may_change: bool = False) -> Stream:
    """Make the stream of the application, or verify the one that is there.

    Args:
        link: The connection.
        settings: The settings of the stream.
        may_change: Change size and replicas of a stream if the settings have other values.

    Raises:
        RunError: GBE659, the server cannot be used.
        EngineGone: There is no answer.
    """
    app, place = link.address.app, link.address.place
    if link.version < OLDEST:
        version, oldest = (".".join(map(str, each)) for each in (link.version, OLDEST))
        raise unusable(f"it is too old (version {version})", f"Use version {oldest} or newer.", place)
    wanted = _stream_config(app, settings)
    info = await _find_or_make_stream(link, wanted)
    found = info["config"]
    _refuse_stream_of_others(wanted, found, place)
    differing = {name: value for name, value in _changeable(settings).items() if found.get(name) != value}
    if differing and may_change:
        info = await _send_config(link, f"$JS.API.STREAM.UPDATE.{wanted['name']}", found | differing)
        differing = {name: value for name, value in differing.items() if info["config"].get(name) != value}
    for name, value in differing.items():
        raise unusable(
            f"`{name}` of its stream {wanted['name']} is {found.get(name)}, and the settings say {value}",
            "Change the stream with `graphbus nats deploy`, or the value in [tool.graphbus.runtime.nats].",
            place,
        )
    return Stream(wanted["name"], str(info["created"]), int(info["state"]["last_seq"]))


def _refuse_stream_of_others(wanted: Mapping[str, Any], found: Mapping[str, Any], place: str) -> None:
    """Raise GBE659 if a stream is not one of this application."""
    differing = [name for name in wanted if name not in _FREE and found.get(name) != wanted[name]]
    differing += [name for name in ("sealed", "mirror", "sources", "deny_delete", "republish") if found.get(name)]
    if differing:
        name = differing[0]
        raise unusable(
            f"its stream {wanted['name']} is not one of this application: `{name}` is {found.get(name)!r} instead of"
            f" {wanted.get(name)!r}",
            f"Choose another application name at the end of the address, or delete the stream with all its events:"
            f" `nats stream rm {wanted['name']}`.",
            place,
        )


async def _find_or_make_stream(link: NatsLink, config: dict[str, Any]) -> dict[str, Any]:
    """Return the description of the stream, which is made if it is missing."""
    name = config["name"]
    try:
        return await link.request(f"$JS.API.STREAM.INFO.{name}")
    except ApiError as error:
        if error.number != _NO_STREAM:
            raise _refused(link, error) from None
    try:
        return await _send_config(link, f"$JS.API.STREAM.CREATE.{name}", config)
    except ForbiddenError:
        raise unusable(f"it has no stream {name}", _DEPLOY, link.address.place) from None


async def _send_config(link: NatsLink, subject: str, config: dict[str, Any]) -> dict[str, Any]:
    """Make or change a stream; return its description."""
    try:
        return await link.request(subject, config)
    except ApiError as error:
        if error.number != _STREAM_EXISTS:  # else another process has just made it
            raise _refused(link, error) from None
    return await link.request(f"$JS.API.STREAM.INFO.{config['name']}")


def _refused(link: NatsLink, error: ApiError) -> Exception:
    """Return the error for a refusal of JetStream."""
    place = link.address.place
    if error.number == _NOT_READY:
        return EngineGone(str(error))
    if error.number in _NOT_ENABLED:
        return no_jetstream(place)
    if error.number == _OVERLAP:
        advice = "Choose another application name at the end of the address."
        return unusable("the stream of another application has its subjects", advice, place)
    advice = "Correct the settings of the server, or those in [tool.graphbus.runtime.nats]: `max_bytes`, `replicas`."
    return unusable(f"JetStream refuses a stream or consumer ({error})", advice, place)


def no_jetstream(place: str) -> Exception:
    """Return the error about a server without JetStream."""
    return unusable("it has no JetStream", "Start it with JetStream: `nats-server -js -sd FOLDER`.", place)


# --- consumers ---


class Consumer(NamedTuple):
    """A consumer of an agent, with the configuration that it must have.

    Attributes:
        agent: The agent.
        partition: Its partition; None: it is that of the whole agent.
        config: What the server is asked for.
    """

    agent: str
    partition: int | None
    config: dict[str, Any]

    @property
    def name(self) -> str:
        """Its name on the server."""
        return consumer_name(self.agent, self.partition)


def consumers_of(
    link: NatsLink, subscriptions: Sequence[Subscription], partitions: Mapping[str, int], ack_wait_s: float
) -> dict[str, list[Consumer]]:
    """Return agent -> its consumers.

    Args:
        link: The connection.
        subscriptions: Those of all agents.
        partitions: The number of partitions of those agents that have several, each with a consumer.
        ack_wait_s: See `Pump`.
    """
    by_agent: dict[str, list[Subscription]] = {}
    for each in subscriptions:
        by_agent.setdefault(each.agent, []).append(each)
    return {
        agent: [
            Consumer(agent, partition, _consumer_config(link, own, partition, count, ack_wait_s))
            for partition in (range(count) if count > 1 else (None,))
        ]
        for agent, own in by_agent.items()
        for count in [partitions.get(agent, 1)]
    }


def _consumer_config(
    link: NatsLink, own: Sequence[Subscription], partition: int | None, count: int, ack_wait_s: float
) -> dict[str, Any]:
    filters = filters_of(link.address.app, [each.topic for each in own], link.version)
    config: dict[str, Any] = {
        "durable_name": consumer_name(own[0].agent, partition),
        "ack_policy": "explicit",
        "ack_wait": round(ack_wait_s * NS),
        "deliver_policy": "new",
        "replay_policy": "instant",
        "max_deliver": -1,
        "max_ack_pending": _MOST_UNACKNOWLEDGED,
    }
    if partition is not None:
        keys = sorted({f"{each.handler} by {each.partition_key}" for each in own if each.partition_key})
        config["description"] = f"Partition {partition} of {count}: {', '.join(keys) or 'no keys'}"[
            :_LONGEST_DESCRIPTION
        ]
    if len(filters) == 1:
        return config | {"filter_subject": filters[0]}
    return config | {"filter_subjects": list(filters)} if filters else config


async def declare_consumers(
    link: NatsLink, stream: Stream, wanted: Mapping[str, Sequence[Consumer]], hosted: Collection[str]
) -> list[str]:
    """Make the consumers that are missing, and give those of hosted agents the present filters; return the names of these.

    Raises:
        RunError: GBE659, the server does not accept them as they are, or an agent is divided in another way.
        EngineGone: There is no answer.
    """
    made = []
    for agent, consumers in wanted.items():
        found = {each.name: await find_consumer(link, stream.name, each.name) for each in consumers}
        await _refuse_other_division(link, stream, consumers, found)
        for each in consumers:
            present = found[each.name]
            differing = ["durable_name"] if present is None else _differing(each.config, present["config"])
            if present is None or (agent in hosted and differing):
                await _make_consumer(link, stream, each.name, each.config, differing)
                made.append(each.name)
    return made


async def _refuse_other_division(
    link: NatsLink, stream: Stream, consumers: Sequence[Consumer], found: Mapping[str, dict[str, Any] | None]
) -> None:
    """Raise GBE659 if the server has other partitions of an agent than these."""
    other = await _find_other_division(link, stream, consumers, found)
    if other is not None:
        agent, is_now = consumers[0].agent, _description(other["config"]) or "its events are not divided"
        raise unusable(
            f"it divides the events of {agent} in another way ({is_now})",
            f"Stop the processes of {agent} when they have handled what waits, and run `graphbus nats deploy`.",
            link.address.place,
        )


async def _find_other_division(
    link: NatsLink, stream: Stream, consumers: Sequence[Consumer], found: Mapping[str, dict[str, Any] | None]
) -> dict[str, Any] | None:
    """Return a consumer of an agent that divides its events in another way than these; None if there is none."""
    for each in consumers:
        present = found[each.name]
        if present is not None and _description(present["config"]) != _description(each.config):
            return present
    agent, partition, _ = consumers[0]
    return await find_consumer(link, stream.name, consumer_name(agent, 0 if partition is None else None))


def _description(config: Mapping[str, Any]) -> str:
    return str(config.get("description") or "")


async def divide_again(link: NatsLink, stream: Stream, wanted: Mapping[str, Sequence[Consumer]]) -> list[str]:
    """Replace the consumers of agents whose events are divided in another way; return the names of the agents.

    A consumer that nobody pulls from holds the events meanwhile, so that none is lost; it is found again after a crash.

    Raises:
        RunError: GBE659, an agent has events that are not done, or a process that runs.
    """
    divided = []
    for agent, consumers in wanted.items():
        found = {each.name: await find_consumer(link, stream.name, each.name) for each in consumers}
        is_held = await find_consumer(link, stream.name, f"{agent}{_HOLD}")
        if is_held or await _find_other_division(link, stream, consumers, found):
            await _replace_consumers(link, stream, agent, consumers)
            divided.append(agent)
    return divided


async def _replace_consumers(link: NatsLink, stream: Stream, agent: str, consumers: Sequence[Consumer]) -> None:
    hold = f"{agent}{_HOLD}"
    old = [each for each in await _find_names(link, stream) if re.fullmatch(rf"{agent}(-[0-9]+|{_HOLD})?", each)]
    infos = [await find_consumer(link, stream.name, each) or {} for each in old]
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": _next_number(agent, infos, link.address.place)}
    if hold not in old:
        await _make_consumer(link, stream, hold, consumers[0].config | start | {"durable_name": hold}, [])
    for each in old:
        if each != hold:
            await link.request(f"$JS.API.CONSUMER.DELETE.{stream.name}.{each}")
    for consumer in consumers:
        await _make_consumer(link, stream, consumer.name, consumer.config | start, [])
    await link.request(f"$JS.API.CONSUMER.DELETE.{stream.name}.{hold}")


def _next_number(agent: str, consumers: Sequence[Mapping[str, Any]], place: str) -> int:
    """Return the number of the first event that none of the consumers has handed out; raise GBE659 if they are in use."""
    is_busy = any(each["num_ack_pending"] or each["num_waiting"] for each in consumers)
    numbers = {int(each["delivered"]["stream_seq"]) for each in consumers}
    if is_busy or (len(numbers) > 1 and any(each["num_pending"] for each in consumers)):
        raise unusable(
            f"{agent} has a process that runs, or events that are not done",
            f"Its events can be divided in another way when the processes of {agent} have handled what waits and were stopped.",
            place,
        )
    return max(numbers) + 1


async def _find_names(link: NatsLink, stream: Stream) -> list[str]:
    """Return the names of all consumers of a stream."""
    names: list[str] = []
    while True:
        page = await link.request(f"$JS.API.CONSUMER.NAMES.{stream.name}", {"offset": len(names)})
        names += page["consumers"] or ()
        if not page["consumers"] or len(names) >= page["total"]:
            return names


async def find_consumer(link: NatsLink, stream: str, name: str) -> dict[str, Any] | None:
    """Return the description of a consumer of this stream; None if there is none."""
    try:
        return await link.request(f"$JS.API.CONSUMER.INFO.{stream}.{name}")
    except ApiError as error:
        if error.number in (_NO_CONSUMER, _NO_STREAM):
            return None
        raise EngineGone(str(error)) from error


async def _make_consumer(
    link: NatsLink, stream: Stream, name: str, config: dict[str, Any], differing: Sequence[str]
) -> None:
    """Make or change a consumer that differs in these fields, and verify what the server has made of it."""
    body = {"stream_name": stream.name, "config": config}
    try:
        made = await link.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream.name}.{name}", body)
    except ApiError as error:
        raise _refused(link, error) from None
    except ForbiddenError:
        reason = f"the consumer {name} of its stream {stream.name} is missing, or not of this build (`{differing[0]}`)"
        raise unusable(reason, _DEPLOY, link.address.place) from None
    differing = _differing(config, made["config"])
    if differing:
        field = differing[0]
        is_now, wanted = made["config"].get(field), config.get(field)
        raise unusable(
            f"it does not accept `{field}` of the consumer {name}: {is_now!r} instead of {wanted!r}",
            f"If the consumer is another program's, choose another application name; or delete it with the events that wait"
            f" for the agent: `nats consumer rm {stream.name} {name}`.",
            link.address.place,
        )


def _differing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return the fields of a consumer that are not as they were asked for, and filters that were not asked for.

    Where it begins does not matter any more once it is there.
    """
    names = dict.fromkeys((*wanted, "filter_subject", "filter_subjects", "deliver_subject"))
    return [
        name
        for name in names
        if name not in ("deliver_policy", "opt_start_seq") and (found.get(name) or None) != (wanted.get(name) or None)
    ]
