"""Build Mode: fifteen stages from source files to artifacts, with or without agents. Source: seed 001, chapter 1.

     1-7   configuration, modules, classes, sources, definitions, graph, order     settings, compiler/
     8-12  engine, agents, analysis, conflicts, rounds of negotiation              negotiation/, editing/gate.py
    13-15  promotion to the source files, artifacts, done                          editing/promotion.py, store/

A static build leaves out the stages that need agents. No stage imports or runs the code of the project; only the gate does, in a
child process.

Each stage imports its modules when it runs, so that a build in which nothing has changed starts fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from graphbus_core import settings, store
from graphbus_core.compiler import memory
from graphbus_core.compiler.memory import BuildResult, GraphCounts
from graphbus_core.errors import GraphBusError, raise_all
from graphbus_core.model.config import BuildConfig, LLMConfig, ResolvedBuild, SafetyConfig
from graphbus_core.pipeline import Pipeline, PipelineFinished
from graphbus_core.store import BuildArtifacts, writing

if TYPE_CHECKING:
    import networkx as nx

    from graphbus_core.bus import MessageBus
    from graphbus_core.compiler.discover import ModuleIndex
    from graphbus_core.compiler.graph import ActivationOrder, AgentGraph
    from graphbus_core.compiler.project import Project
    from graphbus_core.compiler.stages import AgentDefinitions, NodeClasses, SchemaConflicts, Sources
    from graphbus_core.editing.workspace import Workspace
    from graphbus_core.model.messages import Event
    from graphbus_core.model.proposals import FileChange, GateReport, Negotiations, RungResult
    from graphbus_core.negotiation.agents import ActiveAgents, Analyses
    from graphbus_core.negotiation.backend import Backend
    from graphbus_core.negotiation.driver import NegotiationSession

__all__ = [
    "BUILD",
    "STATIC",
    "Agreement",
    "AppliedChanges",
    "BuildConfig",
    "BuildResult",
    "LLMConfig",
    "SafetyConfig",
    "build_graph",
    "main",
    "run_build_pipeline",
]

BUILD = Pipeline("BUILD")
JOURNAL = "journal"
"""The name of the journal in the artifact folder; it exists while a promotion or undo is going on or was interrupted."""


class Recovery(NamedTuple):
    """Holds the function `tell`, to call with a sentence for each interrupted promotion or undo that was ended."""

    tell: Callable[[str], object]


class Agreement(NamedTuple):
    """The result of a negotiation: its records, the workspace with all accepted changes, and the gate's report on them."""

    negotiations: Negotiations
    workspace: Workspace
    report: GateReport | None


class AppliedChanges(msgspec.Struct, frozen=True):
    """The changes of source files by a negotiation. The default values stand for a static build.

    Attributes:
        negotiations: The records of the session; None for a static build.
        files: The files that were written; empty in a dry run.
        diffs: Path -> unified diff of each change; in a dry run of the changes that would be written.
        project: The project with the changes; None for a static build.
    """

    negotiations: Negotiations | None = None
    files: tuple[FileChange, ...] = ()
    diffs: Mapping[str, str] = {}
    project: Project | None = None


def end_interrupted(config: ResolvedBuild, *, writes_sources: bool) -> tuple[str, ...]:
    """Complete or reverse a promotion or undo that was interrupted; return a sentence about each.

    This is `negotiation.apply.end_interrupted`, which is imported only if there is a journal.

    Args:
        writes_sources: Whether this build may change source files.
    """
    if not os.path.lexists(os.path.join(config.artifacts_dir, JOURNAL)):
        return ()
    from graphbus_core.negotiation import apply

    return apply.end_interrupted(config, writes_sources=writes_sources)


# --- 1-7: from a request to a graph ---------------------------------------------------------


@BUILD.stage("LOAD_BUILD_CONFIG")
def load_build_config(request: BuildConfig, recovery: Recovery) -> ResolvedBuild:
    """Combine the request with `[tool.graphbus]`, and complete or reverse interrupted promotions.

    Raises:
        UsageError: Options of the request contradict each other, or the settings are wrong.
        NegotiationError: The session to resume cannot be resumed.
        EditError: An interrupted promotion can be neither completed nor reversed.
        BuildError: The build is frozen, and an agent has not settled on its present inputs.
    """
    if request.enable_agents:
        from graphbus_core.negotiation.backend import settle_limits
        from graphbus_core.negotiation.sessions import complete_request

        request = complete_request(request)
    config = settings.resolve_build(request)
    if request.enable_agents:
        config = settle_limits(config)
    for sentence in end_interrupted(config, writes_sources=config.enable_agents and not config.dry_run):
        recovery.tell(sentence)
    if not config.is_frozen:
        return config
    from graphbus_core.negotiation.lock import check_frozen

    return msgspec.structs.replace(config, locked=check_frozen(config))


@BUILD.stage("DISCOVER_MODULES")
def discover_modules(config: ResolvedBuild) -> ModuleIndex:
    """Find the source files and their module names.

    Raises:
        PipelineFinished: Nothing has changed since the last static build.
    """
    if not (config.enable_agents or config.force or config.dry_run):
        last = memory.recall_build(config)
        if last:
            raise PipelineFinished(
                BuildResult(config, last.tally, findings=last.findings, is_unchanged=True, locked=config.locked)
            )
    from graphbus_core.compiler import discover

    return discover.discover_modules(config)


@BUILD.stage("DISCOVER_CLASSES")
def discover_classes(index: ModuleIndex, config: ResolvedBuild) -> NodeClasses:
    """Find the `GraphBusNode` subclasses by reading the files.

    Raises:
        GraphBusError: A file or the graph is wrong, or there is no agent; several errors are raised together as `SeveralErrors`.
    """
    from graphbus_core.compiler import stages

    classes = stages.discover_classes(index, config)
    raise_all(classes.project.errors)
    if not classes.classes:
        raise stages.no_agent_error(classes.project)
    return classes


@BUILD.stage("READ_SOURCE_CODE")
def read_source_code(classes: NodeClasses) -> Sources:
    """Read the text of every file with an agent in it."""
    from graphbus_core.compiler import stages

    return stages.read_sources(classes)


@BUILD.stage("EXTRACT_AGENT_METADATA")
def extract_agent_metadata(classes: NodeClasses, sources: Sources) -> AgentDefinitions:
    """Extract methods, topics, dependencies and prompts of each class."""
    from graphbus_core.compiler import stages

    return stages.extract_agents(classes, sources)


@BUILD.stage("BUILD_AGENT_GRAPH")
def build_agent_graph(classes: NodeClasses, definitions: AgentDefinitions) -> AgentGraph:
    """Build the graph of agents, with edges from providers to consumers."""
    return classes.project.graph


@BUILD.stage("COMPUTE_TOPOLOGICAL_ORDER")
def compute_topological_order(classes: NodeClasses, graph: AgentGraph) -> ActivationOrder:
    """Return the order of activation: dependencies first, arbiters last."""
    return classes.project.order


# --- 8-12: the negotiation ------------------------------------------------------------------


@BUILD.stage("INIT_NEGOTIATION_ENGINE")
def init_negotiation_engine(
    config: ResolvedBuild, order: ActivationOrder, bus: MessageBus, backend: Backend
) -> NegotiationSession:
    """Create the negotiation session, which publishes its events on the bus."""
    from graphbus_core.negotiation.driver import NegotiationSession

    return NegotiationSession(config, bus, backend=backend, reviewer=backend.reviewer)


@BUILD.stage("ACTIVATE_AGENTS")
def activate_agents(
    config: ResolvedBuild, definitions: AgentDefinitions, order: ActivationOrder, bus: MessageBus, backend: Backend
) -> ActiveAgents:
    """Create an active agent for every class, after checking that the requested git commits can be made.

    Raises:
        UsageError: The settings name a model that does not exist.
        ModelError: A model cannot be used.
        NegotiationError: Git commits are requested but cannot be made, or another negotiation is running.
    """
    if config.makes_commits:
        from graphbus_core.negotiation.apply import prepare_commits

        warning = prepare_commits(config, sorted({agent.path for agent in definitions.definitions}))
        if warning:
            bus.publish("/Negotiation/Warned", {"warning": warning})
    return backend.activate(config, definitions.definitions, order.order)


@BUILD.stage("AGENT_ANALYSIS_PHASE")
def agent_analysis_phase(negotiation: NegotiationSession, agents: ActiveAgents, classes: NodeClasses) -> Analyses:
    """Ask each agent that has not settled for an analysis of its own class."""
    return negotiation.analyze(agents, classes.project)


class NoEngine(msgspec.Struct, frozen=True):
    """Takes the place of the engine in a static build, so that no module of the negotiation is imported."""


class NoAnalysis(msgspec.Struct, frozen=True):
    """Takes the place of the analyses in a static build."""


def no_engine(config: ResolvedBuild) -> NoEngine:
    """Return a placeholder for the engine, in a static build."""
    return NoEngine()


def no_analysis(definitions: AgentDefinitions) -> NoAnalysis:
    """Return a placeholder for the analyses, in a static build."""
    return NoAnalysis()


@BUILD.stage("DETECT_SCHEMA_CONFLICTS")
def detect_schema_conflicts(classes: NodeClasses) -> SchemaConflicts:
    """Compare the contracts at both ends of every edge."""
    from graphbus_core.compiler.stages import detect_conflicts

    return detect_conflicts(classes.project)


@BUILD.stage("MULTI_ROUND_NEGOTIATION_LOOP")
def multi_round_negotiation_loop(
    config: ResolvedBuild,
    classes: NodeClasses,
    negotiation: NegotiationSession,
    agents: ActiveAgents,
    conflicts: SchemaConflicts,
) -> Agreement:
    """Negotiate round by round in a virtual workspace, and let the gate check all accepted changes together.

    Raises:
        GraphBusError: As `NegotiationSession.run`.
    """
    from graphbus_core.editing.gate import Gate
    from graphbus_core.editing.sandboxes import choose_sandbox

    def publish_output(rung: str, words: str) -> None:
        """Publish output of tested code on the bus only. It is not in the transcript, which models read."""
        negotiation.bus.publish("/Negotiation/Told", {"rung": rung, "words": words})

    def publish_rung(proposal_id: str, result: RungResult) -> None:
        """Publish the result of a rung on the bus only: the report, with all of them, is in the transcript."""
        payload = {"proposal_id": proposal_id, "result": msgspec.to_builtins(result)}
        negotiation.bus.publish("/Negotiation/Checked", payload)

    sandbox = choose_sandbox(config.settings.gate.isolation, Path(config.root))
    gate = Gate(classes.project, config, sandbox, publish_output, publish_rung)
    outcome = negotiation.run(classes.project, agents, conflicts, gate)
    report = gate.check_tree(outcome.workspace) if outcome.workspace.changed_files() else None
    return Agreement(outcome.negotiations, outcome.workspace, report)


# --- 13-15: from agreement to artifacts -----------------------------------------------------


@BUILD.stage("APPLY_CODE_CHANGES")
def apply_code_changes(config: ResolvedBuild, agreement: Agreement) -> AppliedChanges:
    """Write the accepted changes to the source files, all or none. A dry run only returns them.

    Raises:
        NegotiationError: The changes do not pass the gate together; or they were written, but not recorded or not committed.
        EditError: A file has changed since it was read, or cannot be written.
    """
    from graphbus_core.negotiation.apply import apply_session

    applied = apply_session(config, *agreement)
    return AppliedChanges(agreement.negotiations, *applied)


@BUILD.stage("EMIT_BUILD_ARTIFACTS")
def emit_build_artifacts(config: ResolvedBuild, classes: NodeClasses, applied: AppliedChanges) -> BuildArtifacts:
    """Write the artifacts of the project to `.graphbus/`; in a dry run only return them.

    Raises:
        ArtifactError: GBE508, a file was changed during the build; GBE515 or GBE516, a run would refuse bytecode or a link.
    """
    from graphbus_core.compiler.stages import describe_project, history_of, last_history

    project = applied.project or classes.project
    history = history_of(applied.negotiations, applied.files) if applied.negotiations else last_history(config)
    artifacts = describe_project(project, history)
    if config.dry_run or not config.emit_artifacts:
        return artifacts
    raise_all(store.find_drift(config.artifacts_dir, artifacts.manifest) if artifacts.manifest else ())
    manifest = writing.save_artifacts(Path(config.artifacts_dir), artifacts)
    return msgspec.structs.replace(artifacts, manifest=manifest)


def build_complete(
    config: ResolvedBuild, classes: NodeClasses, artifacts: BuildArtifacts, applied: AppliedChanges
) -> BuildResult:
    """Return the result of the build, and store its fingerprint, by which the next build knows that nothing has changed."""
    from graphbus_core.compiler.rules import check

    project = applied.project or classes.project
    findings = check(project, wiring=project.wiring)
    if config.emit_artifacts and not config.dry_run:
        memory.remember_build(config, project.fingerprint(memory.key_of(config)), GraphCounts.of(artifacts), findings)
    return BuildResult(
        config=config,
        tally=GraphCounts.of(artifacts),
        built=artifacts,
        findings=findings,
        negotiations=applied.negotiations,
        applied=applied.files,
        diffs=applied.diffs,
        was_dry_run=config.dry_run,
        locked=config.locked,
    )


@BUILD.stage("BUILD_COMPLETE")
def negotiated_build_complete(  # noqa: PLR0917 - the products of six stages
    config: ResolvedBuild,
    classes: NodeClasses,
    artifacts: BuildArtifacts,
    applied: AppliedChanges,
    negotiation: NegotiationSession,
    agreement: Agreement,
) -> BuildResult:
    """Return the result of a build with agents. The lock is written last, after everything that it describes."""
    result = build_complete(config, classes, artifacts, applied)
    if applied.project and artifacts.manifest:
        from graphbus_core.negotiation.lock import write_lock

        digests = artifacts.manifest.artifacts
        write_lock(*agreement[:2], negotiation.settled, applied.project, digests)
    return result._replace(spent=negotiation.bills.spend, failure=negotiation.format_failure)


# --- entry points -----------------------------------------------------------------------

NEGOTIATED = ("ACTIVATE_AGENTS", "MULTI_ROUND_NEGOTIATION_LOOP", "APPLY_CODE_CHANGES")
STATIC = BUILD.excluding(*NEGOTIATED).replacing(
    {"INIT_NEGOTIATION_ENGINE": no_engine, "AGENT_ANALYSIS_PHASE": no_analysis, "BUILD_COMPLETE": build_complete}
)
"""The build without agents."""


def run_build_pipeline(
    request: BuildConfig,
    *,
    bus: MessageBus | None = None,
    on_recovered: Callable[[str], object] = lambda _sentence: None,
    backend: Backend | None = None,
) -> BuildResult:
    """Run Build Mode for a request, and return its result. Source: seed 001, 1.3.

    Args:
        request: What to build, and how.
        bus: Gets `/Build/Stage` {stage, number, of} before each stage, and the events of the negotiation.
        on_recovered: Called with a sentence for each interrupted promotion or undo that was completed or reversed.
        backend: The models or rules behind the agents; None: chosen by settings and environment. It is closed at the end.

    Raises:
        GraphBusError: A stage failed; the class of the error says whether by the request, the sources, the negotiation or the
            artifacts.
    """
    numbers = {name: number for number, name in enumerate(BUILD.names, start=1)}

    def publish_stage(stage: str) -> None:
        if bus:
            bus.publish("/Build/Stage", {"stage": stage, "number": numbers[stage], "of": len(numbers)})

    if not request.enable_agents:
        with backend or nullcontext():
            return STATIC.run(request, Recovery(on_recovered), AppliedChanges(), on_stage=publish_stage)[BuildResult]
    from graphbus_core.bus import MessageBus
    from graphbus_core.negotiation.backend import Backend

    with backend or Backend() as opened:
        used = bus or MessageBus(history=0)
        return BUILD.run(request, Recovery(on_recovered), used, opened, on_stage=publish_stage)[BuildResult]


def build_graph(*paths: str, enable_agents: bool = False, dry_run: bool = False, intent: str = "") -> BuildResult:
    """Build the agents in these files and folders: a short form of `run_build_pipeline`."""
    return run_build_pipeline(BuildConfig(paths=paths, enable_agents=enable_agents, dry_run=dry_run, intent=intent))


def __getattr__(name: str) -> nx.DiGraph[Any]:
    if name == "BUILD_PIPELINE":
        return BUILD.as_graph()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# --- python -m graphbus_core.build ----------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m graphbus_core.build`, which has few options; `graphbus build` has all of them.

    Returns:
        The exit status: 0, or the status of the error, which is printed.
    """
    from argparse import ArgumentParser

    from graphbus_core.bus import MessageBus

    parser = ArgumentParser(prog="python -m graphbus_core.build", description="Build Mode; see also `graphbus build`.")
    parser.add_argument("--root", required=True, metavar="PACKAGE", help="dotted name of the package with the agents")
    parser.add_argument(
        "--enable-agents", action="store_true", help="let the agents negotiate and change source files first"
    )
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    chosen = parser.parse_args(arguments)
    bus = MessageBus(history=0)
    bus.subscribe("/Build/Stage", _print_stage)
    request = BuildConfig(root_package=chosen.root, enable_agents=chosen.enable_agents, dry_run=chosen.dry_run)
    try:
        result = run_build_pipeline(request, bus=bus, on_recovered=lambda sentence: sys.stderr.write(f"{sentence}\n"))
        unchanged = " (nothing has changed)" if result.is_unchanged else ""
        for change in result.applied:
            _print_line(f"Modified: {change.path}")
        _print_line(f"Built {result.tally.agents} agents{unchanged}")
    except GraphBusError as error:
        sys.stderr.write(f"{error}\n")
        return error.status
    return 0


def _print_stage(event: Event) -> None:
    _print_line(f"{event['number']:>2}/{event['of']} {event['stage']}")


def _print_line(line: str) -> None:
    """Print a line with the prefix `[BUILD]`; print nothing once the process that reads the output has ended."""
    try:
        sys.stdout.write(f"[BUILD] {line}\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the build continues without output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
