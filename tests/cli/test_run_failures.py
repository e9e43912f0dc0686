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
        is_odd = False

        def on_stop(self):
            if self.is_odd:
                json.loads("x")

        @schema_method(input_schema={"text": str}, output_schema={"sum": int})
        def pay(self, text: str) -> dict:
            return {"sum": json.loads(text)["sum"]}

        @schema_method(input_schema={})
        def odd(self) -> dict:
            self.is_odd = True
            return {(1, 2): 3}
    """


@pytest.fixture
def till(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = project({"pyproject.toml": "", "agents/till.py": TILL})
    monkeypatch.chdir(root)
    build_graph("agents")
    return root


@pytest.mark.usefixtures("till")
def test_an_exception_of_a_called_method_is_shown_at_the_users_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--json", "--call", "Till.pay", '{"text": "{}"}']) == 7
    streams = capsys.readouterr()
    assert "agents/till.py:13: error: Till.pay failed: KeyError: 'sum'. [GBE625]" in streams.err
    (error,) = json.loads(streams.out)["errors"]
    assert (error["code"], error["where"]["path"]) == ("GBE625", "agents/till.py")


@pytest.mark.usefixtures("till")
def test_so_is_one_at_the_end_and_a_result_that_json_has_no_form_for_is_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--call", "Till.odd", "{}"]) == 7
    streams = capsys.readouterr()
    assert '"{(1, 2): 3}"' in streams.out
    assert "agents/till.py:9: error: `on_stop` of Till failed: JSONDecodeError" in streams.err
