"""Contracts in the formats of others: what is in the documents, under which names, and that their own tools take them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from graphbus_core import build_graph
from graphbus_core.contracts import documents
from graphbus_core.model.artifacts import ProjectInfo
from graphbus_core.store import BuildArtifacts, load
from tests.fakes.asyncapi import needs_parser, parse
from tests.project_files import write_project

ROOT = Path(__file__).resolve().parents[3]
INFO = ProjectInfo("station", "1.4.0", "Measures the weather.")
FILES = {
    "pyproject.toml": """
        [tool.graphbus]
        external_topics = ["/Sensor/Read"]
        """,
    "agents/__init__.py": "",
    "agents/station.py": '''
        from typing import TypedDict

        from graphbus_core import Event, GraphBusNode, publishes, schema_method, subscribe


        class Place(TypedDict):
            name: str
            at: tuple[float, float]


        class Reading(TypedDict):
            place: Place
            value: float


        class Station(GraphBusNode):
            """Reads sensors.

            And more.
            """

            @subscribe("/Sensor/Read")
            def on_read(self, reading: Reading) -> None:
                """Pass it on."""
                answer = self.request("/Unit/Asked", {"value": reading["value"]})
                self.publish("/Weather/Measured", {"place": reading["place"], "value": answer["value"]})
                self.publish(f"/Alarm/{reading['place']['name']}", {"value": 1.0})

            @schema_method(input_schema={"places": list[Place]}, output_schema={"count": int})
            def learn(self, places):
                """Learn where sensors are."""
                return {"count": len(places)}


        class Units(GraphBusNode):
            @subscribe("/Unit/Asked")
            def convert(self, value: float) -> dict[str, float]:
                return {"value": value}


        class Archive(GraphBusNode):
            @subscribe("/Weather/*")
            def on_weather(self, event: Event) -> None:
                pass

            @subscribe("/Plan/*/Of/**")
            def on_plan(self, event: Event) -> None:
                pass

            @publishes("/Weather/Archived", {"place": Place})
            @schema_method(input_schema={}, output_schema={})
            def sweep(self):
                self.publish("/Weather/Archived", {"place": {"name": "a", "at": (1.0, 2.0)}})
        ''',
}


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> BuildArtifacts:
    root = write_project(tmp_path_factory.mktemp("station"), FILES)
    build_graph(root / "agents")
    return load(root / ".graphbus")


@pytest.fixture(scope="module")
def document(artifacts: BuildArtifacts) -> dict[str, Any]:
    return documents.asyncapi_document(artifacts, INFO)


# --- AsyncAPI -------------------------------------------------------------------------------


def test_each_topic_is_a_channel_and_each_open_pattern_one_with_parameters(document: dict[str, Any]) -> None:
    assert {name: channel["address"] for name, channel in document["channels"].items()} == {
        "Alarm.**": "/Alarm/{rest}",
        "Plan.*.Of.**": "/Plan/{segment}/Of/{rest}",
        "Sensor.Read": "/Sensor/Read",
        "Unit.Asked": "/Unit/Asked",
        "Unit.Asked:reply": None,
        "Weather.Archived": "/Weather/Archived",
        "Weather.Measured": "/Weather/Measured",
    }
    assert set(document["channels"]["Plan.*.Of.**"]["parameters"]) == {"segment", "rest"}
    assert [name for name, each in document["channels"].items() if each.get("x-graphbus-external")] == ["Sensor.Read"]


def test_there_is_an_operation_for_each_end_and_a_pattern_hears_each_topic(document: dict[str, Any]) -> None:
    assert {name: each["action"] for name, each in document["operations"].items()} == {
        "receive.Archive.on_plan.Plan.*.Of.**": "receive",
        "receive.Archive.on_weather.Weather.Archived": "receive",
        "receive.Archive.on_weather.Weather.Measured": "receive",
        "receive.Station.on_read.Sensor.Read": "receive",
        "receive.Units.convert.Unit.Asked": "receive",
        "request.Station.Unit.Asked": "send",
        "send.Archive.Weather.Archived": "send",
        "send.Station.Alarm.**": "send",
        "send.Station.Weather.Measured": "send",
    }
    heard = document["operations"]["receive.Archive.on_weather.Weather.Measured"]
    assert heard["x-graphbus-pattern"] == "/Weather/*"
    assert (heard["x-graphbus-agent"], heard["x-graphbus-method"]) == ("Archive", "on_weather")
    assert document["operations"]["receive.Station.on_read.Sensor.Read"]["summary"] == "Pass it on."


def test_a_request_and_its_answer_meet_in_one_channel(document: dict[str, Any]) -> None:
    asks, answers = (
        document["operations"][name]["reply"]
        for name in ("request.Station.Unit.Asked", "receive.Units.convert.Unit.Asked")
    )
    assert asks == answers
    assert asks["channel"] == {"$ref": "#/channels/Unit.Asked:reply"}
    assert document["components"]["messages"]["Unit.Asked.Reply"]["payload"] == {
        "type": "object",
        "additionalProperties": {"type": "number"},
    }


def test_classes_are_described_once_and_what_nobody_declares_is_said(document: dict[str, Any]) -> None:
    schemas, messages = document["components"]["schemas"], document["components"]["messages"]
    assert schemas["Sensor.Read.Payload"] == {"$ref": "#/components/schemas/Reading"}
    assert schemas["Reading"]["properties"]["place"] == {"$ref": "#/components/schemas/Place"}
    assert schemas["Weather.Archived.Payload"]["properties"] == {"place": {"$ref": "#/components/schemas/Place"}}
    assert messages["Sensor.Read.Event"]["summary"] == "No publisher declares it: what Station.on_read can take."
    assert "summary" not in messages["Weather.Archived.Event"]


def test_no_line_number_changes_a_document(artifacts: BuildArtifacts, tmp_path: Path) -> None:
    moved = {**FILES, "agents/station.py": "\n\n\n" + FILES["agents/station.py"]}
    build_graph(write_project(tmp_path, moved) / "agents")
    again = load(tmp_path / ".graphbus")
    assert documents.asyncapi_document(again, INFO) == documents.asyncapi_document(artifacts, INFO)
    assert documents.bundle_schemas(again, INFO) == documents.bundle_schemas(artifacts, INFO)


@needs_parser
@pytest.mark.slow
def test_the_official_parser_finds_nothing(document: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(document))
    (found,) = parse(tmp_path / "a.json")
    assert found["diagnostics"] == []
    assert found["isRead"]
    assert sorted(found["operations"]) == sorted(document["operations"])


@needs_parser
@pytest.mark.slow
def test_the_official_parser_bites(document: dict[str, Any], tmp_path: Path) -> None:
    broken = {
        "no version": {**document, "info": {"title": "a"}},
        "a reference into nothing": {**document, "channels": {}},
        "a payload that is no schema": {
            **document,
            "components": {**document["components"], "schemas": {"Place": {"type": "strnig"}}},
        },
        "an unknown action": {
            **document,
            "operations": {"a": {"action": "shout", "channel": {"$ref": "#/channels/Sensor.Read"}}},
        },
    }
    files = [tmp_path / f"{name}.json" for name in broken]
    for file, text in zip(files, broken.values(), strict=True):
        file.write_text(json.dumps(text))
    for name, found in zip(broken, parse(*files), strict=True):
        assert "error" in {each["severity"] for each in found["diagnostics"]}, name


# --- JSON Schema ----------------------------------------------------------------------------


def test_each_payload_and_each_side_of_a_method_has_a_schema(artifacts: BuildArtifacts) -> None:
    bundle = documents.bundle_schemas(artifacts, INFO)
    jsonschema.Draft202012Validator.check_schema(bundle)
    assert list(bundle["$defs"]) == [
        "Place",
        "Reading",
        "Archive.sweep.Arguments",
        "Archive.sweep.Result",
        "Sensor.Read.Payload",
        "Station.learn.Arguments",
        "Station.learn.Result",
        "Unit.Asked.Payload",
        "Weather.Archived.Payload",
        "Weather.Measured.Payload",
    ]
    reading = {"$ref": "#/$defs/Sensor.Read.Payload", "$defs": bundle["$defs"]}
    validator = jsonschema.Draft202012Validator(reading)
    assert validator.is_valid({"place": {"name": "roof", "at": [1, 2]}, "value": 3})
    assert not validator.is_valid({"place": {"name": "roof", "at": [1]}, "value": 3})


def test_a_schema_by_itself_needs_no_other(artifacts: BuildArtifacts) -> None:
    singles = documents.single_schemas(artifacts)
    for name, schema in singles.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["$id"] == name
    assert set(singles["Weather.Archived.Payload"]["$defs"]) == {"Place"}
    assert "$defs" not in singles["Station.learn.Result"]
    with pytest.raises(jsonschema.ValidationError, match="is not of type"):
        jsonschema.validate({"places": [{"name": 1, "at": [1, 2]}]}, singles["Station.learn.Arguments"])


def test_two_classes_of_one_name_are_described_in_place(tmp_path: Path) -> None:
    agent = """
        from typing import TypedDict

        from graphbus_core import GraphBusNode, schema_method


        class Item(TypedDict):
            {field}: str


        class {name}(GraphBusNode):
            @schema_method(input_schema={{"items": list[Item]}}, output_schema={{}})
            def take(self, items):
                pass
        """
    files = {f"agents/{name}.py": agent.format(name=name.title(), field=f"of_{name}") for name in ("one", "two")}
    build_graph(write_project(tmp_path, {"agents/__init__.py": "", **files}) / "agents")
    defined = documents.bundle_schemas(load(tmp_path / ".graphbus"), INFO)["$defs"]
    assert "Item" not in defined
    items = defined["One.take.Arguments"]["properties"]["items"]["items"]
    assert items["required"] == ["of_one"]


def test_what_cannot_be_read_or_is_computed_is_said_to_be_so(tmp_path: Path) -> None:
    files = {
        "agents/__init__.py": "",
        "agents/a.py": """
            from graphbus_core import GraphBusNode, schema_method
            from elsewhere import contract


            class One(GraphBusNode):
                @schema_method(**contract())
                def take(self, a):
                    self.publish(contract(), {"a": 1})

                @schema_method(input_schema={"a": int}, output_schema={})
                def begin(self, a):
                    self.request(f"/Price/{a}", {"a": 1})
            """,
    }
    build_graph(write_project(tmp_path, files) / "agents")
    artifacts = load(tmp_path / ".graphbus")
    defined = documents.bundle_schemas(artifacts, INFO)["$defs"]
    assert defined["One.take.Arguments"]["description"] == "The contract of the method cannot be read."
    assert "type" not in defined["One.take.Arguments"]
    document = documents.asyncapi_document(artifacts, INFO)
    assert {name: each["address"] for name, each in document["channels"].items()} == {
        "**": "/{rest}",
        "Price.**": "/Price/{rest}",
    }
    assert "reply" not in document["operations"]["request.One.Price.**"]


def test_the_parser_is_pinned_by_hashes_and_no_address() -> None:
    text = (ROOT / "tests" / "asyncapi" / "package-lock.json").read_text(encoding="utf-8")
    assert "://" not in text
    packages = json.loads(text)["packages"]
    assert packages.pop("")["dependencies"] == {
        "@asyncapi/parser": packages["node_modules/@asyncapi/parser"]["version"]
    }
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
