"""Follows calls: of functions of the project with their arguments, of Python's own, and of what may do anything."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from graphbus_core.compiler.reading.syntax import own_nodes
from graphbus_core.editing.rungs.capability import table
from graphbus_core.editing.rungs.capability.scopes import defaults_of
from graphbus_core.editing.rungs.capability.sources import name_of
from graphbus_core.editing.rungs.effects.facts import Fact
from graphbus_core.editing.rungs.effects.notes import Call, Notes, is_generator, is_static
from graphbus_core.editing.rungs.effects.values import (
    NOTHING,
    PLAIN,
    SCALARS,
    UNKNOWN,
    Function,
    FunctionLike,
    Raised,
    Scope,
    Value,
    Work,
    cannot_be,
    constant,
    join,
    type_of,
)

_MOST_CALLS = 12
"""The longest chain of own functions that is followed."""
_ACTING_BUILTINS = frozenset({"setattr", "delattr", "exec", "eval", "input", "open", "compile", "__import__"})
_LAZY = frozenset({"map", "filter", "zip", "enumerate", "iter", "aiter", "reversed"})
_CONSUMING = frozenset(
    {"list", "tuple", "set", "frozenset", "dict", "sorted", "sum", "any", "all", "max", "min", "next", "anext", "bytes"}
)
_PICKING = frozenset({"next", "max", "min"})
_FOLDED: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (len, bool, int, str, float, abs, any, all, sum, min, max, round, list, tuple, set, dict, sorted, range)
}
_LOGGING = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
_LOOKING_UP = frozenset(
    {*("get", "keys", "values", "items", "copy", "format", "strip", "lower", "upper", "split", "join", "suppress")}
    | {*("count", "index", "find", "partition")}
    | {*("capitalize", "casefold", "swapcase", "startswith", "endswith", "removeprefix", "removesuffix", "splitlines")}
    | {*("lstrip", "rstrip", "rsplit", "ljust", "rjust", "zfill", "isoformat", "total_seconds", "expandtabs", "sleep")}
    | {name for name in dir(str) if name.startswith("is")}
)
"""Methods that change no object, whatever its class."""
_COMPUTING = frozenset(
    {*("base64", "binascii", "calendar", "cmath", "colorsys", "copy", "datetime", "decimal", "difflib", "fractions")}
    | {*("hashlib", "hmac", "html", "ipaddress", "json", "keyword", "logging", "math", "numbers", "re", "statistics")}
    | {*("string", "struct", "textwrap", "time", "unicodedata", "urllib", "zlib", "zoneinfo", "asyncio", "itertools")}
    | {*("functools", "collections", "typing", "enum", "dataclasses", "pprint", "random", "secrets")}
)
"""Modules of Python whose functions change nothing but what they are given to run."""

_CHANGING = frozenset({"time", "datetime", "random", "secrets"})
"""Modules whose functions return something else in every call."""

_MAKING = frozenset(
    {
        f"collections.{name}"
        for name in ("deque", "defaultdict", "OrderedDict", "Counter", "ChainMap", "UserDict", "UserList")
    }
    | {"contextlib.ExitStack", "contextlib.AsyncExitStack", "io.StringIO", "io.BytesIO", "types.SimpleNamespace"}
    | {"queue.Queue", "queue.SimpleQueue", "asyncio.Queue", "asyncio.Event"}
)
"""What makes an object that nobody else has, and that only holds what it is given."""


_TAKING = frozenset({"pop", "popleft", "popitem"})
_ADDING = frozenset({"extend", "extendleft", "update", "difference_update", "intersection_update", "writelines"})
"""Methods that change an object by the items of what they are given."""


class Calls(Notes):
    """Follows calls."""

    @contextmanager
    def inside(self, node: ast.AST, scope: Scope) -> Iterator[None]:
        """Follow a call in its own scope."""
        outer, call = self.scope, self.call
        self.scope, self.call = scope, Call()
        self._active.append(node)
        try:
            yield
        finally:
            self._active.pop()
            self.scope, self.call = outer, call

    def run_body(self, node: FunctionLike) -> Value:
        """Follow the body of a function in the present scope, and return its result."""
        if isinstance(node, ast.Lambda):
            self.call.results.append(self.eval(node.body))
        else:
            for inner in own_nodes(node):
                if isinstance(inner, ast.Global | ast.Nonlocal):
                    self.scope.elsewhere.update(dict.fromkeys(inner.names, type(inner)))
            if self.block(node.body):
                self.note_result(constant(None))
        if not self.call.results:
            raise Raised
        result = join(self.call.results)
        return result._replace(labels=result.labels | self.decided_by(self.call))

    def invoke(self, function: Function, args: Sequence[Value], named: dict[str, Value], rest: Value | None) -> Value:
        """Follow a call of a function of the project; `rest` is what `*` and `**` pass. A generator only becomes work.

        Raises:
            Raised: It raises in every run.
        """
        node = function.node
        args = [*function.self_value, *function.given, *args]
        named = {**dict(function.given_by_name), **named}
        if node in self._active:
            return Value(NOTHING.union(*(self.labels_of(each) for each in (*args, *named.values()))))
        is_abstract = any(name_of(each) == "abstractmethod" for each in getattr(node, "decorator_list", ()))
        if is_abstract or len(self._active) >= _MOST_CALLS:
            return self.unknown_call(node, [*args, *named.values()])
        scope = Scope(function.scope.file, outer=function.scope)
        self._bind_arguments(function, scope, args, named, rest)
        is_lazy = isinstance(node, ast.AsyncFunctionDef) or is_generator(node)
        run = partial(self._run_call, node, scope)
        if is_lazy:
            labels = NOTHING.union(*(self.labels_of(each) for each in (*args, *named.values())))
            key = repr([each.known for each in (*args, *named.values())])
            return Value(labels, work=(Work(node, run, key),), is_foreign=False, truth=True)
        return run()

    def _run_call(self, node: FunctionLike, scope: Scope) -> Value:
        if node in self._active:
            return UNKNOWN
        with self.inside(node, scope):
            return self.run_body(node)

    def _bind_arguments(
        self, function: Function, scope: Scope, args: Sequence[Value], named: dict[str, Value], rest: Value | None
    ) -> None:
        """Bind the parameters of a call; a default is evaluated where the function is defined."""
        arguments = function.node.args
        places = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        scope.names.update(zip(places, args, strict=False))
        if rest and not args and scope.owner and not function.scope.outer and places and not is_static(function.node):
            scope.names[places[0]] = Value(frozenset({places[0]}), kind=(scope.file, scope.owner), excluded=SCALARS)
        known = {*places, *(each.arg for each in arguments.kwonlyargs)}
        scope.names.update({name: value for name, value in named.items() if name in known})
        if arguments.vararg:
            extra = [*args[len(places) :], *([rest] if rest else [])]
            scope.names[arguments.vararg.arg] = self.made(
                arguments, join(extra), truth=bool(args[len(places) :]) or None
            )
        if arguments.kwarg:
            extra = [*(value for name, value in named.items() if name not in known), *([rest] if rest else [])]
            scope.names[arguments.kwarg.arg] = self.made(arguments.kwarg, join(extra))
        defaults = defaults_of(arguments)
        for name in known - scope.names.keys():
            if rest is not None:
                scope.names[name] = rest
            elif name in defaults:
                with self.inside(arguments, Scope(function.scope.file, outer=function.scope)):
                    scope.names[name] = self.eval(defaults[name])
            else:
                scope.names[name] = UNKNOWN

    def decorate(self, value: Value, node: ast.AST) -> Value:
        """Return what the decorators of the project make of a function; any other decorator is taken to keep it."""
        for decorator in reversed(getattr(node, "decorator_list", [])):
            with suppress(Raised), self.earlier():
                found = self.eval(decorator)
                made = join(self.invoke(each, [value], {}, None) for each in found.functions)
                value = made if made.functions and not made.is_foreign else value
        return value

    def consume(self, value: Value) -> Value:
        """Run what waits in a generator or coroutine, and return its result or items."""
        return join([work.run() for work in value.work]) if value.work else self.element(value)

    def unknown_call(self, node: ast.AST, given: Iterable[Value]) -> Value:
        """Note a call of something that may do anything, with everything that it is given."""
        values = list(given)
        labels = NOTHING.union(*(self.labels_of(each) for each in values))
        self.act(node, labels)
        self.forget_attributes()
        for each in values:
            self.hand_over(each)
        return Value(labels)

    def hand_over(self, value: Value) -> None:
        """Run what other code may run that gets a value, and forget what is known of its content."""
        self.note_change(value)
        with suppress(Raised):
            self.consume(value)
        for function in value.functions:
            if function.node not in self._active:
                with suppress(Raised):
                    self.consume(self.invoke(function, [], {}, UNKNOWN))
        for site in value.sites:
            held = self.holds.get(site, PLAIN)
            if held.functions or held.work:
                self.hand_over(held._replace(sites=held.sites - value.sites))

    def _at_call(self, node: ast.Call) -> Value:
        self.may_raise = True
        owner = self.eval(node.func.value) if isinstance(node.func, ast.Attribute) else None
        if owner is None:
            function = self.eval(node.func)
        else:
            self.step(node.func)
            function = self.attribute(owner, node.func)  # type: ignore[arg-type]
        starred = [each for each in node.args if isinstance(each, ast.Starred)]
        args = [self.sure(self.eval(each)) for each in node.args if not isinstance(each, ast.Starred)]
        named = {each.arg: self.sure(self.eval(each.value)) for each in node.keywords if each.arg}
        rest = [self.eval(each) for each in starred]
        rest += [self.element(self.eval(each.value)) for each in node.keywords if each.arg is None]
        given = [*args, *named.values(), *rest]
        if function.kind and function.name.startswith("class "):
            return self._new_object(node, function, args, named, rest)
        if function.functions and not function.is_foreign:
            return self._call_functions(node, function, args, named, join(rest) if rest else None)
        if self.is_known(function):
            raise Raised  # a constant cannot be called
        for each in function.functions:
            with suppress(Raised):
                self.invoke(each, args, named, join(rest) if rest else None)
        if function.name.startswith("builtins."):
            return self._call_builtin(node, function.name.removeprefix("builtins."), args, named, given)
        if function.name:
            return self._call_outside(node, function, args, named, given)
        return self._call_method(node, owner, given) if owner else self.unknown_call(node, [function, *given])

    def _call_functions(
        self, node: ast.Call, function: Value, args: list[Value], named: dict[str, Value], rest: Value | None
    ) -> Value:
        """Follow a call of functions of the project; the call takes effect if what it runs does."""
        before = len(self.effective), self.acts
        results, is_raised = [], False
        for each in function.functions:
            try:
                results.append(self.invoke(each, args, named, rest))
            except Raised:
                is_raised = True
        if len(self.effective) > before[0]:
            self.effective.add(node)
            self.used = self.used.union(*(self.labels_of(each) for each in (*args, *named.values())))
            self.forget_attributes()
        if not results and is_raised:
            self.note_raise(node, NOTHING)
            raise Raised
        return join(results)

    def _new_object(
        self, node: ast.Call, function: Value, args: list[Value], named: dict[str, Value], rest: list[Value]
    ) -> Value:
        """Follow the making of an object of a class of the project."""
        file, kind = function.kind  # type: ignore[misc]
        value = self.made(node, join([*args, *named.values(), *rest]))._replace(kind=(file, kind))
        bases = [base for home, step in file.lineage(kind) for base in home.bases(step)]
        if any(base.kind == "outside" and not table.is_harmless(base.name) for base in bases):
            labels = self.labels_of(value)
            if labels:
                self.act(node, labels)
            return value._replace(is_foreign=True)
        for name in ("__init__", "__post_init__"):
            found = self.member(value, name)
            if found and found.functions:
                self._call_functions(
                    node, found, args if name == "__init__" else [], named, join(rest) if rest else None
                )
        return value

    def _call_builtin(
        self, node: ast.Call, name: str, args: list[Value], named: dict[str, Value], given: list[Value]
    ) -> Value:
        """Follow a call of a function of Python."""
        if name in ("setattr", "delattr") and args and not args[0].is_foreign:
            self.put(args[0], join(given[1:]))
            return PLAIN
        is_taken = name in ("next", "anext") and bool(args) and args[0].is_foreign
        if name in _ACTING_BUILTINS or is_taken or (name == "print" and "file" in named):
            return self.unknown_call(node, given)
        labels = NOTHING.union(*(self.labels_of(each) for each in given))
        functions = given[:1] if name in ("map", "filter") else [named["key"]] if "key" in named else []
        run = partial(self._run_over_items, node, functions, [each for each in given if each not in functions])
        if name in _LAZY:
            iterated = given[:1] if name in ("enumerate", "iter", "aiter", "reversed") else given[len(functions) :]
            if any(not each.work and self.truth(each) is False for each in iterated):
                return constant(())
            return Value(labels, work=(Work(node, run),), is_foreign=False, truth=True)
        if name == "next" and len(args) == 1 and not args[0].work and self.truth(args[0]) is False:
            raise Raised
        found = self._compute_builtin(node, name, args, named) if len(args) + len(named) == len(given) else None
        if found is None and name in _CONSUMING:
            is_copy = name in ("list", "dict", "set") and len(given) == 1
            return (
                self.copy(node, given[0]) if is_copy else self.made(node, run())._replace(is_foreign=name in _PICKING)
            )
        return found or Value(labels, is_foreign=False)

    def _compute_builtin(self, node: ast.Call, name: str, args: list[Value], named: dict[str, Value]) -> Value | None:
        """Return what a call of a function of Python returns, if that is known."""
        if name in _FOLDED and all(each.known and not each.work for each in (*args, *named.values())):
            options = {key: value.known[0] for key, value in named.items()}
            return self.computed(node, partial(_FOLDED[name], *(each.known[0] for each in args), **options))
        if name == "super" and self.scope.owner:
            receiver = next(iter(self.scope.names.values()), UNKNOWN)
            return receiver._replace(kind=(self.scope.file, self.scope.owner), is_super=True) if receiver.kind else None
        if name == "getattr" and len(args) > 1 and args[1].known and isinstance(args[1].known[0], str):
            return self.attribute(args[0], ast.Attribute(ast.Name("_", ast.Load()), args[1].known[0], ast.Load()))
        if name == "isinstance" and len(args) == 2:
            kinds = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
            return constant(False) if cannot_be(args[0], set(map(name_of, kinds))) else None
        return self._describe(name, args[0]) if len(args) == 1 and not named else None

    def _describe(self, name: str, value: Value) -> Value | None:
        """Return what the type, length, size or text of a value is; None for another function."""
        found = Value(self.labels_of(value), is_foreign=False)
        if name == "type":
            return type_of(value)
        if name in ("len", "abs"):
            is_empty = name == "len" and self.truth(value) is False
            return constant(0) if is_empty else found._replace(facts=(Fact(ast.GtE, 0),))
        is_never_empty = name in ("repr", "ascii") or (name == "str" and str in value.excluded)
        return found._replace(truth=True) if is_never_empty else None

    def _run_over_items(self, node: ast.Call, functions: list[Value], given: list[Value]) -> Value:
        """Run what a builtin runs over the items of what it is given, and return what its result holds."""
        items = [self.consume(each) for each in given]
        if given and not given[0].work and self.truth(given[0]) is False:
            return join(given[1:])
        results = []
        for function in functions:
            args = [join(items)] * max(1, len(items))
            results += [self.consume(self.invoke(each, args, {}, None)) for each in function.functions]
            if not function.functions and not function.known and not function.name:
                results.append(self.unknown_call(node, [function, *args]))
        return join([*items, *results])

    def _call_outside(
        self, node: ast.Call, function: Value, args: list[Value], named: dict[str, Value], given: list[Value]
    ) -> Value:
        """Follow a call of something from outside of the project."""
        name, labels = function.name, NOTHING.union(*(self.labels_of(each) for each in given))
        module, last = name.partition(".")[0], name.rpartition(".")[2]
        if name in ("functools.partial", "functools.partialmethod") and args and args[0].functions:
            functions = tuple(
                each._replace(given=(*each.given, *args[1:]), given_by_name=(*each.given_by_name, *named.items()))
                for each in args[0].functions
            )
            return Value(functions=functions, is_foreign=False)
        if name in ("contextlib.suppress", "functools.wraps"):
            return UNKNOWN
        if name in _MAKING:
            return self.made(node, join(given))
        if module in _COMPUTING and last not in ("shuffle", "seed") and (table.is_harmless(name) or last in _LOGGING):
            result = self._run_given(given) if module in ("asyncio", "itertools", "functools", "re") else PLAIN
            if module == "copy":
                return self.made(node, join([*given, result]))._replace(place=given[0].place if given else ())
            changing = frozenset({last}) if module in _CHANGING and last != "sleep" else NOTHING
            return Value(labels | result.labels | changing, is_foreign=module in ("json", "re", "asyncio"))
        return self.unknown_call(node, given) if labels or not last[:1].isupper() else UNKNOWN

    def _run_given(self, given: list[Value]) -> Value:
        """Run the coroutines, generators and functions that something is given, and return their results."""
        results = [self.consume(each) for each in given if each.work]
        functions = [function for each in given for function in each.functions]
        results += [self.consume(self.invoke(each, [], {}, UNKNOWN)) for each in functions]
        return join(results)

    def _call_method(self, node: ast.Call, owner: Value, given: list[Value]) -> Value:
        """Follow a call of a method of an object whose class is not known."""
        name = node.func.attr  # type: ignore[attr-defined]
        found = self._fold_method(node, name, owner, given)
        if found:
            return found
        if name in _TAKING and len(given) < 2 and self.truth(owner) is False:
            raise Raised
        if given and name in _ADDING and all(self._adds_nothing(name, owner, each) for each in given):
            return PLAIN
        found = self._look_up(node, name, owner, given) or self._change(node, name, owner, given)
        if name == "clear" and not given:
            self.note_emptied(node.func.value, owner)  # type: ignore[attr-defined]
        return found

    def _fold_method(self, node: ast.Call, name: str, owner: Value, given: list[Value]) -> Value | None:
        """Return the result of a method of a known object; None if it is not known."""
        is_plain = not owner.sites or name in _LOOKING_UP
        if not (self.is_known(owner) and is_plain and all(each.known for each in given)):
            return None
        method = getattr(owner.known[0], name, None)
        if method is None:
            raise Raised
        return self.computed(node, partial(method, *(each.known[0] for each in given)))

    def _look_up(self, node: ast.Call, name: str, owner: Value, given: list[Value]) -> Value | None:
        """Return the result of a method that changes nothing; None for another one."""
        if owner.kind and owner.is_foreign:
            return Value(is_foreign=False) if name == "log" else None
        if owner.is_foreign and name in _LOGGING | {"sleep"}:
            return Value(is_foreign=False)
        if name not in _LOOKING_UP or (name == "join" and owner.is_foreign):
            return None
        if name == "copy":
            return self.copy(node, owner)
        contents = [self.consume(each) if each.work else each for each in given]
        found = self.item_by_key(owner, given[0]) if name == "get" and given else self.element(owner)
        labels = found.labels.union(owner.labels, *(self.labels_of(each) for each in (*given, *contents)))
        return found._replace(labels=labels, declared=None, excluded=frozenset())

    def _change(self, node: ast.Call, name: str, owner: Value, given: list[Value]) -> Value:
        """Follow a call of a method that may change its object; on an object that others have, it takes effect."""
        if owner.is_foreign:
            return self.unknown_call(node, [owner._replace(kind=None), *given])
        contents = [self.consume(each) if each.work else each for each in given]
        content = join(contents)
        if owner.sites:
            self.put(owner, content._replace(labels=content.labels | self.depends_on()))
        found = self.element(owner)
        return found._replace(labels=found.labels.union(owner.labels, *map(self.labels_of, (*given, *contents))))

    def _adds_nothing(self, name: str, owner: Value, given: Value) -> bool:
        """True for `items.extend([])` and `found.update(found)`."""
        is_same = bool(owner.place) and owner.place == given.place and name in ("update", "intersection_update")
        return is_same or (name != "intersection_update" and not given.work and self.truth(given) is False)

    def copy(self, node: ast.AST, value: Value) -> Value:
        """Return a copy of a container, which is equal to it."""
        if value.work:
            return self.made(node, self.consume(value))
        truth = False if self.truth(value) is False else None
        copied = self.made(node, self.element(value), truth=truth)
        return copied._replace(place=value.place, declared=value.declared, excluded=value.excluded)
