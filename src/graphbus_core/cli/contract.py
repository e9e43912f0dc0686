"""`graphbus contract`: check what agents promise each other, find what a change breaks, and export the promises.

contract validate    every method and edge; with --against, what has changed since a revision
contract diff        compare two states of the graph
contract export      the promises as JSON Schema, OpenAPI or AsyncAPI

A state of the graph is a folder with sources, a folder with artifacts, or a git revision:
an existing path such as `agents/` is a folder, any other name such as `main` a revision; `rev:agents` is always a revision.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import Any, TypeVar

import click

from graphbus_core import settings
from graphbus_core.cli import console, contract_report, shipping
from graphbus_core.cli.contract_report import Comparison
from graphbus_core.cli.deployed import can_deploy
from graphbus_core.cli.states import (
    GraphState,
    built_sources,
    errors_without_finding,
    is_artifacts,
    read_project,
    read_revision,
    read_state,
    state_of_project,
)
from graphbus_core.compiler import rules
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.contracts import compare, versions
from graphbus_core.contracts.both_ways import compare_both_ways
from graphbus_core.contracts.edges import ContractValidation, validate_contracts
from graphbus_core.errors import (
    BuildError,
    DeployError,
    GraphBusError,
    UsageError,
    did_you_mean,
    raise_all,
)
from graphbus_core.model.config import RuntimeConfig
from graphbus_core.store.migration import load_any

_Function = TypeVar("_Function", bound=Callable[..., Any])

_FAILED = BuildError.exit_status
_DOCUMENTS = {"json": contract_report.document, "sarif": contract_report.sarif_log}
_RENDERERS = {
    "text": contract_report.as_text,
    "markdown": contract_report.as_markdown,
    "github": contract_report.for_github,
}


class _ValidatesByDefault(click.Group):
    """Runs `validate` without its name: `contract agents/`. A folder named like a subcommand is written `./diff`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `validate` unless the first word is a subcommand; raise GBE110 if it looks like a misspelled one."""
        word = args[0] if args else ""
        is_named = word in (*self.commands, *ctx.help_option_names)
        if not (is_named or os.path.exists(word)) and (near := did_you_mean(word, self.commands)):
            message = f"There is no folder and no command {word!r}.{near}"
            raise UsageError("GBE110", message=message, command=ctx.command_path, purpose="list the commands")
        return super().parse_args(ctx, args if is_named else ["validate", *args])


_COMPARISON_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="The same as --format json."),
    click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json", "sarif", "github", "markdown"]),
        help="The format of the report (text).",
    ),
    click.option("--check-version", is_flag=True, help="Fail if the version is too low for the changes."),
    click.option("--current", default="", metavar="VERSION", help="The version of OLD (that in its pyproject.toml)."),
    click.option(
        "--allow-announced", is_flag=True, help="Do not fail for breaking changes that the raised version announces."
    ),
    click.option("--allow-breaking", is_flag=True, help="Do not fail for breaking changes."),
)


def _add_comparison_options(command: _Function) -> _Function:
    """Add the options that `contract validate --against` and `contract diff` have in common."""
    for option in _COMPARISON_OPTIONS:
        command = option(command)
    return command


def _usage_error(message: str, command: str) -> UsageError:
    """Return GBE110 for a subcommand of `graphbus contract`."""
    return UsageError(
        "GBE110", message=message, command=f"graphbus contract {command}", purpose="see its arguments and options"
    )


@click.group("contract", cls=_ValidatesByDefault, short_help="List edges between agents, compare and export them.")
def contract() -> None:
    """List, compare and export what agents promise each other. `contract agents/` is short for `contract validate agents/`.

    `graphbus check` reports mistakes; this command lists every promise, also those that hold. `contract diff` compares only
    promises and names the agents that a change breaks; `graphbus diff` lists every value that differs between two builds.

    \b
    Examples:
      graphbus contract agents/
      graphbus contract agents/ --against main --format github
      graphbus contract diff v1.2
      graphbus contract export --format jsonschema
    """


@contract.command("validate", short_help="List every contract and edge with its verdict.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--against", metavar="REV", help="List what changed since HEAD left REV, and the agents it breaks.")
@click.option("--unknown", "only_unknown", is_flag=True, help="List only the unknown edges, with the reasons.")
@_add_comparison_options
def validate(*, against: str | None, only_unknown: bool, paths: tuple[str, ...], **options: Any) -> int:
    """List every `@schema_method` and every edge between agents with its verdict: proven (both ends are known and fit),
    unknown (with the reason) or broken. Your code is not run. The rules are those of `graphbus check`.

    PATH is a folder or file with agents, or a folder with artifacts, whose sources are read; by default the project.

    With --against, the changes since a revision are listed as well, for pull requests: REV is a branch, tag or commit. For a
    branch that does not exist here, origin/REV is used.

    Exit status: 0 everything holds; 3 something is broken, or a change breaks an agent; 2 wrong usage.

    \b
    Examples:
      graphbus contract validate agents/
      graphbus contract validate agents/ --against main --format github
      graphbus contract --unknown
    """
    form = console.chosen_format(options)
    if against is not None and not against.strip():
        raise _usage_error("--against is empty: name a branch, tag or commit to compare with.", "validate")
    if not against and any(options.values()):
        raise _usage_error("These options need a revision to compare with: pass --against REV.", "validate")
    paths = built_sources(paths[0]) if len(paths) == 1 and is_artifacts(paths[0]) else paths
    project = read_project(paths)
    validation = validate_contracts(Wiring(project), rules.check(project))
    old = read_revision(against, paths, is_merge_base=True) if against else None
    new = state_of_project("the working tree", project, project.config.root)
    comparison = _compare_states(old, new, **options) if old else None
    return _print_report(
        comparison, form, validation, new.root, errors_without_finding(project), only_unknown=only_unknown
    )


@contract.command("diff", short_help="Compare two states of the contracts.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="[NEW]", default="")
@click.option(
    "--path",
    "paths",
    multiple=True,
    metavar="PATH",
    help="Where the agents are, in a revision and in the working tree.",
)
@click.option(
    "--both-ways", is_flag=True, help="Say also whether each state handles the messages that the other one sends."
)
@click.option(
    "--reader",
    default="",
    metavar="NAME",
    help="Compare the messages of another framework: celery, or a reader of another package.",
)
@_add_comparison_options
def diff(*, old: str, new: str, paths: tuple[str, ...], both_ways: bool, reader: str, **options: Any) -> int:
    """Compare the contracts of two states of the graph: OLD, and NEW (the working tree by default).

    Each is a folder with sources, a folder with artifacts, or a git revision. An existing folder takes precedence;
    `rev:NAME` always means a revision. Revisions are read from git without a checkout, and your code is not run. Without
    --path, agents are searched in the whole project.

    A change is breaking if an agent that relies on the contract can fail. For methods and external_topics, callers from outside
    count as well. The next version number follows from the changes.

    With --both-ways, messages count that are on their way while builds change: old ones in new code, new ones in old code,
    retries and dead letters of the old build, and a rollback. Each break names both places, whose messages fail, and the order
    of deploys in which nothing breaks. A raised version does not excuse it.

    With --reader, the messages of another framework are compared both ways, such as the tasks of Celery, in a whole repository.
    OLD is then the commit in which HEAD left it, unless NEW is given.

    Exit status: 0 no change breaks anything; 3 one does, or --check-version fails; 2 wrong usage.

    \b
    Examples:
      graphbus contract diff main
      graphbus contract diff v1.2 HEAD --path agents/
      graphbus contract diff old/.graphbus .graphbus --json
      graphbus contract diff v1.2 --both-ways
      graphbus contract diff main --format markdown > comment.md
      graphbus contract diff origin/main --reader celery
    """
    form = console.chosen_format(options)
    if not old.strip():
        raise _usage_error("OLD is empty: name a folder or a revision to compare with.", "diff")
    if reader:
        from graphbus_core.cli.contract_reader import diff_with_reader

        return diff_with_reader(reader, (old, new), paths, form, {**options, "both_ways": both_ways})
    states = read_state(old, paths), read_state(new, paths)
    if not any(each.agents for each in states):
        raise DeployError("GBE746", path=" and ".join(each.label for each in states))
    for one, other in (states, states[::-1]):
        one.check_readable_beside(other)
    comparison = _compare_states(*states, **options)
    if both_ways:
        comparison = comparison._replace(both_ways=compare_both_ways(*(each.messages for each in states)))
    return _print_report(comparison, form)


def _compare_states(
    old: GraphState,
    new: GraphState,
    *,
    current: str,
    allow_breaking: bool,
    allow_announced: bool,
    check_version: bool,
) -> Comparison:
    """Compare two states.

    Args:
        current: The version of the old state; empty means that in its pyproject.toml.
        allow_breaking: Allow all breaking changes.
        allow_announced: Allow breaking changes if the version of the new state is high enough for them.
        check_version: Let the comparison fail if the version of the new state is too low.
    """
    changes = compare.compare_surfaces(old.surface, new.surface)
    suggestion = versions.suggest_version(changes, current or old.version, new.version)
    return Comparison(
        old.label,
        new.label,
        changes,
        suggestion,
        new.root,
        is_forced=allow_breaking,
        is_allowed=allow_breaking or (allow_announced and suggestion.is_enough is True),
        may_announce=allow_announced and not allow_breaking,
        checks_version=check_version,
    )


def _print_report(
    comparison: Comparison | None,
    form: str,
    validation: ContractValidation | None = None,
    root: str = "",
    errors: Sequence[GraphBusError] = (),
    *,
    only_unknown: bool = False,
) -> int:
    """Print the report; return 3 if there are errors, broken edges or changes that are not allowed, else 0.

    With `only_unknown`, only unknown edges are printed; the exit status still depends on all edges.

    Raises:
        UsageError: GBE172, the versions must be compared, but one of them is unknown.
    """
    shown = validation.with_verdict("unknown") if validation and only_unknown else validation
    if comparison and comparison.checks_version and comparison.suggestion.is_enough is None:
        is_old = not comparison.suggestion.current
        advice = (
            "Pass the old version with `--current`, e.g. `--current 1.4.2`."
            if is_old
            else "Set `version` in [project] of pyproject.toml."
        )
        raise UsageError("GBE172", which="old" if is_old else "new", advice=advice)
    if form in _DOCUMENTS:
        console.emit_json(_DOCUMENTS[form](comparison, shown, root, errors))
    else:
        for error in errors:
            console.print_error(error)
        console.print_lines(_RENDERERS[form](comparison, shown, root))
    is_broken = bool(errors) or (validation is not None and not validation.is_clean)
    return _FAILED if is_broken or (comparison and comparison.fails) else 0


# --- documents --------------------------------------------------------------------------------


@contract.command("export", short_help="Write the contracts as JSON Schema, OpenAPI or AsyncAPI.")
@click.argument("path", metavar="[PATH]", default="")
@click.option(
    "--format", "form", required=True, type=click.Choice(["jsonschema", "openapi", "asyncapi"]), help="The format."
)
@click.option(
    "--output", "-o", default="", metavar="FILE|DIR", help="The file, or a folder that ends with `/` (stdout)."
)
@click.option("--yaml", "as_yaml", is_flag=True, help="Write YAML instead of JSON.")
@shipping.writing_options
def export(*, path: str, form: str, output: str, as_yaml: bool, **options: bool) -> None:
    """Write the contracts of the agents in a standard format. Your code is not run.

    PATH is a folder with sources or with artifacts; by default the project. The same contracts always give the same bytes.

    \b
    jsonschema  payloads of topics, arguments and results (draft 2020-12):
                one document, or with a folder as --output one for each
    openapi     what `graphbus run --serve` offers over HTTP (OpenAPI 3.1)
    asyncapi    topics with their payloads and both ends (AsyncAPI 3.0)

    Exit status: 0 done; 2 wrong usage; 3 the sources cannot be read; 6 the artifacts cannot be read; 8 a file exists already
    or, with --check, is out of date.

    \b
    Examples:
      graphbus contract export --format asyncapi
      graphbus contract export agents/ --format jsonschema --output schemas/
      graphbus contract export .graphbus/ --format openapi --yaml
      graphbus contract export --format asyncapi --output asyncapi.json --check
    """
    write_options = shipping.WriteOptions(**options)
    if not output and (write_options.is_forced or write_options.is_check or write_options.is_diff):
        option = "--force" if write_options.is_forced else "--check" if write_options.is_check else "--diff"
        raise UsageError("GBE131", option=option, needed="--output")
    place = Path(output)
    is_folder = output.endswith("/") or (bool(output) and place.is_dir())
    suffix = "yaml" if as_yaml else "json"
    contents = {
        f"{name}.{suffix}" if is_folder else place.name: _render_document(each, as_yaml=as_yaml)
        for name, each in _make_documents(path, form, is_split=is_folder and form == "jsonschema").items()
    }
    if not output:
        console.print_line(*contents.values(), end="")
        return
    folder = place if is_folder else place.parent
    states = shipping.write_files(folder, contents, write_options)
    if write_options.as_json:
        console.emit_json({"format": form, "folder": str(folder), "files": states})


def _make_documents(path: str, form: str, *, is_split: bool) -> Mapping[str, Mapping[str, Any]]:
    """Return name -> document for the artifacts in a folder, or for the sources there as a build would describe them.

    With `is_split`, there is one document for each schema.

    Raises:
        GraphBusError: The artifacts or the sources cannot be read.
    """
    from graphbus_core.contracts import documents

    if path and is_artifacts(path):
        serve = settings.resolve_run(RuntimeConfig(artifacts=path)).settings.serve
        info = settings.project_info(settings.find_root([Path(path).resolve().parent]))
        artifacts = load_any(Path(path))[0]
    else:
        from graphbus_core.compiler.stages import History, describe_project

        project = read_project((path,) if path else ())  # refused if empty: an empty document would promise nothing
        raise_all(project.errors)
        serve = project.config.settings.runtime.serve
        info, artifacts = settings.project_info(project.config.root), describe_project(project, History())
    if is_split:
        return documents.single_schemas(artifacts)
    if form == "openapi":
        from graphbus_core.hosting.serving import openapi

        return {form: openapi.describe_api(artifacts, info, wait_limit_s=serve.call_timeout_s)}
    return {form: (documents.asyncapi_document if form == "asyncapi" else documents.bundle_schemas)(artifacts, info)}


def _render_document(document: Mapping[str, Any], *, as_yaml: bool) -> str:
    """Return the document as YAML, or as indented JSON without control characters."""
    if as_yaml:
        from graphbus_core.deploy import yaml

        return yaml.render_yaml(document)
    text = dumps(document, indent=2, ensure_ascii=False)
    return "".join(each if each.isprintable() or each == "\n" else dumps(each)[1:-1] for each in text) + "\n"


contract.add_command(can_deploy)
