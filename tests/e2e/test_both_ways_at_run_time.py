"""Handlers of all styles get events of another build: what `contract diff --both-ways` names is parked, all else is handled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.project_files import write_project

TEMPLATE = """
    import msgspec

    from graphbus_core import Event, GraphBusNode, publishes, subscribe


    class Sale(msgspec.Struct):
        {sale}


    class Till(GraphBusNode):
        @publishes("/Sold", {{{sold}}})
        @subscribe("/Sale/Made")
        def on_sale(self, event: Event) -> None:
            self.publish("/Sold", {{{payload}}})


    class Books(GraphBusNode):
        @subscribe("/Sold")
        def by_field(self, {fields}) -> None:
            pass

        @subscribe("/Sold")
        def by_class(self, sale: Sale) -> None:
            pass

        @subscribe("/Sold")
        def by_key(self, event: Event) -> None:
            assert {key}

        @subscribe("/Sold")
        def by_key_perhaps(self, event: Event) -> None:
            for name in ("n",):
                if event[name]:
                    return
            {key}

        @subscribe("/Sold")
        def by_any_key(self, event: Event) -> None:
            assert event.get("unit", "kg") == "kg"

        @subscribe("/Sold")
        def by_nothing(self) -> None:
            pass
    """
OLD = {"sale": "n: int", "sold": '"n": int', "payload": '"n": 1', "fields": "n: int", "key": 'event["n"]'}
NEW = {
    "sale": "n: int\n        unit: str",
    "sold": '"n": int, "unit": str',
    "payload": '"n": 1, "unit": "kg"',
    "fields": "n: int, unit: str",
    "key": 'event["unit"]',
}
OTHER = {**OLD, "sale": "n: str", "sold": '"n": str', "payload": '"n": "one"', "fields": "n: str", "key": 'event["n"]'}
LATER = {**NEW, "sale": 'n: int\n        unit: str = "kg"', "fields": 'n: int, unit: str = "kg"', "key": "event['n']"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "parking"),
    [
        (OLD, NEW, {"by_field", "by_class", "by_key"}),
        (NEW, OLD, set()),
        (OLD, OTHER, {"by_field", "by_class"}),
        (OLD, LATER, set()),
        (LATER, OLD, set()),
        (NEW, LATER, set()),
    ],
    ids=["a-field-more", "a-field-less", "another-type", "a-field-with-default", "back-again", "only-the-handlers"],
)
def test_an_event_is_parked_where_the_diff_says_so(
    first: dict[str, str],
    second: dict[str, str],
    parking: set[str],
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first build publishes, and its Books does not run; the second one handles what is on its way."""
    for name, parts in (("first", first), ("second", second)):
        folder = write_project(tmp_path / name, {
            "pyproject.toml": f'[tool.graphbus.runtime]\nledger = "sqlite"\nstate_dir = "{tmp_path}/state"\n',
            "shop/__init__.py": "",
            "shop/agents.py": TEMPLATE.format(**parts),
        })  # fmt: skip
        build_graph(folder / "shop")
    monkeypatch.chdir(tmp_path / "first")
    assert main(["run", "--only", "Till", "--publish", "/Sale/Made", "{}"]) == 0
    capsys.readouterr()
    main(["contract", "diff", ".graphbus", "../second/.graphbus", "--both-ways", "--json"])
    edges = json.loads(capsys.readouterr().out)["both_ways"]["edges"]
    named = {
        each["consumer"] for each in edges if each["channel"] == "/Sold" and each["answers"]["forward"] == "breaks"
    }
    named.discard("Books.by_key_perhaps")  # it reads the key, but gets along without it: nothing is parked
    assert named == {f"Books.{each}" for each in parking}
    monkeypatch.chdir(tmp_path / "second")
    assert main(["run", "--publish", "/Sale/Made", "{}"]) == 0
    capsys.readouterr()
    assert main(["ledger", "lag", "--json"]) == 0
    lags = json.loads(capsys.readouterr().out)
    assert {each["handler"] for each in lags if each["parked"]} == named
    assert not any(each["dead"] or each["waiting"] for each in lags)
