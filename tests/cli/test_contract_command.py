"""`graphbus contract`: what it shows of edges and changes, in which form, with which exit status."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from graphbus_core.cli import main
from tests.project_files import write_project

Write = Callable[[Mapping[str, str | bytes]], Path]
GOLDEN = Path(__file__).parents[1] / "golden" / "contracts"
"""`GRAPHBUS_RENEW=1 pytest tests/cli/test_contract_command.py` writes them again; read the difference."""

STOCK = """
from graphbus_core import GraphBusNode, schema_method


class Stock(GraphBusNode):
    @schema_method({"sku": str, "qty": int}, {"left": int})
    def take(self, sku: str, qty: int) -> dict[str, int]:
        self.publish("/Stock/Changed", {"sku": sku, "left": 3})
        return {"left": 3}
"""
SHOP = """
from graphbus_core import GraphBusNode, depends_on, subscribe


@depends_on("Stock")
class Shop(GraphBusNode):
    @subscribe("/Order/Placed")
    def on_order(self, sku: str) -> None:
        self.call("Stock", "take", sku=sku, qty=1)

    @subscribe("/Stock/Changed")
    def on_change(self, event) -> None:
        self.log(event["left"])
"""
PYPROJECT = """
[project]
name = "shop"
version = "1.4.2"

[tool.graphbus]
external_topics = ["/Order/*"]
"""
FILES = {"agents/stock.py": STOCK, "agents/shop.py": SHOP, "pyproject.toml": PYPROJECT}
RENAMED = STOCK.replace('"left"', '"rest"')


def git(*arguments: str) -> None:
    person = ("-c", "user.name=A Person", "-c", "user.email=person@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *person, *arguments], check=True, capture_output=True)


@pytest.fixture
def shop(project: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = project(FILES)
    monkeypatch.chdir(root)
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-q", "-m", "The shop")
    return root


def assert_golden(name: str, shown: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("GRAPHBUS_RENEW"):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


def change(shop: Path, text: str = RENAMED, path: str = "agents/stock.py") -> None:
    (shop / path).write_text(text.removeprefix("\n"), encoding="utf-8")


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


# --- edges ------------------------------------------------------------------------------------


def test_each_edge_is_shown_with_its_verdict(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contract", "agents/"]) == 0
    assert_golden("edges", capsys.readouterr().out)


def test_what_cannot_be_known_is_said_and_is_no_fault(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(shop, STOCK.replace('{"sku": sku, "left": 3}', "make(sku)"))
    assert main(["contract", "agents/", "--json"]) == 0
    found = document(capsys)
    assert found["summary"] == {"proven": 4, "unknown": 1, "broken": 0}
    edges = found["edges"]
    assert isinstance(edges, list)
    (edge,) = [each for each in edges if each["verdict"] == "unknown"]
    assert (edge["topic"], edge["unknown"]) == ("/Stock/Changed", "what Stock publishes is not known")


def test_what_cannot_be_known_is_shown_alone_and_all_edges_are_counted(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(shop, STOCK.replace('{"sku": sku, "left": 3}', "make(sku)"))
    assert main(["contract", "agents/", "--unknown"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line[0] for line in shown if line] == ["?", "✓"]
    assert shown[-1] == "✓ 5 edges: 4 proven, 1 unknown."
    change(shop, STOCK.replace('"qty": int}', '"qty": int, "more": int}'))
    assert main(["contract", "agents/", "--unknown"]) == 3
    assert capsys.readouterr().out.startswith("✗ 5 edges: ")


def test_artifacts_whose_sources_are_not_as_they_were_are_not_validated(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["build", "agents/"])
    change(shop)
    capsys.readouterr()
    assert main(["contract", ".graphbus"]) == 6
    assert "agents/stock.py" in (said := capsys.readouterr().err)
    assert "GBE508" in said


def test_a_file_that_cannot_be_read_is_shown_and_fails(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(shop, "def (")
    assert main(["contract", "agents/"]) == 3
    assert "agents/stock.py:1" in capsys.readouterr().err


# --- the first word ---------------------------------------------------------------------------


def test_the_first_word_may_be_a_subcommand_and_a_path_may_be_called_alike(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "agents").rename(shop / "diff")
    assert main(["contract", "./diff"]) == 0
    assert "diff/stock.py" in capsys.readouterr().out
    assert main(["contract", "diff", "HEAD", "HEAD"]) == 0
    assert "No contract has changed" in capsys.readouterr().out


# --- two states -------------------------------------------------------------------------------


FORMS = ("text", "json", "github", "markdown")


def assert_forms(name: str, command: list[str], shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout[:7]
    for form in FORMS:
        assert main(["contract", *command, "--format", form]) == 3
        shown = capsys.readouterr().out.replace(commit, "0123456").replace(str(shop), "/shop")
        assert_golden(f"{name}.{form}", shown)


def test_a_revision_and_artifacts_of_it_are_the_same(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "agents/"]) == 0
    capsys.readouterr()
    for pair in (["HEAD", ".graphbus"], [".graphbus", "agents/"], ["rev:main", "agents"], ["agents/", "HEAD"]):
        assert main(["contract", "diff", *pair]) == 0
        assert "No contract has changed" in capsys.readouterr().out


def test_a_folder_that_exists_comes_before_a_revision(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "main").mkdir()
    (shop / "main" / "stock.py").write_text(RENAMED, encoding="utf-8")
    assert main(["contract", "diff", "rev:main", "--path", "agents"]) == 0
    capsys.readouterr()
    assert main(["contract", "diff", "main", "agents"]) == 3
    assert capsys.readouterr().out.startswith("main → agents")


def test_what_is_broken_is_announced_by_a_version_that_was_raised_far_enough(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(shop)
    command = ["contract", "diff", "HEAD", "--allow-announced"]
    assert main(command) == 3
    assert (
        "If the change is intended, raise `version` in pyproject.toml from 1.4.2 to at least 2.0.0."
        in capsys.readouterr().out
    )
    assert main([*command, "--format", "github"]) == 3
    told = capsys.readouterr().out
    assert "::error file=agents/stock.py" in told
    assert "::notice title=If the change is intended::" in told
    change(shop, PYPROJECT.replace("1.4.2", "1.5.0"), "pyproject.toml")
    assert main(command) == 3
    change(shop, PYPROJECT.replace("1.4.2", "2.0.0"), "pyproject.toml")
    capsys.readouterr()
    assert main(command) == 0
    assert "; 2.0.0 is enough." in capsys.readouterr().out
    assert main([*command, "--format", "github"]) == 0
    assert "::error" not in capsys.readouterr().out, "what is allowed is no error"
    assert main(["contract", "diff", "HEAD"]) == 3, "nobody has asked to allow it"


def test_events_on_their_way_are_compared_both_ways(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The handler was changed together with its publisher: only events that are on their way do not fit."""
    (shop / "agents/shop.py").write_text(SHOP.replace('event["left"]', 'event["rest"]'))
    (shop / "agents/stock.py").write_text(STOCK.replace('{"sku": sku, "left": 3}', '{"sku": sku, "rest": 3}'))
    assert main(["contract", "diff", "main"]) == 0
    capsys.readouterr()
    assert main(["contract", "diff", "main", "--both-ways"]) == 3
    said = capsys.readouterr().out
    assert "The new Shop.on_change needs 'rest', which the old Stock does not send" in said
    assert "The old Shop.on_change needs 'left', which the new Stock does not send" in said
    assert main(["contract", "diff", "main", "--both-ways", "--allow-breaking"]) == 0
    capsys.readouterr()
    assert main(["contract", "diff", "main", "--both-ways", "--json"]) == 3
    [edge] = (each for each in json.loads(capsys.readouterr().out)["both_ways"]["edges"] if each["verdict"] == "breaks")
    assert [(each["field"], each["ways"]) for each in edge["problems"]] == [
        ("rest", ["forward", "queued"]),
        ("left", ["back", "rollback"]),
    ]
    assert edge["answers"] == dict.fromkeys(("forward", "back", "queued", "rollback"), "breaks")
    assert edge["order"] == "two steps"
    assert main(["contract", "diff", "main", "--both-ways", "--format", "github"]) == 3
    assert "title=Event broken%3A Stock → /Stock/Changed → Shop.on_change::" in capsys.readouterr().out


def test_code_scanning_gets_what_breaks_as_two_rules(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "agents/shop.py").write_text(SHOP.replace('event["left"]', 'event["rest"]'))
    (shop / "agents/stock.py").write_text(RENAMED)
    assert main(["contract", "diff", "main", "--both-ways", "--format", "sarif"]) == 3
    [run] = json.loads(capsys.readouterr().out)["runs"]
    found = {result["ruleId"]: result for result in run["results"]}
    assert set(found) == {"contract-breaks", "message-breaks"}
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == sorted(found)
    assert found["contract-breaks"]["message"]["text"].startswith(
        "Contract broken: Stock.take: output left is no longer there"
    )
    assert "Two steps: let Shop accept both and deploy it" in found["message-breaks"]["message"]["text"]
    assert len({result["partialFingerprints"]["finding/v1"] for result in run["results"]}) == len(run["results"])


def test_a_raised_version_excuses_a_broken_contract_and_no_lost_message(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "agents/shop.py").write_text(SHOP.replace('event["left"]', 'event["rest"]'))
    (shop / "agents/stock.py").write_text(RENAMED)
    (shop / "pyproject.toml").write_text(PYPROJECT.replace("1.4.2", "2.0.0"))
    assert main(["contract", "diff", "main", "--allow-announced"]) == 0
    assert main(["contract", "diff", "main", "--allow-announced", "--both-ways"]) == 3
    assert main(["contract", "diff", "main", "--allow-breaking", "--both-ways"]) == 0
    capsys.readouterr()


def test_a_handler_that_gets_another_name_leaves_the_events_of_the_old_one_behind(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "agents/shop.py").write_text(SHOP.replace("on_change", "on_changed"))
    assert main(["contract", "diff", "main", "--both-ways"]) == 3
    said = capsys.readouterr().out
    assert "The new build has no handler Shop.on_change for /Stock/Changed, so events for it stay parked" in said
    assert "Shop.on_changed does not get them" in said


def test_a_handler_that_only_the_new_build_has_breaks_nothing(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = '\n    @subscribe("/Stock/Changed")\n    def on_more(self, event: Event) -> None:\n        print(event["left"])\n'
    (shop / "agents/shop.py").write_text(SHOP + more)
    assert main(["contract", "diff", "main", "--both-ways"]) == 0
    assert "The old build has no handler Shop.on_more" in capsys.readouterr().out


def test_github_gets_contracts_with_paths_from_the_top_of_the_repository(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(shop / "services" / "desk", FILES)
    git("add", "-A")
    git("commit", "-q", "-m", "One more")
    monkeypatch.chdir(shop / "services" / "desk")
    change(shop / "services" / "desk")
    assert main(["contract", "agents", "--against", "HEAD", "--format", "github"]) == 3
    told = capsys.readouterr().out
    assert "::error file=services/desk/agents/stock.py,line=" in told
    assert "::warning file=services/desk/agents/shop.py,line=" in told
    assert "%0Aservices/desk/agents/shop.py:" in told


REFUSED = {
    "no such revision": (["contract", "diff", "nowhere"], 2, "GBE171", "the repository has no such commit"),
    "no folder and no revision": (["contract", "diff", "-x"], 2, "GBE110", "no option"),
    "no artifacts": (["contract", "empty"], 8, "GBE746", "neither agents nor artifacts"),
    "no agents": (["contract", "diff", "HEAD", "empty"], 8, "GBE746", "neither agents nor artifacts"),
    "two forms": (["contract", "--json", "--format", "github"], 2, "GBE110", "contradict"),
    "nothing to compare with": (["contract", "--allow-breaking"], 2, "GBE110", "pass --against REV"),
    "an empty variable as revision": (["contract", "--against", ""], 2, "GBE110", "--against is empty"),
    "an empty variable as old state": (["contract", "diff", ""], 2, "GBE110", "OLD is empty"),
    "a broken file in a revision": (["contract", "diff", "broken"], 8, "GBE745", "agents/torn.py:1:"),
    "broken settings in a revision": (["contract", "diff", "unset"], 8, "GBE745", ": pyproject.toml:"),
    "no version": (["contract", "diff", "HEAD", "--current", "one"], 2, "GBE170", "'one' is not a valid version"),
    "damaged artifacts": (["contract", "damaged"], 6, "GBE5", ""),
    "half of a build": (["contract", "half"], 6, "GBE501", "manifest.json is missing"),
    "half of a build as a state": (["contract", "diff", "HEAD", "half"], 6, "GBE501", "manifest.json is missing"),
}


def _commit_as(tag: str, path: Path, text: str) -> None:
    """Make a commit in which the file has this text, tag it, and go back to the commit before."""
    path.write_text(text, encoding="utf-8")
    git("add", "-A")
    git("commit", "-q", "-m", tag)
    git("tag", tag)
    git("reset", "-q", "--hard", "HEAD~1")


def test_what_cannot_be_done_is_refused(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _commit_as("broken", shop / "agents" / "torn.py", "def (")
    _commit_as("unset", shop / "pyproject.toml", "[project")
    (shop / "empty").mkdir()
    (shop / "damaged").mkdir()
    (shop / "half").mkdir()
    (shop / "half" / "agents.json").write_text("{}", encoding="utf-8")
    (shop / "damaged" / "manifest.json").write_text('{"schema_version": 99}', encoding="utf-8")
    for case, (arguments, status, code, sentence) in REFUSED.items():
        assert main(arguments) == status, case
        streams = capsys.readouterr()
        assert streams.out == "" or "--json" in arguments
        assert code in streams.err
        assert sentence in streams.err


EVERYTHING = """
from typing import Literal, NotRequired

from graphbus_core import GraphBusNode, schema_method


class Stock(GraphBusNode):
    @schema_method({"sku": str, "qty": Literal[1, 2], "note": NotRequired[str]}, {"left": int})
    def take(self, sku: str, qty: int, note: str = "") -> dict[str, int]:
        self.publish("/Stock/Changed", {"sku": sku, "rest": 3})
        return {"rest": 3}

    @schema_method({"sku": Unknown}, make())
    def look(self, sku): ...
"""


def test_edges_and_changes_of_a_pull_request_are_told_in_every_form(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(shop, EVERYTHING)
    change(shop, SHOP.replace('event["left"]', 'event["rest"]'), "agents/shop.py")
    assert_forms("pull_request", ["agents/", "--against", "main", "--check-version"], shop, capsys)


# --- pull requests ----------------------------------------------------------------------------


def test_against_a_branch_compares_with_where_head_has_left_it(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git("switch", "-q", "-c", "change")
    change(
        shop,
        STOCK.replace('{"left": int}', '{"left": int, "note": str}').replace(
            '"left": 3}\n', '"left": 3, "note": ""}\n'
        ),
    )
    git("commit", "-qam", "A note")
    git("switch", "-q", "main")
    change(shop, STOCK.replace("take", "fetch"))
    git("commit", "-qam", "What others do meanwhile is not ours")
    git("switch", "-q", "change")
    assert main(["contract", "agents/", "--against", "main"]) == 0
    shown = capsys.readouterr().out
    assert "where HEAD left main" in shown
    assert "Stock.take: output note is new" in shown
    assert "fetch" not in shown


def test_a_version_that_is_too_low_fails_only_when_it_is_asked_for(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(shop)
    change(shop, SHOP.replace('"left"', '"rest"'), "agents/shop.py")
    arguments = ["contract", "agents/", "--against", "main", "--allow-breaking"]
    assert main(arguments) == 0
    assert main([*arguments, "--check-version"]) == 3
    assert "The version in pyproject.toml is 1.4.2; it must be at least 2.0.0." in capsys.readouterr().out
    change(shop, PYPROJECT.replace("1.4.2", "2.0.0"), "pyproject.toml")
    assert main([*arguments, "--check-version"]) == 0
    assert "1.4.2 → 2.0.0" in capsys.readouterr().out


def test_what_comes_from_sources_cannot_become_markup(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(shop, STOCK.replace('"left"', '"<img src=x>|```"'))
    assert main(["contract", "diff", "HEAD", "--format", "markdown"]) == 3
    head, _, fence, *text, last = capsys.readouterr().out.splitlines()
    assert (head, fence, last) == ("### Contracts", "````text", "````")
    assert "<img src=x>|```" in "".join(text)
    assert "````" not in "".join(text)


def test_nothing_is_written_and_nothing_is_run(shop: Path) -> None:
    change(shop, "raise SystemExit('it was run')\n" + STOCK)
    before = sorted(path for path in shop.rglob("*") if ".git" not in path.parts)
    main(["contract", "diff", "HEAD"])
    after = sorted(path for path in shop.rglob("*") if not {".git", ".graphbus"} & {*path.parts})
    assert after == before
