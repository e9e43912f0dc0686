"""Topics with a type, by whatever constant name they go, and what is read where they are used."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pytest

from graphbus_core.bus.signatures import bind_handler
from graphbus_core.model.agent import AgentDefinition
from tests.reading import read_files

TOPICS = """
    from enum import Enum
    from types import SimpleNamespace
    from typing import TypedDict
    from graphbus_core import Topic

    class Order(TypedDict):
        order_id: str
        total: float

    CREATED = Topic("/Order/Created", Order)
    GENERIC = Topic[Order]("/Order/Created", Order)
    BY_NAME: Topic[Order] = Topic(name="/Order/Created", payload=Order)
    TABLE = {"created": CREATED, "paid": "/Order/Paid"}
    CHANGED = {"created": CREATED}
    CHANGED["created"] = "/Order/Other"
    SPACE = SimpleNamespace(created=CREATED)

    class Names:
        CREATED = Topic("/Order/Created", Order)

    class Kinds(Enum):
        CREATED = Topic("/Order/Created", Order)

    def make(name):
        return Topic(name, Order)
"""
READ = ("/Order/Created", "Order")
UNREAD = ("", "?")


def agent(root: Path, text: str) -> AgentDefinition:
    head = "from graphbus_core import GraphBusNode, Topic, subscribe, publishes\nfrom shop import topics\n"
    head += "from shop.topics import *\nfrom shop.topics import CREATED, Order\n"
    files = {"shop/__init__.py": "", "shop/topics.py": TOPICS, "shop/agents.py": head + text}
    project = read_files(root, files)
    assert project.errors == ()
    found = project.agent("A")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("CREATED", READ),
        ("topics.GENERIC", READ),
        ("topics.BY_NAME", READ),
        ('topics.TABLE["created"]', READ),
        ('topics.TABLE["paid"]', ("/Order/Paid", "?")),
        ("topics.SPACE.created", READ),
        ("topics.Names.CREATED", READ),
        ("topics.Kinds.CREATED.value", READ),
        ("topics.Kinds.CREATED", UNREAD),
        ('topics.CHANGED["created"]', UNREAD),
        ('topics.TABLE["gone"]', UNREAD),
        ('topics.make("/Order/Created")', UNREAD),
        ("CREATED.name", ("/Order/Created", "?")),
        ('Topic("/Order/*", Order)', ("/Order/*", "Order")),
    ],
)
def test_a_topic_is_read_by_whatever_constant_name(tmp_path: Path, written: str, read: tuple[str, str]) -> None:
    text = f"class A(GraphBusNode):\n    @subscribe({written})\n    def on_t(self, event): ...\n"
    heard = agent(tmp_path, text).subscriptions[0]
    assert (heard.topic, str(heard.promised)) == read


def test_several_topics_are_several_subscriptions(tmp_path: Path) -> None:
    text = "class A(GraphBusNode):\n    @subscribe(CREATED, '/Order/Paid')\n    def on_t(self, event): ...\n"
    assert [each.topic for each in agent(tmp_path, text).subscriptions] == ["/Order/Created", "/Order/Paid"]


@pytest.mark.parametrize(
    ("topics", "parameters", "shape"),
    [
        ("MANY", "orders: list[Order]", "typed"),
        ("MANY", "orders: 'list[Order]' = ()", "typed"),
        ("MANY", "orders", "payload"),
        ("MANY", "event", "event"),
        ("MANY", "*, orders: list[Order]", "fields"),
        ("MANY", "orders: list[Order], more", "fields"),
        ("MANY, COUNT", "what: list[Order] | int", "typed"),
        ("MANY, '/Order/Late'", "orders: list[Order]", "fields"),
        ("MANY, CREATED", "total", "fields"),
        ("Topic('/Either', Order | int)", "total: float", "fields"),
        ("Topic('/Table', dict[str, int])", "mugs: int", "fields"),
        ("'/Order/Many'", "orders: list[Order]", "fields"),
    ],
)
def test_one_parameter_takes_all_of_a_payload_without_fields(
    tmp_path: Path, topics: str, parameters: str, shape: str
) -> None:
    text = "MANY = Topic('/Order/Many', list[Order])\nCOUNT = Topic('/Order/Count', int)\n"
    text += f"class A(GraphBusNode):\n    @subscribe({topics})\n    def on_t(self, {parameters}): ...\n"
    found = agent(tmp_path, text)
    assert {each.shape for each in found.subscriptions} == {shape}

    live: dict[str, Any] = {"Order": TypedDict("Order", {"order_id": str, "total": float})}
    exec("from graphbus_core import *\nCREATED = Topic('/Order/Created', Order)\n" + text, live)
    assert bind_handler(live["A"]().on_t).shape == shape


def test_subscriptions_in_a_list_may_be_topics(tmp_path: Path) -> None:
    text = "class A(GraphBusNode):\n    SUBSCRIBE = [CREATED]\n    def handle_event(self, topic, payload): ...\n"
    heard = agent(tmp_path, text).subscriptions[0]
    assert (heard.topic, str(heard.promised)) == READ


def test_a_publication_by_a_topic_declares_and_sends(tmp_path: Path) -> None:
    text = "class A(GraphBusNode):\n    def go(self):\n        self.publish(CREATED, {'order_id': 1})\n"
    declared, sent = agent(tmp_path, text).publications
    assert (declared.is_declared, declared.topic, str(declared.payload)) == (
        True,
        "/Order/Created",
        "{order_id: str, total: float}",
    )
    assert declared.payload_span is not None
    assert declared.payload_span.path == "shop/topics.py"
    assert (sent.is_declared, sent.topic, str(sent.payload), sent.span) == (
        False,
        "/Order/Created",
        "{order_id: int}",
        declared.span,
    )


def test_publishes_takes_the_type_of_a_topic(tmp_path: Path) -> None:
    text = "@publishes(CREATED)\nclass A(GraphBusNode): ...\n"
    (declared,) = agent(tmp_path, text).publications
    assert str(declared.payload) == "{order_id: str, total: float}"


def test_a_topic_of_no_mapping_has_a_type(tmp_path: Path) -> None:
    text = "class A(GraphBusNode):\n    def go(self):\n        self.publish(Topic('/All', list[Order]), [1])\n"
    declared, sent = agent(tmp_path, text).publications
    assert (declared.payload, str(declared.type), str(sent.type)) == (None, "list[Order]", "list[int]")


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ('TypedDict("Made", {"sku": str})', "record"),
        ("list[int]", "list"),
        ("typing.NewType('Made', int)", "int"),
        ('TypedDict("Made", fields())', "unknown"),
        ("make()", "unknown"),
        ("5", "unknown"),
        ("[int]", "unknown"),
    ],
)
def test_a_name_has_the_type_that_is_assigned_to_it(tmp_path: Path, made: str, kind: str) -> None:
    text = f"import typing\nfrom typing import TypedDict\nMade = {made}\n"
    text += "class A(GraphBusNode):\n    def go(self):\n        self.publish(Topic('/Made', list[Made]), [])\n"
    declared = agent(tmp_path, text).publications[0]
    assert [each.kind for each in declared.type.args] == [kind]
