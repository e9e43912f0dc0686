"""GB312 to GB321: what Python accepts without a word, and what does nothing or fails when the graph runs.

a file with its syntax tree    decorators, topics, `await`, `__init__`, overrides, handlers, imports
the whole project              constructors that need arguments, agents in files that are not read
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from graphbus_core.compiler.reading.annotations import annotation_kind
from graphbus_core.compiler.reading.classes import Methods, is_abstract, is_node_class
from graphbus_core.compiler.reading.facts import ReadFile
from graphbus_core.compiler.reading.methods import (
    Decorator,
    Method,
    annotated_arguments,
    call_argument,
    read_decorators,
)
from graphbus_core.compiler.reading.modules import (
    FUNCTIONS,
    NODE,
    ClassSite,
    Library,
    Scope,
    Symbol,
    class_chain,
    family_of,
    resolve,
    resolve_through,
)
from graphbus_core.compiler.reading.syntax import span_of
from graphbus_core.compiler.rules.awaiting import check_awaits, own_nodes
from graphbus_core.compiler.rules.bodies import check_class, methods_of
from graphbus_core.compiler.rules.offered import check_imports
from graphbus_core.compiler.rules.wiring import Wiring, last_name, report, trees_with
from graphbus_core.errors import BuildError
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.findings import Finding, Severity
from graphbus_core.schema.types import UNKNOWN

_SUBSCRIBE = "graphbus_core.subscribe"
_SCHEMA = "graphbus_core.schema_method"
_PUBLISHES = "graphbus_core.publishes"
_DEPENDS = "graphbus_core.depends_on"
_ON_METHODS = (_SUBSCRIBE, _SCHEMA, _PUBLISHES)


class _Agent(NamedTuple):
    """An agent class while its syntax tree is there."""

    library: Library
    site: ClassSite
    definition: AgentDefinition
    every: Methods

    @property
    def methods(self) -> Iterator[tuple[ClassSite, Method]]:
        """Its methods, without those of a base that is an agent and so checked for itself."""
        return ((home, method) for home, method in self.every if self.has_to_check(home))

    def has_to_check(self, home: ClassSite) -> bool:
        """True for the class itself, and for a base that is no agent."""
        if home.node is self.site.node or is_abstract(self.library, home):
            return True
        return not is_node_class(self.library, home)

    @property
    def is_from_elsewhere(self) -> bool:
        """True when a base outside of the project may have members that are not known."""
        return bool(family_of(self.library, self.site).external - {NODE, "abc.ABC"})

    def scope(self, home: ClassSite) -> Scope:
        """Where the decorators of the methods of a class stand."""
        return Scope(self.library, home.module, (home,), in_class_body=True)

    def report(
        self,
        code: str,
        home: ClassSite,
        node: ast.expr | ast.stmt,
        message: str,
        hint: str,
        *,
        severity: Severity = "error",
    ) -> Finding:
        """Give a finding in the class or in one of its bases."""
        span = span_of(home.module.path, node)
        return report(code, self.definition.name, span, message, hint, severity=severity)


def check_file(read: ReadFile) -> tuple[Finding, ...]:
    """Find what is wrong in a file, as far as it needs the syntax tree."""
    found = list(check_imports(read))
    for tree, definition, methods in read.agents:
        bodies = {method.node.name: method.body for _, method in methods}
        found += check_class(tree, definition, read.module.source, bodies)
        agent = _Agent(read.library, ClassSite(read.module, tree), definition, methods)
        for check in _CHECKS:
            found += check(agent)
    return tuple(found)


# --- GB312, GB313, GB317: decorators --------------------------------------------------------------


def _check_decorators(agent: _Agent) -> Iterator[Finding]:
    """Find decorators that leave nothing behind, each in its order."""
    for home, decorator in _of_classes(agent):
        name = decorator.name.rpartition(".")[2]
        if decorator.name in (_SUBSCRIBE, _SCHEMA):
            message = f"@{name} stands above the class {home.node.name}, where it does nothing"
            yield agent.report(
                "GB317", home, decorator.node, message, "Write it above the method that it is meant for."
            )
        elif decorator.name in (_DEPENDS, _PUBLISHES):
            yield from _check_arguments(agent, home, decorator, f"the class {home.node.name}")
    for home, method in agent.methods:
        for decorator in method.decorators:
            yield from _check_decorator(agent, home, method, decorator)


def _of_classes(agent: _Agent) -> Iterator[tuple[ClassSite, Decorator]]:
    for home in class_chain(agent.library, agent.site):
        if home.node.decorator_list and agent.has_to_check(home):
            for decorator in read_decorators(home.node.decorator_list, Scope(agent.library, home.module)):
                yield home, decorator


def _check_decorator(agent: _Agent, home: ClassSite, method: Method, decorator: Decorator) -> Iterator[Finding]:
    name, what = decorator.name.rpartition(".")[2], f"{home.node.name}.{method.node.name}"
    if decorator.name == _DEPENDS:
        message = f"@{name} stands above the method {what}, where it does nothing"
        yield agent.report("GB317", home, decorator.node, message, "Write it above the class.")
    if decorator.name not in _ON_METHODS:
        return
    if decorator.name != _SCHEMA:
        yield from _check_arguments(agent, home, decorator, what)
    lost = _loses(agent, home, method, decorator)
    if lost:
        message = f"@{name} of {what} is lost, for it stands {lost[0]}"
        yield agent.report("GB317", home, decorator.node, message, lost[1].format(name=name))


def _check_arguments(agent: _Agent, home: ClassSite, decorator: Decorator, what: str) -> Iterator[Finding]:
    """Find a decorator without its argument, and a topic that is none."""
    name, call = decorator.name.rpartition(".")[2], decorator.call
    wanted = "Pricing" if decorator.name == _DEPENDS else '"/Order/Created"'
    if call is None or (decorator.name != _DEPENDS and not (call.args or call.keywords)):
        message = f"@{name} of {what} is given nothing, and so replaces it by something else"
        yield agent.report("GB312", home, decorator.node, message, f"Write `@{name}({wanted})`.")
    elif decorator.name != _DEPENDS:
        for topic in call.args if decorator.name == _SUBSCRIBE else call.args[:1]:
            yield from _check_topic(agent, home, topic, agent.scope(home), f"@{name}")


def _loses(agent: _Agent, home: ClassSite, method: Method, decorator: Decorator) -> tuple[str, str] | None:
    """Say above or below what a decorator stands that takes its mark away, and what to do about it."""
    if not method.is_callable:
        return "at a property, which is no method", "Take `@property` away."
    if decorator not in method.effective:
        below = method.decorators[len(method.decorators) - len(method.effective) - 1]
        kind = last_name(below.node)
        return f"above @{kind}", f"Write `@{kind}` above `@{{name}}`, or leave it out."
    for outer in method.decorators[: method.decorators.index(decorator)]:
        if _forgets(outer, agent.scope(home)):
            return f"below @{last_name(outer.call.func if outer.call else outer.node)}, which returns a new function", (
                "Write `@{name}` first, or put `@functools.wraps(...)` above the function that the decorator returns."
            )
    return None


_KEEPING = re.compile(r"wraps|update_wrapper|__dict__|__graphbus|setattr|vars|getattr")


def _forgets(decorator: Decorator, scope: Scope) -> bool:
    """True for a decorator of the project that surely returns a plain new function, on which no attribute is set."""
    target = resolve_through(decorator.call.func if decorator.call else decorator.node, scope)
    if not isinstance(target, Symbol) or not isinstance(target.node, ast.FunctionDef):
        return False
    made = _made_by(target.node)
    made = _made_by(made) if made and decorator.call else made
    return made is not None and not made.decorator_list and not _KEEPING.search(ast.unparse(target.node))


def _made_by(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Give the inner function that a function returns, whatever happens in it; None for one that returns something else."""
    inner = {each.name: each for each in function.body if isinstance(each, FUNCTIONS)}
    returns = [node for node in own_nodes(function) if isinstance(node, ast.Return)]
    return inner.get(getattr(returns[0].value, "id", "")) if len(returns) == 1 else None


_DISPLAYS = {ast.List: "a list", ast.Tuple: "a tuple", ast.Set: "a set"}


def _check_topics(agent: _Agent) -> Iterator[Finding]:
    """Find calls that publish to several topics at once."""
    for home, method in agent.methods:
        for attribute, call in method.body.calls:
            topic = call_argument(call, 0, "topic") if attribute in ("publish", "request") else None
            if topic is not None:
                known = {*method.body.bound, *(name for name, _ in annotated_arguments(method))}
                scope = Scope(agent.library, home.module, hidden=frozenset(known))
                yield from _check_topic(agent, home, topic, scope, f"self.{attribute}")


def _check_subscribe(agent: _Agent) -> Iterator[Finding]:
    """Find `SUBSCRIBE = "/A"`, each letter of which would be a topic, and a list of topics with nobody who handles them."""
    for home in class_chain(agent.library, agent.site):
        value = home.module.class_bindings(home.node).first.get("SUBSCRIBE")
        if not isinstance(value, ast.expr) or not agent.has_to_check(home):
            continue
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            message = f"SUBSCRIBE of {home.node.name} takes a text where a list of topics belongs"
            yield agent.report("GB313", home, value, message, f"Write `[{ast.unparse(value)}]`.")
        elif getattr(value, "elts", ()) and not agent.definition.method("handle_event") and not agent.is_from_elsewhere:
            message = f"{agent.definition.name} has SUBSCRIBE and no method that its events go to"
            yield agent.report("GB310", home, value, message, "Write `def handle_event(self, topic, payload)`.")


def _check_topic(agent: _Agent, home: ClassSite, topic: ast.expr, scope: Scope, taker: str) -> Iterator[Finding]:
    name = topic.id if isinstance(topic, ast.Name) else ""
    target = resolve(topic, scope) if name else None
    is_known = isinstance(target, Symbol) and name not in target.module.bindings.rebound
    value = target.node if is_known and isinstance(target, Symbol) else topic
    kind = next((text for display, text in _DISPLAYS.items() if isinstance(value, display)), "")
    if isinstance(topic, ast.Constant) and not isinstance(topic.value, str):
        kind = repr(topic.value)
    if kind:
        several = f"Write `@subscribe({f'*{name}' if name else 'A, B'})`."
        hint = several if taker == "@subscribe" else "Give one topic, and write one line for each."
        message = f"{taker} takes {kind} in {home.node.name} where a topic belongs"
        yield agent.report("GB313", home, topic, message, hint)


# --- GB314, GB315, GB316: what is done too soon ------------------------------------------------


def _check_awaits(agent: _Agent) -> Iterator[Finding]:
    names = {method.node.name for _, method in agent.every}
    exposed = {spec.name for spec in agent.definition.methods if spec.has_schema}
    exposed |= {heard.method for heard in agent.definition.subscriptions}
    for home, method in agent.methods:
        if isinstance(method.node, ast.AsyncFunctionDef) and method.body.calls:
            for node, message, hint in check_awaits(method, names, method.node.name in exposed):
                found = agent.report("GB314", home, node, f"{home.node.name}.{method.node.name} {message}", hint)
                yield found


_MAKING = ("__init__", "__post_init__")


def _check_making(agent: _Agent) -> Iterator[Finding]:
    """Find what an agent uses while it is made, before it is connected, and arguments for the constructor of its base."""
    known = {method.node.name: method for _, method in agent.every}
    for home, method in agent.methods:
        if method.node.name in _MAKING:
            yield from _check_super(agent, home, method)
            for node in own_nodes(method.node):
                helper = known.get(_called_on(node, method.body.self_name)) if isinstance(node, ast.Call) else None
                used = _used(agent, method, [node])
                if not used and helper is not None and helper.node.name not in _MAKING:
                    used = _used(agent, helper, own_nodes(helper.node))
                if used and isinstance(node, ast.expr):
                    way = f"{home.node.name}.{method.node.name} uses self.{used}"
                    way += f" by self.{helper.node.name}()" if helper else ""
                    hint = "Do it in `def on_start(self)`, which is called when all agents are connected."
                    yield agent.report("GB316", home, node, f"{way} before the agent is connected", hint)


def _called_on(node: ast.AST, owner: str) -> str:
    """Give `name` for a call of `owner.name(...)`, else the empty text."""
    function = node.func if isinstance(node, ast.Call) else None
    is_own = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == owner != ""
    return function.attr if is_own and isinstance(function, ast.Attribute) else ""


def _used(agent: _Agent, method: Method, nodes: Iterable[ast.AST]) -> str:
    """Give what needs the graph among these nodes: `publish`, `request`, `call` or `state`."""
    owner = method.body.self_name
    replaced = {each.node.name for _, each in agent.every} | {
        name for _, each in agent.every for name in each.body.written
    }
    replaced |= {
        name for home in class_chain(agent.library, agent.site) for name in home.module.class_bindings(home.node).first
    }
    for node in nodes:
        name = _called_on(node, owner)
        if isinstance(node, ast.Attribute) and node.attr == "state" and getattr(node.value, "id", "") == owner != "":
            name = "state"
        if name in ("publish", "request", "call", "state") and name not in replaced:
            return name
    return ""


def _check_super(agent: _Agent, home: ClassSite, method: Method) -> Iterator[Finding]:
    """Find `super().__init__(bus)` where the next constructor is that of GraphBusNode, which takes nothing."""
    chain = class_chain(agent.library, agent.site)
    place = next(number for number, each in enumerate(chain) if each.node is home.node)
    further = {name for each in chain[place + 1 :] for name in each.module.class_bindings(each.node).first}
    if "__init__" in further or agent.is_from_elsewhere or any(each.node.decorator_list for each in chain[place + 1 :]):
        return
    for node in own_nodes(method.node):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__":
            given = [each for each in node.args if not isinstance(each, ast.Starred)]
            if given or any(keyword.arg for keyword in node.keywords):
                message = f"{home.node.name}.__init__ gives arguments to GraphBusNode, which takes none"
                hint = (
                    "Write `super().__init__()`; an agent needs no bus of its own: `self.publish(...)` works as it is."
                )
                yield agent.report("GB315", home, node, message, hint)


def check_constructors(wiring: Wiring) -> Iterator[Finding]:
    """Find agents that a graph cannot make, since it makes them without arguments."""
    if getattr(wiring.evidence.config.settings.runtime, "factory", ""):
        return
    for agent in wiring.asked:
        needed = _needed(agent, wiring)
        if needed and not _is_made(agent.name, wiring):
            names = ", ".join(repr(name) for name in needed)
            message = f"{agent.name} needs {names} to be made, and a graph makes its agents without arguments"
            hint = (
                "Leave it out: `self.publish(...)` works without a bus, from `on_start` on."
                if {*needed} <= {"bus", "message_bus", "event_bus"}
                else 'Name a `factory = "module:function"` in [tool.graphbus.runtime], give defaults, or set it up in `on_start`.'
            )
            init = agent.method("__init__")
            yield report("GB315", agent.name, init.span if init else agent.name_span, message, hint)


def _needed(agent: AgentDefinition, wiring: Wiring) -> list[str]:
    """Name what the constructor of an agent cannot do without."""
    init = agent.method("__init__")
    if init is not None:
        return [each.name for each in init.parameters if not each.has_default and not each.kind.startswith("var")]
    source = wiring.evidence.source(agent.path)
    if b"dataclass" not in source.data:
        return []
    trees = (node for node in ast.walk(source.parse()) if isinstance(node, ast.ClassDef) and node.name == agent.name)
    return [name for tree in trees for name in _fields_of(tree)]


def _fields_of(tree: ast.ClassDef) -> Iterator[str]:
    """Name the fields without a default of a class that is a dataclass."""
    kinds = [each for each in tree.decorator_list if not isinstance(each, ast.Call) or not each.keywords]
    if any(last_name(each.func if isinstance(each, ast.Call) else each) == "dataclass" for each in kinds):
        for each in tree.body:
            if (
                isinstance(each, ast.AnnAssign)
                and each.value is None
                and "ClassVar" not in ast.unparse(each.annotation)
            ):
                yield ast.unparse(each.target)


def _is_made(name: str, wiring: Wiring) -> bool:
    """True when code of the project may make the agent itself, with arguments."""
    for tree in trees_with([name], wiring.evidence):
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree else ()
        if tree is None or any(last_name(call.func) == name and (call.args or call.keywords) for call in calls):
            return True
    return False


# --- GB318, GB321: handlers ------------------------------------------------------------------------


def _check_overrides(agent: _Agent) -> Iterator[Finding]:
    """Find methods that lose what a decorator in the base says of them."""
    chain = class_chain(agent.library, agent.site)
    if len(chain) == 1:
        return
    bases = [(home, {each.name: each for each in methods_of(home.node.body)}) for home in chain]
    for home, method in agent.methods:
        name, place = method.node.name, next(n for n, (each, _) in enumerate(bases) if each.node is home.node)
        base, below = next(((each, found[name]) for each, found in bases[place + 1 :] if name in found), (home, None))
        if below is None or not below.decorator_list:
            continue
        kept = {decorator.name for decorator in method.effective}
        for decorator in read_decorators(below.decorator_list, agent.scope(base)):
            if decorator.name in (_SUBSCRIBE, _SCHEMA) and decorator.name not in kept:
                yield _dropped(agent, (home, method), base, decorator)


def _dropped(agent: _Agent, override: tuple[ClassSite, Method], base: ClassSite, decorator: Decorator) -> Finding:
    home, method = override
    name, written = method.node.name, f"@{ast.unparse(decorator.node)}"
    loss = "hears nothing" if decorator.name == _SUBSCRIBE else "cannot be called over the bus"
    message = f"{home.node.name}.{name} overrides {base.node.name}.{name} without its decorator, and so {loss}"
    hint = f"Write `{written}` above it as well; `{name} = None` in the class says that this is meant."
    return agent.report("GB318", home, method.node, message, hint, severity="warning")


def _check_events(agent: _Agent) -> Iterator[Finding]:
    """Find handlers that take the event and fields of its payload."""
    fields = {heard.method for heard in agent.definition.subscriptions if heard.shape == "fields"}
    for home, method in agent.methods:
        arguments = annotated_arguments(method) if method.node.name in fields else ()
        for name, annotation in arguments:
            if annotation is not None and _is_event(annotation, agent.scope(home)):
                message = (
                    f"{home.node.name}.{method.node.name} takes the event {name!r} together with fields of the payload"
                )
                hint = f"Take `{name}: Event` alone and read {name}['field'], or take the fields alone."
                yield agent.report("GB321", home, annotation, message, hint)


def _is_event(annotation: ast.expr, scope: Scope) -> bool:
    """True for `Event`, also as text, `Event | None` and `Optional[Event]`."""
    if isinstance(annotation, ast.BinOp):
        return _is_event(annotation.left, scope) or _is_event(annotation.right, scope)
    if isinstance(annotation, ast.Subscript) and last_name(annotation.value) == "Optional":
        return _is_event(annotation.slice, scope)
    return annotation_kind(annotation, scope, UNKNOWN) == "event"


_CHECKS: tuple[Callable[[_Agent], Iterator[Finding]], ...] = (
    _check_decorators,
    _check_topics,
    _check_subscribe,
    _check_awaits,
    _check_making,
    _check_overrides,
    _check_events,
)


# --- GB320: files that are not read ------------------------------------------------------------

_OF_TESTS = re.compile(
    rb"\b(?:def test|class Test\w*[ \t]*:|pytest|unittest|hypothesis|graphbus_core\.testing|import[^\n]*\bconnect)\b"
)


def check_skipped(wiring: Wiring) -> Iterator[Finding]:
    """Find agents in files that are not read because of their name, unless tests are in them as well."""
    for path in wiring.evidence.index.skipped:
        try:
            source = wiring.evidence.source(path)
            tree = source.parse() if b"GraphBusNode" in source.data and not _OF_TESTS.search(source.data) else None
        except BuildError:
            continue
        for node in tree.body if tree else ():
            if isinstance(node, ast.ClassDef) and node.name not in wiring.agents and _derives(node):
                message = f"{node.name} is in no graph: {path} is not read, since its name is that of a test or hidden"
                hint = "Give the file another name."
                yield report("GB320", "", span_of(path, node), message, hint, severity="warning")


def _derives(node: ast.ClassDef) -> bool:
    return any(last_name(base) == "GraphBusNode" for base in node.bases)
