"""Rung G3: what code can do beyond computing (its powers: network, files, processes ...), checked with an allow list.

A new use of anything that is not known to be harmless is refused. A change may use what the table lists as harmless, code of the
project that has no power, what the file did before in the same way, and what a person has declared in `[tool.graphbus.powers]`.

A *sign* is one use of something that is not known to be harmless; a *reference* is one use of code of the project, whose own
signs count for the code that uses it as well.

    table.py     which names are harmless and which have a power: data
    scopes.py    which statements bind a name
    sources.py   which values a name or expression may have, across the files of the project
    signs.py     signs and references, and how they are recorded
    judge.py     compares names, attributes and calls with the table
    uses.py      walks through a file and passes each expression to the judge; follows references
    text.py      signs in comments, texts and characters
    here         compares both versions of a file; signs of bases, roles, prompts and secrets
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from graphbus_core.editing.rungs.capability import table
from graphbus_core.editing.rungs.capability.scopes import defaults_of
from graphbus_core.editing.rungs.capability.signs import GLOBAL, Reference, Sign
from graphbus_core.editing.rungs.capability.sources import AnalyzedFile, AnalyzedFiles, TooMuchToJudge, Value, name_of
from graphbus_core.editing.rungs.capability.text import signs_of_text
from graphbus_core.editing.rungs.capability.uses import POWERS, Power, ProjectPowers
from graphbus_core.editing.rungs.codes import Refusal
from graphbus_core.editing.text.source_text import Definition, SourceText, definitions
from graphbus_core.model.powers import Powers

_HOST = re.compile(r"'[A-Za-z][A-Za-z0-9+.-]*://([A-Za-z0-9.-]+)(?::\d+)?(?:[/?#]|'$)")
_VARIABLE = re.compile(r"[\[(]'(\w+)'")
_SETTING_FOR: dict[str, str] = {
    "G3.network": 'network = ["the host"]',
    "G3.url": 'network = ["the host"]',
    "G3.files": 'write = ["the folder"]',
    "G3.read": 'read = ["the folder"]',
    "G3.process": "processes = true",
    "G3.environment": 'environment = ["THE_NAME"]',
}
_DOES: dict[str, str] = {
    "G3.exec": "runs code from text or data",
    "G3.reflection": "accesses attributes by internal or computed names",
    "G3.process": "controls processes or the interpreter",
    "G3.network": "uses the network",
    "G3.native": "calls native code",
    "G3.files": "writes files",
    "G3.read": "reads files",
    "G3.environment": "reads the environment",
    "G3.patch": "changes something that belongs to other code",
    "G3.node": "uses or replaces internals of a node",
    "G3.unknown": "uses something that is not known to be harmless",
}


class CodeVersion(NamedTuple):
    """A file before or after a change: its text, and the powers of the project in that state."""

    text: bytes
    project: ProjectPowers


def check_growth(
    path: str,
    before: CodeVersion,
    after: CodeVersion,
    powers: Powers,
    is_exempt: Callable[[Sign], bool] = lambda _: False,
    *,
    has_moved: bool = False,
) -> Refusal | None:
    """Refuse a file with a sign that its old version does not have, or has less often. Refuse one that removes a prompt or role.

    Of several new signs, the first by line is reported. Code that is too large or too deeply nested to be judged is refused, too.

    Args:
        path: The file.
        before: Its old version.
        after: Its new version.
        powers: The powers that a person has declared.
        is_exempt: Returns True for a sign that does not count in this file.
        has_moved: Prompts and roles have only moved between the files of the change, so that they do not count here.
    """
    try:
        old, new = _AnalyzedText(path, before), _AnalyzedText(path, after)
        known, fresh = _group_signs(old.signs(old), old), _group_signs(new.signs(old), old)
    except RecursionError:
        return Refusal("G2.size", "The code is nested too deeply to be checked. Split it up.", path)
    except TooMuchToJudge:
        return Refusal("G2.size", "It takes too long to find out what the names in this code stand for.", path)
    added = [
        sign
        for key, found in fresh.items()
        for sign in found[len(known.get(key, [])) :]
        if (sign.is_counted or key not in known) and not is_exempt(sign) and not _is_declared_power(powers, sign)
    ]
    removed = [
        sign
        for key, found in known.items()
        if key[0] in table.GUARDED.values()
        for sign in found[len(fresh.get(key, [])) :]
    ]
    if has_moved:
        added, removed = [sign for sign in added if sign.code not in table.GUARDED.values()], []
    first = min(added, key=lambda sign: (sign.line, sign.code), default=None)
    if first:
        return Refusal(first.code, f"The change adds {first.what}. {_advise(first.code)}", path, first.line)
    return Refusal(removed[0].code, f"The change removes {removed[0].what}.", path) if removed else None


def _is_declared_power(powers: Powers, sign: Sign) -> bool:
    """True if a person has declared the power of a sign. The confined run of the graph enforces which hosts and folders."""
    if sign.code == "G3.url":
        host = _HOST.search(sign.what)
        return host is not None and _matches_any(host[1].lower(), powers.network or ())
    if sign.code == "G3.environment":
        name = _VARIABLE.search(sign.way)
        return name is not None and _matches_any(name[1], powers.environment)
    declared_for = {
        "G3.network": bool(powers.network),
        "G3.files": bool(powers.write),
        "G3.read": bool(powers.read),
        "G3.process": powers.processes,
    }
    return declared_for.get(sign.code, False)


def _matches_any(name: str, patterns: Iterable[str]) -> bool:
    """True if a name matches one of the declared patterns, which may have wildcards."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _advise(code: str) -> str:
    """Return the sentence that says how a user can allow the power with this code, or that no setting does."""
    if code in _SETTING_FOR:
        return f"To let agents do that, declare {_SETTING_FOR[code]} in [tool.graphbus.powers]."
    return "No setting allows that; make this change yourself if you want it."


class _AnalyzedText:
    """One version of a file, with its signs and references."""

    def __init__(self, path: str, side: CodeVersion) -> None:
        self.source = SourceText(side.text, path)
        self.project = side.project
        file = side.project.files.file(path, tree=self.source.tree)
        if file is None:
            raise RuntimeError(path)
        self.file: AnalyzedFile = file
        self.notes = self.project.notes(file)
        self.names = {id(symbol.node): symbol.name for symbol in definitions(file.tree)}
        self.defined = frozenset(self.names.values())

    def signs(self, old: _AnalyzedText) -> Iterator[Sign]:
        """Yield every sign of this version; `old` is the version before the change, or this one itself.

        A `global` statement is a sign only for a name that the module of the old version binds.
        """
        for sign in self.notes.signs:
            name = sign.what.removeprefix(GLOBAL)
            if name == sign.what or name in old.file.scopes.module.bindings:
                yield sign
        yield from self._reference_signs(old)
        yield from _find_declaration_signs(self.file, old.defined)
        yield from (Sign(*found) for found in signs_of_text(self.source.text, self.file.nodes))

    def _reference_signs(self, old: _AnalyzedText) -> Iterator[Sign]:
        """Yield a sign for each power of each reference to project code in this version; `old` is as in `signs`."""
        seen: set[int] = set()
        for reference in sorted(self.notes.references, key=lambda one: one.line):
            powers = self.project.powers_of(reference)
            if not powers:
                continue
            is_own = reference.home is self.file and reference.texts <= old.texts
            if reference.home is self.file and reference.node is not None:
                name = self.names.get(id(reference.node), "")
                if name not in old.names_with_power:
                    # The signs inside the function count, so that calls of it do not, if it existed before. Of a new function,
                    # which may hold code that was moved within this file, only the first call with old constants does not.
                    is_first = id(reference.node) not in seen and reference.texts <= old.texts
                    seen.add(id(reference.node))
                    if is_first or name in old.defined:
                        continue
            for power in powers.values():  # one sign each: a declared power does not allow another one
                sign = _make_sign(reference, power)
                yield sign._replace(way="") if is_own else sign  # all ways to use code of this file count as the same

    @cached_property
    def names_with_power(self) -> frozenset[str]:
        """The qualified names of the functions and classes in this file that have a power."""
        found = set()
        for symbol in definitions(self.file.tree):
            reference = Reference(self.file, symbol.node, symbol.name, 0, "", frozenset(), runs_at_import=False)
            if self.project.powers_of(reference):
                found.add(symbol.name)
        return frozenset(found)

    @cached_property
    def read_texts(self) -> frozenset[str]:
        """Every string constant in the expressions of this version that read files."""
        return frozenset(text for sign in self.notes.signs if sign.code == "G3.read" for text in sign.texts)

    @cached_property
    def texts(self) -> frozenset[str]:
        """Every string and bytes constant of the file, as text."""
        return frozenset(
            node.value if isinstance(node.value, str) else repr(node.value)
            for node in self.file.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
        )


def _make_sign(reference: Reference, power: Power) -> Sign:
    """Return the sign for a use of project code that has a power."""
    code = power.sign.code
    what = f"the use of {reference.name}, which {_DOES.get(code, 'acts')} ({power.path})"
    return Sign(code, what, reference.line, reference.way, True, reference.runs_at_import, reference.texts)


def _group_signs(found: Iterable[Sign], old: _AnalyzedText) -> dict[tuple[str, str, str], list[Sign]]:
    """Return the signs that count as the same, as lists by key: code of G3, thing, and way of use with its new constants.

    All uses that read files are one group, except those with a string constant with which the old version reads no file.
    """
    counted: dict[tuple[str, str, str], list[Sign]] = {}
    for sign in sorted(found, key=lambda sign: sign.line):
        is_any_reading = sign.code == "G3.read" and sign.way and sign.texts <= old.read_texts
        way = sign.way if sign.texts <= old.texts else f"{sign.way} of {sorted(sign.texts - old.texts)}"
        key = (sign.code, "reading", "") if is_any_reading else (sign.code, sign.what, way)
        counted.setdefault(key, []).append(sign)
    return counted


def count_guarded(texts: Iterable[bytes]) -> Counter[tuple[str, str, str]]:
    """Count the statements that set prompts and roles: (qualified name around it, code of G3, its source) -> number."""
    found: Counter[tuple[str, str, str]] = Counter()
    for text in texts:
        source = SourceText(text)
        names = {id(symbol.node): symbol.name for symbol in definitions(source.tree)}
        owners = {id(source.tree): ""}
        for node in ast.walk(source.tree):  # `walk` yields a node before the nodes inside it
            owner = names.get(id(node), owners[id(node)]) if isinstance(node, Definition) else owners[id(node)]
            owners.update((id(inner), owner) for inner in ast.iter_child_nodes(node))
            found.update((owners[id(node)], code, what) for code, what in _find_guarded_bindings(node))
    return found


# --- signs in declarations: bases, decorators, roles, prompts, secrets, comparisons ---------------------

_SKIPPED = (ast.expr_context, ast.operator, ast.Constant, ast.Call, ast.Subscript, ast.Expr, ast.Return, ast.BinOp)
"""The most frequent kinds of nodes that declare nothing; they are skipped to save time."""
_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)|secret|api_?key|(access|auth|bearer)_?token|private_?key|credential", re.IGNORECASE
)
_SECRET_VALUE = re.compile(r"(?=\S{8,400}$)(?=.*\d)(?=.*[A-Za-z])")
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Found = Iterator[tuple[str, str]]


def _find_declaration_signs(file: AnalyzedFile, old_names: frozenset[str]) -> Iterator[Sign]:
    """Yield the signs of declarations: roles and prompts, secrets, deceptive comparisons, decorators and bases.

    Args:
        file: The file.
        old_names: The names of the definitions before the change. All bases of such a class are signs, and so are all decorators
            from the project on such a function: then the comparison of both versions finds those that are added.
    """
    names = {id(symbol.node): symbol.name for symbol in definitions(file.tree)}
    for node in file.nodes:
        if isinstance(node, _SKIPPED) or (
            isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
        ):
            continue
        line = getattr(node, "lineno", 0)
        found = (_find_guarded_bindings(node), _find_secrets(node), _find_deceptive_comparisons(file, node))
        for code, what in chain(*found):
            yield Sign(code, what, line)
        if isinstance(node, _Function) and names.get(id(node)) in old_names:
            yield from (Sign("G3.decorator", what, line) for what in _find_project_decorators(file, node))
        if isinstance(node, ast.ClassDef):
            for code, what in _find_bases(file, node, names.get(id(node), node.name), old_names):
                yield Sign(code, what, line)


def _find_project_decorators(file: AnalyzedFile, node: _Function) -> Iterator[str]:
    """Yield the decorators of a function that the project itself defines; a new one could change what callers get."""
    scope = file.scopes.of[id(node)].parent or file.scopes.module
    for decorator in node.decorator_list:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        if all(value.kind == "symbol" for value in file.values(function, scope)):
            yield f"@{ast.unparse(function)} on {node.name}"


def _find_bases(file: AnalyzedFile, node: ast.ClassDef, name: str, old_names: frozenset[str]) -> _Found:
    """Yield code and description for the bases and keywords of a class that are not known to be harmless.

    Of a class in `old_names` all bases are yielded. `name` is the qualified name of the class.
    """
    scope = file.scopes.of[id(node)].parent or file.scopes.module
    for base in node.bases:
        defined = file.scopes.of[id(node)].bindings.keys()
        is_harmless = all(  # a base in `SPECIALISED` is harmless if the class defines that one method and nothing else
            _is_harmless_base(value) or defined == {table.SPECIALISED.get(value.name)}
            for value in file.values(base, scope)
        )
        if name in old_names or not is_harmless:
            names = [value.name for value in file.values(base, scope) if value.name]
            yield "G3.base", f"{names[0] if names else ast.unparse(base)} as a base of {name}"
    for keyword in node.keywords:
        if keyword.arg not in table.CLASS_KEYWORDS:
            yield "G3.base", f"{ast.unparse(keyword)} of {name}"


def _is_harmless_base(value: Value) -> bool:
    """True for a base in the table, and for a class of the project that is no agent and has only harmless bases."""
    if value.kind == "outside":
        return value.name in table.BASES
    if value.kind != "symbol" or value.home is None or not isinstance(value.node, ast.ClassDef):
        return False
    if value.node.keywords or value.home.is_agent(value.node):
        return False
    return all(_is_harmless_base(base) for base in value.home.bases(value.node))


def _find_guarded_bindings(node: ast.AST) -> _Found:
    """Yield the code of G3 and a description for a node that binds IS_ARBITER or SYSTEM_PROMPT in any way."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete)):
        targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
        found = [(name_of(target), ast.unparse(node)) for target in targets if name_of(target) in table.GUARDED]
    elif isinstance(getattr(node, "ctx", None), ast.Load):
        return
    else:
        words = [getattr(node, field, None) for field in ("id", "attr", "name", "asname", "rest")]
        words += node.names if isinstance(node, (ast.Global, ast.Nonlocal)) else []
        found = [(name, f"binding {name}") for name in words if isinstance(name, str) and name in table.GUARDED]
    yield from ((table.GUARDED[name], what) for name, what in found)


def _find_secrets(node: ast.AST) -> _Found:
    """Yield code and description for each text that looks like a secret and has a name like `password`."""
    for name, value in _find_named_values(node):
        is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
        if is_text and _SECRET_NAME.search(name) and _SECRET_VALUE.match(ast.literal_eval(value)):
            yield "G3.secret", f"a value for {name}"


def _find_deceptive_comparisons(file: AnalyzedFile, node: ast.AST) -> _Found:
    """Yield code and description for each comparison method that may return True for any value, so that tests prove nothing.

    This is a method that reads no attribute or item, and any method of a class that derives from a built-in value type.
    """
    if not isinstance(node, ast.ClassDef):
        return
    is_value = any(value.name in table.VALUES for value in file.bases(node))
    for item in node.body:
        if isinstance(item, Definition) and item.name in table.COMPARED and (is_value or _reads_no_attribute(item)):
            yield "G3.reflection", f"{item.name} of {node.name}, which does not depend on the other value"


def _reads_no_attribute(method: ast.AST) -> bool:
    """True for a comparison method that reads no attribute and no item, and so cannot depend on the other value."""
    return not any(isinstance(node, (ast.Attribute, ast.Subscript)) for node in ast.walk(method))


def _find_named_values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, value) for each value that a node names: in an assignment, keyword, default or entry of a dict display."""
    if isinstance(node, ast.Assign):
        yield from ((name_of(target), node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign) and node.value:
        yield name_of(node.target), node.value
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id, node.value
    elif isinstance(node, ast.keyword):
        yield node.arg or "", node.value
    elif isinstance(node, ast.arguments):
        yield from defaults_of(node).items()
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value


__all__ = ["POWERS", "AnalyzedFiles", "CodeVersion", "ProjectPowers", "Sign", "check_growth", "count_guarded"]
