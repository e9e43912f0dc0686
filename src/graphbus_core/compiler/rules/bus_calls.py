"""GB324: calls of methods of GraphBusNode with arguments that these do not take: `self.request(T, order, timeout=1.0)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from functools import cache
from typing import NamedTuple

from graphbus_core.compiler.reading.classes import Methods
from graphbus_core.compiler.reading.methods import MethodSource
from graphbus_core.compiler.reading.syntax import call_argument, span_of
from graphbus_core.compiler.rules.names import near_match, near_match_in_closed_set
from graphbus_core.compiler.rules.wiring import make_finding
from graphbus_core.model.findings import Finding, Related

_Problem = tuple[ast.expr | ast.keyword, str, str]
"""The place, what is wrong as the end of a sentence, and the hint."""


class _Signature(NamedTuple):
    """The parameters of a method without `self`.

    Attributes:
        names: All of them.
        by_position: Those that may be passed by position.
        by_name: Those that may be passed by name.
        required: Those without a default.
        takes_more: True if it has `*` and `**`, respectively.
    """

    names: tuple[str, ...]
    by_position: tuple[str, ...]
    by_name: frozenset[str]
    required: frozenset[str]
    takes_more: tuple[bool, bool]


def check_bus_calls(agent: str, methods: Methods, owned: Set[str]) -> Iterator[Finding]:
    """Find calls of a method of GraphBusNode, on `self` or `super()`, that fail with a TypeError whenever they run.

    Args:
        agent: The name of the class.
        methods: Its methods, each with the class that defines it.
        owned: Names that the class defines or assigns itself; a call of one of them is not looked at.
    """
    for home, method in methods:
        for name, call in _calls_on_node(method, owned):
            for place, problem, hint in _problems_of(call, _signatures()[name]):
                message = f"{home.node.name}.{method.node.name} {problem.format(f'self.{name}')}"
                span = span_of(home.module.path, place)
                related = [
                    Related(agent, span_of(home.module.path, _place_of_edge(name, call)), "the edge of this call")
                ]
                yield make_finding("GB324", agent, span, message, hint, related=related)


def _calls_on_node(method: MethodSource, owned: Set[str]) -> Iterator[tuple[str, ast.Call]]:
    """Yield `(name, call)` for each call of a method of GraphBusNode in a method of an agent."""
    known = _signatures().keys() - owned
    yield from ((name, call) for name, call in method.body.calls if name in known)
    for call in method.body.method_calls:
        owner = call.func.value  # type: ignore[attr-defined]
        is_super = isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "super"
        if is_super and call.func.attr in known:  # type: ignore[attr-defined]
            yield call.func.attr, call  # type: ignore[attr-defined]


@cache
def _signatures() -> dict[str, _Signature]:
    """Name of a public method of GraphBusNode -> its signature."""
    import inspect

    from graphbus_core.node import GraphBusNode  # here, as a check without agents needs neither

    found = {}
    for name, function in vars(GraphBusNode).items():
        if inspect.isfunction(function) and not name.startswith("_"):
            every = list(inspect.signature(function).parameters.values())[1:]
            kinds = [each.kind.name for each in every]
            found[name] = _Signature(
                tuple(each.name for each in every),
                tuple(each.name for each in every if each.kind.name.startswith("POSITIONAL")),
                frozenset(each.name for each in every if each.kind.name in ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")),
                frozenset(each.name for each in every if each.default is each.empty and each.kind.name[:3] != "VAR"),
                ("VAR_POSITIONAL" in kinds, "VAR_KEYWORD" in kinds),
            )
    return found


def _problems_of(call: ast.Call, takes: _Signature) -> Iterator[_Problem]:
    """Yield what makes a call fail, whatever the values of `*` and `**` in it are."""
    takes_positions, takes_names = takes.takes_more
    given = [each for each in call.args if not isinstance(each, ast.Starred)]
    all_names = f"It takes {', '.join(takes.names) or 'none'}."
    if len(given) > len(takes.by_position) and not takes_positions:
        yield given[len(takes.by_position)], f"gives {{}} {len(given)} arguments by position", all_names
    for keyword in call.keywords:
        if keyword.arg in takes.by_name.intersection(takes.by_position[: len(given)]):
            yield keyword, f"gives {{}} its argument {keyword.arg!r} twice", "Leave one of them out."
        elif keyword.arg and keyword.arg not in takes.by_name and not takes_names:
            near = near_match(keyword.arg, takes.by_name) or near_match_in_closed_set(keyword.arg, takes.by_name)
            hint = f"Did you mean {near!r}?" if near else all_names
            yield keyword, f"gives {{}} the argument {keyword.arg!r}, which it does not take", hint
    yield from _missing_of(call, takes)


def _missing_of(call: ast.Call, takes: _Signature) -> Iterator[_Problem]:
    """Yield the arguments without a default that a call certainly leaves out."""
    named = {each.arg for each in call.keywords}
    if None in named or any(isinstance(each, ast.Starred) for each in call.args):
        return
    for name in takes.by_position[len(call.args) :]:
        if name in takes.required and name not in takes.by_name.intersection(named):
            place = "first" if name == takes.by_position[0] else "second"
            hint = f"Pass it as the {place} argument, without its name."
            yield call, f"calls {{}} without its argument {name!r}", hint


def _place_of_edge(name: str, call: ast.Call) -> ast.expr:
    """Return what the edge of a call is known by: the topic that it sends to, or the call itself."""
    topic = call_argument(call, 0, "topic") if name in ("publish", "request") else None
    return call if topic is None else topic
