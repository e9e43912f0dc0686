"""`graphbus nats generate`: who gets a user, and what each may do. tests/unit/ledger/test_nats_users.py tries it on servers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.project_files import write_project

AGENTS = """
    from graphbus_core import Event, GraphBusNode, depends_on, publishes, schema_method, subscribe

    class Store(GraphBusNode):
        @subscribe("/Flour/Asked")
        def on_asked(self, event: Event) -> int:
            return 1

        @subscribe("/Sack/**")
        def on_sack(self, event: Event) -> None: ...

        @schema_method(input_schema={}, output_schema={"sacks": int})
        def look(self) -> dict[str, int]:
            return {"sacks": 1}

        @schema_method(input_schema={}, output_schema={"sacks": int})
        def burn(self) -> dict[str, int]:
            return {"sacks": 0}

    @depends_on("Store")
    class Baker(GraphBusNode):
        @subscribe("/Bread/Ordered")
        def on_ordered(self, event: Event) -> None:
            self.request("/Flour/Asked", {})
            self.call("Store", "look")
            self.publish(f"/Sack/{event['name']}", {})

    class Clerk(GraphBusNode):
        @subscribe("/Bread/Ordered")
        def on_ordered(self, event: Event) -> None:
            self.publish(event["topic"], {})

    @publishes("/Note/Written")
    class Scribe(GraphBusNode):
        @subscribe("/Bread/Ordered")
        def on_ordered(self, event: Event) -> None:
            self.publish(event["topic"], {})
    """
GENERATE = ["nats", "generate", "--ledger", "nats://host/mill"]


@pytest.fixture
def mill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = write_project(tmp_path / "mill", {"pyproject.toml": "", "mill/__init__.py": "", "mill/a.py": AGENTS})
    build_graph(folder / "mill")
    monkeypatch.chdir(folder)
    return folder


def permissions() -> dict[str, list[str]]:
    """User -> what it may publish, without what all agents may."""
    text = Path("nats/accounts.conf").read_text()
    found = {}
    for user, publish in re.findall(
        r'user: "([^"]+)", password: \$\w+\s+permissions: \{\s+publish: \[(.*?)\]', text, re.DOTALL
    ):
        found[user] = [each for each in re.findall(r'"(.+)"', publish) if not each.startswith(("$JS", "_INBOX"))]
    return found


def test_each_agent_may_publish_and_ask_what_its_class_does(mill: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(GENERATE) == 0
    assert permissions() == {
        "mill.outside": ["gb.mill.Bread.Ordered", "gb.mill.Sack.>"],
        "mill.Store": ["gbo.mill.Store"],
        "mill.Baker": [
            "gb.mill.Sack.>",
            "gbo.mill.Baker",
            "gbq.mill.Store.method.look",
            "gbq.mill.Store.topic.Flour.Asked",
        ],
        "mill.Clerk": ["gbo.mill.Clerk"],
        "mill.Scribe": ["gb.mill.Note.Written", "gbo.mill.Scribe"],
    }
    said = capsys.readouterr().err
    assert "Clerk computes its topics, so it may publish none: declare them with @publishes." in said
    assert "Scribe" not in said.replace("SCRIBE", "")
    assert "GRAPHBUS_NATS_MILL_OPERATOR, GRAPHBUS_NATS_MILL_OUTSIDE, GRAPHBUS_NATS_MILL_" in said


def test_a_process_with_several_agents_has_one_user_and_does_not_ask_itself(mill: Path) -> None:
    assert main([*GENERATE, "--agents", "Store,Baker", "--agents", "Clerk,outside"]) == 0
    assert permissions() == {
        "mill.outside": ["gb.mill.Bread.Ordered", "gb.mill.Sack.>"],
        "mill.Store-Baker": ["gb.mill.Sack.>", "gbo.mill.Baker", "gbo.mill.Store"],
        "mill.Clerk-outside": ["gb.mill.Bread.Ordered", "gb.mill.Sack.>", "gbo.mill.Clerk"],
    }


def test_the_file_says_how_to_write_it_again_and_is_checked(mill: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GENERATE, "--agents", "Store"]) == 0
    text = Path("nats/accounts.conf").read_text()
    assert "`graphbus nats generate --ledger nats://HOST/mill --agents Store`" in text
    assert main([*GENERATE, "--agents", "Store", "--check"]) == 0
    assert main([*GENERATE, "--check"]) == 8
    assert main(GENERATE) == 8
    capsys.readouterr()
    assert main([*GENERATE, "--force", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["files"] == {"accounts.conf": "changed"}
    assert document["users"]["mill.Store"] == "GRAPHBUS_NATS_MILL_STORE"


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--agents", "Stor"], 7, "Did you mean 'Store'?"),
        (["--agents", "outside,Store", "--agents", "outside", "--ledger", "natz://x"], 7, "its address is malformed"),
        (["--agents", "Store", "--agents", "Store,outside"], 2, "Store is named twice"),
        (["--agents", " , "], 2, "name at least one agent"),
        (["--ledger", ""], 2, "name a ledger, or leave the option out"),
    ],
)
def test_what_cannot_be_is_refused(
    options: list[str], status: int, said: str, mill: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*GENERATE, *options]) == status
    assert said in capsys.readouterr().err
    assert not Path("nats").exists()


def test_users_do_not_share_a_password(mill: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Shells and secrets know names of variables in capitals only."""
    two = """
        from graphbus_core import Event, GraphBusNode, subscribe

        class AMill(GraphBusNode):
            @subscribe("/Grain")
            def on_grain(self, event: Event) -> None: ...

        class Amill(GraphBusNode):
            @subscribe("/Grain")
            def on_grain(self, event: Event) -> None: ...
        """
    write_project(mill, {"mill/a.py": two})
    build_graph(mill / "mill")
    assert main(GENERATE) == 8
    assert "another one has its variable GRAPHBUS_NATS_MILL_AMILL" in capsys.readouterr().err


def test_the_address_may_be_in_the_settings(mill: Path) -> None:
    write_project(mill, {"pyproject.toml": '[tool.graphbus.runtime]\nledger = "nats://host/bakery"'})
    assert main(["nats", "generate"]) == 0
    assert '"bakery.Store"' in Path("nats/accounts.conf").read_text()


def test_a_server_that_is_not_there_is_one_error(mill: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nats", "deploy", "--ledger", "nats://127.0.0.1:1/mill"]) == 7
    assert "GBE659" in capsys.readouterr().err
