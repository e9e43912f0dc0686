"""`.graphbus/negotiation.lock`: which agents have settled on which inputs, and the last session for replay. To be committed.

It has one block for each agent, sorted by name, so that git merges two branches that settled different agents.
"""

from __future__ import annotations

import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from operator import attrgetter
from pathlib import Path

import msgspec

from graphbus_core import store
from graphbus_core.compiler.project import Project
from graphbus_core.editing.workspace import Workspace
from graphbus_core.errors import ArtifactError, BuildError, GraphBusError, NegotiationError, Place, raise_all
from graphbus_core.llm.recorded import encode_answers
from graphbus_core.model.config import ResolvedBuild, Settings
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.proposals import Negotiations
from graphbus_core.negotiation.agents import choose_arbiters
from graphbus_core.negotiation.freshness import AgentInputs, SettledAgents, describe_changes, describe_models, inputs_of
from graphbus_core.negotiation.rule_agent import find_for_agents
from graphbus_core.negotiation.sessions import START_VERSION, SessionStart, load_answers, load_start
from graphbus_core.negotiation.transcript import load_session
from graphbus_core.store.folders import read_plain
from graphbus_core.store.reading import decode_versioned
from graphbus_core.store.writing import encode_artifact, write_atomic

LOCK_VERSION = 1
LOCK = "negotiation.lock"
MOST_BYTES = 64 * 1024 * 1024
"""The largest size of an unpacked part; more is refused, because a small text could unpack to fill the memory."""


def pack_bytes(data: bytes) -> str:
    """Return bytes compressed, as text for JSON."""
    return b64encode(zlib.compress(data, 9)).decode()


def unpack_bytes(text: str) -> bytes:
    """Return the bytes that `pack_bytes` was given.

    Raises:
        BuildError: GBE222, the text is damaged, or unpacks to more than `MOST_BYTES`.
    """
    opened = zlib.decompressobj()
    try:
        data = opened.decompress(b64decode(text, validate=True), MOST_BYTES + 1)
    except (ValueError, zlib.error) as error:
        raise BuildError("GBE222", reason=_reason(error)) from None
    if len(data) > MOST_BYTES:
        raise BuildError("GBE222", reason=f"part of it is larger than {MOST_BYTES} bytes")
    if not opened.eof:
        raise BuildError("GBE222", reason="part of it is cut off")
    return data


class AgentLock(msgspec.Struct, frozen=True, kw_only=True):
    """The block of one agent: the inputs of its last question, and whether it has nothing more to propose on them.

    Attributes:
        whole: Digest of the other fields. It differs between two sessions, so that git cannot merge their blocks of one agent
            without a conflict: no session has settled on the inputs of such a mixture.
    """

    inputs: AgentInputs
    is_settled: bool
    whole: str = ""

    def with_digest(self) -> AgentLock:
        """Return the block with its digest in `whole`."""
        rest = msgspec.structs.replace(self, whole="")
        return msgspec.structs.replace(rest, whole=sha256_hex(msgspec.json.encode(rest, order="sorted"))[:16])

    @property
    def has_settled(self) -> bool:
        """True if the agent has nothing more to propose, and the block is as one session has written it."""
        return self.is_settled and self == self.with_digest()


class RecordedSession(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a replay of a session needs.

    Attributes:
        record: Its record, packed.
        answers: Every answer of a model, packed; empty when the rules negotiated.
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
    """Read the lock; None when there is none.

    Raises:
        BuildError: GBE222, it cannot be read.
    """
    path = lock_path(config)
    try:
        data = read_plain(path)
        _refuse_conflicts(data, config)
        lock = decode_versioned(data, NegotiationLock, LOCK_VERSION)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise BuildError("GBE222", reason=_reason(error), where=_shown(config)) from None
    if lock.session and lock.session.start.schema_version != START_VERSION:
        found = lock.session.start.schema_version
        reason = f"its session has version {found}, this GraphBus reads version {START_VERSION}"
        raise BuildError("GBE222", reason=reason, where=_shown(config))
    return lock


def _refuse_conflicts(data: bytes, config: ResolvedBuild) -> None:
    for number, line in enumerate(data.splitlines(), 1):
        if line.startswith((b"<<<<<<< ", b"=======", b">>>>>>> ")):
            raise BuildError("GBE222", reason=f"a merge left a conflict on line {number}", where=_shown(config))


def settled_agents(config: ResolvedBuild) -> Mapping[str, AgentInputs]:
    """Return agent -> inputs of those that have settled; none if the lock cannot be read, so that all are asked."""
    try:
        lock = load_lock(config)
    except BuildError:
        return {}
    return {name: each.inputs for name, each in lock.agents.items() if each.has_settled} if lock else {}


# --- writing ---------------------------------------------------------------------------------


def _agents_after(negotiations: Negotiations, settled: SettledAgents, project: Project) -> dict[str, AgentLock]:
    """Return the block of every agent at the end of a session.

    An agent has settled if it had nothing to propose on its present inputs, and all have if the session converged. Not
    settled are agents without a usable answer, and those whose change could not be verified: it may pass another time.
    """
    findings = find_for_agents(project)
    arbiters = choose_arbiters(project.definitions, project.config)
    has_converged = negotiations.converged
    open_ends = {*_unverified(negotiations), *settled.failed}
    agents: dict[str, AgentLock] = {}
    for definition in project.definitions:
        name = definition.name
        inputs = inputs_of(name, project, findings, settled.model)
        is_settled = has_converged or name in arbiters or settled.has_settled_on(name, inputs)
        agents[name] = AgentLock(inputs=inputs, is_settled=is_settled and name not in open_ends).with_digest()
    return dict(sorted(agents.items()))


def _unverified(negotiations: Negotiations) -> set[str]:
    failures = ((record.proposal.src, record.gate and record.gate.failure) for record in negotiations.records)
    return {name for name, failure in failures if failure and failure.code.endswith(".unverified")}


def write_lock(
    negotiations: Negotiations,
    workspace: Workspace,
    settled: SettledAgents,
    project: Project,
    artifacts: Mapping[str, str],
) -> None:
    """Write which agents have settled, and the session for replay; a session without proposals changes nothing.

    Args:
        workspace: The workspace with every accepted change.
        settled: The agents that had nothing to propose.
        project: The sources after the session.
        artifacts: Artifact -> its sha256.

    Raises:
        NegotiationError: GBE425, it cannot be written.
    """
    config = project.config
    if config.dry_run or negotiations.ending.reason in {"manual", "error"}:
        return
    agents = _agents_after(negotiations, settled, project)
    try:
        last = load_lock(config)
    except BuildError:
        last = None  # a damaged lock is replaced
    if last and not _covers(config, last):  # agents outside of the files that were built now keep their blocks
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
        raise NegotiationError("GBE425", reason=_reason(error), where=_shown(config)) from error


def _covers(config: ResolvedBuild, lock: NegotiationLock) -> bool:
    """Return whether the paths that are built now include all paths of the session in the lock."""
    built = [Path(os.path.abspath(path)) for path in config.paths]
    paths = lock.session.start.paths if lock.session else ()
    places = [Path(os.path.abspath(Path(config.root, path))) for path in paths]
    return all(any(place.is_relative_to(path) for path in built) for place in places)


def _record_session(
    config: ResolvedBuild, session: str, workspace: Workspace, artifacts: Mapping[str, str]
) -> RecordedSession:
    """Return what a replay of the session that has just ended needs."""
    changed = workspace.changed_files()
    # Concurrent answers arrive in any order, and the lock must not depend on it.
    answers = sorted(load_answers(config.artifacts_dir, session), key=attrgetter("key"))
    return RecordedSession(
        start=load_start(config.artifacts_dir, session),
        record=pack_bytes(encode_artifact(load_session(config.artifacts_dir, session))),
        answers=pack_bytes(encode_answers(answers)) if answers else "",
        before={path: pack_bytes(before) for path, (before, _) in changed.items()},
        after={path: sha256_hex(after) for path, (_, after) in changed.items()},
        artifacts=dict(sorted(artifacts.items())),
    )


# --- --frozen --------------------------------------------------------------------------------


def check_frozen(config: ResolvedBuild) -> int:
    """Check, without any model, that every agent has settled on its present inputs. Called by `build --frozen`.

    If there are artifacts, they must also describe the files that would be imported now. If only a part of the negotiated
    paths is built, neighbours outside of that part are not compared.

    Returns:
        The number of agents that the lock covers.

    Raises:
        BuildError: GBE220, there is no lock; GBE221, an agent and what has changed; GBE222, the lock cannot be read.
        ArtifactError: GBE508, a file that agents import has changed since the last build; GBE515, GBE516.
        SeveralErrors: More than one agent or file.
    """
    lock = load_lock(config)
    if lock is None:
        raise BuildError("GBE220", path=f"{config.settings.artifacts}/{LOCK}")
    project = Project.read(config)
    raise_all(project.errors)
    raise_all(_not_settled(lock, project))
    raise_all(_drift(config))
    return len(project.definitions)


def _drift(config: ResolvedBuild) -> tuple[GraphBusError, ...]:
    """Return the files that changed since the last build; none if its artifacts cannot be read, as the build replaces them."""
    try:
        manifest = store.load_manifest(config.artifacts_dir)
    except ArtifactError:
        return ()
    return store.find_drift(config.artifacts_dir, manifest)


def _not_settled(lock: NegotiationLock, project: Project) -> Iterable[GraphBusError]:
    settings = project.config.settings
    is_part = not _covers(project.config, lock)
    for definition in project.definitions:
        name, locked = definition.name, lock.agents.get(definition.name)
        if locked is None:
            what = ["it has never negotiated"]
        else:
            now = _comparable(inputs_of(name, project, (), _model_of(settings)), locked.inputs, settings)
            if is_part:
                outside = {other: each for other, each in locked.inputs.neighbours.items() if not project.agent(other)}
                now = msgspec.structs.replace(now, neighbours={**outside, **now.neighbours})
            what = [*describe_changes(locked.inputs, now)] or _why_open(locked)
        if what:
            yield BuildError(
                "GBE221", agent=name, what="; ".join(what), where=Place(definition.path, definition.span.line)
            )


def _why_open(locked: AgentLock) -> list[str]:
    if locked.has_settled:
        return []
    merged = "its block in the lock was merged or edited, so no session has written it like this"
    return [merged if locked.is_settled else "it has not settled yet"]


def _comparable(now: AgentInputs, was: AgentInputs, settings: Settings) -> AgentInputs:
    """Take from `was` the inputs that only a negotiation knows: findings, and intent and model of its command line."""
    has_wishes = settings.intent or settings.refactoring_goals
    return msgspec.structs.replace(
        now,
        findings=was.findings,
        intent=now.intent if has_wishes else was.intent,
        model=now.model if settings.llm.model else was.model,
    )


def _model_of(settings: Settings) -> str:
    """Return the models that the settings name, as text, without looking for keys; empty if they name none."""
    from graphbus_core.llm.providers import parse_model, providers_of

    llm = settings.llm
    if not llm.model:
        return ""
    providers = providers_of(llm)
    roles = {"proposer": llm.proposer, "evaluator": llm.evaluator, "arbiter": llm.arbiter}
    return describe_models({role: str(parse_model(spec or llm.model, providers)) for role, spec in roles.items()})


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _shown(config: ResolvedBuild) -> Place:
    return Place(str(lock_path(config)))
