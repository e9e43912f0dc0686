"""What the rules find, for people and for agents."""

from __future__ import annotations

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules import REGISTER, check
from graphbus_core.model.findings import Finding
from graphbus_core.negotiation.rule_agent import matching_words


def find(project: Project) -> tuple[Finding, ...]:
    """Give what the rules find, as far as the settings select it."""
    return check(project)


def find_for_agents(project: Project) -> tuple[Finding, ...]:
    """Give what the rules find, and of the rules that are off by default what the intent or the goals ask for."""
    settings = project.config.settings
    wishes = " ".join((settings.intent, *settings.refactoring_goals))
    found = find(project)
    if not wishes:
        return found
    keys = {finding.key for finding in found}
    others = (finding for finding in check(project, all_fixable=True) if finding.key not in keys)
    return (*found, *(finding for finding in others if matching_words(wishes, REGISTER[finding.code].title)))
