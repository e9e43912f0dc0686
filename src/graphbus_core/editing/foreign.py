"""Foreign changes, made by another tool or a person: read and checked for scope, so that the gate can judge them.

| kind of file | may be changed | checked | tests that must pass |
|---|---|---|---|
| defines an agent | yes, unless protected | yes | those of the base |
| named by `allow` | yes | yes | those of the base |
| tests named by `allow` | yes | yes | those of the base first, then the changed ones |
| documents | yes | no | |
| anything else | no | | |

A file that is not Python may decide how Python, pytest or this gate reads the others: a native module, `pyproject.toml`, a `.pth`
file. So only files that are known to be for people are left unchecked. Nothing is written to the project.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from graphbus_core.compiler.project import Project
from graphbus_core.editing.git import ChangedFiles
from graphbus_core.editing.rungs import scope
from graphbus_core.editing.rungs.capability import Sign
from graphbus_core.editing.rungs.codes import Refusal
from graphbus_core.editing.text.source_text import SourceText
from graphbus_core.errors import EditError, Place
from graphbus_core.model.config import ResolvedBuild, Settings

_ALWAYS_REFUSED = frozenset({"G3.unicode", "G3.secret"})
"""The codes of G3 that count in tests, too."""
_DOCUMENT_FOLDERS = ("doc", "docs")
_DOCUMENTS = frozenset({".md", ".rst", ".adoc"})
_IN_DOCUMENT_FOLDERS = _DOCUMENTS | {".txt", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp"}
_DOCUMENT_NAMES = frozenset(
    {
        *("readme", "changelog", "changes", "history", "news", "notes", "todo", "roadmap", "contributing", "security"),
        *("license", "licence", "copying", "notice", "authors"),
    }
)
_TEST_SETTINGS = ("pyproject.toml", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg")
_NEW_AGENT_SIGNS = (
    "graphbus_core.GraphBusNode as a base",
    "@graphbus_core.depends_on",
    "SYSTEM_PROMPT =",
    "binding SYSTEM_PROMPT",
)
"""How the signs of G3 begin that the definition of a new agent always has."""


class ForeignChange(NamedTuple):
    """A change to check.

    Attributes:
        project: The project before the change.
        files: The changed files: path -> bytes before and after; None where there is no such file.
        allow: Globs of further files that may be changed.
        is_for_base_tests: Ignore changed tests; only the tests of the base are run.
        links: Files that are symbolic links after the change.
        unjudged: Further changed files that are neither Python nor allowed.
    """

    project: Project
    files: ChangedFiles
    allow: tuple[str, ...] = ()
    is_for_base_tests: bool = False
    links: frozenset[str] = frozenset()
    unjudged: tuple[str, ...] = ()


class ForeignScope:
    """Rung G0 for a foreign change, and the exemptions that G3 and G4 make for its tests and allowed files."""

    def __init__(self, change: ForeignChange) -> None:
        self._change = change
        self._project = change.project

    @cached_property
    def files(self) -> ChangedFiles:
        """The changed files that are checked: path -> bytes before and after."""
        left_out = self._change.is_for_base_tests
        return {path: pair for path, pair in self._change.files.items() if not (left_out and is_test_side(path))}

    def check(self) -> Refusal | None:
        """Return the first reason why a file may not be changed, or why the change is too large; None if there is none."""
        for path in (*self.files, *self._change.unjudged):
            if path in self._change.links:
                return Refusal("G0.link", f"{path} is a symbolic link or lies in a folder that is one.", path)
            problem = scope.check_path(path, self._project) if path in self.files else None
            if problem and not self.is_allowed(path):
                return problem
            if path not in self.files and not self.is_document(path):  # `unjudged` files must be documents
                others = [one for one in self._change.unjudged if one != path and not self.is_document(one)]
                more = f" Nor can it check {', '.join(others)}." if others else ""
                return Refusal(
                    "G0.unjudged", f"The gate cannot check a change of {path}. Allow it or leave it out.{more}", path
                )
        judged = {
            path: (before or b"", after or b"")
            for path, (before, after) in self.files.items()
            if not is_test_side(path) and (path in self._project.agent_files or path.endswith(".py"))
        }
        return scope.check_sizes(judged, self._project)

    def is_allowed(self, path: str) -> bool:
        """True for a file that `allow` names, unless it is a link, or its path is malformed or protected by the settings."""
        parts = PurePosixPath(path).parts
        is_clean = path.isprintable() and "\\" not in path and path[:1] not in "/~" and str(PurePosixPath(path)) == path
        if not is_clean or {"..", ".git"} & set(parts) or scope.is_behind_link(self._project.config.root, path):
            return False
        protected = self._project.config.safety_config.protected_files
        fits = partial(scope.matches_glob, path)
        return any(map(fits, self._change.allow)) and not any(map(fits, protected))

    def is_free(self, path: str) -> bool:
        """True for a file whose functions may be emptied: a test, or one that `allow` names without a pattern."""
        return is_test_side(path) or (path in self._change.allow and self.is_allowed(path))

    def is_document(self, path: str) -> bool:
        """True for a file that only people read; never if the settings of pytest say that documents have doctests."""
        return is_document(path) and not self._has_tests_in_documents

    @cached_property
    def _has_tests_in_documents(self) -> bool:
        """True if a settings file of pytest mentions doctests."""
        files = (bytes_on_disk(Path(self._project.config.root), path) for path in _TEST_SETTINGS)
        return any(b"doctest" in data for data in files if data)

    def is_exempt(self, path: str, sign: Sign) -> bool:
        """True for a sign of G3 that does not count in this file.

        In tests only the codes in `_ALWAYS_REFUSED` count. In a new file that `allow` names, the signs of any new agent do not.
        """
        if is_test_side(path):
            return sign.code not in _ALWAYS_REFUSED
        is_new = self.files[path][0] is None and self.is_allowed(path)
        return is_new and sign.what.startswith(_NEW_AGENT_SIGNS)

    def agents_of(self, *projects: Project) -> frozenset[str]:
        """Return the names of the agents that may appear or disappear: those in changed files that `allow` names."""
        free = [path for path in self.files if self.is_allowed(path)]
        return frozenset(name for project in projects for path in free for name in project.owners(path))


def is_document(path: str) -> bool:
    """True for a text or picture in `docs`, at the top or with a name like README, unless it is hidden or among tests."""
    place = PurePosixPath(path)
    *folders, name = (part.casefold() for part in place.parts)
    if any(part.startswith(".") or part in ("test", "tests") for part in (*folders, name)) or not path.isprintable():
        return False
    suffix = PurePosixPath(name).suffix
    if folders and folders[0] in _DOCUMENT_FOLDERS and suffix in _IN_DOCUMENT_FOLDERS:
        return True
    if name.removesuffix(suffix) in _DOCUMENT_NAMES and suffix in ("", *_DOCUMENTS):
        return True
    return not folders and (suffix in _DOCUMENTS or (suffix == ".txt" and name.removesuffix(suffix) in _DOCUMENT_NAMES))


def is_test_side(path: str) -> bool:
    """True for tests, their fixtures and all files that could decide which tests run."""
    if not path.endswith(".py"):
        return scope.is_protected(path)
    globs = ("tests/*", "test/*", "*/tests/*", "*/test/*", "test_*.py", "*_test.py", "conftest.py")
    return any(scope.matches_glob(path, glob) for glob in globs)


def parseable_or_empty(data: bytes) -> bytes:
    """Return the bytes of a file before a change, or `b""` if they do not parse: then everything after the change is new."""
    try:
        SourceText(data).tree  # noqa: B018
    except EditError:
        return b""
    return data


def read_project(root: Path, settings: Settings, called: str = "") -> Project:
    """Read the project in a folder as it is before the change; nothing is written.

    Args:
        settings: The settings to check it under.
        called: The name of the project in the error; empty for its folder.

    Raises:
        EditError: GBE340, there is no agent in it.
    """
    config = ResolvedBuild(root=str(root), paths=(str(root),), settings=settings, dry_run=True)
    project = Project.read(config, cache=False)
    if not project.agent_files:
        raise EditError("GBE340", where=Place(called or config.root))
    return project


def bytes_on_disk(root: Path, path: str) -> bytes | None:
    """Return the bytes of a file; None if there is no such file, or its path leads out of the project."""
    clean = PurePosixPath(path)
    if clean.is_absolute() or ".." in clean.parts or "\0" in path:
        return None
    place = root / path
    return place.read_bytes() if place.is_file() else None


def encode_like(text: str, before: bytes | None) -> bytes:
    """Encode new text with the encoding and line ends of the file that it replaces; as UTF-8 if that is not possible."""
    if before and b"\r\n" in before and "\r" not in text:
        text = text.replace("\n", "\r\n")
    with suppress(EditError):
        return text.encode(SourceText(before or b"").encoding)
    return text.encode()


def change_of_files(root: Path, settings: Settings, files: Mapping[str, bytes | None]) -> ForeignChange:
    """Return the change that gives files of the project on disk these bytes (None: removes them). Equal files are left out.

    Raises:
        EditError: GBE340, there is no agent in the project.
    """
    pairs = {path: (bytes_on_disk(root, path), data) for path, data in files.items()}
    project = read_project(root, settings)
    return ForeignChange(project, {path: pair for path, pair in pairs.items() if pair[0] != pair[1]})
