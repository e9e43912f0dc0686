"""Replays a session: recorded answers take the place of the models; engine, gate and promotion run as in a negotiation.

It all happens in a copy of the project, which is deleted at the end. No network is used, and the project itself is not written.
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
from graphbus_core.negotiation.lock import RESTORE_LOCK, RecordedSession, load_lock, pack_bytes, unpack_bytes
from graphbus_core.negotiation.sessions import SessionStart, load_answers, load_start
from graphbus_core.negotiation.transcript import RECORD_VERSION, SessionRecord, list_sessions, load_session
from graphbus_core.store import writing
from graphbus_core.store.reading import decode_versioned
from graphbus_core.store.writing import encode_artifact

_OF_VERSION = frozenset({"negotiation_log", "detail", "message", "reasoning", "rungs", "removals", "diffs", "unusable"})
"""The keys of a record that depend on the version of GraphBus: sentences, rungs of the gate, and keys that are new."""
_RESTORE = "Restore the lock or the folder of the session, e.g. with `git checkout`, or negotiate again."


class ReplayResult(NamedTuple):
    """The result of a replay.

    Attributes:
        source: Where the record was found: its session folder, or `"the lock"`.
        requests: The number of recorded answers of models.
        files: The files that the recorded session changed.
        differences: What differs from the recording, each as part of a sentence; empty if every byte is equal. Of two different
            records only the first different line is named.
    """

    session: str
    source: str
    requests: int
    files: tuple[str, ...]
    differences: tuple[str, ...]


def replay_session(config: ResolvedBuild, session: str = "") -> ReplayResult:
    """Replay a session, and compare its record, the files that it changes and, if they are recorded, the artifacts.

    Args:
        session: Its name; empty for the session in the lock, or the last one if there is no lock.

    Raises:
        NegotiationError: GBE403 or GBE404, there is no such session; GBE405, it cannot be read; GBE423, it cannot be replayed.
        BuildError: GBE222, the lock cannot be read, or holds a path outside of the project.
        NotJudgedError: This machine was too busy to test a change.
    """
    kept, source = _find_recording(config, session)
    start = kept.start
    _refuse_unrepeatable_session(start, _decode_record(kept))
    answers = _decode_answers(kept)
    before = {path: unpack_bytes(text) for path, text in kept.before.items()}
    _refuse_paths_outside_project([*before, *start.paths])
    try:
        with TrialTree(config.root, config.artifacts_dir).copy(before) as root:
            differences = tuple(_find_differences(kept, answers, _make_config_for_copy(kept, root, config)))
    except TrialImpossible as reason:
        raise NegotiationError(
            "GBE423",
            session=start.session,
            reason=f"the project cannot be copied: {reason}",
            advice="Replay it on a machine or in a folder where the project can be copied.",
        ) from None
    return ReplayResult(start.session, source, len(answers), tuple(sorted(kept.after)), differences)


# --- the record ------------------------------------------------------------------------------


def _find_recording(config: ResolvedBuild, session: str) -> tuple[RecordedSession, str]:
    """Return the recording of a session, and where it was found: in its folder if it has one, else in the lock.

    Without a name it is the session in the lock, or the last one if the lock has none.

    Raises:
        NegotiationError: GBE403 or GBE404, there is no such session; GBE405, it cannot be read.
        BuildError: GBE222, the lock cannot be read.
    """
    lock = load_lock(config)
    is_in_lock = bool(lock and lock.session and session in {"", lock.session.start.session})
    has_folder = bool(session) and session in list_sessions(config.artifacts_dir)
    if lock and lock.session and is_in_lock and not has_folder:
        return lock.session, "the lock"
    record = load_session(config.artifacts_dir, session)
    return _load_recording(config, record), f"sessions/{record.session}"


def _load_recording(config: ResolvedBuild, record: SessionRecord) -> RecordedSession:
    """Return the recording in the folder of a session; the files before and after are from the journal of promotions."""
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


def _decode_record(kept: RecordedSession) -> SessionRecord:
    """Return the record of a recording; raise GBE423 if it cannot be decoded."""
    try:
        return decode_versioned(unpack_bytes(kept.record), SessionRecord, RECORD_VERSION)
    except msgspec.DecodeError as error:
        reason = f"its record cannot be read ({error})"
        raise NegotiationError("GBE423", session=kept.start.session, reason=reason, advice=_RESTORE) from None


def _decode_answers(kept: RecordedSession) -> tuple[RecordedAnswer, ...]:
    """Return the answers of a recording, empty if the rules negotiated; raise GBE423 if they cannot be decoded."""
    try:
        return decode_answers(unpack_bytes(kept.answers)) if kept.answers else ()
    except msgspec.DecodeError as error:
        reason = f"its answers are damaged ({error})"
        raise NegotiationError("GBE423", session=kept.start.session, reason=reason, advice=_RESTORE) from None


def _refuse_unrepeatable_session(start: SessionStart, record: SessionRecord) -> None:
    """Raise GBE423 if the course of a session depended on something that is not recorded: a person, a stop, or the time."""
    ending = record.negotiations.ending
    reason = ""
    if start.is_reviewed:
        reason = "a person decided on its changes"
    elif ending.reason in {"manual", "error"}:
        reason = f"it did not finish ({ending.detail})"
    elif ending.detail.startswith("max_seconds"):
        reason = "it was stopped by `max_seconds`"
    if reason:
        advice = "Replay another session: one that ended by itself, without a reviewer and without `max_seconds`."
        raise NegotiationError("GBE423", session=start.session, reason=reason, advice=advice)


def _refuse_paths_outside_project(paths: Iterable[str]) -> None:
    """Raise GBE222 for a path outside of the project: the lock may be foreign, and these files will be written."""
    outside = [path for path in paths if Path(path).is_absolute() or ".." in Path(path).parts]
    if outside:
        raise BuildError("GBE222", reason=f"{outside[0]!r} is not a path in the project", advice=RESTORE_LOCK)


def _make_config_for_copy(kept: RecordedSession, root: Path, present: ResolvedBuild) -> ResolvedBuild:
    """Return the configuration of the recorded session for the copy of the project in `root`.

    The lock may come from a foreign branch, so it must not choose programs. Therefore the settings of the gate (except
    `allow_unverified`), the powers and the artifacts folder are those of the project now (`present`). Models are not asked: the
    rules take their place in the settings, and there is no time limit.
    """
    start = kept.start
    llm = replace(
        start.settings.llm, model=RULES, proposer="", evaluator="", arbiter="", use_cache=False, concurrency=1
    )
    gate = replace(present.settings.gate, allow_unverified=start.settings.gate.allow_unverified)
    limits = replace(start.budget, max_seconds=0.0)
    trusted = present.settings
    settings = replace(
        start.settings, llm=llm, gate=gate, budget=limits, artifacts=trusted.artifacts, powers=trusted.powers
    )
    return ResolvedBuild(
        root=str(root),
        paths=tuple(str(root / path) for path in start.paths),
        settings=settings,
        enable_agents=True,
        session=start.session,
        emit_artifacts=start.has_artifacts,
    )


# --- the replay -------------------------------------------------------------------------------


def _find_differences(kept: RecordedSession, answers: Iterable[RecordedAnswer], config: ResolvedBuild) -> Iterator[str]:
    """Run the session in the copy, and yield each difference from the recording as part of a sentence.

    If the replay fails, or the gate refuses its changes, that is the last difference.

    Raises:
        NegotiationError: GBE423, the source files are not those that the session started with.
        NotJudgedError: This machine was too busy to test a change.
    """
    start = kept.start
    project = Project.read(config, cache=False)
    moved = sorted(
        path for path in {*start.base, *project.digests} if start.base.get(path) != project.digests.get(path)
    )
    if moved:
        reason = f"the source files have changed since it ended ({', '.join(moved)})"
        advice = "Restore these files as they were after the session, e.g. with `git checkout`, or negotiate again."
        raise NegotiationError("GBE423", session=start.session, reason=reason, advice=advice)
    with _make_replaying_backend(kept, answers) as backend:
        agents = backend.activate(config, project.definitions, project.order.order)
        negotiation = NegotiationSession(config, MessageBus(history=0), backend=backend)
        gate = Gate(project, config, choose_sandbox(config.settings.gate.isolation, Path(config.root)))
        try:
            negotiation.analyze(agents, project)
            outcome = negotiation.run(project, agents, detect_conflicts(project), gate)
        except NotJudgedError:
            raise
        except GraphBusError as error:
            yield f"it did not finish: {error.sentence.rstrip('.')}"
            return
    yield from _find_record_difference(kept, load_session(config.artifacts_dir, start.session))
    report = gate.check_tree(outcome.workspace) if outcome.workspace.changed_files() else None
    if report and not report.passed:
        yield "its changes do not pass the gate together"
        return
    landed = apply_session(config, outcome.negotiations, outcome.workspace, report)
    files = {file.path: file.sha256_after for file in landed.files}
    yield from (
        f"{path} has different content"
        for path in sorted({*files, *kept.after})
        if files.get(path) != kept.after.get(path)
    )
    if kept.artifacts:
        manifest = writing.save_artifacts(
            Path(config.artifacts_dir), describe_project(landed.project, history_of(outcome.negotiations, landed.files))
        )
        yield from (
            f"the artifact {name} has different content"
            for name, digest in sorted(manifest.artifacts.items())
            if kept.artifacts.get(name) != digest and (name != "negotiations.json" or _is_of_this_version(kept))
        )


def _make_replaying_backend(kept: RecordedSession, answers: Iterable[RecordedAnswer]) -> Backend:
    """Return a backend whose models only repeat the recorded answers; for a session without models, one with rule agents."""
    start = kept.start
    clients = None
    if start.models:
        known = {model: RecordedClient(model, start.prices.get(role)) for role, model in start.models.items()}
        clients = Clients(**{role: known[start.models.get(role, next(iter(known)))] for role in Clients._fields})
    prices = start.prices if clients else None
    backend = Backend(clients, environ={}, prices=prices, starts_programs=False)
    backend.settled = start.settled
    backend.tape.load(answers)
    return backend


def _find_record_difference(kept: RecordedSession, now: SessionRecord) -> Iterator[str]:
    """Yield the first line in which the record of the replay differs from the recorded one; nothing if they are equal.

    Fields that are written after the negotiation are not compared. The recorded one is encoded again first, because earlier
    versions formatted some fields in another way. Of the record of an earlier version, what `_OF_VERSION` names is not compared.
    """
    was = _decode_record(kept)
    now = replace(now, is_applied=was.is_applied, refusal=was.refusal, diffs=now.diffs if was.diffs else {})
    is_recent = _is_of_this_version(kept)
    before, after = (was, now) if is_recent else (_without_fields_of_version(was), _without_fields_of_version(now))
    lines = zip_longest(encode_artifact(before).splitlines(), encode_artifact(after).splitlines(), fillvalue=b"")
    for number, (one, other) in enumerate(lines, start=1):
        if one != other:
            line = one.decode(errors="replace").strip()
            yield f"line {number} of the record was {line.rstrip(',') or 'missing'}"
            return


def _is_of_this_version(kept: RecordedSession) -> bool:
    """True for a record with the key `diffs`, which every record has had since diffs are recorded as voters see them."""
    return b'"diffs"' in unpack_bytes(kept.record)


def _without_fields_of_version(record: SessionRecord) -> object:
    """Return a record as plain data without the keys in `_OF_VERSION`."""
    return _strip_fields(msgspec.to_builtins(record))


def _strip_fields(value: object) -> object:
    """Return nested dicts and lists without the keys in `_OF_VERSION`."""
    if isinstance(value, dict):
        return {key: _strip_fields(each) for key, each in value.items() if key not in _OF_VERSION}
    return [_strip_fields(each) for each in value] if isinstance(value, list | tuple) else value
