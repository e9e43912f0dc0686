"""Annotations that exist for type checkers only: what a handler is called with all the same."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pytest

from graphbus_core.bus import MessageBus
from graphbus_core.bus.signatures import bind_handler
from graphbus_core.errors import RunError
from graphbus_core.model.agent import HandlerShape
from tests.conftest import Project

CHECKED = """
    from __future__ import annotations
    import typing
    from typing import TYPE_CHECKING, Any

    if TYPE_CHECKING:
        import collections.abc
        from collections.abc import Mapping
        from graphbus_core import Event as Happening
        from .orders import Order, OrderData
        from nowhere_at_all import Lost, LostEvent
        Alias = dict
    if typing.TYPE_CHECKING:
        from nowhere_at_all import Dict

    def mapping(it: Mapping[str, Any]): return it
    def dotted(it: collections.abc.Mapping[str, Any]): return it
    def event(it: Happening): return it
    def quoted(it: "Happening"): return it
    def typed_dict(it: Order): return it
    def typed(it: OrderData): return it
    def lost(it: Lost): return it
    def lost_event(it: LostEvent): return it
    def lost_mapping(it: Dict[str, Any]): return it
    def alias(it: Alias): return it
    """
ORDERS = """
    from dataclasses import dataclass
    from typing import TypedDict

    class Order(TypedDict):
        it: int

    @dataclass
    class OrderData:
        it: int
    """


@pytest.fixture
def checked(project: Project, monkeypatch: pytest.MonkeyPatch):
    root = project({"checked/__init__.py": "", "checked/handlers.py": CHECKED, "checked/orders.py": ORDERS})
    monkeypatch.syspath_prepend(str(root))
    yield import_module("checked.handlers")
    for name in [name for name in sys.modules if name.partition(".")[0] == "checked"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mapping", "payload"),
        ("dotted", "payload"),
        ("event", "event"),
        ("quoted", "event"),
        ("typed_dict", "typed"),
        ("typed", "typed"),
        ("lost", "fields"),
        ("lost_event", "event"),
        ("lost_mapping", "payload"),
        ("alias", "fields"),
    ],
)
def test_names_of_type_checkers_are_looked_up_and_else_understood_by_their_text(
    checked: Any, name: str, shape: str
) -> None:
    assert bind_handler(getattr(checked, name)).shape == shape


def test_a_handler_gets_an_object_of_a_class_that_only_type_checkers_import(checked: Any) -> None:
    heard: list[object] = []
    bus = MessageBus(on_error="raise")
    bus.subscribe("/X", lambda event: heard.append(bind_handler(checked.typed).call(event)))
    bus.publish("/X", {"it": 3})
    assert heard == [sys.modules["checked.orders"].OrderData(3)]


@pytest.mark.parametrize(("shape", "expected"), [("payload", "payload"), ("event", "event"), ("fields", "fields")])
def test_what_the_compiler_found_counts_where_nothing_can_be_resolved(
    checked: Any, shape: HandlerShape, expected: str
) -> None:
    assert bind_handler(checked.lost, shape=shape).shape == expected
    assert bind_handler(checked.mapping, shape=shape).shape == "payload", "what can be resolved is the truth"


def test_a_class_that_is_not_to_be_had_is_refused(checked: Any) -> None:
    with pytest.raises(RunError) as refused:
        MessageBus().subscribe("/X", checked.lost, shape="typed")
    assert refused.value.code == "GBE611"
    assert "Lost is not defined at run time" in refused.value.sentence


def test_without_its_source_a_module_is_understood_by_the_text_of_its_annotations(checked: Any) -> None:
    del checked.__file__
    assert bind_handler(checked.mapping).shape == "payload"
    assert bind_handler(checked.typed).shape == "fields"
