"""Rung G3: what code can do beyond computing, as a count of its signs; only growth against the old text is refused."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from graphbus_core.editing.rungs import capability_table as table
from graphbus_core.editing.rungs.capability_text import signs_of_text
from graphbus_core.editing.rungs.codes import Problem
from graphbus_core.editing.rungs.imports import Allowed, Imports, imported, use_of
from graphbus_core.editing.text.source_text import SourceText
from graphbus_core.editing.text.symbols import Definition, definitions

_GUARDED = {"IS_ARBITER": "G3.arbiter", "SYSTEM_PROMPT": "G3.prompt"}
Named = Iterator[tuple[str, str]]


class Sign(NamedTuple):
    """One sign of a capability; the same sign twice counts twice."""

    code: str
    what: str
    line: int


def check_growth(
    path: str,
    before: bytes,
    after: bytes,
    allowed: Allowed,
    passes_over: Callable[[Sign], bool] = lambda _: False,
    *,
    has_moved: bool = False,
) -> Problem | None:
    """Give the first sign, by line, that the new text has and the old one has not or less often.

    Args:
        path: The file.
        before: Its old text.
        after: Its new text.
        allowed: What may be imported.
        passes_over: Tells which signs do not count in this file.
        has_moved: Prompts and arbiters are the same in all files of the change together, so that none counts here.
    """
    old, new = SourceText(before, path), SourceText(after, path)
    classes = {symbol.name for symbol in definitions(old.tree)}
    known, fresh = _counted(signs(old, allowed, classes)), _counted(signs(new, allowed, classes))
    grown = [sign for key, found in fresh.items() for sign in found[len(known.get(key, [])) :] if not passes_over(sign)]
    lost = [
        sign for key, found in known.items() if key[0] in _GUARDED.values() for sign in found[len(fresh.get(key, [])) :]
    ]
    if has_moved:
        grown, lost = [sign for sign in grown if sign.code not in _GUARDED.values()], []
    first = min(grown, key=lambda sign: (sign.line, sign.code), default=None)
    if first:
        return Problem(first.code, f"New here: {first.what}.", path, first.line)
    return Problem(lost[0].code, f"No longer here: {lost[0].what}.", path) if lost else None


def guarded(texts: Iterable[bytes]) -> Counter[tuple[str, str, str]]:
    """Count what binds prompts and roles in some files: the class around it, its code, and what it says."""
    found: Counter[tuple[str, str, str]] = Counter()
    for text in texts:
        source = SourceText(text)
        reader = _Reader(source.tree, Allowed(frozenset()), frozenset())
        owners = {id(source.tree): ""}
        for node in ast.walk(source.tree):  # what is around a node comes before it
            owner = reader.names.get(id(node), owners[id(node)]) if isinstance(node, Definition) else owners[id(node)]
            owners.update((id(inner), owner) for inner in ast.iter_child_nodes(node))
            found.update((owners[id(node)], code, what) for code, what in reader.of_guarded(node))
    return found


def _counted(found: Iterable[Sign]) -> dict[tuple[str, str], list[Sign]]:
    counted: dict[tuple[str, str], list[Sign]] = {}
    for sign in sorted(found, key=lambda sign: sign.line):
        counted.setdefault((sign.code, sign.what), []).append(sign)
    return counted


def signs(source: SourceText, allowed: Allowed, old_classes: Iterable[str] = ()) -> Iterator[Sign]:
    """Give every sign of a capability in a file; classes that were there already show each of their bases."""
    reader = _Reader(source.tree, allowed, frozenset(old_classes))
    for node in ast.walk(source.tree):
        line = getattr(node, "lineno", 0)
        for read in reader.readers:
            yield from (Sign(code, what, line) for code, what in read(node))
    yield from (Sign(*found) for found in signs_of_text(source))


class _Reader:
    """Looks at one node after the other, with what is known of the whole file."""

    def __init__(self, tree: ast.Module, allowed: Allowed, old_classes: frozenset[str]) -> None:
        self.allowed = allowed
        self.old_classes = old_classes
        self.imports = Imports(tree)
        self.harmless = {name for name in table.HARMLESS_DECORATORS | table.HARMLESS_BASES if "." not in name}
        self.own_names = {node.name for node in tree.body if isinstance(node, Definition)}
        self.names = {id(symbol.node): symbol.name for symbol in definitions(tree)}
        self.safe_classes = _safe_classes(tree, self.imports)
        self.aliases = frozenset(self._aliases(tree))
        self.inner: set[int] = set()
        self.called: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                self.inner.add(id(node.value))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                self.called.add(id(node.func))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in table.CALLED_ONLY:
                self.inner.add(id(node.func))
        self.readers = (
            *(self.of_import, self.of_attribute, self.of_name, self.of_call, self.of_class, self.of_definition),
            *(self.of_replacement, self.of_rebinding, self.of_guarded, self.of_secret, self.of_comparison),
        )

    def _aliases(self, tree: ast.Module) -> Iterator[str]:
        """Names that stand for a class, a function or an imported thing: what is set on them is set on those."""
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.NamedExpr)) and self._is_shared(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (target.id for target in targets if isinstance(target, ast.Name))

    def _is_shared(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.own_names or node.id in self.imports.names
        if isinstance(node, ast.Attribute):
            return node.attr == "__class__" or self.imports.dotted(node) is not None
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type"

    def of_import(self, node: ast.AST) -> Named:
        for name in imported(node):
            package = name.partition(".")[0]
            if use_of(name):
                yield use_of(name), f"the import of {name}"
            elif package.startswith("_") and package != "__future__":
                yield "G3.native", f"the import of {name}"
            elif name.endswith(".*") or (package and not self.allowed.has(package)):
                yield "G3.import", f"the import of {name}"

    def of_attribute(self, node: ast.AST) -> Named:
        """Full names as a whole, and internal names on anything."""
        if not isinstance(node, ast.Attribute):
            return
        if node.attr in table.FRAMES or (_is_internal(node.attr) and node.attr not in table.HARMLESS_DUNDERS):
            yield "G3.reflection", f"the attribute {node.attr}"
        elif node.attr in table.EVEN_UNCALLED and id(node) not in self.called:
            yield table.METHODS[node.attr], f"{node.attr} as a value"
        dotted = self.imports.dotted(node) if id(node) not in self.inner else None
        if dotted and use_of(dotted):
            yield use_of(dotted), f"the use of {dotted}"

    def of_name(self, node: ast.AST) -> Named:
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            return
        if node.id in table.BARE_NAMES:
            yield table.BARE_NAMES[node.id], f"the use of {node.id}"
        if id(node) in self.inner:
            return
        dotted = self.imports.names.get(node.id, "")
        if node.id in table.CALLED_ONLY and not dotted:
            yield table.CALLED_ONLY[node.id], f"{node.id} as a value"
        elif use_of(dotted):
            yield use_of(dotted), f"the use of {dotted}"
        elif dotted in table.SHARP_MODULES:
            yield "G3.reflection", f"the module {dotted} as a value"

    def of_call(self, node: ast.AST) -> Named:
        if not isinstance(node, ast.Call):
            return
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if "open" in (name, method) and not self.imports.dotted(node.func) and _writes(node, 1 if name else 0):
            yield "G3.files", "opening a file to write"
        elif name in ("getattr", "hasattr") and not _is_plain_getattr(node):
            yield "G3.reflection", f"{name} with a computed or internal name"
        elif method in table.METHODS:
            yield table.METHODS[method], f"a call of {method}"
        elif name == "type" and len(node.args) + len(node.keywords) != 1:
            yield "G3.base", "a class made by a call of type"
        elif (
            method in ("format", "format_map") and isinstance(node.func, ast.Attribute) and _is_joined(node.func.value)
        ):
            yield "G3.reflection", "a format that is put together"
        elif method in ("rename", "replace") and len(node.args) + len(node.keywords) == 1:
            yield "G3.files", f"a call of {method}"

    def of_class(self, node: ast.AST) -> Named:
        if not isinstance(node, ast.ClassDef):
            return
        name = self.names.get(id(node), node.name)
        for base in node.bases:
            shown = self.imports.shown(base)
            is_harmless = shown.partition("[")[0] in table.HARMLESS_BASES | self.safe_classes
            if name in self.old_classes or not is_harmless:
                yield "G3.base", f"{shown} as a base of {name}"
        for keyword in node.keywords:
            if keyword.arg not in table.HARMLESS_CLASS_KEYWORDS:
                yield "G3.base", f"{ast.unparse(keyword)} of {name}"

    def of_definition(self, node: ast.AST) -> Named:
        if not isinstance(node, Definition):
            return
        name = self.names.get(id(node), node.name)
        if node.name in table.MAGIC:
            yield "G3.reflection", f"the method {name}"
        for decorator in node.decorator_list:
            function = decorator.func if isinstance(decorator, ast.Call) else decorator
            shown = self.imports.shown(function)
            is_accessor = isinstance(function, ast.Attribute) and function.attr in ("setter", "getter", "deleter")
            if not is_accessor and shown not in table.HARMLESS_DECORATORS:
                yield "G3.decorator", f"@{shown} on {name}"

    def of_replacement(self, node: ast.AST) -> Named:
        """Setting or deleting an attribute of a module, of an imported thing, or of a class or function of this file."""
        if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load):
            return
        root: ast.expr = node.value
        steps = []
        while isinstance(root, ast.Attribute):
            steps.append(root.attr)
            root = root.value
        is_known = isinstance(root, ast.Name) and (
            root.id in self.imports.names or root.id in self.own_names | self.aliases | {"cls"}
        )
        is_type = isinstance(root, ast.Call) and isinstance(root.func, ast.Name) and root.func.id in ("type", "super")
        if is_known or is_type or "__class__" in steps:
            yield "G3.patch", f"setting {ast.unparse(node)}"

    def of_rebinding(self, node: ast.AST) -> Named:
        """A new meaning for a name that is imported, or that makes a decorator or base look harmless."""
        name = ""
        if isinstance(node, Definition):
            name = node.name
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            name = node.id
        elif isinstance(node, ast.alias):
            name = node.asname if node.asname in self.harmless else ""
        if name and (name in self.imports.names or name in self.harmless):
            yield "G3.patch", f"another meaning for {name}"

    def of_comparison(self, node: ast.AST) -> Named:
        """A value that says itself whether it is equal to the expected one, and other internal names that are bound."""
        if isinstance(node, ast.ClassDef):
            is_value = any(self.imports.shown(base) in table.VALUES for base in node.bases)
            for item in node.body:
                if isinstance(item, Definition) and item.name in table.COMPARED and (is_value or _is_deaf(item)):
                    yield "G3.reflection", f"{item.name} of {node.name}, which answers whatever it is compared with"
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield from [("G3.reflection", f"binding {node.id}")] * _is_bound_oddly(node.id)

    def of_guarded(self, node: ast.AST) -> Named:
        """What binds IS_ARBITER or SYSTEM_PROMPT, with its value; anything but a plain assignment shows its kind only."""
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete)):
            targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
            for target in targets:
                if _final_name(target) in _GUARDED:
                    yield _GUARDED[_final_name(target)], ast.unparse(node)
        elif isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            if _final_name(node) in _GUARDED:
                yield _GUARDED[_final_name(node)], f"binding {_final_name(node)}"
        elif isinstance(node, ast.alias) and (node.asname or node.name) in _GUARDED:
            yield _GUARDED[node.asname or node.name], f"importing {node.asname or node.name}"
        elif isinstance(node, Definition) and node.name in _GUARDED:
            yield _GUARDED[node.name], f"defining {node.name}"

    def of_secret(self, node: ast.AST) -> Named:
        """A string under a name that promises a secret."""
        for name, value in _named_values(node):
            is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
            if is_text and table.SECRET_NAME.search(name) and table.SECRET_VALUE.match(ast.literal_eval(value)):
                yield "G3.secret", f"a value for {name}"


def _writes(call: ast.Call, position: int) -> bool:
    """True when a file is opened to write, or when nobody can know."""
    named = [keyword.value for keyword in call.keywords if keyword.arg in ("mode", None)]
    mode = named[0] if named else call.args[position] if len(call.args) > position else None
    if mode is None:
        return any(isinstance(argument, ast.Starred) for argument in call.args)
    if not isinstance(mode, ast.Constant):
        return True
    return isinstance(mode.value, str) and not set("wax+").isdisjoint(mode.value) and set(mode.value) <= set("rwaxbtU+")


def _is_plain_getattr(call: ast.Call) -> bool:
    name = call.args[1] if len(call.args) > 1 else None
    return isinstance(name, ast.Constant) and isinstance(name.value, str) and not name.value.startswith("_")


def _is_internal(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_bound_oddly(name: str) -> bool:
    return _is_internal(name) and name not in table.BOUND_FREELY


def _is_joined(node: ast.expr) -> bool:
    """True for text that only comes to be when it runs: nobody can read which attributes it asks for."""
    is_join = (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "replace")
    )
    return is_join or isinstance(node, (ast.BinOp, ast.JoinedStr))


def _is_deaf(method: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """True for a comparison that never looks at an attribute or item of anything."""
    return not any(isinstance(node, (ast.Attribute, ast.Subscript)) for node in ast.walk(method))


def _safe_classes(tree: ast.Module, imports: Imports) -> frozenset[str]:
    """Give the classes of a file that are made of harmless ones all the way up, such as its own exceptions."""
    safe: set[str] = set()
    for node in tree.body:  # a base stands before its subclass
        if isinstance(node, ast.ClassDef) and not node.keywords:
            shown = [imports.shown(base).partition("[")[0] for base in node.bases]
            if all(base in table.HARMLESS_BASES or base in safe for base in shown):
                safe.add(node.name)
    return frozenset(safe)


def _final_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _named_values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        yield from ((_final_name(target), node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign) and node.value:
        yield _final_name(node.target), node.value
    elif isinstance(node, ast.keyword):
        yield node.arg or "", node.value
    elif isinstance(node, ast.arguments):
        places = [*node.posonlyargs, *node.args]
        yield from zip((item.arg for item in places[len(places) - len(node.defaults) :]), node.defaults, strict=True)
        yield from ((item.arg, value) for item, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
