"""`graphbus contract export`: the same bytes for the same contracts, on stdout or in files that nobody loses."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from openapi_spec_validator import validate

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.fakes.asyncapi import needs_parser, parse
from tests.fakes.http_site import BEARER, TOKEN, build_site, served

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "export"
FORMATS = ("jsonschema", "openapi", "asyncapi")
EXAMPLES = {"orders": "orders", "shop": "agents"}

Run = Callable[..., SimpleNamespace]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> SimpleNamespace:
        status = main(["contract", "export", *map(str, arguments)])
        captured = capsys.readouterr()
        return SimpleNamespace(status=status, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(
        ROOT / "examples" / "shop", tmp_path / "shop", ignore=shutil.ignore_patterns(".graphbus", "__pycache__")
    )
    monkeypatch.chdir(tmp_path / "shop")
    return tmp_path / "shop"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_documents_of_the_examples_are_as_they_were(run: Run, example: str, form: str) -> None:
    """To renew them: RENEW_GOLDEN=1 pytest -n0 tests/cli/test_contract_export.py, and read the difference."""
    shown = run(ROOT / "examples" / example / EXAMPLES[example], "--format", form)
    assert (shown.status, shown.err) == (0, "")
    golden = GOLDEN / f"{example}.{form}.json"
    if os.environ.get("RENEW_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(shown.out, encoding="utf-8")
    assert shown.out == golden.read_text(encoding="utf-8")


@needs_parser
@pytest.mark.slow
def test_the_official_parser_takes_what_is_golden() -> None:
    for found in parse(*sorted(GOLDEN.glob("*.asyncapi.json"))):
        assert (found["isRead"], found["diagnostics"]) == (True, [])
        assert found["operations"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_what_is_golden_is_openapi(example: str) -> None:
    validate(json.loads((GOLDEN / f"{example}.openapi.json").read_text(encoding="utf-8")))


def test_openapi_is_what_a_served_graph_says_of_itself(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    root = build_site(tmp_path)
    with (root / "pyproject.toml").open("a") as file:
        file.write('\n[project]\nname = "site"\nversion = "2.1"\ndescription = "A till."\n')
    with served(root) as site:
        said = site.get("/openapi.json", BEARER).document
    assert said["info"] == {"title": "site", "version": "2.1", "description": "A till."}
    assert json.loads(run(root / ".graphbus", "--format", "openapi").out) == said
    assert json.loads(run(next(root.glob("site*")), "--format", "openapi").out) == said


def test_sources_and_the_artifacts_made_from_them_give_the_same(run: Run, shop: Path) -> None:
    build_graph(shop / "agents")
    for form in FORMATS:
        assert (
            run(".graphbus", "--format", form).out == run("agents/", "--format", form).out == run("--format", form).out
        )


def test_yaml_says_the_same(run: Run, shop: Path) -> None:
    for form in FORMATS:
        assert yaml.safe_load(run("--format", form, "--yaml").out) == json.loads(run("--format", form).out)


def test_a_file_is_written_and_not_overwritten_unasked(run: Run, shop: Path) -> None:
    wanted = ("--format", "asyncapi", "--output", "out/asyncapi.json")
    assert run(*wanted).out == "written      out/asyncapi.json\n"
    assert json.loads((shop / "out/asyncapi.json").read_text())["asyncapi"] == "3.0.0"
    assert run(*wanted, "--check").status == 0
    (shop / "out/asyncapi.json").write_text("mine")
    refused = run(*wanted)
    assert (refused.status, "[GBE701]" in refused.err) == (8, True)
    assert (shop / "out/asyncapi.json").read_text() == "mine"
    assert "[GBE706]" in run(*wanted, "--check").err
    assert "+++ b/asyncapi.json" in run(*wanted, "--diff").out
    assert run(*wanted, "--force").status == 0
    assert json.loads(run(*wanted, "--json").out) == {
        "format": "asyncapi",
        "folder": "out",
        "files": {"asyncapi.json": "same"},
    }


def test_a_folder_gets_one_file_for_each_schema_or_the_one_document(run: Run, shop: Path) -> None:
    assert run("--format", "jsonschema", "--output", "schemas/").status == 0
    assert sorted(each.name for each in (shop / "schemas").iterdir()) == [
        "AccountsService.balance.Arguments.json",
        "AccountsService.balance.Result.json",
        "Delivery.Arrived.Payload.json",
        "Inventory.Updated.Payload.json",
        "InventoryService.reserve.Arguments.json",
        "InventoryService.reserve.Result.json",
        "Order.Created.Payload.json",
        "Order.Placed.Payload.json",
        "OrderProcessor.process_order.Arguments.json",
        "OrderProcessor.process_order.Result.json",
    ]
    assert run("--format", "openapi", "--output", "schemas", "--yaml").out == "written      schemas/openapi.yaml\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), "GBE110"),
        (("--format", "avro"), "GBE110"),
        (("--format", "openapi", "--force"), "GBE131"),
        (("--format", "openapi", "--check"), "GBE131"),
        (("nowhere", "--format", "openapi"), "GBE101"),
    ],
)
def test_what_cannot_be_done_is_refused(run: Run, shop: Path, arguments: tuple[str, ...], code: str) -> None:
    refused = run(*arguments)
    assert (refused.status, refused.out) == (2, "")
    assert f"[{code}]" in refused.err


def test_text_in_any_script_is_legible_and_half_a_character_stops_nothing(run: Run, shop: Path) -> None:
    agent = '''
from typing import Literal
from graphbus_core import GraphBusNode, schema_method


class Odd(GraphBusNode):
    """Grüße, 日本 \u202e\x9b31m 🎉."""

    @schema_method(input_schema={"a": Literal["\\ud800", "ü"]}, output_schema={})
    def take(self, a):
        pass
'''
    (shop / "agents/odd.py").write_text(agent, encoding="utf-8")
    for options in ((), ("--yaml",)):
        shown = run("agents/odd.py", "--format", "jsonschema", *options)
        assert shown.status == 0
        assert run("agents/odd.py", "--format", "jsonschema", *options, "--output", "out/").status == 0
    shown = run("agents/odd.py", "--format", "asyncapi").out
    assert r"日本 \u202e\u009b31m 🎉" in shown, "what a terminal obeys is escaped"
    assert json.loads(shown)["info"]["tags"] == [{"name": "Odd", "description": "Grüße, 日本 \u202e\x9b31m 🎉."}]
