"""Where the GraphBus that runs was installed from, as a line for a file of requirements, so that jobs install the same."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from graphbus_core import __version__

_DISTRIBUTION = "graphbus"
_SCP = re.compile(r"(?P<user>[\w.-]+@)?(?P<host>[\w.-]+):(?P<path>[^/].*|/[^/].*)")


def advise(path: str) -> str:
    """Give the command that writes this file; `https://...` stands in it where nobody can know what has to stand there."""
    about = _installed_from()
    line = _line(about)
    if line:
        return f"printf '%s\\n' {shlex.quote(line)} pytest > {shlex.quote(path)}"
    folder = _folder(about)
    if folder:
        wheel = f"./wheels/graphbus-{__version__}-py3-none-any.whl"
        made = shlex.join(["python", "-m", "pip", "wheel", "--no-deps", "--wheel-dir", "wheels", folder])
        return f"{made} && printf '%s\\n' {wheel} pytest > {shlex.quote(path)}"
    wheel = f"https://.../graphbus-{__version__}-py3-none-any.whl"
    return f"printf '%s\\n' 'graphbus @ {wheel}' pytest > {shlex.quote(path)}"


def _installed_from() -> dict[str, Any]:
    """What pip has written down (PEP 610): nothing for a package that came from an index."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = json.loads(distribution(_DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _line(about: dict[str, Any]) -> str:
    """The requirement that others can install, too; empty if there is none."""
    url = str(about.get("url", ""))
    if commit := _part(about, "vcs_info").get("commit_id"):
        return _by_git(url, str(commit))
    if "dir_info" in about:
        return _of_checkout(_folder(about))
    if url.startswith("https://"):
        hashes = _part(about, "archive_info").get("hashes")
        digest = hashes.get("sha256") if isinstance(hashes, dict) else ""
        return f"graphbus @ {_without_password(url)}" + (f" --hash=sha256:{digest}" if digest else "")
    return ""


def _part(about: dict[str, Any], name: str) -> dict[str, Any]:
    part = about.get(name)
    return part if isinstance(part, dict) else {}


def _by_git(url: str, commit: str) -> str:
    known = _SCP.fullmatch(url)
    if known and "://" not in url:
        url = f"ssh://{known['user'] or ''}{known['host']}/{known['path'].lstrip('/')}"
    if not url.startswith(("https://", "ssh://")):
        return ""
    return f"graphbus @ git+{_without_password(url)}@{commit}"


def _without_password(url: str) -> str:
    """Without what somebody's own address lets in: it would be committed."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    kept = user.partition(":")[0] if parts.scheme == "ssh" else ""
    return urlunsplit(parts._replace(netloc=f"{kept}@{host}" if kept else host, fragment=""))


def _folder(about: dict[str, Any]) -> str:
    url = str(about.get("url", ""))
    return unquote(urlsplit(url).path) if "dir_info" in about and url.startswith("file://") else ""


def _of_checkout(folder: str) -> str:
    """The commit that is checked out there, if a remote has it."""
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    commit, url = _git(folder, "rev-parse", "HEAD"), _git(folder, "remote", "get-url", "origin")
    is_known = status == "" and bool(_git(folder, "branch", "--remotes", "--contains", "HEAD"))
    return _by_git(url, commit) if commit and url and is_known else ""


def _git(folder: str, *arguments: str) -> str | None:
    """What git says; None when it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
