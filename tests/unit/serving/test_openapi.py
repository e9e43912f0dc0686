"""The description of the HTTP interface: valid by its own standard, and true of what the server does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import validate

from tests.fakes.http_site import BEARER, JSON, TOKEN, SiteClient, build_site, served


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteClient]:
    root = build_site(tmp_path_factory.mktemp("site"))
    patch = pytest.MonkeyPatch()
    with patch.context() as environment:
        environment.setenv("GRAPHBUS_TOKEN", TOKEN)
        with served(root) as client:
            yield client


@pytest.fixture(scope="module")
def description(site: SiteClient) -> dict[str, Any]:
    document: dict[str, Any] = site.get("/openapi.json").document
    return document


def test_the_description_is_openapi_3_1(description: dict[str, Any]) -> None:
    validate(description)


def operations(description: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in description["paths"].items():
        for operation in item.values():
            yield path, operation


def resolved(description: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in part:
        return part
    found: Any = description
    for name in part["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return dict(found)


ALIKE = """
    from graphbus_core import GraphBusNode, publishes, schema_method


    class A(GraphBusNode):
        @publishes("/A/B", {"x": int})
        @publishes("/A_B", {"x": int})
        @schema_method(input_schema={}, output_schema={})
        def b_c(self):
            pass


    class A_b(GraphBusNode):
        @schema_method(input_schema={}, output_schema={})
        def c(self):
            pass
    """


def test_names_of_operations_are_unique_also_where_names_look_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    with served(build_site(tmp_path, agents=ALIKE)) as site:
        document = site.get("/openapi.json").document
    validate(document)
    assert {"call.A.b_c", "call.A_b.c", "publish.A.B", "publish.A_B"} < {
        operation["operationId"] for _, operation in operations(document)
    }


def test_everything_but_the_probes_asks_for_the_token(description: dict[str, Any]) -> None:
    assert description["security"] == [{"token": []}]
    assert description["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
    free = [path for path, operation in operations(description) if operation.get("security") == []]
    assert sorted(free) == ["/livez", "/readyz", "/startupz"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/call/Till/add", {"amount": 1}),
        ("/call/Till/read", {}),
        ("/call/Clock/ask", {}),
        ("/publish/Order/Placed", {"order_id": "1", "quantity": 1}),
        ("/publish/Order/Placed?wait=5", {"order_id": "1", "quantity": 1}),
        ("/call/Till/add", {"amount": "one"}),
        ("/call/Till/nothing", {}),
        ("/call/Till/fail", {}),
    ],
)
def test_what_the_server_answers_is_what_the_description_says(
    site: SiteClient, description: dict[str, Any], path: str, body: object
) -> None:
    answer = site.request("POST", path, json.dumps(body), BEARER | JSON)
    known = description["paths"].get(path.partition("?")[0])
    if known is None:
        schema = description["components"]["schemas"]["Problem"]
    else:
        responses = known["post"]["responses"]
        promised = resolved(description, responses.get(str(answer.status), responses["default"]))
        schema = resolved(description, promised["content"][answer.headers["content-type"]]["schema"])
    jsonschema.validate(answer.document, schema)


def test_what_a_request_may_be_answered_with_is_named(site: SiteClient, description: dict[str, Any]) -> None:
    for path, body, status in (
        ("/call/Till/add", b"{", 400),
        ("/call/Till/add", b'{"amount": "one"}', 422),
        ("/call/Till/fail", b"{}", 500),
        ("/publish/Order/Placed?wait=1000000", b"{}", 400),
    ):
        answer = site.request("POST", path, body.decode(), BEARER | JSON)
        assert answer.status == status
        assert str(status) in description["paths"][path.partition("?")[0]]["post"]["responses"]
    wait = description["paths"]["/publish/Order/Placed"]["post"]["parameters"][0]
    assert wait["schema"] == {"type": "number", "minimum": 0, "maximum": 30}


HEARING = """
    from dataclasses import dataclass
    from graphbus_core import GraphBusNode, subscribe

    @dataclass
    class Parcel:
        weight: float

    class Door(GraphBusNode):
        @subscribe("/Parcel/Arrived")
        def on_parcel(self, sku: str, count: int = 1):
            pass

        @subscribe("/Parcel/*")
        def on_any(self, parcel: Parcel):
            pass

        @subscribe("/Letter/Arrived")
        def on_letter(self, sender: str):
            pass

        @subscribe("/Noise/Heard")
        def on_noise(self, event):
            pass
    """


def test_a_topic_whose_events_come_from_outside_is_described_by_what_its_handlers_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    with served(build_site(tmp_path, agents=HEARING)) as site:
        document = site.get("/openapi.json").document
    validate(document)

    def body(path: str) -> dict[str, Any]:
        found: dict[str, Any] = document["paths"][path]["post"]["requestBody"]
        return {"required": found["required"], **found["content"]["application/json"]["schema"]}

    letter = body("/publish/Letter/Arrived")
    assert (letter["required"], letter["properties"]) == (["sender"], {"sender": {"type": "string"}})
    ways = [each["required"] for each in body("/publish/Parcel/Arrived")["allOf"]]
    assert ways == [["sku"], ["weight"]]
    assert body("/publish/Noise/Heard") == {"required": False}
