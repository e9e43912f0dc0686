"""Calls whose arguments decide what they do: `getattr`, `open`, `print`, `type`, formats, `attrgetter`."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Callable, Iterator

from graphbus_core.editing.rungs.capability.judge import Judge, opens_to_write
from graphbus_core.editing.rungs.capability.scopes import Scope
from graphbus_core.editing.rungs.capability.sources import Value, Values

_SCALARS = frozenset({"str", "int", "float", "len", "round", "bool", "repr", "abs", "format", "hex", "ord", "sum"})
_MANNERS = frozenset({"mode", "encoding", "errors", "newline", "buffering"})
_NO_DATA = re.compile(
    r"(?:^|/)\.|\.(?:toml|cfg|ini|ya?ml|env|pem|key|p12|pfx|lock|pth|py)$|secret|credential|passw", re.IGNORECASE
)
_SCREENS = frozenset({"sys.stdout", "sys.stderr", "io.StringIO"})
_FIELD_ATTRIBUTE = re.compile(r"\.([^.\[\]]+)")


class Calls:
    """Looks at such calls one by one.

    Args:
        judge: For the attributes that they ask for.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._notes = judge.notes
        self._file = judge.file
        self._imported: list[tuple[str, ast.AST, Scope]] = []
        self._named: set[str] = set()
        self._kinds: dict[str, Callable[[Value, ast.Call, Scope], None]] = {
            "builtins.getattr": self._getattr,
            "builtins.object.__setattr__": self._setattr,
            "builtins.hasattr": self._getattr,
            "builtins.type": self._type,
            "builtins.open": self._open,
            "operator.attrgetter": self._by_name,
            "operator.methodcaller": self._by_name,
        }

    def is_looked_at(self, value: Value) -> bool:
        """Tell whether calls of this function are looked at here, and the function itself need not be judged."""
        return value.kind == "outside" and (value.name in self._kinds or value.name == "builtins.super")

    def is_screen(self, functions: Values, given: ast.keyword, scope: Scope) -> bool:
        """Tell whether an argument is that of `print(..., file=sys.stderr)`."""
        prints = all(value.name == "builtins.print" for value in functions)
        return (
            prints
            and given.arg == "file"
            and all(one.name in _SCREENS for one in self._file.values(given.value, scope))
        )

    def call(self, node: ast.Call, scope: Scope) -> None:
        """Look at a call."""
        for value in self._file.values(node.func, scope):
            if value.kind == "outside" and value.name in self._kinds:
                self._kinds[value.name](value, node, scope)
            elif value.name == "builtins.print":
                self._print(node, scope)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "format_map"):
            self._format(node.func, node, scope)

    # --- names as text ------------------------------------------------------------------------

    def imported(self, name: str, node: ast.AST, scope: Scope) -> None:
        """Remember the import of a member that is harmless only where it is called with names."""
        self._imported.append((name, node, scope))

    def finish(self) -> None:
        """Give a sign for each such import whose member is not called so anywhere."""
        for name, node, scope in self._imported:
            if name not in self._named:
                self._notes.sign("G3.reflection", f"the import of {name}", node, scope)

    def _by_name(self, value: Value, node: ast.Call, scope: Scope) -> None:
        self._named.add(value.name)
        names = [_literal(argument) for argument in node.args]
        names = names[:1] if value.name == "operator.methodcaller" else names
        parts = [part for name in names for part in (name or "").split(".")]
        if not parts or "" in parts or node.keywords:
            self._notes.sign("G3.reflection", "an attribute of a computed name", node, scope)
        for part in filter(None, parts):
            if not self._judge.is_known(part):
                self._notes.sign("G3.reflection", f"{part} by its name", node, scope)
            else:
                self._judge.asked_by_name(part, node, scope)

    def _getattr(self, _: Value, node: ast.Call, scope: Scope) -> None:
        is_plain = (
            len(node.args) > 1 and not node.keywords and not any(isinstance(one, ast.Starred) for one in node.args)
        )
        name = _literal(node.args[1]) if is_plain else None
        if not name:
            self._notes.sign("G3.reflection", "getattr with a computed name", node, scope, way=node)
            return
        for value in self._file.values(node.args[0], scope):
            self._judge.asked_by_name(name, node, scope, value)

    def _setattr(self, _: Value, node: ast.Call, scope: Scope) -> None:
        """`object.__setattr__(self, "name", value)`: how a frozen dataclass sets its own fields."""
        name = _literal(node.args[1]) if len(node.args) == 3 and not node.keywords else None
        owners = self._file.values(node.args[0], scope)
        if name and all(one.kind == "self" and not self._file.is_agent(one.node) for one in owners):
            target = ast.Attribute(node.args[0], name, ast.Store())
            self._judge.written(ast.copy_location(target, node), scope)
        else:
            self._notes.sign("G3.patch", "object.__setattr__ of something else than self", node, scope)

    # --- formats --------------------------------------------------------------------------------

    def _format(self, function: ast.Attribute, node: ast.Call, scope: Scope) -> None:
        """`text.format(...)`: the text may ask for attributes of what it is given."""
        texts = self._file.constants(function.value, scope)
        if texts is not None:
            for text in texts:
                self._fields(text, node, scope)
        elif not all(map(_is_scalar, (*node.args, *(keyword.value for keyword in node.keywords)))):
            self._notes.sign("G3.reflection", "a format that is not constant", node, scope, way=node)

    def _fields(self, text: str, node: ast.AST, scope: Scope) -> None:
        try:
            fields = list(_fields_of(text))
        except ValueError:  # no format at all: it raises when it runs
            return
        for field in fields:
            for name in _FIELD_ATTRIBUTE.findall(field):
                self._judge.asked_by_name(name, node, scope)

    # --- files and classes ------------------------------------------------------------------------

    def _type(self, _: Value, node: ast.Call, scope: Scope) -> None:
        if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
            self._notes.sign("G3.base", "a class made by a call of type", node, scope)

    def _open(self, _: Value, node: ast.Call, scope: Scope) -> None:
        if opens_to_write(node, 1) or any(keyword.arg not in _MANNERS for keyword in node.keywords):
            self._notes.sign("G3.files", "opening a file to write", node, scope, way=node)
        elif not _is_of_project(node):
            self._notes.sign("G3.read", "opening a file", node, scope, way=node)

    def _print(self, node: ast.Call, scope: Scope) -> None:
        for keyword in node.keywords:
            values = self._file.values(keyword.value, scope)
            if keyword.arg in ("file", None) and not {value.name for value in values} <= _SCREENS:
                self._notes.sign("G3.files", "print into a file", node, scope, way=node)


def _is_of_project(node: ast.Call) -> bool:
    """Tell whether a data file of the project is opened, which agents may read; settings and keys are none."""
    path = _literal(node.args[0]) if node.args else None
    if not path or path.startswith(("/", "~")) or ".." in path.split("/"):
        return False
    return not _NO_DATA.search(path)


def _literal(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _fields_of(text: str) -> Iterator[str]:
    """Give the fields of a format text, also those inside of format specifications."""
    for _, field, specification, _ in string.Formatter().parse(text):
        if field is not None:
            yield field
            yield from _fields_of(specification or "")


def _is_scalar(node: ast.expr) -> bool:
    """Tell whether an expression is surely a text or a number, which have no attributes of interest."""
    if isinstance(node, (ast.Constant, ast.JoinedStr)):
        return True
    if isinstance(node, ast.BinOp):
        return _is_scalar(node.left) and _is_scalar(node.right)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SCALARS
