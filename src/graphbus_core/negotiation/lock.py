"""Reads and writes `.graphbus/negotiation.lock`: the inputs on which each agent has settled, and the last session for replay.

The file is meant to be committed. It has one block for each agent, sorted by name, so that git can merge two branches on which
different agents settled.
"""

from __future__ import annotations

import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from operator import attrgetter
from pathlib import Path

import msgspec
from msgspec.structs import replace

from graphbus_core import store
from graphbus_core.compiler.project import Project
from graphbus_core.editing.workspace import Workspace
from graphbus_core.errors import ArtifactError, BuildError, GraphBusError, NegotiationError, Place, raise_all
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.llm.recorded import encode_answers
from graphbus_core.model.config import AgentProgram, ResolvedBuild, Settings
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.proposals import Negotiations
from graphbus_core.negotiation.agents import choose_arbiters
from graphbus_core.negotiation.freshness import (
    PROGRAM,
    AgentInputs,
    SettledAgents,
    describe_changes,
    describe_models,
    inputs_of,
)
from graphbus_core.negotiation.rule_agent import find_for_agents
from graphbus_core.negotiation.sessions import START_VERSION, SessionStart, load_answers, load_start
from graphbus_core.negotiation.transcript import load_session
from graphbus_core.store.folders import read_plain
from graphbus_core.store.reading import decode_versioned
from graphbus_core.store.writing import encode_artifact, write_atomic

LOCK_VERSION = 1
LOCK = "negotiation.lock"
MOST_BYTES = 64 * 1024 * 1024
RESTORE_LOCK = "Restore it from version control, e.g. with `git checkout`."
"""The largest size of an unpacked part. Larger ones are refused: a small text could unpack to more than fits into memory."""


def pack_bytes(data: bytes) -> str:
    """Compress bytes and return them as base64 text for JSON."""
    return b64encode(zlib.compress(data, 9)).decode()


def unpack_bytes(text: str) -> bytes:
    """Return the bytes that `pack_bytes` was given.

    Raises:
        BuildError: GBE222, the text is damaged, or unpacks to more than `MOST_BYTES`.
    """
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(b64decode(text, validate=True), MOST_BYTES + 1)
    except (ValueError, zlib.error) as error:
        raise BuildError("GBE222", reason=reason_of(error), advice=RESTORE_LOCK) from None
    if len(data) > MOST_BYTES:
        raise BuildError("GBE222", reason=f"part of it is larger than {MOST_BYTES} bytes", advice=RESTORE_LOCK)
    if not stream.eof:
        raise BuildError("GBE222", reason="part of it is cut off", advice=RESTORE_LOCK)
    return data


class AgentLock(msgspec.Struct, frozen=True, kw_only=True):
    """The block of one agent: its inputs at the end of a session, and whether it has nothing more to propose on them.

    Attributes:
        whole: Digest of the other fields. Two branches with different blocks for one agent differ in this line, so git reports
            a conflict and does not mix their fields: no session has settled on such a mixture.
    """

    inputs: AgentInputs
    is_settled: bool
    whole: str = ""

    def with_digest(self) -> AgentLock:
        """Return the block with its digest in `whole`."""
        rest = replace(self, whole="")
        return replace(rest, whole=sha256_hex(msgspec.json.encode(rest, order="sorted"))[:16])

    @property
    def has_settled(self) -> bool:
        """True if the agent has nothing more to propose, and the digest shows that the block was not merged or edited."""
        return self.is_settled and self == self.with_digest()


class RecordedSession(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a replay of a session needs.

    Attributes:
        start: Its inputs, from session.json.
        record: Its record as JSON, packed by `pack_bytes`.
        answers: Every answer of a model, packed; empty if the rules negotiated.
        before: Changed file -> its bytes when the session began, packed.
        after: Changed file -> its sha256 when the session ended.
        artifacts: Artifact -> its sha256; empty for a negotiation without a build.
    """

    start: SessionStart
    record: str
    answers: str = ""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    artifacts: dict[str, str] = {}


class NegotiationLock(msgspec.Struct, frozen=True, kw_only=True):
    """The content of negotiation.lock."""

    schema_version: int
    agents: dict[str, AgentLock]
    session: RecordedSession | None = None


def lock_path(config: ResolvedBuild) -> Path:
    """Return the path of the lock."""
    return Path(config.artifacts_dir, LOCK)


def load_lock(config: ResolvedBuild) -> NegotiationLock | None:
    """Read the lock; None if there is no such file.

    Raises:
        BuildError: GBE222, it cannot be read, has an unresolved merge conflict, or is of another version.
    """
    path = lock_path(config)
    try:
        data = read_plain(path)
        _refuse_conflict_markers(data, config)
        lock = decode_versioned(data, NegotiationLock, LOCK_VERSION)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        advice = advise_on(error, path) if isinstance(error, OSError) else RESTORE_LOCK
        raise BuildError("GBE222", reason=reason_of(error), advice=advice, where=_lock_place(config)) from None
    if lock.session and lock.session.start.schema_version != START_VERSION:
        found = lock.session.start.schema_version
        reason = f"its session has version {found}, this GraphBus reads version {START_VERSION}"
        advice = "Use the version of GraphBus that wrote it."
        raise BuildError("GBE222", reason=reason, advice=advice, where=_lock_place(config))
    return lock


def _refuse_conflict_markers(data: bytes, config: ResolvedBuild) -> None:
    for number, line in enumerate(data.splitlines(), 1):
        if line.startswith((b"<<<<<<< ", b"=======", b">>>>>>> ")):
            advice = (
                "Resolve the conflict: keep the entries of the agents from both sides, and one of the two sessions."
            )
            where = Place(str(lock_path(config)), number)
            raise BuildError("GBE222", reason="a merge left a conflict here", advice=advice, where=where)


def settled_agents(config: ResolvedBuild) -> Mapping[str, AgentInputs]:
    """Return agent -> inputs for the agents that have settled; empty if the lock cannot be read, so that all agents are asked."""
    try:
        lock = load_lock(config)
    except BuildError:
        return {}
    return {name: each.inputs for name, each in lock.agents.items() if each.has_settled} if lock else {}


# --- writing ---------------------------------------------------------------------------------


def _make_agent_locks(negotiations: Negotiations, settled: SettledAgents, project: Project) -> dict[str, AgentLock]:
    """Return the block of every agent of the project at the end of a session.

    An agent has settled if it had nothing to propose on its present inputs, if the session converged, or if it is an arbiter.
    An agent has never settled if it gave no usable answer, or if its change could not be verified: it may pass another time.
    """
    findings = find_for_agents(project)
    arbiters = choose_arbiters(project.definitions, project.config)
    has_converged = negotiations.converged
    unsettled = {*_agents_with_unverified_changes(negotiations), *settled.failed}
    agents: dict[str, AgentLock] = {}
    for definition in project.definitions:
        name = definition.name
        inputs = inputs_of(name, project, findings, settled.model)
        is_settled = has_converged or name in arbiters or settled.has_settled_on(name, inputs)
        agents[name] = AgentLock(inputs=inputs, is_settled=is_settled and name not in unsettled).with_digest()
    return dict(sorted(agents.items()))


def _agents_with_unverified_changes(negotiations: Negotiations) -> set[str]:
    """Return the authors of proposals that the gate refused because it could not run a check, not because a check failed."""
    failures = ((record.proposal.src, record.gate and record.gate.failure) for record in negotiations.records)
    return {name for name, failure in failures if failure and failure.code.endswith(".unverified")}


def write_lock(
    negotiations: Negotiations,
    workspace: Workspace,
    settled: SettledAgents,
    project: Project,
    artifacts: Mapping[str, str],
) -> None:
    """Write which agents have settled, and the session for replay.

    Nothing is written after a dry run, after the endings `manual` and `error`, and after a session without proposals that leaves
    the block of every agent as it was. A lock that cannot be read is replaced.

    Args:
        negotiations: The records of the session, and how it ended.
        workspace: The workspace with every accepted change.
        settled: The replies of the agents: which had nothing to propose, which failed.
        project: The sources after the session.
        artifacts: Artifact -> its sha256.

    Raises:
        NegotiationError: GBE425, it cannot be written.
    """
    config = project.config
    if config.dry_run or negotiations.ending.reason in {"manual", "error"}:
        return
    agents = _make_agent_locks(negotiations, settled, project)
    try:
        last = load_lock(config)
    except BuildError:
        last = None  # a damaged lock is replaced
    if last and not _covers_recorded_paths(config, last):  # keep the blocks of agents outside of the paths built now
        agents = dict(sorted({**last.agents, **agents}.items()))
    if last and last.agents == agents and not negotiations.records:
        return
    lock = NegotiationLock(
        schema_version=LOCK_VERSION,
        agents=agents,
        session=_record_session(config, negotiations.session, workspace, artifacts),
    )
    try:
        write_atomic(lock_path(config), encode_artifact(lock))
    except OSError as error:
        where, advice = _lock_place(config), advise_on(error, lock_path(config))
        raise NegotiationError("GBE425", reason=reason_of(error), advice=advice, where=where) from error


def _covers_recorded_paths(config: ResolvedBuild, lock: NegotiationLock) -> bool:
    """Return whether the paths that are built now include all paths of the session in the lock; True if it has no session."""
    built = [Path(os.path.abspath(path)) for path in config.paths]
    paths = lock.session.start.paths if lock.session else ()
    recorded = [Path(os.path.abspath(Path(config.root, path))) for path in paths]
    return all(any(old.is_relative_to(new) for new in built) for old in recorded)


def _record_session(
    config: ResolvedBuild, session: str, workspace: Workspace, artifacts: Mapping[str, str]
) -> RecordedSession:
    """Return what a replay of the session that has just ended needs."""
    changed = workspace.changed_files()
    # Concurrent answers arrive in any order, and the lock must not depend on it.
    answers = sorted(load_answers(config.artifacts_dir, session), key=attrgetter("key"))
    return RecordedSession(
        start=_without_paths(load_start(config.artifacts_dir, session)),
        record=pack_bytes(encode_artifact(load_session(config.artifacts_dir, session))),
        answers=pack_bytes(encode_answers(answers)) if answers else "",
        before={path: pack_bytes(before) for path, (before, _) in changed.items()},
        after={path: sha256_hex(after) for path, (_, after) in changed.items()},
        artifacts=dict(sorted(artifacts.items())),
    )


def _without_paths(start: SessionStart) -> SessionStart:
    """Return the start of a session without the settings that a replay does not use: they may name folders of this machine."""
    found, defaults = start.settings, Settings()
    gate = replace(defaults.gate, allow_unverified=found.gate.allow_unverified)
    llm = replace(found.llm, model="", proposer="", evaluator="", arbiter="")
    agents = dict.fromkeys(found.agents, AgentProgram(command=()))
    return replace(start, settings=replace(found, gate=gate, llm=llm, runtime=defaults.runtime, agents=agents))


# --- --frozen --------------------------------------------------------------------------------


def check_frozen(config: ResolvedBuild) -> int:
    """Check, without asking a model, that every agent has settled on its present inputs. Called by `build --frozen`.

    If there are artifacts, the files that agents import must also have the digests in the manifest. If only a part of the
    negotiated paths is built, the recorded contracts of neighbours outside of that part are assumed unchanged.

    Returns:
        The number of agents of the project, all of which have settled.

    Raises:
        BuildError: GBE220, there is no lock; GBE221, an agent has not settled on its inputs; GBE222, the lock cannot be read.
        ArtifactError: GBE508, a file that agents import has changed since the last build; GBE515, bytecode would run
            regardless of its source; GBE516, a link leaves the project.
        SeveralErrors: More than one agent or file.
    """
    lock = load_lock(config)
    if lock is None:
        raise BuildError("GBE220", path=f"{config.settings.artifacts}/{LOCK}")
    project = Project.read(config)
    raise_all(project.errors)
    raise_all(_describe_unsettled(lock, project))
    raise_all(_find_drift(config))
    return len(project.definitions)


def _find_drift(config: ResolvedBuild) -> tuple[GraphBusError, ...]:
    """Return an error for each imported file that changed since the last build; none if no manifest can be read."""
    try:
        manifest = store.load_manifest(config.artifacts_dir)
    except ArtifactError:
        return ()
    return store.find_drift(config.artifacts_dir, manifest)


def _describe_unsettled(lock: NegotiationLock, project: Project) -> Iterable[GraphBusError]:
    """Yield GBE221 for each agent that has not settled on its present inputs, with what has changed."""
    settings = project.config.settings
    is_part = not _covers_recorded_paths(project.config, lock)
    for definition in project.definitions:
        name, locked = definition.name, lock.agents.get(definition.name)
        if locked is None:
            what = ["it has never negotiated"]
        else:
            was = "rules" if locked.inputs.model == PROGRAM else locked.inputs.model
            model = _describe_configured_models(settings) or was
            now = _with_recorded_inputs(inputs_of(name, project, (), model), locked.inputs, settings)
            if is_part:
                outside = {other: each for other, each in locked.inputs.neighbours.items() if not project.agent(other)}
                now = replace(now, neighbours={**outside, **now.neighbours})
            what = [*describe_changes(locked.inputs, now)] or _explain_unsettled(locked)
        if what:
            yield BuildError(
                "GBE221", agent=name, what="; ".join(what), where=Place(definition.path, definition.span.line)
            )


def _explain_unsettled(locked: AgentLock) -> list[str]:
    """Return one reason why an agent with unchanged inputs has not settled; empty if it has."""
    if locked.has_settled:
        return []
    merged = "its block in the lock was merged or edited, so no session has written it like this"
    return [merged if locked.is_settled else "it has not settled yet"]


def _with_recorded_inputs(now: AgentInputs, was: AgentInputs, settings: Settings) -> AgentInputs:
    """Return the present inputs, with those copied from the lock (`was`) that a build without a negotiation cannot know.

    These are the findings, and the intent where the settings have none: the command line may have given it.
    """
    has_wishes = settings.intent or settings.refactoring_goals
    return replace(
        now,
        findings=was.findings,
        intent=now.intent if has_wishes else was.intent,
    )


def _describe_configured_models(settings: Settings) -> str:
    """Return the models that the settings name, as text, without looking for keys; empty if they name none."""
    from graphbus_core.llm.providers import models_of_roles, public_name

    llm = settings.llm
    if not llm.model:
        return ""
    return describe_models({role: public_name(spec) for role, spec in models_of_roles(llm.model, llm).items()})


def _lock_place(config: ResolvedBuild) -> Place:
    return Place(str(lock_path(config)))
