"""The rules of `graphbus check`: their codes, severities and titles, and how each of them can be fixed."""

from __future__ import annotations

from typing import Literal

import msgspec

from graphbus_core.model.findings import Severity


class CheckRule(msgspec.Struct, frozen=True):
    """A rule of `graphbus check`.

    Attributes:
        code: Such as `GB003`.
        severity: The usual severity of its findings; `info` does not fail a check.
        title: What it finds, in a few words.
        summary: The same in one sentence.
        is_default: False if its findings are only reported when the rule is selected.
        is_fixable: True if `rules.fix_for` can fix some of its findings.
        is_safe: True if such a fix changes nothing for other agents, so that it needs no negotiation.
    """

    code: str
    title: str
    severity: Severity
    summary: str
    is_default: bool = True
    is_fixable: bool = False
    is_safe: bool = False


_FixKind = Literal["none", "negotiated", "safe"]
_ROWS: tuple[tuple[str, Severity, _FixKind, str, str], ...] = (
    ("GB001", "warning", "negotiated", "topic without publisher", "A topic is subscribed to that no agent publishes."),
    ("GB002", "info", "none", "topic without subscriber", "A topic is published that no agent subscribes to."),
    ("GB003", "error", "negotiated", "key that nobody sends", "A handler reads a key that no publisher sends."),
    ("GB004", "error", "negotiated", "publishers disagree", "The publishers of a topic send different payloads."),
    ("GB005", "error", "negotiated", "request without its one answer", "A request has no handler that answers it, or several."),
    ("GB006", "error", "none", "one topic, two types",
     "Topics of one name, or a pattern and a topic of it, are of different types."),
    ("GB010", "error", "safe", "unknown dependency",
     "An agent is depended on or called that is not in the graph, or not declared."),
    ("GB011", "error", "none", "circular dependency", "The dependencies of agents form a circle."),
    ("GB101", "error", "negotiated", "field without parameter", "The method cannot take an input that its schema declares."),
    ("GB102", "error", "negotiated", "parameter without field", "The schema leaves out an input that the method needs."),
    ("GB103", "error", "negotiated", "result differs from schema", "A returned mapping has other fields than the output schema."),
    ("GB104", "error", "negotiated", "wrong kind of result",
     "A method returns something that is no mapping, against its schema."),
    ("GB105", "error", "none", "result may be None", "A path through a method returns None, against its schema."),
    ("GB106", "error", "negotiated", "schema contradicts signature",
     "The input schema allows a value that the signature does not take."),
    ("GB110", "error", "negotiated", "producer does not fit consumer", "What one agent gives does not fit what another takes."),
    ("GB111", "error", "negotiated", "key that a result lacks", "A key is read of a result or an answer that has no such key."),
    ("GB120", "info", "none", "error shapes differ", "Agents report errors in different shapes."),
    ("GB201", "info", "safe", "parameter without annotation", "A parameter lacks the annotation that its schema implies."),
    ("GB202", "info", "safe", "result without annotation", "A method lacks the return annotation that its schema implies."),
    ("GB210", "info", "negotiated", "input not validated", "A method with an input schema never checks what it is given."),
    ("GB301", "warning", "safe", "mutable default", "A default value is shared by all calls and may be changed by one."),
    ("GB302", "warning", "negotiated", "bare except", "`except:` also catches Ctrl-C and the end of the process."),
    ("GB303", "warning", "none", "swallowed exception", "Every exception is caught and nothing is done about it."),
    ("GB310", "error", "negotiated", "handler misuse",
     "A handler cannot be called, misuses its event, or blocks the event loop."),
    ("GB311", "error", "none", "options that cannot be kept",
     "A subscription asks for retries, time or concurrency that cannot be."),
    ("GB312", "error", "negotiated", "decorator without a topic", "`@subscribe` or `@publishes` is given nothing."),
    ("GB313", "error", "negotiated", "no topic", "A list, or a value that is no text, stands where a topic belongs."),
    ("GB314", "error", "negotiated", "answer not awaited", "An `async def` does not await an answer, or awaits what has none."),
    ("GB315", "error", "negotiated", "agent that cannot be made",
     "The constructor needs arguments, which a graph does not give."),
    ("GB316", "error", "negotiated", "used before it is connected",
     "An agent publishes, asks or keeps a state while it is made."),
    ("GB317", "error", "negotiated", "decorator without effect",
     "A decorator stands above `@classmethod`, `@staticmethod` or a property."),
    ("GB318", "warning", "negotiated", "override without its decorator",
     "An override leaves out the decorator of the method in the base."),
    ("GB319", "error", "safe", "name that GraphBus does not have", "Something is imported from GraphBus that it does not have."),
    ("GB320", "warning", "none", "agent in a skipped file", "An agent stands in a file that is not read because of its name."),
    ("GB321", "error", "negotiated", "event beside fields", "A handler takes the event together with fields of its payload."),
    ("GB322", "error", "safe", "wrong Topic", "A `Topic` is given a malformed name, or something that is no type."),
    ("GB323", "error", "negotiated", "annotation without meaning",
     "A handler is annotated with a name that its file does not define."),
    ("GB324", "error", "negotiated", "call with wrong arguments",
     "A method of GraphBusNode, or a function of the project, is called with arguments that it does not take."),
)  # fmt: skip
"""Code, severity, how `rules.fix_for` can fix it, title, and summary of each rule."""

_OFF_BY_DEFAULT = frozenset({"GB210"})

REGISTER: dict[str, CheckRule] = {
    code: CheckRule(
        code, title, severity, summary, code not in _OFF_BY_DEFAULT, is_fixable=kind != "none", is_safe=kind == "safe"
    )
    for code, severity, kind, title, summary in _ROWS
}
