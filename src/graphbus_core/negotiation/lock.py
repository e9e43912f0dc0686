"""`.graphbus/negotiation.lock`: who has settled on which inputs, and how the last session can be replayed. Meant to be committed.

One block for each agent, sorted, so that two branches that settled different agents merge by themselves.
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
"""More than any part of a session has; what unpacks to more was made to fill the memory."""


def pack_bytes(data: bytes) -> str:
    """Give bytes as text for JSON."""
    return b64encode(zlib.compress(data, 9)).decode()


def unpack_bytes(text: str) -> bytes:
    """Give the bytes of `pack`.

    Raises:
        BuildError: GBE222, it is none, or more than `MOST_BYTES`.
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
    """One agent: the inputs of its last question, and whether it has nothing more to propose on them.

    Attributes:
        whole: Digest of the rest. Two sessions differ in it, so that a merge cannot make one block of both without a conflict: on
            the source of one and a neighbour of the other, no session has settled.
    """

    inputs: AgentInputs
    is_settled: bool
    whole: str = ""

    def with_digest(self) -> AgentLock:
        """Give the same block with its digest."""
        rest = msgspec.structs.replace(self, whole="")
        return msgspec.structs.replace(rest, whole=sha256_hex(msgspec.json.encode(rest, order="sorted"))[:16])

    @property
    def has_settled(self) -> bool:
        """It has nothing more to say, and this is what one session has written."""
        return self.is_settled and self == self.with_digest()


class RecordedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it can be replayed.

    Attributes:
        record: Its record, packed.
        answers: Every answer of a model, packed; empty when the rules negotiated.
        before: Changed file -> its bytes when the session began, packed.
        after: Changed file -> its sha256 when the session had ended.
        artifacts: Artifact -> its sha256; empty for a negotiation without a build.
    """

    start: SessionStart
    record: str
    answers: str = ""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    artifacts: dict[str, str] = {}


class NegotiationLock(msgspec.Struct, frozen=True, kw_only=True):
    """negotiation.lock."""

    schema_version: int
    agents: dict[str, AgentLock]
    session: RecordedSession | None = None


def lock_path(config: ResolvedBuild) -> Path:
    """Give the place of the lock."""
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
    """Give the agents that have settled, and on what; none when the lock cannot be read: then everybody is asked."""
    try:
        lock = load_lock(config)
    except BuildError:
        return {}
    return {name: each.inputs for name, each in lock.agents.items() if each.has_settled} if lock else {}


# --- writing ---------------------------------------------------------------------------------


def _agents_after(negotiations: Negotiations, settled: SettledAgents, project: Project) -> dict[str, AgentLock]:
    """Give every agent as a session leaves it.

    Who had nothing to say to its present inputs has settled, and everybody has when the session converged; but not one that gave
    no usable answer, nor one whose change could not be verified: it may pass another time.
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
        workspace: It holds every accepted change.
        settled: Who had nothing to say.
        project: The sources as the session leaves them.
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
        last = None  # it is replaced by one that can be read
    if last and not _covers(config, last):  # the others may be in a part that was not read
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
    """Tell whether all that the session of a lock was about is within what is built now."""
    built = [Path(os.path.abspath(path)) for path in config.paths]
    paths = lock.session.start.paths if lock.session else ()
    places = [Path(os.path.abspath(Path(config.root, path))) for path in paths]
    return all(any(place.is_relative_to(path) for path in built) for place in places)


def _record_session(
    config: ResolvedBuild, session: str, workspace: Workspace, artifacts: Mapping[str, str]
) -> RecordedSession:
    """Give a session that has just ended as it can be replayed."""
    changed = workspace.changed_files()
    answers = sorted(load_answers(config.artifacts_dir, session), key=attrgetter("key"))  # they came in any order
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
    """Prove, without any model, that every agent has settled on its inputs as they are now.

    Where there are artifacts, they must describe what would be imported now.

    Of a part of what was negotiated, the neighbours outside of that part are not looked at.

    Returns:
        How many agents the lock covers.

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
    """What has changed since the last build; artifacts that cannot be read are made again, and prove nothing."""
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
    merged = "its block in the lock is not what one session wrote: it was merged or edited"
    return [merged if locked.is_settled else "it has not settled yet"]


def _comparable(now: AgentInputs, was: AgentInputs, settings: Settings) -> AgentInputs:
    """Leave out of a comparison what only a negotiation knows: findings, an intent and a model of its command line."""
    has_wishes = settings.intent or settings.refactoring_goals
    return msgspec.structs.replace(
        now,
        findings=was.findings,
        intent=now.intent if has_wishes else was.intent,
        model=now.model if settings.llm.model else was.model,
    )


def _model_of(settings: Settings) -> str:
    """Give who would answer by the settings, without looking for keys; empty when they do not say."""
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
