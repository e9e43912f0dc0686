"""What the rules find, for people and for agents."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules import REGISTER, check
from graphbus_core.compiler.rules.again import check_again
from graphbus_core.model.findings import Finding
from graphbus_core.negotiation.rule_agent import matching_words


def find(project: Project) -> tuple[Finding, ...]:
    """Give what the rules find, as far as the settings select it."""
    return check(project, wiring=project.wiring)


def find_for_agents(project: Project) -> tuple[Finding, ...]:
    """Give what the rules find, and of the rules that are off by default what the intent or the goals ask for."""
    return _for_agents(project, _look(project))


class _Looked(msgspec.Struct, frozen=True):
    """What the rules find: those that are reported, and all that can be mended where something is wished for."""

    reported: tuple[Finding, ...]
    fixable: tuple[Finding, ...] = ()


def _look(project: Project) -> _Looked:
    return _Looked(find(project), check(project, all_fixable=True) if _wishes(project) else ())


def _look_again(after: Project, before: Project, looked: _Looked) -> _Looked:
    fixable = check_again(after, before, looked.fixable, all_fixable=True) if _wishes(after) else ()
    return _Looked(check_again(after, before, looked.reported), fixable)


def _wishes(project: Project) -> str:
    settings = project.config.settings
    return " ".join((settings.intent, *settings.refactoring_goals))


def _for_agents(project: Project, looked: _Looked) -> tuple[Finding, ...]:
    keys = {finding.key for finding in looked.reported}
    others = (finding for finding in looked.fixable if finding.key not in keys)
    wishes = _wishes(project)
    wished = (finding for finding in others if matching_words(wishes, REGISTER[finding.code].title))
    return (*looked.reported, *wished)


class Found:
    """What the rules find for agents, once for each project, which never changes."""

    def __init__(self) -> None:
        self._looked: WeakKeyDictionary[Project, _Looked] = WeakKeyDictionary()
        self._known: WeakKeyDictionary[Project, tuple[Finding, ...]] = WeakKeyDictionary()

    def of(self, project: Project, before: Project | None = None) -> tuple[Finding, ...]:
        """Give the findings.

        Args:
            project: Where.
            before: The project that it came of by a change: then only what the change concerns is looked at.
        """
        known = self._known.get(project)
        if known is None:
            known = self._known[project] = _for_agents(project, self._look(project, before))
        return known

    def _look(self, project: Project, before: Project | None) -> _Looked:
        looked = self._looked.get(project)
        if looked is None and before is not None:
            looked = _look_again(project, before, self._look(before, None))
        elif looked is None:
            looked = _look(project)
        self._looked[project] = looked
        return looked
