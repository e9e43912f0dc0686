"""`graphbus run` when the user's own code raises: one message with agent, exception and line, and the status of the family."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.conftest import Project

TILL = """
    import json
    from graphbus_core import GraphBusNode, schema_method

    class Till(GraphBusNode):
        def __init__(self):
            {constructor}

        def on_start(self):
            {on_start}

        def on_stop(self):
            {on_stop}

        @schema_method(input_schema={{"text": str}}, output_schema={{"sum": int}})
        def pay(self, text: str) -> dict:
            return {{"sum": json.loads(text)["sum"]}}

        @schema_method(input_schema={{}})
        def refuse(self) -> dict:
            return self.call("Tell", "pay")

        @schema_method(input_schema={{}})
        def odd(self) -> dict:
            return {{(1, 2): 3}}
    """
CALM = {"constructor": "pass", "on_start": "pass", "on_stop": "pass"}
FAULT = "json.loads('x')"


@pytest.fixture
def till(project: Project, monkeypatch: pytest.MonkeyPatch):
    def till(**bodies: str) -> Path:
        root = project({"pyproject.toml": "", "agents/till.py": TILL.format(**CALM | bodies)})
        monkeypatch.chdir(root)
        build_graph("agents")
        return root

    return till


def test_an_exception_of_a_called_method_is_shown_at_the_users_line(till, capsys: pytest.CaptureFixture[str]) -> None:
    till()
    assert main(["run", "--json", "--call", "Till.pay", '{"text": "{}"}']) == 7
    streams = capsys.readouterr()
    assert "agents/till.py:16: error: Till.pay failed: KeyError: 'sum'. [GBE625]" in streams.err
    (error,) = json.loads(streams.out)["errors"]
    assert (error["code"], error["where"]["path"]) == ("GBE625", "agents/till.py")


def test_a_refusal_in_a_called_method_stays_what_it_is(till, capsys: pytest.CaptureFixture[str]) -> None:
    till()
    assert main(["run", "--call", "Till.refuse", "{}"]) == 7
    assert "[GBE620]" in capsys.readouterr().err


def test_a_result_that_json_has_no_form_for_is_shown_as_text(till, capsys: pytest.CaptureFixture[str]) -> None:
    till()
    assert main(["run", "--call", "Till.odd", "{}"]) == 0
    assert '"{(1, 2): 3}"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("bodies", "line", "told"),
    [
        ({"constructor": FAULT}, 6, "The agent Till cannot be made: JSONDecodeError"),
        ({"on_start": FAULT}, 9, "`on_start` of Till failed: JSONDecodeError"),
        ({"on_stop": FAULT}, 12, "`on_stop` of Till failed: JSONDecodeError"),
    ],
)
def test_an_exception_of_a_start_or_stop_is_shown_at_the_users_line(
    till, capsys: pytest.CaptureFixture[str], bodies: dict[str, str], line: int, told: str
) -> None:
    till(**bodies)
    assert main(["run", "--call", "Till.pay", '{"text": "{\\"sum\\": 1}"}']) == 7
    assert f"agents/till.py:{line}: error: {told}" in capsys.readouterr().err
