"""What the pipelines of a project follow from: where it is in its repository, what it requires, how it is tested."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from graphbus_core import __version__
from graphbus_core.cli.shipping.programs import ask
from graphbus_core.cli.shipping.project import text_of
from graphbus_core.deploy.pipelines.plan import check_plain
from graphbus_core.deploy.requirements import entries
from graphbus_core.errors import DeployError, GraphBusError, Place, UsageError
from graphbus_core.model.config import Settings
from graphbus_core.settings import find_root, load, project_table

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
    """Files that say what is installed, whether each line of them has a hash, and whether git has to fetch some of it."""

    files: tuple[str, ...]
    has_hashes: bool
    has_git: bool


def look_around() -> Checkout:
    """Find the project and its repository from the working directory.

    Raises:
        UsageError: What reading the settings raises.
    """
    root = find_root([Path()])
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    return Checkout(
        root=root,
        top=top or root,
        folder=check_plain(root.relative_to(top).as_posix(), "path") if top and top != root else "",
        is_repository=top is not None,
        settings=load(root),
        requires_python=text_of(project_table(root), "requires-python"),
    )


def place_agents(named: Sequence[str], checkout: Checkout) -> tuple[str, ...]:
    """Return the paths with agents, relative to the project.

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
    return check_plain(resolved.relative_to(root).as_posix(), "path")


def _built(root: Path) -> tuple[str, ...]:
    from graphbus_core import store

    if not (root / ".graphbus" / "manifest.json").is_file():
        return ()
    try:
        manifest = store.load(root / ".graphbus", without=("negotiations.json", "modified_files.json")).manifest
    except GraphBusError:
        return ()  # what an older version or half a build has left behind says nothing
    return tuple(check_plain(path, "path") for path in manifest.roots) if manifest else ()


def read_requirements(named: Sequence[str], root: Path) -> Requirements:
    """Find the files that say what the jobs install, and refuse a line that would install another package called graphbus.

    Raises:
        DeployError: GBE736, GBE737, GBE739.
    """
    existing = (tuple(name for name in usual if (root / name).is_file()) for usual in _USUAL)
    paths = [Path(name) for name in named] or [root / name for name in next(filter(None, existing), _USUAL[0][:1])]
    files = tuple(_below(path, root) for path in paths)
    found = [entry for path in files for entry in _entries(root, path, set())]
    is_offline = any(text.startswith("--no-index") for _, text in found)
    for where, text in found:
        if _FOREIGN.match(text) and "--hash=" not in text and not is_offline:
            raise DeployError("GBE739", where=where)
    packages = [text for _, text in found if not text.startswith("-") or text.startswith(("-e", "--editable"))]
    has_hashes = bool(packages) and all("--hash=" in text for text in packages)
    return Requirements(files, has_hashes, any("git+" in text for _, text in found))


def _entries(root: Path, path: str, seen: set[str]) -> Iterator[tuple[Place, str]]:
    """Yield each requirement or option of a file and of those that it includes, with its line."""
    if path in seen:
        return
    seen.add(path)
    try:
        text = (root / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DeployError("GBE736", path=path, command=advise(path)) from None
    for number, entry in entries(text):
        included = _INCLUDE.match(entry)
        if included:
            yield from _entries(root, Path(os.path.normpath(Path(path).parent / included[1])).as_posix(), seen)
        else:
            yield Place(path, number), entry


def advise(path: str) -> str:
    """Return the command that writes a file with the GraphBus that is installed; `https://...` where its origin is unknown."""
    about = _installed_from()
    line = _requirement(about)
    folder = unquote(urlsplit(str(about.get("url", ""))).path) if "dir_info" in about else ""
    wheel = f"graphbus-{__version__}-py3-none-any.whl"
    if line or not folder:
        line = line or f"graphbus @ https://.../{wheel}"
        return f"printf '%s\\n' {shlex.quote(line)} pytest > {shlex.quote(path)}"
    made = shlex.join(["python", "-m", "pip", "wheel", "--no-deps", "--wheel-dir", "wheels", folder])
    return f"{made} && printf '%s\\n' ./wheels/{wheel} pytest > {shlex.quote(path)}"


def _installed_from() -> dict[str, Any]:
    """What pip has recorded (PEP 610): nothing for a package that came from an index."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = json.loads(distribution("graphbus").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _requirement(about: dict[str, Any]) -> str:
    """The line by which others can install the same; empty if its origin is this machine, or unknown.

    A password in the address would be committed, so it is left out.
    """
    parts = urlsplit(str(about.get("url", "")))
    user, _, host = parts.netloc.rpartition("@")
    kept = f"{user.partition(':')[0]}@" if parts.scheme == "ssh" and user else ""
    url = urlunsplit(parts._replace(netloc=f"{kept}{host}", fragment=""))
    if parts.scheme in ("https", "ssh") and "vcs_info" in about:
        return f"graphbus @ git+{url}@{about['vcs_info']['commit_id']}"
    if parts.scheme == "https":
        digest = about.get("archive_info", {}).get("hashes", {}).get("sha256")
        return f"graphbus @ {url}" + (f" --hash=sha256:{digest}" if digest else "")
    return ""


def has_branch(top: Path, branch: str) -> bool:
    """False if the repository has branches, here or on a remote, and none of this name; true if that cannot be seen."""
    listed = _branches(top)
    return not listed or branch in listed


def main_branch(top: Path) -> str:
    """Return the branch that is shipped from: main, unless the repository has none and calls another one its own."""
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
    """The output of git; empty if it fails or is not there."""
    return ask(["git", *arguments], top).text.strip()
