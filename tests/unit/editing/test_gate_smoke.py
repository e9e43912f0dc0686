"""G8: what has changed is called with made-up values; what is wrong with it shows, and nothing that is right is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.editing.rungs.smoke import NoSample, plain_payloads, sample_values, unusual_payloads
from graphbus_core.model.config import GateConfig
from graphbus_core.model.proposals import RungResult
from graphbus_core.schema.types import ANY, BOOL, BYTES, DICT, FLOAT, INT, LIST, NULL, STR, UNKNOWN, Field, Schema, Type
from tests.unit.editing.shop_project import Shop

ORDER = "        total = 2.5 * count\n"
LEFT = '        return {"left": self.stock.get(sku, 0)}'
LEFT_APART = '        return {"left": self._left(sku)}\n\n    def _left(self, sku):\n        return self.stock[sku]'
ON_START = "\n\n    def on_start(self):\n        self.kept = self.stock"
CREATED = '        sku = event.payload["sku"]\n'
INVENTORY = "agents/inventory.py"
RAISES = "        if sku:\n            raise NotImplementedError\n"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("shop"))


def smoke(shop: Shop, old: str, new: str, path: str = "agents/orders.py") -> RungResult:
    src = "Orders" if path == "agents/orders.py" else "Inventory"
    affects = tuple({"Orders", "Inventory", "Ledger", "Referee"} - {src})
    report = shop.replace(old, new, path, src=src, affects=affects)
    assert [rung.rung for rung in report.rungs][-1] == "G8", report.failure
    return report.rungs[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "path", "code", "says"),
    [
        (ORDER, ORDER + "        del total\n", "agents/orders.py", "G8.raises", "Orders.order raises UnboundLocalError"),
        (ORDER, "        total = 2.5 * count.value\n", "agents/orders.py", "G8.raises", "raises AttributeError"),
        (ORDER, "        total = sku - count\n", "agents/orders.py", "G8.raises", "raises TypeError"),
        (ORDER, "        total = 2.5 * {}[str(count)]\n", "agents/orders.py", "G8.raises", "raises KeyError"),
        (ORDER, ORDER + RAISES, "agents/orders.py", "G8.raises", "raises NotImplementedError"),
        (LEFT, LEFT_APART.replace("self.stock[sku]", "sku + 1"), INVENTORY, "G8.raises", "raises TypeError"),
        (LEFT, LEFT.replace("(sku, 0)", "(sku)"), INVENTORY, "G8.output", "returns a result that does not fit"),
        (CREATED, CREATED.replace("sku =", "sku = 1 +"), INVENTORY, "G8.raises", "Inventory.on_created raises TypeError"),
    ],
)  # fmt: skip
def test_what_nobody_can_mean_is_refused(  # noqa: PLR0917
    shop: Shop, old: str, new: str, path: str, code: str, says: str
) -> None:
    rung = smoke(shop, old, new, path)

    assert rung.code == code, rung
    assert says in rung.message
    assert rung.path == path
    assert rung.line > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        (ORDER, "        if count < 0:\n            raise ValueError('negative')\n" + ORDER, "agents/orders.py"),
        (ORDER, "        if not sku.startswith('A-'):\n            raise KeyError(sku)\n" + ORDER, "agents/orders.py"),
        (ORDER, "        if len(sku) != 8:\n            raise TypeError('no sku')\n" + ORDER, "agents/orders.py"),
        (ORDER, "        number = int(sku)\n" + ORDER, "agents/orders.py"),
        (LEFT, LEFT.replace(".get(sku, 0)", "[sku]"), INVENTORY),
        (LEFT, LEFT.replace("self.stock", "self.kept") + ON_START, INVENTORY),
        (LEFT, LEFT.replace("self.stock.get(sku, 0)", "max(0, self.stock.get(sku, 0))"), INVENTORY),
        (CREATED, CREATED + '        if event.payload["count"] <= 0:\n            return\n', INVENTORY),
    ],
    ids=["guard", "unknown key", "type", "number", "mapping", "on_start", "same", "return"],
)  # fmt: skip
def test_what_somebody_may_mean_is_not_refused(shop: Shop, old: str, new: str, path: str) -> None:
    rung = smoke(shop, old, new, path)

    assert rung.status == "passed", rung


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code"),
    [("        while count: pass\n", "G8.timeout"), ("        import os; os._exit(0)\n", "G8.raises")],
)
def test_a_call_that_does_not_come_back_is_refused(tmp_path: Path, line: str, code: str) -> None:
    shop = Shop(tmp_path, gate=GateConfig(timeout_s=2.0))
    base = shop.project.source("agents/orders.py").data
    head = base.replace(ORDER.encode(), (line + ORDER).encode())
    after = shop.project.with_files({"agents/orders.py": head})
    from graphbus_core.editing.rungs.trial_environment import TreeState

    verdict = shop.gate.trials.check_calls(
        TreeState("a", {}), TreeState("b", {"agents/orders.py": head}), shop.project, after
    )

    assert getattr(verdict, "code", "") == code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return json.dumps(order)", "return json.dumps(order, indent=1)"),
        ('CREATED = "/Order/Created"', 'CREATED = "/Order/Created"\nLIMIT = 3'),
        ('self.log(f"low: ', 'self.log(f"very low: '),
    ],
    ids=["no schema", "no method", "a topic of which too little is known"],
)
def test_where_no_call_can_be_made_up_there_is_nothing_to_try(shop: Shop, old: str, new: str) -> None:
    rung = smoke(shop, old, new)

    assert (rung.status, rung.message) == (
        "not_run",
        "No handler or method has changed that can be called with sample values.",
    )


WIRING = """
def make(cls):
    return cls({"apple": 10}) if cls.__name__ == "Inventory" else cls()

def fail(cls):
    raise TypeError("there is no stock")

class Container:
    def get(self, cls):
        return make(cls)

async def make_later(cls):
    return make(cls)

container = Container()
"""


def stocked_shop(folder: Path, factory: str) -> Shop:
    """A shop whose Inventory gets its stock as an argument, from the factory of the project."""
    from tests.unit.editing.shop_project import INVENTORY as TEXT

    text = TEXT.replace("def __init__(self):", "def __init__(self, stock):").replace('{"apple": 10}', "stock")
    return Shop(folder, more={INVENTORY: text, "agents/wiring.py": WIRING}, factory=factory)


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["agents.wiring:make", "agents.wiring:container.get"])
def test_agents_are_made_by_the_factory_of_the_project(tmp_path: Path, factory: str) -> None:
    shop = stocked_shop(tmp_path, factory)

    assert smoke(shop, LEFT, LEFT.replace("(sku, 0)", "(sku)"), INVENTORY).code == "G8.output"
    assert smoke(shop, LEFT, LEFT.replace("(sku, 0)", "(sku, 1)"), INVENTORY).status == "passed"


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["", "agents.wiring:fail", "agents.wiring:absent", "agents.wiring:make_later"])
def test_agents_that_the_factory_does_not_make_are_not_tried(tmp_path: Path, factory: str) -> None:
    shop = stocked_shop(tmp_path, factory)

    rung = smoke(shop, LEFT, LEFT.replace("(sku, 0)", "(sku)"), INVENTORY)

    assert (rung.status, rung.code) == ("not_run", "G8.untried")
    assert "Nothing could be tried: Inventory.left" in rung.message


@pytest.mark.slow
def test_what_needs_another_agent_is_not_tried_and_the_report_says_so(shop: Shop) -> None:
    rung = smoke(shop, ORDER, "        left = self.call('Inventory', 'left', sku=sku)['left']\n" + ORDER)

    assert (rung.status, rung.code) == ("not_run", "G8.untried")
    assert rung.message == "Nothing could be tried: Orders.order cannot be made or needs another agent."


FEED = """
from graphbus_core import GraphBusNode, subscribe

class Feed(GraphBusNode):
    def __init__(self):
        super().__init__()
        self.seen = {}

    @subscribe("/Feed/Arrived")
    def on_arrived(self, event):
        BODY
"""
OLD_BODY = 'self.seen[event["id"]] = [line["text"] for line in event["lines"]]'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('self.seen[event["id"]] = [line["text"].text for line in event["lines"]]', "G8.raises"),
        ('self.seen[event["id"]] = {}["a" + str(event["id"])], [line["text"] for line in event["lines"]]', "G8.raises"),
        ('self.seen[event["id"]] = self._words(*[event["id"]] * 2)', "G8.raises"),
        ('self.seen[event["id"]] = [line["text"].upper() for line in event["lines"]]', ""),
        ('self.seen[event["id"]] = [line["text"] * 2.5 for line in event["lines"]]', ""),
        ('self.seen[event["id"] + 1] = [line["text"].strip() for line in event["lines"]]', ""),
        ('self.seen[event["id"]] = [line["text"] for line in event["lines"] if line["text"] in event["words"]]', ""),
        ('self.seen[int(event["id"])] = [line["text"].split(",")[1] for line in event["lines"]]', ""),
    ],
)
def test_events_from_outside_are_made_up_from_what_the_handler_reads(tmp_path: Path, body: str, code: str) -> None:
    """An error counts only if it comes whatever the values are: what they are for is not known."""
    feed = FEED.replace("BODY", OLD_BODY) + "\n    def _words(self, one):\n        return one\n"
    shop = Shop(tmp_path, more={"agents/feed.py": feed})

    report = shop.replace(
        OLD_BODY, body, "agents/feed.py", src="Feed", affects=("Orders", "Inventory", "Ledger", "Referee")
    )

    rung = report.rungs[-1]
    assert (rung.rung, rung.code) == ("G8", code), report.failure
    assert code or (rung.status, rung.message) == ("passed", "")


@pytest.mark.slow
def test_async_methods_are_awaited(tmp_path: Path) -> None:
    from tests.unit.editing.shop_project import INVENTORY as TEXT

    shop = Shop(tmp_path, more={INVENTORY: TEXT.replace("    def left", "    async def left")})

    assert smoke(shop, LEFT, LEFT.replace("(sku, 0)", "(sku)"), INVENTORY).code == "G8.output"
    assert smoke(shop, LEFT, LEFT.replace("(sku, 0)", "(sku, 1)"), INVENTORY).status == "passed"


# --- made-up values ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (INT, 3),
        (FLOAT, 12.5),
        (STR, "sample"),
        (BOOL, True),
        (NULL, None),
        (Type("literal", values=("EUR", "USD")), "EUR"),
        (Type("list", args=(INT,)), [3]),
        (Type("dict", args=(STR, FLOAT)), {"sample": 12.5}),
        (Type("union", args=(NULL, STR)), "sample"),
        (Type("union", args=(NULL,)), None),
        (Type("record", fields=(Field("a", INT), Field("b", STR, required=False))), {"a": 3}),
    ],
    ids=str,
)
def test_a_plain_value_is_what_a_user_of_the_contract_would_send(of: Type, value: object) -> None:
    assert sample_values(of)[0] == value


@pytest.mark.parametrize(
    "of",
    [UNKNOWN, ANY, BYTES, LIST, DICT, Type("record"), Type("literal"), Type("literal", values=("s",), name="Size"),
     Type("dict", args=(INT, INT)), Type("set", args=(INT,))],
    ids=str,
)  # fmt: skip
def test_what_says_too_little_has_no_value(of: Type) -> None:
    with pytest.raises(NoSample):
        sample_values(of)


def test_what_goes_on_without_end_has_no_value() -> None:
    deep = INT
    for _ in range(9):
        deep = Type("list", args=(deep,))

    with pytest.raises(NoSample):
        sample_values(deep)


def test_plain_mappings_are_whole_and_without_what_may_be_missing() -> None:
    schema = Schema((Field("a", INT), Field("b", STR, required=False), Field("c", ANY, required=False)))

    assert plain_payloads(schema) == [{"a": 3, "b": "sample"}, {"a": 3}]


def test_odd_mappings_differ_in_one_field_from_a_plain_one() -> None:
    fields = {
        "flag": BOOL,
        "word": Type("literal", values=("a", "b")),
        "items": Type("list", args=(INT,)),
        "map": Type("dict", args=(STR, INT)),
        "maybe": Type("union", args=(STR, NULL)),
        "record": Type("record", fields=(Field("a", INT),)),
        "either": Type("union", args=(STR, INT)),
    }
    schema = Schema((*(Field(name, of) for name, of in fields.items()), Field("rest", ANY, required=False)))
    whole = plain_payloads(schema)[0]

    changed = [
        (name, value[name]) for value in unusual_payloads(schema) for name in value if value[name] != whole[name]
    ]
    assert changed == [("flag", False), ("word", "b"), ("items", []), ("map", {}), ("maybe", None)]
    assert [value["n"] for value in unusual_payloads(Schema((Field("n", INT),)))] == [0, -1, 1]


def test_imports_and_calls_share_a_process_and_a_call_that_ends_it_takes_no_import_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To start a process in the jail costs more than all else that these two rungs do."""
    from graphbus_core.editing.rungs.trial_environment import TrialEnvironment, WatchedRun

    runs: list[str] = []
    watched = TrialEnvironment.run_watched

    def counted(self: TrialEnvironment, command: list[str], *more: object, **limits: float) -> WatchedRun:
        runs.append(Path(command[2]).name)
        return watched(self, command, *more, **limits)  # type: ignore[arg-type]

    monkeypatch.setattr(TrialEnvironment, "run_watched", counted)
    shop = Shop(tmp_path)

    assert shop.replace("2.5 * count", "count * 2.5").passed
    assert runs == ["graphbus_trial.py"]
    ended = shop.replace("2.5 * count", "__import__('os')._exit(0)").failure
    assert ended is not None
