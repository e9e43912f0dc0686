"""The stages of seed 001: their names, their order, and what a static build makes of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import networkx as nx
import pytest

from graphbus_core import build, build_graph
from graphbus_core.build import BUILD, STATIC, AppliedChanges, BuildResult, Recovery, run_build_pipeline
from graphbus_core.bus import MessageBus
from graphbus_core.compiler.project import Project as SourceProject
from graphbus_core.editing.journal import COMMITTING
from graphbus_core.editing.promotion import promote
from graphbus_core.editing.workspace import Workspace
from graphbus_core.errors import BuildError, EditError, NegotiationError, SeveralErrors
from graphbus_core.model.config import BuildConfig, ResolvedBuild, Settings
from graphbus_core.model.messages import Event
from graphbus_core.model.proposals import Ending, GateReport, Negotiations, RungResult
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.transcript import load_session, record_application
from tests.conftest import Project

STAGES = (
    "LOAD_BUILD_CONFIG",
    "DISCOVER_MODULES",
    "DISCOVER_CLASSES",
    "READ_SOURCE_CODE",
    "EXTRACT_AGENT_METADATA",
    "BUILD_AGENT_GRAPH",
    "COMPUTE_TOPOLOGICAL_ORDER",
    "INIT_NEGOTIATION_ENGINE",
    "ACTIVATE_AGENTS",
    "AGENT_ANALYSIS_PHASE",
    "DETECT_SCHEMA_CONFLICTS",
    "MULTI_ROUND_NEGOTIATION_LOOP",
    "APPLY_CODE_CHANGES",
    "EMIT_BUILD_ARTIFACTS",
    "BUILD_COMPLETE",
)
ARTIFACTS = ("agents.json", "graph.json", "manifest.json", "modified_files.json", "negotiations.json", "topics.json")
AGENTS = {
    "pyproject.toml": "[tool.graphbus]\n",
    "agents/__init__.py": "",
    "agents/stock.py": """
        from graphbus_core import GraphBusNode

        class Stock(GraphBusNode):
            def count(self) -> None:
                self.publish("/Stock/Counted", {"sku": "mug", "left": 3})
        """,
    "agents/report.py": """
        from graphbus_core import GraphBusNode, depends_on, subscribe

        @depends_on("Stock")
        class Report(GraphBusNode):
            @subscribe("/Stock/Counted")
            def on_counted(self, event):
                self.log(event["sku"])
        """,
}


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = project(AGENTS)
    monkeypatch.chdir(root)
    return root


def snapshot(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def artifacts_of(root: Path) -> dict[str, bytes]:
    return {name: (root / ".graphbus" / name).read_bytes() for name in ARTIFACTS}


def test_the_stages_are_those_of_the_seed() -> None:
    assert BUILD.names == STAGES
    assert tuple(nx.topological_sort(build.BUILD_PIPELINE)) == STAGES


def test_a_build_has_no_other_graphs_to_show() -> None:
    with pytest.raises(AttributeError, match="RUNTIME_PIPELINE"):
        _ = build.RUNTIME_PIPELINE


def test_both_pipelines_fit_together_before_anything_runs() -> None:
    BUILD.check(BuildConfig, Recovery, MessageBus, Backend)
    STATIC.check(BuildConfig, Recovery, AppliedChanges)


def test_a_static_build_tells_its_stages_by_their_numbers_in_the_seed(shop: Path) -> None:
    heard: list[tuple[int, str]] = []
    bus = MessageBus()

    def listen(event: Event) -> None:
        heard.append((event["number"], event["stage"]))

    bus.subscribe("/Build/Stage", listen)
    run_build_pipeline(BuildConfig(paths=("agents",)), bus=bus)
    left_out = ("ACTIVATE_AGENTS", "MULTI_ROUND_NEGOTIATION_LOOP", "APPLY_CODE_CHANGES")
    assert heard == [(number, name) for number, name in enumerate(STAGES, start=1) if name not in left_out]


def test_a_static_build_writes_every_artifact_and_nothing_else_but_its_cache(shop: Path) -> None:
    before = snapshot(shop)
    result = build_graph("agents")
    written = set(snapshot(shop)) - set(before)
    assert {name for name in written if "/cache/" not in name} == {
        f".graphbus/{name}" for name in (".gitignore", *ARTIFACTS)
    }
    assert {path: data for path, data in snapshot(shop).items() if path in before} == before
    assert result.artifacts.graph.activation_order == ("Stock", "Report")
    assert result.artifacts.manifest is not None
    assert set(result.artifacts.manifest.sources) == {"agents/report.py", "agents/stock.py"}


def test_the_same_sources_give_the_same_bytes_anywhere(project: Project, tmp_path: Path) -> None:
    built: list[dict[str, bytes]] = []
    for name in ("here", "elsewhere/deep"):
        root = project({f"{name}/{path}": text for path, text in AGENTS.items()}) / name
        run_build_pipeline(BuildConfig(paths=(str(root / "agents"),)))
        built.append(artifacts_of(root))
    assert built[0] == built[1]


def test_a_second_build_of_the_same_sources_does_no_work(shop: Path) -> None:
    first = build_graph("agents")
    before = {path: os.stat(shop / ".graphbus" / path).st_mtime_ns for path in ARTIFACTS}
    second = build_graph("agents")
    assert (first.is_unchanged, second.is_unchanged) == (False, True)
    assert second.artifacts.graph == first.artifacts.graph
    assert second.findings == first.findings
    assert {path: os.stat(shop / ".graphbus" / path).st_mtime_ns for path in ARTIFACTS} == before


def edit_a_body(root: Path) -> None:
    path = root / "agents/stock.py"
    path.write_text(path.read_text().replace('"left": 3', '"left": 4'))


def add_an_agent(root: Path) -> None:
    (root / "agents/new.py").write_text("from graphbus_core import GraphBusNode\nclass New(GraphBusNode):\n    pass\n")


def remove_an_agent(root: Path) -> None:
    (root / "agents/report.py").unlink()


def change_the_settings(root: Path) -> None:
    (root / "pyproject.toml").write_text('[tool.graphbus]\nexternal_topics = ["/Outside"]\n')


def edit_an_artifact(root: Path) -> None:
    (root / ".graphbus/topics.json").write_text("{}")


def lose_an_artifact(root: Path) -> None:
    (root / ".graphbus/graph.json").unlink()


@pytest.mark.parametrize(
    "happens", [edit_a_body, add_an_agent, remove_an_agent, change_the_settings, edit_an_artifact, lose_an_artifact]
)
def test_whatever_changes_is_noticed(shop: Path, happens: object) -> None:
    build_graph("agents")
    assert callable(happens)
    happens(shop)
    again = build_graph("agents")
    assert not again.is_unchanged
    assert build_graph("agents").is_unchanged


def test_a_forced_build_works_although_nothing_has_changed(shop: Path) -> None:
    build_graph("agents")
    assert not run_build_pipeline(BuildConfig(paths=("agents",), force=True)).is_unchanged


def test_other_paths_are_another_build(shop: Path) -> None:
    build_graph("agents")
    (shop / "agents/report.py").write_text("")
    assert build_graph("agents/stock.py").artifacts.graph.nodes == ("Stock",)


def test_a_dry_static_build_writes_nothing_at_all(shop: Path) -> None:
    before = snapshot(shop)
    result = build_graph("agents", dry_run=True)
    assert result.was_dry_run
    assert result.artifacts.graph.nodes == ("Report", "Stock")
    assert snapshot(shop) == before


def test_everything_that_is_wrong_is_told_at_once(shop: Path) -> None:
    (shop / "agents/broken.py").write_text("class Broken(GraphBusNode:\n")
    (shop / "agents/latin.py").write_bytes(b"class Latin(GraphBusNode):\n    x = '\xe9'\n")
    (shop / "agents/lost.py").write_text(
        "from graphbus_core import GraphBusNode, depends_on\n@depends_on('Stok')\nclass Lost(GraphBusNode):\n    pass\n"
    )
    with pytest.raises(SeveralErrors) as caught:
        build_graph("agents")
    assert [(error.code, str(error.where)) for error in caught.value.errors] == [
        ("GBE201", "agents/broken.py:1:26"),
        ("GBE202", "agents/latin.py:2"),
        ("GBE211", "agents/lost.py:2:13"),
    ]
    assert not (shop / ".graphbus/manifest.json").exists()


def test_a_folder_without_an_agent_is_refused(shop: Path) -> None:
    (shop / "empty").mkdir()
    with pytest.raises(BuildError) as caught:
        build_graph("empty")
    assert caught.value.code == "GBE213"


def test_a_working_folder_without_an_agent_is_not_called_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BuildError, match=r"No agent was found in this folder\."):
        build_graph(".")


def test_the_last_negotiation_stays_in_the_artifacts_of_a_static_build(shop: Path) -> None:
    run_build_pipeline(BuildConfig(paths=("agents",), enable_agents=True))
    negotiated = json.loads((shop / ".graphbus/negotiations.json").read_text())
    assert negotiated["last"]["session"] == "S001"
    edit_a_body(shop)
    build_graph("agents")
    assert json.loads((shop / ".graphbus/negotiations.json").read_text()) == negotiated


def test_changes_that_fail_the_gate_together_are_not_written(shop: Path) -> None:
    config = ResolvedBuild(root=str(shop), paths=(str(shop / "agents"),), settings=Settings())
    ending = Ending(
        terminated=True, reason="convergence", rounds_executed=1, proposals_made=1, commits_created=1, files_modified=1
    )
    refused = GateReport(
        proposal_id="",
        passed=False,
        rungs=(RungResult(rung="G6", status="failed", code="G6.failed", message="test_a fails"),),
    )
    negotiations = Negotiations(session="S001", completed=(), records=(), ending=ending)
    workspace = Workspace(SourceProject.read(config))
    before = snapshot(shop)
    with pytest.raises(NegotiationError, match=r"G6\.failed: test_a fails"):
        build.apply_code_changes(config, build.Agreement(negotiations, workspace, refused))
    assert snapshot(shop) == before


MISSPELT = 'self.log(event["skuu"])'


def misspell(root: Path) -> None:
    """Give the agents something to agree on."""
    path = root / "agents/report.py"
    path.write_text(path.read_text().replace('self.log(event["sku"])', MISSPELT))


@pytest.mark.slow
def test_the_record_of_a_session_says_that_its_changes_were_written(shop: Path) -> None:
    misspell(shop)
    result = run_build_pipeline(BuildConfig(paths=("agents",), enable_agents=True))
    assert [change.path for change in result.applied] == ["agents/report.py"]
    record = load_session(shop / ".graphbus")
    assert (record.is_applied, record.refusal) == (True, "")


@pytest.mark.slow
def test_a_session_without_an_accepted_change_has_written_none(shop: Path) -> None:
    run_build_pipeline(BuildConfig(paths=("agents",), enable_agents=True))
    record = load_session(shop / ".graphbus")
    assert (record.is_applied, record.refusal) == (False, "")


@pytest.mark.slow
def test_the_record_of_a_session_that_could_not_be_written_says_why_and_no_artifact_names_it(shop: Path) -> None:
    misspell(shop)
    build_graph("agents")
    bus = MessageBus()

    def edit_meanwhile(_event: Event) -> None:
        path = shop / "agents/report.py"
        path.write_text(path.read_text() + "# mine\n")

    bus.subscribe("/Negotiation/Finished", edit_meanwhile)
    with pytest.raises(EditError) as caught:
        run_build_pipeline(BuildConfig(paths=("agents",), enable_agents=True), bus=bus)
    assert caught.value.code == "GBE320"
    record = load_session(shop / ".graphbus")
    assert not record.is_applied
    assert record.refusal == f"{caught.value.sentence} [GBE320]"
    assert [one.status for one in record.negotiations.records] == ["accepted"]
    assert MISSPELT in (shop / "agents/report.py").read_text()
    assert json.loads((shop / ".graphbus/negotiations.json").read_text()) == {"last": None}


@pytest.mark.slow
def test_the_record_of_a_session_whose_changes_fail_the_gate_together_says_so(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    misspell(shop)
    failed = RungResult(rung="G6", status="failed", code="G6.tests", message="test_a fails")
    report = GateReport(proposal_id="", passed=False, rungs=(failed,))
    monkeypatch.setattr("graphbus_core.editing.gate.Gate.check_tree", lambda *_: report)
    with pytest.raises(NegotiationError):
        run_build_pipeline(BuildConfig(paths=("agents",), enable_agents=True))
    record = load_session(shop / ".graphbus")
    assert not record.is_applied
    assert "do not pass the gate, so none of them was written: G6.tests: test_a fails" in record.refusal


def interrupted_promotion(root: Path) -> None:
    """A journal as kill -9 leaves it: every file is new, and nobody has said so yet."""
    path = root / "agents/report.py"
    old, new = path.read_bytes(), path.read_bytes() + b"# new\n"
    config = ResolvedBuild(root=str(root), paths=())
    promote(config, {"agents/report.py": (old, new)}, "S001")
    folder = root / ".graphbus/journal/0001-S001"
    folder.rename(folder.with_name(folder.name + COMMITTING))


@pytest.mark.parametrize("enable_agents", [False, True])
def test_an_interrupted_promotion_that_a_build_ends_is_told_once(shop: Path, enable_agents: bool) -> None:
    interrupted_promotion(shop)
    told: list[str] = []
    request = BuildConfig(paths=("agents",), enable_agents=enable_agents)
    run_build_pipeline(request, on_recovered=told.append)
    assert told == ["An interrupted promote of S001 was completed."]


def test_the_record_of_a_session_whose_promotion_is_completed_later_says_that_it_was_written(shop: Path) -> None:
    misspell(shop)
    run_build_pipeline(BuildConfig(paths=("agents",), enable_agents=True))
    record_application(shop / ".graphbus", "S001")
    folder = shop / ".graphbus/journal/0001-S001"
    folder.rename(folder.with_name(folder.name + COMMITTING))
    assert not load_session(shop / ".graphbus").is_applied
    build_graph("agents")
    assert load_session(shop / ".graphbus").is_applied


def test_a_result_names_what_the_rules_still_find(shop: Path) -> None:
    path = shop / "agents/report.py"
    path.write_text(path.read_text().replace('event["sku"]', 'event["skuu"]'))
    result = build_graph("agents")
    assert isinstance(result, BuildResult)
    assert [finding.code for finding in result.findings] == ["GB003"]
