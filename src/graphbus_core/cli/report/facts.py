"""The facts of a report as JSON: what the page shows, for programs."""

from __future__ import annotations

import msgspec

from graphbus_core.cli.report.story import Case, Story


def facts(story: Story) -> bytes:
    """Give one JSON document in ASCII, its keys in a fixed order."""
    import json

    record, ending = story.record, story.record.negotiations.ending
    document = {
        "generator": "GraphBus report",
        "session": record.session,
        "outcome": {
            "ending": msgspec.to_builtins(ending),
            "is_applied": record.is_applied,
            "fate": story.fate,
            "refusal": record.refusal,
            "commits": [commit.commit_id for commit in record.negotiations.completed],
            "files": sorted({path for commit in record.negotiations.completed for path in commit.files_modified}),
        },
        "intent": record.intent,
        "backend": record.backend,
        "models": record.models,
        "agents": story.agents,
        "arbiters": record.arbiters,
        "edges": None if story.edges is None else [msgspec.to_builtins(edge) for edge in story.edges],
        "cost": {"spent": _whole(record.spent), "by_proposal_usd": record.costs},
        "rounds": [
            {
                "round": number,
                "proposals": [case.name for case in story.cases if case.proposal.round == number],
                "notes": [{"agent": note.agent, "text": note.text} for note in story.notes if note.round == number],
            }
            for number in story.rounds
        ],
        "proposals": [_case(case) for case in story.cases],
    }
    return (json.dumps(document, indent=2) + "\n").encode("ascii")


def _whole(struct: msgspec.Struct) -> dict[str, object]:
    """Give a struct with its defaults."""
    found = {name: getattr(struct, name) for name in struct.__struct_fields__}
    return {name: _whole(value) if isinstance(value, msgspec.Struct) else value for name, value in found.items()}


def _case(case: Case) -> dict[str, object]:
    story: dict[str, object] = msgspec.to_builtins(case.record)
    return {"id": case.name, **story, "climbs": [msgspec.to_builtins(report) for report in case.climbs]}
