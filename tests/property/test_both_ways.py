"""What `contract diff --both-ways` says of two builds is what a worker does with events of the other one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, product
from typing import Any

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from graphbus_core.bus import MessageBus
from graphbus_core.clock import SystemClock
from graphbus_core.contracts.agent_messages import messages_of
from graphbus_core.contracts.both_ways import Problem, compare_both_ways
from graphbus_core.contracts.surface import Surface
from graphbus_core.errors import RunError
from graphbus_core.hosting.contracts import CheckedMethod
from graphbus_core.ledger.attached import wanted_types
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.memory import MemoryLedger
from graphbus_core.ledger.seam import Lease, Parked, Subscription
from graphbus_core.ledger.worker import Attempt, Worker, decide_outcome_of
from graphbus_core.model.agent import KeyRead, Parameter, SourceSpan
from graphbus_core.model.agent import Subscription as Subscribed
from graphbus_core.model.artifacts import AgentsArtifact
from graphbus_core.model.deliveries import DeliveryPolicy
from graphbus_core.schema.types import TEXT_EXAMPLES, UNKNOWN, Field, Schema, Type, as_json
from graphbus_core.store import BuildArtifacts
from tests.property.test_contract_changes import OFTEN_ALIKE, PLAIN_SAMPLES, graph
from tests.thoroughness import examples

AT = SourceSpan("agents/a.py", 21, 0, 21, 5)
STYLES = st.sampled_from(["typed", "fields", "event"])


def build(says: Schema, needs: Schema, style: str) -> BuildArtifacts:
    """A publisher, and a handler that takes an object of a class, fields by name, or the event, of which it reads keys."""
    made = graph(says, needs, Schema(), Schema())
    if style == "typed":
        return made
    handler = Subscribed(topic="/T", method="on_t", span=AT, shape="fields", fields=tuple(
        Parameter(each.name, AT, each.type, has_default=not each.required) for each in needs.fields
    )) if style == "fields" else Subscribed(topic="/T", method="on_t", span=AT, shape="event", reads=tuple(
        KeyRead(each.name, AT, is_optional=not each.required) for each in needs.fields
    ))  # fmt: skip
    agents = tuple(
        msgspec.structs.replace(each, subscriptions=(handler,)) if each.name == "Handler" else each
        for each in made.agents.agents
    )
    return msgspec.structs.replace(made, agents=AgentsArtifact(agents))


def samples(of: Type) -> list[Any]:
    """Values of a type, of all kinds that a type may tell apart."""
    return list(islice(_samples(of), 200))


def _samples(of: Type) -> Iterator[Any]:
    if of.kind == "record":
        yield from objects(of.fields)
    elif of.kind == "union":
        yield from (each for choice in of.args for each in samples(choice)[:60])
    elif of.kind in ("list", "set") and of.args:
        yield []
        yield from ([each] for each in samples(of.args[0]))
    elif of.kind == "tuple" and of.args:
        yield from map(list, product(*(samples(part)[:30] for part in of.args)))
    elif of.kind == "dict" and of.args:
        yield {}
        yield from ({"a": each} for each in samples(of.args[1]))
        yield from (dict.fromkeys("abcd", each) for each in samples(of.args[1]))
    elif of.kind == "literal":
        yield from of.values
    elif of.kind == "str" and of.name:
        yield from TEXT_EXAMPLES[of.name]
    else:
        yield from PLAIN_SAMPLES[of.kind]


def problems_between(old: BuildArtifacts, new: BuildArtifacts) -> list[Problem]:
    """Every problem of events, also of those that no change is the reason for."""
    found = compare_both_ways(*(messages_of(Surface.of(each)) for each in (old, new)))
    return [each for edge in found.edges if edge.kind == "event" for each in edge.problems]


MISSING = object()


def objects(fields: tuple[Field, ...]) -> Iterator[dict[str, Any]]:
    """Objects that differ from a first one in one field, and then in several."""
    choices = [[*([] if each.required else [MISSING]), *samples(each.type)] for each in fields]
    first = [each[0] for each in choices]
    one_by_one = ([*first[:at], value, *first[at + 1 :]] for at, found in enumerate(choices) for value in found)
    for values in chain([first], one_by_one, product(*(each[:12] for each in choices))):
        yield {each.name: value for each, value in zip(fields, values, strict=True) if value is not MISSING}


def worker_of(reader: BuildArtifacts) -> Worker:
    return Worker(MessageBus(), MemoryLedger(SystemClock()), build="ours", wanted=wanted_types(reader))


def is_parked(worker: Worker, payload: Any) -> bool:
    """Whether the worker of a build parks an event of another build."""
    envelope = Envelope(id="1", type="/T", data=payload, build="theirs")
    lease = Lease(
        delivery=1, envelope=envelope, subscription=Subscription(agent="Handler", handler="Handler.on_t", topic="/T")
    )
    misfit = worker._find_misfit(lease, worker._wanted["Handler.on_t", "/T"].needed)
    return isinstance(decide_outcome_of(Attempt(misfit), lease, DeliveryPolicy(), 0.0, "ours"), Parked)


@pytest.mark.slow
@examples(60)
@given(OFTEN_ALIKE, OFTEN_ALIKE, STYLES, st.booleans())
def test_what_fits_is_handled_and_for_what_does_not_there_is_an_event_that_is_parked(
    says: tuple[Schema, Schema, Schema], needs: tuple[Schema, Schema, Schema], style: str, is_alike: bool
) -> None:
    wants = says[1:] if is_alike else needs[:2]
    old, new = build(says[0], wants[0], style), build(says[1], wants[1], style)
    found = problems_between(old, new)
    for direction, sent, reader in (("forward", says[0], new), ("back", says[1], old)):
        kinds = {each.verdict for each in found if direction in each.ways}
        payloads = samples(as_json(Type("record", fields=sent.fields)))
        event(f"{direction}: {sorted(kinds)}")
        worker = worker_of(reader)
        parked = [each for each in payloads if is_parked(worker, each)]
        if "breaks" in kinds:
            assert parked, (found, payloads)
        elif not kinds:
            assert not parked, (found, parked)


def is_refused(reader: BuildArtifacts, arguments: Any) -> bool:
    """Whether a method of a build refuses the arguments of a call, which are JSON between processes."""
    [spec] = (method for agent in reader.agents.agents for method in agent.methods)
    takes = Schema(as_json(Type("record", fields=(spec.input_schema or Schema()).fields)).fields)
    spec = msgspec.structs.replace(spec, input_schema=takes)
    try:
        CheckedMethod("Callee", spec, "strict").accept(arguments)
    except RunError:
        return True
    return False


@pytest.mark.slow
@examples(60)
@given(OFTEN_ALIKE, OFTEN_ALIKE, st.booleans())
def test_what_fits_is_accepted_and_for_what_does_not_there_is_a_call_that_is_refused(
    gives: tuple[Schema, Schema, Schema], takes: tuple[Schema, Schema, Schema], is_alike: bool
) -> None:
    wants = gives[1:] if is_alike else takes[:2]
    old, new = (graph(Schema(), Schema(), wants[at], gives[at]) for at in (0, 1))
    edges = compare_both_ways(*(messages_of(Surface.of(each)) for each in (old, new))).edges
    found = [each for edge in edges if edge.kind == "call" for each in edge.problems]
    for way, sent, reader in (("forward", gives[0], new), ("back", gives[1], old)):
        verdicts = {each.verdict for each in found if way in each.ways}
        fields = tuple(Field(each.name, each.type) for each in sent.fields)
        calls = samples(as_json(Type("record", fields=fields)))
        event(f"{way}: {sorted(verdicts)}")
        refused = [each for each in calls if is_refused(reader, each)]
        if "breaks" in verdicts:
            assert refused, (found, calls)
        elif not verdicts:
            assert not refused, (found, refused)


def test_the_field_of_a_break_is_the_one_that_is_refused() -> None:
    count = Field("n", Type("int"))
    old, new = Schema((count,)), Schema((count, Field("unit", Type("str"))))
    builds = build(old, old, "fields"), build(new, new, "fields")
    [found] = problems_between(*builds)
    assert (found.ways, found.field, found.hurt) == (("forward", "queued"), "unit", "Handler.on_t")
    assert is_parked(worker_of(builds[1]), {"n": 1})
    assert not is_parked(worker_of(builds[1]), {"n": 1, "unit": "kg"})


def test_a_payload_that_is_known_in_no_build_is_unknown() -> None:
    unknown = Schema((Field("n", UNKNOWN),))
    builds = build(unknown, Schema((Field("n", Type("int")),)), "typed"), build(unknown, Schema(), "typed")
    assert [each.verdict for each in problems_between(*builds)] == ["unknown"]


def test_a_payload_that_one_build_does_not_declare_is_unknown() -> None:
    known, unknown = Schema((Field("n", Type("int")),)), Schema((Field("n", UNKNOWN),))
    found = problems_between(build(unknown, known, "typed"), build(known, known, "typed"))
    assert [(each.ways, each.verdict) for each in found] == [(("forward", "queued"), "unknown")]
    assert found[0].why == "the new Handler.on_t needs 'n', and it is not known what the old Publisher sends"
