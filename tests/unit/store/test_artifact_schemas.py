"""The JSON Schemas in the package are those of the model, and what a build writes fits them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import graphbus_core
from graphbus_core import store
from graphbus_core.model.agent import TopicDefinition
from graphbus_core.model.artifacts import (
    SCHEMA_VERSION,
    AgentsArtifact,
    GraphArtifact,
    Manifest,
    ModifiedFilesArtifact,
    NegotiationsArtifact,
    TopicsArtifact,
)
from graphbus_core.model.proposals import (
    CodeChange,
    CommitRecord,
    Ending,
    FileChange,
    GateReport,
    Negotiations,
    Proposal,
    ProposalEvaluation,
    ProposalRecord,
    RungResult,
)
from graphbus_core.store import BuildArtifacts, writing
from tests.reading import HEAD, read_files

FOLDER = Path(graphbus_core.__file__).parent / "schemas"
NAMES = [*store.ARTIFACTS, store.MANIFEST]


def _schema(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((FOLDER / name.replace(".json", ".schema.json")).read_text())
    return schema


def _full(root: Path) -> BuildArtifacts:
    """Artifacts in which every kind of entry occurs."""
    project = read_files(
        root,
        {
            "agents.py": HEAD
            + """
from typing import Literal, TypedDict
class Item(TypedDict, total=False):
    sku: str
@publishes("/Said", {"a": list[Item], "b": Literal["x", None] | dict[str, float]})
@depends_on("B")
class A(GraphBusNode):
    IS_ARBITER = True
    @schema_method({"x": int}, {"y": tuple[int, str]})
    async def f(self, x: int, *rest, k=1, **more) -> dict:
        self.publish("/Said", {"a": [], **more})
        self.call("B", "g", x=x)
        return {"y": x}
    @subscribe("/Said")
    def on_said(self, event): return event["a"], event.get("b"), self.use(event)
class B(GraphBusNode):
    SUBSCRIBE = ["/**"]
    def handle_event(self, topic, payload): pass
    @subscribe("/Fields")
    def on_fields(self, x: int, y="") : pass
"""
        },
    )
    assert not project.errors
    change = CodeChange(file_path="agents.py", target="A.f", change_type="modify", old_code="a", new_code="b")
    proposal = Proposal(proposal_id="P001", round=0, src="A", intent="align_schema", code_change=change)
    commit = CommitRecord(
        commit_id="C001",
        proposal_id="P001",
        round=0,
        proposer="A",
        evaluators=("B",),
        consensus_type="unanimous",
        files_modified=("agents.py",),
        resolution={"agents.py": "diff"},
    )
    record = ProposalRecord(
        proposal=proposal,
        status="accepted",
        gate=GateReport(proposal_id="P001", passed=True, rungs=(RungResult(rung="G0", status="passed"),)),
        evaluations=(ProposalEvaluation(proposal_id="P001", evaluator="B", round=0, decision="accept"),),
        commit=commit,
    )
    ending = Ending(
        terminated=True, reason="convergence", rounds_executed=2, proposals_made=1, commits_created=1, files_modified=1
    )
    return BuildArtifacts(
        graph=GraphArtifact(
            nodes=project.graph.nodes,
            edges=project.graph.edges,
            activation_order=project.order.order,
            generations=project.order.generations,
            topic_cycles=project.order.topic_cycles,
        ),
        agents=AgentsArtifact(project.definitions),
        topics=TopicsArtifact((*project.graph.topics, TopicDefinition(name="/Outside", is_external=True))),
        negotiations=NegotiationsArtifact(
            Negotiations(session="S001", completed=(commit,), records=(record,), ending=ending)
        ),
        modified_files=ModifiedFilesArtifact(session="S001", files=(FileChange("agents.py", "0", "1", ("P001",)),)),
        manifest=Manifest(
            schema_version=SCHEMA_VERSION,
            graphbus_version="0.1.0",
            project_root="..",
            import_roots=(".",),
            roots=("agents.py",),
            artifacts={},
            sources=dict(project.digests),
            imports={"prices.py": "0"},
            third_party=("requests",),
        ),
    )


def test_the_committed_schemas_are_those_of_the_model() -> None:
    made: dict[str, bytes] = runpy.run_path(str(Path(__file__).parents[3] / "scripts/schemas.py"))["all_schemas"]()
    found = {path.name: path.read_bytes() for path in FOLDER.iterdir()}
    assert {name for name in {*found, *made} if found.get(name) != made.get(name)} == set(), "run scripts/schemas.py"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_fits_its_schema(tmp_path: Path, name: str) -> None:
    folder = tmp_path / ".graphbus"
    writing.save_artifacts(folder, _full(tmp_path))
    jsonschema.validate(json.loads((folder / name).read_bytes()), _schema(name))


def test_artifacts_come_back_as_they_were_written(tmp_path: Path) -> None:
    written = _full(tmp_path)
    manifest = writing.save_artifacts(tmp_path / ".graphbus", written)
    read = store.load(tmp_path / ".graphbus")
    assert read.manifest == manifest
    assert (read.graph, read.agents, read.topics) == (written.graph, written.agents, written.topics)
    assert (read.negotiations, read.modified_files) == (written.negotiations, written.modified_files)


def test_equal_artifacts_are_equal_bytes_without_paths_times_or_source(tmp_path: Path) -> None:
    found = []
    for name in ("one", "another place"):
        root = tmp_path / name
        writing.save_artifacts(root / ".graphbus", _full(root))
        found.append({path.name: path.read_bytes() for path in (root / ".graphbus").iterdir()})
    assert found[0] == found[1]
    assert all(str(tmp_path).encode() not in data for data in found[0].values())
    assert b"self.publish" not in found[0]["agents.json"]
    assert found[0]["graph.json"].endswith(b"}\n")
    assert json.loads(found[0]["graph.json"]) == dict(sorted(json.loads(found[0]["graph.json"]).items()))
