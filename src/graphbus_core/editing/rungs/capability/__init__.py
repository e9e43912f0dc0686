"""Rung G3: what code can do beyond computing (its powers: network, files, processes ...), checked with an allow list.

A new use of anything that is not known to be harmless is refused. A change may use what the table lists as harmless, code of the
project that has no power, what the file did before in the same way, and what a person has declared in `[tool.graphbus.powers]`.

A *sign* is one use of something that is not known to be harmless; a *reference* is one use of code of the project, whose own
signs count as well.

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
_WAYS_OUT: dict[str, str] = {
    "G3.network": 'network = ["the host"]',
    "G3.url": 'network = ["the host"]',
    "G3.files": 'write = ["the folder"]',
    "G3.read": 'read = ["the folder"]',
    "G3.process": "processes = true",
    "G3.environment": 'environment = ["THE_NAME"]',
}
_DOES: dict[str, str] = {
    "G3.exec": "runs code from text or data",
    "G3.reflection": "reaches attributes by internal or computed names",
    "G3.process": "controls processes or the interpreter",
    "G3.network": "uses the network",
    "G3.native": "calls native code",
    "G3.files": "writes files",
    "G3.read": "reads files",
    "G3.environment": "reads the environment",
    "G3.patch": "replaces what belongs to others",
    "G3.node": "reaches behind the public interface of a node",
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
    """Return a refusal for the first sign, by line, that the new text has and the old one has not, or has less often.

    Args:
        path: The file.
        before: Its old version.
        after: Its new version.
        powers: The powers that a person has declared.
        is_exempt: True for signs that do not count in this file.
        has_moved: Prompts and roles have only moved between the files of the change, so that they do not count here.
    """
    try:
        old, new = _AnalyzedText(path, before), _AnalyzedText(path, after)
        known, fresh = _group_signs(old.signs(old), old), _group_signs(new.signs(old), old)
    except RecursionError:
        return Refusal("G2.size", "The code is nested too deeply to be checked. Split it up.", path)
    except TooMuchToJudge:
        return Refusal("G2.size", "It takes too long to find out what the names in this code stand for.", path)
    grown = [
        sign
        for key, found in fresh.items()
        for sign in found[len(known.get(key, [])) :]
        if (sign.is_counted or key not in known) and not is_exempt(sign) and not _permits(powers, sign)
    ]
    lost = [
        sign
        for key, found in known.items()
        if key[0] in table.GUARDED.values()
        for sign in found[len(fresh.get(key, [])) :]
    ]
    if has_moved:
        grown, lost = [sign for sign in grown if sign.code not in table.GUARDED.values()], []
    first = min(grown, key=lambda sign: (sign.line, sign.code), default=None)
    if first:
        return Refusal(first.code, f"The change adds {first.what}. {_way_out(first.code)}", path, first.line)
    return Refusal(lost[0].code, f"The change removes {lost[0].what}.", path) if lost else None


def _permits(powers: Powers, sign: Sign) -> bool:
    """True if a person has declared the power of a sign. Which hosts and folders exactly, the confined run enforces."""
    if sign.code == "G3.url":
        host = _HOST.search(sign.what)
        return host is not None and _is_one_of(host[1].lower(), powers.network or ())
    if sign.code == "G3.environment":
        name = _VARIABLE.search(sign.way)
        return name is not None and _is_one_of(name[1], powers.environment)
    declared_for = {
        "G3.network": bool(powers.network),
        "G3.files": bool(powers.write),
        "G3.read": bool(powers.read),
        "G3.process": powers.processes,
    }
    return declared_for.get(sign.code, False)


def _is_one_of(name: str, patterns: Iterable[str]) -> bool:
    """True if a name matches one of the declared patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _way_out(code: str) -> str:
    """Return the sentence that says how a person can allow a power."""
    if code in _WAYS_OUT:
        return f"To let agents do that, declare {_WAYS_OUT[code]} in [tool.graphbus.powers]."
    return "No setting allows that; make this change yourself if you want it."


class _AnalyzedText:
    """One version of a file, and what it uses."""

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
        """Yield every sign of this version; `old` is the version before the change, or this one itself."""
        for sign in self.notes.signs:
            name = sign.what.removeprefix(GLOBAL)
            if name == sign.what or name in old.file.scopes.module.bindings:
                yield sign
        yield from self._reference_signs(old)
        yield from _declaration_signs(self.file, old.defined)
        yield from (Sign(*found) for found in signs_of_text(self.source.text, self.file.nodes))

    def _reference_signs(self, old: _AnalyzedText) -> Iterator[Sign]:
        """Yield a sign for each power of the project code that this version uses."""
        free: set[int] = set()
        for reference in sorted(self.notes.references, key=lambda one: one.line):
            powers = self.project.powers_of(reference)
            if not powers:
                continue
            is_own = reference.home is self.file and reference.texts <= old.texts
            if reference.home is self.file and reference.node is not None:
                name = self.names.get(id(reference.node), "")
                if name not in old.powerful:
                    # A new function holds what the old text did; its own signs count, and so does every call but the first.
                    is_first = id(reference.node) not in free and reference.texts <= old.texts
                    free.add(id(reference.node))
                    if is_first or name in old.defined:
                        continue
            for power in powers.values():  # one sign each: a declared power does not allow another one
                sign = _sign_of(reference, power)
                yield sign._replace(way="") if is_own else sign

    @cached_property
    def powerful(self) -> frozenset[str]:
        """The qualified names of the functions and classes in this file that have a power."""
        found = set()
        for symbol in definitions(self.file.tree):
            reference = Reference(self.file, symbol.node, symbol.name, 0, "", frozenset(), runs_at_import=False)
            if self.project.powers_of(reference):
                found.add(symbol.name)
        return frozenset(found)

    @cached_property
    def read(self) -> frozenset[str]:
        """Every string constant in the expressions with which this file reads files."""
        return frozenset(text for sign in self.notes.signs if sign.code == "G3.read" for text in sign.texts)

    @cached_property
    def texts(self) -> frozenset[str]:
        """Every string and bytes constant of the file, as text."""
        return frozenset(
            node.value if isinstance(node.value, str) else repr(node.value)
            for node in self.file.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
        )


def _sign_of(reference: Reference, power: Power) -> Sign:
    code = power.sign.code
    what = f"the use of {reference.name}, which {_DOES.get(code, 'acts')} ({power.path})"
    return Sign(code, what, reference.line, reference.way, True, reference.runs_at_import, reference.texts)


def _group_signs(found: Iterable[Sign], old: _AnalyzedText) -> dict[tuple[str, str, str], list[Sign]]:
    """Group signs that count as the same: same code, same thing, used in the same way with no new constant.

    All ways to read a file count as one, as long as they name no file that the old version does not read.
    """
    counted: dict[tuple[str, str, str], list[Sign]] = {}
    for sign in sorted(found, key=lambda sign: sign.line):
        is_any_reading = sign.code == "G3.read" and sign.way and sign.texts <= old.read
        way = sign.way if sign.texts <= old.texts else f"{sign.way} of {sorted(sign.texts - old.texts)}"
        key = (sign.code, "reading", "") if is_any_reading else (sign.code, sign.what, way)
        counted.setdefault(key, []).append(sign)
    return counted


def count_guarded(texts: Iterable[bytes]) -> Counter[tuple[str, str, str]]:
    """Count the statements that set prompts and roles in some files: (class around it, code of G3, its text) -> number."""
    found: Counter[tuple[str, str, str]] = Counter()
    for text in texts:
        source = SourceText(text)
        names = {id(symbol.node): symbol.name for symbol in definitions(source.tree)}
        owners = {id(source.tree): ""}
        for node in ast.walk(source.tree):  # `walk` yields a node before the nodes inside it
            owner = names.get(id(node), owners[id(node)]) if isinstance(node, Definition) else owners[id(node)]
            owners.update((id(inner), owner) for inner in ast.iter_child_nodes(node))
            found.update((owners[id(node)], code, what) for code, what in _guarded_bindings(node))
    return found


# --- signs in declarations: bases, decorators, roles, prompts, secrets, comparisons ---------------------

_SILENT = (ast.expr_context, ast.operator, ast.Constant, ast.Call, ast.Subscript, ast.Expr, ast.Return, ast.BinOp)
"""The most frequent kinds of nodes; they declare nothing, and are skipped early."""
_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)|secret|api_?key|(access|auth|bearer)_?token|private_?key|credential", re.IGNORECASE
)
_SECRET_VALUE = re.compile(r"(?=\S{8,400}$)(?=.*\d)(?=.*[A-Za-z])")
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Found = Iterator[tuple[str, str]]


def _declaration_signs(file: AnalyzedFile, old_names: frozenset[str]) -> Iterator[Sign]:
    """Yield the signs of declarations in a file.

    Args:
        old_names: The definitions of the version before. All bases and decorators of these are signs, so that a new one shows.
    """
    names = {id(symbol.node): symbol.name for symbol in definitions(file.tree)}
    for node in file.nodes:
        if isinstance(node, _SILENT) or (
            isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
        ):
            continue
        line = getattr(node, "lineno", 0)
        for code, what in (*_guarded_bindings(node), *_secrets_in(node), *_deceptive_comparisons(file, node)):
            yield Sign(code, what, line)
        if isinstance(node, _Function) and names.get(id(node)) in old_names:
            yield from (Sign("G3.decorator", what, line) for what in _own_decorators(file, node))
        if isinstance(node, ast.ClassDef):
            for code, what in _base_signs(file, node, names.get(id(node), node.name), old_names):
                yield Sign(code, what, line)


def _own_decorators(file: AnalyzedFile, node: _Function) -> Iterator[str]:
    """Yield the decorators of the project on a function; a new one could come between the function and its callers."""
    scope = file.scopes.of[id(node)].parent or file.scopes.module
    for decorator in node.decorator_list:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        if all(value.kind == "symbol" for value in file.values(function, scope)):
            yield f"@{ast.unparse(function)} on {node.name}"


def _base_signs(file: AnalyzedFile, node: ast.ClassDef, name: str, old_names: frozenset[str]) -> _Found:
    """Yield the bases and keywords of a class that are not known to be harmless; of an old class, all bases."""
    scope = file.scopes.of[id(node)].parent or file.scopes.module
    for base in node.bases:
        defined = file.scopes.of[id(node)].bindings.keys()
        is_harmless = all(
            _is_harmless_base(value) or defined == {table.SPECIALISED.get(value.name)}
            for value in file.values(base, scope)
        )
        if name in old_names or not is_harmless:
            shown = [value.name for value in file.values(base, scope) if value.name]
            yield "G3.base", f"{shown[0] if shown else ast.unparse(base)} as a base of {name}"
    for keyword in node.keywords:
        if keyword.arg not in table.CLASS_KEYWORDS:
            yield "G3.base", f"{ast.unparse(keyword)} of {name}"


def _is_harmless_base(value: Value) -> bool:
    if value.kind == "outside":
        return value.name in table.BASES
    if value.kind != "symbol" or value.home is None or not isinstance(value.node, ast.ClassDef):
        return False
    if value.node.keywords or value.home.is_agent(value.node):
        return False
    return all(_is_harmless_base(base) for base in value.home.bases(value.node))


def _guarded_bindings(node: ast.AST) -> _Found:
    """Yield the code and text of a node that sets IS_ARBITER or SYSTEM_PROMPT, by assignment or in any other way."""
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


def _secrets_in(node: ast.AST) -> _Found:
    """Yield a sign for a constant that looks like a secret and has a name like `password`."""
    for name, value in _named_values(node):
        is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
        if is_text and _SECRET_NAME.search(name) and _SECRET_VALUE.match(ast.literal_eval(value)):
            yield "G3.secret", f"a value for {name}"


def _deceptive_comparisons(file: AnalyzedFile, node: ast.AST) -> _Found:
    """Yield a sign for a class whose objects could be equal to anything: a test that compares them would prove nothing."""
    if not isinstance(node, ast.ClassDef):
        return
    is_value = any(value.name in table.VALUES for value in file.bases(node))
    for item in node.body:
        if isinstance(item, Definition) and item.name in table.COMPARED and (is_value or _ignores_other(item)):
            yield "G3.reflection", f"{item.name} of {node.name}, which decides without looking at the other value"


def _ignores_other(method: ast.AST) -> bool:
    """True for a comparison method that uses no attribute or item of anything."""
    return not any(isinstance(node, (ast.Attribute, ast.Subscript)) for node in ast.walk(method))


def _named_values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield name and value of assignments, keyword arguments, defaults and entries of dict displays."""
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
