"""The folder of a session while it runs, and how `--resume` continues a session after Ctrl-C or a kill.

session.json    written before the first question: the inputs of the session
seal            signature of session.json with a key of this user: only a session that this user began here is resumed
answers.jsonl   every answer of a model in the order of arrival, each with a signature like that
record.json     written at the end; a session without it was killed
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from graphbus_core import settings
from graphbus_core.compiler.project import Project
from graphbus_core.editing.promotion import fate_of
from graphbus_core.errors import NegotiationError, Place, UsageError
from graphbus_core.llm.providers import is_cut, recorded_name
from graphbus_core.llm.recorded import RecordedAnswer, Tape, decode_answers, drop_unusable, encode_answers
from graphbus_core.model.config import Budget, BuildConfig, LLMConfig, ResolvedBuild, Settings
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.spending import Price
from graphbus_core.negotiation.agents import ActiveAgents
from graphbus_core.negotiation.freshness import AgentInputs, describe_models
from graphbus_core.negotiation.transcript import (
    RECORD,
    TRANSCRIPT,
    SessionRecord,
    TranscriptEvent,
    claim_session,
    list_sessions,
    load_session,
    read_session_document,
    read_session_file,
    refuse_file_errors,
    release_session,
    save_session,
    sessions_dir,
)
from graphbus_core.store.cache import seal_of
from graphbus_core.store.folders import Folder, read_plain
from graphbus_core.store.writing import encode_artifact, write_atomic

START_VERSION = 1
_START, _ANSWERS, _SEAL = "session.json", "answers.jsonl", "seal"
_CLAIM = "negotiating"
_OPERATIONAL_FIELDS = (
    "providers",
    "timeout_s",
    "first_token_timeout_s",
    "max_attempts",
    "concurrency",
    "requests_per_minute",
    "use_cache",
    "pass_env",
)
"""Fields of `LLMConfig` on which no answer depends: they may differ when a session is resumed."""


_MODEL_FIELDS = ("model", "proposer", "evaluator", "arbiter")


class SessionStart(msgspec.Struct, frozen=True, kw_only=True):
    """The content of session.json: the inputs of a session.

    Attributes:
        paths: The paths of the build, relative to the project root.
        settings: The settings of the session, options of the command line included, as `replayable_settings` returns them.
        project_settings: Digest of the settings in pyproject.toml.
        models: Role -> `"provider:name"`; empty when rules negotiate.
        prices: Role -> dollars for a million tokens; null if not known.
        budget: The limits of money and time at its start.
        base: Source file -> its sha256 at its start.
        settled: Agent -> the inputs on which it had settled; it was not asked while its inputs were these.
        has_artifacts: True for a build, False for `graphbus negotiate`.
        is_reviewed: True if a person decided on each change.
        makes_commits: True if its accepted proposals become git commits.
    """

    schema_version: int
    session: str
    paths: tuple[str, ...]
    settings: Settings
    project_settings: str
    models: dict[str, str]
    prices: dict[str, Price | None]
    budget: Budget
    base: dict[str, str]
    settled: dict[str, AgentInputs] = {}
    has_artifacts: bool = True
    is_reviewed: bool = False
    makes_commits: bool = False


def replayable_settings(found: Settings) -> Settings:
    """Return the settings with the defaults for the budget and for access to models, on which no answer depends.

    Of a program that is a model, the folders are left out: session.json is passed on, e.g. to ask why a session failed.
    """
    defaults = LLMConfig()
    llm = replace(found.llm, **{name: getattr(defaults, name) for name in _OPERATIONAL_FIELDS})
    llm = replace(llm, **{name: recorded_name(getattr(llm, name)) for name in _MODEL_FIELDS})
    return replace(found, budget=Budget(), llm=llm)


def digest_of_settings(found: Settings) -> str:
    """Return the sha256 of the settings on which answers depend."""
    return sha256_hex(msgspec.json.encode(replayable_settings(found), order="sorted"))


def start_of(
    config: ResolvedBuild, session: str, agents: ActiveAgents, project: Project, settled: Mapping[str, AgentInputs]
) -> SessionStart:
    """Return the content of session.json for a session that starts with these settings, agents and sources.

    Raises:
        UsageError: pyproject.toml, which is read again here, is not valid.
    """
    return SessionStart(
        schema_version=START_VERSION,
        session=session,
        paths=tuple(os.path.relpath(path, config.root) for path in config.paths),
        settings=replayable_settings(config.settings),
        project_settings=digest_of_settings(settings.load(Path(config.root))),
        models=agents.models,
        prices=dict(agents.prices),
        budget=config.settings.budget,
        base=dict(sorted(project.digests.items())),
        settled=dict(settled),
        has_artifacts=config.emit_artifacts,
        is_reviewed=config.is_reviewed,
        makes_commits=config.makes_commits,
    )


class SessionFolder:
    """The folder of one session, `.graphbus/sessions/S001`. A dry run gets a name, and writes no folder.

    Attributes:
        session: The name of the session; empty before `begin`.
    """

    def __init__(self, config: ResolvedBuild) -> None:
        self._config = config
        self._is_written = not config.dry_run
        self.session = ""

    @property
    def _folder(self) -> Path:
        return sessions_dir(self._config.artifacts_dir) / self.session

    def begin(
        self, agents: ActiveAgents, project: Project, tape: Tape, settled: Mapping[str, AgentInputs]
    ) -> Mapping[str, AgentInputs]:
        """Choose a name for the session, or find the one to resume; write session.json, and save every answer from now on.

        Args:
            tape: Receives the recorded answers of a resumed session, and saves each new one.
            settled: Agent -> the inputs on which it has settled and need not be asked.

        Returns:
            `settled`; for a resumed session the one that it started with.

        Raises:
            NegotiationError: GBE402 or GBE408, the name cannot be used; GBE407, the folder cannot be written; GBE421, GBE422 or
                GBE427, no session can be resumed.
        """
        config = self._config
        if config.is_resumed:
            start = _find_interrupted(config)
            what = _describe_difference(start, start_of(config, start.session, agents, project, start.settled))
            if what:
                raise NegotiationError("GBE422", session=start.session, what=what)
            kept = drop_unusable(_load_sealed_answers(config, start.session))
            tape.load(kept)
            self.session, settled = start.session, start.settled
        else:
            self.session = claim_session(config.artifacts_dir, config.session, is_kept=self._is_written)
        if self._is_written:
            with refuse_file_errors(self.session, self._folder):
                if config.is_resumed:
                    _remove_files(self._folder, RECORD, TRANSCRIPT)
                    place = _identify_place(config, self.session)
                    sealed = encode_answers(answer.with_seal(place) for answer in kept)
                    write_atomic(self._folder / _ANSWERS, sealed)
                else:
                    self._write_start(start_of(config, self.session, agents, project, settled))
                if agents.are_recorded:
                    tape.write_to(self._folder / _ANSWERS, _identify_place(config, self.session))
        return settled

    def _write_start(self, start: SessionStart) -> None:
        data = encode_artifact(start)
        write_atomic(self._folder / _SEAL, _seal_of(self._config, self.session, data))
        write_atomic(self._folder / _START, data)

    def save(self, record: SessionRecord, events: Iterable[TranscriptEvent]) -> None:
        """Write the record and the transcript; in a dry run nothing.

        Args:
            record: The outcome of the session.
            events: The events of the transcript.

        Raises:
            NegotiationError: GBE402, the name cannot be used; GBE407, the folder cannot be written.
        """
        if self._is_written:
            save_session(self._config.artifacts_dir, record, events)

    def release(self) -> None:
        """Give up the claim on the name. The files of a session without a record and without answers are deleted first."""
        if not (self._is_written and self.session):
            return
        if not (self._folder / RECORD).exists() and not load_answers(self._config.artifacts_dir, self.session):
            _remove_files(self._folder, _START, _SEAL, _ANSWERS)
        release_session(self._config.artifacts_dir, self.session)


def _remove_files(folder: Path, *names: str) -> None:
    """Delete files of a session folder without following links; missing ones are skipped."""
    with Folder.at(folder) as opened:
        for name in names:
            opened.remove(name)


def _describe_difference(start: SessionStart, now: SessionStart) -> str:
    """Return what has changed since a session began, as part of a sentence: files, else the model, else settings; or empty."""
    moved = sorted(path for path in {*start.base, *now.base} if start.base.get(path) != now.base.get(path))
    if moved:
        return f"{', '.join(moved)} {'has' if len(moved) == 1 else 'have'} changed"
    if start.models != now.models:
        was, is_now = (describe_models(each.models) if each.models else "the rules" for each in (start, now))
        return f"the model has changed from {was} to {is_now}"
    names = sorted(Settings.__struct_fields__)
    changed = [name for name in names if getattr(start.settings, name) != getattr(now.settings, name)]
    return f"these settings have changed: {', '.join(changed)}" if changed else ""


# --- the files of an interrupted session --------------------------------------------------


def load_start(artifacts_dir: str | Path, session: str) -> SessionStart:
    """Read session.json.

    Raises:
        NegotiationError: GBE405, it cannot be read, or is of another version.
    """
    return read_session_document(sessions_dir(artifacts_dir) / session / _START, session, SessionStart, START_VERSION)


def load_answers(artifacts_dir: str | Path, session: str) -> tuple[RecordedAnswer, ...]:
    """Return every answer in answers.jsonl, unusable ones included, without checking the signatures; empty if no model was asked.

    Raises:
        NegotiationError: GBE405, it cannot be read.
    """
    answers = _read_answers(artifacts_dir, session)
    return tuple(answer.without_seal() for answer in answers if not answer.is_rejected)


def _read_answers(artifacts_dir: str | Path, session: str) -> tuple[RecordedAnswer, ...]:
    """Read answers.jsonl with the signatures, unchecked; empty if there is no such file."""
    path = sessions_dir(artifacts_dir) / session / _ANSWERS
    return read_session_file(path, session, decode_answers) if os.path.lexists(path) else ()


def _find_interrupted(config: ResolvedBuild) -> SessionStart:
    """Return the start of the last session if that was interrupted, see `_is_interrupted`.

    Raises:
        NegotiationError: GBE421, there is no session, or the last one finished; GBE405, it cannot be read; GBE427, its signature
            is not from this user and place, so a foreign file could choose settings and answers.
    """
    folder = sessions_dir(config.artifacts_dir)
    begun = sorted(folder.glob(f"*/{_START}"), key=lambda path: (path.lstat().st_mtime_ns, path.parent.name))
    if not begun or not _is_interrupted(config, begun[-1].parent.name):
        raise NegotiationError("GBE421", folder=config.artifacts_dir)
    session, place = begun[-1].parent.name, begun[-1].parent
    start = load_start(config.artifacts_dir, session)
    try:
        data, seal = read_plain(place / _START), read_plain(place / _SEAL)
    except OSError:  # missing, a link, or far too large
        data = seal = b""
    if not seal or seal != _seal_of(config, session, data):
        raise NegotiationError("GBE427", session=session, where=Place(str(place)))
    return start


def _load_sealed_answers(config: ResolvedBuild, session: str) -> tuple[RecordedAnswer, ...]:
    """Return the answers of an interrupted session; raise GBE427 if one is not signed by this user for this place."""
    answers, place = _read_answers(config.artifacts_dir, session), _identify_place(config, session)
    if any(answer != answer.with_seal(place) for answer in answers):
        raise NegotiationError(
            "GBE427", session=session, where=Place(str(sessions_dir(config.artifacts_dir) / session))
        )
    return tuple(answer.without_seal() for answer in answers)


def _seal_of(config: ResolvedBuild, session: str, data: bytes) -> bytes:
    """Return the signature of session.json, which depends on its bytes, the user, the project folder and the session."""
    return seal_of("session", _identify_place(config, session), data).encode()


def _identify_place(config: ResolvedBuild, session: str) -> str:
    """Return the text that ties a signature to the project folder and the session."""
    return f"{os.path.realpath(config.root)}\0{session}"


def _is_interrupted(config: ResolvedBuild, session: str) -> bool:
    """Return whether a session can be resumed.

    It has no record, was stopped by hand or by an error, or was killed before its accepted changes were written or refused.
    """
    if session not in list_sessions(config.artifacts_dir):
        return True
    record = load_session(config.artifacts_dir, session)
    if record.is_applied or fate_of(config, session):
        return False
    negotiations = record.negotiations
    return negotiations.ending.reason in {"manual", "error"} or bool(negotiations.completed and not record.refusal)


def complete_request(request: BuildConfig) -> BuildConfig:
    """Return a request for a negotiation, checked; one with `--resume` gets the settings of the interrupted session.

    Raises:
        UsageError: GBE132, it is a frozen build, which does not negotiate.
        NegotiationError: GBE421, there is nothing to resume; GBE422, its settings differ from those of the session; GBE405 or
            GBE427, the session cannot be read or is not from this user and place.
    """
    if request.is_frozen:
        raise UsageError("GBE132", option="--frozen", other="--enable-agents", reason="a frozen build asks no agents")
    return resume_request(request) if request.is_resumed else request


def resume_request(request: BuildConfig) -> BuildConfig:
    """Return the request with the settings of the interrupted session, so that `--resume` needs no other option.

    Raises:
        NegotiationError: As `complete_request`.
    """
    config = settings.resolve_build(request)
    start = _find_interrupted(config)
    was, of_project = start.settings, settings.load(Path(config.root))
    present = request.settings or of_project
    differences = {
        "[tool.graphbus] has changed": start.project_settings != digest_of_settings(of_project),
        "the intent has changed": request.intent not in ("", was.intent),
        "the number of rounds has changed": request.rounds not in (None, was.safety.max_negotiation_rounds),
        "the model has changed": recorded_name(request.model) not in ("", was.llm.model),
        "the model that votes has changed": recorded_name(request.voters) not in ("", was.llm.evaluator),
        "--review was dropped": start.is_reviewed and not request.is_reviewed,
    }
    for what, is_different in differences.items():
        if is_different:
            raise NegotiationError("GBE422", session=start.session, what=what)
    budget = replace(start.budget, max_usd=request.max_usd) if request.max_usd is not None else start.budget
    llm = replace(was.llm, **{name: getattr(present.llm, name) for name in _OPERATIONAL_FIELDS})
    llm = replace(llm, **_find_programs(start, request, present.llm))
    return replace(
        request,
        makes_commits=request.makes_commits or start.makes_commits,
        paths=tuple(str(Path(config.root, path)) for path in start.paths),
        root_package="",
        settings=replace(was, budget=budget, llm=llm),
        emit_artifacts=start.has_artifacts,
        rounds=None,
        intent="",
        model="",
        voters="",
        max_usd=None,
    )


def _find_programs(start: SessionStart, request: BuildConfig, present: LLMConfig) -> dict[str, str]:
    """Return the models of the session whose folders session.json leaves out, as the command line or the settings name them.

    Raises:
        NegotiationError: GBE422, neither does.
    """
    asked_for = {"model": request.model, "evaluator": request.voters, "arbiter": request.voters}
    found: dict[str, str] = {}
    for name in _MODEL_FIELDS:
        recorded = getattr(start.settings.llm, name)
        if is_cut(recorded):
            named = [
                each for each in (asked_for.get(name, ""), getattr(present, name)) if recorded_name(each) == recorded
            ]
            if not named:
                again = {
                    "model": "pass the same --model again",
                    "proposer": "name it as `proposer` in [tool.graphbus.llm]",
                }
                how = again.get(name, "pass the same --voters again")
                what = f"the folder of the program in `{recorded}` is not recorded, so {how}"
                raise NegotiationError("GBE422", session=start.session, what=what)
            found[name] = named[0]
    return found


# --- one negotiation of a project at a time --------------------------------------------------


def claim_project(config: ResolvedBuild) -> int:
    """Lock `.graphbus/negotiating`, so that only one process at a time negotiates in this project.

    Returns:
        The file descriptor of the lock. The lock is released when it is closed or this process ends.

    Raises:
        NegotiationError: GBE420, another process negotiates; GBE407, the file cannot be written.
    """
    path = Path(config.artifacts_dir, _CLAIM)
    with refuse_file_errors(config.session or "(new)", path), Folder.at(config.artifacts_dir, make=True) as home:
        handle = home.open_own(_CLAIM, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        process = os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(handle)
        raise NegotiationError("GBE420", process=process, where=Place(str(path))) from None
    with suppress(OSError):  # the process id is only shown in the error of another process
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle
