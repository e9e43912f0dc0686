"""Rung G0: which files a proposal may change at all. This is an allow list: whatever is not clearly allowed is refused."""

from __future__ import annotations

import ast
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from graphbus_core.compiler.project import Project
from graphbus_core.editing.rungs.codes import Refusal
from graphbus_core.model.proposals import CodeChange, Proposal

_PROTECTED = (
    *("tests/*", "test/*", "*/tests/*", "*/test/*", "test_*.py", "*_test.py", "conftest.py"),
    *(".*", ".*/*", "*/.*", "setup.py", "noxfile.py", "*/settings/*", "tasks.py", "fabfile.py"),
    *("*.toml", "*.cfg", "*.ini", "*.json", "*.yaml", "*.yml", "*.lock", "*.txt", "*.pem", "*.key", "*.pth"),
    *("secrets.py", "credentials.py", "sitecustomize.py", "usercustomize.py"),
)


def check_scope(proposal: Proposal, project: Project) -> Refusal | None:
    """Refuse a proposal that changes nothing, or a file, class or agent that it may not change; None if all is allowed."""
    if not proposal.code_changes:
        return Refusal("G0.empty", "The proposal has no change.")
    for change in proposal.code_changes:
        problem = (
            check_path(change.file_path, project, project.editable)
            or _check_base_class(change, project)
            or _check_audience(proposal, change, project)
        )
        if problem:
            return problem
    return _check_new_code(proposal, project)


def check_path(path: str, project: Project, bases: Collection[str] = ()) -> Refusal | None:
    """Refuse a file that no proposal may change; None if it may be changed.

    Args:
        path: The file.
        project: The project, with its settings.
        bases: Files that define no agent and may be changed nevertheless, because agents inherit from classes in them.
    """
    if path not in project.agent_files and path not in bases:
        return _refuse_unlisted_path(path, project)
    protected = next(
        (glob for glob in (*project.config.safety_config.protected_files, *_PROTECTED) if matches_glob(path, glob)), ""
    )
    if protected:
        return Refusal("G0.protected", f"{path} is protected by {protected!r}.", path)
    if is_behind_link(project.config.root, path):
        return Refusal("G0.link", f"{path} is a symbolic link or lies in a folder that is one.", path)
    return None


def check_sizes(changed: Mapping[str, tuple[bytes, bytes]], project: Project) -> Refusal | None:
    """Refuse a change (path -> bytes before and after) that makes a file too large, or changes too many lines."""
    limits = project.config.settings.gate
    lines = 0
    for path, (before, after) in changed.items():
        if len(after) > limits.max_file_size_bytes and len(after) > len(before):
            message = f"{path} grows to {len(after)} bytes; max_file_size_bytes is {limits.max_file_size_bytes}."
            return Refusal("G0.size", message, path)
        lines += changed_lines(before.split(b"\n"), after.split(b"\n"), limits.max_changed_lines)
    if lines > limits.max_changed_lines:
        return Refusal("G0.size", f"More than {limits.max_changed_lines} lines change, the limit of max_changed_lines.")
    return None


def changed_lines(before: Sequence[bytes], after: Sequence[bytes], most: int) -> int:
    """Return the number of removed or of added lines, whichever is larger; `most + 1` for any number above `most`.

    This is the greedy diff algorithm of Myers (1986), stopped early: its time is bounded by the length of the texts and the
    square of `most`. `distance` counts removed and added lines; `surplus` is added minus removed lines.
    """
    longer, wanted = len(after) - len(before), len(before)
    furthest = {0: 0}  # surplus -> how many lines of the old text are processed
    for distance in range(2 * most + 2):
        for surplus in range(-distance, distance + 1, 2):
            # how many old lines are processed if the last step adds a line, and if it removes one
            added, removed = furthest.get(surplus - 1, -1), furthest.get(surplus + 1, -2) + 1
            old = max(added, removed) if distance else 0
            if old < 0 or old > wanted or old + surplus > len(after):
                furthest.pop(surplus, None)
                continue
            while old < wanted and old + surplus < len(after) and before[old] == after[old + surplus]:
                old += 1
            furthest[surplus] = old
            if surplus == longer and old == wanted:
                return (distance + abs(longer)) // 2
    return most + 1


def check_touched(proposal: Proposal, before: Project, after: Project) -> Refusal | None:
    """Refuse a proposal that changes the text of an agent which is neither its author nor named in `dst` or `affects`."""
    named = {proposal.src, proposal.dst, *proposal.affects}
    for old in before.definitions:
        new = after.agent(old.name)
        if new and new.source_digest != old.source_digest and old.name not in named:
            message = f"The text of {old.name} would change, but neither `dst` nor `affects` names this agent."
            return Refusal("G0.audience", message, new.path, new.span.line)
    return None


def _refuse_unlisted_path(path: str, project: Project) -> Refusal:
    """Return the refusal for a path that is not on the allow list: it is malformed, or its file defines no agent."""
    parts = PurePosixPath(path).parts
    plain = unicodedata.normalize("NFKC", path).casefold().replace("\\", "/")
    known = {unicodedata.normalize("NFKC", known).casefold(): known for known in project.agent_files}
    is_malformed = (
        not path
        or path.startswith(("/", "~"))
        or ".." in parts
        or not path.isprintable()
        or "\\" in path
        or str(PurePosixPath(plain)) in known
        or plain[1:2] == ":"  # a drive of Windows
    )
    if is_malformed:
        return Refusal("G0.path", f"{path!r} is not a path of this project, relative to its root.", path)
    return Refusal("G0.not-agent-file", f"{path} defines no agent.", path)


def is_protected(path: str) -> bool:
    """True for files that no proposal may change in any project: tests, configuration, secrets, lock files."""
    return any(matches_glob(path, glob) for glob in _PROTECTED)


def matches_glob(path: str, glob: str) -> bool:
    """True if a glob matches the path, its file name or a folder above it, ignoring case."""
    wanted, whole = glob.casefold().rstrip("/"), path.casefold()
    name = whole.rpartition("/")[2]
    return fnmatch(whole, wanted) or fnmatch(name, wanted) or whole.startswith(f"{wanted}/")


def is_behind_link(root: str, path: str) -> bool:
    """True if a path in a folder `root` is a symbolic link, or passes through one."""
    step = Path(root)
    for part in PurePosixPath(path).parts:
        step /= part
        if step.is_symlink():
            return True
    return False


def _check_base_class(change: CodeChange, project: Project) -> Refusal | None:
    """Refuse a change in a file without an agent, unless it adds imports or changes a class that agents inherit from."""
    path, name = change.file_path, change.target.partition(".")[0]
    if path in project.agent_files or change.operation == "add_import":
        return None
    agents = (project.agent(owner) for owner in project.editable[path])
    lines = {method.span.line for agent in agents if agent for method in agent.methods if method.span.path == path}
    for node in project.source(path).parse().body:
        if isinstance(node, ast.ClassDef) and node.name == name and lines & {*range(node.lineno, node.end_lineno or 0)}:
            return None
    return Refusal("G0.not-agent-file", f"{name or 'Code outside of classes'} is no base class of an agent.", path)


def _check_audience(proposal: Proposal, change: CodeChange, project: Project) -> Refusal | None:
    """Refuse a change of code whose owner is neither the proposer nor named in `dst` or `affects`.

    The owner of a class that is an agent is that agent; the rest of a file belongs to all agents in it, of which one must be
    named. A base class belongs to all agents that inherit from it, and all must be named.
    """
    named = {proposal.src, proposal.dst, *proposal.affects}
    owners = project.editable[change.file_path]
    name = change.target.partition(".")[0]
    concerned = [name] if name in owners else list(owners)
    is_base = change.file_path not in project.agent_files
    if not named.issuperset(concerned) if is_base else named.isdisjoint(concerned):
        reason = f"belongs to {', '.join(concerned)}, but neither `dst` nor `affects` names the owner"
        return Refusal("G0.audience", f"{change.target or change.file_path} {reason}.", change.file_path)
    return None


def _check_new_code(proposal: Proposal, project: Project) -> Refusal | None:
    """Refuse new code that is larger than a file may be, before it is parsed."""
    limit = project.config.settings.gate.max_file_size_bytes
    size_bytes = sum(len(change.new_code.encode(errors="replace")) for change in proposal.code_changes)
    if size_bytes > limit:
        return Refusal("G0.size", f"The new code has {size_bytes} bytes; max_file_size_bytes is {limit}.")
    return None
