"""The events of a session in their order, one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from graphbus_core.cli.console import paint, plain
from graphbus_core.negotiation.transcript import Said

_KIND_WIDTH = 10


def line_of(event: Said) -> str:
    """Give an event as a line: its kind, and what is worth knowing of it."""
    kind = event.topic.rpartition("/")[2]
    try:
        told = _TOLD.get(kind, _as_it_is)(event.payload)
    except (KeyError, TypeError, AttributeError):  # of another version, or cut for the bus
        told = _as_it_is(event.payload)
    return f"{paint(kind.ljust(_KIND_WIDTH), 'dim')}  {plain(' '.join(told.split()))}"


def _as_it_is(payload: Any) -> str:
    return msgspec.json.encode(payload).decode()


def _started(payload: Mapping[str, Any]) -> str:
    agents = payload.get("agents", ())
    return ", ".join(agents) if isinstance(agents, list) else _as_it_is(payload)


def _proposed(payload: Mapping[str, Any]) -> str:
    proposal = payload["proposal"]
    return f"{proposal['proposal_id']} {proposal['src']}: {proposal.get('title') or proposal['intent']}"


def _gated(payload: Mapping[str, Any]) -> str:
    report = payload["report"]
    failed = [rung for rung in report["rungs"] if rung["status"] == "failed"]
    why = " ".join(f"{rung.get('code', rung['rung'])} {rung.get('message', '')}" for rung in failed)
    return f"{payload['proposal_id']} {'passed' if report['passed'] else f'refused: {why}'}"


def _evaluated(payload: Mapping[str, Any]) -> str:
    vote = payload["evaluation"]
    return f"{vote['proposal_id']} {vote['evaluator']}: {vote['decision']}{_because(vote.get('reasoning'))}"


def _arbitrated(payload: Mapping[str, Any]) -> str:
    vote = payload["evaluation"]
    count = f"{payload['accepts']} for, {payload['rejects']} against"
    return (
        f"{payload['proposal_id']} {payload['arbiter']} ({count}): {vote['decision']}{_because(vote.get('reasoning'))}"
    )


def _committed(payload: Mapping[str, Any]) -> str:
    commit = payload["commit"]
    return f"{commit['proposal_id']} {commit['commit_id']}: {commit['consensus_type']}, {', '.join(commit['files_modified'])}"


def _finished(payload: Mapping[str, Any]) -> str:
    ending = payload["ending"]
    return f"{ending['reason'].replace('_', ' ')}{_because(ending.get('detail'))}"


def _because(reason: object) -> str:
    return f": {reason}" if reason else ""


def _of(*keys: str) -> Callable[[Mapping[str, Any]], str]:
    """Tell the values of these keys, the last one as a reason."""

    def told(payload: Mapping[str, Any]) -> str:
        *first, last = (payload.get(key, "") for key in keys)
        return " ".join(str(value) for value in first) + _because(last)

    return told


_TOLD: dict[str, Callable[[Any], str]] = {
    "Started": _started,
    "Round": lambda payload: str(payload["round"]),
    "Proposed": _proposed,
    "Dropped": _of("agent", "count", "reason"),
    "Failed": _of("agent", "task", "reason"),
    "Gated": _gated,
    "Merged": lambda payload: f"{payload['proposal_id']} into {', '.join(payload['files'])}",
    "SentBack": _of("proposal_id", "reason"),
    "Evaluated": _evaluated,
    "Postponed": _of("proposal_id", "status", "reason"),
    "Arbitrated": _arbitrated,
    "Reviewed": _of("proposal_id", "verdict", "reason"),
    "Committed": _committed,
    "Rejected": _of("proposal_id", "status", "reason"),
    "Finished": _finished,
}


def lines_of(said: tuple[Said, ...]) -> Iterator[str]:
    """Give all of them."""
    return map(line_of, said)
