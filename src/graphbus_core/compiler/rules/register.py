"""What `graphbus check` looks for: one entry per code. Codes are public: never reused, never renumbered."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from graphbus_core.compiler.rules.names import distance
from graphbus_core.errors import UsageError
from graphbus_core.model.findings import Severity


class Rule(msgspec.Struct, frozen=True):
    """One thing to look for.

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
    Rule("GB001", "topic without publisher", "warning", "A topic is subscribed to that no agent publishes.", is_fixable=True),
    Rule("GB002", "topic without subscriber", "info", "A topic is published that no agent subscribes to."),
    Rule("GB003", "key that nobody sends", "error", "A handler reads a key that no publisher sends.", is_fixable=True),
    Rule("GB004", "publishers disagree", "error", "The publishers of a topic send different payloads.", is_fixable=True),
    Rule("GB005", "request without its one answer", "error", "A request has no handler that answers it, or several."),
    Rule("GB010", "unknown dependency", "error", "An agent is depended on or called that is not in the graph, or not declared."),
    Rule("GB011", "circular dependency", "error", "The dependencies of agents form a circle."),
    Rule("GB101", "field without parameter", "error", "The method cannot take an input that its schema declares.",
         is_fixable=True),
    Rule("GB102", "parameter without field", "error", "The schema leaves out an input that the method needs.",
         is_fixable=True),
    Rule("GB103", "result differs from schema", "error", "A returned mapping has other fields than the output schema.",
         is_fixable=True),
    Rule("GB104", "wrong kind of result", "error", "A method returns something that is no mapping, against its schema."),
    Rule("GB105", "result may be None", "error", "A path through a method returns None, against its schema."),
    Rule("GB110", "producer does not fit consumer", "error", "What one agent gives does not fit what another takes.",
         is_fixable=True),
    Rule("GB120", "error shapes differ", "info", "Agents report errors in different shapes.", is_fixable=True),
    Rule("GB201", "parameter without annotation", "info", "A parameter lacks the annotation that its schema implies.",
         is_fixable=True, is_safe=True),
    Rule("GB202", "result without annotation", "info", "A method lacks the return annotation that its schema implies.",
         is_fixable=True, is_safe=True),
    Rule("GB210", "input not validated", "info", "A method with an input schema never checks what it is given.",
         is_default=False, is_fixable=True),
    Rule("GB301", "mutable default", "warning", "A default value is shared by all calls and may be changed by one.",
         is_fixable=True, is_safe=True),
    Rule("GB302", "bare except", "warning", "`except:` also catches Ctrl-C and the end of the process.",
         is_fixable=True),
    Rule("GB303", "swallowed exception", "warning", "Every exception is caught and nothing is done about it."),
    Rule("GB310", "handler misuse", "error", "A handler cannot be called, misuses its event, or blocks the event loop."),
    Rule("GB311", "options that cannot be kept", "error", "A subscription asks for retries, time or concurrency that cannot be."),
)  # fmt: skip

REGISTER: dict[str, Rule] = {rule.code: rule for rule in _RULES}


def selected(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> frozenset[str]:
    """Give the codes to report.

    Args:
        select: Codes or prefixes, `"GB1"`; none: every rule that is on by default. `"GB"` and `"ALL"` mean all rules.
        ignore: Codes or prefixes to leave out; the longer of two that match a code wins.

    Raises:
        UsageError: Something fits no code.
    """
    wanted, unwanted = _known(select), _known(ignore)
    return frozenset(code for code, rule in REGISTER.items() if _is_selected(rule, wanted, unwanted))


def _is_selected(rule: Rule, wanted: tuple[str, ...], unwanted: tuple[str, ...]) -> bool:
    chosen = max((len(prefix) for prefix in wanted if rule.code.startswith(prefix)), default=0)
    if not wanted and rule.is_default:
        chosen = 1
    left_out = max((len(prefix) for prefix in unwanted if rule.code.startswith(prefix)), default=0)
    return chosen > left_out


def _known(names: Iterable[str]) -> tuple[str, ...]:
    prefixes = tuple("GB" if name.strip().upper() == "ALL" else name.strip().upper() for name in names if name.strip())
    for prefix in prefixes:
        if not any(code.startswith(prefix) for code in REGISTER):
            nearest = min(REGISTER, key=lambda code: distance(prefix, code))
            suggestion = f" Did you mean {nearest!r}?" if distance(prefix, nearest) < 3 else ""
            raise UsageError("GBE120", name=prefix, suggestion=suggestion, known=", ".join(REGISTER))
    return prefixes
