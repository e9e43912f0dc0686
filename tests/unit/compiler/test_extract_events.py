"""Subscriptions with the keys that they read, publications with what they send, and calls."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from graphbus_core.model.agent import Publication, Subscription
from tests.reading import HEAD, read_agent, read_files

TYPES = """
import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypedDict, Any
import graphbus_core as g
from elsewhere import Foreign
class Order(TypedDict):
    sku: str
@dataclass
class Bill:
    total: float
class Plain: pass
"""


def _handler(tmp_path: Path, signature: str, body: str = "pass", is_async: bool = False) -> Subscription:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    head = "async def" if is_async else "def"
    text = f"{TYPES}\nclass A(GraphBusNode):\n    @subscribe('/T')\n    {head} on_t({signature}):\n{lines}\n"
    return read_agent(tmp_path, text).subscriptions[0]


@pytest.mark.parametrize(
    ("signature", "shape", "payload"),
    [
        ("self", "nothing", "?"),
        ("self, event", "event", "?"),
        ("self, message", "event", "?"),
        ("self, x: Event", "event", "?"),
        ("self, x: 'Event'", "event", "?"),
        ("self, x: g.Event", "event", "?"),
        ("self, event=None", "event", "?"),
        ("self, payload", "payload", "?"),
        ("self, data", "payload", "?"),
        ("self, x: dict", "payload", "dict"),
        ("self, x: dict[str, int]", "payload", "dict[str, int]"),
        ("self, x: Mapping[str, Any]", "payload", "dict[str, Any]"),
        ("self, event: dict", "payload", "dict"),
        ("self, x: Order", "typed", "Order"),
        ("self, event: Bill", "typed", "Bill"),
        ("self, x: 'Bill'", "typed", "Bill"),
        ("self, x: Foreign", "typed", "Foreign"),
        ("self, event, payload", "event_payload", "?"),
        ("self, event: Event, payload: dict", "event_payload", "dict"),
        ("self, event: Event, order: Order", "event_payload", "Order"),
        ("self, sku", "fields", "?"),
        ("self, sku: str, left: int = 0", "fields", "?"),
        ("self, order_id: str", "fields", "?"),
        ("self, *, event", "fields", "?"),
        ("self, subject, body", "fields", "?"),
        ("self, **fields", "fields", "?"),
        ("self, *args", "invalid", "?"),
        ("self, event, *args", "invalid", "?"),
        ("self, a, b, /", "invalid", "?"),
        ("self, event, /", "event", "?"),
        ("self, x: 'not a type!'", "typed", "not a type!"),
    ],
)
def test_what_a_handler_is_called_with(tmp_path: Path, signature: str, shape: str, payload: str) -> None:
    found = _handler(tmp_path, signature)
    assert (found.shape, str(found.payload)) == (shape, payload)
    assert [item.name for item in found.fields] == (
        [part.split(":")[0].split("=")[0].strip(" *") for part in signature.split(",")[1:] if part.strip() != "*"]
        if shape == "fields"
        else []
    )


def _reads(tmp_path: Path, signature: str, body: str) -> str:
    found = _handler(tmp_path, signature, body)
    shown = [read.key + ("?" if read.is_optional else "") for read in found.reads]
    return " ".join(shown + ["..."] * (not found.reads_all_known))


@pytest.mark.parametrize(
    ("body", "reads"),
    [
        ("pass", ""),
        ("event['a']", "a"),
        ("event.payload['a']", "a"),
        ("event.get('a')", "a?"),
        ("'a' in event", "a?"),
        ("'a' not in event.payload", "a?"),
        ("if 'a' in event:\n    event['a']", "a? a?"),
        ("if event.get('a'):\n    event['a']", "a? a?"),
        ("try:\n    event['a']\nexcept KeyError:\n    pass\nevent['b']", "a? b"),
        ("try:\n    event['a']\nexcept (KeyError, TypeError):\n    pass", "a?"),
        ("try:\n    event['a']\nexcept ValueError:\n    pass", "a"),
        ("try:\n    event['a']\nexcept:\n    pass", "a?"),
        ("with suppress(KeyError):\n    event['a']", "a?"),
        ("with suppress(ValueError, OSError):\n    event['a']", "a"),
        ("try:\n    event['a']\nfinally:\n    pass", "a"),
        ("try:\n    pass\nexcept KeyError:\n    event['a']\nelse:\n    event['b']", "a b"),
        ("try:\n    event['a']\nexcept asyncio.TimeoutError:\n    pass", "a"),
        ("try:\n    event['a']\nexcept LookupError:\n    pass", "a?"),
        ("try:\n    event['a']\nexcept unheard.Of:\n    pass", "a?"),
        ("try:\n    event['a']\nexcept self.errors:\n    pass", "a?"),
        ("try:\n    event['a']\nexcept* ValueError:\n    pass", "a"),
        ("wrong = ValueError\ntry:\n    event['a']\nexcept wrong:\n    pass", "a"),
        ("try:\n    try:\n        event['a']\n    except OSError:\n        pass\nexcept KeyError:\n    pass", "a?"),
        ("data = event.payload\ndata['a']", "a"),
        ("data = event.payload or {}\ndata.get('a')", "a?"),
        ("data = event.payload\ndata = {}\ndata['a']", "..."),
        ("data = event.payload\nself.use(data)", "..."),
        ("data = event.payload\nother = data\nother['a']", "..."),
        ("if (data := event.payload):\n    data['a']", "a?"),
        ("event.topic; event.src; event.event_id; event.correlation_id", ""),
        ("self.log(event.topic)", ""),
        ("self.log(event)", "..."),
        ("self.log(f'{event.payload}')", "..."),
        ("self.log(f\"{event['a']}\")", "a"),
        ("self.use(event)", "..."),
        ("self.use(event['a'])", "a"),
        ("dict(**event.payload)", "..."),
        ("for key in event.payload: pass", "..."),
        ("for key, value in event.payload.items(): pass", "..."),
        ("event[self.key]", "..."),
        ("event[KEY]", "key"),
        ("event.payload['a']['b']", "a"),
        ("event['a'].get('b')", "a"),
        ("[event['a'] for _ in range(3)]", "a"),
        ("[event[key] for key in ('a', 'b')]", "a b"),
        ("for key in ['a', KEY]: event[key]", "a key"),
        ("for key in KEYS: event.get(key)", "a? b?"),
        ("for key in ('a', 'b'):\n    if key in event:\n        event[key]", "a? b? a? b?"),
        ("names = {'a': 1, 'b': 2}\nfor key in names: event[key]", "a b"),
        ("names = {'a': 1, 'b': 2}\nfor key, name in names.items(): event[key]", "..."),
        ("names = ['a']\nnames.append('b')\nfor key in names: event[key]", "..."),
        ("names = ['a']\nself.fill(names)\nfor key in names: event[key]", "..."),
        ("for key in ('a', 1): event[key]", "a ..."),
        ("for key in ('a', *self.keys): event[key]", "..."),
        ("for key in ('a',):\n    key = self.key\n    event[key]", "..."),
        ("for key in ('a',): event[key]\nfor key in self.keys: event[key]", "..."),
        ("def inner(): return event['a']\ninner()", "a"),
        ("event = {}\nevent['a']", "..."),
        ("for event in ['x']: event['a']", "..."),
        ("[event['a'] for event in self.all]", "..."),
        ("event.payload['a'] = 1", "..."),
        ("del event.payload['a']", "..."),
        ("match event.payload:\n    case {'a': a}: pass", "..."),
        ("self.last = event", "..."),
        ("return event", "..."),
        ("lambda: event['a']", "a"),
        ("event['a'] += 1", "..."),
        ("other['a']", ""),
        ("event.payload", "..."),
    ],
)
def test_the_keys_that_a_handler_of_events_reads(tmp_path: Path, body: str, reads: str) -> None:
    text = f"{TYPES}\nKEY = 'key'\nKEYS = ('a', 'b')\n"
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    agent = read_agent(
        tmp_path, f"{text}class A(GraphBusNode):\n    @subscribe('/T')\n    def on_t(self, event):\n{lines}\n"
    )
    found = agent.subscriptions[0]
    shown = [read.key + ("?" if read.is_optional else "") for read in found.reads]
    assert " ".join(shown + ["..."] * (not found.reads_all_known)) == reads


@pytest.mark.parametrize(
    ("signature", "body", "reads"),
    [
        ("self, payload", "payload['a']; payload.get('b')", "a b?"),
        ("self, payload", "payload.payload['a']", "..."),
        ("self, payload", "self.use(payload)", "..."),
        ("self, x: dict", "x['a']", "a"),
        ("self, event, payload", "payload['a']; event['b']; event.topic", "a b"),
        ("self, event, payload", "self.use(payload)", "..."),
        ("self, a, b", "print(a, b)", ""),
        ("self, a, b", "a + b", "a? b?"),
        ("self, a, b", "a['x']", "a? ..."),
        ("self", "pass", ""),
        ("self, x: Bill", "x.total", "..."),
    ],
)
def test_the_keys_that_other_handlers_read(tmp_path: Path, signature: str, body: str, reads: str) -> None:
    assert _reads(tmp_path, signature, body) == reads


@pytest.mark.parametrize(
    ("lines", "is_handed_on"),
    [
        ("print(o['id'])", False),
        ("copied = dict(o); print(copied['id'])", False),
        ("declared(o)", False),
        ("self.publish('/Out', o)", False),
        ("if 'extra' not in o: return\nprint(o['extra'])", False),
        ("undeclared(o)", False),
        ("unheard_of(o)", True),
        ("print(dict(o)['extra'])", True),
        ("copied = dict(o); copied.pop('id'); print(copied['id'])", True),
        ("print(*o.values())", True),
        ("for key in ('id', 'extra'): print(o[key])", False),
        ("for key in keep: print(o[key])", True),
        ("self.kept = o", True),
        ("keep.append(o)", True),
        ("print(o['id'] + 1)", True),
    ],
)
def test_a_typed_payload_is_handed_on(tmp_path: Path, lines: str, is_handed_on: bool) -> None:
    text = """
    from typing import TypedDict
    class Order(TypedDict):
        id: str
    keep = []
    def declared(order: Order) -> None: ...
    def undeclared(order): print(order["extra"])
    class A(GraphBusNode):
        @subscribe("/T")
        def f(self, o: Order) -> None:
    """
    agent = read_agent(tmp_path, dedent(text) + indent(lines, " " * 8))
    assert agent.subscriptions[0].is_handed_on == is_handed_on


def test_an_attribute_of_a_result_is_no_key(tmp_path: Path) -> None:
    text = """
    class A(GraphBusNode):
        def f(self):
            found = self.call("B", "get")
            return found.name, found["key"]
    """
    reads = read_agent(tmp_path, text).calls[0].reads
    assert [(each.key, each.is_attribute, each.is_guarded) for each in reads] == [
        ("name", True, True),
        ("key", False, False),
    ]


def test_the_span_of_a_read_is_its_key(tmp_path: Path) -> None:
    project = read_files(
        tmp_path,
        {
            "m.py": HEAD
            + "class A(GraphBusNode):\n    @subscribe('/T')\n    def f(self, event): return event.payload['ä'], event['b']\n"
        },
    )
    reads = project.definitions[0].subscriptions[0].reads
    assert [project.span_text(read.span) for read in reads] == ["'ä'", "'b'"]


# --- topics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "topic"),
    [
        ("'/A/B'", "/A/B"),
        ("topic='/A/B'", "/A/B"),
        ("MODULE", "/Module/X"),
        ("PREFIX + '/X'", "/Module/X"),
        ("f'{PREFIX}/X'", "/Module/X"),
        ("CLASS", "/Class"),
        ("Topics.MADE", "/Topics/Made"),
        ("Kind.MADE", "/Kind/Made"),
        ("Named.MADE.value", "/Named/Made"),
        ("Named.MADE", ""),
        ("topics.FAR", "/Far"),
        ("NEAR", "/Far"),
        ("'/A/*'", "/A/*"),
        ("compute()", ""),
        ("CHANGED", ""),
        ("GLOBAL", ""),
        ("f'{compute()}/X'", ""),
        ("f'{PREFIX!r}'", ""),
        ("unknown_name", ""),
        ("os.environ['TOPIC']", ""),
        ("LOOPED", ""),
        ("REST", ""),
        ("PLAIN.value", ""),
        ("CHAIN9", "/Module"),
        ("MODULE.strip()", "/Module/X"),
        ("str(MODULE)", ""),
        ("CYCLE", ""),
    ],
)
def test_a_topic_is_what_is_always_the_same(tmp_path: Path, written: str, topic: str) -> None:
    text = (
        HEAD
        + f"""
import os
from enum import Enum, StrEnum
import topics
from topics import FAR as NEAR
PREFIX = "/Module"
MODULE = PREFIX + "/X"
CHANGED = "/1"
CHANGED = "/2"
GLOBAL = "/1"
def change():
    global GLOBAL
    GLOBAL = "/2"
GROWN = "/1"
GROWN += "/2"
for LOOPED in ["/1"]: pass
with open("x") as HELD, open("y"): pass
FIRST, *REST = "/1", "/2"
GONE = "/1"
del GONE
ANNOTATED: str
PLAIN = "/1"
CHAIN0 = PREFIX
{chr(10).join(f"CHAIN{n + 1} = CHAIN{n}" for n in range(9))}
from topics import CYCLE
class Topics:
    MADE = "/Topics/Made"
class Kind(StrEnum):
    MADE = "/Kind/Made"
class Named(Enum):
    MADE = "/Named/Made"
class A(GraphBusNode):
    CLASS = "/Class"
    @subscribe({written})
    def on_it(self): pass
"""
    )
    project = read_files(
        tmp_path, {"m.py": text, "topics.py": "from typing import Final\nfrom m import CYCLE\nFAR: Final = '/Far'\n"}
    )
    assert [item.topic for item in project.definitions[0].subscriptions] == [topic]


def test_several_subscriptions_of_one_handler_and_lists(tmp_path: Path) -> None:
    agent = read_agent(
        tmp_path,
        """
        class A(GraphBusNode):
            SUBSCRIBE = ["/X", "/Y", compute()]
            @subscribe("/A")
            @subscribe("/B")
            async def on_both(self, event): pass
            def handle_event(self, topic, payload):
                payload["a"]
        """,
    )
    assert [(item.topic, item.method, item.shape, item.is_async) for item in agent.subscriptions] == [
        ("/A", "on_both", "event", True),
        ("/B", "on_both", "event", True),
        ("/X", "handle_event", "topic_payload", False),
        ("/Y", "handle_event", "topic_payload", False),
        ("", "handle_event", "topic_payload", False),
    ]
    assert [read.key for read in agent.subscriptions[2].reads] == ["a"]


def test_a_list_of_subscriptions_needs_a_handler_of_two(tmp_path: Path) -> None:
    agent = read_agent(
        tmp_path, "class A(GraphBusNode):\n    SUBSCRIBE = ('/X',)\n    def handle_event(self, event): pass\n"
    )
    assert [item.shape for item in agent.subscriptions] == ["invalid"]


# --- publications -----------------------------------------------------------------------------


def _published(tmp_path: Path, body: str, signature: str = "self, x, n: int, s: str") -> list[Publication]:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    head = f"{TYPES}\nTOPIC = '/T'\nBASE = {{'a': 1}}\nclass A(GraphBusNode):\n    TOPIC = '/Own'\n"
    text = f"{head}    def f({signature}):\n{lines}\n"
    return list(read_agent(tmp_path, text).publications)


@pytest.mark.parametrize(
    ("body", "topic", "payload"),
    [
        ("self.publish('/T', {'a': 1})", "/T", "{a: int}"),
        ("self.publish('/T', payload={'a': n, 'b': s, 'c': x})", "/T", "{a: int, b: str, c: ?}"),
        ("self.publish(topic='/T', payload={})", "/T", "{}"),
        ("self.publish(TOPIC, {'a': 1})", "/T", "{a: int}"),
        ("self.publish(self.TOPIC, {'a': 1})", "/Own", "{a: int}"),
        ("self.publish(A.TOPIC, {'a': 1})", "/Own", "{a: int}"),
        ("topic = '/L'\nself.publish(topic, {'a': 1})", "/L", "{a: int}"),
        ("topic = '/L'\ntopic = x\nself.publish(topic, {'a': 1})", "", "{a: int}"),
        ("self.publish(x, {'a': 1})", "", "{a: int}"),
        ("self.publish(f'/T/{x}', {'a': 1})", "", "{a: int}"),
        ("self.publish('/T', None)", "/T", "{}"),
        ("self.publish('/T', x)", "/T", "None"),
        ("self.publish('/T', BASE)", "/T", "{a: int}"),
        ("self.publish('/T', dict(a=1, b=s))", "/T", "{a: int, b: str}"),
        ("self.publish('/T', {**x, 'a': 1})", "/T", "{a: int, ...}"),
        ("self.publish('/T', {'a': 1, **{'b': 2}})", "/T", "{a: int, b: int}"),
        ("p = {'a': 1}\nself.publish('/T', p)", "/T", "{a: int}"),
        ("p = {'a': 1}\np['b'] = s\nself.publish('/T', p)", "/T", "{a: int, b: ?}"),
        ("p = {'a': 1}\nchange(p)\nself.publish('/T', p)", "/T", "None"),
        ("p = {'a': 1}\np |= x\nself.publish('/T', p)", "/T", "None"),
        ("p = {'a': {'b': 1}}\np['a']['b'] = ''\nself.publish('/T', p)", "/T", "{a: dict}"),
        ("self.publish(*x)", "", "None"),
        ("self.publish('/T', **x)", "/T", "None"),
        ("def inner(): self.publish('/T', {'a': 1})\ninner()", "/T", "{a: int}"),
        ("[self.publish('/T', {'a': y}) for y in x]", "/T", "{a: ?}"),
        ("if x: self.publish('/T', {'a': True})", "/T", "{a: bool}"),
        (
            "self.publish('/T', {'a': [{'b': 1}], 'c': None, 'd': 1.5, 'e': b''})",
            "/T",
            "{a: list[{b: int}], c: None, d: float, e: bytes}",
        ),
        ("self.publish('/T', {'a': n if x else None})", "/T", "{a: int | None}"),
        ("self.publish('/T', {'a': n if x else make()})", "/T", "{a: ?}"),
    ],
)
def test_what_is_published(tmp_path: Path, body: str, topic: str, payload: str) -> None:
    found = _published(tmp_path, body)
    assert [(item.topic, str(item.payload), item.method, item.is_declared) for item in found] == [
        (topic, payload, "f", False)
    ]


@pytest.mark.parametrize(
    ("written", "prefix"),
    [
        ("f'/T/{x}'", "/T/"),
        ("'/T/' + x + '/Y'", "/T/"),
        ("TOPIC + x", "/T"),
        ("f'{TOPIC}/{x}/Z'", "/T/"),
        ("f'{TOPIC!r}/{x}'", ""),
        ("x", ""),
        ("'/T'", ""),
    ],
)
def test_of_a_computed_topic_the_beginning_may_be_known(tmp_path: Path, written: str, prefix: str) -> None:
    assert [item.prefix for item in _published(tmp_path, f"self.publish({written}, {{}})")] == [prefix]


def test_an_attribute_that_a_method_assigns_is_no_constant(tmp_path: Path) -> None:
    agent = read_agent(
        tmp_path,
        """
        class A(GraphBusNode):
            TOPIC = "/T"
            def __init__(self): self.TOPIC = "/Other"
            def f(self): self.publish(self.TOPIC, {})
        """,
    )
    assert [item.topic for item in agent.publications] == [""]


def test_declared_publications(tmp_path: Path) -> None:
    agent = read_agent(
        tmp_path,
        TYPES
        + """
@publishes("/Class", Order)
class A(GraphBusNode):
    @publishes("/Method", {"a": int})
    @publishes("/Bare")
    def f(self): pass
""",
    )
    assert [(item.topic, item.method, str(item.payload), item.is_declared) for item in agent.publications] == [
        ("/Method", "f", "{a: int}", True),
        ("/Bare", "f", "None", True),
        ("/Class", "", "{sku: str}", True),
    ]


def test_calls_of_other_agents(tmp_path: Path) -> None:
    agent = read_agent(
        tmp_path,
        """
        class A(GraphBusNode):
            def f(self, n: int, x):
                self.call("B", "add", sku="a", n=n)
                self.call(x, "add")
                self.call("B", "add", **x)
        """,
    )
    assert [(call.agent, call.method, str(call.arguments), call.has_unknown) for call in agent.calls] == [
        ("B", "add", "{sku: str, n: int}", False),
        ("", "add", "{}", True),
        ("B", "add", "{}", True),
    ]
