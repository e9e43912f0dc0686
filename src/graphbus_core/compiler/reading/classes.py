"""Reads an agent class with its bases into an `AgentDefinition`: methods, subscriptions, publications, calls, dependencies."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from graphbus_core.compiler.reading.below import reads_of_results
from graphbus_core.compiler.reading.bodies import ANY_NAME, Body
from graphbus_core.compiler.reading.constants import evaluate_constant, text_of
from graphbus_core.compiler.reading.events import (
    PUBLISHES,
    declared_publication,
    make_subscription,
    read_calls,
    read_publications,
    read_subscriptions,
)
from graphbus_core.compiler.reading.methods import (
    Decorator,
    MethodSource,
    clean_text,
    docstring,
    make_spec,
    make_view,
    read_decorators,
    read_method,
    read_parameters,
)
from graphbus_core.compiler.reading.modules import (
    FUNCTIONS,
    NODE,
    ClassSite,
    DefinedName,
    External,
    Library,
    Module,
    NameScope,
    base_targets,
    class_chain,
    family_of,
    find_member,
    resolve,
)
from graphbus_core.compiler.reading.syntax import span_of, type_parameters
from graphbus_core.compiler.reading.topics import read_topic
from graphbus_core.compiler.reading.views import FunctionView
from graphbus_core.model.agent import (
    AgentDefinition,
    Call,
    Dependency,
    HandlerShape,
    MethodSpec,
    Parameter,
    Publication,
    Returned,
    SourceSpan,
    Subscription,
)
from graphbus_core.model.digests import sha256_hex
from graphbus_core.schema.types import fields_without_constants, without_constants

_DEPENDS_ON = "graphbus_core.depends_on"
_BLOCKS = (ast.If, ast.Try, ast.With)
_ABSTRACT_BASES = frozenset({"abc.ABC"})
Methods = tuple[tuple[ClassSite, MethodSource], ...]
"""The methods of a class, inherited ones included, each with the class that it is written in."""


def is_node_class(library: Library, site: ClassSite) -> bool:
    """True when `GraphBusNode` is a direct or indirect base of a class."""
    return NODE in family_of(library, site).external


def is_abstract(library: Library, site: ClassSite) -> bool:
    """True for a class that exists only to be inherited from: named `_X`, `Base` or `BaseX`, or with `abc.ABC` as direct base."""
    name = site.node.name
    rest = name.removeprefix("Base")
    if name.startswith("_") or (rest != name and not rest[:1].islower()):
        return True
    return any(isinstance(base, External) and base.dotted in _ABSTRACT_BASES for base in base_targets(library, site))


def read_agent(library: Library, module: Module, node: ast.ClassDef) -> tuple[AgentDefinition, Methods]:
    """Return the definition of one agent class, and its methods, properties included."""
    reader = _AgentReader(library, ClassSite(module, node))
    return reader.read(), reader.found


class _AgentReader:
    """Reads one agent class.

    Attributes:
        found: The methods of the class and those that it inherits, properties included.
    """

    def __init__(self, library: Library, site: ClassSite) -> None:
        self._library = library
        self._site = site
        self._chain = class_chain(library, site)
        self._overridden: list[tuple[ClassSite, MethodSource]] = []  # but called through `super()`
        self.found: Methods = tuple(self._read_methods())
        self._methods = [(home, method) for home, method in self.found if method.is_callable]
        self._instance_names = self._collect_written_names()

    def _collect_written_names(self) -> frozenset[str]:
        """Return the attributes that the class, its bases and their modules assign.

        Also sets `_writers`, which maps each attribute to the number of functions and modules that assign it.
        """
        self._writers = Counter(name for _, method in self.found for name in method.body.written)
        counted = {id(method.node) for _, method in self.found}
        for site in self._chain:
            for function in _functions_in(site.node.body):
                if id(function) not in counted:  # an overridden method: it runs only if `super()` calls it
                    self._writers.update(Body(function, "").written)
            self._writers.update(site.module.bindings.written)
        return frozenset(self._writers)

    def _member_scope(self, site: ClassSite) -> NameScope:
        """Return the scope in which the decorators and class attributes of a class in the chain are read.

        They see the names of their own class body. `self.x` is looked up in all classes of the agent.
        """
        chain = self._chain
        if site is not chain[0]:
            chain = (site, *(entry for entry in chain if entry is not site))
        return NameScope(
            self._library,
            site.module,
            chain,
            in_class_body=True,
            hidden=type_parameters(site.node),
            instance_names=self._instance_names,
        )

    def _read_methods(self) -> Iterator[tuple[ClassSite, MethodSource]]:
        """Yield each method with the class that it is written in, the nearest class first.

        Overridden methods are left out. Those that a method calls by `super()` are added to `_overridden`.
        """
        seen: set[str] = set()
        by_super: set[str] = set()
        for site in self._chain:
            scope = NameScope(self._library, site.module, (site,), in_class_body=True)
            own = {function.name: function for function in _functions_in(site.node.body)}
            for name, function in own.items():
                method = read_method(function, scope) if name not in seen or name in by_super else None
                if method is None:
                    continue
                called = (call.func for call in method.body.method_calls if _is_super_call(call))
                by_super |= {each.attr for each in called}  # type: ignore[attr-defined]
                if name not in seen:
                    yield site, method
                elif method.is_callable:
                    self._overridden.append((site, method))
            seen.update(site.module.class_bindings(site.node).first)

    def read(self) -> AgentDefinition:
        """Return the definition of the agent.

        Publications and calls are taken only from methods that objects of this class may run. Decorators of the bases count, too.
        """
        site = self._site
        specs: list[MethodSpec] = []
        subscriptions: list[Subscription] = []
        publications: list[Publication] = []
        calls: list[Call] = []
        views = self._make_views()
        callers: dict[str, list[tuple[ast.Call, FunctionView]]] = {}
        for *_, view in views:
            for name, call in view.body.calls:
                callers.setdefault(name, []).append((call, view))
        methods_to_run = self._methods_to_run()
        for number, (method, scope, parameters, view) in enumerate(views):
            if number < len(self._methods):  # not an overridden method
                specs.append(make_spec(method, parameters, scope, view))
                subscriptions.extend(read_subscriptions(method, parameters, scope, view))
                if method.node.name == "handle_event":
                    subscriptions.extend(self._read_subscribe_list(method, parameters, view))
            if method.node.name in methods_to_run:
                reads = reads_of_results(method, view)
                publications.extend(read_publications(method, scope, view, callers, reads))
                calls.extend(read_calls(method, view, reads))
        tops = [(entry, NameScope(self._library, entry.module)) for entry in self._chain]
        decorators = [(entry, read_decorators(entry.node.decorator_list, scope)) for entry, scope in tops]
        publications.extend(
            declared_publication(decorator, entry.module.path, "", NameScope(self._library, entry.module))
            for entry, listed in decorators
            for decorator in listed
            if decorator.name == PUBLISHES and decorator.call
        )
        depended = [each for entry, listed in decorators for each in self._read_dependencies(entry, listed)]
        node = site.node
        line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        span = SourceSpan(site.module.path, line, node.col_offset, node.end_lineno or line, node.end_col_offset or 0)
        prompt = self._class_value("SYSTEM_PROMPT")
        definition = AgentDefinition(
            name=site.node.name,
            module=site.module.name,
            path=site.module.path,
            span=span,
            name_span=_name_span(site),
            bases=tuple(ast.unparse(base) if not isinstance(base, ast.Name) else base.id for base in site.node.bases),
            doc=docstring(site.node),
            system_prompt=clean_text(prompt if isinstance(prompt, str) else ""),
            is_arbiter=self._class_value("IS_ARBITER") is True,
            methods=tuple(specs),
            subscriptions=tuple(subscriptions),
            publications=tuple(publications),
            # each dependency once, at the place of its first declaration
            dependencies=tuple({each.name: each for each in reversed(depended)}.values())[::-1],
            calls=tuple(calls),
            source_digest=sha256_hex(site.module.source.span_bytes(span)),
        )
        return msgspec.structs.replace(definition, contract_digest=contract_digest(definition))

    def _methods_to_run(self) -> frozenset[str]:
        """Return the names of the methods that objects of this class may run.

        These are the methods of its own body, decorated ones, those that GraphBus or Python calls by name (`on_...`, `__...__`),
        inherited ones that use what this class defines, and all that these use. A helper that is never used is left out.
        """
        bodies = {method.node.name: method.body for _, method in (*self._overridden, *self._methods)}
        decorated = {method.node.name for _, method in self._methods if method.decorators}
        own = self._names_of_class()
        waiting = [name for name in bodies if name in own | decorated or name.startswith(("on_", "__", "handle_event"))]
        for name, body in bodies.items():  # an inherited public method that uses what this class defines
            if name[:1] != "_" and (ANY_NAME in own or not own.isdisjoint(_used_self_attributes(body))):
                waiting.append(name)
        reached: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in bodies and name not in reached:
                reached.add(name)
                waiting += _used_self_attributes(bodies[name])
        return frozenset(reached)

    def _names_of_class(self) -> set[str]:
        """Return the names that the class body binds and, if it has bases in the project, the attributes its methods assign."""
        bindings = self._site.module.class_bindings(self._site.node)
        names = {*bindings.first, *bindings.rebound}
        for function in _functions_in(self._site.node.body) if len(self._chain) > 1 else ():
            names |= Body(function, "").written
        return names

    def _make_views(self) -> list[tuple[MethodSource, NameScope, tuple[Parameter, ...], FunctionView]]:
        """Return each method with its scope, its parameters and its view, overridden methods last.

        All views share the mappings `kept` and `typed` of `FunctionView`, which are filled when every method has been read.
        """
        scopes = {id(home): self._member_scope(home) for home in self._chain}
        kept: dict[str, tuple[ast.expr, FunctionView]] = {}
        typed = dict(self._annotated_attributes())
        views = []
        for home, method in (*self._methods, *self._overridden):
            scope = scopes[id(home)]
            inside = scope.in_signature(method.node)
            parameters = read_parameters(method, inside)
            views.append(
                (method, scope, parameters, make_view(method, parameters, inside, self._chain, kept=kept, typed=typed))
            )
        for *_, view in views:
            typed |= {name: (annotation, view.scope) for name, annotation in view.body.typed.items()}
            for name, values in view.body.kept.items():
                # an attribute has a certain value only if a single assignment in the whole class sets it
                value = values[0] if len(values) == 1 and self._writers[name] == 1 else None
                if value is not None and find_member(self._chain, name) is None:
                    kept[name] = value, view
        return views

    def _annotated_attributes(self) -> Iterator[tuple[str, tuple[ast.expr, NameScope]]]:
        """Yield `(attribute, (annotation, its scope))` from all class bodies; the nearest class is last, so it wins in a dict."""
        for site in reversed(self._chain):
            for statement in site.node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield statement.target.id, (statement.annotation, NameScope(self._library, site.module))

    def _class_value(self, name: str) -> object:
        """Return the constant value of a class attribute; None if there is none, `NOT_CONSTANT` if it is computed."""
        member = find_member(self._chain, name)
        if not isinstance(member, DefinedName) or member.owner is None or not isinstance(member.node, ast.expr):
            return None
        scope = NameScope(self._library, member.module, (ClassSite(member.module, member.owner),), in_class_body=True)
        return evaluate_constant(member.node, scope)

    def _read_subscribe_list(
        self, method: MethodSource, parameters: tuple[Parameter, ...], view: FunctionView
    ) -> Iterator[Subscription]:
        """Yield the subscriptions of `SUBSCRIBE = ["/A", "/B"]`, whose events `handle_event(topic, payload)` handles."""
        member = find_member(self._chain, "SUBSCRIBE")
        if not isinstance(member, DefinedName) or not isinstance(member.node, ast.List | ast.Tuple) or not member.owner:
            return
        scope = NameScope(self._library, member.module, (ClassSite(member.module, member.owner),), in_class_body=True)
        shape: HandlerShape = "topic_payload" if _accepts_two_arguments(parameters) else "invalid"
        for item in member.node.elts:
            span = span_of(member.module.path, item)
            yield make_subscription(method, parameters, view, span=span, topic=read_topic(item, scope), shape=shape)

    def _read_dependencies(self, site: ClassSite, decorators: Sequence[Decorator]) -> Iterator[Dependency]:
        """Yield the agents that the `@depends_on` decorators of a class name."""
        for decorator in decorators:
            if decorator.name == _DEPENDS_ON and decorator.call:
                for argument in decorator.call.args:
                    yield from _read_dependencies_in(argument, NameScope(self._library, site.module))


def _is_super_call(call: ast.Call) -> bool:
    """True for `super().method(...)`."""
    owner = getattr(call.func, "value", None)
    return isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "super"


def _used_self_attributes(body: Body) -> Iterator[str]:
    """Yield the attributes of `self` that a method uses or calls."""
    yield from (name for name, _ in body.calls)
    yield from (each.attr for each in body.attributes if getattr(each.value, "id", "") == body.self_name)


def _read_dependencies_in(argument: ast.expr, scope: NameScope) -> Iterator[Dependency]:
    """Yield the dependencies in an argument of `@depends_on`: a text, a class, or a list of these; computed ones are left out."""
    if isinstance(argument, ast.List | ast.Tuple | ast.Set):
        for item in argument.elts:
            yield from _read_dependencies_in(item, scope)
        return
    name = text_of(argument, scope)
    if name is None and isinstance(argument, ast.Name | ast.Attribute):
        target = resolve(argument, scope)
        if isinstance(target, DefinedName) and isinstance(target.node, ast.ClassDef):
            name = target.node.name
        elif isinstance(target, External):
            name = target.dotted.rpartition(".")[2]
    if name is not None:
        yield Dependency(name, span_of(scope.module.path, argument))


def _accepts_two_arguments(parameters: tuple[Parameter, ...]) -> bool:
    """True if a method with these parameters can be called with exactly two positional arguments; `*args` does not count."""
    required = [item for item in parameters if not item.has_default and not item.kind.startswith("var")]
    positional = [item for item in parameters if item.kind.startswith("positional")]
    return len(positional) >= 2 >= len(required) and all(item.kind != "keyword_only" for item in required)


def _functions_in(body: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions in a class body, including those inside of `if`, `try` and `with`."""
    for statement in body:
        if isinstance(statement, FUNCTIONS):
            yield statement
        elif isinstance(statement, _BLOCKS):
            yield from _functions_in(statement.body)
            yield from _functions_in(getattr(statement, "orelse", ()))


def _name_span(site: ClassSite) -> SourceSpan:
    """Return the span of the name in `class Name`."""
    source, line, name = site.module.source, site.node.lineno, site.node.name.encode()
    start = source.line_starts[line - 1]
    column = source.utf8.find(name, start + site.node.col_offset + len("class")) - start
    return SourceSpan(site.module.path, line, column, line, column + len(name))


def without_known_constants(definition: AgentDefinition) -> AgentDefinition:
    """Return the definition as the artifacts hold it, with the types of constants only: neighbours do not rely on values."""
    return msgspec.structs.replace(
        definition,
        methods=tuple(
            msgspec.structs.replace(each, returned=tuple(map(_returned_without_constants, each.returned)))
            for each in definition.methods
        ),
        publications=tuple(
            msgspec.structs.replace(
                each, payload=each.payload and fields_without_constants(each.payload), type=without_constants(each.type)
            )
            for each in definition.publications
        ),
        calls=tuple(
            msgspec.structs.replace(each, arguments=fields_without_constants(each.arguments))
            for each in definition.calls
        ),
    )


def _returned_without_constants(returned: Returned) -> Returned:
    """Return a returned value without the constants that are known of its type and its fields."""
    shape = returned.shape and fields_without_constants(returned.shape)
    return msgspec.structs.replace(returned, type=without_constants(returned.type), shape=shape)


def contract_digest(definition: AgentDefinition) -> str:
    """Return the digest of what neighbours can see of an agent.

    It does not depend on the bodies of methods, the names of handlers, places in files and the values of constants.
    """
    definition = without_known_constants(definition)
    methods = [(spec.name, spec.input_schema, spec.output_schema) for spec in definition.methods if spec.has_schema]
    subscriptions = [
        (
            item.topic,
            item.payload,
            [(field.name, field.type, field.has_default) for field in item.fields],
            sorted({(read.key, read.is_optional) for read in item.reads}),
            item.reads_all_known,
        )
        for item in definition.subscriptions
    ]
    publications = [(item.topic, item.payload) for item in definition.publications]
    calls: list[Any] = [(call.agent, call.method, call.arguments, call.has_unknown) for call in definition.calls]
    calls += [("", item.topic, item.payload, True) for item in definition.publications if item.is_request]
    every: tuple[list[Any], ...] = (methods, subscriptions, publications, calls)
    for listed in every:
        listed.sort(key=itemgetter(0))
    needed = sorted(dependency.name for dependency in definition.dependencies)
    whole = (definition.name, definition.is_arbiter, methods, subscriptions, publications, needed, calls)
    return sha256_hex(msgspec.json.encode(whole))
