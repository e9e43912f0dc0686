"""`graphbus check`: what is wrong between agents and within them, and what would mend it.

wiring      who sends what to whom, and what a handler needs       edges      rules on topics, payloads and dependencies
contracts   rules on schemas, calls and error shapes               bodies     rules on the code of an agent's own methods
misuse      what Python accepts and a graph cannot do              awaiting   answers that nothing awaits
offered     imports of what GraphBus does not have                 declared   topics with a type, and annotations
names       which names may be meant to be one                     again      the findings after a change of a few files

fixes and the modules that it imports turn findings into changes. They are loaded when something is to be mended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from weakref import WeakKeyDictionary

import msgspec

from graphbus_core.compiler.rules.agreement import check_agreement, check_types_of_topics
from graphbus_core.compiler.rules.bodies import check_handlers
from graphbus_core.compiler.rules.contracts import check_error_shapes, check_handoff, check_results
from graphbus_core.compiler.rules.edges import (
    COVERED_ERRORS,
    check_dependencies,
    check_reads,
    check_requests,
    check_topics,
)
from graphbus_core.compiler.rules.misuse import check_constructors, check_skipped
from graphbus_core.compiler.rules.names import edit_distance
from graphbus_core.compiler.rules.own_contract import check_contracts
from graphbus_core.compiler.rules.wiring import ProjectFacts, Wiring, WiringRule
from graphbus_core.errors import UsageError
from graphbus_core.model.findings import Finding, Fix, Severity


class CheckRule(msgspec.Struct, frozen=True):
    """A rule of `graphbus check`.

    Attributes:
        severity: What it is as a rule; `info` does not fail a check.
        summary: What it finds, one sentence without its subject.
        is_default: False: only reported when it is selected by name.
        is_fixable: True when some of its findings can be mended by `rules.fix_for`.
        is_safe: True when such a fix may be applied without asking the other agents.
    """

    code: str
    title: str
    severity: Severity
    summary: str
    is_default: bool = True
    is_fixable: bool = False
    is_safe: bool = False


_RULES = (
    CheckRule("GB001", "topic without publisher", "warning",
              "A topic is subscribed to that no agent publishes.", is_fixable=True),
    CheckRule("GB002", "topic without subscriber", "info", "A topic is published that no agent subscribes to."),
    CheckRule("GB003", "key that nobody sends", "error", "A handler reads a key that no publisher sends.", is_fixable=True),
    CheckRule("GB004", "publishers disagree", "error", "The publishers of a topic send different payloads.", is_fixable=True),
    CheckRule("GB005", "request without its one answer", "error", "A request has no handler that answers it, or several.",
         is_fixable=True),
    CheckRule("GB006", "one topic, two types", "error",
              "Topics of one name, or a pattern and a topic of it, are of different types."),
    CheckRule("GB010", "unknown dependency", "error",
              "An agent is depended on or called that is not in the graph, or not declared.",
         is_fixable=True, is_safe=True),
    CheckRule("GB011", "circular dependency", "error", "The dependencies of agents form a circle."),
    CheckRule("GB101", "field without parameter", "error", "The method cannot take an input that its schema declares.",
         is_fixable=True),
    CheckRule("GB102", "parameter without field", "error", "The schema leaves out an input that the method needs.",
         is_fixable=True),
    CheckRule("GB103", "result differs from schema", "error", "A returned mapping has other fields than the output schema.",
         is_fixable=True),
    CheckRule("GB104", "wrong kind of result", "error", "A method returns something that is no mapping, against its schema."),
    CheckRule("GB105", "result may be None", "error", "A path through a method returns None, against its schema."),
    CheckRule("GB106", "schema contradicts signature", "error",
              "The input schema allows a value that the signature does not take.",
              is_fixable=True),
    CheckRule("GB110", "producer does not fit consumer", "error", "What one agent gives does not fit what another takes.",
         is_fixable=True),
    CheckRule("GB111", "key that a result lacks", "error", "A key is read of a result or an answer that has no such key.",
         is_fixable=True),
    CheckRule("GB120", "error shapes differ", "info", "Agents report errors in different shapes."),
    CheckRule("GB201", "parameter without annotation", "info", "A parameter lacks the annotation that its schema implies.",
         is_fixable=True, is_safe=True),
    CheckRule("GB202", "result without annotation", "info", "A method lacks the return annotation that its schema implies.",
         is_fixable=True, is_safe=True),
    CheckRule("GB210", "input not validated", "info", "A method with an input schema never checks what it is given.",
         is_default=False, is_fixable=True),
    CheckRule("GB301", "mutable default", "warning", "A default value is shared by all calls and may be changed by one.",
         is_fixable=True, is_safe=True),
    CheckRule("GB302", "bare except", "warning", "`except:` also catches Ctrl-C and the end of the process.",
         is_fixable=True),
    CheckRule("GB303", "swallowed exception", "warning", "Every exception is caught and nothing is done about it."),
    CheckRule("GB310", "handler misuse", "error", "A handler cannot be called, misuses its event, or blocks the event loop.",
         is_fixable=True),
    CheckRule("GB311", "options that cannot be kept", "error",
              "A subscription asks for retries, time or concurrency that cannot be."),
    CheckRule("GB312", "decorator without a topic", "error", "`@subscribe` or `@publishes` is given nothing.", is_fixable=True),
    CheckRule("GB313", "no topic", "error", "A list, or a value that is no text, stands where a topic belongs.", is_fixable=True),
    CheckRule("GB314", "answer not awaited", "error", "An `async def` does not await an answer, or awaits what has none.",
         is_fixable=True),
    CheckRule("GB315", "agent that cannot be made", "error", "The constructor needs arguments, which a graph does not give.",
         is_fixable=True),
    CheckRule("GB316", "used before it is connected", "error", "An agent publishes, asks or keeps a state while it is made.",
         is_fixable=True),
    CheckRule("GB317", "decorator without effect", "error",
              "A decorator stands above `@classmethod`, `@staticmethod` or a property.", is_fixable=True),
    CheckRule("GB318", "override without its decorator", "warning",
              "An override leaves out the decorator of the method in the base.", is_fixable=True),
    CheckRule("GB319", "name that GraphBus does not have", "error", "Something is imported from GraphBus that it does not have."),
    CheckRule("GB320", "agent in a skipped file", "warning", "An agent stands in a file that is not read because of its name."),
    CheckRule("GB321", "event beside fields", "error", "A handler takes the event together with fields of its payload.",
         is_fixable=True),
    CheckRule("GB322", "wrong Topic", "error", "A `Topic` is given a malformed name, or something that is no type."),
    CheckRule("GB323", "annotation without meaning", "error",
              "A handler is annotated with a name that its file does not define.", is_fixable=True),
    CheckRule("GB324", "agent by its name", "error", "`self.agent` is given the name of an agent instead of its class."),
)  # fmt: skip

REGISTER: dict[str, CheckRule] = {rule.code: rule for rule in _RULES}


def selected_codes(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> frozenset[str]:
    """Return the codes to report.

    Args:
        select: Codes or prefixes, `"GB1"`; none: every rule that is on by default. `"GB"` and `"ALL"` mean all rules.
        ignore: Codes or prefixes to leave out; the longer of two that match a code wins.

    Raises:
        UsageError: Something fits no code.
    """
    wanted, unwanted = _known(select), _known(ignore)

    def is_selected(rule: CheckRule) -> bool:
        chosen = max((len(prefix) for prefix in wanted if rule.code.startswith(prefix)), default=0)
        left_out = max((len(prefix) for prefix in unwanted if rule.code.startswith(prefix)), default=0)
        return (chosen or int(not wanted and rule.is_default)) > left_out

    return frozenset(code for code, rule in REGISTER.items() if is_selected(rule))


def _known(names: Iterable[str]) -> tuple[str, ...]:
    prefixes = tuple("GB" if name.strip().upper() == "ALL" else name.strip().upper() for name in names if name.strip())
    for prefix in prefixes:
        if not any(code.startswith(prefix) for code in REGISTER):
            nearest = min(REGISTER, key=lambda code: edit_distance(prefix, code))
            suggestion = f" Did you mean {nearest!r}?" if edit_distance(prefix, nearest) < 3 else ""
            raise UsageError("GBE120", name=prefix, suggestion=suggestion, known=", ".join(REGISTER))
    return prefixes


__all__ = ["COVERED_ERRORS", "REGISTER", "CheckRule", "ProjectFacts", "check", "fix_for", "place_of", "selected_codes"]

_CHECKS: tuple[tuple[str, WiringRule], ...] = (
    ("GB001 GB002", check_topics),
    ("GB003", check_reads),
    ("GB004", check_agreement),
    ("GB010 GB011", check_dependencies),
    ("GB006", check_types_of_topics),
    ("GB101 GB102 GB103 GB104 GB105 GB106 GB201 GB202", check_contracts),
    ("GB110", check_handoff),
    ("GB111", check_results),
    ("GB120", check_error_shapes),
    ("GB005", check_requests),
    ("GB310 GB311", check_handlers),
    ("GB315", check_constructors),
    ("GB320", check_skipped),
)


def check(
    project: ProjectFacts,
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    all_fixable: bool = False,
    has_text: bool = True,
    wiring: Wiring | None = None,
) -> tuple[Finding, ...]:
    """Find everything that is wrong with a project, by path, line and code.

    Args:
        project: What was read.
        select: Codes or prefixes to report; none: what the settings select, else every rule that is on by default.
        ignore: Codes or prefixes to leave out, besides those of the settings.
        all_fixable: Report what can be mended although its rule is off by default.
        has_text: False: the sources are not at hand, so that nothing can be mended.
        wiring: The edges of the project, if they are known, and the agents whose findings are asked for.

    Raises:
        UsageError: GBE120 for a code that does not exist.
    """
    settings = project.config.settings
    wanted = selected_codes(tuple(select) or settings.select, (*settings.ignore, *ignore))
    if all_fixable:
        every = selected_codes(["ALL"], (*settings.ignore, *ignore))
        wanted |= {code for code in every if REGISTER[code].is_fixable}
    found = {
        (finding.code, finding.span, finding.message): finding
        for finding in _findings(wiring or Wiring(project), wanted)
        if not _is_ignored(finding, project)
    }
    exact = (_with_exact_fix(finding, project) if has_text else finding for finding in found.values())
    return tuple(sorted(exact, key=place_of))


def place_of(finding: Finding) -> tuple[str, int, int, str, str]:
    """Return the order of findings: by path, line and code."""
    span = finding.span
    return span.path, span.line, span.column, finding.code, finding.message


def _findings(wiring: Wiring, wanted: frozenset[str]) -> Iterator[Finding]:
    rules = (rule for codes, rule in _CHECKS if wanted & set(codes.split()))
    for finding in (*chain.from_iterable(map(wiring.findings_of, rules)), *wiring.project.local_findings):
        if finding.code in wanted and wiring.asks_about(finding.agent):
            yield finding


def _is_ignored(finding: Finding, project: ProjectFacts) -> bool:
    """Return whether a comment silences a finding: one on its line, one alone on the line above, or one for the whole file."""
    above = finding.span.line - 1
    for line, codes in project.ignores(finding.span.path):
        if not codes or finding.code.startswith(codes):
            source = project.source(finding.span.path)
            is_alone = line == above != 0 and source.utf8[source.line_starts[line - 1] :].lstrip(b" \t").startswith(
                b"#"
            )
            if line in (0, finding.span.line) or is_alone:
                return True
    return False


def _with_exact_fix(finding: Finding, project: ProjectFacts) -> Finding:
    """Return the finding, marked as fixable only if its fix can be made."""
    if not finding.is_fixable:
        return finding
    from msgspec.structs import replace

    fix = fix_for(finding, project)
    return replace(finding, is_fixable=fix is not None, is_fix_safe=fix is not None and fix.is_safe)


def fix_for(finding: Finding, project: ProjectFacts, *others: Finding, is_narrow: bool = False) -> Fix | None:
    """Return the change that mends a finding, or None when there is none that is surely right.

    Args:
        finding: What to mend.
        project: What was read.
        others: Annotations that are missing in the same method, each of which can be mended; one change gives them all.
        is_narrow: Change as few files as possible, although the same is wrong in others.
    """
    if not finding.is_fixable:
        return None
    from graphbus_core.compiler.rules.fixes import make_fix

    known = _FIXES.setdefault(project, {})
    asked = (tuple((each.key, each.span) for each in (finding, *others)), is_narrow)
    if asked not in known:
        known[asked] = make_fix((finding, *others), project, is_narrow=is_narrow)
    return known[asked]


_FIXES: WeakKeyDictionary[ProjectFacts, dict[object, Fix | None]] = WeakKeyDictionary()
"""The fixes that were made: each is tried on the whole project, and asked for several times."""
