"""What the pipelines of a project follow from: where it is in its repository, what it requires, how it is tested."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from graphbus_core.cli.shipping.ci_origin import advise
from graphbus_core.deploy.pipelines.plan import check_plain
from graphbus_core.errors import DeployError, GraphBusError, Place, UsageError
from graphbus_core.model.config import Settings
from graphbus_core.settings import PROJECT_FILE, find_root, load

_USUAL = (("requirements.txt", "requirements-dev.txt"), ("requirements/dev.txt",), ("dev/requirements.txt",))
_FOREIGN = re.compile(r"graphbus\s*(?:\[[^]]*\]\s*)?(?:$|[=<>!~;])", re.IGNORECASE)
_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(\S+)")


class Checkout(NamedTuple):
    """A project in its repository.

    Attributes:
        root: The project.
        top: The top of its repository; the project, if there is none.
        folder: The project below the top; `""`: it is the top.
        is_repository: There is one.
    """

    root: Path
    top: Path
    folder: str
    is_repository: bool
    settings: Settings
    requires_python: str


class Requirements(NamedTuple):
    """Files that say what is installed, whether each line of them bears a hash, and whether git has to fetch some of it."""

    files: tuple[str, ...]
    has_hashes: bool
    has_git: bool


def look_around() -> Checkout:
    """Find the project and its repository from the working directory.

    Raises:
        UsageError: What reading the settings raises.
    """
    root = find_root([Path()])
    above = (folder for folder in (root, *root.parents) if (folder / ".git").exists())
    top = next(above, None)
    settings = load(root)  # refuses a file that is not TOML
    return Checkout(
        root=root,
        top=top or root,
        folder=check_plain(_relative(root, top), "path") if top and top != root else "",
        is_repository=top is not None,
        settings=settings,
        requires_python=_requires_python(root / PROJECT_FILE),
    )


def _requires_python(path: Path) -> str:
    if not path.is_file():
        return ""
    about = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    required = about.get("requires-python", "") if isinstance(about, dict) else ""
    return required if isinstance(required, str) else ""


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def place_agents(named: Sequence[str], checkout: Checkout) -> tuple[str, ...]:
    """Give the paths with agents as they are called from the project's root.

    Without a path: those of the last build, else `agents`, else all of the project.

    Raises:
        UsageError: GBE101.
        DeployError: GBE737.
    """
    if not named:
        return _built(checkout.root) or (("agents",) if (checkout.root / "agents").is_dir() else ())
    missing = next((path for path in named if not Path(path).exists()), None)
    if missing is not None:
        raise UsageError("GBE101", path=missing)
    return tuple(_below(Path(path), checkout.root) for path in named)


def _below(path: Path, root: Path) -> str:
    resolved = path.resolve()
    if not resolved.is_relative_to(root):
        raise DeployError("GBE737", value=repr(str(path)), kind="path")
    return check_plain(_relative(resolved, root), "path")


def _built(root: Path) -> tuple[str, ...]:
    from graphbus_core import store

    folder = root / ".graphbus"
    if not (folder / "manifest.json").is_file():
        return ()
    try:
        manifest = store.load(folder, without=("negotiations.json", "modified_files.json")).manifest
    except GraphBusError:
        return ()  # what an older version or half a build has left behind says nothing
    return tuple(check_plain(path, "path") for path in manifest.roots) if manifest else ()


def read_requirements(named: Sequence[str], root: Path) -> Requirements:
    """Find the files that say what the jobs install, and look whether GraphBus can only be ours.

    Raises:
        DeployError: GBE736, GBE737, GBE739.
    """
    files = tuple(named) or next(filter(None, (_existing(usual, root) for usual in _USUAL)), (_USUAL[0][0],))
    paths = [_below(Path(name) if named else root / name, root) for name in files]
    entries = [entry for path in paths for entry in _entries(root, path, set())]
    for where, text, is_hashed in entries:
        if _FOREIGN.match(text) and not is_hashed and not any(each.startswith("--no-index") for _, each, _ in entries):
            raise DeployError("GBE739", where=where)
    wanted = [
        is_hashed for _, text, is_hashed in entries if not text.startswith("-") or text.startswith(("-e", "--editable"))
    ]
    has_git = any("git+" in text for _, text, _ in entries)
    return Requirements(tuple(paths), bool(wanted) and all(wanted), has_git)


def _existing(names: Sequence[str], root: Path) -> tuple[str, ...]:
    return tuple(name for name in names if (root / name).is_file())


def _entries(root: Path, path: str, seen: set[str]) -> Iterator[tuple[Place, str, bool]]:
    """Each requirement or option of a file and of those that it includes, with its line, and whether it bears a hash."""
    if path in seen:
        return
    seen.add(path)
    try:
        text = (root / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DeployError("GBE736", path=path, command=advise(path)) from None
    number = 1
    for lines in re.split(r"(?<!\\)\n", text):
        entry = re.sub(r"(?:^|\s)#.*", "", lines.replace("\\\n", " ")).strip()
        included = _INCLUDE.match(entry)
        if included:
            yield from _entries(root, Path(os.path.normpath(Path(path).parent / included[1])).as_posix(), seen)
        elif entry:
            yield Place(path, number), entry, "--hash=" in entry
        number += lines.count("\n") + 1


def has_branch(top: Path, branch: str) -> bool:
    """False when the repository has branches, here or on a remote, and none of this name; true when that cannot be seen."""
    listed = _branches(top)
    return not listed or branch in listed


def main_branch(top: Path) -> str:
    """Give the branch that is shipped from: main, unless the repository has none and calls another one its own."""
    listed = _branches(top)
    if "main" in listed:
        return "main"
    named = _git(top, "symbolic-ref", "--quiet", "refs/remotes/origin/HEAD").removeprefix("refs/remotes/origin/")
    if not listed:  # nothing is committed yet
        named = _git(top, "symbolic-ref", "--quiet", "HEAD").removeprefix("refs/heads/")
    return named or ("master" if "master" in listed else "main")


def _branches(top: Path) -> frozenset[str]:
    listed = _git(top, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes").split()
    return frozenset(re.sub(r"^refs/(?:heads|remotes/[^/]+)/", "", each) for each in listed)


def _git(top: Path, *arguments: str) -> str:
    """What git says; nothing where it fails or is not there."""
    try:
        return subprocess.run(["git", *arguments], cwd=top, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
