"""`graphbus gate`: judge a change that another tool or a person made. Nothing is written."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from graphbus_core import settings, store
from graphbus_core.cli import console
from graphbus_core.cli.checking import gate_formats
from graphbus_core.editing import foreign, revisions
from graphbus_core.editing.foreign import Change
from graphbus_core.editing.gate import judge
from graphbus_core.editing.git import STAGED, Repository
from graphbus_core.editing.patches import apply_patch
from graphbus_core.editing.rungs.scope import fits
from graphbus_core.errors import BuildError, EditError, Place, UsageError
from graphbus_core.model.config import Settings

REFUSED = BuildError.exit_status


class Wanted(NamedTuple):
    """What the command line asks for."""

    path: str
    new: str
    patch: str
    against: str
    is_staged: bool
    allow: tuple[str, ...]
    is_for_base_tests: bool
    is_unsafe: bool


class Subject(NamedTuple):
    """What is judged: the change, and what to call its other side."""

    change: Change
    base: str


@click.command("gate", short_help="Judge a change that another tool or a person made.")
@click.argument("path", default="", metavar="[FILE]")
@click.option("--new", default="", metavar="TEXT", help="A file with the whole new text of FILE; `-`: standard input.")
@click.option("--patch", default="", metavar="DIFF", help="A unified diff for the working tree; `-`: standard input.")
@click.option(
    "--against", default="", metavar="REV", help="Compare the working tree with this revision (default: HEAD)."
)
@click.option("--staged", is_flag=True, help="Judge what is staged, compared with HEAD.")
@click.option("--allow", multiple=True, metavar="GLOB", help="Further files that may change, e.g. 'tests/**'.")
@click.option("--base-tests", is_flag=True, help="Leave changed tests out; those from before decide alone.")
@click.option("--unsafe-verify", is_flag=True, help="Let pass what cannot be tried.")
@click.option("--format", "form", type=click.Choice(["text", "json", "sarif"]), help="How to report (default: text).")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def gate(*, path: str, form: str | None, as_json: bool, **options: str | bool | tuple[str, ...]) -> int:
    """Judge a change as the gate judges those of agents: rung by rung, before anything is written.

    Without an option the working tree is compared with HEAD: all files, staged or not, new ones included. A change of a
    file that is neither Python nor a document is refused unless --allow names it. With
    --patch a diff is judged as if it were applied, with FILE and --new one file as if it had another text.

    Exit status: 0 it passes; 3 it is refused; 2 wrong usage; 4 the patch does not apply.

    \b
    Examples:
      graphbus gate
      graphbus gate --against main --allow 'tests/**' --format sarif > gate.sarif
      git diff | graphbus -C ../clean gate --patch -
      graphbus gate agents/orders.py --new proposal.py
    """
    if as_json and form not in (None, "json"):
        raise _usage(f"--json and --format {form} contradict each other.")
    wanted = Wanted(
        path,
        str(options["new"]),
        str(options["patch"]),
        str(options["against"]),
        bool(options["staged"]),
        tuple(map(str, options["allow"])) if isinstance(options["allow"], tuple) else (),
        bool(options["base_tests"]),
        bool(options["unsafe_verify"]),
    )
    _check_usage(wanted)
    return _gate(wanted, "json" if as_json else form or "text")


def _usage(message: str) -> UsageError:
    return UsageError("GBE110", message=message, command="graphbus gate")


def _check_usage(wanted: Wanted) -> None:
    """Refuse options that do not go together."""
    ways = [
        name
        for name, is_given in (
            ("--new", wanted.new),
            ("--patch", wanted.patch),
            ("--against", wanted.against),
            ("--staged", wanted.is_staged),
        )
        if is_given
    ]
    if len(ways) > 1:
        raise _usage(f"{ways[0]} and {ways[1]} contradict each other.")
    if wanted.path and not wanted.new:
        raise _usage("FILE needs --new with its whole new text.")
    if wanted.new and not wanted.path:
        raise _usage("--new needs the FILE whose new text it is.")


def _gate(wanted: Wanted, form: str) -> int:
    root = settings.find_root([Path.cwd()])
    with ExitStack() as stack:
        subject = _subject(wanted, root, stack)
        words: dict[str, str] = {}
        report = judge(subject.change, words.__setitem__)
    change = subject.change
    refused = {rung.path for rung in report.rungs if rung.path in change.unjudged}
    files = tuple(sorted({*change.files, *refused}))
    others = tuple(path for path in change.unjudged if path not in refused)
    verdict = gate_formats.Judged(report, files, subject.base, others, str(root), words)
    if form == "json":
        console.emit_json(gate_formats.as_json(verdict))
    elif form == "sarif":
        console.emit_json(gate_formats.as_sarif(verdict))
    else:
        for line in gate_formats.as_text(verdict):
            console.out(line)
    return 0 if report.passed else REFUSED


def _subject(wanted: Wanted, root: Path, stack: ExitStack) -> Subject:
    """Read the change and the project before it."""
    if wanted.new:
        path = _below(root, wanted.path)
        data = foreign.encoded(_read(wanted.new), foreign.bytes_on_disk(root, path))
        change = foreign.of_files(root, _settings(root, wanted), {path: data})
        return Subject(_with_options(change, wanted), "the working tree")
    if wanted.patch:
        files = apply_patch(_read(wanted.patch), lambda path: foreign.bytes_on_disk(root, path))
        after = {path: after for path, (_, after) in files.items() if _is_judged(path, wanted)}
        others = tuple(sorted(files.keys() - after.keys()))
        change = foreign.of_files(root, _settings(root, wanted), after)._replace(unjudged=others)
        return Subject(_with_options(change, wanted), "the working tree")
    return _since_revision(wanted, root, stack)


def _since_revision(wanted: Wanted, root: Path, stack: ExitStack) -> Subject:
    revision = wanted.against or "HEAD"
    repository = revisions.repository_of(root)
    difference = revisions.difference(
        repository,
        revision,
        is_staged=wanted.is_staged,
        is_judged=lambda path: _is_judged(path, wanted),
    )
    base = stack.enter_context(revisions.tree_at(repository, difference.commit))
    project = foreign.read_project(foreign.config_of(base, _settings(base, wanted)), f"{root} at {revision}")
    others = _not_made_here(repository, project.config.settings.artifacts, difference)
    change = foreign.Change(project, difference.files, links=difference.links, unjudged=others)
    return Subject(_with_options(change, wanted), f"{revision} ({difference.commit[:7]})")


def _is_judged(path: str, wanted: Wanted) -> bool:
    return path.endswith(".py") or any(fits(path, glob) for glob in wanted.allow)


def _not_made_here(repository: Repository, artifacts: str, difference: revisions.Difference) -> tuple[str, ...]:
    """Leave out what a build wrote: the artifacts, which the gate does not read, and what nobody has given to git."""
    from graphbus_core.negotiation.lock import LOCK

    written = {f"{artifacts}/{name}" for name in (*store.ARTIFACTS, store.MANIFEST, LOCK)}
    below = {path for path in difference.others if path.startswith(f"{artifacts}/")} - difference.links
    tracked = frozenset(repository.list_files(STAGED)) if below else frozenset()
    return tuple(path for path in difference.others if path not in below or (path not in written and path in tracked))


def _settings(root: Path, wanted: Wanted) -> Settings:
    """Those of the tree before the change: no change loosens the gate that judges it."""
    from graphbus_core import settings

    found = settings.load(root)
    if not wanted.is_unsafe:
        return found
    change = msgspec.structs.replace
    return change(found, gate=change(found.gate, allow_unverified=True))


def _with_options(change: Change, wanted: Wanted) -> Change:
    return change._replace(allow=wanted.allow, is_for_base_tests=wanted.is_for_base_tests)


def _below(root: Path, path: str) -> str:
    """Give a path as the project has it; one that leads out stays as it is written, for the gate to refuse."""
    whole = Path(os.path.normpath(Path.cwd() / path))
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else path


def _read(name: str) -> bytes:
    """Read a file, or standard input.

    Raises:
        EditError: GBE343.
    """
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as reason:
        why = (reason.strerror or str(reason)).lower()
        raise EditError("GBE343", where=Place(name), path=name, reason=why) from None
