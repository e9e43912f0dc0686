"""Findings -> changes that mend them: edits of single tokens, everything between them stays byte for byte.

    finding --place--> innermost method or class --replace, insert--> its new text --> CodeChange(replace_symbol)

A fix is made only where one clear edit surely does it; everywhere else the finding keeps its hint.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import chain
from typing import TypeVar

from graphbus_core.compiler.reading.modules import Bindings, Import
from graphbus_core.compiler.reading.syntax import parse, type_parameters
from graphbus_core.compiler.rules.bodies import defaulted
from graphbus_core.compiler.rules.wiring import Evidence, Wiring, last_name, trees_with
from graphbus_core.model.agent import EVENT_NAMES, PAYLOAD_NAMES, AgentDefinition, MethodSpec, SourceSpan
from graphbus_core.model.findings import Finding, Fix
from graphbus_core.model.proposals import CodeChange

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.ClassDef | _Function
_Node = ast.expr | ast.stmt | ast.arg | ast.ExceptHandler
_Found = TypeVar("_Found")
_BUILTIN = frozenset({*dir(builtins), "Any"})


class _Refused(Exception):  # noqa: N818 - not an error: the mender gives up on this place
    """The place cannot be edited with certainty."""


def mend(finding: Finding, evidence: Evidence) -> Fix | None:
    """Make the change for a finding, or None when it cannot be made with certainty."""
    try:
        return MENDERS[finding.code](finding, evidence)
    except _Refused:
        return None


# --- the text of one method or class ------------------------------------------------------------


class _Symbol:
    """The innermost method or class around a place, and the edits that were asked for in it."""

    def __init__(self, evidence: Evidence, span: SourceSpan) -> None:
        self._source = evidence.source(span.path)
        self.tree = parse(self._source.text)
        place = self._offset(span.line, span.column)
        found = list(_definitions(self.tree.body))
        around = [path for path in found if self._start(path[-1]) <= place < self._end(path[-1])]
        if not around:
            raise _Refused("the place is in no class")
        path = max(around, key=len)
        self.target = _qualified(path)
        if [_qualified(other) for other in found].count(self.target) > 1:
            raise _Refused(f"{self.target} is defined twice")
        self.node = path[-1]
        self.owner = path[-2] if len(path) > 1 else None
        self._edits: set[tuple[int, int, bytes]] = set()

    @property
    def function(self) -> _Function:
        if isinstance(self.node, ast.ClassDef):
            raise _Refused("the place is in no method")
        return self.node

    def text_of(self, node: _Node) -> str:
        return self._source.utf8[self._start(node) : self._end(node)].decode()

    def nodes_at(self, span: SourceSpan) -> Iterator[ast.AST]:
        """Give the nodes that begin where a span does."""
        for node in ast.walk(self.node):
            if (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)) == (span.line, span.column):
                yield node

    def replace(self, node: _Node, new: str) -> None:
        """Put other text in the place of a node; before Python 3.12 the tree does not tell where one in an f-string is."""
        if isinstance(node, ast.Name) and self.text_of(node) != node.id:
            raise _Refused("the place is not known")
        self._edits.add((self._start(node), self._end(node), new.encode()))

    def replace_text(self, node: ast.expr, old: str, new: str) -> None:
        """Change what a string literal says; its quotes and prefix stay."""
        written = self.text_of(node)
        body = written.lstrip("rRuUbB")
        quote = body[:3] if body[:3] in ('"""', "'''") else body[:1]
        if body != f"{quote}{old}{quote}" or "\\" in new or quote in new:
            raise _Refused("it is no plain literal")
        self.replace(node, written[: len(written) - len(body)] + f"{quote}{new}{quote}")

    def insert_behind(self, node: _Node, new: str, length: int | None = None) -> None:
        """Put text behind a node, or behind its first `length` bytes."""
        position = self._end(node) if length is None else self._start(node) + length
        self._edits.add((position, position, new.encode()))

    def annotate(self, parameter: ast.arg, kind: str, default: ast.expr | None) -> None:
        """Put a type behind a parameter, with blanks around the `=` of its default."""
        end = self._end(parameter)
        behind = self._start(default) if default else end
        is_plain = self._source.utf8[end:behind].strip() == b"="
        self._edits.add((end, behind, f": {kind} = ".encode()) if is_plain else (end, end, f": {kind}".encode()))

    def insert_result(self, annotation: str) -> None:
        """Put an annotation behind the bracket that closes the parameters."""
        function = self.function
        parts = [node for node in ast.walk(function.args) if isinstance(node, ast.expr | ast.arg)]
        last = max(map(self._end, parts), default=self._offset(function.lineno, function.col_offset))
        end = self._source.utf8.find(b")", last) + 1
        if type_parameters(function) or b"#" in self._source.utf8[last:end]:
            raise _Refused("the bracket is not surely found")
        self._edits.add((end, end, annotation.encode()))

    def insert_first(self, lines: list[str]) -> None:
        r"""Put lines before the first statement and the comments right above it; `\t` stands for one step of indentation."""
        function = self.function
        body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
        if not body or getattr(body[0], "decorator_list", None):
            raise _Refused("the body does not begin with a plain statement")
        line, width = body[0].lineno, body[0].col_offset
        indentation = self._line(line)[:width]
        if indentation.strip() or line == function.lineno:
            raise _Refused("the body stands on the line of the def")
        while self._line(line - 1).lstrip().startswith("#"):
            line -= 1
        step = indentation.removeprefix(self._line(function.lineno)[: function.col_offset])
        code = "".join(indentation + each.replace("\t", step) + self._source.newline for each in lines)
        self._edits.add((self._offset(line, 0),) * 2 + (code.encode(),))

    def change(self) -> CodeChange:
        """Give the edits as one change that can be parsed."""
        utf8, start, end = self._source.utf8, self._start(self.node), self._end(self.node)
        parts, position = [], start
        for first, last, new in sorted(self._edits):
            if first < position or last > end:
                raise _Refused("two edits overlap, or one leaves the symbol")
            parts += [utf8[position:first], new]
            position = last
        old, new = utf8[start:end], b"".join([*parts, utf8[position:end]])
        try:
            parse((utf8[:start] + new + utf8[end:]).decode())
        except SyntaxError:
            raise _Refused("the result does not parse") from None
        if new == old:
            raise _Refused("nothing changes")
        return CodeChange(
            file_path=self._source.path,
            target=self.target,
            change_type="modify",
            old_code=old.decode(),
            new_code=new.decode(),
            base_sha256=sha256(old).hexdigest(),
        )

    def _offset(self, line: int, column: int) -> int:
        return self._source.line_starts[line - 1] + column

    def _start(self, node: _Node) -> int:
        """Where a node begins; a definition with decorators at the `@` of the first one."""
        decorators = getattr(node, "decorator_list", None)
        if decorators:
            return self._source.utf8.rindex(b"@", 0, self._start(decorators[0]) + 1)
        return self._offset(node.lineno, node.col_offset)

    def _end(self, node: _Node) -> int:
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _line(self, number: int) -> str:
        start, end = self._source.line_starts[number - 1], self._source.line_starts[number]
        return self._source.utf8[start:end].decode()


def _definitions(body: Iterable[ast.AST], owners: tuple[_Definition, ...] = ()) -> Iterator[tuple[_Definition, ...]]:
    """Give every class and method outside of functions, behind the classes that it stands in."""
    for node in body:
        if isinstance(node, _Definition):
            yield (*owners, node)
            if isinstance(node, ast.ClassDef):
                yield from _definitions(node.body, (*owners, node))
        else:
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                yield from _definitions(getattr(node, field, ()), owners)


def _qualified(path: Iterable[_Definition]) -> str:
    return ".".join(node.name for node in path)


def _symbol_of(method: MethodSpec, evidence: Evidence) -> _Symbol:
    """Give a method by what is known of it: its start may be that of a decorator, its end is surely in it."""
    span = method.span
    return _Symbol(evidence, SourceSpan(span.path, span.end_line, max(span.end_column - 1, 0), span.end_line, 0))


def _fix(title: str, intent: str, symbol: _Symbol, finding: Finding, affected: Iterable[str] = ()) -> Fix:
    """Put together a fix for the agents to vote on; the other ends of the finding are affected in any case."""
    names = {related.agent for related in finding.related} | {*affected}
    affects = tuple(sorted(names - {"", finding.agent}))
    return Fix(title=title, intent=intent, changes=(symbol.change(),), affects=affects)


# --- one name for a topic or key at both ends ---------------------------------------------------


def _rename_topic(finding: Finding, evidence: Evidence) -> Fix:
    """GB001: give the subscription the name that is published."""
    old, new = finding.data["old"], finding.data["new"]
    symbol = _Symbol(evidence, finding.span)
    _rename_at(symbol, finding.span, old, new)
    return _fix(f"Rename the topic {old!r} to {new!r} in {symbol.target}", "align_topic", symbol, finding)


def _rename_key_read(finding: Finding, evidence: Evidence) -> Fix:
    """GB003: read the key that is sent, at every place where the handler reads the other one."""
    old, new = finding.data["old"], finding.data["new"]
    symbol = _Symbol(evidence, finding.span)
    definition = next(each for each in evidence.definitions if each.name == finding.agent)
    for subscription in definition.subscriptions:
        for read in subscription.reads:
            if read.key == old and read.span.path == finding.span.path:
                _rename_at(symbol, read.span, old, new)
    return _fix(f"Read {new!r} instead of {old!r} in {symbol.target}", "align_schema", symbol, finding)


def _rename_at(symbol: _Symbol, span: SourceSpan, old: str, new: str) -> None:
    for node in symbol.nodes_at(span):
        if isinstance(node, ast.Constant):
            symbol.replace_text(node, old, new)


def _rename_key_sent(finding: Finding, evidence: Evidence) -> Fix:
    """GB004: send the key under the name that the other publishers or the declaration give it."""
    old, new = finding.data["old"], finding.data["new"]
    symbol = _Symbol(evidence, finding.span)
    _rename_key(symbol, symbol.nodes_at(finding.span), old, new)
    wiring = Wiring(evidence)
    places = [(sent.publication.payload_span, sent.topic) for sent in wiring.sent]
    hearers = (heard.agent.name for span, topic in places if span == finding.span for heard in wiring.hearers(topic))
    return _fix(f"Send {new!r} instead of {old!r} in {symbol.target}", "align_schema", symbol, finding, hearers)


def _rename_key_returned(finding: Finding, evidence: Evidence) -> Fix:
    """GB103: return the key under the name that the output schema gives it, unless something may read the other one."""
    old, new = finding.data["old"], finding.data["new"]
    symbol = _Symbol(evidence, finding.span)
    if any(True for _ in _calls_of(finding.data["method"], evidence, dropped=False)):
        raise _Refused("something may read the result")
    returned = (node.value for node in symbol.nodes_at(finding.span) if isinstance(node, ast.Return))
    _rename_key(symbol, returned, old, new)
    neighbours = Wiring(evidence).neighbours(finding.agent)
    return _fix(f"Return {new!r} instead of {old!r} in {symbol.target}", "align_schema", symbol, finding, neighbours)


def _rename_key(symbol: _Symbol, values: Iterable[ast.AST | None], old: str, new: str) -> None:
    """Rename a key of the one dict display among these values."""
    keys = [key for value in values if isinstance(value, ast.Dict) for key in value.keys]
    symbol.replace_text(_key(keys, old), old, new)


def _key(keys: Iterable[ast.expr | None], name: str) -> ast.expr:
    return _only([key for key in keys if isinstance(key, ast.Constant) and key.value == name])


# --- one name for a parameter and its field -----------------------------------------------------

_REFLECTING = frozenset({"locals", "vars", "eval", "exec", "globals"})


def _rename_to_field(finding: Finding, evidence: Evidence) -> Fix:
    """GB101: give the parameter the name of the field."""
    symbol = _Symbol(evidence, finding.span)
    old, new = finding.data["parameter"], finding.data["field"]
    _rename_parameter(symbol, old, new, evidence)
    title = f"Rename the parameter {old!r} of {symbol.target} to {new!r}"
    return _fix(title, "align_schema", symbol, finding, Wiring(evidence).neighbours(finding.agent))


def _rename_to_producers_name(finding: Finding, evidence: Evidence) -> Fix:
    """GB110: let the consumer's parameter, and its field in the schema, bear the name that the producer uses."""
    old, new = finding.data["old"], finding.data["new"]
    agent, method = _consumer(finding, evidence)
    symbol = _symbol_of(method, evidence)
    is_handler = any(subscription.method == method.name for subscription in agent.subscriptions)
    if is_handler and len(method.parameters) < 3 and new in EVENT_NAMES | PAYLOAD_NAMES:
        raise _Refused("the handler would be called with something else")
    _rename_parameter(symbol, old, new, evidence)
    if method.has_schema:
        symbol.replace_text(_key(_schema_display(symbol.function).keys, old), old, new)
    title = f"Rename the parameter {old!r} of {symbol.target} to {new!r}"
    wiring = Wiring(evidence)
    affected = (agent.name, *wiring.neighbours(finding.agent), *wiring.neighbours(agent.name))
    return _fix(title, "align_schema", symbol, finding, affected)


def _consumer(finding: Finding, evidence: Evidence) -> tuple[AgentDefinition, MethodSpec]:
    named = finding.data.get("method")
    agent = next(each for each in evidence.definitions if each.name == finding.data.get("agent", finding.agent))
    for method in agent.methods:
        if method.name == named if named else any(item.span == finding.span for item in method.parameters):
            return agent, method
    raise _Refused("the consumer is gone")


def _rename_parameter(symbol: _Symbol, old: str, new: str, evidence: Evidence) -> None:
    """Rename a parameter that no call may pass by name, and every use of it in the body."""
    for call in _calls_of(symbol.function.name, evidence):
        if call is None or any(keyword.arg in (old, None) for keyword in call.keywords):
            raise _Refused("the parameter may be passed by name")
    taken = type_parameters(symbol.function) | {argument.arg for argument in _arguments(symbol.function)}
    for node in (inner for statement in symbol.function.body for inner in ast.walk(statement)):
        if isinstance(node, ast.Name):
            taken |= {node.id} - {old}
            if node.id == old:
                symbol.replace(node, new)
        elif old in (bound := _names_bound_by(node)):
            raise _Refused("the name means something else as well")
        else:
            taken |= bound
    if taken & {new, *_REFLECTING}:
        raise _Refused("the new name is taken, or names are looked up as text")
    parameter = _parameter(symbol.function, old)
    symbol.replace(parameter, symbol.text_of(parameter).replace(old, new, 1))


def _names_bound_by(node: ast.AST) -> frozenset[str]:
    """The plain names in the fields of a node: of definitions, clauses, patterns, imports and `global`."""
    if isinstance(node, ast.Attribute | ast.keyword | ast.Constant):
        return frozenset()
    values = chain.from_iterable(each if isinstance(each, list) else [each] for each in vars(node).values())
    return frozenset(value for value in values if isinstance(value, str))


def _calls_of(method: str, evidence: Evidence, *, dropped: bool = True) -> Iterator[ast.Call | None]:
    """Give every call in the project that is of a method of this name or is given the name; None for what may be one.

    Without those whose result is `dropped`: a statement calls the method and does nothing with what it gives.
    """
    for tree in trees_with([method], evidence):
        if tree is None:
            yield None
        nodes = list(ast.walk(tree)) if tree else []
        values = [node.value for node in nodes if isinstance(node, ast.Expr)]
        alone = {value.value if isinstance(value, ast.Await) else value for value in values}
        for node in nodes:
            if isinstance(node, ast.Call):
                is_method = last_name(node.func) == method
                if (is_method and (dropped or node not in alone)) or method in map(_constant, node.args):
                    yield node
    yield from (None for agent in evidence.definitions for call in agent.calls if not call.method)


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _arguments(function: _Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _parameter(function: _Function, name: str) -> ast.arg:
    return _only([argument for argument in _arguments(function) if argument.arg == name])


def _only(found: list[_Found]) -> _Found:
    if len(found) != 1:
        raise _Refused("it is not written once")
    return found[0]


def _declare_parameter(finding: Finding, evidence: Evidence) -> Fix:
    """GB102: declare the parameter in the input schema."""
    name = finding.data["parameter"]
    symbol = _Symbol(evidence, finding.span)
    annotation = _parameter(symbol.function, name).annotation
    if isinstance(annotation, ast.Constant) or (annotation and type_parameters(symbol.function) & _names(annotation)):
        raise _Refused("the decorator does not know the type")
    entry = f'"{name}": {symbol.text_of(annotation) if annotation else "object"}'
    display = _schema_display(symbol.function)
    if display.values:
        symbol.insert_behind(display.values[-1], f", {entry}")
    else:
        symbol.insert_behind(display, entry, length=1)
    neighbours = Wiring(evidence).neighbours(finding.agent)
    return _fix(f"Declare {name!r} in the input_schema of {symbol.target}", "align_schema", symbol, finding, neighbours)


def _schema_display(function: _Function) -> ast.Dict:
    """Give the display of the input schema that stands in the decorator."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and last_name(decorator.func) == "schema_method":
            named = [keyword.value for keyword in decorator.keywords if keyword.arg == "input_schema"]
            for schema in (*decorator.args[:1], *named):
                if isinstance(schema, ast.Dict):
                    return schema
    raise _Refused("the schema does not stand in the decorator")


def _names(expression: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


# --- annotations --------------------------------------------------------------------------------


def _annotate_parameter(finding: Finding, evidence: Evidence) -> Fix:
    """GB201: write the type as the schema spells it; of defaults, only None and constants of this very type fit."""
    name = finding.data["parameter"]
    symbol = _Symbol(evidence, finding.span)
    display = _schema_display(symbol.function)
    pairs = zip(display.keys, display.values, strict=True)
    value = _only([value for key, value in pairs if isinstance(key, ast.Constant) and key.value == name])
    if not isinstance(value, ast.Name | ast.Subscript | ast.BinOp) or "NotRequired" in ast.dump(value):
        raise _Refused("the schema does not spell a type")
    _refuse_hidden(symbol, _names(value))
    kind = " ".join(symbol.text_of(value).split())
    default = next((each for argument, each in defaulted(symbol.function) if argument.arg == name), None)
    if isinstance(default, ast.Constant) and default.value is None:
        kind += "" if "None" in kind else " | None"
    elif default is not None and (not isinstance(default, ast.Constant) or type(default.value).__name__ != kind):
        raise _Refused("the default may be of another type")
    symbol.annotate(_parameter(symbol.function, name), kind, default)
    title = f"Annotate {name!r} of {symbol.target} with {kind}"
    return Fix(title=title, intent="add_annotation", changes=(symbol.change(),), is_safe=True)


def _annotate_result(finding: Finding, evidence: Evidence) -> Fix:
    """GB202: write `-> dict[str, Any]` behind the parameters, and import Any."""
    symbol = _Symbol(evidence, finding.span)
    symbol.insert_result(" -> dict[str, Any]")
    is_imported = Bindings(symbol.tree.body).first.get("Any") == Import("typing", "Any")
    _refuse_hidden(symbol, {"dict", "str"} if is_imported else {"dict", "str", "Any"})
    path, line = finding.span.path, "from typing import Any"
    imported = CodeChange(file_path=path, target="", change_type="add", operation="add_import", new_code=line)
    changes = (symbol.change(),) if is_imported else (symbol.change(), imported)
    title = f"Annotate the result of {symbol.function.name} with dict[str, Any]"
    return Fix(title=title, intent="add_annotation", changes=changes, is_safe=True)


def _refuse_hidden(symbol: _Symbol, names: set[str]) -> None:
    """Give up where a name that is to be written means something else: in the class, or for a builtin in the module."""
    hidden = type_parameters(symbol.node)
    if isinstance(symbol.owner, ast.ClassDef):
        hidden |= type_parameters(symbol.owner) | _bound(symbol.owner.body)
    if names & hidden or names & _BUILTIN & _bound(symbol.tree.body):
        raise _Refused("a name means something else here")


def _bound(body: Iterable[ast.stmt]) -> frozenset[str]:
    bindings = Bindings(body)
    return frozenset({*bindings.first, *bindings.rebound}) | (_BUILTIN if bindings.stars else frozenset())


# --- bodies -------------------------------------------------------------------------------------

_ADDING = frozenset({"add", "append", "appendleft", "extend", "extendleft", "insert", "setdefault", "update"})
_SUSPENDING = (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)
_ENDING = frozenset(
    {
        *("exit", "quit", "_exit", "abort", "parse_args", "parse_known_args", "SystemExit", "KeyboardInterrupt"),
        *("GeneratorExit", "CancelledError", "BaseException", "BaseExceptionGroup"),
    }
)


def _make_default_in_body(finding: Finding, evidence: Evidence) -> Fix:
    """GB301: `items=[]` becomes `items=None`, and `[]` is made in the body; a safe fix where nothing ever looks at the value."""
    name = finding.data["parameter"]
    symbol = _Symbol(evidence, finding.span)
    default = {argument.arg: default for argument, default in defaulted(symbol.function)}[name]
    added, looks = _uses(name, default, symbol.function)
    is_called = bool(Wiring(evidence).callers(finding.agent, symbol.function.name))
    if not _is_constant(default) or (looks and (is_called or not _is_joined(name, added, looks, symbol.function))):
        raise _Refused("somebody may rely on what is shared")
    heard = (each for definition in evidence.definitions for each in definition.subscriptions)
    if any((each.method, each.span.path) == (symbol.function.name, finding.span.path) for each in heard):
        raise _Refused("the signature decides how the handler is called")
    _refuse_hidden(symbol, _names(default))
    annotation = _parameter(symbol.function, name).annotation
    written = symbol.text_of(annotation) if annotation else "None"
    if isinstance(annotation, ast.Constant):
        raise _Refused("the annotation is written as text")
    if annotation and not any(word in written for word in ("None", "Optional", "Any", "object")):
        symbol.insert_behind(annotation, " | None")
    symbol.insert_first([f"if {name} is None:", f"\t{name} = {symbol.text_of(default)}"])
    symbol.replace(default, "None")
    title = f"Make the default of {name!r} anew in each call of {symbol.target}"
    return Fix(title=title, intent="fix_default", changes=(symbol.change(),), is_safe=not looks)


def _is_constant(default: ast.expr) -> bool:
    """True for a value that is the same whenever and wherever it is made."""
    try:
        ast.literal_eval(default)
    except ValueError:
        is_bare = isinstance(default, ast.Call) and not default.args and not default.keywords
        return is_bare and ast.unparse(default) in ("list()", "dict()", "set()")
    return default.lineno == default.end_lineno


def _uses(name: str, default: ast.expr, function: _Function) -> tuple[list[ast.stmt], list[ast.Name]]:
    """Give the statements that add to the value without a look at what is in it, and the other uses of the name."""
    nodes = [node for statement in function.body for node in ast.walk(statement)]
    adding: dict[ast.AST, ast.stmt] = {}
    for node in nodes:
        if isinstance(node, ast.AugAssign):
            adding[node.target] = node
        elif isinstance(node, ast.Assign) and isinstance(default, ast.Dict):
            adding |= {target.value: node for target in node.targets if isinstance(target, ast.Subscript)}
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and called.attr in _ADDING:
                adding[called.value] = node
    names = [node for node in nodes if isinstance(node, ast.Name)]
    mine = [node for node in names if node.id == name]
    looks = [node for node in mine if node not in adding] + [node for node in names if node.id in _REFLECTING]
    return [adding[node] for node in mine if node in adding], looks


def _is_joined(name: str, added: list[ast.stmt], looks: list[ast.Name], function: _Function) -> bool:
    """True when every call adds the same constants first, and only a text is made of the value: surely no memory."""
    first = next((statement for statement in function.body if statement in added), None)
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and last_name(node.func) == "join"]
    parts = [part for call in calls for part in call.args]
    parts += [each for part in parts if isinstance(part, ast.List | ast.Tuple) for each in part.elts]
    joined = [part.value if isinstance(part, ast.Starred) else part for part in parts]
    is_behind = first is not None and all(look.lineno > (first.end_lineno or 0) and look in joined for look in looks)
    return is_behind and all(_names(statement) == {name} for statement in added)


def _catch_exceptions_only(finding: Finding, evidence: Evidence) -> Fix:
    """GB302: `except:` becomes `except Exception:`, unless what is tried ends the process, or can be closed or cancelled."""
    symbol = _Symbol(evidence, finding.span)
    clause = next(node for node in symbol.nodes_at(finding.span) if isinstance(node, ast.ExceptHandler))
    tries = (node for node in ast.walk(symbol.node) if isinstance(node, ast.Try) and clause in node.handlers)
    for node in (inner for each in tries for statement in each.body for inner in ast.walk(statement)):
        if isinstance(node, _SUSPENDING) or (isinstance(node, ast.expr) and last_name(node) in _ENDING):
            raise _Refused("what is caught is no Exception")
    _refuse_hidden(symbol, {"Exception"})
    symbol.insert_behind(clause, " Exception", length=len("except"))
    return _fix(f"Let {symbol.target} catch exceptions only", "narrow_except", symbol, finding)


def _add_guard(finding: Finding, evidence: Evidence) -> Fix:
    """GB210: refuse arguments of another type than the schema declares."""
    symbol = _Symbol(evidence, finding.span)
    kinds = [item.partition(":")[::2] for item in finding.data["kinds"].split(",")]
    _refuse_hidden(symbol, {"isinstance", "TypeError", "type", *(kind for _, kind in kinds)})
    optional = {argument.arg for argument, _ in defaulted(symbol.function)}
    lines: list[str] = []
    for name, kind in kinds:
        wanted = "(int, float)" if kind == "float" else kind
        condition = f"not isinstance({name}, {wanted})"
        lines += [
            f"if {name} is not None and {condition}:" if name in optional else f"if {condition}:",
            f'\traise TypeError(f"{name} must be {kind}, not {{type({name}).__name__}}")',
        ]
    symbol.insert_first(lines)
    neighbours = Wiring(evidence).neighbours(finding.agent)
    return _fix(f"Validate the input of {symbol.target}", "add_validation", symbol, finding, neighbours)


MENDERS: dict[str, Callable[[Finding, Evidence], Fix]] = {
    "GB001": _rename_topic,
    "GB003": _rename_key_read,
    "GB004": _rename_key_sent,
    "GB101": _rename_to_field,
    "GB102": _declare_parameter,
    "GB103": _rename_key_returned,
    "GB110": _rename_to_producers_name,
    "GB201": _annotate_parameter,
    "GB202": _annotate_result,
    "GB210": _add_guard,
    "GB301": _make_default_in_body,
    "GB302": _catch_exceptions_only,
}
