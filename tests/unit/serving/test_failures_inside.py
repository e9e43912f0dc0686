"""What goes wrong inside of a method is not the client's doing: it is told that it failed, and the log says how."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.http_site import TOKEN, SiteClient, build_site, kept_log, served

AGENTS = """
    from graphbus_core import GraphBusNode, depends_on, publishes, schema_method


    class Safe(GraphBusNode):
        @schema_method(input_schema={"key": int}, output_schema={})
        def open(self, key):
            pass


    @depends_on("Safe")
    class Clerk(GraphBusNode):
        @schema_method(input_schema={"key": object}, output_schema={})
        def ask(self, key):
            self.call("Safe", "open", key=key)

        @schema_method(input_schema={}, output_schema={})
        def ask_for_too_much(self):
            self.call("Safe", "blow_up")

        @publishes("/Safe/Opened", {"key": int})
        @schema_method(input_schema={"topic": str}, output_schema={})
        def tell(self, topic):
            self.publish(topic, {"key": "a-secret"})

        @schema_method(input_schema={"what": str}, output_schema={"it": object})
        def give(self, what):
            it = {"number": float("nan"), "infinity": [1.0, {"x": float("-inf")}], "text": "\\ud800", "thing": object()}
            return {"it": it.get(what)}
    """


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteClient]:
    root = build_site(tmp_path_factory.mktemp("site"), agents=AGENTS)
    patch = pytest.MonkeyPatch()
    with patch.context() as environment:
        environment.setenv("GRAPHBUS_TOKEN", TOKEN)
        with served(root) as client:
            yield client


@pytest.mark.parametrize(
    ("method", "arguments", "code"),
    [
        ("ask", {"key": "a-secret"}, "Safe.open was called with the wrong arguments"),
        ("ask_for_too_much", {}, "Safe has no method blow_up"),
        ("tell", {"topic": "/Safe/Opened"}, "The payload of /Safe/Opened does not match its schema"),
        ("tell", {"topic": "no topic"}, "'no topic' cannot be used here"),
    ],
)
def test_a_method_that_calls_or_publishes_wrongly_has_failed_and_the_client_has_not(
    site: SiteClient, method: str, arguments: dict[str, str], code: str
) -> None:
    with kept_log() as log:
        answer = site.post(f"/call/Clerk/{method}", arguments)
    assert answer.status == 500
    assert set(answer.document) == {"title", "status", "detail", "hint", "request_id"}
    assert not [word for word in ("Safe", "a-secret", "no topic") if word in answer.body.decode()]
    [line] = [line for line in log.lines if answer.document["request_id"] in line]
    assert f"Clerk.{method} failed: {code}" in line
    assert "till.py:" in line


@pytest.mark.parametrize("what", ["number", "infinity", "text", "thing"])
def test_a_result_that_json_does_not_have_is_a_wrong_result_and_never_a_null(site: SiteClient, what: str) -> None:
    with kept_log() as log:
        answer = site.post("/call/Clerk/give", {"what": what})
    assert answer.status == 500, answer.body
    assert "Clerk.give returned a wrong result: " in log.text
    assert "Traceback" not in log.text


def test_a_null_that_is_meant_is_given(site: SiteClient) -> None:
    assert site.post("/call/Clerk/give", {"what": "nothing"}).document == {"it": None}
