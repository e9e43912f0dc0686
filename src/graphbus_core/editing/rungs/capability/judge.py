"""Compares names, attributes and calls with the table of harmless things, and records signs for the rest.

`UseJudge` judges names and attributes. `CallJudge` judges calls whose effect depends on their arguments: `getattr`, `open`,
`print`, `type`, formats, `attrgetter`. The use of an expression counts, see `ExpressionUse`: `len` may be called and passed on,
`getattr` only called.
"""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Callable, Iterator

from graphbus_core.editing.rungs.capability import table
from graphbus_core.editing.rungs.capability.scopes import NameScope
from graphbus_core.editing.rungs.capability.signs import UNKNOWN_ATTRIBUTE, ExpressionUse, Notes
from graphbus_core.editing.rungs.capability.sources import (
    BUILTINS,
    DATA,
    AnalyzedFile,
    Value,
    Values,
    is_internal,
    name_of,
)
from graphbus_core.editing.text.source_text import Definition

_MODULE_DUNDERS = frozenset({"__name__", "__debug__", "__doc__", "__file__"})
_WORST = frozenset({"G3.exec", "G3.process"})
"""The powers of an attribute that count rather than the power of its module."""
_NODE_ACTIONS = frozenset({"publish", "request", "call"})
_KINDS_OF_OTHERS = frozenset({"shared", "outside", "module", "class", "symbol"})


class UseJudge:
    """Judges names and attributes: records a sign for each use that is not known to be harmless.

    Args:
        notes: Where signs and references are recorded.
    """

    def __init__(self, notes: Notes) -> None:
        self.file: AnalyzedFile = notes.file
        self.notes = notes
        self._project = notes.file.project

    # --- names --------------------------------------------------------------------------------

    def judge_values(self, place: ExpressionUse) -> None:
        """Record signs and references for every value that an expression may have."""
        node, scope, use, call = place
        for value in self.file.values(node, scope):
            if value.kind == "outside":
                self.judge_outside(value.name, place)
            elif value.kind == "module" and use != "base":
                self.notes.sign("G3.reflection", f"the use of the module {ast.unparse(node)} as a value", node, scope)
            elif value.kind == "symbol" and use not in ("base", "type"):
                if isinstance(value.node, ast.ClassDef) and value.home and value.home.is_agent(value.node):
                    self.notes.sign(
                        "G3.node", f"the use of the class {value.node.name} of an agent as a value", node, scope
                    )
                self.notes.refer(value.home, value.node, ast.unparse(node), call or node, scope)

    def judge_outside(self, name: str, place: ExpressionUse) -> None:
        """Record a sign for the use of something from outside of the project, by its dotted name, unless it is harmless.

        If it is the base of an attribute, nothing is recorded: the attribute itself is judged. Nor is a capitalized name that is
        used as a type, because there a class is only named.
        """
        first, _, rest = name.partition(".")
        if table.is_module(name) or (first != "builtins" and not rest):
            if place.use != "base":
                self.notes.sign("G3.reflection", f"the use of the module {name} as a value", place.node, place.scope)
        elif not self._record_misuse(name, place) and place.use != "base" and not table.is_harmless(name):
            if first == "builtins":
                self._judge_builtin(rest, place)
            elif place.use != "type" or not name.rpartition(".")[2][:1].isupper():
                self._record_unlisted(name, name, place)

    def _record_misuse(self, name: str, place: ExpressionUse) -> bool:
        """Record a sign for the wrong use of something that is harmless in one use only, such as a decorator.

        Return False, without a sign, if the use is not one of these.
        """
        node, scope, use, _ = place
        stem, _, last = name.rpartition(".")
        if name.endswith(".GraphBusNode") and use in ("value", "call"):
            self.notes.sign("G3.node", "the use of the class of all agents as a value", node, scope)
        elif name in table.ONLY_DECORATORS and use != "type":
            code = "G3.node" if name.startswith("graphbus_core.") else "G3.patch"
            self.notes.sign(code, f"{name} other than as a decorator", node, scope)
        elif name in table.MADE_BY_CALL and use == "call":
            self.notes.sign("G3.base", f"a class made by a call of {name}", node, scope)
        elif use == "call" and last in table.MUTATORS and "." in stem and not stem.startswith("builtins."):
            if table.makes_objects(stem):
                return False
            self.notes.sign(table.code_of(name) or "G3.patch", f"changing {stem}", node, scope)
        else:
            return False
        return True

    def _judge_builtin(self, name: str, place: ExpressionUse) -> None:
        """Record a sign for a builtin that is not harmless in general, unless this use is harmless."""
        node, scope, use, _ = place
        if name in table.CALLED_ONLY:
            if use not in ("type", "call"):
                self.notes.sign("G3.reflection", f"the use of {name} as a value", node, scope)
        elif name in table.CAUGHT_ONLY and use == "type":
            return  # it is only caught or named
        elif name.partition(".")[0] not in BUILTINS:
            return  # an undefined name: it raises at run time, which G8 finds
        elif name not in _MODULE_DUNDERS:
            self._record_unlisted(f"builtins.{name}", name, place)

    def _record_unlisted(self, name: str, shown: str, place: ExpressionUse) -> None:
        """Record a sign for something that is not in the table, with the code of its power, or G3.unknown.

        If all packages are allowed, only known powers are signs. `name` is the dotted name, `shown` that for the message.
        """
        code = table.code_of(name)  # that of the module, unless the last part stands for a worse power
        by_attribute = table.ACTING.get(name.rpartition(".")[2], "")
        code = by_attribute if by_attribute in _WORST else code
        if not code and self._project.allowed.is_everything:
            return
        way = place.call or place.node
        what = f"the use of {shown}"
        self.notes.sign(code or "G3.unknown", what, place.node, place.scope, way=way, is_counted=bool(code))

    def judge_import(self, name: str, node: ast.AST, scope: NameScope) -> None:
        """Record a sign for an import from outside of the project, unless it is harmless and its package is allowed."""
        package = name.partition(".")[0]
        if table.is_module(name) or table.is_harmless(name):
            code = "" if self._project.allowed.has(package) else "G3.import"
        elif package.startswith("_"):
            code = "G3.native"
        else:
            is_known = self._project.allowed.has(package)
            code = table.code_of(name) or ("G3.unknown" if is_known else "G3.import")
            if code == "G3.unknown" and self._project.allowed.is_everything:
                return
        if code:
            self.notes.sign(code, f"the import of {name}", node, scope)

    # --- attributes ---------------------------------------------------------------------------

    def judge_attributes(self, node: ast.Attribute, place: ExpressionUse) -> None:
        """Judge `a.b`, the node of the place, for every value that `a` may have."""
        for value in self.file.values(node.value, place.scope):
            self.judge_attribute(value, node, place)

    def judge_named_attribute(self, name: str, node: ast.AST, scope: NameScope, value: Value = DATA) -> None:
        """Judge an attribute of `value` that is accessed by a constant name: `getattr(x, "name")` or a class pattern."""
        access = ast.copy_location(ast.Attribute(ast.Name("_", ast.Load()), name, ast.Load()), node)
        if value.kind == "outside":
            self.judge_outside(f"{value.name}.{name}", ExpressionUse(access, scope))
        else:
            self.judge_attribute(value, access, ExpressionUse(access, scope))

    def judge_attribute(self, value: Value, node: ast.Attribute, place: ExpressionUse) -> None:
        """Record a sign for an attribute of a value, unless it is harmless; see `judge_outside` for values from outside."""
        name, scope = node.attr, place.scope
        if value.kind == "outside":
            return
        code = self._code_of_internal(value, node, place)
        if code:
            self.notes.sign(code, f"the attribute {name}", node, scope)
        elif value.kind == "module" or is_internal(name):
            return
        elif value.kind == "shared" and name in table.MUTATORS and place.use == "call":
            self.notes.sign("G3.patch", f"changing {ast.unparse(node.value)} of another module or class", node, scope)
        elif isinstance(value.node, ast.ClassDef) and value.home is not None:
            self._judge_member(value, value.home, node, place)
        elif value.kind != "object" or not table.is_of_instance(value.name, name):
            self._judge_unknown_owner(node, place)

    @staticmethod
    def _code_of_internal(value: Value, node: ast.Attribute, place: ExpressionUse) -> str:
        """Return the code of an attribute that reaches internals, such as frames or `__globals__`; empty for any other."""
        name = node.attr
        if value.kind == "module":
            return "G3.reflection" if is_internal(name) and name not in table.OF_MODULES else ""
        if isinstance(node.value, ast.Attribute) and node.value.attr == "__class__" and name not in table.OF_CLASSES:
            return "G3.reflection"
        if is_internal(name) and not (name == "__class__" and place.use == "base"):
            if value.kind == "super" and name in table.DEFINED_FREELY:
                return ""  # a method that calls the one of its base
            is_start_of_other = name == "__init__" and value.kind not in ("super", "symbol")
            return "G3.reflection" if name not in table.DUNDERS or is_start_of_other else ""
        if name in table.FRAMES:
            return "G3.reflection"
        return "G3.node" if name in table.INSIDE_OF_NODES else ""

    def _judge_member(self, value: Value, home: AnalyzedFile, node: ast.Attribute, place: ExpressionUse) -> None:
        """Record a sign for an attribute of an object or class of the project, unless it is harmless."""
        name, scope = node.attr, place.scope
        if name in table.NODE and home.is_agent(value.node):
            self._judge_node_attribute(value, node, place)
        elif value.kind in ("symbol", "class") and home.is_method(value.node, name):
            self.notes.sign("G3.patch", f"the method {name} without its object", node, scope)
        elif not home.has_member(value, name):
            self._judge_unknown_owner(node, place)

    def _judge_node_attribute(self, value: Value, node: ast.Attribute, place: ExpressionUse) -> None:
        """Record a sign if code uses the interface of a node of another agent, or in an unusual way on its own agent."""
        name, call = node.attr, place.call
        if value.kind not in ("self", "super"):
            what = f"{name} of a class or of another agent"
        elif name not in _NODE_ACTIONS or place.use == "base":
            return
        elif call is None:
            what = f"the use of {name} as a value"
        elif value.kind == "super":
            what = f"{name} of the base class"
        elif name != "call" and _passes_more(call, 3 if name == "request" else 2):
            what = f"{name} with more than a topic and a payload"
        else:
            return
        self.notes.sign("G3.node", what, node, place.scope)

    def _judge_unknown_owner(self, node: ast.Attribute, place: ExpressionUse) -> None:
        """Judge an attribute of a value of unknown type by its name alone: by the table, or by methods of the project."""
        name, scope, call = node.attr, place.scope, place.call
        way: ast.AST = call or node
        if name in ("format", "format_map"):
            return  # `CallJudge` judges it
        if name in ("open", "replace"):
            self._judge_open_or_replace(node, place)
        elif name in table.attributes() or (name in table.STREAMS and call is not None and _reads_open_file(call)):
            return
        elif name in table.ACTING:
            verb = "a call of" if call is not None else "the attribute"
            self.notes.sign(table.ACTING[name], f"{verb} {name}", node, scope, way=way)
            self._refer_to_defined(name, way, scope)
        elif name in table.LEADING or not self._refer_to_defined(name, way, scope):
            self._record_unknown(name, node, scope)

    def _judge_open_or_replace(self, node: ast.Attribute, place: ExpressionUse) -> None:
        """Judge `x.open(...)` and `x.replace(...)`, which act on files if `x` is a path."""
        name, call = node.attr, place.call
        way: ast.AST = call or node
        if name == "open":
            code = "G3.files" if call is None or _opens_to_write(call, 0) else "G3.read"
            self.notes.sign(code, "opening a file", node, place.scope, way=way)
        elif call is None or _may_rename(call):
            what = "a call of replace" if call else "the use of replace as a value"
            self.notes.sign("G3.files", what, node, place.scope, way=way)

    def _refer_to_defined(self, name: str, way: ast.AST, scope: NameScope) -> bool:
        """Record a reference to all methods of the project with this name; return False if no class has such an attribute."""
        if not self._is_defined(name):
            return False
        self.notes.refer(None, None, name, way, scope)
        return True

    def _record_unknown(self, name: str, node: ast.Attribute, scope: NameScope) -> None:
        """Record a sign for an attribute that neither the table nor the project knows."""
        if name.lstrip("_") in table.MODULES_INSIDE:
            self.notes.sign("G3.reflection", f"the attribute {name}, which is the name of a module", node, scope)
        elif not self._project.allowed.is_everything or name.startswith("_"):
            self.notes.sign("G3.unknown", f"the attribute {name} {UNKNOWN_ATTRIBUTE}", node, scope, is_counted=False)

    def _is_defined(self, name: str) -> bool:
        """True if a class of the project has an attribute of this name; private names count in their own file only."""
        return name in self.file.fields or (not name.startswith("_") and self._project.defines(name))

    # --- changes to other objects -----------------------------------------------------------------

    def judge_write(self, node: ast.Attribute, scope: NameScope) -> None:
        """Record a sign for `a.b = ...` and `del a.b`, except on `self`, objects made in this function, and plain fields."""
        if node.attr in table.GUARDED:  # `_find_declaration_signs` yields a sign of its own
            return
        if not all(self._may_write(value, node, scope) for value in self.file.values(node.value, scope)):
            code = "G3.node" if node.attr in table.NOT_TO_REPLACE else "G3.patch"
            self.notes.sign(code, f"setting {ast.unparse(node)}", node, scope)

    def _may_write(self, value: Value, node: ast.Attribute, scope: NameScope) -> bool:
        """True if an attribute may be set or deleted if `value` is the object that it belongs to.

        A reference to each overridden base is recorded on the way.
        """
        name = node.attr
        if is_internal(name) or name in table.FRAMES:
            return False
        if value.kind == "self" and value.home is not None:
            self.record_overridden(value.home, value.node, name, node, scope)
            # on `self`: no part of a node, and no method
            return not (value.home.is_agent(value.node) and name in table.NODE | table.NOT_TO_REPLACE) and not any(
                isinstance(one.source, Definition) and not _is_property(one.source)
                for _, _, found in value.home.bound(value.node, name)
                for one in found
            )
        if value.kind in ("class", "symbol") and value.home is self.file and isinstance(value.node, ast.ClassDef):
            return not self.file.is_agent(value.node) and self._is_plain_field(name)
        if value.kind == "object" and value.name in table.OPEN:
            return True
        if value.kind == "object" and self._is_made_here(node.value, scope):
            return value.home is None or not value.home.is_agent(value.node)
        is_from_outside = value.kind == "object" and value.home is None
        return value.kind in ("data", "object") and not is_from_outside and self._is_plain_field(name)

    def _is_made_here(self, node: ast.expr, scope: NameScope) -> bool:
        """True for a name that can only stand for new objects that this function has made."""
        function = scope.function
        if not isinstance(node, ast.Name) or function is None or node.id not in function.bindings:
            return False
        return all(
            value.kind == "object"
            and (value.home.makes_objects(value.node) if value.home else table.makes_objects(value.name))
            for bound in function.bindings[node.id]
            for value in self.file.values_of_binding(bound)
        )

    def _is_plain_field(self, name: str) -> bool:
        """True if only classes of the project that are no agents have this attribute, and none of them has it as a method."""
        own = [(self.file, owner, method) for owner, method in self.file.fields.get(name, ())]
        found = [*self._project.fields(name), *own]
        if name in table.attributes_of_classes():
            return False
        return bool(found) and not any(method is not None or home.is_agent(owner) for home, owner, method in found)

    def record_overridden(
        self, home: AnalyzedFile, node: ast.AST | None, name: str, at: ast.AST, scope: NameScope
    ) -> None:
        """Record references to the bases whose attribute a class overrides: their methods will use the new one.

        `home` is the file of the class `node`, `at` the place of the reference.
        """
        way = ast.copy_location(ast.Constant(name), at)
        for above, step, _ in home.bound(node, name, skip_first=True):
            self.notes.refer(above, step, f"{name} of {step.name}, replaced", way, scope)

    def judge_change(self, base: ast.expr, node: ast.AST, scope: NameScope) -> None:
        """Record a sign for `base[...] = ...`, `del base[...]` and `base += ...` if the base belongs to other code."""
        if not _KINDS_OF_OTHERS.isdisjoint(value.kind for value in self.file.values(base, scope)):
            self.notes.sign("G3.patch", f"changing {ast.unparse(base)} of another module or class", node, scope)


def _is_property(node: Definition) -> bool:
    """True for a method with the decorator of a property."""
    return not {"property", "cached_property", "setter"}.isdisjoint(map(name_of, node.decorator_list))


def _passes_more(call: ast.Call, most: int) -> bool:
    """True if a call passes, or may pass, more than `most` positional arguments, or the keyword `src`."""
    named = {keyword.arg for keyword in call.keywords}
    is_open = None in named or any(isinstance(argument, ast.Starred) for argument in call.args)
    return is_open or "src" in named or len(call.args) > most


def _may_rename(call: ast.Call) -> bool:
    """True if `x.replace(...)` could rename a file: `Path.replace` takes one argument, `str` two, dates keywords."""
    named = {keyword.arg for keyword in call.keywords}
    if None in named or "target" in named or any(isinstance(argument, ast.Starred) for argument in call.args):
        return True
    return len(call.args) == 1 and not named


def _opens_to_write(call: ast.Call, position: int) -> bool:
    """True unless a call clearly opens a file to read; `position` is the index of the mode among its arguments."""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return True
    named = [keyword.value for keyword in call.keywords if keyword.arg in ("mode", None)]
    mode = named[0] if named else call.args[position] if len(call.args) > position else None
    is_read = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set(mode.value) <= set("rbtU")
    return mode is not None and not is_read


def _reads_open_file(call: ast.Call) -> bool:
    """True for a call such as `file.read()` or `file.read(4096)`; other arguments could name another file."""
    return not call.keywords and all(isinstance(one, ast.Constant) and isinstance(one.value, int) for one in call.args)


_SCALARS = frozenset({"str", "int", "float", "len", "round", "bool", "repr", "abs", "format", "hex", "ord", "sum"})
_OPEN_OPTIONS = frozenset({"mode", "encoding", "errors", "newline", "buffering"})
_NOT_DATA = re.compile(
    r"(?:^|/)\.|\.(?:toml|cfg|ini|ya?ml|env|pem|key|p12|pfx|lock|pth|py)$|secret|credential|passw", re.IGNORECASE
)
_CONSOLE_STREAMS = frozenset({"sys.stdout", "sys.stderr", "io.StringIO"})


class CallJudge:
    """Judges calls whose effect depends on their arguments: records a sign for each that is not known to be harmless.

    Args:
        judge: Judges the attributes that such calls access.
    """

    def __init__(self, judge: UseJudge) -> None:
        self._judge = judge
        self._notes = judge.notes
        self._file = judge.file
        self._kinds: dict[str, Callable[[Value, ast.Call, NameScope], None]] = {
            "builtins.getattr": self._judge_getattr,
            "builtins.object.__setattr__": self._judge_setattr,
            "builtins.hasattr": self._judge_getattr,
            "builtins.type": self._judge_type,
            "builtins.open": self._judge_open,
            **dict.fromkeys(table.BY_NAME, self._judge_attrgetter),
        }
        self._imported: list[tuple[str, ast.AST, NameScope]] = []
        self._called_with_names: set[str] = set()

    def judges_calls_of(self, value: Value) -> bool:
        """True for a function from outside whose calls this class judges, so that its name need not be judged."""
        return value.kind == "outside" and (value.name in self._kinds or value.name == "builtins.super")

    def is_console(self, functions: Values, argument: ast.keyword, scope: NameScope) -> bool:
        """True for the `file` argument in `print(..., file=sys.stderr)` and the like."""
        is_print = all(value.name == "builtins.print" for value in functions)
        return (
            is_print
            and argument.arg == "file"
            and all(one.name in _CONSOLE_STREAMS for one in self._file.values(argument.value, scope))
        )

    def judge_call(self, node: ast.Call, scope: NameScope) -> None:
        """Record signs for a call, by its function and arguments."""
        for value in self._file.values(node.func, scope):
            if value.kind == "outside" and value.name in self._kinds:
                self._kinds[value.name](value, node, scope)
            elif value.name == "builtins.print":
                self._judge_print(node, scope)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "format_map"):
            self._judge_format(node.func, node, scope)

    # --- attributes by name ----------------------------------------------------------------------

    def remember_import(self, name: str, node: ast.AST, scope: NameScope) -> None:
        """Remember the import of a function that is harmless only if it is called with constant names (`attrgetter`)."""
        self._imported.append((name, node, scope))

    def finish(self) -> None:
        """Record a sign for each import of `remember_import` that is never called; call this at the end of the file."""
        for name, node, scope in self._imported:
            if name not in self._called_with_names:
                self._notes.sign("G3.reflection", f"the import of {name}", node, scope)

    def _judge_attrgetter(self, value: Value, node: ast.Call, scope: NameScope) -> None:
        """Judge `attrgetter("order.total")` and `methodcaller("strip")` like the attributes that they name."""
        self._called_with_names.add(value.name)
        names = [_constant_text(one) for one in node.args]
        names = names[:1] if value.name == "operator.methodcaller" else names
        if not all(names) or not names or node.keywords:
            self._notes.sign("G3.reflection", "an attribute of a computed name", node, scope)
        for part in (part for name in filter(None, names) for part in name.split(".")):
            self._judge.judge_named_attribute(part, node, scope)

    def _judge_getattr(self, _: Value, node: ast.Call, scope: NameScope) -> None:
        """Judge `getattr` and `hasattr` like the attribute that they name; a computed name is a sign."""
        is_plain = (
            len(node.args) > 1 and not node.keywords and not any(isinstance(one, ast.Starred) for one in node.args)
        )
        name = _constant_text(node.args[1]) if is_plain else None
        if not name:
            self._notes.sign("G3.reflection", "getattr with a computed name", node, scope, way=node)
            return
        for value in self._file.values(node.args[0], scope):
            self._judge.judge_named_attribute(name, node, scope, value)

    def _judge_setattr(self, _: Value, node: ast.Call, scope: NameScope) -> None:
        """Judge `object.__setattr__(self, "name", value)`, with which a frozen dataclass sets its own fields."""
        name = _constant_text(node.args[1]) if len(node.args) == 3 and not node.keywords else None
        owners = self._file.values(node.args[0], scope)
        if name and all(one.kind == "self" and not self._file.is_agent(one.node) for one in owners):
            target = ast.Attribute(node.args[0], name, ast.Store())
            self._judge.judge_write(ast.copy_location(target, node), scope)
        else:
            self._notes.sign("G3.patch", "object.__setattr__ of something other than self", node, scope)

    # --- formats --------------------------------------------------------------------------------

    def _judge_format(self, function: ast.Attribute, node: ast.Call, scope: NameScope) -> None:
        """Judge `text.format(...)`: the text may access attributes of the arguments."""
        texts = self._file.constants(function.value, scope)
        if texts is not None:
            for text in texts:
                self._judge_format_text(text, node, scope)
        elif not all(map(_is_scalar, (*node.args, *(keyword.value for keyword in node.keywords)))):
            self._notes.sign("G3.reflection", "a format that is not constant", node, scope, way=node)

    def _judge_format_text(self, text: str, node: ast.AST, scope: NameScope) -> None:
        """Record a sign for a format whose fields access attributes, such as `"{0.total}"`."""
        try:
            fields = list(_split_format(text))
        except ValueError:  # a malformed format raises at run time
            return
        if any("." in field for field in fields):
            self._notes.sign("G3.reflection", f"the format {text!r}, which accesses attributes", node, scope)

    # --- files and classes ------------------------------------------------------------------------

    def _judge_type(self, _: Value, node: ast.Call, scope: NameScope) -> None:
        """Record a sign for a call of `type` that makes a class; `type(x)` is harmless."""
        if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
            self._notes.sign("G3.base", "a class made by a call of type", node, scope)

    def _judge_open(self, _: Value, node: ast.Call, scope: NameScope) -> None:
        """Record a sign for `open`, unless it clearly reads a data file of the project."""
        if _opens_to_write(node, 1) or any(keyword.arg not in _OPEN_OPTIONS for keyword in node.keywords):
            self._notes.sign("G3.files", "opening a file to write", node, scope, way=node)
        elif not _reads_project_data(node):
            self._notes.sign("G3.read", "opening a file", node, scope, way=node)

    def _judge_print(self, node: ast.Call, scope: NameScope) -> None:
        """Record a sign for `print` into anything but the console."""
        for keyword in node.keywords:
            values = self._file.values(keyword.value, scope)
            if keyword.arg in ("file", None) and not {value.name for value in values} <= _CONSOLE_STREAMS:
                self._notes.sign("G3.files", "print into a file", node, scope, way=node)


def _reads_project_data(node: ast.Call) -> bool:
    """True if a call of `open` names a data file of the project by a constant path; settings and keys are not data."""
    path = _constant_text(node.args[0]) if node.args else None
    if not path or path.startswith(("/", "~")) or ".." in path.split("/"):
        return False
    return not _NOT_DATA.search(path)


def _constant_text(node: ast.expr) -> str | None:
    """Return the value of a `str` constant; None for any other expression."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _split_format(text: str) -> Iterator[str]:
    """Yield the fields of a format text, those in its format specifications included; raise ValueError if it is malformed."""
    for _, field, specification, _ in string.Formatter().parse(text):
        if field is not None:
            yield field
            yield from _split_format(specification or "")


def _is_scalar(node: ast.expr) -> bool:
    """True for an expression that can only be a text or a number, whose attributes are all harmless."""
    if isinstance(node, (ast.Constant, ast.JoinedStr)):
        return True
    if isinstance(node, ast.BinOp):
        return _is_scalar(node.left) and _is_scalar(node.right)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SCALARS
