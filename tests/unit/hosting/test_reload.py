"""Hot reload: what a running graph keeps, what it takes over, and that an error changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from graphbus_core import GraphBusNode, connect
from graphbus_core.errors import GraphBusError, RunError, SeveralErrors
from graphbus_core.hosting.reload import Reloaded, Reloader
from tests.conftest import Project
from tests.fakes.living_project import LivingProject

COUNTER = """
    from graphbus_core import GraphBusNode, schema_method, subscribe

    class Counter(GraphBusNode):
        def __init__(self):
            self.total = 0
            self.log_of_life = []

        def on_start(self):
            self.log_of_life.append("start")

        def on_stop(self):
            self.log_of_life.append("stop")

        @subscribe("/Sale/Made")
        def on_sale(self, amount: int):
            self.total += amount

        @schema_method(input_schema={}, output_schema={"total": int})
        def read(self):
            return {"total": self.total}
    """
TILL = """
    from graphbus_core import GraphBusNode, publishes
    from shop.prices import FACTOR

    @publishes("/Sale/Made", {"amount": int})
    class Till(GraphBusNode):
        def sell(self, count):
            self.publish("/Sale/Made", {"amount": count * FACTOR})
    """
FILES = {
    "pyproject.toml": "",
    "shop/__init__.py": "",
    "shop/prices.py": "FACTOR = 1\n",
    "shop/counter.py": COUNTER,
    "shop/till.py": TILL,
}


@pytest.fixture
def shop(project: Project) -> Iterator[LivingProject]:
    living = LivingProject(project(FILES))
    try:
        yield living
    finally:
        if not living.graph.is_stopped:
            living.graph.stop()
    assert not [name for name in sys.modules if name == "shop" or name.startswith("shop.")]


def total(shop: LivingProject) -> int:
    found: int = shop.graph.call("Counter", "read")["total"]
    return found


def sell(shop: LivingProject, count: int = 1) -> None:
    shop.graph.node("Till").sell(count)  # type: ignore[attr-defined]


def test_a_handler_runs_its_new_code_and_the_agent_keeps_what_it_knows(shop: LivingProject) -> None:
    sell(shop, 5)
    node = shop.graph.node("Counter")
    shop.edit("shop/counter.py", "self.total += amount", "self.total += 10 * amount")
    done = shop.reload()
    assert done.replaced == ("Counter",)
    assert done.restarted == ()
    sell(shop, 1)
    assert total(shop) == 15
    assert shop.graph.node("Counter") is node
    assert type(node) is sys.modules["shop.counter"].Counter
    assert node.log_of_life == ["start"]  # type: ignore[attr-defined]


def test_nothing_is_done_when_nothing_has_changed(shop: LivingProject) -> None:
    assert shop.reload() == Reloaded()
    shop.save("shop/counter.py", COUNTER)
    assert shop.reload() == Reloaded()


def test_two_saves_within_a_second_and_of_the_same_length_are_told_apart(shop: LivingProject) -> None:
    for factor in (2, 3, 4, 5):
        shop.save("shop/prices.py", f"FACTOR = {factor}\n")
        shop.reload()
        before = total(shop)
        sell(shop)
        assert total(shop) - before == factor


def test_who_imports_a_changed_module_is_imported_again_and_nobody_else(shop: LivingProject) -> None:
    counter = sys.modules["shop.counter"]
    shop.save("shop/prices.py", "FACTOR = 7\n")
    done = shop.reload()
    assert done.modules == ("shop.prices", "shop.till")
    assert done.replaced == ("Till",)
    assert sys.modules["shop.counter"] is counter
    sell(shop)
    assert total(shop) == 7


def test_classes_are_the_same_for_all_who_import_them(shop: LivingProject) -> None:
    shop.save("shop/money.py", "class Money:\n    sign = 1\n")
    shop.save("shop/purse.py", "from shop.money import Money\n\ndef fill():\n    return Money()\n")
    shop.edit("shop/till.py", "from shop.prices import FACTOR", "from . import money, purse\nFACTOR = 1")
    shop.reload()
    shop.edit("shop/money.py", "sign = 1", "sign = 2")
    assert set(shop.reload().modules) == {"shop.money", "shop.purse", "shop.till"}
    till = sys.modules["shop.till"]
    assert isinstance(till.purse.fill(), till.money.Money)
    assert till.money.Money.sign == 2
    assert sys.modules["shop"].money is till.money


def test_a_package_that_is_imported_again_knows_its_modules(shop: LivingProject) -> None:
    shop.save("shop/__init__.py", "from shop.prices import FACTOR\n")
    shop.reload()
    shop.save("shop/prices.py", "FACTOR = 2\n")
    shop.reload()
    assert sys.modules["shop"].FACTOR == 2
    assert sys.modules["shop"].counter is sys.modules["shop.counter"]


def test_attributes_that_only_the_new_code_has_are_added(shop: LivingProject) -> None:
    sell(shop, 3)
    shop.edit("shop/counter.py", "self.total = 0", "self.total = 100\n        self.sales = 40")
    shop.edit("shop/counter.py", "self.total += amount", "self.total += amount\n        self.sales += 1")
    done = shop.reload()
    assert done.notes == (
        "Counter keeps its attributes: what `__init__` gives to those that it had counts from the next start.",
    )
    sell(shop, 1)
    assert total(shop) == 4
    assert shop.graph.node("Counter").sales == 41  # type: ignore[attr-defined]


def test_constants_of_a_class_come_from_the_new_code(shop: LivingProject) -> None:
    shop.edit("shop/counter.py", "    def __init__", "    STEP = 6\n\n    def __init__")
    shop.edit("shop/counter.py", "+= amount", "+= self.STEP")
    shop.reload()
    shop.edit("shop/counter.py", "STEP = 6", "STEP = 7")
    shop.reload()
    sell(shop)
    assert total(shop) == 7


def test_an_agent_whose_on_start_has_changed_is_stopped_and_started(shop: LivingProject) -> None:
    sell(shop, 3)
    shop.edit("shop/counter.py", 'append("start")', 'append("new start")')
    done = shop.reload()
    assert done.restarted == ("Counter",)
    assert shop.graph.node("Counter").log_of_life == ["start", "stop", "new start"]  # type: ignore[attr-defined]
    assert total(shop) == 3


def test_a_thread_that_on_start_began_goes_on_and_is_stopped_at_the_end(shop: LivingProject) -> None:
    shop.edit(
        "shop/counter.py",
        'self.log_of_life.append("start")',
        "import threading\n        self.gone = threading.Event()\n"
        "        self.thread = threading.Thread(target=self.gone.wait)\n        self.thread.start()",
    )
    shop.edit("shop/counter.py", 'self.log_of_life.append("stop")', "self.gone.set()\n        self.thread.join()")
    shop.reload()
    thread = shop.graph.node("Counter").thread  # type: ignore[attr-defined]
    shop.edit("shop/counter.py", "+= amount", "+= 2 * amount")
    assert shop.reload().restarted == ()
    assert thread.is_alive()
    shop.graph.stop()
    assert not thread.is_alive()


def test_an_agent_with_on_reload_takes_care_of_itself(shop: LivingProject) -> None:
    shop.edit("shop/counter.py", 'append("start")', 'append("other start")')
    shop.edit(
        "shop/counter.py",
        "    def on_stop",
        "    def on_reload(self):\n        self.total = -self.total\n\n    def on_stop",
    )
    sell(shop, 4)
    assert shop.reload().restarted == ()
    assert total(shop) == -4
    assert shop.graph.node("Counter").log_of_life == ["start"]  # type: ignore[attr-defined]


def test_what_an_agent_holds_of_an_old_class_is_told(shop: LivingProject) -> None:
    shop.save("shop/basket.py", "class Basket:\n    size = 1\n")
    shop.edit("shop/till.py", "from shop.prices import FACTOR", "from shop.basket import Basket\nFACTOR = 1")
    shop.edit("shop/till.py", "    def sell", "    def __init__(self):\n        self.basket = Basket()\n\n    def sell")
    shop.reload()
    shop.edit("shop/basket.py", "size = 1", "size = 2")
    assert shop.reload().notes == ("Till.basket is still a Basket of the old code.",)


def test_agents_come_and_go_and_are_served_in_the_order_of_activation(shop: LivingProject) -> None:
    heard: list[str] = []
    shop.graph.bus.subscribe("/Sale/Made", lambda: heard.append("stranger"))
    shop.save("shop/auditor.py", COUNTER.replace("Counter", "Auditor"))
    done = shop.reload()
    assert done.added == ("Auditor",)
    assert [each.name for each in shop.graph.bus.subscriptions[:2]] == ["Auditor.on_sale", "Counter.on_sale"]
    assert len(shop.graph.bus.subscriptions) == 3
    sell(shop, 2)
    assert shop.graph.call("Auditor", "read") == {"total": 2}
    auditor = shop.graph.node("Auditor")
    (shop.root / "shop/auditor.py").unlink()
    assert shop.reload().removed == ("Auditor",)
    assert auditor.log_of_life == ["start", "stop"]  # type: ignore[attr-defined]
    assert "shop.auditor" not in sys.modules
    sell(shop, 2)
    assert (total(shop), heard) == (4, ["stranger", "stranger"])
    with pytest.raises(RunError) as refused:
        shop.graph.call("Auditor", "read")
    assert refused.value.code == "GBE620"


def test_contracts_topics_and_methods_are_the_new_ones(shop: LivingProject) -> None:
    shop.edit("shop/till.py", '{"amount": int}', '{"amount": str}')
    shop.edit("shop/counter.py", "amount: int", "amount: str")
    shop.edit("shop/counter.py", "+= amount", "+= len(amount)")
    shop.edit("shop/counter.py", "def read", "def count")
    shop.reload()
    shop.graph.publish("/Sale/Made", {"amount": "four"})
    assert shop.graph.call("Counter", "count") == {"total": 4}
    with pytest.raises(RunError) as refused:
        shop.graph.publish("/Sale/Made", {"amount": 4})
    assert refused.value.code == "GBE614"
    shop.edit("shop/counter.py", "/Sale/Made", "/Sale/Done")
    shop.edit("shop/till.py", "/Sale/Made", "/Sale/Done")
    shop.reload()
    with pytest.raises(RunError) as unknown:
        shop.graph.publish("/Sale/Made", {"amount": "four"})
    assert unknown.value.code == "GBE619"
    shop.graph.publish("/Sale/Done", {"amount": "one"})
    assert shop.graph.call("Counter", "count") == {"total": 7}


def test_counts_of_handlers_that_stay_go_on(shop: LivingProject) -> None:
    sell(shop)
    shop.edit("shop/counter.py", "+= amount", "+= 2 * amount")
    shop.reload()
    sell(shop)
    statistics = shop.graph.bus.statistics()
    assert (statistics.published, statistics.delivered) == (2, 2)
    assert statistics.subscriptions["Counter.on_sale <- /Sale/Made"].delivered == 2


def test_a_handler_that_is_gone_is_not_called_any_more(shop: LivingProject) -> None:
    shop.edit("shop/counter.py", '    @subscribe("/Sale/Made")\n', "")
    shop.reload()
    sell(shop)
    assert total(shop) == 0


Spoil = Callable[[LivingProject], None]


def _in_counter(old: str, new: str) -> Spoil:
    return lambda shop: shop.edit("shop/counter.py", old, new)


ERRORS: dict[str, tuple[Spoil, str, str]] = {
    "a module that does not compile": (
        lambda shop: shop.save("shop/prices.py", "FACTOR =\n"),
        "GBE691",
        "shop/prices.py:1",
    ),
    "a module that raises": (
        lambda shop: shop.save("shop/prices.py", "# broken\n1 / 0\n"),
        "GBE691",
        "shop/prices.py:2",
    ),
    "a module that exits": (
        lambda shop: shop.save("shop/prices.py", "raise SystemExit\n"),
        "GBE691",
        "shop/prices.py:1",
    ),
    "a name that is gone": (lambda shop: shop.save("shop/prices.py", "OTHER = 1\n"), "GBE691", "shop/till.py:2"),
    "a module that is gone": (lambda shop: (shop.root / "shop/prices.py").unlink(), "GBE691", "shop/till.py:2"),
    "a class that exists in the text only": (
        lambda shop: shop.save("shop/counter.py", COUNTER + "\n    del Counter\n"),
        "GBE602",
        "shop/counter.py:3",
    ),
    "an __init__ that raises": (_in_counter("self.total = 0", "self.total = 1 / 0"), "GBE692", "shop/counter.py:5"),
    "an __init__ that exits": (_in_counter("self.total = 0", "exit(3)"), "GBE692", "shop/counter.py:5"),
    "an __init__ with an argument": (_in_counter("__init__(self)", "__init__(self, x)"), "GBE692", "shop/counter.py:3"),
    "another layout": (
        _in_counter("    def __init__", "    __slots__ = ('y',)\n\n    def __init__"),
        "GBE692",
        "shop/counter.py:3",
    ),
    "a handler that cannot be served": (
        _in_counter("on_sale(self, amount: int)", "on_sale(self, *amount)"),
        "GBE611",
        "shop/counter.py:14",
    ),
    "an on_start that raises": (
        _in_counter('self.log_of_life.append("start")', "self.nothing"),
        "GBE693",
        "shop/counter.py:9",
    ),
    "an on_start that exits": (
        _in_counter('self.log_of_life.append("start")', "raise SystemExit(3)"),
        "GBE693",
        "shop/counter.py:9",
    ),
    "an on_reload that exits": (
        _in_counter("    def on_stop", "    def on_reload(self):\n        raise SystemExit(3)\n\n    def on_stop"),
        "GBE693",
        "shop/counter.py:12",
    ),
    "an on_reload that raises": (
        _in_counter("    def on_stop", "    def on_reload(self):\n        1 / 0\n\n    def on_stop"),
        "GBE693",
        "shop/counter.py:12",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_after_an_error_nothing_has_changed(shop: LivingProject, name: str) -> None:
    spoil, code, place = ERRORS[name]
    sell(shop, 3)
    state = dict(vars(shop.graph.node("Counter")))
    modules = {name: module for name, module in sys.modules.items() if name.startswith("shop")}
    texts = {path: path.read_text() for path in (shop.root / "shop").glob("*.py")}
    spoil(shop)
    with pytest.raises(GraphBusError) as refused:
        shop.reload_unread()
    assert (refused.value.code, str(refused.value.where)) == (code, place)
    assert {name: module for name, module in sys.modules.items() if name.startswith("shop")} == modules
    assert type(shop.graph.node("Counter")) is modules["shop.counter"].Counter
    now = dict(vars(shop.graph.node("Counter")))
    assert now.keys() == state.keys()
    sell(shop, 4)
    assert total(shop) == 7
    for path, text in texts.items():
        path.write_text(text)
    assert shop.reload() == Reloaded()
    shop.edit("shop/counter.py", "+= amount", "+= 2 * amount")
    assert shop.reload().replaced == ("Counter",)
    sell(shop, 1)
    assert total(shop) == 9


def test_after_a_failed_on_start_the_old_version_is_started_again(shop: LivingProject) -> None:
    shop.edit("shop/counter.py", 'self.log_of_life.append("start")', "1 / 0")
    with pytest.raises(RunError):
        shop.reload()
    assert shop.graph.node("Counter").log_of_life == ["start", "stop", "start"]  # type: ignore[attr-defined]


def test_an_old_on_start_that_fails_as_well_is_told_too(shop: LivingProject) -> None:
    shop.edit("shop/counter.py", 'self.log_of_life.append("start")', "open(__file__ + '.once', 'x').close()")
    shop.reload()
    shop.edit("shop/counter.py", "open(", "open(1 / 0 or ")
    with pytest.raises(SeveralErrors) as refused:
        shop.reload()
    assert [each.code for each in refused.value.errors] == ["GBE693", "GBE694"]
    assert {str(each.where) for each in refused.value.errors} == {"shop/counter.py:9"}


def test_a_new_agent_that_cannot_start_stays_out(shop: LivingProject) -> None:
    shop.save("shop/auditor.py", COUNTER.replace("Counter", "Auditor").replace('append("start")', "missing()"))
    with pytest.raises(RunError) as refused:
        shop.reload()
    assert refused.value.code == "GBE693"
    assert list(shop.graph.nodes) == ["Till", "Counter"]
    assert len(shop.graph.bus.subscriptions) == 1


def test_a_graph_that_has_stopped_or_has_no_build_or_asks_itself_is_not_reloaded(shop: LivingProject) -> None:
    artifacts = shop.build()
    asked: list[str] = []

    def ask() -> None:
        with pytest.raises(RunError) as refused:
            shop.reloader.reload(artifacts)
        asked.append(refused.value.code)

    shop.graph.bus.subscribe("/Sale/Made", ask)
    sell(shop)
    shop.graph.stop()
    ask()
    with (
        connect(type("Alone", (GraphBusNode,), {})) as graph,
        pytest.raises(RunError) as alone,
    ):
        Reloader(graph)
    assert [*asked, alone.value.code] == ["GBE690"] * 3


def test_a_module_that_a_handler_imports_later_is_noticed_when_it_changes(shop: LivingProject) -> None:
    shop.save("shop/late.py", "RATE = 1\n")
    shop.edit(
        "shop/counter.py", "self.total += amount", "from shop.late import RATE\n        self.total += amount * RATE"
    )
    shop.reload()
    sell(shop)
    shop.save("shop/late.py", "RATE = 9\n")
    assert shop.reload().modules == ("shop.late",)
    sell(shop)
    assert total(shop) == 10


def test_what_lies_in_a_hidden_folder_of_the_project_is_not_the_projects(shop: LivingProject) -> None:
    packages = ".venv/lib/python3/site-packages"
    shop.save(f"{packages}/rented.py", "VALUE = 1\n")
    sys.path.insert(0, str(shop.root / packages))
    try:
        shop.edit("shop/till.py", "from shop.prices", "import rented\nfrom shop.prices")
        shop.reload()
    finally:
        sys.path.remove(str(shop.root / packages))
    shop.save(f"{packages}/rented.py", "VALUE = 2\n")
    assert shop.reload() == Reloaded()
    assert sys.modules["rented"].VALUE == 1


def test_the_entry_point_and_middleware_are_said_to_wait_for_the_next_start(project: Project) -> None:
    around = "def around(handling):\n    yield\n"
    config = '[tool.graphbus.runtime]\nmiddleware = ["shop.around:around"]\n'
    living = LivingProject(project(FILES | {"shop/around.py": around, "pyproject.toml": config}))
    with living.graph:
        living.save("shop/around.py", around + "\n")
        assert living.reload().notes == ("shop.around holds middleware: its new code counts from the next start.",)


def test_an_agent_that_was_left_out_comes_in_when_it_is_mended(project: Project) -> None:
    broken = COUNTER.replace("Counter", "Auditor").replace("self.total = 0", "1 / 0")
    living = LivingProject(project(FILES | {"shop/auditor.py": broken}), is_partial=True)
    with living.graph:
        assert list(living.graph.left_out) == ["Auditor"]
        living.edit("shop/counter.py", "+= amount", "+= 2 * amount")
        assert living.reload() == Reloaded(("Counter",), modules=("shop.counter",))
        living.edit("shop/auditor.py", "1 / 0", "self.total = 0")
        assert living.reload().added == ("Auditor",)
        sell(living)
        assert living.graph.call("Auditor", "read") == {"total": 1}


def test_a_delivery_that_waits_for_another_attempt_finds_the_mended_handler(shop: LivingProject) -> None:
    shop.edit("shop/counter.py", '@subscribe("/Sale/Made")', '@subscribe("/Sale/Made", retries=50, backoff=0.05)')
    shop.edit("shop/counter.py", "self.total += amount", "self.total += amount / 0")
    shop.reload()
    sell(shop, 3)
    assert total(shop) == 0
    shop.edit("shop/counter.py", "amount / 0", "amount")
    shop.reload()
    assert shop.graph.settle(10)
    assert total(shop) == 3
    assert not shop.graph.bus.dead_letters()


@pytest.mark.parametrize(
    ("failure", "told"), [("1 / 0", "ZeroDivisionError: division by zero"), ("exit(3)", "SystemExit: 3")]
)
def test_an_old_on_stop_that_fails_is_told_and_does_not_keep_the_new_version_out(
    shop: LivingProject, failure: str, told: str
) -> None:
    shop.edit("shop/counter.py", 'self.log_of_life.append("stop")', failure)
    shop.reload()
    shop.edit("shop/counter.py", failure, "pass")
    shop.edit("shop/counter.py", 'append("start")', 'append("again")')
    done = shop.reload()
    assert done.restarted == ("Counter",)
    assert done.notes == (f"`on_stop` of the old Counter failed: {told}.",)


def test_an_old_on_stop_that_failed_is_told_where_the_new_version_cannot_start(shop: LivingProject) -> None:
    shop.edit("shop/counter.py", 'self.log_of_life.append("stop")', "1 / 0")
    shop.reload()
    shop.edit("shop/counter.py", 'self.log_of_life.append("start")', 'raise OSError("the port is taken")')
    with pytest.raises(SeveralErrors) as refused:
        shop.reload()
    assert [each.code for each in refused.value.errors] == ["GBE693", "GBE609"]
    assert "ZeroDivisionError: division by zero" in refused.value.errors[1].sentence
    shop.edit("shop/counter.py", "1 / 0", "pass")
    shop.edit("shop/counter.py", 'raise OSError("the port is taken")', "pass")
    shop.reload()


def test_a_file_that_changes_between_build_and_import_is_served_whole_after_the_next_save(shop: LivingProject) -> None:
    shop.edit("shop/counter.py", "+= amount", "+= 2 * amount")
    artifacts = shop.build()
    shop.edit("shop/counter.py", "    def read", "    async def read")
    shop.reloader.reload(artifacts)
    shop.reload()
    sell(shop, 1)
    assert total(shop) == 2


def test_a_file_that_was_saved_between_start_and_watch_is_noticed(project: Project) -> None:
    living = LivingProject(project(FILES))
    with living.graph:
        living.edit("shop/counter.py", "+= amount", "+= 2 * amount")
        living.reloader = Reloader(living.graph)
        assert living.reload().replaced == ("Counter",)


def test_a_decorated_on_start_is_compared_by_what_it_does(shop: LivingProject) -> None:
    decorator = (
        "import functools\n\ndef told(method):\n    @functools.wraps(method)\n    def wrapper(self):\n"
        "        return method(self)\n    return wrapper\n\n"
    )
    shop.save("shop/counter.py", decorator + (shop.root / "shop/counter.py").read_text())
    shop.edit("shop/counter.py", "    def on_start", "    @told\n    def on_start")
    assert shop.reload().restarted == ()
    shop.edit("shop/counter.py", 'append("start")', 'append("again")')
    assert shop.reload().restarted == ("Counter",)
