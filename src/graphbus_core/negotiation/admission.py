"""What the limits let in: how much an agent may propose, and what a proposal may touch. Pure. Source: seed 002, 6.2 - 6.4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from posixpath import normpath
from typing import NamedTuple

from graphbus_core.model.config import SafetyConfig
from graphbus_core.model.proposals import Proposal


class Allowance(NamedTuple):
    """How many more proposals an agent may make in a round, and which setting says so."""

    limit: int
    reason: str


def allowance(agent: str, proposals: Iterable[Proposal], round_: int, safety: SafetyConfig) -> Allowance:
    """Give what is left of an agent's budget for a round; counter-proposals count like any other."""
    spent = Counter(proposal.round == round_ for proposal in proposals if proposal.src == agent)
    in_round = safety.max_proposals_per_round - spent[True]
    in_all = safety.max_proposals_per_agent - spent.total()
    if in_all <= in_round:
        return Allowance(max(in_all, 0), f"max_proposals_per_agent is {safety.max_proposals_per_agent}")
    return Allowance(max(in_round, 0), f"max_proposals_per_round is {safety.max_proposals_per_round}")


def refuse(proposal: Proposal, safety: SafetyConfig, changed: Collection[str], known: Collection[str]) -> str:
    """Say why a proposal may not go to the gate, naming the setting, or give the empty string.

    Args:
        changed: The files that the session has changed so far.
        known: The numbers of the earlier proposals.
    """
    if not proposal.code_changes:
        return "it changes nothing"
    protected = next((path for path in proposal.files if is_protected(path, safety.protected_files)), None)
    if protected:
        return f"{protected} is protected by protected_files"
    unknown = next((name for name in proposal.dependencies if name not in known), None)
    if unknown is not None:
        return f"it depends on {unknown or 'something unnamed'}, which is no earlier proposal"
    return refuse_files(proposal.files, safety, changed)


def refuse_files(files: Collection[str], safety: SafetyConfig, changed: Collection[str]) -> str:
    """Say why a change of these files would go beyond a limit, or give the empty string."""
    if len(files) > safety.max_file_changes_per_commit:
        limit = f"max_file_changes_per_commit is {safety.max_file_changes_per_commit}"
        return f"it changes {len(files)} files, and {limit}"
    total = len({*changed, *files})
    if total > safety.max_total_file_changes:
        return f"{total} files would be changed, and max_total_file_changes is {safety.max_total_file_changes}"
    return ""


def is_protected(path: str, patterns: Collection[str]) -> bool:
    """Tell whether a glob matches the path, its file name or one of the folders above it."""
    parts = normpath(path).split("/")
    names = {parts[-1], *("/".join(parts[: count + 1]) for count in range(len(parts)))}
    return any(fnmatchcase(name, normpath(pattern)) for pattern in patterns for name in names)
