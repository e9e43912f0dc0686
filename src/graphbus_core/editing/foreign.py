"""A change that somebody else made, another tool or a person, made ready for the gate. Nothing is ever written to the tree.

| kind of file | may be changed | tried | tests |
|---|---|---|---|
| with an agent in it | yes, unless protected | yes | of the base |
| named by `allow` | yes | yes | of the base |
| tests named by `allow` | yes | yes | of the base first, then their own: what passed must pass with both |
| documents | yes | no | |
| anything else | no | | |

What is no Python may decide how Python, pytest or this gate reads the rest: a native module, `pyproject.toml`, a `.pth` file. So
only what is known to be read by people alone is passed over.
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
_OF_A_NEW_AGENT = (
    "graphbus_core.GraphBusNode as a base",
    "@graphbus_core.depends_on",
    "SYSTEM_PROMPT =",
    "binding SYSTEM_PROMPT",
)


class ForeignChange(NamedTuple):
    """What is to be judged.

    Attributes:
        project: As it was before.
        files: Path -> bytes before and after; None: there is no such file. Files that are equal are left out.
        allow: Globs of further files that may be changed.
        is_for_base_tests: Changed tests are left out: those of the base decide alone.
        links: Files that are links now.
        unjudged: Further files that differ, and that are neither Python nor allowed.
    """

    project: Project
    files: ChangedFiles
    allow: tuple[str, ...] = ()
    is_for_base_tests: bool = False
    links: frozenset[str] = frozenset()
    unjudged: tuple[str, ...] = ()


class ForeignScope:
    """Rung G0 for a foreign change, and what further rungs make of its kinds of files."""

    def __init__(self, change: ForeignChange) -> None:
        self._change = change
        self._project = change.project

    @cached_property
    def files(self) -> ChangedFiles:
        """What is tried."""
        left_out = self._change.is_for_base_tests
        return {path: pair for path, pair in self._change.files.items() if not (left_out and is_test_side(path))}

    def check(self) -> Refusal | None:
        """Give the first reason why a file may not be changed."""
        for path in (*self.files, *self._change.unjudged):
            if path in self._change.links:
                return Refusal("G0.link", f"{path} is a link or lies behind one.", path)
            problem = scope.check_path(path, self._project) if path in self.files else None
            if problem and not self.is_allowed(path):
                return problem
            if path not in self.files and not self.is_document(path):
                others = [one for one in self._change.unjudged if one != path and not self.is_document(one)]
                more = f" The same is true of {', '.join(others)}." if others else ""
                return Refusal("G0.unjudged", f"{path} changes, and nobody can judge what that does.{more}", path)
        judged = {
            path: (before or b"", after or b"")
            for path, (before, after) in self.files.items()
            if not is_test_side(path) and (path in self._project.agent_files or path.endswith(".py"))
        }
        return scope.check_sizes(judged, self._project)

    def is_allowed(self, path: str) -> bool:
        """True for a file that was named, is spelled as it should be, is no link, and is not protected by the settings."""
        parts = PurePosixPath(path).parts
        is_clean = path.isprintable() and "\\" not in path and path[:1] not in "/~" and str(PurePosixPath(path)) == path
        if not is_clean or {"..", ".git"} & set(parts) or scope.is_behind_link(self._project.config.root, path):
            return False
        protected = self._project.config.safety_config.protected_files
        fits = partial(scope.matches_glob, path)
        return any(map(fits, self._change.allow)) and not any(map(fits, protected))

    def is_document(self, path: str) -> bool:
        """True for what only people read."""
        return is_document(path) and not self._has_tests_in_documents

    @cached_property
    def _has_tests_in_documents(self) -> bool:
        files = (bytes_on_disk(Path(self._project.config.root), path) for path in _TEST_SETTINGS)
        return any(b"doctest" in data for data in files if data)

    def is_exempt(self, path: str, sign: Sign) -> bool:
        """Tests may do what tests do, and a new file that was allowed may hold a new agent."""
        if is_test_side(path):
            return sign.code not in _ALWAYS_REFUSED
        is_new = self.files[path][0] is None and self.is_allowed(path)
        return is_new and sign.what.startswith(_OF_A_NEW_AGENT)

    def agents_of(self, *projects: Project) -> frozenset[str]:
        """Give the agents that may appear or disappear: those of files that `allow` names."""
        free = [path for path in self.files if self.is_allowed(path)]
        return frozenset(name for project in projects for path in free for name in project.owners(path))


def is_document(path: str) -> bool:
    """True for texts and pictures at the top, in `docs`, or of a name that is for people, outside of tests and hidden folders."""
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
    """True for tests, their fixtures and all that could decide which tests run."""
    if not path.endswith(".py"):
        return scope.is_protected(path)
    globs = ("tests/*", "test/*", "*/tests/*", "*/test/*", "test_*.py", "*_test.py", "conftest.py")
    return any(scope.matches_glob(path, glob) for glob in globs)


def parseable_or_empty(data: bytes) -> bytes:
    """Give the file, or nothing when it does not parse: then all that is in it afterwards is new."""
    try:
        SourceText(data).tree  # noqa: B018
    except EditError:
        return b""
    return data


def read_project(root: Path, settings: Settings, called: str = "") -> Project:
    """Read a whole project as it is before the change; nothing is written.

    Args:
        root: Its folder.
        settings: Under which it is judged.
        called: How to call it when there is no agent in it.

    Raises:
        EditError: GBE340, there is none.
    """
    config = ResolvedBuild(root=str(root), paths=(str(root),), settings=settings, dry_run=True)
    project = Project.read(config, cache=False)
    if not project.agent_files:
        raise EditError("GBE340", where=Place(called or config.root))
    return project


def bytes_on_disk(root: Path, path: str) -> bytes | None:
    """Give a file of the project; None when there is none, or when the path leads out of it."""
    clean = PurePosixPath(path)
    if clean.is_absolute() or ".." in clean.parts or "\0" in path:
        return None
    place = root / path
    return place.read_bytes() if place.is_file() else None


def encode_like(text: str, before: bytes | None) -> bytes:
    """Give new text as bytes: in the encoding and with the line ends of the file that it replaces."""
    if before and b"\r\n" in before and "\r" not in text:
        text = text.replace("\n", "\r\n")
    with suppress(EditError):
        return text.encode(SourceText(before or b"").encoding)
    return text.encode()


def change_of_files(root: Path, settings: Settings, files: Mapping[str, bytes | None]) -> ForeignChange:
    """Give the change from the project on disk to one in which some files have other bytes.

    Raises:
        EditError: GBE340.
    """
    pairs = {path: (bytes_on_disk(root, path), data) for path, data in files.items()}
    project = read_project(root, settings)
    return ForeignChange(project, {path: pair for path, pair in pairs.items() if pair[0] != pair[1]})
