"""GB324: calls with arguments that a function of GraphBus or of the project does not take: `self.request(T, {}, timeout=1.0)`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set
from functools import cache
from itertools import islice
from typing import NamedTuple

from graphbus_core.compiler.reading.annotations import decorators_of_class, read_type
from graphbus_core.compiler.reading.classes import Methods
from graphbus_core.compiler.reading.constants import is_rebound
from graphbus_core.compiler.reading.methods import MethodSource
from graphbus_core.compiler.reading.modules import (
    FUNCTIONS,
    ClassSite,
    DefinedName,
    External,
    NameScope,
    family_of,
    resolve_through,
)
from graphbus_core.compiler.reading.standard import TRANSPARENT
from graphbus_core.compiler.reading.syntax import call_argument, span_of
from graphbus_core.compiler.rules.names import near_match, near_match_in_closed_set
from graphbus_core.compiler.rules.wiring import make_finding
from graphbus_core.model.findings import Finding, Related
from graphbus_core.schema.types import UNKNOWN

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


def check_own_calls(agent: str, methods: Methods, scope_of: Callable[[ClassSite], NameScope]) -> Iterator[Finding]:
    """Find calls of functions, methods and classes of the project that fail with a TypeError whenever they run.

    Args:
        agent: The name of the class.
        methods: Its methods, each with the class that defines it.
        scope_of: Returns the scope of the body of a class of the agent.
    """
    for home, method in methods:
        body = method.body
        hidden = frozenset(
            {*body.bound, *(each.arg for each in ast.walk(method.node.args) if isinstance(each, ast.arg))}
        )
        skipped = {*body.written, *_signatures()}
        scope = scope_of(home)._replace(in_class_body=False, self_name=body.self_name, hidden=hidden)
        for call in (*body.plain_calls, *(call for name, call in body.calls if name not in skipped)):
            target = resolve_through(call.func, scope)
            takes = _signature_of(target, call, scope) if isinstance(target, DefinedName) else None
            for place, problem, hint in islice(_problems_of(call, takes), 1) if takes else ():
                message = f"{home.node.name}.{method.node.name} {problem.format(ast.unparse(call.func))}"
                advice = hint if isinstance(place, ast.keyword) else f"It takes {', '.join(takes.names) or 'none'}."  # type: ignore[union-attr]
                yield make_finding("GB324", agent, span_of(home.module.path, place), message, advice)


def _signature_of(target: DefinedName, call: ast.Call, scope: NameScope) -> _Signature | None:
    """Return what a function, a method of `self` or a class of plain fields takes; None for anything else."""
    if isinstance(target.node, ast.ClassDef):
        return _signature_of_class(ClassSite(target.module, target.node), call, scope)
    is_method = isinstance(call.func, ast.Attribute)
    if not isinstance(target.node, FUNCTIONS) or is_rebound(target) or is_method is (target.owner is None):
        return None
    inner = scope.within(target.module)
    decorators = [resolve_through(getattr(each, "func", each), inner) for each in target.node.decorator_list]
    names = {each.dotted if isinstance(each, External) else "" for each in decorators}
    if not names <= TRANSPARENT:
        return None
    given, defaults = target.node.args, target.node.args.defaults
    by_position = [each.arg for each in (*given.posonlyargs, *given.args)]
    optional = {*by_position[len(by_position) - len(defaults) :]}
    optional |= {each.arg for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default}
    taken = by_position[is_method and "builtins.staticmethod" not in names :]
    by_name = {*taken, *(each.arg for each in given.kwonlyargs)} - {each.arg for each in given.posonlyargs}
    every = (*taken, *(each.arg for each in given.kwonlyargs))
    takes_more = (given.vararg is not None, given.kwarg is not None)
    return _Signature(every, tuple(taken), frozenset(by_name), frozenset(every) - optional, takes_more)


def _signature_of_class(site: ClassSite, call: ast.Call, scope: NameScope) -> _Signature | None:
    """Return what a dataclass or Struct takes whose constructor surely has its fields as parameters; None for other classes."""
    chain, external = family_of(scope.library, site)
    decorators = {name for each in chain for name in decorators_of_class(each, scope)}
    is_known = {*decorators, *external} in ({"dataclasses.dataclass"}, {"msgspec.Struct"})
    is_plain = is_known and all(_has_plain_fields(each.node) for each in chain)
    record = read_type(call.func, scope) if is_plain else UNKNOWN
    if record.kind != "record":
        return None
    names = tuple(each.name for each in record.fields)
    required = frozenset(each.name for each in record.fields if each.required)
    return _Signature(names, names, frozenset(names), required, (False, False))


def _has_plain_fields(node: ast.ClassDef) -> bool:
    """True for a class without a constructor of its own, and without what makes its fields and the parameters differ."""
    options = {each.arg for each in node.keywords}
    options |= {each.arg for call in node.decorator_list if isinstance(call, ast.Call) for each in call.keywords}
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} | {
        each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)
    }
    methods = {each.name for each in node.body if isinstance(each, FUNCTIONS)}
    return (
        options <= _OPTIONS and names.isdisjoint(("InitVar", "KW_ONLY")) and methods.isdisjoint(("__init__", "__new__"))
    )


_OPTIONS = frozenset({"eq", "forbid_unknown_fields", "frozen", "gc", "omit_defaults", "order", "repr", "slots"})
"""Options of a dataclass or Struct that do not change what its constructor takes."""


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
