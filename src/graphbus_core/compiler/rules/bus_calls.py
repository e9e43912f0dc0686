"""GB324: calls of methods of GraphBusNode with arguments that these do not take: `self.request(T, order, timeout=1.0)`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Set
from functools import cache
from inspect import Parameter

from graphbus_core.compiler.reading.classes import Methods
from graphbus_core.compiler.reading.methods import MethodSource
from graphbus_core.compiler.reading.syntax import call_argument, span_of
from graphbus_core.compiler.rules.names import near_match, near_match_in_closed_set
from graphbus_core.compiler.rules.wiring import make_finding
from graphbus_core.model.findings import Finding, Related

_Problem = tuple[ast.expr | ast.keyword, str, str]
"""The place, what is wrong as the end of a sentence, and the hint."""


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
def _signatures() -> dict[str, tuple[Parameter, ...]]:
    """Name of a public method of GraphBusNode -> its parameters without `self`."""
    from graphbus_core.node import GraphBusNode  # only where an agent has methods to check

    functions = {name: each for name, each in vars(GraphBusNode).items() if inspect.isfunction(each)}
    return {
        name: tuple(inspect.signature(each).parameters.values())[1:]
        for name, each in functions.items()
        if not name.startswith("_")
    }


def _problems_of(call: ast.Call, parameters: tuple[Parameter, ...]) -> Iterator[_Problem]:
    """Yield what makes a call fail, whatever the values of `*` and `**` in it are."""
    kinds = {each.kind for each in parameters}
    by_position = [
        each for each in parameters if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    by_name = {
        each.name for each in parameters if each.kind in (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    }
    given = [each for each in call.args if not isinstance(each, ast.Starred)]
    if len(given) > len(by_position) and Parameter.VAR_POSITIONAL not in kinds:
        names = ", ".join(each.name for each in by_position)
        yield given[len(by_position)], f"gives {{}} {len(given)} arguments by position", f"It takes {names or 'none'}."
    for keyword in call.keywords:
        if keyword.arg in {each.name for each in by_position[: len(given)]} & by_name:
            yield keyword, f"gives {{}} its argument {keyword.arg!r} twice", "Leave one of them out."
        elif keyword.arg and keyword.arg not in by_name and Parameter.VAR_KEYWORD not in kinds:
            near = near_match(keyword.arg, by_name) or near_match_in_closed_set(keyword.arg, by_name)
            hint = f"Did you mean {near!r}?" if near else f"It takes {', '.join(each.name for each in parameters)}."
            yield keyword, f"gives {{}} the argument {keyword.arg!r}, which it does not take", hint
    yield from _missing_of(call, by_position)


def _missing_of(call: ast.Call, by_position: list[Parameter]) -> Iterator[_Problem]:
    """Yield the arguments without a default that a call certainly leaves out."""
    named = {each.arg for each in call.keywords}
    if None in named or any(isinstance(each, ast.Starred) for each in call.args):
        return
    for each in by_position[len(call.args) :]:
        is_named = each.name in named and each.kind is not Parameter.POSITIONAL_ONLY
        if each.default is Parameter.empty and not is_named:
            place = "first" if each is by_position[0] else "second"
            yield (
                call,
                f"calls {{}} without its argument {each.name!r}",
                f"Pass it as the {place} argument, without its name.",
            )


def _place_of_edge(name: str, call: ast.Call) -> ast.expr:
    """Return what the edge of a call is known by: the topic that it sends to, or the call itself."""
    topic = call_argument(call, 0, "topic") if name in ("publish", "request") else None
    return call if topic is None else topic
