"""Replays a session on its recorded answers: engine, gate and promotion run for real, in a copy of the project.

No model is asked, no network is used, and only the copy is written, which is deleted at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from graphbus_core.bus import MessageBus
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import describe_project, detect_conflicts, history_of
from graphbus_core.editing.gate import Gate
from graphbus_core.editing.journal import Journal
from graphbus_core.editing.rungs.trial_environment import TrialImpossible, TrialTree
from graphbus_core.editing.sandboxes import choose_sandbox
from graphbus_core.errors import BuildError, GraphBusError, NegotiationError, NotJudgedError
from graphbus_core.llm.client import Clients, RecordedClient
from graphbus_core.llm.providers import RULES
from graphbus_core.llm.recorded import RecordedAnswer, decode_answers, encode_answers
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.negotiation.apply import apply_session
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.driver import NegotiationSession
from graphbus_core.negotiation.lock import RecordedSession, load_lock, pack_bytes, unpack_bytes
from graphbus_core.negotiation.sessions import SessionStart, load_answers, load_start
from graphbus_core.negotiation.transcript import RECORD_VERSION, SessionRecord, list_sessions, load_session
from graphbus_core.store import writing
from graphbus_core.store.reading import decode_versioned
from graphbus_core.store.writing import encode_artifact

_PROSE = frozenset({"negotiation_log", "detail", "message"})
"""The keys of a record that hold sentences, or that earlier versions did not write."""


class ReplayResult(NamedTuple):
    """The result of a replay.

    Attributes:
        source: Where the record was found: its session folder, or `"the lock"`.
        requests: The number of recorded answers of models.
        files: The files that the session changed.
        differences: Everything that differs from the record, in order; empty if every byte is equal.
    """

    session: str
    source: str
    requests: int
    files: tuple[str, ...]
    differences: tuple[str, ...]


def replay_session(config: ResolvedBuild, session: str = "") -> ReplayResult:
    """Replay a session and compare its record, every file that it changed, and the artifacts.

    Args:
        session: Its name; empty for the one in the lock, or without a lock for the last one.

    Raises:
        NegotiationError: GBE403 or GBE404, there is no such session; GBE405, it cannot be read; GBE423, it cannot be replayed.
        BuildError: GBE222, the lock cannot be read.
    """
    kept, source = _find_tape(config, session)
    start = kept.start
    _refuse_what_nobody_recorded(start, _decoded(kept))
    answers = _answers_of(kept)
    before = {path: unpack_bytes(text) for path, text in kept.before.items()}
    _refuse_places_outside([*before, *start.paths])
    try:
        with TrialTree(config.root, config.artifacts_dir).copy(before) as root:
            differences = tuple(_differences(kept, answers, _config_of(kept, root, config)))
    except TrialImpossible as reason:
        raise NegotiationError(
            "GBE423", session=start.session, reason=f"the project cannot be copied: {reason}"
        ) from None
    return ReplayResult(start.session, source, len(answers), tuple(sorted(kept.after)), differences)


# --- the record ------------------------------------------------------------------------------


def _find_tape(config: ResolvedBuild, session: str) -> tuple[RecordedSession, str]:
    """Return everything recorded of a session, and where it was found.

    Raises:
        NegotiationError: GBE403, GBE404 or GBE405.
        BuildError: GBE222, the lock cannot be read.
    """
    lock = load_lock(config)
    is_locked = bool(lock and lock.session and session in {"", lock.session.start.session})
    has_folder = bool(session) and session in list_sessions(config.artifacts_dir)
    if lock and lock.session and is_locked and not has_folder:
        return lock.session, "the lock"
    record = load_session(config.artifacts_dir, session)
    return _tape_from_folder(config, record), f"sessions/{record.session}"


def _tape_from_folder(config: ResolvedBuild, record: SessionRecord) -> RecordedSession:
    answers = load_answers(config.artifacts_dir, record.session)
    journal = Journal(config)
    entries = [
        entry for entry in journal.done(is_own=False) if entry.kind == "promote" and entry.session == record.session
    ]
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for entry in entries[-1:]:
        for number, file in enumerate(entry.files):
            before[file.path] = pack_bytes(journal.content(journal.folder / entry.name, file, number, "before"))
            after[file.path] = file.sha256_after
    return RecordedSession(
        start=load_start(config.artifacts_dir, record.session),
        record=pack_bytes(encode_artifact(record)),
        answers=pack_bytes(encode_answers(answers)) if answers else "",
        before=before,
        after=after,
    )


def _decoded(kept: RecordedSession) -> SessionRecord:
    try:
        return decode_versioned(unpack_bytes(kept.record), SessionRecord, RECORD_VERSION)
    except msgspec.DecodeError as error:
        reason = f"its record cannot be read ({error})"
        raise NegotiationError("GBE423", session=kept.start.session, reason=reason) from None


def _answers_of(kept: RecordedSession) -> tuple[RecordedAnswer, ...]:
    try:
        return decode_answers(unpack_bytes(kept.answers)) if kept.answers else ()
    except msgspec.DecodeError as error:
        raise NegotiationError(
            "GBE423", session=kept.start.session, reason=f"its answers are damaged ({error})"
        ) from None


def _refuse_what_nobody_recorded(start: SessionStart, record: SessionRecord) -> None:
    ending = record.negotiations.ending
    reason = ""
    if start.is_reviewed:
        reason = "a person decided on its changes"
    elif ending.reason in {"manual", "error"}:
        reason = f"it did not finish ({ending.detail})"
    elif ending.detail.startswith("max_seconds"):
        reason = "it was stopped by `max_seconds`"
    if reason:
        raise NegotiationError("GBE423", session=start.session, reason=reason)


def _refuse_places_outside(paths: Iterable[str]) -> None:
    """Refuse a record with a path outside of the project: a lock may come from a foreign branch."""
    outside = [path for path in paths if Path(path).is_absolute() or ".." in Path(path).parts]
    if outside:
        raise BuildError("GBE222", reason=f"{outside[0]!r} is not a path in the project")


def _config_of(kept: RecordedSession, root: Path, present: ResolvedBuild) -> ResolvedBuild:
    """Return the configuration of the session for the copy in `root`; one answer at a time, without a cache.

    The lock may come from a foreign branch. Therefore the settings that say which programs run, and where, are those of the
    project now, and no model is opened by a name from the lock.
    """
    start = kept.start
    llm = replace(start.settings.llm, model=RULES, use_cache=False, concurrency=1)
    gate = replace(present.settings.gate, allow_unverified=start.settings.gate.allow_unverified)
    limits = replace(start.budget, max_seconds=0.0)
    said = present.settings
    found = replace(start.settings, llm=llm, gate=gate, budget=limits, artifacts=said.artifacts, powers=said.powers)
    return ResolvedBuild(
        root=str(root),
        paths=tuple(str(root / path) for path in start.paths),
        settings=found,
        enable_agents=True,
        session=start.session,
        emit_artifacts=start.has_artifacts,
    )


# --- the replay -------------------------------------------------------------------------------


def _differences(kept: RecordedSession, answers: Iterable[RecordedAnswer], config: ResolvedBuild) -> Iterator[str]:
    """Run the session in the copy, and yield every difference from the record as part of a sentence."""
    start = kept.start
    project = Project.read(config, cache=False)
    moved = sorted(
        path for path in {*start.base, *project.digests} if start.base.get(path) != project.digests.get(path)
    )
    if moved:
        reason = f"{', '.join(moved)} {'is' if len(moved) == 1 else 'are'} not as it left them"
        raise NegotiationError("GBE423", session=start.session, reason=reason)
    with _backend_of(kept, answers) as backend:
        agents = backend.activate(config, project.definitions, project.order.order)
        negotiation = NegotiationSession(config, MessageBus(history=0), backend=backend)
        gate = Gate(project, config, choose_sandbox(config.settings.gate.isolation, Path(config.root)))
        try:
            negotiation.analyze(agents, project)
            outcome = negotiation.run(project, agents, detect_conflicts(project), gate)
        except NotJudgedError:
            raise
        except GraphBusError as error:
            yield f"it does not come to its end: {error.sentence.rstrip('.')}"
            return
    yield from _different_record(kept, load_session(config.artifacts_dir, start.session))
    report = gate.check_tree(outcome.workspace) if outcome.workspace.changed_files() else None
    if report and not report.passed:
        yield "its changes do not pass the gate together"
        return
    landed = apply_session(config, outcome.negotiations, outcome.workspace, report)
    files = {file.path: file.sha256_after for file in landed.files}
    yield from (
        f"{path} has other bytes" for path in sorted({*files, *kept.after}) if files.get(path) != kept.after.get(path)
    )
    if kept.artifacts:
        manifest = writing.save_artifacts(
            Path(config.artifacts_dir), describe_project(landed.project, history_of(outcome.negotiations, landed.files))
        )
        yield from (
            f"the artifact {name} has other bytes"
            for name, digest in sorted(manifest.artifacts.items())
            if kept.artifacts.get(name) != digest and (name != "negotiations.json" or _has_logs(_decoded(kept)))
        )


def _backend_of(kept: RecordedSession, answers: Iterable[RecordedAnswer]) -> Backend:
    """Return a backend in which the record answers for the models."""
    start = kept.start
    clients = None
    if start.models:
        known = {model: RecordedClient(model, start.prices.get(role)) for role, model in start.models.items()}
        clients = Clients(**{role: known[start.models.get(role, next(iter(known)))] for role in Clients._fields})
    backend = Backend(clients, environ={}, prices=start.prices if clients else None)
    backend.settled = start.settled
    backend.tape.load(answers)
    return backend


def _different_record(kept: RecordedSession, now: SessionRecord) -> Iterator[str]:
    """Compare byte for byte, but for what was written into the record after the negotiation.

    Both are compared as they would be written today: a record of an earlier version spells some fields in another way.
    """
    was = _decoded(kept)
    now = replace(now, is_applied=was.is_applied, refusal=was.refusal)
    before, after = (was, now) if _has_logs(was) else (_without_prose(was), _without_prose(now))
    lines = zip_longest(encode_artifact(before).splitlines(), encode_artifact(after).splitlines(), fillvalue=b"")
    for number, (one, other) in enumerate(lines, start=1):
        if one != other:
            told = one.decode(errors="replace").strip()
            yield f"the record in line {number}, which was {told or 'not there'}"
            return


def _has_logs(record: SessionRecord) -> bool:
    """Return False for the record of an earlier version, whose commits have no log of the negotiation."""
    return any(commit.negotiation_log for commit in record.negotiations.completed)


def _without_prose(record: SessionRecord) -> object:
    """Return a record as plain data, without the sentences that each version of GraphBus may word differently."""
    return _strip(msgspec.to_builtins(record))


def _strip(value: object) -> object:
    if isinstance(value, dict):
        return {key: _strip(each) for key, each in value.items() if key not in _PROSE}
    return [_strip(each) for each in value] if isinstance(value, list | tuple) else value
