"""Finds out what a path or address is, and opens it as a source of the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from graphbus_core import settings, store
from graphbus_core.errors import GraphBusError, UsageError
from graphbus_core.hosting.state import FILE as STATE_FILE
from graphbus_core.model.artifacts import Artifacts
from graphbus_core.model.config import RuntimeConfig, ServeConfig
from graphbus_core.negotiation.transcript import RECORD, list_sessions
from graphbus_core.view.comparing import Side
from graphbus_core.view.pages import Source
from graphbus_core.view.project import EMPTY
from graphbus_core.view.still import StillSource
from graphbus_core.view.trace_file import FileRecords, find_traces

_ARTIFACTS = ".graphbus"
_SQLITE = b"SQLite format 3\0"
_GRAPH_UNKNOWN = "The graph is not known, because there are no artifacts beside it."


class _Place(NamedTuple):
    """A build with its artifacts, and where the graph keeps its files."""

    folder: Path
    artifacts: Artifacts
    state_dir: Path
    redacted: Sequence[str]
    ledger: str
    note: str = ""


def open_source(what: str, other: str = "") -> Source:
    """Open what a person wants to look at.

    Args:
        what: A trace file, a folder with artifacts, a session (its folder, or its name), an SQLite ledger, or `nats://…`.
        other: A second trace or folder, to compare with; empty: what lies beside the first one.

    Raises:
        UsageError: GBE101, there is no such thing.
        ArtifactError: The artifacts cannot be read.
        RunError: A ledger cannot be opened.
    """
    if "://" in what:
        return _open_ledger(what, _find_place(Path(_ARTIFACTS)))
    path = Path(what)
    sessions = list_sessions(_ARTIFACTS)
    if what in sessions and not path.exists():
        path = Path(_ARTIFACTS, "sessions", what)
    if not path.exists():
        raise UsageError("GBE101", path=what)
    if path.is_file() and path.name == RECORD:
        path = path.parent
    if path.is_dir() and (path / RECORD).is_file():
        place = _find_place(path.parent.parent)
        return StillSource("negotiation", path.name, place.artifacts, place.folder, session=path.name, note=place.note)
    if path.is_dir():
        return _open_folder(path, other)
    if _begins_with(path, _SQLITE):
        return _open_ledger(str(path), _find_place(_artifacts_beside(path)))
    return _open_trace(path, other)


def _open_folder(path: Path, other: str) -> Source:
    """Open a folder with artifacts: its ledger if the settings name one and it exists, else its trace."""
    place = _place_of(path, store.load(path))
    if place.ledger and (place.state_dir / STATE_FILE).exists():
        return _open_ledger(place.ledger if "://" in place.ledger else str(place.state_dir / STATE_FILE), place)
    traces = find_traces(place.state_dir, place.folder.resolve().parent)
    sides: dict[str, Side] = {**traces}
    if other:
        sides = {str(path): place.artifacts, other: _side_of(other)}
    source = StillSource(
        "trace" if traces else "artifacts",
        str(path),
        place.artifacts,
        place.folder,
        records=list(traces.values())[-1] if traces else None,
        state_dir=place.state_dir,
        sides=sides,
        redacted=place.redacted,
    )
    source.start()
    return source


def _open_trace(path: Path, other: str) -> Source:
    """Open a trace file, with the graph that lies beside it."""
    place = _find_place(_artifacts_beside(path))
    records = FileRecords(path, str(place.folder.resolve().parent))
    sides: dict[str, Side] = {**find_traces(path.parent)}
    if other:
        sides = {str(path): records, other: _side_of(other)}
    source = StillSource(
        "trace",
        str(path),
        place.artifacts,
        place.folder,
        records=records,
        state_dir=path.parent,
        sides={name: side for name, side in sides.items() if not isinstance(side, FileRecords) or side.is_readable()},
        redacted=place.redacted,
        note=place.note,
    )
    source.start()
    return source


def _open_ledger(address: str, place: _Place) -> Source:
    """Open a ledger, and begin to look at it."""
    from graphbus_core.view.ledgers import FileReader, LedgerSource, NatsReader

    reader = NatsReader(address) if "://" in address else FileReader(address)
    source = LedgerSource(reader, place.artifacts, place.folder, place.redacted)
    source.pulse.start()
    return source


def _side_of(what: str) -> Side:
    """Return what is compared with: the artifacts in a folder, or a trace file; raise GBE101 if there is neither."""
    path = Path(what)
    if path.is_dir():
        return store.load(path)
    if not path.is_file():
        raise UsageError("GBE101", path=what)
    return FileRecords(path)


def _find_place(folder: Path) -> _Place:
    """Return the build in a folder; without artifacts that can be read, an empty one, and a note that says so."""
    try:
        return _place_of(folder, store.load(folder))
    except GraphBusError as error:
        note = _GRAPH_UNKNOWN if error.code == "GBE501" else f"The graph is not known: {error.sentence}"
        return _Place(folder, EMPTY, folder / "state", ServeConfig().redact, "", note)


def _place_of(folder: Path, artifacts: Artifacts) -> _Place:
    config = settings.resolve_run(RuntimeConfig(artifacts=str(folder)))
    return _Place(folder, artifacts, Path(config.state_dir), config.settings.serve.redact, config.settings.ledger)


def _artifacts_beside(path: Path) -> Path:
    """Return the folder of the artifacts of a file in a state folder: the folder above it, or the usual one."""
    above = path.resolve().parent.parent
    return above if store.has_artifacts(above) else Path(_ARTIFACTS)


def _begins_with(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(mark)) == mark
