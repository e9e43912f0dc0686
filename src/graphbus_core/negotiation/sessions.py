"""The folder of a session while it runs, and how `--resume` continues a session after Ctrl-C or a kill.

session.json    written before the first question: the inputs of the session
seal            of session.json: only a session that this user's GraphBus began here is resumed
answers.jsonl   every answer of a model in the order of arrival, each sealed
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
from graphbus_core.llm.recorded import RecordedAnswer, Tape, decode_answers
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
_RUNNING = "negotiating"
_OPERATIONAL = ("providers", "timeout_s", "max_attempts", "concurrency", "requests_per_minute", "use_cache", "pass_env")
"""Settings of models on which no answer depends: they may differ when a session is resumed."""


class SessionStart(msgspec.Struct, frozen=True, kw_only=True):
    """session.json.

    Attributes:
        paths: The paths of the build, relative to the project root.
        settings: The settings of the session, with those of the command line, without limits of money and time.
        project_settings: Digest of the settings in pyproject.toml.
        models: Role -> `"provider:name"`; empty when rules negotiate.
        prices: Role -> dollars for a million tokens; null if not known.
        budget: The limits of money and time at its start.
        base: Source file -> its sha256.
        settled: Agent -> the inputs on which it had settled, so that it was not asked.
        has_artifacts: It was a build, not `graphbus negotiate`.
        is_reviewed: A person decided on each change.
        makes_commits: Its accepted proposals become git commits.
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
    """Return the settings on which answers depend: without limits of money and time, and without access to models."""
    plain = LLMConfig()
    llm = replace(found.llm, **{name: getattr(plain, name) for name in _OPERATIONAL})
    return replace(found, budget=Budget(), llm=llm)


def digest_of_settings(found: Settings) -> str:
    """Return the sha256 of the settings on which answers depend."""
    return sha256_hex(msgspec.json.encode(replayable_settings(found), order="sorted"))


def start_of(
    config: ResolvedBuild, session: str, agents: ActiveAgents, project: Project, settled: Mapping[str, AgentInputs]
) -> SessionStart:
    """Return the description of a session at its start."""
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
    """The folder of one session; a dry run only gives the session a name.

    Attributes:
        session: The name; empty before `begin`.
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
        """Take a name, and write down what the session rests on and, from now on, every answer.

        Args:
            settled: Agents that need not be asked as long as their inputs are these.

        Returns:
            The same; of a session that goes on, those of its beginning.

        Raises:
            NegotiationError: GBE402, GBE407 or GBE408, as `claim_session`; GBE421, GBE422 or GBE427, it cannot be resumed.
        """
        config = self._config
        if config.is_resumed:
            start = _find_interrupted(config)
            what = _what_moved(start, start_of(config, start.session, agents, project, start.settled))
            if what:
                raise NegotiationError("GBE422", session=start.session, what=what)
            tape.load(_own_answers(config, start.session))
            self.session, settled = start.session, start.settled
        else:
            self.session = claim_session(config.artifacts_dir, config.session, is_kept=self._is_written)
        if self._is_written:
            with refuse_file_errors(self.session, self._folder):
                if config.is_resumed:
                    _remove(self._folder, RECORD, TRANSCRIPT)
                else:
                    self._write_start(start_of(config, self.session, agents, project, settled))
                if agents.models:
                    tape.write_to(self._folder / _ANSWERS, _place_of(config, self.session))
        return settled

    def _write_start(self, start: SessionStart) -> None:
        data = encode_artifact(start)
        write_atomic(self._folder / _SEAL, _seal_of(self._config, self.session, data))
        write_atomic(self._folder / _START, data)

    def save(self, record: SessionRecord, said: Iterable[TranscriptEvent]) -> None:
        """Keep how it ended.

        Raises:
            NegotiationError: GBE402 or GBE407, as `save_session`.
        """
        if self._is_written:
            save_session(self._config.artifacts_dir, record, said)

    def release(self) -> None:
        """Free the name if nothing was kept under it and no answer was paid for."""
        if not (self._is_written and self.session):
            return
        if not (self._folder / RECORD).exists() and not load_answers(self._config.artifacts_dir, self.session):
            _remove(self._folder, _START, _SEAL, _ANSWERS)
        release_session(self._config.artifacts_dir, self.session)


def _remove(folder: Path, *names: str) -> None:
    with Folder.at(folder) as opened:
        for name in names:
            opened.remove(name)


def _what_moved(start: SessionStart, now: SessionStart) -> str:
    """Return what differs from when a session began; empty when nothing does."""
    moved = sorted(path for path in {*start.base, *now.base} if start.base.get(path) != now.base.get(path))
    if moved:
        return f"{', '.join(moved)} {'has' if len(moved) == 1 else 'have'} changed"
    if start.models != now.models:
        was, is_now = (describe_models(each.models) if each.models else "the rules" for each in (start, now))
        return f"the model has changed from {was} to {is_now}"
    names = sorted(Settings.__struct_fields__)
    changed = [name for name in names if getattr(start.settings, name) != getattr(now.settings, name)]
    return f"these settings have changed: {', '.join(changed)}" if changed else ""


# --- what is left of an interrupted session --------------------------------------------------


def load_start(artifacts_dir: str | Path, session: str) -> SessionStart:
    """Read session.json.

    Raises:
        NegotiationError: GBE405, it cannot be read, or is of another version.
    """
    return read_session_document(sessions_dir(artifacts_dir) / session / _START, session, SessionStart, START_VERSION)


def load_answers(artifacts_dir: str | Path, session: str) -> tuple[RecordedAnswer, ...]:
    """Read answers.jsonl without checking its seals; none when no model was asked.

    Raises:
        NegotiationError: GBE405, it cannot be read.
    """
    return tuple(answer.without_seal() for answer in _sealed_answers(artifacts_dir, session))


def _sealed_answers(artifacts_dir: str | Path, session: str) -> tuple[RecordedAnswer, ...]:
    path = sessions_dir(artifacts_dir) / session / _ANSWERS
    return read_session_file(path, session, decode_answers) if os.path.lexists(path) else ()


def _find_interrupted(config: ResolvedBuild) -> SessionStart:
    """Return the last session that was killed, interrupted or ended by an error, if nothing of it was written or refused.

    Raises:
        NegotiationError: GBE421, the last session came to its end, or there is none; GBE405, it cannot be read; GBE427, this
            user's GraphBus has not begun it here: it could speak for the models, and for the settings.
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


def _own_answers(config: ResolvedBuild, session: str) -> tuple[RecordedAnswer, ...]:
    """Return the answers of an interrupted session, if each was written down by this user's GraphBus."""
    answers, place = _sealed_answers(config.artifacts_dir, session), _place_of(config, session)
    if any(answer != answer.with_seal(place) for answer in answers):
        raise NegotiationError(
            "GBE427", session=session, where=Place(str(sessions_dir(config.artifacts_dir) / session))
        )
    return tuple(answer.without_seal() for answer in answers)


def _seal_of(config: ResolvedBuild, session: str, data: bytes) -> bytes:
    return seal_of("session", _place_of(config, session), data).encode()


def _place_of(config: ResolvedBuild, session: str) -> str:
    return f"{os.path.realpath(config.root)}\0{session}"


def _is_interrupted(config: ResolvedBuild, session: str) -> bool:
    if session not in list_sessions(config.artifacts_dir):
        return True
    record = load_session(config.artifacts_dir, session)
    if record.is_applied or fate_of(config, session):
        return False
    negotiations = record.negotiations
    return negotiations.ending.reason in {"manual", "error"} or bool(negotiations.completed and not record.refusal)


def complete_request(request: BuildConfig) -> BuildConfig:
    """Check a request for a negotiation, and complete one that resumes an interrupted session.

    Raises:
        UsageError: GBE132, a frozen build does not negotiate.
        NegotiationError: GBE421, there is nothing to resume; GBE422, another thing is asked for now; GBE405; GBE427.
    """
    if request.is_frozen:
        raise UsageError("GBE132", option="--frozen", other="--enable-agents", reason="a frozen build asks no agents")
    return resume_request(request) if request.is_resumed else request


def resume_request(request: BuildConfig) -> BuildConfig:
    """Return the request with the settings of the interrupted session, so that `--resume` needs no other option."""
    config = settings.resolve_build(request)
    start = _find_interrupted(config)
    was, of_project = start.settings, settings.load(Path(config.root))
    own = request.settings or of_project
    moved = {
        "[tool.graphbus] has changed": start.project_settings != digest_of_settings(of_project),
        "the intent has changed": request.intent not in ("", was.intent),
        "the number of rounds has changed": request.rounds not in (None, was.safety.max_negotiation_rounds),
        "the model has changed": request.model not in ("", was.llm.model),
        "--review was dropped": start.is_reviewed and not request.is_reviewed,
    }
    for what, has_moved in moved.items():
        if has_moved:
            raise NegotiationError("GBE422", session=start.session, what=what)
    budget = replace(start.budget, max_usd=request.max_usd) if request.max_usd is not None else start.budget
    llm = replace(was.llm, **{name: getattr(own.llm, name) for name in _OPERATIONAL})
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
        max_usd=None,
    )


# --- one negotiation of a project at a time --------------------------------------------------


def claim_project(config: ResolvedBuild) -> int:
    """Lock this project for one negotiation at a time.

    Returns:
        A file descriptor. Closing it, or any end of this process, releases the lock.

    Raises:
        NegotiationError: GBE420, another process negotiates; GBE407, the folder cannot be written.
    """
    path = Path(config.artifacts_dir, _RUNNING)
    with refuse_file_errors(config.session or "(new)", path), Folder.at(config.artifacts_dir, make=True) as home:
        handle = home.open_own(_RUNNING, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        process = os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(handle)
        raise NegotiationError("GBE420", process=process, where=Place(str(path))) from None
    with suppress(OSError):  # the number is only for people
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle
