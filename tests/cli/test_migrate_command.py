"""`graphbus migrate` as a user meets it: an upgrade of GraphBus, and artifacts from before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphbus_core import store
from graphbus_core.cli import main
from graphbus_core.model.artifacts import SCHEMA_VERSION, NegotiationsArtifact
from graphbus_core.store.reading import decode_artifact
from tests.fakes.frozen_artifacts import contents, thaw


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shop that the first GraphBus has built."""
    monkeypatch.chdir(tmp_path)
    return thaw("format_1/first_build", tmp_path)


def test_a_run_of_old_artifacts_names_the_way_out_and_runs_after_it(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["run", "--call", "InventoryService.reserve", '{"sku": "mug", "qty": 2}']
    assert main(call) == 6
    assert "GBE503" in (refusal := capsys.readouterr().err)
    assert "graphbus migrate" in refusal
    assert main(["migrate"]) == 0
    capsys.readouterr()
    assert main(call) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"in_stock": 10, "reserved": True}


LETTER = '{"recipient": "Ada", "weight_g": 12}'


@pytest.mark.parametrize(
    ("sample", "work", "told"),
    [
        ("orders", ["--call", "Books.balance", "{}"], '{"revenue":0.0}'),
        ("news", ["--call", "DigestWriter.write_digest", '{"path": "d.md"}'], '{"articles":0,"duplicates":0}'),
        ("negotiated", ["--publish", "/Letter/Sent", LETTER], "[Reader] Ada"),
        ("first_negotiation", ["--publish", "/Letter/Sent", LETTER], "[Reader] Ada"),
    ],
)
def test_each_sample_runs_with_the_sources_that_it_was_frozen_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sample: str, work: list[str], told: str
) -> None:
    thaw(f"format_1/{sample}", tmp_path)
    assert main(["-C", str(tmp_path), "migrate"]) == 0
    assert main(["-C", str(tmp_path), "run", *work]) == 0
    assert told in "".join(capsys.readouterr()).splitlines()


def test_an_artifact_folder_that_is_a_link_is_read_and_not_written_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    folder = thaw("format_1/orders", project)
    assert main(["-C", str(project), "migrate"]) == 0
    elsewhere = tmp_path / "scratch" / "disk"
    elsewhere.parent.mkdir()
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    before = sorted((path, path.stat().st_mtime_ns) for path in elsewhere.rglob("*"))
    call = ["run", "--call", "Books.balance", "{}"]
    assert main(["-C", str(project), *call]) == 7  # it would keep its state there
    assert "the path is or contains a symbolic link" in capsys.readouterr().err
    place = tmp_path / "place.toml"
    place.write_text(f'[runtime]\nstate_dir = "{tmp_path}/state"\n')
    monkeypatch.setenv("GRAPHBUS_CONFIG", str(place))
    assert main(["-C", str(project), *call]) == 0
    assert main(["run", str(folder), *call[1:]]) == 0
    assert capsys.readouterr().out.count('{"revenue":0.0}') == 2
    for command in (["migrate"], ["build", ".", "--force"]):
        assert main(["-C", str(project), *command]) == 6
        assert "the path is or contains a symbolic link. [GBE510]" in capsys.readouterr().err
    assert sorted((path, path.stat().st_mtime_ns) for path in elsewhere.rglob("*")) == before


def test_a_migration_says_what_it_did(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate"]) == 0
    streams = capsys.readouterr()
    assert streams.out.splitlines() == [
        f"✓ Converted .graphbus from format 1 to {SCHEMA_VERSION}: manifest.json",
        "  the agents import 2 files of the project, and no third-party package",
    ]
    assert streams.err == ""
    assert main(["migrate"]) == 0
    assert capsys.readouterr().out == f"✓ .graphbus has format {SCHEMA_VERSION} already: nothing to do.\n"


@pytest.mark.parametrize("option", ["--dry-run", "--diff"])
def test_what_would_change_is_shown_and_nothing_is_written(
    shop: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(shop)
    assert main(["migrate", option]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == f"Would convert .graphbus from format 1 to {SCHEMA_VERSION}: manifest.json"
    shown = {'-  "schema_version": 1,', f'+  "schema_version": {SCHEMA_VERSION},'}
    assert (shown <= set(lines)) == (option == "--diff")
    assert contents(shop) == before


def test_json_tells_all_of_it(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop.parent / "agents" / "orders.py").write_text("import numpy")  # no agent is in it
    assert main(["migrate", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["from"], told["to"], told["changed"], told["dry_run"]) == (1, SCHEMA_VERSION, ["manifest.json"], False)
    assert (sorted(told["imports"]), told["third_party"]) == (["agents/__init__.py", "agents/orders.py"], ["numpy"])
    assert main(["migrate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] == []


def test_a_committed_lock_holds_after_a_migration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lock is of the same commit as the artifacts; sessions and caches are not there, as in a fresh clone."""
    folder = thaw("format_1/negotiated", tmp_path)
    lock = (folder / "negotiation.lock").read_bytes()
    assert main(["-C", str(tmp_path), "migrate"]) == 0
    assert json.loads(lock)["session"]["artifacts"] == store.load_manifest(folder).artifacts
    assert main(["-C", str(tmp_path), "replay", "--verify"]) == 0
    assert "Record, files and artifacts are the same, byte for byte." in capsys.readouterr().out
    assert main(["-C", str(tmp_path), "build", "agents", "--frozen"]) == 0
    assert "The lock covers 3 agents" in capsys.readouterr().out
    assert (folder / "negotiation.lock").read_bytes() == lock
    (tmp_path / "agents" / "sender.py").write_text((tmp_path / "agents" / "sender.py").read_text().replace("12", "13"))
    assert main(["-C", str(tmp_path), "build", "agents", "--frozen"]) != 0


def test_a_build_instead_of_a_migration_keeps_the_last_negotiation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = thaw("format_1/negotiated", tmp_path)
    before = decode_artifact((folder / "negotiations.json").read_bytes(), NegotiationsArtifact, "")
    files = (folder / "modified_files.json").read_bytes()
    assert main(["build", "agents"]) == 0
    assert store.load(folder).negotiations == before
    assert (folder / "modified_files.json").read_bytes() == files
    assert store.load_manifest(folder).schema_version == SCHEMA_VERSION
