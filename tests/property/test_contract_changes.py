"""What `contract diff` calls compatible lets nobody down: proven against the validation of a running graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.compiler import rules
from graphbus_core.compiler.discover import ModuleIndex
from graphbus_core.compiler.reading.syntax import ModuleSource
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.contracts.changes import schema_differences
from graphbus_core.contracts.compare import compare_surfaces
from graphbus_core.contracts.edges import ContractValidation, validate_contracts
from graphbus_core.contracts.surface import Surface
from graphbus_core.errors import BuildError
from graphbus_core.model.agent import (
    AgentDefinition,
    Call,
    Dependency,
    MethodSpec,
    Parameter,
    Publication,
    SourceSpan,
    Subscription,
    TopicDefinition,
)
from graphbus_core.model.artifacts import AgentsArtifact, GraphArtifact, TopicsArtifact
from graphbus_core.model.config import ResolvedBuild, Settings
from graphbus_core.model.findings import Finding
from graphbus_core.schema.compatibility import Side
from graphbus_core.schema.types import (
    ANY,
    BOOL,
    BYTES,
    DICT,
    FLOAT,
    INT,
    LIST,
    NULL,
    STR,
    TEXT_EXAMPLES,
    TEXT_TYPES,
    Field,
    Schema,
    Type,
    union,
)
from graphbus_core.schema.validation import problems_of
from graphbus_core.store import BuildArtifacts
from tests.thoroughness import examples

PLAIN_SAMPLES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("unknown", "any"), (None, True, 1, 0.5, "text", [], {})),
    "null": (None,),
    "bool": (True, False),
    "int": (1, 0, -1, 1_000_003),
    "float": (0.5, 1, -0.25),
    "str": ("text", "", "another text"),
    "bytes": (b"bytes",),
    **dict.fromkeys(("list", "tuple", "set"), ([], [1])),
    "dict": ({}, {"a": 1}),
}


LITERALS = st.lists(st.sampled_from(["a", "b", 1, 2, True, None]), min_size=1, max_size=3, unique_by=repr)
PLAIN = st.one_of(
    st.sampled_from([ANY, NULL, BOOL, INT, FLOAT, STR, BYTES, LIST, DICT, Type("tuple"), Type("set")]),
    st.sampled_from([*TEXT_TYPES.values()]),
    LITERALS.map(lambda values: Type("literal", values=tuple(values))),
)
NAMES = st.sampled_from(["a", "b", "c", "d"])


def _fields(types: st.SearchStrategy[Type]) -> st.SearchStrategy[tuple[Field, ...]]:
    field = st.builds(Field, NAMES, types, st.booleans())
    return st.lists(field, max_size=3, unique_by=lambda each: each.name).map(tuple)


def _nested(types: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    return st.one_of(
        types.map(lambda item: Type("list", (item,))),
        types.map(lambda item: Type("set", (item,))),
        st.lists(types, min_size=1, max_size=2).map(lambda items: Type("tuple", tuple(items))),
        types.map(lambda item: Type("dict", (STR, item))),
        st.lists(types, min_size=2, max_size=3).map(lambda items: union(*items)),
        _fields(types).map(lambda fields: Type("record", fields=fields)),
    )


TYPES = st.recursive(PLAIN, _nested, max_leaves=5)
SCHEMAS = st.builds(Schema, _fields(TYPES))


@st.composite
def mutations(draw: st.DrawFn, of: Schema) -> Schema:
    """Give a schema that is like another: some fields gone, added, widened, narrowed, or with other inside."""
    fields = [each for each in of.fields if draw(st.integers(0, 4))]
    fields = [_changed(draw, field) if draw(st.booleans()) else field for field in fields]
    if draw(st.booleans()):
        fields += [each for each in draw(_fields(TYPES)) if each.name not in {field.name for field in fields}]
    return Schema(tuple(fields), is_open=of.is_open)


def _changed(draw: st.DrawFn, field: Field) -> Field:
    return Field(field.name, _mutated(draw, field.type), draw(st.booleans()))


def _mutated(draw: st.DrawFn, kind: Type) -> Type:
    way = draw(st.sampled_from(["same", "wider", "other", "inside", "narrower"]))
    if way == "wider":
        return union(kind, draw(PLAIN))
    if way == "other":
        return draw(TYPES)
    if way == "narrower" and kind.kind == "union":
        return union(*kind.args[1:])
    if way == "inside" and kind.args:
        return Type(kind.kind, (*kind.args[:-1], _mutated(draw, kind.args[-1]))) if kind.kind != "union" else kind
    if way == "inside" and kind.fields:
        return Type("record", fields=mutations_of_fields(draw, kind.fields))
    return kind


def mutations_of_fields(draw: st.DrawFn, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(_changed(draw, each) for each in fields if draw(st.integers(0, 3)))


PAIRS = SCHEMAS.flatmap(lambda schema: st.tuples(st.just(schema), mutations(schema)))


def sent(fields: tuple[Field, ...], draw: st.DrawFn) -> dict[str, Any]:
    return {each.name: value_of(each.type, draw) for each in fields if each.required or draw(st.booleans())}


def value_of(kind: Type, draw: st.DrawFn) -> Any:
    """Give any value of a type, as a well-behaved sender makes it."""
    if kind.kind == "union":
        return value_of(draw(st.sampled_from(kind.args)), draw)
    if kind.kind == "record":
        return sent(kind.fields, draw)
    if kind.kind in ("list", "set") and kind.args:
        return [value_of(kind.args[0], draw) for _ in range(draw(st.integers(0, 2)))]
    if kind.kind == "tuple" and kind.args:
        return [value_of(part, draw) for part in kind.args]
    if kind.kind == "dict" and kind.args:
        return {name: value_of(kind.args[1], draw) for name in draw(st.lists(NAMES, max_size=2, unique=True))}
    if kind.kind == "literal":
        return draw(st.sampled_from(kind.values))
    if kind.kind == "str" and kind.name:
        return draw(st.sampled_from(TEXT_EXAMPLES[kind.name]))
    return draw(st.sampled_from(PLAIN_SAMPLES[kind.kind]))


@pytest.mark.slow
@examples(40)
@given(PAIRS, st.sampled_from(["input", "output"]), st.booleans(), st.data())
def test_a_compatible_change_refuses_no_value_that_was_fine_before(
    pair: tuple[Schema, Schema], side: Side, is_closed: bool, data: st.DataObject
) -> None:
    before, after = pair
    is_closed = is_closed and side == "input"
    if any(each.is_breaking for each in schema_differences(before, after, side, is_closed=is_closed)):
        return
    takes, gives = (after, before) if side == "input" else (before, after)
    check = partial(problems_of, takes, is_closed=is_closed)
    for _ in range(10):
        value = sent(gives.fields, data.draw(st.just(data.draw)))
        assert check(value) == ()


@given(SCHEMAS, st.sampled_from(["input", "output"]), st.booleans())
def test_a_schema_does_not_differ_from_itself(schema: Schema, side: Side, is_closed: bool) -> None:
    assert schema_differences(schema, schema, side, is_closed=is_closed) == ()


# --- whole graphs ------------------------------------------------------------------------------

OFTEN_ALIKE = SCHEMAS.flatmap(lambda schema: st.tuples(st.just(schema), mutations(schema), mutations(schema)))


def at(line: int) -> SourceSpan:
    return SourceSpan("agents/a.py", line, 0, line, 5)


ANYTHING = Parameter("given", at(33), kind="var_keyword")


def graph(says: Schema, needs: Schema, takes: Schema, gives: Schema) -> BuildArtifacts:
    """A publisher and a handler of one topic, a method and its caller."""
    arguments = Schema(tuple(Field(field.name, field.type) for field in gives.fields))
    payload = Type("record", fields=needs.fields)
    agents = (
        _agent("Publisher", 10, publications=(Publication(topic="/T", method="go", span=at(11), payload=says),)),
        _agent("Handler", 20, subscriptions=(
            Subscription(topic="/T", method="on_t", span=at(21), shape="typed", payload=payload),)),
        _agent("Callee", 30, methods=(
            MethodSpec(name="go", span=at(31), parameters=(ANYTHING,), has_schema=True, input_schema=takes),)),
        _agent("Caller", 40, dependencies=(Dependency("Callee", at(41)),),
               calls=(Call("Callee", "go", at(42), arguments),)),
    )  # fmt: skip
    graph = GraphArtifact(nodes=(), edges=(), activation_order=(), generations=())
    return BuildArtifacts(
        graph=graph, agents=AgentsArtifact(agents), topics=TopicsArtifact((TopicDefinition(name="/T"),))
    )


def _agent(name: str, line: int, **promises: Any) -> AgentDefinition:
    span = SourceSpan("agents/a.py", line, 0, line + 9, 5)
    return AgentDefinition(name=name, module="agents.a", path="agents/a.py", span=span, name_span=at(line), **promises)


class Recorded:
    """Artifacts as evidence for the rules; what only the text of a handler can show is not known."""

    def __init__(self, artifacts: BuildArtifacts) -> None:
        self.config = ResolvedBuild(root="", paths=(), settings=Settings())
        self.index = ModuleIndex("", (), (), ())
        self.definitions = artifacts.agents.agents
        self.errors: tuple[BuildError, ...] = ()
        self.local_findings: tuple[Finding, ...] = ()
        self.topics = ()
        self.digests: dict[str, str] = {}

    def source(self, path: str) -> ModuleSource:
        return ModuleSource(path, "", b"")

    def ignores(self, _path: str) -> Sequence[tuple[int, tuple[str, ...]]]:
        return ()


def validated(artifacts: BuildArtifacts) -> ContractValidation:
    evidence = Recorded(artifacts)
    return validate_contracts(Wiring(evidence), rules.check(evidence, has_text=False))


@pytest.mark.slow
@examples(40)
@given(OFTEN_ALIKE, PAIRS, st.integers(1, 3))
def test_unless_a_change_is_called_breaking_every_edge_that_held_still_holds(
    event: tuple[Schema, Schema, Schema], call: tuple[Schema, Schema], which: int
) -> None:
    old = graph(event[0], event[0], call[0], call[0])
    new = graph(
        event[1] if which & 1 else event[0], event[2] if which & 2 else event[0],
        call[1], call[0],
    )  # fmt: skip
    if not validated(old).is_clean:
        return
    changes = compare_surfaces(Surface.of(old), Surface.of(new))
    if not any(change.effect == "breaking" for change in changes):
        assert validated(new).is_clean
    certain = {broken.agent for change in changes for broken in change.breaks if broken.is_certain}
    broken = {edge.kind for edge in validated(new).edges if edge.verdict == "broken"}
    assert not certain or broken


@given(SCHEMAS, SCHEMAS)
def test_a_graph_does_not_differ_from_itself(says: Schema, takes: Schema) -> None:
    artifacts = graph(says, says, takes, takes)
    assert compare_surfaces(Surface.of(artifacts), Surface.of(artifacts)) == ()
