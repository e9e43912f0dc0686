"""Another class for a living agent, and other subscriptions for a running bus; each step can be taken back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

from graphbus_core.bus.routing import Admit, Routes, Subscription
from graphbus_core.hosting.graph import Member
from graphbus_core.node import GraphBusNode

Undo = list[Callable[[], object]]
"""How to take back what was done, in the order in which it was done."""

_HOOK = "on_reload"
_COUNTED = frozenset({"delivered", "failed", "is_active"})


class Version:
    """A new class for an agent that lives.

    Attributes:
        restarts: Its `on_start` has another text, and so is called again.
        has_hook: It has an `on_reload`, which is called in the place of `on_stop` and `on_start`.
    """

    def __init__(self, name: str, node: GraphBusNode, new: type[GraphBusNode]) -> None:
        self.name = name
        self._node = node
        self._old = type(node)
        self._new = new
        self._before: dict[str, Any] = {}
        self._fresh: dict[str, Any] = {}
        self._keeps_attributes = False
        self._makes_anew = not _is_same(self._old, new, "__init__")
        self.has_hook = callable(getattr(new, _HOOK, None))
        self.restarts = not self.has_hook and not _is_same(self._old, new, "on_start")

    def try_out(self, bind: Callable[[GraphBusNode], None]) -> GraphBusNode:
        """Let the object be of the new class for a moment, see what its `__init__` gives, and bind its handlers.

        Raises:
            Exception: What `__init__` raises, and TypeError for a class whose objects have another layout.
            RunError: What binding raises.
        """
        attributes = vars(self._node)
        before = dict(attributes)
        self._node.__class__ = self._new
        try:
            if self._makes_anew:
                self._new.__init__(self._node)
            bind(self._node)
            self._fresh = {key: value for key, value in attributes.items() if key not in before}
            self._keeps_attributes = any(attributes[key] is not value for key, value in before.items())
        finally:
            self._node.__class__ = self._old
            _put_back(attributes, before)
        return self._node

    def apply(self) -> None:
        """The agent is of the new class, with its attributes, and with those that only the new `__init__` gives."""
        attributes = vars(self._node)
        self._before = dict(attributes)
        self._node.__class__ = self._new
        for key, value in self._fresh.items():
            attributes.setdefault(key, value)

    def revert(self) -> None:
        """The agent is what it was before `apply`."""
        self._node.__class__ = self._old
        _put_back(vars(self._node), self._before)

    def notes(self, modules: Collection[str]) -> Iterator[str]:
        """Say what has stayed although a person might expect otherwise, now that these modules were imported again."""
        if self._keeps_attributes:
            yield f"{self.name} keeps its attributes: what `__init__` gives to those that it had counts from the next start."
        for key, value in vars(self._node).items():
            kind = type(value)
            if kind.__module__ in modules and _current(kind) is not kind:
                yield f"{self.name}.{key} is still a {kind.__name__} of the old code."


class Prepared(NamedTuple):
    """The handlers of an agent, bound and not served yet."""

    subscriptions: tuple[Subscription, ...]
    is_async: bool


def prepare(routes: Routes, member: Member, node: GraphBusNode) -> Prepared:
    """Bind the handlers of an agent.

    Raises:
        RunError: GBE611 for one that cannot be served, GBE610 for a malformed topic.
    """
    made = [
        routes.make(
            topic,
            getattr(node, method),
            name=f"{member.name}.{method}",
            owner=member.name,
            shape=member.shape_of(topic, method),
            policy=policy,
        )
        for topic, method, policy in member.handlers
    ]
    is_async = member.is_async or any(is_async for _, is_async in made)
    return Prepared(tuple(subscription for subscription, _ in made), is_async)


def serve(
    routes: Routes,
    old: Collection[str],
    members: Sequence[str],
    prepared: Mapping[str, Prepared],
    *,
    admit: Admit | None,
    undo: Undo,
) -> None:
    """Serve the members in their order; where a handler was served before, its subscription stays, and so do its counts.

    Args:
        routes: Who is served now.
        old: The agents that were served.
        members: Those that will be, in their order.
        prepared: The handlers of those that are new or have changed.
        admit: Which topics there are from now on.
        undo: Learns how to take it back.
    """
    lanes, admitted, served = set(routes.async_lanes), routes.admit, routes.subscriptions
    undo.append(lambda: routes.serve(served, lanes, admitted))
    owned: dict[Hashable, list[Subscription]] = {name: [] for name in (*old, *members)}
    for each in served:
        if each.owner in owned:
            owned[each.owner].append(each)
    final: list[Subscription] = []
    for name in members:
        final += owned[name] if name not in prepared else _merged(owned[name], prepared[name].subscriptions, undo)
    ours = [index for index, each in enumerate(served) if each.owner in owned]
    first = ours[0] if ours else len(served)
    strangers = [each for each in served[first:] if each.owner not in owned]
    gone = {name for name in old if name not in members or name in prepared}
    asynchronous = (lanes - gone) | {name for name, each in prepared.items() if each.is_async}
    routes.serve([*served[:first], *final, *strangers], asynchronous, admit)


def _merged(old: Sequence[Subscription], new: Sequence[Subscription], undo: Undo) -> Iterator[Subscription]:
    """The new subscriptions; one that there was before stays the same object, so that what waits for it finds the new handler."""
    left = list(old)
    for each in new:
        known = next((one for one in left if (one.name, one.topic) == (each.name, each.topic)), None)
        if known is None:
            yield each
            continue
        left.remove(known)
        undo.append(_take_from(known, each))
        yield known


def _take_from(subscription: Subscription, other: Subscription) -> Callable[[], None]:
    """Let a subscription call what another one calls, and give the way back."""
    names = [name for name in Subscription.__slots__ if name not in _COUNTED]
    before = [getattr(subscription, name) for name in names]

    def put_back() -> None:
        for name, value in zip(names, before, strict=True):
            setattr(subscription, name, value)

    for name in names:
        setattr(subscription, name, getattr(other, name))
    return put_back


def _put_back(attributes: dict[str, Any], before: Mapping[str, Any]) -> None:
    for key in attributes.keys() - before.keys():
        del attributes[key]
    attributes.update(before)


def _is_same(old: type, new: type, name: str) -> bool:
    """Do both classes define a method in the same words, their base classes included?"""
    return _words_of(old, name) == _words_of(new, name)


def _words_of(kind: type, name: str) -> list[object]:
    found: list[object] = []
    for each in kind.__mro__:
        function: Any = vars(each).get(name)
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        code = getattr(function, "__code__", None)
        if code is not None:
            found.append((each.__qualname__, _words(code), repr(function.__defaults__), repr(function.__kwdefaults__)))
    return found


def _words(code: CodeType) -> tuple[object, ...]:
    """What a function does, wherever in the file it stands."""
    constants = tuple(_words(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts)
    return (code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)


def _current(kind: type) -> object:
    """The class that has the module and name of this one now; itself where that is not to be found."""
    found: object = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else kind
